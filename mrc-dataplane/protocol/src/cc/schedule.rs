//! The states of a window in the scheduler (protocol.md §10.6; MRC 1.0 Figure 4).

/// Where a window stands, recomputed after every event: new data, send, SACK, NACK, inferred loss, port state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerState {
    /// Nothing to send, nothing under way.
    Idle,
    /// Nothing to send; packets are under way.
    Pending,
    /// Data, but the window is closed.
    Active,
    /// Data, and the window is open: in the ready list.
    Ready,
}

/// One row of the table; `None` = either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    data: bool,
    window_open: Option<bool>,
    in_flight: Option<bool>,
    state: SchedulerState,
}

const TABLE: [Row; 4] = {
    use SchedulerState::{Active, Idle, Pending, Ready};
    [
        row(false, None, Some(false), Idle),
        row(false, None, Some(true), Pending),
        row(true, Some(false), None, Active),
        row(true, Some(true), None, Ready),
    ]
};

const fn row(data: bool, window_open: Option<bool>, in_flight: Option<bool>, state: SchedulerState) -> Row {
    Row {
        data,
        window_open,
        in_flight,
        state,
    }
}

impl SchedulerState {
    /// `data`: new or to be repeated. MPR, the limit of WriteIMMs and missing EVs block a queue pair, not its window.
    pub fn of(data: bool, window_open: bool, inflight_packets: u32) -> Self {
        let fits = |wanted: Option<bool>, is| wanted.is_none_or(|wanted| wanted == is);
        TABLE
            .iter()
            .find(|row| {
                row.data == data && fits(row.window_open, window_open) && fits(row.in_flight, inflight_packets > 0)
            })
            .map_or(Self::Idle, |row| row.state)
    }

    /// Is it in the ready list?
    pub fn is_ready(self) -> bool {
        self == Self::Ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::string::String;

    // protocol.md §10.6
    #[test]
    fn table_is_that_of_the_specification() {
        let mut text = String::new();
        for row in TABLE {
            writeln!(text, "{row:?}").unwrap();
        }
        insta::assert_snapshot!(text);
    }

    // protocol.md §10.6
    #[test]
    fn exactly_one_row_fits_each_situation() {
        for bits in 0..8_u32 {
            let (data, open, flying) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let fitting = TABLE.iter().filter(|row| {
                row.data == data
                    && row.window_open.is_none_or(|wanted| wanted == open)
                    && row.in_flight.is_none_or(|wanted| wanted == flying)
            });
            let states: std::vec::Vec<_> = fitting.map(|row| row.state).collect();
            assert_eq!(states, [SchedulerState::of(data, open, u32::from(flying))]);
        }
    }
}
