//! The states of one EV, and the table of its transitions (protocol.md §8.1, §8.2).

/// What a queue pair thinks of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvState {
    /// Usable.
    Good,
    /// Recently congested: loses one turn.
    Skip,
    /// The path failed; only probes use it.
    AssumedBad,
    /// Forbidden by the controller.
    Denied,
}

/// Why a path is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// As at the start.
    Initial,
    /// A SACK reported a CE mark.
    Marked,
    /// The responder judged the path bad (`m` = 10).
    Verdict,
    /// A switch inside the fabric trimmed a packet.
    Trimmed,
    /// A packet was lost and later ones were not (protocol.md §5.6 rules A to C).
    Lost,
    /// A packet was not acknowledged in time (rule E).
    Timeout,
    /// A probe was answered, as often as needed.
    Probed,
    /// It had its turn in the rotation.
    Turn,
}

/// What can happen to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// A packet was delivered without a mark.
    Delivered,
    /// SACK with `m` = 01.
    Marked,
    /// SACK with `m` = 10.
    Verdict,
    /// NACK TRIMMED.
    Trimmed,
    /// NACK with another reason.
    Refused,
    /// A loss without NACK.
    Loss,
    /// Its turn in the rotation.
    Turn,
    /// Reliability probe answered, `m` = 00.
    ProbeDelivered,
    /// Reliability probe answered, `m` = 01.
    ProbeMarked,
    /// Reliability probe answered, `m` = 10.
    ProbeVerdict,
    /// No answer to a probe in time.
    ProbeLost,
    /// The port came up again, here or at the peer.
    PortUp,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Stay,
    /// Count a delivery.
    CountDelivery,
    /// To SKIP.
    Skip,
    /// To ASSUMED_BAD, or to SKIP at the floor of the active set: (1).
    Condemn,
    /// As `Condemn`; where congestion loses packets too, only after several losses: (1)(2).
    CountLoss,
    /// Send on it.
    Use,
    /// To GOOD, but pass over it this time.
    LoseTurn,
    /// Count a success; enough: to GOOD (3).
    CountToGood,
    /// Count a success; enough: to SKIP (3).
    CountToSkip,
    /// Forget the successes, wait longer for the next probe.
    BackOff,
    /// Probe at once.
    Probe,
}

/// protocol.md §8.2, with the columns GOOD, SKIP, ASSUMED_BAD, DENIED. The controller's two rows and the ports' going
/// down need no table: DENIED and eligibility are kept beside the state.
pub(crate) const TRANSITIONS: [(Happening, [Step; 4]); 12] = {
    use Happening as H;
    use Step::{
        BackOff, Condemn, CountDelivery, CountLoss, CountToGood, CountToSkip, LoseTurn, Probe, Skip, Stay, Use,
    };
    [
        (H::Delivered, [CountDelivery, CountDelivery, Stay, Stay]),
        (H::Marked, [Skip, Stay, Stay, Stay]),
        (H::Verdict, [Condemn, Condemn, Stay, Stay]),
        (H::Trimmed, [Skip, Stay, Stay, Stay]),
        (H::Refused, [Stay, Stay, Stay, Stay]),
        (H::Loss, [CountLoss, CountLoss, Stay, Stay]),
        (H::Turn, [Use, LoseTurn, Stay, Stay]),
        (H::ProbeDelivered, [Stay, Stay, CountToGood, Stay]),
        (H::ProbeMarked, [Skip, Stay, CountToSkip, Stay]),
        (H::ProbeVerdict, [Condemn, Condemn, BackOff, Stay]),
        (H::ProbeLost, [Stay, Stay, BackOff, Stay]),
        (H::PortUp, [Stay, Stay, Probe, Stay]),
    ]
};

impl EvState {
    /// What the table says.
    pub(crate) fn on(self, happening: Happening) -> Step {
        TRANSITIONS[happening as usize].1[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::string::String;

    #[test]
    fn table_is_in_the_order_of_its_rows() {
        for (row, (happening, _)) in TRANSITIONS.iter().enumerate() {
            assert_eq!(*happening as usize, row);
        }
    }

    #[test]
    fn table_is_that_of_the_specification() {
        let mut text = String::new();
        let mut row = |cells: [&str; 5]| {
            let line = cells.map(|cell| std::format!("{cell:<15}")).concat();
            writeln!(text, "{}", line.trim_end()).unwrap();
        };
        row(["", "GOOD", "SKIP", "ASSUMED_BAD", "DENIED"]);
        for (happening, steps) in TRANSITIONS {
            let [good, skip, bad, denied] = steps.map(|step| std::format!("{step:?}"));
            row([&std::format!("{happening:?}"), &good, &skip, &bad, &denied]);
        }
        insta::assert_snapshot!(text);
    }
}
