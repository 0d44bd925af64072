//! What stands in the rings: plain old data with a fixed layout, the same in one process and between two.

#![expect(
    unsafe_code,
    reason = "says which types may be read from memory that another process wrote"
)]

use std::mem::{align_of, size_of};

/// One piece of local memory of a send request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Sge {
    /// Address in the owner's address space.
    pub addr: u64,
    /// Bytes; 0 means none.
    pub length: u32,
    /// Local key of the region that `addr` lies in.
    pub lkey: u32,
}

/// A send request. In its ring slot it is followed by `num_sge` [`Sge`]s, or by `length` bytes of inline data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct SendEntry {
    /// Handed back in the completion.
    pub wr_id: u64,
    /// Where the first byte goes at the peer.
    pub remote_addr: u64,
    /// The peer's region.
    pub rkey: u32,
    /// [`SendEntry::WRITE`] or [`SendEntry::WRITE_WITH_IMM`].
    pub opcode: u8,
    /// [`SendEntry::SIGNALED`], [`SendEntry::SOLICITED`], [`SendEntry::INLINE`].
    pub flags: u8,
    /// Number of pieces; 0 with inline data.
    pub num_sge: u8,
    /// Zero.
    pub reserved: u8,
    /// Immediate data, as in memory (api.md §3.6: no byte swap).
    pub imm: [u8; 4],
    /// Length of the message in bytes.
    pub length: u32,
}

impl SendEntry {
    /// RDMA write.
    pub const WRITE: u8 = 0;
    /// RDMA write with immediate data.
    pub const WRITE_WITH_IMM: u8 = 1;
    /// Success makes a completion entry.
    pub const SIGNALED: u8 = 1;
    /// The completion at the peer is a solicited event.
    pub const SOLICITED: u8 = 2;
    /// The data stands in the ring slot.
    pub const INLINE: u8 = 4;
}

/// A receive request. It consumes one immediate; its buffers are never written (api.md §3.6), so it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct RecvEntry {
    /// Handed back in the completion.
    pub wr_id: u64,
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CompletionEntry {
    /// Of the work request.
    pub wr_id: u64,
    /// Local QPN.
    pub qpn: u32,
    /// Remote QPN; 0 with an error.
    pub src_qp: u32,
    /// Length of the message; 0 with an error.
    pub byte_len: u32,
    /// Immediate data as sent.
    pub imm: [u8; 4],
    /// Index of the request in its send or receive ring (modulo 2^32): everything up to it is done.
    pub wqe: u32,
    /// `ibv_wc_status` value; 0 is success.
    pub status: u8,
    /// [`CompletionEntry::RDMA_WRITE`], [`CompletionEntry::RECV_RDMA_WITH_IMM`], [`CompletionEntry::RECV`].
    pub opcode: u8,
    /// [`CompletionEntry::WITH_IMM`].
    pub wc_flags: u8,
    /// 1 when the sender asked for a solicited event, or with an error.
    pub solicited: u8,
    /// Reason in our own numbering; 0 with success.
    pub vendor_err: u32,
    /// Zero.
    pub reserved: u32,
}

impl CompletionEntry {
    /// A write has been carried out, or a send request failed.
    pub const RDMA_WRITE: u8 = 1;
    /// A receive request failed.
    pub const RECV: u8 = 0x80;
    /// A write with immediate data has arrived.
    pub const RECV_RDMA_WITH_IMM: u8 = 0x81;
    /// `imm` is valid.
    pub const WITH_IMM: u8 = 2;
    /// Status of an entry that its queue pair took with it; consumers skip it.
    pub(super) const VOID: u8 = 0xFF;
}

/// Types without padding, pointers or invalid bit patterns: any bytes that another process may have left are a value.
///
/// # Safety
/// The type is `repr(C)`, `Copy`, has no padding, and every bit pattern is valid.
pub(super) unsafe trait Pod: Copy {}

// SAFETY: `repr(C)`, integers only; the assertions below prove that there is no padding.
unsafe impl Pod for Sge {}
// SAFETY: as above.
unsafe impl Pod for SendEntry {}
// SAFETY: as above.
unsafe impl Pod for RecvEntry {}
// SAFETY: as above.
unsafe impl Pod for CompletionEntry {}

const _: () = assert!(size_of::<Sge>() == 16 && align_of::<Sge>() == 8);
const _: () = assert!(size_of::<SendEntry>() == 32 && align_of::<SendEntry>() == 8);
const _: () = assert!(size_of::<RecvEntry>() == 8);
const _: () = assert!(size_of::<CompletionEntry>() == 40 && align_of::<CompletionEntry>() == 8);
