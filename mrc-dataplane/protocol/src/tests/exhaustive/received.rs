//! What a responder knows of the packets that came, and which part of it a SACK shows (protocol.md §6.1, §6.5).

use std::collections::BTreeSet;
use std::vec::Vec;

use proptest::prelude::*;

use crate::attr::Tuning;
use crate::testing::*;

/// So near the seam that every window crosses it.
const FIRST: u32 = 0xff_fffc;

/// §6.1 and §6.5 as they stand, PSNs counted from the first one as 1.
#[derive(Default)]
struct Model {
    above: BTreeSet<i64>,
    cack: i64,
    max: i64,
    lowest_unsacked: i64,
}

impl Model {
    fn receive(&mut self, at: i64) {
        self.above.insert(at);
        self.max = self.max.max(at);
        while self.above.remove(&(self.cack + 1)) {
            self.cack += 1;
        }
    }

    /// Base and bitmap of the SACK that this trigger calls for.
    fn sack(&mut self, from_start: bool) -> (i64, u64) {
        let first = self.cack + 1;
        let base = if self.max - self.cack <= 64 || from_start {
            first
        } else {
            self.lowest_unsacked.max(first).min(self.max - 63)
        };
        let next = base + 64;
        self.lowest_unsacked = if next > self.max { first } else { next };
        let is_set = |bit: i64| base + bit <= self.cack || self.above.contains(&(base + bit));
        (
            base,
            (0..64).filter(|&bit| is_set(bit)).fold(0, |map, bit| map | 1 << bit),
        )
    }
}

/// A responder that answers each packet, a packet for it, and the model.
struct Bench {
    end: End,
    wire: Wire,
    model: Model,
}

impl Bench {
    fn new(mpr: u8) -> Self {
        let setup = Setup {
            mpr,
            first_psn: FIRST,
            region: 1,
            path: crate::attr::PathConfig {
                active: Some(2),
                ..crate::attr::PathConfig::explicit(evs(1, 2))
            },
            tuning: Tuning {
                sack_gen_threshold_bytes: 0,
                extra_sacks: 0,
                ..Tuning::default()
            },
            ..Setup::default()
        };
        let (mut a, end) = setup.pair();
        a.post(write(1, 1, 0));
        Self {
            end,
            wire: a.poll().expect("a packet"),
            model: Model::default(),
        }
    }

    /// Packet number `at`, which is new, arrives and is answered.
    fn arrive(&mut self, at: i64, ask: bool) {
        self.wire.sent.bth.psn = psn(FIRST).offset(at as i32 - 1);
        self.wire.sent.bth.a = ask;
        let answers = self.end.receive_all([&self.wire]);
        self.model.receive(at);
        let (base, bitmap) = self.model.sack(ask);
        let sacks = sacks(&answers);
        let [(_, seth, state)] = sacks.as_slice() else {
            panic!("one SACK, not {sacks:?}");
        };
        let number = |psn: mrc_wire::Psn| i64::from(psn.diff(psn_before()));
        assert_eq!(number(seth.cack_psn), self.model.cack);
        assert_eq!(number(seth.bitmap_base()), base, "cack {}", self.model.cack);
        assert_eq!(seth.sack_bitmap, bitmap, "base {base}");
        assert_eq!(usize::from(state.ooo_count), self.model.above.len());
    }
}

/// What `cack_psn` is before anything came.
fn psn_before() -> mrc_wire::Psn {
    psn(FIRST).sub(1)
}

/// Calls `each` with every order of `items`.
fn orders(items: &mut Vec<i64>, fixed: usize, each: &mut impl FnMut(&[i64])) {
    if fixed == items.len() {
        each(items);
        return;
    }
    for at in fixed..items.len() {
        items.swap(fixed, at);
        orders(items, fixed + 1, each);
        items.swap(fixed, at);
    }
}

// protocol.md §6.1, §6.5
#[test]
fn every_order_of_seven_arrivals_leaves_what_the_model_says() {
    let mut count = 0;
    orders(&mut (1..=7).collect(), 0, &mut |order| {
        let mut bench = Bench::new(1);
        for &at in order {
            bench.arrive(at, true);
        }
        assert_eq!((bench.model.cack, bench.end.region.placed), (7, 7));
        count += 1;
    });
    assert_eq!(count, 5040);
}

// protocol.md §6.5: windows around the 64 PSNs that one bitmap shows, with triggers that ask and such that do not
#[test]
fn every_order_of_arrivals_around_the_ends_of_a_bitmap_shows_the_base_of_the_rule() {
    let mut scanned = 0;
    for asks in 0..1_u32 << 5 {
        orders(&mut Vec::from([1, 2, 65, 66, 130]), 0, &mut |order| {
            let mut bench = Bench::new(2);
            for (n, &at) in order.iter().enumerate() {
                bench.arrive(at, asks >> n & 1 != 0);
                scanned += u32::from(bench.model.lowest_unsacked > bench.model.cack + 1);
            }
        });
    }
    assert!(scanned > 1000, "{scanned} times a later part is next");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

    // protocol.md §6.1, §6.5
    #[test]
    fn largest_window_in_any_order_leaves_what_the_model_says(
        arrivals in prop::collection::vec((prop_oneof![1_i64..=255 * 128, 1_i64..400], any::<bool>()), 1..600),
    ) {
        let mut bench = Bench::new(255);
        let mut came = BTreeSet::new();
        for (at, ask) in arrivals {
            // A new one in the window.
            if at > bench.model.cack && at <= bench.model.cack + 255 * 128 && came.insert(at) {
                bench.arrive(at, ask);
            }
        }
        prop_assert_eq!(bench.end.region.placed, came.len());
    }
}
