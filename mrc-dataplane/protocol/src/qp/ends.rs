//! How a queue pair ends: errors, RESET, and lingering for the peer (protocol.md §2.2, §5.9).

use super::state::Trigger;
use super::{EVENTS, Qp, QpState};
use crate::requestor::{Connection, Env, Failure};
use crate::stall::Stalls;
use crate::work::{Cx, QpEvent};

impl Qp {
    /// protocol.md §5.9.
    pub(super) fn fail(&mut self, failure: Failure, event: Option<QpEvent>, cx: &mut Cx<'_>) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.responder.fail();
        let (requestor, mut env) = self.sending(cx);
        requestor.fail(failure, &mut env);
        if let Some(event) = event.filter(|_| self.events.len() < EVENTS) {
            self.events.push_back(event);
        }
    }

    /// The application moves the queue pair to ERR: what is posted is flushed. No event: it knows.
    pub fn handle_error(&mut self, cx: &mut Cx<'_>) {
        self.clock(cx.now);
        self.fail(Failure::FLUSH, None, cx);
    }

    /// To RESET: everything is discarded without completions. Also to be called before a queue pair is dropped, so that
    /// `cx.cc` forgets its packets in flight.
    pub fn handle_reset(&mut self, cx: &mut Cx<'_>) {
        self.clock(cx.now);
        self.requestor.reset(
            &self.tuning,
            &mut Env {
                now: self.now,
                cc: cx.cc,
                paths: &mut self.paths,
                stalls: &self.stalls,
                stats: &mut self.stats,
            },
        );
        self.responder.reset(&self.tuning);
        self.paths.reset();
        self.events.clear();
        self.conn = Connection::NONE;
        self.stalls = Stalls::default();
        self.lingering = false;
        self.state = Trigger::Clear.target();
    }

    /// The application has destroyed the queue pair: its requests are dropped without completions and nothing new is
    /// sent or placed, but what was received is still acknowledged, so that the peer can finish. The caller keeps it for
    /// a while, then calls [`Qp::handle_reset`].
    pub fn handle_linger(&mut self, cx: &mut Cx<'_>) {
        self.clock(cx.now);
        let (requestor, mut env) = self.sending(cx);
        requestor.discard(&mut env);
        self.responder.linger();
        self.events.clear();
        self.lingering = true;
    }
}
