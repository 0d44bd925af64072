//! Queue pairs.

mod attr;
mod connect;
mod pair;
mod posting;
mod rules;
mod send;

pub use attr::{AddressVector, QpAttr, QpAttrInForce, QpCapabilities, QpState, RetryCount};
pub use connect::QpConfig;
pub use pair::{QpInit, QpQuery, QpSizes, QueuePair};
pub use posting::PostListError;
pub use send::{RawPiece, RawSendRequest, SendRequest};

pub(crate) use send::{MAX_PIECES, SendQueue};
