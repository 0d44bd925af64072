//! The MRC engine: ports, threads, rings and memory regions.

pub mod engine;
pub mod neigh;
pub mod netlink;
pub mod port;
pub mod region;
pub mod ring;
