//! The fabric with switches, against calculations by hand.

mod any;
mod net;
mod paths;
mod queues;
