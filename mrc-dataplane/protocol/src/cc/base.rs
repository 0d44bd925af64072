//! The base round trip, and the largest window that follows from it (protocol.md §10.4 `UpdateBase`).

use super::params::NsccParams;
use super::sample::RttSample;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    rtt_ns: u64,
    max_wnd_bytes: u32,
    linkspeed_bps: u64,
}

impl Base {
    pub(super) fn new(params: &NsccParams) -> Self {
        Self {
            rtt_ns: params.config_base_rtt_ns,
            max_wnd_bytes: params.max_cwnd_bytes,
            linkspeed_bps: params.linkspeed_bps,
        }
    }

    pub(super) fn rtt_ns(&self) -> u64 {
        self.rtt_ns
    }

    pub(super) fn max_wnd_bytes(&self) -> u32 {
        self.max_wnd_bytes
    }

    /// Takes a round trip into account; returns what a full packet would have needed.
    pub(super) fn hear(&mut self, sample: RttSample, params: &NsccParams) -> u64 {
        let full_ns = params.normaliser.full_ns(sample);
        self.lower(full_ns, params);
        full_ns
    }

    fn lower(&mut self, rtt_ns: u64, params: &NsccParams) {
        // P25
        let rtt_ns = rtt_ns.max(params.config_base_rtt_ns / 2).max(1);
        if rtt_ns < self.rtt_ns {
            self.rtt_ns = rtt_ns;
            self.follow(params);
        }
    }

    /// The own links' speed is another, because a port went down or came up (protocol.md §10.4).
    pub(super) fn set_link_bps(&mut self, link_bps: u64, params: &NsccParams) {
        self.linkspeed_bps = link_bps.min(params.peer_bps.unwrap_or(u64::MAX));
        self.follow(params);
    }

    /// A controller has changed the parameters; what was measured stays as far as it makes sense with them.
    pub(super) fn adopt(&mut self, params: &NsccParams) {
        let known_ns = self.rtt_ns;
        let link_bps = self.linkspeed_bps;
        *self = Self::new(params);
        self.lower(known_ns, params);
        self.set_link_bps(link_bps, params);
    }

    /// 1.5 * linkspeed * base RTT; with a controller's `max_cwnd`, in proportion to it. Never less than a packet, or the
    /// window would never open.
    fn follow(&mut self, params: &NsccParams) {
        let configured = u128::from(params.linkspeed_bps) * u128::from(params.config_base_rtt_ns);
        let present = u128::from(self.linkspeed_bps) * u128::from(self.rtt_ns);
        let bytes = present.saturating_mul(u128::from(params.max_cwnd_bytes)) / configured.max(1);
        self.max_wnd_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(params.mtu_bytes);
    }
}
