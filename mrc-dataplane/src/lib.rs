//! The MRC engine: ports, threads, rings and memory regions.

// The tests of the engine use its public face, like those in `tests/`.
#[cfg(test)]
extern crate self as mrc_dataplane;

pub mod capture;
pub mod config_file;
pub mod engine;
pub mod neigh;
pub mod netlink;
pub mod port;
pub mod profile;
pub mod region;
pub mod ring;
