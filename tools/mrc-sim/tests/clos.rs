//! The fabric with switches, against calculations by hand.

use mrc_sim::coverage::Coverage;
use mrc_sim::fabric::clos::plan::{
    ClosPlan, LinkPlan, Outage, PlanError, QueuePlan, Ramp, Routing, Sampling, TrimPlan,
};
use mrc_sim::fabric::clos::sampler::Sample;
use mrc_sim::fabric::clos::topology::{Link, Place, Shape, Switch};
use mrc_sim::fabric::clos::{Clos, Totals};
use mrc_sim::fabric::fault::{Fault, Kind, Nth, Scope};
use mrc_sim::fabric::frame::{Body, Frame, Trim};
use mrc_sim::fabric::{FabricPlan, Next};
use mrc_sim::queue::EventQueue;
use mrc_sim::rng::Rng;
use mrc_sim::scenario::{Class, Scenario};
use mrc_sim::trace::Trace;
use mrc_sim::world::World;

const SHAPE: Shape = Shape {
    planes: 2,
    leaves: 3,
    spines: 4,
    hosts_per_leaf: 4,
};
/// A frame of 976 bytes takes 8 µs at this rate.
const GIGABIT: LinkPlan = LinkPlan {
    rate_mbps: 1000,
    delay_ns: 500,
};
const FULL: u32 = 976;

/// A fabric and its events.
struct Net {
    clos: Clos,
    events: EventQueue<Next>,
    coverage: Coverage,
    arrived: Vec<(u64, Frame)>,
    now_ns: u64,
}

impl Net {
    fn new(plan: ClosPlan, faults: &[Fault]) -> Net {
        let mut net = Net {
            clos: Clos::new(plan, faults, 7).expect("a plan that makes sense"),
            events: EventQueue::new(),
            coverage: Coverage::default(),
            arrived: Vec::new(),
            now_ns: 0,
        };
        net.clos.start(|next| post(&mut net.events, next));
        net
    }

    /// Sends a frame of which the last bit leaves at `at_ns`.
    fn send(&mut self, at_ns: u64, frame: Frame) {
        let events = &mut self.events;
        self.clos
            .send(Box::new(frame), at_ns, &mut self.coverage, |next| post(events, next));
    }

    /// Runs until nothing happens before `until_ns`.
    fn run_until(&mut self, until_ns: u64) {
        while let Some((at_ns, next)) = self.events.pop() {
            if at_ns > until_ns {
                self.events.post(at_ns, next);
                break;
            }
            self.now_ns = at_ns;
            match next {
                Next::Arrive(_, frame) => self.arrived.push((at_ns, *frame)),
                Next::Step(_, step) => {
                    let events = &mut self.events;
                    self.clos
                        .step(step, at_ns, &mut self.coverage, |next| post(events, next));
                }
            }
            let t = self.clos.totals();
            assert_eq!(
                t.sent + t.copied,
                t.arrived + t.dropped + t.lost + t.unrouted + t.queued + t.on_links,
                "{t:?}"
            );
        }
    }

    fn run(&mut self) -> Totals {
        self.run_until(u64::MAX);
        let totals = self.clos.totals();
        assert_eq!((totals.queued, totals.on_links), (0, 0));
        assert_eq!(totals.arrived, self.arrived.len() as u64);
        totals
    }

    fn ids(&self) -> Vec<u64> {
        self.arrived.iter().map(|(_, frame)| frame.id).collect()
    }
}

fn post(events: &mut EventQueue<Next>, next: Next) {
    let (Next::Arrive(at_ns, _) | Next::Step(at_ns, _)) = &next;
    events.post(*at_ns, next);
}

fn frame(src: usize, dst: usize, ev: u32, size: u32) -> Frame {
    Frame {
        src,
        dst,
        plane: 1,
        ev,
        data: true,
        control: false,
        trimmable: true,
        ect: true,
        size,
        body: Body::Bytes(Vec::new()),
        ce: false,
        trim: None,
        flips: Vec::new(),
        id: 0,
    }
}

fn answer(src: usize, dst: usize, size: u32) -> Frame {
    Frame {
        data: false,
        control: true,
        trimmable: false,
        ect: false,
        ..frame(src, dst, 0, size)
    }
}

/// Queues that do nothing but drop at `drop_bytes`.
fn plain(drop_bytes: u32) -> QueuePlan {
    QueuePlan {
        ecn: None,
        ecn_last_hop: false,
        trim: None,
        drop_bytes,
        control_bytes: 100_000,
    }
}

fn gigabit(queues: QueuePlan) -> ClosPlan {
    ClosPlan {
        queues,
        ..ClosPlan::new(SHAPE, GIGABIT)
    }
}

fn always(kind: Kind, scope: Scope) -> Fault {
    Fault {
        kind,
        scope,
        from_ns: 0,
        until_ns: u64::MAX,
    }
}

const DOWN_TO_4: Link = Link::HostDown { plane: 1, host: 4 };

#[test]
fn a_lone_frame_takes_its_time_on_every_link_and_nothing_else() {
    let mut net = Net::new(gigabit(plain(100_000)), &[]);
    // The last bit leaves at 8 µs; then 0.5 µs to the T0, 8 µs to send it again, 0.5 µs to the next, and so on.
    net.send(8_000, frame(0, 1, 5, FULL));
    net.send(8_000, frame(2, 4, 5, FULL));
    net.run();
    let times: Vec<(usize, u64)> = net.arrived.iter().map(|(at, frame)| (frame.dst, *at)).collect();
    assert_eq!(times, [(1, 17_000), (4, 34_000)]);
}

#[test]
fn rates_of_tiers_differ_and_fractions_of_nanoseconds_add_up() {
    let mut plan = gigabit(plain(1_000_000));
    plan.host_link.rate_mbps = 400_000;
    plan.spine_link = LinkPlan {
        rate_mbps: 25,
        delay_ns: 7,
    };
    let mut net = Net::new(plan, &[]);
    // 101 bytes with overhead are 2.02 ns at 400 Gb/s: a thousand of them, sent at once, are 2020 ns.
    for _ in 0..1000 {
        net.send(0, frame(0, 1, 5, 77));
    }
    // And 32 320 ns at 25 Mb/s, twice; the others are 3 and 500, 7, 7 and 500.
    net.send(3, frame(2, 4, 5, 77));
    net.run();
    let last = net
        .arrived
        .iter()
        .filter(|(_, frame)| frame.dst == 1)
        .map(|(at, _)| *at)
        .max();
    // The first bit of the first one is sent at 0, since none may leave before; the last hop adds one frame and two delays.
    assert_eq!(last, Some(2020 + 500 + 2 + 500 + 1));
    let slow = net.arrived.iter().find(|(_, frame)| frame.dst == 4).map(|(at, _)| *at);
    assert_eq!(slow, Some(3 + 500 + 32_320 + 7 + 32_320 + 7 + 3 + 500));
}

#[test]
fn frames_that_meet_wait_for_each_other_in_the_order_of_their_coming() {
    let mut net = Net::new(gigabit(plain(100_000)), &[]);
    for (at, src) in [(8_000, 5), (8_000, 6), (8_100, 7)] {
        net.send(at, frame(src, 4, 0, FULL));
    }
    net.run();
    let times: Vec<(usize, u64)> = net.arrived.iter().map(|(at, frame)| (frame.src, *at)).collect();
    assert_eq!(times, [(5, 17_000), (6, 25_000), (7, 33_000)]);
    let counters = net.clos.counters(DOWN_TO_4).expect("a link");
    assert_eq!((counters.packets, counters.bytes), (3, 3 * u64::from(FULL)));
    assert_eq!(counters.high_water_bytes, 2 * FULL);
}

#[test]
fn control_overtakes_the_data_that_waits_but_not_the_frame_under_way() {
    let mut net = Net::new(gigabit(plain(100_000)), &[]);
    for id in 0..3 {
        net.send(
            8_000,
            Frame {
                id,
                ..frame(5 + id as usize, 4, 0, FULL)
            },
        );
    }
    net.send(
        9_000,
        Frame {
            id: 9,
            ..answer(0, 4, 76)
        },
    );
    net.run();
    assert_eq!(net.ids(), [0, 9, 1, 2]);
    // 100 bytes are 800 ns; it waits from 11 800 to 16 500 behind frame 0.
    assert_eq!(net.arrived[1].0, 16_500 + 800 + 500);
    assert_eq!(net.arrived[3].0, 33_000 + 800);
}

/// Many hosts below one T0.
fn wide(queues: QueuePlan) -> ClosPlan {
    let shape = Shape {
        planes: 1,
        leaves: 1,
        spines: 0,
        hosts_per_leaf: 16,
    };
    ClosPlan {
        shape,
        ..gigabit(queues)
    }
}

#[test]
fn a_full_queue_drops_and_its_limit_is_exact() {
    for (limit, arrive) in [(2 * FULL, 3), (3 * FULL - 1, 3), (3 * FULL, 4)] {
        let mut net = Net::new(wide(plain(limit)), &[]);
        // One is sent, the others that arrive have waited.
        for id in 0..6 {
            net.send(
                8_000,
                Frame {
                    id,
                    ..frame(id as usize + 5, 4, 0, FULL)
                },
            );
        }
        let totals = net.run();
        assert_eq!((totals.arrived, totals.dropped), (arrive, 6 - arrive), "limit {limit}");
        assert_eq!(net.ids(), (0..arrive).collect::<Vec<u64>>());
    }
}

#[test]
fn a_frame_above_the_mtu_goes_no_farther_than_the_first_switch() {
    let plan = ClosPlan {
        mtu_bytes: FULL - 1,
        ..gigabit(plain(100_000))
    };
    let mut net = Net::new(plan, &[]);
    net.send(0, frame(0, 1, 0, FULL));
    net.send(0, frame(0, 1, 0, FULL - 1));
    assert_eq!((net.run().dropped, net.arrived.len()), (1, 1));
}

fn trimming(share_percent: u8) -> QueuePlan {
    QueuePlan {
        trim: Some(TrimPlan {
            at_bytes: 2 * FULL,
            at_last_hop_bytes: 3 * FULL,
            keep_bytes: 128,
            share_percent,
        }),
        ..plain(5 * FULL)
    }
}

#[test]
fn at_the_last_hop_trimming_begins_later_and_has_its_own_code_point() {
    let mut net = Net::new(wide(trimming(50)), &[]);
    // One is sent, three wait, the rest is cut and passes by.
    for id in 0..7 {
        net.send(
            8_000,
            Frame {
                id,
                ..frame(id as usize + 5, 4, 0, FULL)
            },
        );
    }
    net.run();
    assert_eq!(net.ids(), [0, 4, 5, 6, 1, 2, 3]);
    let last_hop = Some(Trim {
        last_hop: true,
        keep: 128,
    });
    for (_, frame) in &net.arrived {
        assert_eq!(frame.trim, last_hop.filter(|_| frame.id >= 4), "{}", frame.id);
    }
    assert_eq!(net.clos.counters(DOWN_TO_4).expect("a link").trimmed, 3);
    // 152 bytes with overhead are 1216 ns.
    assert_eq!(net.arrived[1].0 - net.arrived[0].0, 1216);
}

#[test]
fn inside_the_fabric_trimming_begins_at_its_threshold_and_the_cut_frames_hurry_ahead() {
    let plan = ClosPlan {
        spine_link: LinkPlan {
            rate_mbps: 100,
            ..GIGABIT
        },
        routing: Routing::Structured { low_bit: 0, bits: 2 },
        ..gigabit(trimming(50))
    };
    let mut net = Net::new(plan, &[]);
    // Four hosts to four others, over one spine: of eight frames at once, one is sent, two wait, five are cut.
    for id in 0..8 {
        let src = id as usize % 4;
        net.send(
            8_000 * (id / 4 + 1),
            Frame {
                id,
                ..frame(src, 4 + src, 1, FULL)
            },
        );
    }
    let totals = net.run();
    assert_eq!((totals.arrived, totals.dropped), (8, 0));
    let up = Link::SpineUp {
        plane: 1,
        leaf: 0,
        spine: 1,
    };
    assert_eq!(net.clos.counters(up).expect("a link").trimmed, 5);
    assert_eq!(net.ids(), [0, 3, 4, 5, 6, 7, 1, 2]);
    let inner = Some(Trim {
        last_hop: false,
        keep: 128,
    });
    for (_, frame) in &net.arrived {
        assert_eq!(frame.trim, inner.filter(|_| frame.id >= 3), "{}", frame.id);
    }
}

#[test]
fn what_may_not_be_trimmed_waits_up_to_the_drop_threshold() {
    let mut net = Net::new(wide(trimming(50)), &[]);
    for id in 0..8 {
        let fixed = Frame {
            id,
            trimmable: false,
            ..frame(id as usize + 5, 4, 0, FULL)
        };
        net.send(8_000, fixed);
    }
    // One is sent, five wait.
    let totals = net.run();
    assert_eq!((totals.arrived, totals.dropped), (6, 2));
    assert!(net.arrived.iter().all(|(_, frame)| frame.trim.is_none()));
    assert_eq!(net.clos.counters(DOWN_TO_4).expect("a link").high_water_bytes, 5 * FULL);
}

#[test]
fn trimmed_frames_get_their_share_of_the_link_and_no_more() {
    for (share, least, most) in [(10, 0.09, 0.12), (50, 0.48, 0.53)] {
        let mut queues = trimming(share);
        queues.control_bytes = 10_000_000;
        let mut plan = gigabit(queues);
        plan.spine_link.rate_mbps = 100;
        plan.routing = Routing::Structured { low_bit: 0, bits: 2 };
        let mut net = Net::new(plan, &[]);
        // 4 Gb/s of frames that are 200 bytes long into 100 Mb/s: cut to 128, they would be 26 times what there is.
        let span_ns = 20_000_000;
        let gap_ns = 1792;
        for at in 1..=span_ns / gap_ns {
            for src in 0..4 {
                net.send(at * gap_ns, frame(src, src + 4, 1, 200));
            }
        }
        net.run_until(span_ns);
        let trimmed = net.arrived.iter().filter(|(_, frame)| frame.trim.is_some()).count();
        let used = trimmed as f64 * (128.0 + 24.0) * 8.0 * 10.0 / span_ns as f64;
        assert!((least..most).contains(&used), "{used} of the link at {share} %");
        let whole = net.arrived.len() - trimmed;
        assert!(
            whole as f64 * (200.0 + 24.0) * 80.0 / span_ns as f64 > 0.45,
            "{whole} whole frames"
        );
    }
}

/// Frames of each of two hosts that fill a queue at twice its rate.
const FRAMES: u64 = 200;

#[test]
fn marks_follow_the_ramp_and_spare_the_last_hop_and_what_is_not_capable() {
    let ramp = Ramp {
        low_bytes: 10 * FULL,
        high_bytes: 110 * FULL,
    };
    for (last_hop, ect) in [(true, true), (false, true), (true, false)] {
        let queues = QueuePlan {
            ecn: Some(ramp),
            ecn_last_hop: last_hop,
            ..plain(10_000_000)
        };
        let mut net = Net::new(gigabit(queues), &[]);
        // Two hosts fill the queue at twice its rate: it grows by one with each pair, up to `FRAMES`, and drains.
        let mut expected = 0.0;
        for round in 0..50 {
            let start_ns = round * 2 * FRAMES * 8_000 + round * 100_000;
            for at in 1..=FRAMES {
                for src in [5, 6] {
                    net.send(
                        start_ns + at * 8_000,
                        Frame {
                            ect,
                            ..frame(src, 4, 0, FULL)
                        },
                    );
                }
            }
            // While they come, k wait behind the k-th that leaves; then one less behind each.
            let waiting = (0..FRAMES).chain((0..FRAMES).rev());
            expected += waiting
                .map(|k| (k as f64 - 10.0).clamp(0.0, 100.0) / 100.0)
                .sum::<f64>();
        }
        net.run();
        let marked = net.arrived.iter().filter(|(_, frame)| frame.ce).count();
        assert_eq!(marked as u64, net.clos.counters(DOWN_TO_4).expect("a link").marked);
        if last_hop && ect {
            // 10 000 draws on the ramp have a standard deviation below 50; the phase of the first frames is worth one each.
            assert!(
                (marked as f64 - expected).abs() < 250.0,
                "{marked} marks, expected {expected}"
            );
        } else {
            assert_eq!(marked, 0, "last hop {last_hop}, ECT {ect}");
        }
    }
}

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

#[test]
fn thresholds_follow_the_bandwidth_delay_product_of_a_plane() {
    let plan = ClosPlan::new(
        SHAPE,
        LinkPlan {
            rate_mbps: 100_000,
            delay_ns: 1000,
        },
    );
    // 4222 bytes are 337.76 ns, 138 bytes 11.04: four links each way, rounded up link by link.
    assert_eq!(plan.base_rtt_ns(), 4 * (338 + 1000) + 4 * (12 + 1000));
    assert_eq!(plan.bdp_bytes(), 9400 * 100 / 8);
    let QueuePlan {
        ecn, trim, drop_bytes, ..
    } = plan.queues;
    assert_eq!(
        ecn.map(|ramp| (ramp.low_bytes, ramp.high_bytes)),
        Some((23_500, 94_000))
    );
    assert_eq!(
        trim.map(|trim| (trim.at_bytes, trim.at_last_hop_bytes)),
        Some((117_500, 176_250))
    );
    assert_eq!(drop_bytes, 352_500);
}
