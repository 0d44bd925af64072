//! Whatever is done and whatever arrives, in any order: no panic, and what must hold holds (protocol.md §14).

mod forgery;
mod peer;
mod world;

use std::vec;
use std::vec::Vec;

use mrc_wire::{Condition, Psn};

use proptest::prelude::*;

use self::forgery::{Forgery, forgery};
use self::world::{Step, World};
use crate::attr::RetryAttr;
use crate::cc::{Network, NsccParams};
use crate::qp::QpState;
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::time::Instant;
use crate::work::{AccessError, Shortage, Status};

fn shortage() -> impl Strategy<Value = Shortage> {
    prop_oneof![
        Just(Shortage::Bitmap),
        Just(Shortage::PacketBuffer),
        Just(Shortage::Other)
    ]
}

/// Mostly none: who always refuses gets nothing.
fn trouble() -> impl Strategy<Value = Option<(When, AccessError)>> {
    let when = prop_oneof![Just(When::Asked), Just(When::Written)];
    let busy = (when, shortage()).prop_map(|(when, shortage)| (when, AccessError::Busy(shortage)));
    prop::option::weighted(0.3, busy)
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
        1 => (any::<bool>(), 0..5_u8).prop_map(|(at_a, mpr)| Step::Window { at_a, mpr }),
        1 => (any::<bool>(), trouble()).prop_map(|(at_a, trouble)| Step::Memory { at_a, trouble }),
        1 => (at(), shortage()).prop_map(|(at, shortage)| Step::Overrun { at, shortage }),
        1 => (any::<bool>(), 0..2_000_000_000_u64).prop_map(|(at_a, bps)| Step::Links { at_a, bps }),
    ];
    let foul = prop_oneof![
        30 => (any::<bool>(), forgery()).prop_map(|(to_a, forgery)| Step::Forge { to_a, forgery }),
        1 => any::<bool>().prop_map(|a| Step::Fail { a }),
        1 => any::<bool>().prop_map(|a| Step::Reset { a }),
        1 => any::<bool>().prop_map(|a| Step::Linger { a }),
        1 => any::<bool>().prop_map(|at_a| Step::Memory { at_a, trouble: Some((When::Written, AccessError::Broken)) }),
    ];
    if hostile {
        prop_oneof![3 => fair, 1 => foul].boxed()
    } else {
        fair.boxed()
    }
}

fn setup(trimming: bool, first_psn: u32, nscc: bool, agreed: bool) -> Setup {
    let network = Network {
        trimming,
        base_rtt_ns: Some(50_000),
        ..Network::new(2, 1_000_000_000, 344)
    };
    Setup {
        pmtu: mrc_wire::Pmtu::B256,
        mpr: if agreed { 4 } else { 1 },
        dynamic_mpr: agreed,
        svc_time: agreed,
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
        agreed: bool,
        first_psn in prop_oneof![Just(0_u32), Just(0xff_ffc0), 0_u32..1 << 24],
        steps in prop::collection::vec(step(true), 0..400),
    ) {
        let mut world = World::new(&setup(trimming, first_psn, nscc, agreed));
        for step in &steps {
            world.take_step(step);
        }
    }

    #[test]
    fn whatever_the_network_does_everything_ends_and_what_succeeded_is_there(
        trimming: bool,
        nscc: bool,
        agreed: bool,
        first_psn in prop_oneof![Just(0xff_ffc0_u32), 0_u32..1 << 24],
        steps in prop::collection::vec(step(false), 0..400),
    ) {
        let mut world = World::new(&setup(trimming, first_psn, nscc, agreed));
        for step in &steps {
            world.take_step(step);
        }
        // The network gets well.
        for end in &mut world.ends {
            end.handle_ports(ALL, ALL);
            end.region.trouble = None;
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
