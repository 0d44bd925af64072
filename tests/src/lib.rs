//! What the end-to-end tests share: two hosts in a lab, connected queue pairs, verified writes, and ways to disturb them.
//!
//! The tests are in `tests/`. They need root, and run one at a time (`RUST_TEST_THREADS=1`): a lab's hosts share the cores
//! with the test that drives them.

mod connection;
mod data;
mod fabric;
mod forge;
mod icrc;
mod packet;
mod programs;
mod stream;
mod traces;
mod wait;

pub use connection::{Connection, Options, Side, completion, completions, connect};
pub use data::{noise, noise_into};
pub use fabric::{Fabric, Node};
pub use forge::{Forge, next_psn, reseal};
pub use icrc::icrc;
pub use packet::Injector;
pub use programs::{End, built};
pub use stream::Stream;
pub use traces::{Traces, children, has_packets};
pub use wait::{PATIENCE, until};
