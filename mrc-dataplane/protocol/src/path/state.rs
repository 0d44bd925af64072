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
    /// The controller said so.
    Controller,
}

/// What can happen to a path (protocol.md §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
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
    /// EV probe answered (§9.2): it carries no mark.
    EvProbeDelivered,
    /// No answer to a probe in time.
    ProbeLost,
    /// No answer in time to a probe of the silent tail: (4).
    TailProbeLost,
    /// The controller forbids it.
    Deny,
    /// The controller says that it works.
    Allow,
    /// The controller says that it failed (api.md §4.8).
    Banish,
    /// The port went down, here or at the peer.
    PortDown,
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
    /// As `CountLoss` where (2) applies, else nothing: (4).
    CountLostProbe,
    /// Count a success; enough: to GOOD (3).
    CountToGood,
    /// Count a success; enough: to SKIP (3).
    CountToSkip,
    /// Forget the successes, wait longer for the next probe.
    BackOff,
    /// Probe at once.
    Probe,
    /// To DENIED.
    Deny,
    /// To GOOD, without a probe.
    Restore,
    /// To ASSUMED_BAD, whatever the floor of the active set.
    Banish,
}

/// protocol.md §8.2, with the columns GOOD, SKIP, ASSUMED_BAD, DENIED. Whether a path is eligible is its port's and kept
/// beside its state, so that a port's going down changes none.
pub(crate) const TRANSITIONS: [(Happening, [Step; 4]); 18] = {
    use Happening as H;
    use Step as S;
    [
        (H::Delivered, [S::CountDelivery, S::CountDelivery, S::Stay, S::Stay]),
        (H::Marked, [S::Skip, S::Stay, S::Stay, S::Stay]),
        (H::Verdict, [S::Condemn, S::Condemn, S::Stay, S::Stay]),
        (H::Trimmed, [S::Skip, S::Stay, S::Stay, S::Stay]),
        (H::Refused, [S::Stay, S::Stay, S::Stay, S::Stay]),
        (H::Loss, [S::CountLoss, S::CountLoss, S::Stay, S::Stay]),
        (H::Turn, [S::Use, S::LoseTurn, S::Stay, S::Stay]),
        (H::ProbeDelivered, [S::Stay, S::Stay, S::CountToGood, S::Stay]),
        (H::ProbeMarked, [S::Skip, S::Stay, S::CountToSkip, S::Stay]),
        (H::ProbeVerdict, [S::Condemn, S::Condemn, S::BackOff, S::Stay]),
        (H::EvProbeDelivered, [S::Stay, S::Stay, S::CountToGood, S::Stay]),
        (H::ProbeLost, [S::Stay, S::Stay, S::BackOff, S::Stay]),
        (
            H::TailProbeLost,
            [S::CountLostProbe, S::CountLostProbe, S::BackOff, S::Stay],
        ),
        (H::Deny, [S::Deny, S::Deny, S::Deny, S::Stay]),
        (H::Allow, [S::Stay, S::Restore, S::Restore, S::Restore]),
        (H::Banish, [S::Banish, S::Banish, S::Stay, S::Banish]),
        (H::PortDown, [S::Stay, S::Stay, S::Stay, S::Stay]),
        (H::PortUp, [S::Stay, S::Stay, S::Probe, S::Stay]),
    ]
};

/// How often each cell of the table was met.
#[derive(Clone, Debug)]
pub(crate) struct Met([[u64; 4]; TRANSITIONS.len()]);

impl Met {
    pub(crate) const NONE: Self = Self([[0; 4]; TRANSITIONS.len()]);

    pub(crate) fn count(&mut self, happening: Happening, state: EvState) {
        self.0[happening as usize][state as usize] += 1;
    }

    /// Cell by cell: happening, state, times.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Happening, EvState, u64)> + '_ {
        const STATES: [EvState; 4] = [EvState::Good, EvState::Skip, EvState::AssumedBad, EvState::Denied];
        let rows = TRANSITIONS.iter().zip(&self.0);
        rows.flat_map(|((happening, _), row)| {
            STATES
                .into_iter()
                .zip(row)
                .map(|(state, times)| (*happening, state, *times))
        })
    }
}

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
            let line = cells.map(|cell| std::format!("{cell:<17}")).concat();
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
