//! Queue pair states and attributes, and the defaults (api.md §3.4).

use std::fmt;

use crate::access::Access;
use crate::gid::Gid;

/// State of a queue pair. Values are those of `ibv_qp_state`; SQD and SQE do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QpState {
    /// As created. Nothing may be posted.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to receive and to send.
    Rts = 3,
    /// Failed: everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// All states.
    pub const ALL: [QpState; 5] = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Err];

    /// The table of legal transitions, staying included.
    pub fn may_go_to(self, to: QpState) -> bool {
        use QpState::{Err, Init, Reset, Rtr, Rts};
        self == to || matches!((self, to), (Reset, Init) | (Init, Rtr) | (Rtr, Rts) | (_, Err | Reset))
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Err => "ERR",
        })
    }
}

/// How often a packet is sent again before the queue pair gives up (protocol.md §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryCount {
    /// Retries at the fixed interval, 0 to 7.
    pub linear: u8,
    /// Retries at doubling intervals, 0 to 25; 25 is for ever.
    pub exponential: u8,
}

/// Where the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// One of this device's GIDs.
    pub local: Gid,
    /// The peer's GID, of the same family.
    pub remote: Gid,
    /// IP hop limit; 0 stands for 64.
    pub hop_limit: u8,
    /// Stored and reported only: DSCPs come from the device.
    pub traffic_class: u8,
}

bitflags::bitflags! {
    /// Capabilities of a connection (`mrc_qp_cap`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpCapabilities: u32 {
        /// The peer does not answer trimmed packets with NACKs.
        const TRIM_NACK_DEST_UNSUPPORTED = 1;
        /// Both sides can change the receive window at run time.
        const DYNAMIC_MPR = 2;
        /// The peer does not remove its service time from timestamps.
        const SVC_TIME_DEST_UNSUPPORTED = 4;

        const _ = !0;
    }
}

/// Attributes for [`QueuePair::modify`](crate::QueuePair::modify); `None` leaves an attribute as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// State to go to; `None` stays.
    pub state: Option<QpState>,
    /// Asserts the present state.
    pub cur_state: Option<QpState>,
    /// Partition key index; only 0 exists. To INIT.
    pub pkey_index: Option<u16>,
    /// What peers may do through this queue pair. To INIT and later; default [`Access::PEER_WRITABLE`].
    pub access: Option<Access>,
    /// The peer's address. To INIT or RTR, required before RTR.
    pub address: Option<AddressVector>,
    /// The peer's queue pair number. To INIT or RTR, required before RTR.
    pub dest_qpn: Option<u32>,
    /// First PSN that the peer sends. To RTR; default 0.
    pub rq_psn: Option<u32>,
    /// Payload of a full packet in bytes. To RTR; default: the device's active PMTU.
    pub pmtu: Option<u32>,
    /// First PSN that we send. To RTS; default 0.
    pub sq_psn: Option<u32>,
    /// Send window, unit 128 packets. To INIT, RTR or RTS; default 8.
    pub mpr: Option<u8>,
    /// Receive window, unit 128 packets. To INIT or RTR, and later with [`QpCapabilities::DYNAMIC_MPR`]; default 8.
    pub mpr_dest: Option<u8>,
    /// Writes with immediate in flight as requestor. To INIT, RTR or RTS; default 128.
    pub max_wimm: Option<u16>,
    /// Writes with immediate in flight as responder. To INIT or RTR; default 128.
    pub max_wimm_dest: Option<u16>,
    /// Acknowledgement timeout, 1.024 us * 2^timeout, 0 to 24; 0 is no timer. Any state; default 14.
    pub timeout: Option<u8>,
    /// Retry budget. Any state; default 3 and 5.
    pub retry: Option<RetryCount>,
    /// Capabilities. To INIT, RTR or RTS; default none.
    pub capabilities: Option<QpCapabilities>,
}

impl QpAttr {
    /// Attributes that only change the state.
    pub fn to_state(state: QpState) -> QpAttr {
        QpAttr {
            state: Some(state),
            ..QpAttr::default()
        }
    }
}

/// What the device allows; see [`DeviceContext::limits`](crate::DeviceContext::limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttrLimits {
    pub(crate) max_mpr: u8,
    pub(crate) max_wimm: u16,
    pub(crate) max_wimm_dest: u16,
    pub(crate) active_pmtu: u32,
    pub(crate) dynamic_mpr: bool,
}

/// Attributes in force, defaults applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpAttrInForce {
    /// What peers may do through this queue pair.
    pub access: Access,
    /// The peer's address.
    pub address: Option<AddressVector>,
    /// The peer's queue pair number.
    pub dest_qpn: Option<u32>,
    /// First PSN that the peer sends.
    pub rq_psn: u32,
    /// Payload of a full packet in bytes.
    pub pmtu: u32,
    /// First PSN that we send.
    pub sq_psn: u32,
    /// Send window, unit 128 packets.
    pub mpr: u8,
    /// Receive window, unit 128 packets.
    pub mpr_dest: u8,
    /// Writes with immediate in flight as requestor.
    pub max_wimm: u16,
    /// Writes with immediate in flight as responder.
    pub max_wimm_dest: u16,
    /// Acknowledgement timeout exponent.
    pub timeout: u8,
    /// Retry budget.
    pub retry: RetryCount,
    /// Capabilities.
    pub capabilities: QpCapabilities,
}

impl QpAttrInForce {
    pub(crate) fn defaults(limits: &AttrLimits) -> QpAttrInForce {
        QpAttrInForce {
            access: Access::PEER_WRITABLE,
            address: None,
            dest_qpn: None,
            rq_psn: 0,
            pmtu: limits.active_pmtu,
            sq_psn: 0,
            mpr: limits.max_mpr.min(8),
            mpr_dest: limits.max_mpr.min(8),
            max_wimm: limits.max_wimm.min(128),
            max_wimm_dest: limits.max_wimm_dest.min(128),
            timeout: 14,
            retry: RetryCount {
                linear: 3,
                exponential: 5,
            },
            capabilities: QpCapabilities::empty(),
        }
    }
}
