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
        // Connections are made only a few times in a run, and fail once.
        let once = [
            Sabotage::WideWindow,
            Sabotage::EarlySack,
            Sabotage::LateSack,
            Sabotage::SwallowParting,
        ];
        let wait = if once.contains(&what) { 0 } else { seed as u32 % 40 };
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
        (Sabotage::ClaimBeyond, &[Oracle::Sack]),
        (Sabotage::WrongReason, &[Oracle::Nack]),
    ] {
        assert_eq!(noticed(what, expected, 10), 10, "{what:?} passes unnoticed");
    }
}

#[test]
fn sabotage_that_may_be_harmless_is_noticed_when_it_is_not() {
    for (what, expected, least) in [
        (Sabotage::SwallowSack, [Oracle::Duty, Oracle::Sack].as_slice(), 12),
        (Sabotage::SwallowAck, &[Oracle::Duty], 14),
        (Sabotage::ForgetFlight, &[Oracle::Inflight], 30),
        (Sabotage::SamePath, &[Oracle::Retransmission, Oracle::Path], 20),
        (
            Sabotage::Haste,
            &[Oracle::Retransmission, Oracle::Path, Oracle::Inflight],
            30,
        ),
        (
            Sabotage::Favourite,
            &[Oracle::Balance, Oracle::Path, Oracle::Retransmission],
            20,
        ),
        (Sabotage::Restless, &[Oracle::Timer], 15),
        (Sabotage::ShiftStamp, &[Oracle::Sack], 30),
        (Sabotage::WideWindow, &[Oracle::Window, Oracle::Duty], 1),
        (Sabotage::MishearWindow, &[Oracle::Window, Oracle::Duty], 1),
        (Sabotage::LateSack, &[Oracle::Duty], 20),
        (Sabotage::EarlySack, &[Oracle::Sack], 15),
        (
            Sabotage::IgnoreTrouble,
            &[
                Oracle::Sack,
                Oracle::Duty,
                Oracle::Memory,
                Oracle::State,
                Oracle::Receive,
            ],
            20,
        ),
        (Sabotage::SwallowNack, &[Oracle::Duty], 20),
        (Sabotage::SwallowParting, &[Oracle::Duty], 30),
    ] {
        let found = noticed(what, expected, 40);
        assert!(found >= least, "{what:?} passes unnoticed: {found} of 40");
    }
}
