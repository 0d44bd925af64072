//! Whatever is done and whatever arrives, in any order: no panic, and what must hold holds (protocol.md §14).

use std::vec;
use std::vec::Vec;

use mrc_wire::{
    Aeth, Bth, CcState, Condition, Ev, Headers, ImmDt, Meth, NackReason, Neth, Opcode, PathVerdict, Peth, PortSet, Psn,
    Reth, Seth, Tick, Tseth,
};
use proptest::prelude::*;

use crate::attr::RetryAttr;
use crate::cc::{Network, NsccParams};
use crate::qp::{Qp, QpState};
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::time::Instant;
use crate::work::{Queue, Status, Transmit};

#[derive(Clone, Debug)]
enum Step {
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

/// A packet that nobody sent, near what the receiver knows.
#[derive(Clone, Debug)]
struct Forgery {
    kind: u8,
    opcode: u8,
    psn: i32,
    offset: i16,
    trigger: u16,
    bitmap: u64,
    flags: u8,
    code: u8,
    len: u16,
    va: u64,
    stamp: u16,
}

fn forgery() -> impl Strategy<Value = Forgery> {
    let near = prop_oneof![-5..300_i32, -2000..2000_i32, any::<i32>()];
    let offset = prop_oneof![-70..70_i16, any::<i16>()];
    let bitmap = prop_oneof![Just(0_u64), Just(u64::MAX), 0..256_u64, any::<u64>()];
    let va = prop_oneof![BASE..BASE + 4096, any::<u64>()];
    (
        (0..6_u8, any::<u8>(), near, offset, prop_oneof![0..8_u16, any::<u16>()]),
        (
            bitmap,
            any::<u8>(),
            any::<u8>(),
            prop_oneof![0..8_u16, Just(256), 0..5000_u16],
            va,
            any::<u16>(),
        ),
    )
        .prop_map(
            |((kind, opcode, psn, offset, trigger), (bitmap, flags, code, len, va, stamp))| Forgery {
                kind,
                opcode,
                psn,
                offset,
                trigger,
                bitmap,
                flags,
                code,
                len,
                va,
                stamp,
            },
        )
}

impl Forgery {
    fn wire(&self, to: &End) -> Wire {
        let base = if self.flags & 1 != 0 {
            to.qp.unack_psn()
        } else {
            to.qp.cack_psn()
        };
        let psn = base.offset(self.psn);
        let stamp = Tick(self.stamp);
        let writes = &Opcode::ALL[..6];
        let (opcode, headers) = match self.kind {
            0 => {
                let opcode = writes[usize::from(self.opcode) % writes.len()];
                let dmalen = if self.flags & 2 != 0 {
                    u32::from(self.len)
                } else {
                    u32::from(self.len) << 17
                };
                let headers = Headers::Write {
                    meth: Meth::default(),
                    tseth: Some(Tseth::new(stamp)),
                    reth: Reth {
                        va: self.va,
                        r_key: R_KEY ^ u32::from(self.flags & 64),
                        dmalen,
                    },
                    imm: opcode.has_imm().then_some(ImmDt([1; 4])),
                };
                (opcode, headers)
            }
            1 => (
                Opcode::Ack,
                Headers::Ack(Aeth {
                    syndrome: self.code,
                    msn: 0,
                }),
            ),
            2 | 3 => {
                let seth = Seth {
                    m: [PathVerdict::None, PathVerdict::SkipOnce, PathVerdict::AlwaysSkip][usize::from(self.code) % 3],
                    pr: self.flags & 4 != 0,
                    ack_psn_offset_or_probe_id: self.trigger,
                    entropy: Ev(0x1000 + u32::from(self.code)),
                    cack_psn: psn,
                    sack_offset: self.offset,
                    sack_bitmap: self.bitmap,
                    ..Seth::default()
                };
                let state = CcState {
                    tx_timestamp: stamp,
                    ooo_count: self.len,
                    ..CcState::default()
                };
                (
                    Opcode::Sack,
                    Headers::Sack(seth, (self.flags & 8 != 0).then_some(state)),
                )
            }
            4 => {
                let reasons = [
                    NackReason::TRIMMED,
                    NackReason::NO_BITMAP,
                    NackReason::PSN_OOR_WINDOW,
                    NackReason::UNEXP_EVENT,
                    NackReason(self.code),
                ];
                let neth = Neth {
                    reason: reasons[usize::from(self.opcode) % reasons.len()],
                    nack_psn: psn,
                    tx_timestamp: if self.flags & 4 != 0 { Tick(0) } else { stamp },
                    ..Neth::default()
                };
                (Opcode::Nack, Headers::Nack(neth))
            }
            _ => (
                Opcode::Probe,
                Headers::Probe(Peth {
                    probe_id: self.trigger,
                    ..Peth::default()
                }),
            ),
        };
        let sent = Transmit {
            bth: Bth {
                a: self.flags & 16 != 0,
                rtx: self.flags & 32 != 0,
                ts: true,
                ..Bth::new(opcode, to.qp.qpn(), psn)
            },
            headers,
            ev: Ev(0x1000),
            port: port(1),
            class: mrc_wire::TrafficClass::NoTrim,
            ect: true,
            payload: None,
            is_retransmission: false,
        };
        Wire::forged(sent, usize::from(self.len))
    }
}

fn step(hostile: bool) -> impl Strategy<Value = Step> {
    let at = any::<prop::sample::Index>;
    let fair = prop_oneof![
        4 => (any::<bool>(), prop_oneof![0..2000_u32, 0..20_000_u32], any::<bool>(), any::<bool>())
            .prop_map(|(from_a, len, imm, signaled)| Step::Post { from_a, len, imm, signaled }),
        3 => any::<bool>().prop_map(|at_a| Step::PostRecv { at_a }),
        12 => (any::<bool>(), any::<u32>()).prop_map(|(a, room)| Step::Poll { a, room }),
        30 => at().prop_map(|at| Step::Deliver { at }),
        3 => at().prop_map(|at| Step::Duplicate { at }),
        3 => at().prop_map(|at| Step::Lose { at }),
        2 => at().prop_map(|at| Step::Mark { at }),
        2 => (at(), any::<bool>()).prop_map(|(at, last_hop)| Step::Trim { at, last_hop }),
        10 => prop_oneof![0..100_000_u64, 0..20_000_000_u64].prop_map(|ns| Step::Wait { ns }),
        1 => (any::<bool>(), any::<u32>(), any::<u32>()).prop_map(|(at_a, local, peer)| Step::Ports { at_a, local, peer }),
        1 => at().prop_map(|at| Step::Unsent { at }),
        1 => (any::<bool>(), 0..12_u32).prop_map(|(at_a, used)| Step::Pressure { at_a, used }),
        1 => (any::<bool>(), 0..2_000_000_000_u64).prop_map(|(at_a, bps)| Step::Links { at_a, bps }),
    ];
    let foul = prop_oneof![
        30 => (any::<bool>(), forgery()).prop_map(|(to_a, forgery)| Step::Forge { to_a, forgery }),
        1 => any::<bool>().prop_map(|a| Step::Fail { a }),
        1 => any::<bool>().prop_map(|a| Step::Reset { a }),
        1 => any::<bool>().prop_map(|a| Step::Linger { a }),
    ];
    if hostile {
        prop_oneof![3 => fair, 1 => foul].boxed()
    } else {
        fair.boxed()
    }
}

/// Two ends, the packets between them, and what is known of both.
struct World {
    ends: [End; 2],
    /// To which end.
    network: Vec<(usize, Wire)>,
    posted: [u64; 2],
    received: [u64; 2],
    sent_done: [Vec<(u64, Status)>; 2],
    recv_done: [Vec<(u64, Status)>; 2],
    /// Of each request: place in the peer's region.
    places: [Vec<(usize, usize)>; 2],
    next_place: [usize; 2],
    window: i32,
}

impl World {
    fn new(setup: &Setup) -> Self {
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

    fn poll(&mut self, end: usize, room: u32) {
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

    fn take_step(&mut self, step: &Step) {
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

fn setup(trimming: bool, first_psn: u32, nscc: bool) -> Setup {
    let network = Network {
        trimming,
        base_rtt_ns: Some(50_000),
        ..Network::new(2, 1_000_000_000, 344)
    };
    Setup {
        pmtu: mrc_wire::Pmtu::B256,
        mpr: 1,
        max_wimm: 4,
        sq_depth: 16,
        rq_depth: 16,
        retry: RetryAttr {
            timeout: 12,
            linear_cnt: 2,
            exp_cnt: 3,
        },
        trimming,
        first_psn,
        cc: if nscc {
            Qpcc::nscc(NsccParams::new(&network), 50, Instant::from_ns(1_000_000_000))
        } else {
            Qpcc::fixed(50)
        },
        ..Setup::default()
    }
}

proptest! {
    #[test]
    fn nothing_that_arrives_breaks_a_queue_pair(
        trimming: bool,
        nscc: bool,
        first_psn in prop_oneof![Just(0_u32), Just(0xff_ffc0), 0_u32..1 << 24],
        steps in prop::collection::vec(step(true), 0..400),
    ) {
        let mut world = World::new(&setup(trimming, first_psn, nscc));
        for step in &steps {
            world.take_step(step);
        }
    }

    #[test]
    fn whatever_the_network_does_everything_ends_and_what_succeeded_is_there(
        trimming: bool,
        nscc: bool,
        first_psn in prop_oneof![Just(0xff_ffc0_u32), 0_u32..1 << 24],
        steps in prop::collection::vec(step(false), 0..400),
    ) {
        let mut world = World::new(&setup(trimming, first_psn, nscc));
        for step in &steps {
            world.take_step(step);
        }
        // The network gets well.
        for end in &mut world.ends {
            end.handle_ports(ALL, ALL);
        }
        for round in 0..6000 {
            for end in 0..2 {
                world.poll(end, !0);
            }
            for (to, wire) in std::mem::take(&mut world.network) {
                world.ends[to].receive(&wire);
            }
            for end in 0..2 {
                let now = world.ends[end].now;
                world.ends[end].qp.end_of_batch(now);
            }
            // A packet's own backoff may have grown to seconds before the retry budget ends.
            let ns = match round {
                0..3000 => 50_000,
                3000..5000 => 1_000_000,
                _ => 10_000_000,
            };
            world.take_step(&Step::Wait { ns });
            let idle = world.ends.iter().all(|end| end.qp.next_timeout().is_none() && !end.qp.has_answers());
            if idle && world.network.is_empty() && world.ends.iter().all(|end| end.qp.sq_outstanding() == 0) {
                break;
            }
        }
        for end in 0..2 {
            let done = &world.sent_done[end];
            let qp = &world.ends[end].qp;
            let why = std::format!(
                "every request ends: {:?} {:?} unack {} next {} retries {} due {:?} at {} {:?}",
                qp.state(),
                qp.stats(),
                qp.unack_psn(),
                qp.next_psn(),
                qp.retries(),
                qp.next_timeout(),
                world.ends[end].now,
                qp.ev_states().filter(|view| view.state != crate::EvState::Good).collect::<Vec<_>>()
            );
            prop_assert_eq!(done.len() as u64, world.posted[end], "{}", why);
            prop_assert_eq!(world.ends[end].cc.inflight_packets(), 0);
            let target = &world.ends[1 - end].region.bytes;
            for (&(_, status), (&(place, len), source)) in
                done.iter().zip(world.places[end].iter().zip(&world.ends[end].sources))
            {
                if status == Status::Success {
                    prop_assert_eq!(&target[place..place + len], &source[..]);
                }
            }
            prop_assert!(target[world.next_place[end]..].iter().all(|&byte| byte == 0), "nothing else is written");
        }
        // With receives enough, nothing fails.
        let starved = (0..2).any(|end| world.ends[end].qp.state() == QpState::Err);
        if !starved {
            prop_assert!(world.sent_done.iter().flatten().all(|&(_, status)| status == Status::Success));
        }
    }
}

#[test]
fn psn_of_a_forged_packet_may_be_anything() {
    let (mut a, _) = Setup::default().pair();
    a.post(write(1, 4096, 0));
    a.poll_all();
    for value in (0..1 << 24).step_by(4093) {
        let forgery = Forgery {
            kind: 2,
            opcode: 0,
            psn: value,
            offset: 1,
            trigger: 0,
            bitmap: u64::MAX,
            flags: 9,
            code: 0,
            len: 0,
            va: 0,
            stamp: 0,
        };
        let wire = forgery.wire(&a);
        a.hear([&wire]);
    }
    assert_eq!(a.qp.unack_psn(), Psn::new(9));
    assert_eq!(a.cc.inflight_packets(), 1);
    assert!(matches!(Condition::default(), Condition::Whole));
}
