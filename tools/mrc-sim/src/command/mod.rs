//! What the commands do.

pub(crate) mod compare;
pub(crate) mod harness;
pub(crate) mod list;
pub(crate) mod out;
mod progress;
pub(crate) mod replay;
pub(crate) mod run;
