//! No congestion control: a window that stays at its maximum (protocol.md §10: "none = cwnd fixed at `max_wnd`").

use super::base::Base;
use super::params::NsccParams;
use super::sample::RttSample;

/// A window without algorithm. It still learns the base round trip, and follows the links.
#[derive(Clone, Debug)]
pub(crate) struct MaxWindow {
    params: NsccParams,
    base: Base,
}

impl MaxWindow {
    pub(crate) fn new(params: NsccParams) -> Self {
        Self {
            base: Base::new(&params),
            params,
        }
    }

    pub(crate) fn cwnd_bytes(&self) -> u64 {
        u64::from(self.base.max_wnd_bytes())
    }

    pub(crate) fn base_rtt_ns(&self) -> u64 {
        self.base.rtt_ns()
    }

    pub(crate) fn params(&self) -> &NsccParams {
        &self.params
    }

    pub(crate) fn hear(&mut self, rtt: RttSample) {
        self.base.hear(rtt, &self.params);
    }

    pub(crate) fn set_link_bps(&mut self, link_bps: u64) {
        self.base.set_link_bps(link_bps, &self.params);
    }

    pub(crate) fn set_params(&mut self, params: NsccParams) {
        self.params = params;
        self.base.adopt(&self.params);
    }
}
