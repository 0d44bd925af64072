//! The states of a queue pair, and the table of its transitions (protocol.md §2.2).

/// The states of a queue pair. There is no SQD and no SQE (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// New, or emptied.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to receive and send.
    Rts,
    /// Failed: everything posted is flushed.
    Err,
}

/// What moves a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The attributes of INIT.
    Init,
    /// The attributes of RTR.
    Rtr,
    /// The attributes of RTS.
    Rts,
    /// The application, or a fatal event.
    Fail,
    /// The application.
    Clear,
}

impl Trigger {
    pub(super) fn target(self) -> QpState {
        match self {
            Self::Init => QpState::Init,
            Self::Rtr => QpState::Rtr,
            Self::Rts => QpState::Rts,
            Self::Fail => QpState::Err,
            Self::Clear => QpState::Reset,
        }
    }
}

/// What a state permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permits {
    pub(super) state: QpState,
    /// Triggers that are taken.
    pub(super) triggers: &'static [Trigger],
    pub(super) post_recv: bool,
    pub(super) post_send: bool,
    /// Writes and probes.
    pub(super) requests: bool,
    /// SACK, NACK, Transport ACK and NAK.
    pub(super) responses: bool,
}

pub(super) const TABLE: [Permits; 5] = {
    use QpState::{Err, Init, Reset, Rtr, Rts};
    use Trigger as T;
    let none = Permits {
        state: Reset,
        triggers: &[],
        post_recv: false,
        post_send: false,
        requests: false,
        responses: false,
    };
    [
        Permits {
            state: Reset,
            triggers: &[T::Init, T::Fail, T::Clear],
            ..none
        },
        Permits {
            state: Init,
            triggers: &[T::Rtr, T::Fail, T::Clear],
            post_recv: true,
            ..none
        },
        Permits {
            state: Rtr,
            triggers: &[T::Rts, T::Fail, T::Clear],
            post_recv: true,
            requests: true,
            ..none
        },
        Permits {
            state: Rts,
            triggers: &[T::Fail, T::Clear],
            post_recv: true,
            post_send: true,
            requests: true,
            responses: true,
        },
        // Posted requests complete as flushed at once (§5.9).
        Permits {
            state: Err,
            triggers: &[T::Fail, T::Clear],
            post_recv: true,
            post_send: true,
            ..none
        },
    ]
};

impl QpState {
    pub(super) fn permits(self) -> &'static Permits {
        &TABLE[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::string::String;

    #[test]
    fn table_is_in_the_order_of_its_states() {
        for (row, permits) in TABLE.iter().enumerate() {
            assert_eq!(permits.state as usize, row);
        }
    }

    #[test]
    fn table_is_that_of_the_specification() {
        let mut text = String::new();
        for permits in TABLE {
            writeln!(text, "{permits:?}").unwrap();
        }
        insta::assert_snapshot!(text);
    }
}
