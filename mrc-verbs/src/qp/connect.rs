//! From RESET to RTS in one call, with the values that two sides have told each other.

use crate::access::Access;
use crate::connection::{Agreement, CONNECTION_INFO_VERSION, ConnectionInfo};
use crate::error::{Error, Result};

use super::attr::{AddressVector, QpAttr, QpCapabilities, QpState, RetryCount};
use super::pair::QueuePair;

/// How to connect; [`QueuePair::connect`] does it.
#[derive(Clone, Debug)]
pub struct QpConfig {
    mine: ConnectionInfo,
    theirs: ConnectionInfo,
    access: Access,
    timeout: Option<u8>,
    retry: Option<RetryCount>,
    mpr: Option<u8>,
    max_wimm: Option<u16>,
}

impl QpConfig {
    /// What this side has told the peer ([`QueuePair::offer`]), and what the peer has told us.
    pub fn new(mine: ConnectionInfo, theirs: ConnectionInfo) -> QpConfig {
        QpConfig {
            mine,
            theirs,
            access: Access::PEER_WRITABLE,
            timeout: None,
            retry: None,
            mpr: None,
            max_wimm: None,
        }
    }

    /// What the peer may do; default: write.
    #[must_use]
    pub fn access(mut self, access: Access) -> QpConfig {
        self.access = access;
        self
    }

    /// Acknowledgement timeout, 1.024 us * 2^timeout; default 14 (16.8 ms), 17 suits slow links.
    #[must_use]
    pub fn timeout(mut self, timeout: u8) -> QpConfig {
        self.timeout = Some(timeout);
        self
    }

    /// Retry budget; default 3 linear and 5 exponential.
    #[must_use]
    pub fn retry(mut self, linear: u8, exponential: u8) -> QpConfig {
        self.retry = Some(RetryCount { linear, exponential });
        self
    }

    /// Send window, unit 128 packets; the peer's offer limits it.
    #[must_use]
    pub fn mpr(mut self, mpr: u8) -> QpConfig {
        self.mpr = Some(mpr);
        self
    }

    /// Writes with immediate in flight; the peer's offer limits it.
    #[must_use]
    pub fn max_wimm(mut self, max_wimm: u16) -> QpConfig {
        self.max_wimm = Some(max_wimm);
        self
    }
}

impl QueuePair {
    /// What the peer has to know of this queue pair. May be narrowed before it is sent, e.g. by
    /// [`ConnectionInfo::only`] or a smaller `pmtu`; hand the same value to [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`Error::Invalid`] when no PMTU fits the ports' MTU.
    pub fn offer(&self) -> Result<ConnectionInfo> {
        let limits = self.context().device().limits();
        let pmtu = self.context().device().active_pmtu();
        if pmtu == 0 {
            return Err(Error::Invalid {
                what: "port MTU",
                value: "too small".into(),
                limit: "not even a PMTU of 256 fits; raise the MTU of every port (ip link set dev PORT mtu 1500)",
            });
        }
        Ok(ConnectionInfo {
            version: CONNECTION_INFO_VERSION,
            protocol_versions: 1,
            gids: limits.gids.clone(),
            qpn: self.qpn(),
            psn: self.offered_psn(),
            pmtu,
            max_mpr_dest: self.attr_limits().max_mpr,
            max_wimm_dest: self.attr_limits().max_wimm_dest,
            capabilities: limits.capabilities,
            udp_port: limits.udp_port,
            ev_layout: limits.ev_layout,
            dscps: limits.dscps,
        })
    }

    /// Brings the queue pair from RESET to RTS. Both sides do this, in any order: packets that come too early are repeated.
    /// Receives may be posted before with [`modify`](Self::modify) to INIT; then it goes on from there.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if the two sides could not hear each other, else as [`modify`](Self::modify); the queue pair is
    /// back in RESET then.
    pub fn connect(&self, config: &QpConfig) -> Result<Agreement> {
        let agreed = config.mine.check_compatible(&config.theirs)?;
        if config.mine.qpn != self.qpn() {
            return Err(Error::Invalid {
                what: "own connection info",
                value: format!("of queue pair {:#x}", config.mine.qpn),
                limit: "it must come from `offer` of this queue pair",
            });
        }
        let state = self.state()?;
        if !matches!(state, QpState::Reset | QpState::Init) {
            return Err(Error::Transition {
                from: state,
                to: QpState::Init,
            });
        }
        let outcome = self.climb(state, config, &agreed);
        if outcome.is_err() {
            self.modify(&QpAttr::to_state(QpState::Reset))?;
        }
        outcome.map(|()| agreed)
    }

    fn climb(&self, state: QpState, config: &QpConfig, agreed: &Agreement) -> Result<()> {
        let limits = self.attr_limits();
        let QpConfig { mine, theirs, .. } = config;
        if state == QpState::Reset {
            self.modify(&QpAttr {
                access: Some(config.access),
                ..QpAttr::to_state(QpState::Init)
            })?;
        }
        let mut capabilities = QpCapabilities::empty();
        capabilities.set(
            QpCapabilities::TRIM_NACK_DEST_UNSUPPORTED,
            !theirs.capabilities.trim_nack,
        );
        capabilities.set(QpCapabilities::SVC_TIME_DEST_UNSUPPORTED, !theirs.capabilities.svc_time);
        capabilities.set(QpCapabilities::DYNAMIC_MPR, agreed.dynamic_mpr);
        self.modify(&QpAttr {
            address: Some(AddressVector {
                local: agreed.local_gid,
                remote: agreed.peer_gid,
                hop_limit: 0,
                traffic_class: 0,
            }),
            access: Some(config.access),
            dest_qpn: Some(theirs.qpn),
            rq_psn: Some(theirs.psn),
            pmtu: Some(agreed.pmtu),
            mpr_dest: Some(mine.max_mpr_dest),
            max_wimm_dest: Some(mine.max_wimm_dest),
            capabilities: Some(capabilities),
            ..QpAttr::to_state(QpState::Rtr)
        })?;
        self.modify(&QpAttr {
            sq_psn: Some(mine.psn),
            mpr: Some(config.mpr.unwrap_or(limits.max_mpr).min(theirs.max_mpr_dest)),
            max_wimm: Some(config.max_wimm.unwrap_or(limits.max_wimm).min(theirs.max_wimm_dest)),
            timeout: config.timeout,
            retry: config.retry,
            ..QpAttr::to_state(QpState::Rts)
        })
    }
}
