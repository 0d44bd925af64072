//! The defaults and ranges of protocol.md §15, as far as a queue pair has them.

use mrc_wire::PortSet;

use crate::attr::{PathConfig, QpCreate, RetryAttr, Tuning};
use crate::cc::Network;
use crate::peer::EndpointLimits;
use crate::qp::Qp;
use crate::testing::*;
use crate::work::{CreateError, StateError};

// protocol.md §15
#[test]
fn defaults_are_those_of_the_table() {
    let retry = RetryAttr::default();
    assert_eq!((retry.timeout, retry.linear_cnt, retry.exp_cnt), (14, 3, 5));
    let tuning = Tuning::default();
    assert_eq!(tuning.sack_gen_threshold_bytes, 16384);
    assert_eq!(tuning.sack_hold_ns, 20_000);
    assert_eq!(tuning.reo_min_ns, 50_000);
    assert_eq!(tuning.answers_per_s, 1000, "§14");
    assert!(tuning.flow_control, "§11: the switch is for off");
    assert!(!tuning.spare_first_violation, "§14, P28: an option");
    assert_eq!(EndpointLimits::default().answers_per_s_and_peer, 1000, "§14");
    assert_eq!(Network::DEFAULT_BASE_RTT_NS, 50_000, "§10.3");

    let path = PathConfig::auto(PortSet::first(4));
    assert_eq!(path.reshuffle_passes, 8);
    let create = QpCreate {
        path,
        ..Setup::default().create(5)
    };
    let qp = Qp::new(create).unwrap();
    assert_eq!(qp.ev_states().count(), 128);
    assert_eq!(qp.ev_states().filter(|view| view.active).count(), 64);
}

// protocol.md §15: a universe below 64.
#[test]
fn small_universe_keeps_one_ev_per_plane_in_reserve() {
    let create = QpCreate {
        path: PathConfig::explicit(evs(4, 8)),
        ..Setup::default().create(5)
    };
    let qp = Qp::new(create).unwrap();
    for num in 1..=4 {
        let own = qp.ev_states().filter(|view| view.entry.port == port(num));
        assert_eq!(own.filter(|view| view.active).count(), 7);
    }
}

// protocol.md §2.2, §15
#[test]
fn each_range_ends_where_the_table_says() {
    let now = crate::time::Instant::ZERO;
    let (init, rtr, rts) = Setup::default().attrs(6);
    let with_retry = |timeout, linear_cnt, exp_cnt| {
        let mut qp = Qp::new(Setup::default().create(5)).unwrap();
        qp.handle_init(&init).unwrap();
        qp.handle_rtr(&rtr, now).unwrap();
        let mut rts = rts;
        rts.retry = RetryAttr {
            timeout,
            linear_cnt,
            exp_cnt,
        };
        qp.handle_rts(&rts, now)
    };
    assert_eq!((with_retry(0, 0, 0), with_retry(24, 7, 25)), (Ok(()), Ok(())));
    for (timeout, linear_cnt, exp_cnt) in [(25, 0, 0), (0, 8, 0), (0, 0, 26)] {
        assert_eq!(with_retry(timeout, linear_cnt, exp_cnt), Err(StateError::Retry));
    }

    let with_stash = |max_wimm_dest| {
        let mut qp = Qp::new(Setup::default().create(5)).unwrap();
        qp.handle_init(&init).unwrap();
        let mut rtr = rtr;
        rtr.max_wimm_dest = max_wimm_dest;
        qp.handle_rtr(&rtr, now)
    };
    let limit = |value| StateError::Limit {
        name: "max_wimm_dest",
        value,
        max: 128,
    };
    assert_eq!((with_stash(1), with_stash(128)), (Ok(()), Ok(())));
    assert_eq!(
        (with_stash(0), with_stash(129)),
        (Err(limit(0)), Err(limit(129))),
        "no more than memory was allocated for"
    );

    let with_tuning = |change: fn(&mut Tuning)| {
        let mut create = Setup::default().create(5);
        change(&mut create.tuning);
        Qp::new(create).err()
    };
    assert_eq!(with_tuning(|t| t.sack_gen_threshold_bytes = 65536), None);
    assert_eq!(
        with_tuning(|t| t.sack_gen_threshold_bytes = 65537),
        Some(CreateError::Tuning)
    );
    assert_eq!(with_tuning(|t| t.sack_hold_ns = 1_000_000), None);
    assert_eq!(with_tuning(|t| t.sack_hold_ns = 1_000_001), Some(CreateError::Tuning));
}
