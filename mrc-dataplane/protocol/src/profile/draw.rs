//! EVs that nobody wrote down: AUTO and GENERATED (protocol.md §7.2, P19; api.md §4.7).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use mrc_wire::{PortNum, PortSet};
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

use super::config::AUTO_FIELD;
use super::entries::PortEv;
use super::field::ProfileField;
use super::value::EvValue;

/// Values that can be drawn: the product of the fields' ranges. Plane fields are no choice, they follow the port.
pub(super) struct Space {
    drawn: Vec<Digit>,
    planes: Vec<Digit>,
}

/// A field that takes bits of an EV.
struct Digit {
    /// Where its bits are in the EV, and how many.
    at: u32,
    taken: u32,
    /// Its numbers.
    least: u32,
    count: u64,
}

impl Digit {
    fn write(&self, value: &mut EvValue, offset: u32) {
        value.or_bits(self.at, self.taken, self.least.saturating_add(offset));
    }
}

impl Space {
    /// Of fields that were checked, and take no more bits than an EV has.
    pub(super) fn new(fields: &[ProfileField], planes: &[u16]) -> Self {
        let mut space = Self {
            drawn: Vec::new(),
            planes: Vec::new(),
        };
        let mut at = 0;
        for (index, field) in fields.iter().enumerate().filter(|(_, field)| field.mask != 0) {
            let range = field.range();
            let digit = Digit {
                at,
                taken: field.taken(),
                least: *range.start(),
                count: u64::from(range.end() - range.start()) + 1,
            };
            at += digit.taken;
            if planes.iter().any(|&plane| usize::from(plane) == index) {
                space.planes.push(digit);
            } else {
                space.drawn.push(digit);
            }
        }
        space
    }

    /// How many values there are; `None` above 2^64 - 1.
    fn size(&self) -> Option<u64> {
        self.drawn
            .iter()
            .try_fold(1u64, |size, digit| size.checked_mul(digit.count))
    }

    /// Value number `index`; the last field counts fastest.
    fn nth(&self, mut index: u64) -> EvValue {
        let mut value = EvValue::ZERO;
        for digit in self.drawn.iter().rev() {
            digit.write(&mut value, (index % digit.count) as u32);
            index /= digit.count;
        }
        value
    }

    fn random(&self, rng: &mut ChaCha8Rng) -> EvValue {
        let mut value = EvValue::ZERO;
        for digit in &self.drawn {
            digit.write(&mut value, below(rng, digit.count) as u32);
        }
        value
    }

    /// The value on a port: the plane fields hold `min_val + port - 1` (protocol.md §7.4).
    fn on(&self, mut value: EvValue, port: PortNum) -> PortEv {
        for digit in &self.planes {
            digit.write(&mut value, u32::from(port.get()) - 1);
        }
        PortEv { value, port }
    }

    /// Different values in random order: `wanted`, or all if there are fewer. Memory and time are in proportion to
    /// `wanted`, however large the space is.
    fn draw(&self, wanted: u64, rng: &mut ChaCha8Rng) -> Vec<EvValue> {
        let mut values: Vec<EvValue> = if let Some(size) = self.size() {
            // Floyd's sample: one draw for each value, from a set that grows by one each time.
            let mut taken = BTreeSet::new();
            for top in size - wanted.min(size)..size {
                let pick = below(rng, top + 1);
                if !taken.insert(pick) {
                    taken.insert(top);
                }
            }
            taken.into_iter().map(|index| self.nth(index)).collect()
        } else {
            // Among more than 2^64 values a repetition does not happen in practice, and does not repeat for ever.
            let mut taken = BTreeSet::new();
            while (taken.len() as u64) < wanted {
                taken.insert(self.random(rng));
            }
            taken.into_iter().collect()
        };
        for left in (1..values.len()).rev() {
            values.swap(left, below(rng, left as u64 + 1) as usize);
        }
        values
    }

    /// How many entries come of `requested`: no more than there are pairs of value and port, and equally many per port.
    /// Fewer than one per port: one on each of so many ports.
    fn count(&self, requested: u32, ports: PortSet) -> u32 {
        let ports = ports.len() as u64;
        let pairs = self.size().and_then(|size| size.checked_mul(ports)).unwrap_or(u64::MAX);
        let count = u64::from(requested).min(pairs);
        let even = count - count.checked_rem(ports).unwrap_or(count);
        (if even > 0 { even } else { count.min(ports) }) as u32
    }

    /// The entries: all different, equally many per port, random within a port (P19).
    ///
    /// A responder reflects no port, so that a value on two ports would be ambiguous (protocol.md §5.5): values repeat on
    /// another port only when there are not enough of them.
    pub(super) fn entries(&self, requested: u32, ports: PortSet, rng: &mut ChaCha8Rng) -> Vec<PortEv> {
        let count = self.count(requested, ports) as usize;
        let per_port = (count / ports.len().max(1)).max(1);
        let values = self.draw(count as u64, rng);
        // Runs of a cycle that is at least as long as each of them: no value comes twice on a port.
        ports
            .iter()
            .flat_map(|port| core::iter::repeat_n(port, per_port))
            .zip(values.iter().cycle())
            .take(count)
            .map(|(port, &value)| self.on(value, port))
            .collect()
    }
}

/// The EVs of AUTO: random source ports, each once.
pub(crate) fn auto_ports(count: u32, ports: PortSet, rng: &mut ChaCha8Rng) -> Vec<(PortNum, u16)> {
    let drawn = Space::new(&[AUTO_FIELD], &[]).entries(count, ports, rng);
    drawn.iter().map(|ev| (ev.port, ev.value.bits(0, 16) as u16)).collect()
}

/// A random number below `n`, which is not 0.
fn below(rng: &mut ChaCha8Rng, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;
    use std::vec;

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::from_seed([3; 32])
    }

    fn range(width: u32, min_val: u32, max_val: u32, mask: u32) -> ProfileField {
        ProfileField {
            width,
            init_val: 0,
            min_val,
            max_val,
            mask,
        }
    }

    #[test]
    fn drawing_as_many_as_there_are_gives_each_once() {
        let fields = [range(8, 3, 7, 0x3c), ProfileField::constant(4, 9), range(4, 1, 3, 0x3)];
        let space = Space::new(&fields, &[]);
        assert_eq!(space.size(), Some(15));
        let drawn: BTreeSet<EvValue> = space.draw(u64::MAX, &mut rng()).into_iter().collect();
        let expected: BTreeSet<EvValue> = (3u8..=7)
            .flat_map(|a| (1u8..=3).map(move |b| EvValue::left_aligned(&[a << 4 | b << 2]).unwrap()))
            .collect();
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_space_beyond_all_numbers_is_drawn_from_without_counting_it() {
        let fields = vec![ProfileField::free(32); 8];
        let space = Space::new(&fields, &[]);
        assert_eq!(space.size(), None);
        let drawn: BTreeSet<EvValue> = space.draw(16384, &mut rng()).into_iter().collect();
        assert_eq!(drawn.len(), 16384);
        // All eight words vary.
        for word in 0..8 {
            assert!(
                drawn
                    .iter()
                    .map(|value| value.bits(32 * word, 32))
                    .collect::<BTreeSet<_>>()
                    .len()
                    > 16000
            );
        }
    }

    #[test]
    fn two_words_have_one_value_more_than_a_number_can_say() {
        let fields = [ProfileField::free(32), ProfileField::free(32)];
        assert_eq!(Space::new(&fields, &[]).size(), None);
        let fields = [ProfileField::free(32), range(32, 1, u32::MAX, u32::MAX)];
        let space = Space::new(&fields, &[]);
        assert_eq!(space.size(), Some((1 << 32) * u64::from(u32::MAX)));
        assert_eq!(space.draw(1000, &mut rng()).len(), 1000);
    }

    #[test]
    fn constants_alone_are_one_value() {
        let fields = [ProfileField::constant(16, 0x1234)];
        let space = Space::new(&fields, &[]);
        assert_eq!(space.entries(100, PortSet::first(4), &mut rng()).len(), 4);
    }

    #[test]
    fn counts_are_rounded_down_to_equal_shares_of_what_exists() {
        let fields = [range(4, 0, 9, 0xf)];
        let space = Space::new(&fields, &[]);
        let four = PortSet::first(4);
        for (requested, count) in [
            (1, 1),
            (3, 3),
            (4, 4),
            (7, 4),
            (8, 8),
            (39, 36),
            (40, 40),
            (41, 40),
            (u32::MAX, 40),
        ] {
            assert_eq!(space.count(requested, four), count, "{requested}");
        }
        assert_eq!(space.count(10, PortSet::EMPTY), 0);
    }

    #[test]
    fn a_draw_is_even_over_its_range() {
        let fields = [range(16, 100, 10099, 0xffff)];
        let values = Space::new(&fields, &[]).draw(2000, &mut rng());
        let low = values.iter().filter(|value| value.bits(0, 16) < 5100).count();
        assert!((900..1100).contains(&low), "{low} of 2000 in the lower half");
        let early = values[..1000].iter().filter(|value| value.bits(0, 16) < 5100).count();
        assert!(
            (400..600).contains(&early),
            "{early} of the first 1000 in the lower half"
        );
    }
}
