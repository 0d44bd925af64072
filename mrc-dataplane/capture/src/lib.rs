//! What the two sides of a capture have in common: the engine that has the packets, and the program that wants them.
//!
//! * [`Filter`]: which packets. The same words on both sides, and for files.
//! * [`Request`]: a capture as it is asked for, in the environment or over the control socket.
//! * [`control`]: where that socket is, and what is said there.

pub mod control;
mod filter;
mod request;

pub use filter::{Direction, Filter, FilterError, Seen};
pub use request::{Request, RequestError};
