//! What `mrc-protocol` does not offer yet.

use mrc_protocol::{Cx, EvView, Qp};

pub(super) trait Gap {
    fn handle_linger(&mut self, cx: &mut Cx<'_>);
    fn ev_states(&self) -> std::iter::Empty<EvView>;
}

impl Gap for Qp {
    fn handle_linger(&mut self, _: &mut Cx<'_>) {}
    fn ev_states(&self) -> std::iter::Empty<EvView> {
        std::iter::empty()
    }
}
