//! RDMA writes over many paths, from any Linux host: the public face of MRC as software.
//!
//! The objects are those of verbs. A [`DeviceContext`] is an open device, a [`Context`] the parent of completion queues and
//! queue pairs; [`MemoryRegion`]s are registered in a [`ProtectionDomain`]; a [`QueuePair`] carries writes, with and without
//! an immediate, to one queue pair of a peer; a [`CompletionQueue`] tells how they ended, and a [`CompletionChannel`] lets a
//! program sleep until there is something to tell. What two programs must know of each other is a [`ConnectionInfo`] and,
//! for each region, a [`RemoteRegion`]; both serialise, and how they travel is the programs' own affair.
//!
//! ```no_run
//! use std::io::{BufRead, BufReader, Write};
//! use std::net::TcpStream;
//!
//! use mrc_verbs::{Access, ApiVersion, ConnectionInfo, Context, DeviceContext, ProtectionDomain, QpConfig, QpInit};
//! use mrc_verbs::{RemoteRegion, SendRequest};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // MRC_PORTS=p1,p2,... names the interfaces, one per plane.
//!     let device = DeviceContext::from_env()?;
//!     let context = Context::open(&device, ApiVersion::LATEST)?;
//!     let pd = ProtectionDomain::new(&device)?;
//!     let region = pd.register_owned(1 << 20, Access::PEER_WRITABLE)?;
//!     let cq = context.create_cq(128)?;
//!     let qp = context.create_qp(&pd, &QpInit::new(&cq))?;
//!
//!     // Tell the peer who we are, and learn who it is: one line each way.
//!     let mut socket = TcpStream::connect("peer.example:7000")?;
//!     let mine = qp.offer()?;
//!     writeln!(socket, "{mine}")?;
//!     writeln!(socket, "{}", serde_json::to_string(&region.remote())?)?;
//!     let mut lines = BufReader::new(socket).lines();
//!     let theirs: ConnectionInfo = lines.next().ok_or("the peer has gone")??.parse()?;
//!     let target: RemoteRegion = serde_json::from_str(&lines.next().ok_or("the peer has gone")??)?;
//!     qp.connect(&QpConfig::new(mine, theirs))?;
//!
//!     region.write_at(0, b"hello over every path")?;
//!     qp.post_write(&SendRequest::write(1, region.slice(0..21)?, target))?;
//!     let done = loop {
//!         if let Some(done) = cq.poll_one()? {
//!             break done;
//!         }
//!     };
//!     done.result?; // the peer's memory holds the bytes
//!     Ok(())
//! }
//! ```
//!
//! # What may be relied on
//! * The packets of a write, and different writes, may land in any order. Sends complete in posting order, and a successful
//!   completion means that the peer's memory holds the data. A receive completion (of a write with immediate) appears only
//!   after the data of that write *and of all writes posted before it on the same queue pair* is in place.
//! * Data lands without the target's program calling anything; it may simply watch its memory.
//! * There is no receiver-not-ready retry: a write with immediate that finds no posted receive is an error that ends the
//!   connection.
//! * Objects may be dropped in any order; children keep their parents alive.
//! * After `fork`, the child must not use objects of the parent.

mod access;
mod channel;
mod completion;
mod connection;
mod context;
mod cq;
mod device;
mod error;
mod event;
mod gid;
mod memory;
mod pd;
mod qp;
mod settings;
#[cfg(test)]
mod tests;

pub use access::Access;
pub use channel::CompletionChannel;
pub use completion::{WcOpcode, WcStatus, WorkCompletion};
pub use connection::{
    Agreement, CONNECTION_INFO_MAX_LEN, CONNECTION_INFO_VERSION, ConnectionInfo, DscpSet, EvEncoding, Incompatible,
    PeerCapabilities,
};
pub use context::{ApiVersion, Context};
pub use cq::CompletionQueue;
pub use device::{Device, DeviceContext, DeviceLimits, config_from_env};
pub use error::{Error, Result};
pub use event::AsyncEvent;
pub use gid::{AddressFamily, Gid};
pub use memory::{MemoryRegion, RegionSlice, RemoteAddress, RemoteRegion};
pub use mrc_dataplane::config_file::parse as parse_config;
pub use mrc_dataplane::engine::{
    EngineConfig, EvEntryInfo, EvProfileInfo, EvSelection, PathInfo, PortConfig, PortSnapshot, Snapshot, WindowInfo,
};
pub use mrc_protocol::cc::SchedulerState;
pub use mrc_protocol::profile::{EntryState, EvValue, PortEv};
pub use mrc_protocol::{EvState, QpStats, Reason};
pub use mrc_wire::{Ev, PortNum};
pub use pd::ProtectionDomain;
pub use qp::{
    AddressVector, PostListError, QpAttr, QpAttrInForce, QpCapabilities, QpConfig, QpInit, QpQuery, QpSizes, QpState,
    QueuePair, RawPiece, RawSendRequest, RetryCount, SendRequest,
};

/// The example of the README, as a test that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
