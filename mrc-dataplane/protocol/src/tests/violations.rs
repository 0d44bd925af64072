//! A responder that spares a write which fails the access check, once (protocol.md §14, P28).

use std::vec::Vec;

use mrc_wire::Headers;

use crate::attr::Tuning;
use crate::qp::{Qp, QpState};
use crate::testing::*;
use crate::work::{Disposition, DropReason, QpEvent, Queue, Status};

fn sparing() -> Setup {
    Setup {
        tuning: Tuning {
            spare_first_violation: true,
            ..Tuning::default()
        },
        ..Setup::default()
    }
}

/// The same packet with a key that is not the region's.
fn spoiled(wire: &Wire) -> Wire {
    let mut wire = wire.clone();
    if let Headers::Write { reth, .. } = &mut wire.sent.headers {
        reth.r_key ^= 1;
    }
    wire
}

// protocol.md §14, P28
#[test]
fn forged_write_is_dropped_in_silence_and_the_true_one_is_taken() {
    let (mut a, mut b) = sparing().pair();
    a.post(write(1, 4096 * 3, 0));
    let sent = a.poll_all();
    for wire in &sent {
        assert_eq!(
            b.receive(&spoiled(wire)),
            Disposition::Dropped(DropReason::Access),
            "each PSN is spared"
        );
    }
    b.qp.end_of_batch(b.now);
    assert_eq!((b.poll_all(), b.events()), (Vec::new(), Vec::new()));
    assert_eq!(b.region.placed, 0);
    let back = b.receive_all(&sent);
    a.hear(&back);
    assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::Success)]);
    assert_eq!(b.region.placed, 3);
}

// protocol.md §14, P28
#[test]
fn peer_that_repeats_its_violation_is_refused() {
    let (mut a, mut b) = sparing().pair();
    let mut request = write(1, 4096 * 2, 0);
    request.r_key ^= 1;
    a.post(request);
    while a.qp.state() == QpState::Rts {
        let sent = a.poll_writes();
        let back = b.receive_all(&sent);
        a.hear(&back);
        if a.qp.state() == QpState::Rts {
            a.wait_for_timeout();
            b.advance(a.now.since(b.now));
        }
    }
    assert_eq!(b.events(), [QpEvent::AccessError]);
    assert_eq!((b.qp.state(), b.region.placed), (QpState::Err, 0));
    assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::RemoteAccess)]);
    assert_eq!(a.qp.stats().timeouts, 2, "by the first repetition");
}

// protocol.md §14, P28
#[test]
fn what_was_spared_is_forgotten_when_the_write_arrives_and_at_reset() {
    let setup = sparing();
    let (mut a, mut b) = setup.pair();
    let window = u32::from(setup.mpr) * 128;
    a.post(write(1, 4096, 0));
    let first = a.poll_all();
    b.receive(&spoiled(&first[0]));
    a.hear(&b.receive_all(&first));
    // The same place of the ring, a window later.
    for n in 0..window {
        a.post(write(u64::from(n), 4096, 0));
        let sent = a.poll_all();
        if n + 1 == window {
            assert_eq!(b.receive(&spoiled(&sent[0])), Disposition::Dropped(DropReason::Access));
        }
        a.hear(&b.receive_all(&sent));
        a.completions();
    }
    b.receive(&spoiled(&first[0]));
    let (mut c, mut d) = setup.pair();
    c.post(write(1, 4096, 0));
    let sent = c.poll_all();
    d.receive(&spoiled(&sent[0]));
    d.cx(Qp::handle_reset);
    let (init, rtr, _) = setup.attrs(0xa);
    d.qp.handle_init(&init).unwrap();
    d.qp.handle_rtr(&rtr, d.now).unwrap();
    assert_eq!(d.receive(&spoiled(&sent[0])), Disposition::Dropped(DropReason::Access));
    assert_eq!(d.receive(&spoiled(&sent[0])), Disposition::Accepted, "the second time");
    assert_eq!(d.qp.state(), QpState::Err);
}
