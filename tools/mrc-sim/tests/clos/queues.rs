//! Clocks and queues of switch ports.

use crate::net::{DOWN_TO_4, FULL, GIGABIT, Net, SHAPE, answer, frame, gigabit, plain};
use mrc_sim::fabric::clos::plan::{ClosPlan, LinkPlan, QueuePlan, Ramp, Routing, TrimPlan};
use mrc_sim::fabric::clos::topology::{Link, Shape};
use mrc_sim::fabric::frame::{Frame, Trim};

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
