//! The baselines do what their models say, on a fabric where that can be calculated.

use mrc_sim::baseline::workload::{Transfer, Workload};
use mrc_sim::baseline::{self, BaselineError, BaselineReport, Kind};
use mrc_sim::fabric::clos::plan::{ClosPlan, LinkPlan, Outage};
use mrc_sim::fabric::clos::topology::{Link, Place, Shape};
use mrc_sim::fabric::fault::{Fault, Kind as FaultKind, Scope};

/// 100 Gb/s per plane; 4096 of 4198 bytes on the wire are payload.
const RATE_BPS: f64 = 100e9;
const FULL_RATE_BPS: f64 = RATE_BPS * 4096.0 / (4096.0 + 78.0 + 24.0);

fn plan(planes: u8) -> ClosPlan {
    let shape = Shape {
        planes,
        leaves: 2,
        spines: 4,
        hosts_per_leaf: 8,
    };
    let link = LinkPlan {
        rate_mbps: 100_000,
        delay_ns: 1000,
    };
    ClosPlan::new(shape, link)
}

fn fault(kind: FaultKind, scope: Scope) -> Fault {
    Fault {
        kind,
        scope,
        from_ns: 0,
        until_ns: u64::MAX,
    }
}

fn data_loss(ppm: u32) -> Fault {
    let scope = Scope {
        data: Some(true),
        ..Scope::default()
    };
    fault(FaultKind::Loss { ppm }, scope)
}

fn run(kind: Kind, plan: &ClosPlan, workload: &Workload, faults: &[Fault]) -> BaselineReport {
    let report = baseline::run(kind, plan, workload, faults, 1).expect("a plan that makes sense");
    assert_eq!(report.misplaced, 0, "{kind}");
    report
}

#[test]
fn without_loss_a_connection_fills_one_path_and_never_more() {
    for kind in Kind::ALL {
        for (dst, bytes) in [(1, 64 << 20), (8, 64 << 20)] {
            let report = run(kind, &plan(4), &Workload::pair(0, dst, bytes), &[]);
            let share = report.goodput_bps() / FULL_RATE_BPS;
            assert!((0.95..1.0).contains(&share), "{kind} to {dst}: {share} of one path");
            assert_eq!((report.repeated, report.timeouts, report.naks), (0, 0, 0), "{kind}");
            assert_eq!((report.delivered_bytes, report.packets), (bytes, bytes / 4096));
        }
    }
}

#[test]
fn a_short_message_takes_a_round_trip() {
    for (kind, answer) in [(Kind::GoBackN, 82), (Kind::SelectiveRepeat, 106)] {
        let report = run(kind, &plan(1), &Workload::pair(0, 8, 10), &[]);
        // 10 bytes with headers of 94, and 24 more on the wire: 128 bytes, 10.24 ns a hop; then the answer.
        let there = 4 * 1000 + 4 * 11;
        let back = 4 * 1000 + 4 * ((answer + 24) * 8_u64).div_ceil(100);
        assert_eq!(report.completions_ns, [Some(there + back)], "{kind}");
    }
}

#[test]
fn everything_is_recovered_in_order_and_lands_once_where_it_belongs() {
    let faults = [
        data_loss(10_000),
        fault(
            FaultKind::Loss { ppm: 20_000 },
            Scope {
                data: Some(false),
                ..Scope::default()
            },
        ),
        fault(
            FaultKind::Duplicate {
                ppm: 10_000,
                within_ns: 20_000,
            },
            Scope::default(),
        ),
        fault(
            FaultKind::Jitter {
                ppm: 10_000,
                within_ns: 5_000,
            },
            Scope::default(),
        ),
        fault(FaultKind::BitFlip { ppm: 5_000, bits: 2 }, Scope::default()),
    ];
    let transfers = (0..60).map(|at| Transfer {
        src: at % 4,
        dst: 8 + at % 3,
        bytes: 1 + 50_000 * at as u64,
        start_ns: 1000 * at as u64,
    });
    let workload = Workload::new(transfers.collect());
    for kind in Kind::ALL {
        let report = run(kind, &plan(2), &workload, &faults);
        assert!(report.is_complete(), "{kind}: {report:?}");
        assert_eq!(report.delivered_bytes, workload.bytes(), "{kind}");
        assert!(
            report.repeated > 0 && report.frames.lost > 0 && report.frames.copied > 0,
            "{kind}"
        );
    }
}

#[test]
fn go_back_n_collapses_with_loss_as_the_theory_says_and_selective_repeat_does_not() {
    let plan = plan(1);
    let workload = Workload::pair(0, 8, 64 << 20);
    // A loss costs what was sent from it to its NAK: a window; if its repetition is lost too, a timeout.
    let window = f64::from(plan.bdp_bytes()) / 4198.0;
    let timeout = 20.0 * window;
    for ppm in [1_000, 10_000, 30_000] {
        let p = f64::from(ppm) / 1e6;
        let expected = (1.0 - p) / (1.0 - p + p * (window + p * timeout));
        let report = run(Kind::GoBackN, &plan, &workload, &[data_loss(ppm)]);
        let share = report.goodput_bps() / FULL_RATE_BPS;
        assert!(
            (0.8..1.25).contains(&(share / expected)),
            "{ppm} ppm: {share}, expected {expected}"
        );
        let selective = run(Kind::SelectiveRepeat, &plan, &workload, &[data_loss(ppm)]);
        let kept = selective.goodput_bps() / FULL_RATE_BPS;
        assert!(kept > 0.9 * (1.0 - p) && kept > share, "{ppm} ppm: {kept}");
        let repeats = selective.repeated as f64 / selective.packets as f64;
        assert!(repeats < 1.5 * p + 0.002, "{repeats} repeated of {p} lost");
    }
}

#[test]
fn one_dead_path_ends_what_goes_over_it_and_nothing_else() {
    let mut dead = plan(1);
    let spine = Place::Link(Link::SpineDown {
        plane: 1,
        leaf: 1,
        spine: 1,
    });
    dead.outages = vec![Outage::dead(spine, 0, None)];
    let mut workload = Workload::new(
        (0..8)
            .map(|src| Transfer {
                src,
                dst: 8 + src,
                bytes: 1 << 20,
                start_ns: 0,
            })
            .collect(),
    );
    workload.deadline_ns = 50_000_000;
    for kind in Kind::ALL {
        let report = run(kind, &dead, &workload, &[]);
        let complete = report.completions_ns.iter().flatten().count();
        assert!((1..8).contains(&complete), "{kind}: {complete} of 8");
        assert_eq!(report.delivered_bytes, (complete as u64) << 20, "{kind}");
        assert_eq!((report.span_ns, report.completion_ns(100)), (50_000_000, None));
        assert!(report.timeouts > 0);
        // Routing that reacts saves them.
        let mut rerouted = dead.clone();
        rerouted.outages[0].reroute_ns = Some(1_000_000);
        assert!(run(kind, &rerouted, &workload, &[]).is_complete(), "{kind}");
    }
}

#[test]
fn stripes_use_all_planes_and_a_dead_plane_holds_up_every_transfer() {
    for kind in Kind::ALL {
        let mut workload = Workload::permutation(16, 8, (16 << 20) + 5).striped(4);
        let report = run(kind, &plan(4), &workload, &[]);
        assert!(
            report.is_complete() && report.delivered_bytes == workload.bytes(),
            "{kind}"
        );
        let one = run(kind, &plan(4), &Workload::pair(0, 8, (16 << 20) + 5).striped(4), &[]);
        let share = one.goodput_bps() / (4.0 * FULL_RATE_BPS);
        assert!((0.9..1.0).contains(&share), "{kind}: {share} of four paths");

        let mut dead = plan(4);
        dead.outages = vec![Outage::dead(Place::Plane(2), 0, None)];
        workload.deadline_ns = 20_000_000;
        let report = run(kind, &dead, &workload, &[]);
        assert_eq!(report.completions_ns, vec![None; 16], "{kind}");
        assert!(report.delivered_bytes > workload.bytes() * 7 / 10);
    }
    let report = run(Kind::GoBackN, &plan(4), &Workload::pair(0, 8, 2).striped(4), &[]);
    assert_eq!((report.packets, report.delivered_bytes), (2, 2));
}

#[test]
fn an_incast_overflows_the_last_hop_and_ends_all_the_same() {
    for kind in Kind::ALL {
        let report = run(kind, &plan(1), &Workload::incast(7, 0, 1 << 20), &[]);
        assert!(report.is_complete() && report.frames.dropped > 0, "{kind}: {report:?}");
        assert!(report.goodput_bps() < FULL_RATE_BPS, "{kind}");
        assert!(report.completion_ns(50) <= report.completion_ns(100));
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    for kind in Kind::ALL {
        let run = |seed| {
            let workload = Workload::permutation(16, 8, 1 << 20);
            baseline::run(kind, &plan(2), &workload, &[data_loss(5_000)], seed).expect("a plan that makes sense")
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}

#[test]
fn workloads_that_cannot_be_are_refused() {
    for workload in [Workload::pair(0, 16, 1), Workload::pair(3, 3, 1)] {
        let refused = baseline::run(Kind::GoBackN, &plan(1), &workload, &[], 1);
        assert!(
            matches!(refused, Err(BaselineError::Host { hosts: 16, .. })),
            "{refused:?}"
        );
    }
    for pmtu in [0, 8192] {
        let workload = Workload {
            pmtu,
            ..Workload::pair(0, 1, 1)
        };
        let refused = baseline::run(Kind::GoBackN, &plan(1), &workload, &[], 1);
        assert_eq!(refused, Err(BaselineError::Pmtu { pmtu, most: 4096 }));
    }
}
