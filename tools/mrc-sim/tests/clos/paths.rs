//! Paths, what happens to them, and the whole.

use crate::net::{DOWN_TO_4, FULL, GIGABIT, Net, SHAPE, always, frame, gigabit, plain};
use mrc_sim::fabric::FabricPlan;
use mrc_sim::fabric::clos::Clos;
use mrc_sim::fabric::clos::plan::{ClosPlan, LinkPlan, Outage, PlanError, Sampling};
use mrc_sim::fabric::clos::sampler::Sample;
use mrc_sim::fabric::clos::topology::{Link, Place, Shape, Switch};
use mrc_sim::fabric::fault::{Kind, Nth, Scope};
use mrc_sim::fabric::frame::Frame;
use mrc_sim::rng::Rng;
use mrc_sim::scenario::{Class, Scenario};
use mrc_sim::trace::Trace;
use mrc_sim::world::World;

#[test]
fn a_path_is_the_links_that_its_packets_take() {
    let mut net = Net::new(gigabit(plain(1_000_000)), &[]);
    for ev in 0..40 {
        let (src, dst, plane) = (ev as usize % 12, ev as usize * 7 % 12, (ev % 2 + 1) as u8);
        let before: Vec<u64> = net.clos.all_counters().map(|(_, port)| port.packets).collect();
        net.send(
            u64::from(ev) * 1_000_000,
            Frame {
                plane,
                ..frame(src, dst, ev, FULL)
            },
        );
        net.run_until(u64::from(ev) * 1_000_000 + 999_999);
        let used: Vec<Link> = (net.clos.all_counters().zip(&before))
            .filter(|((_, now), then)| now.packets > **then)
            .map(|((link, _), _)| link)
            .collect();
        let path = net.clos.path_of(src, dst, plane, ev).expect("a route");
        assert_eq!(used.len(), path.links().len());
        assert!(path.links().iter().all(|link| used.contains(link)), "{used:?} {path:?}");
        assert_eq!(path.spine().is_none(), src / 4 == dst / 4);
    }
    assert_eq!(net.run().arrived, 40);
}

#[test]
fn a_dead_link_swallows_the_paths_over_it_until_the_routing_goes_around() {
    let up = Link::SpineUp {
        plane: 1,
        leaf: 0,
        spine: 2,
    };
    for (reroute_ns, lost) in [(None, 100..=350), (Some(300_000), 10..=110)] {
        let mut plan = gigabit(plain(1_000_000));
        plan.outages = vec![Outage {
            place: Place::Link(up),
            from_ns: 1_000_000,
            until_ns: 2_000_000,
            reroute_ns,
        }];
        let mut net = Net::new(plan, &[]);
        for at in 0..3000u64 {
            net.send(at * 1000, frame(0, 4, at as u32 % 40, 76));
        }
        let through = (0..40)
            .filter(|ev| net.clos.path_of(0, 4, 1, *ev).and_then(|path| path.spine()) == Some(2))
            .count();
        let totals = net.run();
        assert!(
            through > 0 && lost.contains(&totals.lost),
            "{} lost, reroute {reroute_ns:?}",
            totals.lost
        );
        assert_eq!(net.clos.counters(up).expect("a link").lost, totals.lost);
        let late = net.arrived.iter().filter(|(at, _)| *at > 2_100_000).count();
        assert!(late > 890, "{late} after the end");
    }
}

#[test]
fn a_dead_spine_takes_its_share_and_one_direction_only_its_own() {
    let spine = Place::Switch(Switch::Spine { plane: 1, spine: 0 });
    let toward = Place::Link(Link::HostDown { plane: 1, host: 0 });
    for (place, forth, back) in [
        (spine, 600..900, 600..900),
        (toward, 1000..1001, 0..1),
        (Place::Plane(1), 0..1, 0..1),
    ] {
        let mut plan = gigabit(plain(10_000_000));
        plan.outages = vec![Outage::dead(place, 0, None)];
        let mut net = Net::new(plan, &[]);
        for ev in 0..1000 {
            net.send(1000, frame(0, 4, ev, 76));
            net.send(1000, frame(4, 0, ev, 76));
            net.send(
                1000,
                Frame {
                    plane: 2,
                    ..frame(0, 4, ev, 76)
                },
            );
        }
        net.run();
        let count = |plane, dst| {
            net.arrived
                .iter()
                .filter(|(_, frame)| (frame.plane, frame.dst) == (plane, dst))
                .count()
        };
        assert!(
            forth.contains(&count(1, 4)) && back.contains(&count(1, 0)),
            "{place:?}: {} {}",
            count(1, 4),
            count(1, 0)
        );
        assert_eq!(count(2, 4), 1000, "planes share nothing");
    }
}

#[test]
fn a_flapping_link_is_down_in_its_turns() {
    let mut plan = gigabit(plain(1_000_000));
    let flap = Outage::dead(Place::Cable(Link::HostUp { plane: 1, host: 0 }), 100_000, None);
    plan.outages = flap.flap(50_000, 200_000, 3).collect();
    let mut net = Net::new(plan, &[]);
    for at in 0..1000 {
        net.send(at * 1000, frame(0, 1, 0, 76));
    }
    // Three times 50 of the frames reach the end of the link while it is down.
    assert_eq!(net.run().lost, 150);
}

#[test]
fn faults_strike_where_and_when_they_are_told() {
    let up = Link::SpineUp {
        plane: 1,
        leaf: 0,
        spine: 3,
    };
    let at = |place| Scope {
        place: Some(Place::Link(place)),
        ..Scope::default()
    };
    let third = Scope {
        nth: Some(Nth { first: 3, count: 2 }),
        ev: Some(5),
        ..at(DOWN_TO_4)
    };
    let lose = always(Kind::Blackhole, third);
    let mut net = Net::new(gigabit(plain(1_000_000)), &[lose]);
    for id in 0..20 {
        net.send(
            id * 10_000,
            Frame {
                id,
                ..frame(5, 4, 5 + id as u32 % 2, FULL)
            },
        );
    }
    net.run();
    // Of EV 5 these are numbers 3 and 4.
    assert_eq!(
        (0..20).filter(|id| !net.ids().contains(id)).collect::<Vec<u64>>(),
        [4, 6]
    );

    let twice = always(
        Kind::Duplicate {
            ppm: 1_000_000,
            within_ns: 10,
        },
        at(up),
    );
    let mut net = Net::new(gigabit(plain(1_000_000)), &[twice]);
    let over = (0..100)
        .filter(|ev| net.clos.path_of(0, 4, 1, *ev).and_then(|path| path.spine()) == Some(3))
        .count();
    for ev in 0..100 {
        net.send(u64::from(ev) * 10_000, frame(0, 4, ev, 76));
    }
    let totals = net.run();
    assert_eq!((totals.copied, totals.arrived), (over as u64, 100 + over as u64));
    assert!((10..40).contains(&over));

    let everywhere = always(Kind::Loss { ppm: 100_000 }, Scope::default());
    let mut net = Net::new(gigabit(plain(10_000_000)), &[everywhere]);
    for at in 0..10_000u64 {
        net.send(at * 1000, frame(0, 4, at as u32, 76));
    }
    let lost = net.run().lost;
    // Once per frame, not once per link: 1000 with a standard deviation of 30.
    assert!((850..1150).contains(&lost), "{lost} lost");
}

#[test]
fn a_frame_that_a_fault_cuts_is_short_from_the_next_link_on() {
    let up = Link::SpineUp {
        plane: 1,
        leaf: 0,
        spine: 0,
    };
    let place = Some(Place::Switch(Switch::Leaf { plane: 1, leaf: 0 }));
    let cut = always(
        Kind::Trim {
            ppm: 1_000_000,
            last_hop: false,
        },
        Scope {
            place,
            ..Scope::default()
        },
    );
    let mut net = Net::new(gigabit(plain(1_000_000)), &[cut]);
    let ev = (0..100).find(|ev| net.clos.path_of(0, 4, 1, *ev).and_then(|path| path.spine()) == Some(0));
    net.send(8_000, frame(0, 4, ev.expect("a path over spine 0"), FULL));
    net.run();
    let (at_ns, arrived) = &net.arrived[0];
    let kept = arrived.trim.expect("it is cut").keep as u64;
    let bytes = |link| net.clos.counters(link).expect("a link").bytes;
    assert_eq!((bytes(up), bytes(DOWN_TO_4)), (u64::from(FULL), kept));
    assert_eq!(*at_ns, 8_000 + 500 + 8_000 + 500 + 2 * ((kept + 24) * 8 + 500));
}

#[test]
fn samples_tell_the_load_and_the_queue_of_a_link() {
    let mut plan = gigabit(plain(1_000_000));
    plan.sampling = Some(Sampling {
        every_ns: 10_000,
        links: vec![DOWN_TO_4],
    });
    let mut net = Net::new(plan, &[]);
    for src in 5..8 {
        net.send(8_000, frame(src, 4, 0, FULL));
    }
    net.run();
    // Busy from 8.5 to 32.5 µs; at 10 µs two wait, at 20 one, at 30 none.
    let sample = |busy_ppm, queue| Sample {
        busy_ppm,
        queue_bytes: queue * FULL,
    };
    let series = net.clos.series(40_000);
    assert_eq!(
        series[0].samples,
        [
            sample(150_000, 2),
            sample(1_000_000, 1),
            sample(1_000_000, 0),
            sample(250_000, 0)
        ]
    );
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    let run = |seed| {
        let plan = ClosPlan::new(SHAPE, GIGABIT);
        let loss = always(Kind::Loss { ppm: 20_000 }, Scope::default());
        let mut net = Net::new(plan.clone(), &[]);
        net.clos = Clos::new(plan, &[loss], seed).expect("a plan that makes sense");
        let mut rng = Rng::new(1, "load");
        for at in 0..3000 {
            let (src, dst) = (rng.below(12) as usize, rng.below(12) as usize);
            net.send(
                at * 1500,
                Frame {
                    id: at,
                    ..frame(src, dst, rng.word() as u32, FULL)
                },
            );
        }
        net.run();
        net.arrived
            .iter()
            .map(|(at, frame)| (*at, frame.id, frame.ce))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn queue_pairs_keep_their_promises_over_switches() {
    let mut runs = 0;
    for seed in 0..60 {
        let mut scenario = Scenario::from_seed(seed);
        if scenario.class != Class::Survivable {
            continue;
        }
        let shape = Shape {
            planes: scenario.planes,
            leaves: 2,
            spines: 3,
            hosts_per_leaf: 2,
        };
        // Slow enough that queues of all hosts meet, mark, trim and drop.
        let rate_mbps = scenario
            .hosts
            .iter()
            .map(|host| host.rate_mbps as u32)
            .min()
            .unwrap_or(1000);
        scenario.fabric = FabricPlan::Clos(ClosPlan::new(
            shape,
            LinkPlan {
                rate_mbps,
                delay_ns: 1000,
            },
        ));
        let world = World::new(scenario, Trace::off(), None).expect("a plan that makes sense");
        let outcome = world
            .run()
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert!(outcome.packets >= 500);
        runs += 1;
    }
    assert!(runs > 30, "{runs} runs");
}

#[test]
fn a_plan_that_contradicts_itself_is_refused_with_the_limit() {
    let refused = |change: &dyn Fn(&mut ClosPlan)| {
        let mut plan = ClosPlan::new(SHAPE, GIGABIT);
        change(&mut plan);
        Clos::new(plan, &[], 1).err()
    };
    assert_eq!(refused(&|_| ()), None);
    assert!(matches!(
        refused(&|plan| plan.shape.spines = 0),
        Some(PlanError::Count { .. })
    ));
    assert!(matches!(
        refused(&|plan| plan.shape.spines = 129),
        Some(PlanError::Count { .. })
    ));
    assert!(matches!(
        refused(&|plan| plan.host_link.rate_mbps = 0),
        Some(PlanError::Count { .. })
    ));
    assert!(matches!(
        refused(&|plan| plan.queues.drop_bytes = 0),
        Some(PlanError::Order { .. })
    ));
    let nowhere = Place::Plane(3);
    assert!(matches!(
        refused(&|plan| plan.outages = vec![Outage::dead(nowhere, 0, None)]),
        Some(PlanError::Place(_))
    ));
    let fault = always(
        Kind::Blackhole,
        Scope {
            place: Some(nowhere),
            ..Scope::default()
        },
    );
    assert!(Clos::new(ClosPlan::new(SHAPE, GIGABIT), &[fault], 1).is_err());
}
