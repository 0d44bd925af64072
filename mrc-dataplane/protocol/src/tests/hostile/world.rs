//! Two queue pairs and the network between them, step by step.

use std::vec::Vec;

use mrc_wire::PortSet;
use proptest::prelude::*;

use super::forgery::Forgery;
use crate::qp::{Qp, QpState};
use crate::testing::*;
use crate::work::{AccessError, Queue, Shortage, Status};

#[derive(Clone, Debug)]
pub(super) enum Step {
    Post {
        from_a: bool,
        len: u32,
        imm: bool,
        signaled: bool,
    },
    PostRecv {
        at_a: bool,
    },
    /// Polls, and adds what comes to the network.
    Poll {
        a: bool,
        room: u32,
    },
    /// What happens to the packet at this place of the network.
    Deliver {
        at: prop::sample::Index,
    },
    Duplicate {
        at: prop::sample::Index,
    },
    Lose {
        at: prop::sample::Index,
    },
    Mark {
        at: prop::sample::Index,
    },
    Trim {
        at: prop::sample::Index,
        last_hop: bool,
    },
    Wait {
        ns: u64,
    },
    Ports {
        at_a: bool,
        local: u32,
        peer: u32,
    },
    Forge {
        to_a: bool,
        forgery: Forgery,
    },
    Unsent {
        at: prop::sample::Index,
    },
    /// The receiving side fills or empties.
    Pressure {
        at_a: bool,
        used: u32,
    },
    /// The responder changes its window (Dynamic MPR).
    Window {
        at_a: bool,
        mpr: u8,
    },
    /// Its memory refuses for a while, or for good.
    Memory {
        at_a: bool,
        trouble: Option<(When, AccessError)>,
    },
    /// There is no buffer for a packet.
    Overrun {
        at: prop::sample::Index,
        shortage: Shortage,
    },
    /// The own links get another speed.
    Links {
        at_a: bool,
        bps: u64,
    },
    Fail {
        a: bool,
    },
    Reset {
        a: bool,
    },
    Linger {
        a: bool,
    },
}

/// Two ends, the packets between them, and what is known of both.
pub(super) struct World {
    pub(super) ends: [End; 2],
    /// To which end.
    pub(super) network: Vec<(usize, Wire)>,
    pub(super) posted: [u64; 2],
    pub(super) received: [u64; 2],
    pub(super) sent_done: [Vec<(u64, Status)>; 2],
    pub(super) recv_done: [Vec<(u64, Status)>; 2],
    /// Of each request: place in the peer's region.
    pub(super) places: [Vec<(usize, usize)>; 2],
    pub(super) next_place: [usize; 2],
    pub(super) window: i32,
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        let (a, b) = setup.pair();
        Self {
            ends: [a, b],
            network: Vec::new(),
            posted: [0; 2],
            received: [0; 2],
            sent_done: [Vec::new(), Vec::new()],
            recv_done: [Vec::new(), Vec::new()],
            places: [Vec::new(), Vec::new()],
            next_place: [0; 2],
            window: i32::from(setup.mpr) * 128,
        }
    }

    fn take(&mut self, at: prop::sample::Index) -> Option<(usize, Wire)> {
        if self.network.is_empty() {
            return None;
        }
        let at = at.index(self.network.len());
        Some(self.network.remove(at))
    }

    pub(super) fn poll(&mut self, end: usize, room: u32) {
        while let Some(wire) = self.ends[end].poll_on(PortSet::from_bits(room)) {
            assert!(PortSet::from_bits(room).contains(wire.sent.port));
            let End { qp, cc, .. } = &self.ends[end];
            if wire.sent.bth.opcode.is_write() {
                assert_eq!(qp.state(), QpState::Rts);
                let ahead = wire.sent.bth.psn.diff(qp.unack_psn());
                assert!(ahead <= self.window, "{ahead} PSNs ahead");
                // protocol.md §5.3 rule 2
                let before = cc.inflight_bytes() - i64::from(wire.packet().nominal_size());
                assert!(cc.cwnd_bytes().is_none_or(|cwnd| before < cwnd.cast_signed()));
            }
            self.network.push((1 - end, wire));
        }
    }

    pub(super) fn take_step(&mut self, step: &Step) {
        match *step {
            Step::Post {
                from_a,
                len,
                imm,
                signaled,
            } => {
                let end = usize::from(!from_a);
                let mut request = write(self.posted[end], len, self.next_place[end] as u64);
                request.imm = imm.then_some([len as u8; 4]);
                request.signaled = signaled;
                request.slot = self.ends[end].sources.len() as u32;
                if self.next_place[end] + len as usize > self.ends[1 - end].region.bytes.len() {
                    return;
                }
                let end_ref = &mut self.ends[end];
                if end_ref.qp.handle_send(&request, end_ref.now).is_ok() {
                    let tag = self.posted[end] as usize;
                    end_ref
                        .sources
                        .push((0..len as usize).map(|i| (i * 13 + tag + 1) as u8).collect());
                    self.places[end].push((self.next_place[end], len as usize));
                    self.next_place[end] += len as usize;
                    self.posted[end] += 1;
                }
            }
            Step::PostRecv { at_a } => {
                let end = usize::from(!at_a);
                if self.ends[end].qp.handle_recv(self.received[end]).is_ok() {
                    self.received[end] += 1;
                }
            }
            Step::Poll { a, room } => self.poll(usize::from(!a), room),
            Step::Deliver { at } => {
                if let Some((to, wire)) = self.take(at) {
                    self.ends[to].hear([&wire]);
                }
            }
            Step::Duplicate { at } => {
                if let Some(copy) = self.take(at) {
                    self.network.push(copy.clone());
                    self.network.push(copy);
                }
            }
            Step::Lose { at } => drop(self.take(at)),
            Step::Mark { at } => {
                if let Some((to, wire)) = self.take(at) {
                    self.network.push((to, wire.marked()));
                }
            }
            Step::Trim { at, last_hop } => {
                if let Some((to, wire)) = self.take(at)
                    && wire.sent.bth.opcode.is_write()
                {
                    self.network.push((to, wire.trimmed(last_hop)));
                }
            }
            Step::Wait { ns } => {
                for end in &mut self.ends {
                    end.advance(ns);
                }
            }
            Step::Ports { at_a, local, peer } => {
                self.ends[usize::from(!at_a)].handle_ports(PortSet::from_bits(local), PortSet::from_bits(peer));
            }
            Step::Forge { to_a, ref forgery } => {
                let to = &mut self.ends[usize::from(!to_a)];
                let wire = forgery.wire(to);
                to.hear([&wire]);
            }
            Step::Unsent { at } => {
                if let Some((to, wire)) = self.take(at) {
                    self.ends[1 - to].cx(|qp, cx| qp.handle_unsent(cx, &wire.sent));
                }
            }
            Step::Pressure { at_a, used } => self.ends[usize::from(!at_a)].qp.handle_pressure(used, 10),
            // Refused where it was not agreed, or outside the limits.
            Step::Window { at_a, mpr } => drop(self.ends[usize::from(!at_a)].qp.handle_window(mpr)),
            Step::Memory { at_a, trouble } => self.ends[usize::from(!at_a)].region.trouble = trouble,
            Step::Overrun { at, shortage } => {
                if let Some((to, wire)) = self.take(at) {
                    let End { qp, now, .. } = &mut self.ends[to];
                    qp.handle_refused(*now, &wire.packet(), shortage);
                    qp.end_of_batch(*now);
                }
            }
            Step::Links { at_a, bps } => self.ends[usize::from(!at_a)].cc.set_link_bps(bps),
            Step::Fail { a } => self.ends[usize::from(!a)].cx(Qp::handle_error),
            Step::Reset { a } => self.ends[usize::from(!a)].cx(Qp::handle_reset),
            Step::Linger { a } => self.ends[usize::from(!a)].cx(Qp::handle_linger),
        }
        self.check();
    }

    fn check(&mut self) {
        for end in 0..2 {
            for done in self.ends[end].completions() {
                let list = match done.queue {
                    Queue::Send => &mut self.sent_done[end],
                    Queue::Recv => &mut self.recv_done[end],
                };
                if let Some(&(before, _)) = list.last() {
                    assert!(done.wr_id > before, "in posting order, once");
                }
                list.push((done.wr_id, done.status));
            }
            let End { qp, cc, .. } = &mut self.ends[end];
            let by_port: u32 = (1..=31).map(|num| u32::from(cc.inflight_on(port(num)))).sum();
            assert_eq!(by_port, cc.inflight_packets());
            assert!(cc.inflight_packets() as i32 <= self.window);
            assert_eq!(cc.inflight_bytes() == 0, cc.inflight_packets() == 0);
            assert!(cc.inflight_bytes() >= 0);
            if let Some(nscc) = cc.as_nscc() {
                assert!((344..=nscc.max_wnd_bytes()).contains(&nscc.cwnd_bytes()));
            }
            if qp.state() != QpState::Rts {
                assert_eq!(cc.inflight_packets(), 0, "{:?}", qp.state());
            }
            while qp.poll_event().is_some() {}
        }
    }
}
