//! Each kind of sabotage stands for a bug that the protocol could have. The oracle in charge must notice.

use mrc_sim::oracle::Oracle;
use mrc_sim::sabotage::Sabotage;
use mrc_sim::scenario::Scenario;
use mrc_sim::trace::Trace;
use mrc_sim::world::World;

/// Sabotages runs until the saboteur has struck in `runs` of them. Returns in how many of these an oracle of `expected`
/// spoke up; another oracle fails the test.
fn noticed(what: Sabotage, expected: &[Oracle], runs: usize) -> usize {
    let (mut struck, mut noticed) = (0, 0);
    for seed in 0..2000 {
        if struck == runs {
            break;
        }
        // Connections are made only a few times in a run.
        let wait = if what == Sabotage::WideWindow {
            0
        } else {
            seed as u32 % 40
        };
        let world = World::new(Scenario::from_seed(seed), Trace::off(), Some((what, wait)));
        match world.and_then(World::run) {
            Ok(outcome) => struck += usize::from(outcome.sabotaged),
            Err(violation) => {
                assert!(
                    expected.contains(&violation.oracle),
                    "{what:?} in seed {seed}: {violation}"
                );
                struck += 1;
                noticed += 1;
            }
        }
    }
    assert_eq!(struck, runs, "{what:?}: too few opportunities");
    noticed
}

#[test]
fn sabotage_that_breaks_a_promise_at_once_is_always_noticed() {
    for (what, expected) in [
        (Sabotage::SpoilData, [Oracle::Data].as_slice()),
        (Sabotage::StrayWrite, &[Oracle::Memory]),
        (
            Sabotage::DropSendCompletion,
            &[Oracle::Completion, Oracle::Liveness, Oracle::Timer],
        ),
        (Sabotage::RepeatReceiveCompletion, &[Oracle::Receive]),
        (Sabotage::ClaimInSack, &[Oracle::Sack]),
        (Sabotage::ClaimInCack, &[Oracle::Sack]),
        (Sabotage::ClaimInAck, &[Oracle::TransportAck]),
        (Sabotage::WrongPort, &[Oracle::Path]),
        (Sabotage::UnknownPath, &[Oracle::Path]),
        (Sabotage::SkipPsn, &[Oracle::Segmentation]),
        (Sabotage::WrongAddress, &[Oracle::Segmentation]),
        (Sabotage::HideRetransmission, &[Oracle::Segmentation]),
        (Sabotage::AlterImmediate, &[Oracle::Segmentation]),
        (Sabotage::Allocate, &[Oracle::Allocation]),
        (Sabotage::WrongPenalty, &[Oracle::Sack]),
        (Sabotage::WrongWindow, &[Oracle::Sack]),
    ] {
        assert_eq!(noticed(what, expected, 10), 10, "{what:?} passes unnoticed");
    }
}

#[test]
fn sabotage_that_may_be_harmless_is_noticed_when_it_is_not() {
    for (what, expected) in [
        (Sabotage::SwallowSack, [Oracle::Duty].as_slice()),
        (Sabotage::SwallowAck, &[Oracle::Duty]),
        // One packet too few is within the account's tolerance while some rule may call another one lost.
        (Sabotage::ForgetFlight, &[Oracle::Inflight]),
        (Sabotage::SamePath, &[Oracle::Retransmission, Oracle::Path]),
        (
            Sabotage::Haste,
            &[Oracle::Retransmission, Oracle::Path, Oracle::Inflight],
        ),
        (
            Sabotage::Favourite,
            &[Oracle::Balance, Oracle::Path, Oracle::Retransmission],
        ),
        (Sabotage::Restless, &[Oracle::Timer]),
        (Sabotage::ShiftStamp, &[Oracle::Sack]),
        (Sabotage::WideWindow, &[Oracle::Window, Oracle::Duty]),
        (Sabotage::MishearWindow, &[Oracle::Window, Oracle::Duty]),
    ] {
        assert!(noticed(what, expected, 40) > 0, "{what:?} passes unnoticed");
    }
}
