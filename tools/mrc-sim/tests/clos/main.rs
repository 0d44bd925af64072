//! The fabric with switches, against calculations by hand.

mod net;
mod paths;
mod queues;
