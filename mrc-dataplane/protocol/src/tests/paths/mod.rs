//! Rotation, SKIP, ASSUMED_BAD, backup, floor, and the way back (protocol.md §8, §9.1).

mod changes;
mod checks;
mod control;
mod counts;
mod probes;
mod profiles;
mod regenerated;
mod rotation;
mod table;
mod verdicts;

use mrc_wire::{Ev, Headers, PathVerdict};

use crate::attr::{EvEntry, PathConfig};
use crate::path::{EvState, EvView, Reason};
use crate::testing::*;

/// One packet there and back; what the responder thinks of its path.
fn ping(a: &mut End, b: &mut End, m: PathVerdict) -> Wire {
    a.post(write(0, 1, 0));
    let sent = a.poll_all();
    let mut back = b.receive_all(&sent);
    for wire in &mut back {
        if let Headers::Sack(seth, _) = &mut wire.sent.headers {
            seth.m = m;
        }
    }
    a.hear(&back);
    a.completions();
    sent.into_iter().find(|wire| wire.sent.bth.opcode.is_write()).unwrap()
}

fn view(a: &End, ev: Ev) -> EvView {
    a.qp.ev_states().find(|view| view.entry.ev == ev).unwrap()
}

fn active_on(a: &End, num: u8) -> usize {
    a.qp.ev_states()
        .filter(|view| view.active && view.entry.port == port(num))
        .count()
}

fn setup(ports: u8, each: u32, active: u16, min_active: u16) -> Setup {
    let path = PathConfig {
        active: Some(active),
        min_active: Some(min_active),
        ..PathConfig::explicit(evs(ports, each))
    };
    Setup {
        path,
        trimming: true,
        ..Setup::default()
    }
}

/// Condemns the next path on this port.
fn ping_until(a: &mut End, b: &mut End, on: mrc_wire::PortNum) -> Ev {
    loop {
        a.post(write(0, 1, 0));
        let sent = a.poll_all();
        let bad = sent[0].sent.port == on;
        let mut back = b.receive_all(&sent);
        for wire in &mut back {
            if let Headers::Sack(seth, _) = &mut wire.sent.headers
                && bad
            {
                seth.m = PathVerdict::AlwaysSkip;
            }
        }
        a.hear(&back);
        a.completions();
        if bad {
            return sent[0].sent.ev;
        }
    }
}
