//! Queue pairs.

mod attr;

pub use attr::{AddressVector, QpAttr, QpAttrInForce, QpCapabilities, QpState, RetryCount};
