//! The headers as plain values: `parse` reads exactly `LEN` bytes and cannot fail, `emit` writes exactly `LEN` bytes.
//!
//! Reserved and ignored fields are not part of the values: they are sent as the specification says and not read. Who
//! wants to see them all the same (a dissector) finds them in the `ignored` functions.

mod bth;
mod endpoint;
mod ip;
mod link;
mod probe;
mod reply;
mod write;

pub use bth::{Bth, BthIgnored};
pub use endpoint::{Eeth, EndpointOp, Erth};
pub use ip::{Ipv4Header, Ipv6Header, SrhHeader, UdpHeader, next_header};
pub use link::{EthernetHeader, VlanTag, ether_type};
pub use probe::{Peth, PethIgnored};
pub use reply::{CcState, NackReason, Neth, PathVerdict, Seth, TypeNxt};
pub use write::{Aeth, ImmDt, Meth, Reth, Syndrome, Tseth, TsethIgnored};

pub(crate) use ip::{ipv4_sum, ipv4_sum_fold};

// Offsets are constants within a fixed array: the optimiser sees every index in range.

#[inline]
fn be16<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

#[inline]
fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline]
fn be64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    (be32(b, at) as u64) << 32 | be32(b, at + 4) as u64
}

#[inline]
fn be128<const N: usize>(b: &[u8; N], at: usize) -> u128 {
    (be64(b, at) as u128) << 64 | be64(b, at + 8) as u128
}

#[inline]
fn put<const N: usize, const M: usize>(out: &mut [u8; N], at: usize, bytes: [u8; M]) {
    out[at..at + M].copy_from_slice(&bytes);
}
