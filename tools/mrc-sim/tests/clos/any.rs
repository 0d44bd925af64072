//! Whatever the fabric, the load and the faults: what must always hold.

use crate::net::{Net, frame};
use mrc_sim::fabric::clos::Totals;
use mrc_sim::fabric::clos::plan::{ClosPlan, LinkPlan, Outage, QueuePlan, Routing};
use mrc_sim::fabric::clos::topology::{Link, Place, Shape, Switch};
use mrc_sim::fabric::fault::{Fault, Kind, Scope};
use mrc_sim::fabric::frame::Frame;
use mrc_sim::rng::Rng;

fn any_plan(rng: &mut Rng) -> ClosPlan {
    let shape = Shape {
        planes: rng.range(1, 4) as u8,
        leaves: rng.range(1, 4) as usize,
        spines: rng.range(1, 5) as usize,
        hosts_per_leaf: rng.range(1, 4) as usize,
    };
    let mut link = || LinkPlan {
        rate_mbps: rng.pick(&[25, 1000, 30_000, 400_000]),
        delay_ns: rng.pick(&[0, 1, 700]),
    };
    let mut plan = ClosPlan {
        host_link: link(),
        spine_link: link(),
        ..ClosPlan::new(shape, link())
    };
    plan.queues = QueuePlan::of_bdp(rng.pick(&[0, 50_000, 500_000]));
    if rng.one_in(3) {
        plan.queues = plan.queues.without_trimming();
    }
    if rng.one_in(2) {
        plan.routing = Routing::Structured { low_bit: 3, bits: 4 };
    }
    for _ in 0..rng.below(4) {
        let outage = Outage {
            place: any_place(rng, &shape),
            from_ns: rng.below(1_000_000),
            until_ns: 0,
            reroute_ns: rng.pick(&[None, Some(0), Some(200_000)]),
        };
        plan.outages
            .extend(outage.flap(rng.range(1, 300_000), 400_000, rng.range(1, 3)));
    }
    plan
}

fn any_place(rng: &mut Rng, shape: &Shape) -> Place {
    let plane = rng.range(1, shape.planes.into()) as u8;
    let host = rng.below(shape.hosts() as u64) as usize;
    let leaf = rng.below(shape.leaves as u64) as usize;
    let spine = rng.below(shape.spines as u64) as usize;
    rng.pick(&[
        Place::Plane(plane),
        Place::Link(Link::HostDown { plane, host }),
        Place::Cable(Link::SpineUp { plane, leaf, spine }),
        Place::Switch(Switch::Leaf { plane, leaf }),
        Place::Switch(Switch::Spine { plane, spine }),
    ])
}

fn any_fault(rng: &mut Rng, shape: &Shape) -> Fault {
    let ppm = rng.pick(&[1000, 100_000, 900_000]);
    let kind = rng.pick(&[
        Kind::Loss { ppm },
        Kind::Burst {
            enter_ppm: 1000,
            within_ns: 50_000,
        },
        Kind::Duplicate { ppm, within_ns: 1000 },
        Kind::Jitter { ppm, within_ns: 10_000 },
        Kind::BitFlip { ppm, bits: 2 },
        Kind::CeMark { ppm },
        Kind::Trim { ppm, last_hop: false },
    ]);
    let place = any_place(rng, shape);
    let scope = Scope {
        place: Some(place).filter(|_| !rng.one_in(3)),
        ..Scope::default()
    };
    let from_ns = rng.below(500_000);
    Fault {
        kind,
        scope,
        from_ns,
        until_ns: from_ns + 500_000,
    }
}

#[test]
fn every_frame_is_accounted_for_at_every_step() {
    let mut sum = Totals::default();
    for seed in 0..150 {
        let rng = &mut Rng::new(seed, "any");
        let plan = any_plan(rng);
        let (shape, limits) = (plan.shape, plan.queues);
        let faults: Vec<Fault> = (0..rng.below(4)).map(|_| any_fault(rng, &shape)).collect();
        let mut net = Net::new(plan, &faults);
        let (count, span_ns) = (800, rng.pick(&[30_000, 1_000_000]));
        for id in 0..count {
            let mut host = || rng.below(shape.hosts() as u64) as usize;
            let (src, dst) = (host(), host());
            let ev = rng.word() as u32;
            let data = !rng.one_in(4);
            let sent = Frame {
                plane: rng.range(1, shape.planes.into()) as u8,
                data,
                control: !data,
                trimmable: data && rng.one_in(2),
                id,
                ..frame(src, dst, ev, rng.range(64, 4200) as u32)
            };
            net.send(rng.below(span_ns), sent);
        }
        // Judges the balance after each step.
        let totals = net.run();
        assert_eq!(totals.sent, count, "seed {seed}");
        for (link, port) in net.clos.all_counters() {
            let most = limits.drop_bytes + limits.control_bytes;
            assert!(port.high_water_bytes <= most, "seed {seed}: {link} {port:?}");
        }
        let dropped: u64 = net.clos.all_counters().map(|(_, port)| port.dropped).sum();
        let lost: u64 = net.clos.all_counters().map(|(_, port)| port.lost).sum();
        assert_eq!((dropped, lost), (totals.dropped, totals.lost), "seed {seed}");
        sum.arrived += totals.arrived;
        sum.dropped += totals.dropped;
        sum.lost += totals.lost;
        sum.unrouted += totals.unrouted;
        sum.copied += totals.copied;
    }
    let Totals {
        dropped,
        lost,
        unrouted,
        copied,
        ..
    } = sum;
    assert!(
        sum.arrived > 20_000 && dropped.min(lost).min(unrouted).min(copied) > 50,
        "{sum:?}"
    );
}
