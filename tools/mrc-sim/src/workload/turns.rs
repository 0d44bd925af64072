//! Ping-pong: each side answers a message with the next one of its own.

use crate::ensure;
use crate::oracle::{Checked, Oracle};
use crate::workload::{Arrival, Deed, Workload};

/// Both sides of some connections take turns; side 0 begins.
#[derive(Debug)]
pub struct Turns {
    connections: usize,
    rounds: usize,
    /// Messages that have arrived, of all.
    arrived: usize,
}

impl Turns {
    /// Turns on the first `connections` connections, each of `rounds` messages both ways, all of them held back.
    pub fn new(connections: usize, rounds: usize) -> Turns {
        Turns {
            connections,
            rounds,
            arrived: 0,
        }
    }
}

impl Workload for Turns {
    fn begin(&mut self, deeds: &mut Vec<Deed>) {
        deeds.extend((0..self.connections).map(|connection| Deed::Release {
            connection,
            side: 0,
            data: None,
        }));
    }

    fn arrived(&mut self, arrival: &Arrival<'_>, deeds: &mut Vec<Deed>) {
        self.arrived += 1;
        if arrival.side == 0 || arrival.message + 1 < self.rounds {
            deeds.push(Deed::Release {
                connection: arrival.connection,
                side: 1 - arrival.side,
                data: None,
            });
        }
    }

    fn ended(&mut self, _: usize, _: &mut Vec<Deed>) {}

    fn is_done(&self) -> bool {
        self.arrived == 2 * self.rounds * self.connections
    }

    fn judge(&self) -> Checked {
        let all = 2 * self.rounds * self.connections;
        ensure!(
            self.arrived == all,
            Oracle::Receive,
            "{} of {all} turns were taken",
            self.arrived
        );
        Ok(())
    }
}
