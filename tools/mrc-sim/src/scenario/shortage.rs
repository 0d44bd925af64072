//! What hosts lack: memory that is busy or broken, buffers, and the patience to answer. Drawn apart from everything else, so
//! that seeds that lack nothing stay what they were.

use crate::memory::When;
use crate::rng::{PPM, Rng};
use crate::scenario::upset::{Lack, Upset};
use crate::scenario::{Class, Happening, Scenario};
use mrc_protocol::Shortage;

/// Draws for the runs of one seed.
pub(super) fn rng(seed: u64) -> Rng {
    Rng::new(seed, "shortage")
}

/// A run in which all would succeed may become one in which a host breaks down.
pub(super) fn class(rng: &mut Rng, class: Class) -> Class {
    if class == Class::Survivable && rng.one_in(20) {
        Class::MemoryBreaks
    } else {
        class
    }
}

/// Draws what passes, and limits of answers, for traffic that lasts about `span_ns`.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    if rng.one_in(5) {
        for _ in 0..rng.range(1, 3) {
            let from_ns = rng.below(span_ns / 2 + 1);
            let ppm = rng.pick(&[20_000, 200_000, PPM]);
            let lack = rng.pick(&[
                Lack::Memory(When::Asked),
                Lack::Memory(When::Written),
                Lack::Memory(When::WrittenInPart),
                Lack::Buffer,
                Lack::Buffer,
                Lack::Port,
            ]);
            let upset = Upset::Short {
                host: rng.below(scenario.hosts.len() as u64) as usize,
                for_ns: rng.range(20_000, 20_000 + span_ns),
                // What cannot be sent is offered again at once.
                ppm: if lack == Lack::Port { ppm / 2 } else { ppm },
                shortage: rng.pick(&[Shortage::Bitmap, Shortage::PacketBuffer, Shortage::Other]),
                lack,
            };
            scenario.happenings.push((from_ns, Happening::Upset(upset)));
        }
    }
    if rng.one_in(8) {
        for connection in &mut scenario.connections {
            connection.answers_per_s = rng.pick(&[500, 1_000, 10_000, 1_000_000]);
            connection.answers_burst = rng.pick(&[1, 2, 16, 256, 4_096]);
        }
    }
}

/// Breaks the memory of a host that is written to.
pub(super) fn break_down(rng: &mut Rng, scenario: &mut Scenario, at_ns: u64) {
    let connection = rng.below(scenario.connections.len() as u64) as usize;
    let upset = Upset::Break {
        // Side 0 always sends.
        host: scenario.connections[connection].hosts[1],
        when: rng.pick(&[When::Asked, When::Written, When::WrittenInPart]),
    };
    scenario.happenings.push((at_ns, Happening::Upset(upset)));
}
