//! The public face of MRC as software: Rust API.

mod access;
mod completion;
mod connection;
mod error;
mod gid;
mod memory;
mod qp;

pub use access::Access;
pub use completion::{WcOpcode, WcStatus, WorkCompletion};
pub use connection::{
    Agreement, CONNECTION_INFO_MAX_LEN, CONNECTION_INFO_VERSION, ConnectionInfo, DscpSet, EvEncoding, Incompatible,
    PeerCapabilities,
};
pub use error::{Error, Result};
pub use gid::{AddressFamily, Gid};
pub use qp::{AddressVector, QpAttr, QpAttrInForce, QpCapabilities, QpState, RetryCount};
