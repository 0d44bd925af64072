//! What is in flight for sure, and whether a packet may be sent again: the oracle's own account of protocol.md §5.3
//! (rules 2 and 3) and §5.6.
//!
//! When a packet counts as lost is the requestor's to say, within the rules. The account takes the widest reading of each
//! rule: what counts as in flight here must count as in flight for the requestor too, and what is sent again must have been
//! lost under some reading.

use crate::ensure;
use crate::oracle::Checked;
use crate::oracle::Oracle::{Inflight, Retransmission};
use mrc_wire::{NackReason, Neth, Tick};
use std::collections::{BTreeMap, VecDeque};

/// Rule A waits at least so long, unless it is set otherwise (protocol.md §5.6, `reo_min`).
const REO_MIN_NS: u64 = 50_000;
/// A refusal for want of resources is answered by a pause of at least so long (protocol.md §5.6, P7).
const NACK_DELAY_NS: u64 = 20_000;
/// No timeout is longer: 1.024 us * 2^24 (protocol.md §4).
const LONGEST_TIMEOUT_NS: u64 = 1024 << 24;
/// Deliveries remembered per path.
const DELIVERIES: usize = 64;

/// A path: EV and port.
type Path = (u32, u8);

/// The packets of one flow that are neither acknowledged nor given up.
#[derive(Debug, Default)]
pub struct Flight {
    outstanding: BTreeMap<i64, Outstanding>,
    /// Their nominal bytes.
    bytes: i64,
    /// Latest send time of a copy that may have been acknowledged.
    newest_acked_ns: Option<u64>,
    delivered: BTreeMap<Path, Deliveries>,
    probes: BTreeMap<u16, u64>,
    /// Latest send time of a probe that was answered.
    newest_probe_ns: Option<u64>,
    /// The shortest local ACK timeout that was ever in force; `None`: disabled.
    t0_ns: Option<u64>,
    /// Timeouts of one packet before they double.
    linear_cnt: u32,
    /// Least tolerance of reordering.
    reo_min_ns: u64,
}

/// The last copy of a packet.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    sent_ns: u64,
    bytes: u32,
    path: Path,
    /// It was refused: it may go again from this instant on.
    refused_until_ns: Option<u64>,
    /// Its port went down here, or it never left.
    withdrawn: bool,
    /// Timeouts in a row that nothing else explains.
    timeouts: u32,
}

/// Copies of one path that were acknowledged: when sent, when that was heard. Both rise.
#[derive(Debug, Default)]
struct Deliveries {
    known: VecDeque<(u64, u64)>,
    forgotten_ns: u64,
}

/// What the requestor's own measurements say about the limits of the loss rules.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// The host's clock.
    pub now_ns: u64,
    /// Reordering that rules B and C tolerate, unless the least of all is more.
    pub reo_ns: u64,
}

impl Tolerance {
    /// From the base round trip and the target of queueing delay (protocol.md §5.6).
    pub fn new(now_ns: u64, base_rtt_ns: u64, target_qdelay_ns: u64) -> Tolerance {
        Tolerance {
            now_ns,
            reo_ns: base_rtt_ns + 2 * target_qdelay_ns,
        }
    }
}

/// A sum over packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Packets.
    pub packets: u32,
    /// Nominal bytes.
    pub bytes: i64,
}

impl Load {
    /// With another load.
    #[must_use]
    pub fn and(self, other: Load) -> Load {
        Load {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl Flight {
    /// Nothing in flight; `t0_ns` is the local ACK timeout, `None` if disabled, and `linear_cnt` the number of timeouts before
    /// it doubles.
    pub fn new(t0_ns: Option<u64>, linear_cnt: u8) -> Flight {
        Flight {
            t0_ns,
            linear_cnt: linear_cnt.into(),
            reo_min_ns: REO_MIN_NS,
            ..Flight::default()
        }
    }

    /// The requestor was told another least tolerance of reordering.
    #[must_use]
    pub fn with_reo_min(self, reo_min_ns: u64) -> Flight {
        Flight { reo_min_ns, ..self }
    }

    /// Another local ACK timeout from now on. Packets on their way may have expired under the old one.
    pub fn change_t0(&mut self, t0_ns: Option<u64>) {
        self.t0_ns = match (self.t0_ns, t0_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// The shortest timer of the connection as a whole: a quarter of the local ACK timeout, or the first probe of a bad path.
    pub fn shortest_timer_ns(&self) -> u64 {
        self.t0_ns.map_or(1_000_000, |t0_ns| (t0_ns / 4).min(1_000_000))
    }

    /// A packet leaves. If it was sent before and not acknowledged since, there must be a reason.
    pub fn judge_send(&mut self, name: &str, index: i64, path: Path, bytes: u32, tolerance: Tolerance) -> Checked {
        let mut timeouts = 0;
        if let Some(last) = self.outstanding.get(&index) {
            if !self.has_other_reason(last, tolerance) {
                timeouts = last.timeouts + 1;
            }
            let age_ns = tolerance.now_ns.saturating_sub(last.sent_ns);
            ensure!(
                last.refused_until_ns
                    .is_none_or(|until_ns| tolerance.now_ns >= until_ns),
                Retransmission,
                "{name}: packet {index} is sent again before {:?} ns, when its refusal permits it",
                last.refused_until_ns
            );
            ensure!(
                self.may_be_lost(last, tolerance),
                Retransmission,
                "{name}: packet {index} is sent again {age_ns} ns after its last copy, which no rule calls lost: {last:?}, newest acknowledged {:?}, newest probe {:?}",
                self.newest_acked_ns,
                self.newest_probe_ns
            );
        }
        let sent = Outstanding {
            sent_ns: tolerance.now_ns,
            bytes,
            path,
            refused_until_ns: None,
            withdrawn: false,
            timeouts,
        };
        self.bytes += i64::from(bytes);
        if let Some(before) = self.outstanding.insert(index, sent) {
            self.bytes -= i64::from(before.bytes);
        }
        Ok(())
    }

    /// A packet was acknowledged, in whatever way.
    pub fn acked(&mut self, index: i64, now_ns: u64) {
        let Some(last) = self.outstanding.remove(&index) else {
            return;
        };
        self.bytes -= i64::from(last.bytes);
        self.newest_acked_ns = self.newest_acked_ns.max(Some(last.sent_ns));
        self.delivered.entry(last.path).or_default().add(last.sent_ns, now_ns);
    }

    /// Everything up to `index` was acknowledged.
    pub fn acked_through(&mut self, index: i64, now_ns: u64) {
        while let Some((&first, _)) = self.outstanding.first_key_value()
            && first <= index
        {
            self.acked(first, now_ns);
        }
    }

    /// A NACK has arrived (protocol.md §5.6, Table 7-3).
    pub fn refused(&mut self, index: i64, neth: &Neth, now_ns: u64) {
        let t0_ns = self.t0_ns.unwrap_or(u64::MAX);
        let Some(last) = self.outstanding.get_mut(&index) else {
            return;
        };
        let older_copy = neth.tx_timestamp != Tick(0) && neth.tx_timestamp != Tick::from_ns(last.sent_ns);
        if older_copy || last.refused_until_ns.is_some() {
            return;
        }
        let at_once = matches!(
            neth.reason,
            NackReason::TRIMMED | NackReason::TRIMMED_LASTHOP | NackReason::PSN_OOR_WINDOW
        );
        let pause_ns = if at_once { 0 } else { NACK_DELAY_NS.min(t0_ns) };
        last.refused_until_ns = Some(now_ns + pause_ns);
    }

    /// A probe leaves.
    pub fn probed(&mut self, id: u16, now_ns: u64) {
        self.probes.insert(id, now_ns);
    }

    /// The answer to a probe has arrived.
    pub fn probe_answered(&mut self, id: u16) {
        if let Some(sent_ns) = self.probes.remove(&id) {
            self.newest_probe_ns = self.newest_probe_ns.max(Some(sent_ns));
        }
    }

    /// Only these ports are up here: what left on others may be taken back (protocol.md §5.6).
    pub fn withdraw(&mut self, up: impl Fn(u8) -> bool) {
        for packet in self.outstanding.values_mut() {
            if !up(packet.path.1) {
                // Until a clear rule says more, it goes without any pause.
                packet.withdrawn = true;
                packet.refused_until_ns = packet.refused_until_ns.map(|_| 0);
            }
        }
    }

    /// The last copy of a packet never left: it goes again at once.
    pub fn unsent(&mut self, index: i64) {
        if let Some(packet) = self.outstanding.get_mut(&index) {
            packet.withdrawn = true;
        }
    }

    /// This path is another one now: what left on it may be taken back (protocol.md §7.1).
    pub fn withdraw_path(&mut self, path: Path) {
        for packet in self.outstanding.values_mut().filter(|packet| packet.path == path) {
            packet.withdrawn = true;
            packet.refused_until_ns = packet.refused_until_ns.map(|_| 0);
        }
    }

    /// Whether a packet was taken back.
    pub fn is_withdrawn(&self, index: i64) -> bool {
        self.outstanding.get(&index).is_some_and(|packet| packet.withdrawn)
    }

    /// What no reading of the rules takes out of flight.
    pub fn certain(&self, tolerance: Tolerance) -> Load {
        let certain = self
            .outstanding
            .values()
            .filter(|packet| !self.may_be_lost(packet, tolerance));
        certain.fold(Load::default(), |load, packet| {
            load.and(Load {
                packets: 1,
                bytes: packet.bytes.into(),
            })
        })
    }

    /// What is in flight at most: sent and not acknowledged.
    pub fn possible(&self) -> Load {
        Load {
            packets: self.outstanding.len() as u32,
            bytes: self.bytes,
        }
    }

    fn may_be_lost(&self, packet: &Outstanding, tolerance: Tolerance) -> bool {
        // protocol.md §4: after k timeouts, T0 while k < linear_cnt, then doubled each time.
        let doublings = (packet.timeouts + 1).saturating_sub(self.linear_cnt.max(1)).min(24);
        let expires = |t0_ns: u64| packet.sent_ns + (t0_ns << doublings).min(LONGEST_TIMEOUT_NS);
        self.t0_ns.is_some_and(|t0_ns| tolerance.now_ns >= expires(t0_ns)) || self.has_other_reason(packet, tolerance)
    }

    /// A reason other than rule E.
    fn has_other_reason(&self, packet: &Outstanding, tolerance: Tolerance) -> bool {
        let now_ns = tolerance.now_ns;
        let reo_ns = tolerance.reo_ns.max(self.reo_min_ns);
        let sent_ns = packet.sent_ns;
        let overtaken = |newest_ns: Option<u64>| newest_ns.is_some_and(|newest_ns| newest_ns > sent_ns + reo_ns);
        packet.withdrawn
            || packet.refused_until_ns.is_some()
            || overtaken(self.newest_acked_ns)
            || overtaken(self.newest_probe_ns)
            || self
                .delivered
                .get(&packet.path)
                .is_some_and(|deliveries| deliveries.condemn(sent_ns, now_ns, self.reo_min_ns))
    }
}

impl Deliveries {
    fn add(&mut self, sent_ns: u64, heard_ns: u64) {
        if self.known.back().is_none_or(|(newest_ns, _)| sent_ns > *newest_ns) {
            self.known.push_back((sent_ns, heard_ns));
        }
        if self.known.len() > DELIVERIES
            && let Some((forgotten_ns, _)) = self.known.pop_front()
        {
            self.forgotten_ns = forgotten_ns;
        }
    }

    /// Rule A for a packet of this path sent at `sent_ns`.
    fn condemn(&self, sent_ns: u64, now_ns: u64, reo_min_ns: u64) -> bool {
        let first = self.known.iter().find(|(delivered_ns, _)| *delivered_ns > sent_ns);
        sent_ns < self.forgotten_ns || first.is_some_and(|(_, heard_ns)| now_ns >= heard_ns + reo_min_ns)
    }
}

/// The account of a congestion controller must lie between what is certain and what is possible.
pub fn judge_account(name: &str, certain: Load, possible: Load, counted: Load) -> Checked {
    ensure!(
        counted.packets >= certain.packets && counted.bytes >= certain.bytes,
        Inflight,
        "{name}: {counted:?} in flight, but no rule takes more than down to {certain:?}"
    );
    ensure!(
        counted.packets <= possible.packets && counted.bytes <= possible.bytes,
        Inflight,
        "{name}: {counted:?} in flight, but only {possible:?} was sent and not acknowledged"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Tolerance = |now_ns| Tolerance {
        now_ns,
        reo_ns: 100_000,
    };

    fn two_on_one_path() -> Flight {
        let mut flight = Flight::new(Some(1_000_000), 1);
        for (index, now_ns) in [(0, 0), (1, 1000)] {
            flight
                .judge_send("f", index, (7, 1), 100, AT(now_ns))
                .expect("new packets");
        }
        flight
    }

    #[test]
    fn a_packet_may_go_again_only_for_a_reason() {
        let mut flight = two_on_one_path();
        assert_eq!(flight.certain(AT(999_999)).packets, 2);
        assert!(flight.judge_send("f", 0, (8, 1), 100, AT(999_999)).is_err());
        assert!(flight.judge_send("f", 0, (8, 1), 100, AT(1_000_000)).is_ok(), "rule E");
    }

    #[test]
    fn timeouts_of_one_packet_double_after_the_linear_ones() {
        let mut flight = Flight::new(Some(1_000_000), 2);
        for now_ns in [0, 1_000_000, 2_000_000] {
            assert!(flight.judge_send("f", 0, (7, 1), 100, AT(now_ns)).is_ok(), "{now_ns}");
        }
        assert!(flight.judge_send("f", 0, (7, 1), 100, AT(3_999_999)).is_err());
        assert!(flight.judge_send("f", 0, (7, 1), 100, AT(4_000_000)).is_ok());
    }

    #[test]
    fn timeouts_of_one_packet_double_up_to_the_longest_one_there_is() {
        let mut flight = Flight::new(Some(1024 << 22), 1);
        let mut now_ns = 0;
        for timeout_ns in [0, 1024 << 22, 1024 << 23, 1024 << 24, 1024 << 24] {
            if timeout_ns > 0 {
                assert_eq!(flight.certain(AT(now_ns + timeout_ns - 1)).packets, 1, "{timeout_ns}");
            }
            now_ns += timeout_ns;
            assert!(
                flight.judge_send("f", 0, (7, 1), 100, AT(now_ns)).is_ok(),
                "{timeout_ns}"
            );
        }
    }

    #[test]
    fn a_later_delivery_on_the_path_condemns_after_a_pause() {
        let mut flight = two_on_one_path();
        flight.acked(1, 20_000);
        assert_eq!(flight.certain(AT(69_999)).packets, 1);
        assert_eq!(flight.certain(AT(70_000)).packets, 0, "rule A");
    }

    #[test]
    fn much_later_deliveries_elsewhere_condemn_at_once() {
        let mut flight = two_on_one_path();
        flight
            .judge_send("f", 2, (9, 2), 100, AT(100_001))
            .expect("a new packet");
        flight.acked(2, 110_000);
        let certain = flight.certain(AT(110_000));
        assert_eq!((certain.packets, certain.bytes), (1, 100), "rule B: packet 0 only");
    }

    #[test]
    fn a_refusal_for_want_of_resources_forbids_haste() {
        let mut flight = two_on_one_path();
        let neth = Neth {
            reason: NackReason::NO_RESOURCE,
            tx_timestamp: Tick(0),
            ..Neth::default()
        };
        flight.refused(0, &neth, 30_000);
        assert!(flight.judge_send("f", 0, (8, 1), 100, AT(49_999)).is_err());
        assert!(flight.judge_send("f", 0, (8, 1), 100, AT(50_000)).is_ok());
    }
}
