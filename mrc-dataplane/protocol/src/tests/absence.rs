//! When this engine was away: what that explains, and what it does not (protocol.md §5.6 "no blame", §10.5).

use super::pacing::{of, retry, steady};
use crate::path::EvState;
use crate::qp::Qp;
use crate::testing::*;
use crate::time::Stall;
use crate::work::Cx;

// protocol.md §10.5: a sample is dropped if the engine was away for at least half of it and for at least 4 T0, or 80 ms without.
#[test]
fn round_trip_of_which_the_engine_slept_through_the_better_part_is_none() {
    const MS: u64 = 1_000_000;
    for (total, away, sampled) in [
        (150 * MS, 80 * MS - 1, true),
        (150 * MS, 80 * MS, false),
        (200 * MS, 100 * MS, false),
        (200 * MS + 1, 100 * MS, true),
        (400 * MS, 100 * MS, true),
    ] {
        let (mut a, mut b) = of(retry(0, 3, 5)).pair();
        a.post(write(1, 1, 0));
        let sent = a.poll_writes();
        let back = b.receive_all(&sent);
        a.now = a.now + total;
        let stall = Some(Stall {
            from: a.now - away,
            to: a.now,
        });
        let mut cx = Cx {
            stall,
            ..Cx::new(a.now, &mut a.cc, &mut a.region)
        };
        Qp::handle_timeout(&mut a.qp, &mut cx);
        a.hear(&back);
        assert_eq!(a.qp.rtt_ns().0 != 0, sampled, "{away} of {total}");
    }
}

// protocol.md §5.6 "no blame": "no poll for more than T0 / 2 or 4 base RTT", whichever is less, and round trips as they are.
#[test]
fn absence_explains_a_loss_if_it_was_longer_than_four_round_trips_or_half_a_timeout() {
    for (timeout, rtt_ns, longest_ns, later_ns) in [
        // 4 * 51.2 us, against T0 / 2 = 8.4 ms; a packet that is sent 300 us later arrives.
        (14, 51_200, 204_800, Some(300_000)),
        (14, 640_000, 2_560_000, Some(3_000_000)),
        // T0 / 2 = 32.768 us; then the packet times out.
        (6, 25_600, 32_768, None),
    ] {
        for (away_ns, blamed) in [(longest_ns, true), (longest_ns + 1, false)] {
            let (mut a, mut b) = steady(&of(retry(timeout, 3, 5)), rtt_ns);
            let bad = |a: &End| a.qp.ev_states().any(|view| view.state == EvState::AssumedBad);
            assert!(!bad(&a));
            a.post(write(1, 1, 0));
            a.poll_writes();
            let sent_at = a.now;
            a.advance(later_ns.unwrap_or(65_535));
            let stall = Some(Stall {
                from: sent_at,
                to: sent_at + away_ns,
            });
            let mut cx = Cx {
                stall,
                ..Cx::new(a.now, &mut a.cc, &mut a.region)
            };
            Qp::handle_timeout(&mut a.qp, &mut cx);
            if later_ns.is_some() {
                a.post(write(2, 1, 0));
                let later = a.poll_writes();
                let back = b.receive_all(&later);
                a.advance(25_600);
                a.hear(&back);
            } else {
                a.advance(1);
            }
            assert_eq!(a.poll_writes().len(), 1, "it is sent again");
            assert_eq!(bad(&a), blamed, "{away_ns} at {rtt_ns}");
        }
    }
}
