//! Links that are slower than their interfaces: an engine sends no faster than the speed that its configuration tells.
//!
//! A NIC sends at the speed of its link by itself. A veth pair of a lab takes whatever it is given, and a packet that left too
//! early would wait in a switch, where it looks like congestion.

use mrc_protocol::Instant;
use mrc_wire::{PortNum, PortSet};

/// Preamble, frame check sequence and gap: what a frame costs on the link besides its bytes.
const ETHERNET_EXTRA: u64 = 24;
/// How far ahead of its link a port may send, so that the thread need not wake up for each frame.
const AHEAD_NS: u64 = 100_000;
/// How much of the time in which the thread was late is made up for. A thread that shares its core comes late all the time, and
/// the link would never be full.
const CATCH_UP_NS: u64 = 2_000_000;

/// The links of one engine thread.
pub(super) struct Pacer {
    links: Vec<Link>,
    open: PortSet,
}

struct Link {
    /// Time of a byte in units of 2^-20 ns; 0 = as fast as it goes.
    byte: u64,
    /// When it has sent what it was given.
    free: Instant,
}

impl Pacer {
    /// Speeds by port number minus one, shared by so many threads; `None` = not paced.
    pub(super) fn new(speeds: &[Option<u64>], threads: usize) -> Self {
        let links: Vec<Link> = speeds
            .iter()
            .map(|speed| Link {
                byte: speed.map_or(0, |bps| {
                    let byte = (8_000_000_000_u128 << 20) * threads.max(1) as u128 / u128::from(bps.max(1));
                    u64::try_from(byte).unwrap_or(u64::MAX >> 20)
                }),
                free: Instant::ZERO,
            })
            .collect();
        let open = PortSet::first(PortNum::MAX);
        Self { links, open }
    }

    /// Ports whose link takes another frame.
    pub(super) fn open(&self) -> PortSet {
        self.open
    }

    /// Time has passed.
    pub(super) fn refresh(&mut self, now: Instant) {
        for (at, link) in (1..).zip(&self.links) {
            if let Some(port) = PortNum::new(at).filter(|_| link.is_open(now)) {
                self.open.insert(port);
            }
        }
    }

    /// A frame of `len` bytes, Ethernet header included, goes out.
    pub(super) fn charge(&mut self, port: PortNum, len: usize, now: Instant) {
        let Some(link) = self.links.get_mut(port.index()).filter(|link| link.byte > 0) else {
            return;
        };
        let bytes = len as u64 + ETHERNET_EXTRA;
        let start = link.free.max(now - CATCH_UP_NS);
        link.free = start + (bytes.saturating_mul(link.byte) >> 20);
        if !link.is_open(now) {
            self.open.remove(port);
        }
    }

    /// When the first of those `ports` opens that are closed.
    pub(super) fn opens(&self, ports: PortSet) -> Option<Instant> {
        let closed = ports.difference(self.open);
        let links = closed.iter().filter_map(|port| self.links.get(port.index()));
        links.map(|link| link.free - AHEAD_NS).min()
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new(&[], 1)
    }
}

impl Link {
    fn is_open(&self, now: Instant) -> bool {
        self.byte == 0 || self.free <= now + AHEAD_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortNum = PortNum::new(1).unwrap();
    const MS: u64 = 1_000_000;

    /// Sends frames of 1226 bytes whenever it may, looking every `step_ns`; returns how many in 100 ms.
    fn frames_in_100_ms(pacer: &mut Pacer, step_ns: u64) -> u64 {
        let start = Instant::from_ns(1_000 * MS);
        let mut frames = 0;
        for step in 0..100 * MS / step_ns {
            let now = start + step * step_ns;
            pacer.refresh(now);
            while pacer.open().contains(PORT) {
                pacer.charge(PORT, 1226, now);
                frames += 1;
            }
        }
        frames
    }

    #[test]
    fn a_link_carries_its_speed_however_often_the_thread_looks() {
        // 1250 bytes with all that a frame costs: 100 us at 100 Mbit/s.
        for step_ns in [10_000, 100_000, 1_000_000] {
            let mut pacer = Pacer::new(&[Some(100_000_000)], 1);
            let frames = frames_in_100_ms(&mut pacer, step_ns);
            assert!((990..=1022).contains(&frames), "{frames} every {step_ns} ns");
        }
    }

    #[test]
    fn threads_share_a_link() {
        let mut pacer = Pacer::new(&[Some(100_000_000)], 2);
        let frames = frames_in_100_ms(&mut pacer, 100_000);
        assert!((490..=515).contains(&frames), "{frames}");
    }

    #[test]
    fn a_long_sleep_is_not_made_up_for() {
        let mut pacer = Pacer::new(&[Some(100_000_000)], 1);
        frames_in_100_ms(&mut pacer, 100_000);
        let late = Instant::from_ns(5_000 * MS);
        pacer.refresh(late);
        let mut frames = 0;
        while pacer.open().contains(PORT) {
            pacer.charge(PORT, 1226, late);
            frames += 1;
        }
        assert!(frames <= 23, "{frames}: 2 ms late and 100 us ahead");
    }

    #[test]
    fn a_closed_link_says_when_it_opens_and_others_are_not_paced() {
        let mut pacer = Pacer::new(&[Some(100_000_000), None], 1);
        let now = Instant::from_ns(1_000 * MS);
        let other = PortNum::new(2).unwrap();
        for _ in 0..1000 {
            pacer.charge(other, 1226, now);
        }
        assert_eq!(
            (pacer.open().contains(other), pacer.opens(PortSet::first(2))),
            (true, None)
        );
        while pacer.open().contains(PORT) {
            pacer.charge(PORT, 1226, now);
        }
        let opens = pacer.opens(PortSet::first(2)).unwrap();
        assert!(opens > now && opens <= now + MS);
        pacer.refresh(opens);
        assert!(pacer.open().contains(PORT));
    }
}
