//! The window of a responder that changes it (protocol.md §5.4).

use mrc_wire::{CcState, Psn, Seth};

use super::Requestor;

/// How new a SACK is: by `cack_psn`, then by `rcvd_bytes`, which counts modulo 2^24 like PSNs (protocol.md §4).
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowNews {
    cack_psn: Psn,
    rcvd: Psn,
}

impl WindowNews {
    fn is_older_than(self, other: Self) -> bool {
        (self.cack_psn.diff(other.cack_psn), self.rcvd.diff(other.rcvd)) < (0, 0)
    }
}

impl Requestor {
    /// A plausible SACK: takes its window, unless a newer one has come. What is beyond a shrunk window is neither sent nor
    /// repeated until `unack_psn` has moved (rule 3 of §5.3); what is out stays outstanding.
    pub(super) fn hear_window(&mut self, seth: &Seth, state: Option<&CcState>) {
        let Some(state) = state.filter(|_| self.conn.dynamic_mpr && seth.mpr > 0) else {
            return;
        };
        let news = WindowNews {
            cack_psn: seth.cack_psn,
            rcvd: Psn::new(state.rcvd_bytes),
        };
        if self.window_news.is_some_and(|known| news.is_older_than(known)) {
            return;
        }
        self.window_news = Some(news);
        self.limits.window = (u32::from(seth.mpr) * 128).min(self.max_window);
    }
}
