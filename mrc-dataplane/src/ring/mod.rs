//! Rings between applications and engine threads: work requests one way, completions the other.
//!
//! Every ring has one producer and one consumer; the types say so (neither end can be cloned, both need `&mut`). What stands in
//! them is plain old data, so that the same rings work between two processes. Nobody trusts what it reads: indices are checked
//! against the capacity, lengths against the slot, and the engine works on copies only.

mod completion;
mod doorbell;
mod entry;
mod index;
mod memory;
mod recv;
mod send;
pub mod wake;

pub use completion::{CompletionConsumer, CompletionProducer, CompletionWatch, CqError, Overrun, completion_queue};
pub use doorbell::{BELLS, Board, Doorbell};
pub use entry::{CompletionEntry, RecvEntry, SendEntry, Sge};
pub use index::RingCorrupt;
pub use recv::{RecvConsumer, RecvProducer, RecvQueueFull, recv_ring};
pub use send::{PushError, SendConsumer, SendData, SendProducer, send_ring};
