//! What a completion says.

use std::fmt;

/// The operation that a successful completion reports. Values are those of `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WcOpcode {
    /// A write, with or without immediate, was placed and acknowledged by the peer.
    RdmaWrite = 1,
    /// The peer's write with immediate has arrived, and all earlier writes of the same queue pair have been placed.
    RecvRdmaWithImm = 0x81,
}

/// Why a work request failed. Values are those of `ibv_wc_status`; the ones that MRC never produces are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum WcStatus {
    /// The work request was found inconsistent when it was carried out.
    LocQpOpErr = 2,
    /// A local piece names an unknown key, another protection domain, or bytes outside its region.
    LocProtErr = 4,
    /// Outstanding when the queue pair entered ERR, or posted in ERR.
    WrFlushErr = 5,
    /// The peer found the request malformed, too long, or more immediates in flight than it can hold.
    RemInvReqErr = 9,
    /// The peer refused the access: unknown rkey, no `REMOTE_WRITE`, or outside the region.
    RemAccessErr = 10,
    /// The peer could not carry it out; mostly: it had posted no receive for an immediate.
    RemOpErr = 11,
    /// The retry budget is used up: peer gone, queue pair missing, or no path left.
    RetryExcErr = 12,
    /// The device failed.
    FatalErr = 19,
    /// Anything else.
    GeneralErr = 21,
}

impl WcStatus {
    /// The status for a value of `ibv_wc_status`; `None` for success.
    pub(crate) fn from_code(code: u8) -> Option<WcStatus> {
        Some(match code {
            0 => return None,
            2 => WcStatus::LocQpOpErr,
            4 => WcStatus::LocProtErr,
            5 => WcStatus::WrFlushErr,
            9 => WcStatus::RemInvReqErr,
            10 => WcStatus::RemAccessErr,
            11 => WcStatus::RemOpErr,
            12 => WcStatus::RetryExcErr,
            19 => WcStatus::FatalErr,
            _ => WcStatus::GeneralErr,
        })
    }

    /// The value of `ibv_wc_status`.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WcStatus::LocQpOpErr => "local queue pair operation error",
            WcStatus::LocProtErr => {
                "local protection error (unknown lkey, other protection domain, or outside the region)"
            }
            WcStatus::WrFlushErr => "flushed: the queue pair is in error",
            WcStatus::RemInvReqErr => {
                "remote invalid request (malformed, or more immediates in flight than the peer takes)"
            }
            WcStatus::RemAccessErr => "remote access error (unknown rkey, no REMOTE_WRITE, or outside the region)",
            WcStatus::RemOpErr => "remote operation error (no receive posted for an immediate?)",
            WcStatus::RetryExcErr => "retries exhausted: peer gone, its queue pair not ready, or no path left",
            WcStatus::FatalErr => "device failure",
            WcStatus::GeneralErr => "general error",
        })
    }
}

impl std::error::Error for WcStatus {}

/// One completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The identifier given when it was posted.
    pub wr_id: u64,
    /// What was done, or why it was not.
    pub result: Result<WcOpcode, WcStatus>,
    /// True for a completion of the receive queue, also when it failed.
    pub is_recv: bool,
    /// Bytes of the message; 0 on failure.
    pub byte_len: u32,
    /// The immediate, exactly as the sender stored it; only with [`WcOpcode::RecvRdmaWithImm`].
    pub imm: Option<[u8; 4]>,
    /// The local queue pair.
    pub qpn: u32,
    /// The peer's queue pair; 0 on failure.
    pub src_qpn: u32,
    /// Details of a failure, for a bug report.
    pub vendor_err: u32,
}

impl WorkCompletion {
    /// A value to fill arrays for [`CompletionQueue::poll`](crate::CompletionQueue::poll) with.
    pub const EMPTY: WorkCompletion = WorkCompletion {
        wr_id: 0,
        result: Err(WcStatus::GeneralErr),
        is_recv: false,
        byte_len: 0,
        imm: None,
        qpn: 0,
        src_qpn: 0,
        vendor_err: 0,
    };

    /// True if the work was done.
    pub fn is_ok(&self) -> bool {
        self.result.is_ok()
    }
}

impl Default for WorkCompletion {
    fn default() -> Self {
        WorkCompletion::EMPTY
    }
}
