//! Scenarios, faults and what happens to hosts, in words.

use crate::fabric::FabricPlan;
use crate::fabric::clos::topology::{Link, Place, Switch};
use crate::fabric::fault::{Fault, Kind, Scope};
use crate::scenario::upset::{Lack, Upset};
use crate::scenario::{Class, ConnectionPlan, Control, Format, Happening, HostPlan, Scenario};
use std::fmt::{self, Write as _};

/// The scenario, without its single messages: a line for each host, direction and fault.
pub fn outline(scenario: &Scenario) -> String {
    let mut text = format!(
        "seed {}: {}; packets travel {}\n",
        scenario.seed,
        ending(scenario.class),
        match scenario.format {
            Format::Values => "as header values",
            Format::BytesV4 => "as bytes of IPv4",
            Format::BytesV6 => "as bytes of IPv6",
        }
    );
    let _ = writeln!(
        text,
        "{} planes, {}; {} packets are planned",
        scenario.planes,
        network(&scenario.fabric),
        scenario.packets
    );
    for (number, host) in scenario.hosts.iter().enumerate() {
        let _ = writeln!(text, "host {number}: {}", of_host(host));
    }
    for (number, connection) in scenario.connections.iter().enumerate() {
        of_connection(&mut text, number, connection);
    }
    for fault in &scenario.faults {
        let _ = writeln!(text, "fault: {fault}");
    }
    let mut happenings: Vec<_> = scenario.happenings.iter().collect();
    happenings.sort_by_key(|(at_ns, _)| *at_ns);
    for (at_ns, happening) in happenings {
        let _ = writeln!(text, "at {}: {happening}", time(*at_ns));
    }
    let _ = writeln!(
        text,
        "faults that end have ended by {}; all must have ended by {}",
        time(scenario.calm_from_ns),
        time(scenario.deadline_ns)
    );
    text
}

fn ending(class: Class) -> &'static str {
    match class {
        Class::Survivable => "every request must succeed",
        Class::PeerVanishes => "a host stops for ever, and its peers' requests must end with a retry error",
        Class::Partition => "from some instant on nothing arrives any more, and requests must end with a retry error",
        Class::TooFewReceives => "a receiver posts too few receives: a request ends with a remote operation error",
        Class::MemoryBreaks => "the memory of a host fails for good: a request ends with a remote operation error",
        Class::BadAccess => "a target must refuse a request: it ends with a remote access error",
        Class::TooManyImmediates => "more WriteIMM than the target can hold: one ends with a remote invalid request",
        Class::LocalError => "the application gives up a queue pair",
        Class::Restart => "one end of a connection starts anew, and every request must succeed then",
    }
}

fn network(fabric: &FabricPlan) -> String {
    match fabric {
        FabricPlan::Delay(plan) => {
            let delays: Vec<String> = plan.delay_ns.iter().map(|delay_ns| time(*delay_ns)).collect();
            format!(
                "whose delays are {}; paths differ by up to {}, frames by up to {}",
                delays.join(", "),
                time(plan.skew_ns),
                time(plan.noise_ns)
            )
        }
        FabricPlan::Clos(plan) => format!(
            "each of {} leaves and {} spines, with {} hosts below a leaf",
            plan.shape.leaves, plan.shape.spines, plan.shape.hosts_per_leaf
        ),
    }
}

fn of_host(host: &HostPlan) -> String {
    let control = match host.control {
        Control::Ports => format!("{} packets in flight a port", host.cwnd_packets),
        Control::Nscc => "NSCC".to_owned(),
        Control::Off => "no congestion control".to_owned(),
    };
    let regions: Vec<String> = host.regions.iter().map(|region| region.len.to_string()).collect();
    format!(
        "ports of {} Mbit/s, looks within {}, takes {} packets a turn and sends {}; {control}, {}; regions of {} bytes",
        host.rate_mbps,
        time(host.poll_delay_ns),
        host.rx_batch,
        host.tx_batch,
        if host.shared_qpcc {
            "shared by queue pairs to a peer"
        } else {
            "one for each queue pair"
        },
        if regions.is_empty() {
            "0".to_owned()
        } else {
            regions.join(", ")
        }
    )
}

fn of_connection(text: &mut String, number: usize, plan: &ConnectionPlan) {
    let [from, to] = plan.hosts;
    let _ = writeln!(
        text,
        "connection {number}: hosts {from} and {to}, QPNs {} and {}, PSNs from {} and {}, PMTU {}, windows of {} and {} \
         packets, timeout {}, {} + {} retries, {} paths a plane, {} of them active",
        plan.qpn[0],
        plan.qpn[1],
        plan.psn[0],
        plan.psn[1],
        plan.pmtu.bytes(),
        u32::from(plan.mpr[0]) * 128,
        u32::from(plan.mpr[1]) * 128,
        plan.timeout_ns().map_or_else(|| "off".to_owned(), time),
        plan.linear_cnt,
        plan.exp_cnt,
        plan.evs_per_plane,
        plan.active_per_plane
    );
    if plan.limits_answers() {
        let _ = writeln!(
            text,
            "  answers of one kind: {} a second, {} in a burst",
            plan.answers_per_s, plan.answers_burst
        );
    }
    for (side, flow) in plan.flows.iter().enumerate() {
        if flow.messages.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "  host {} sends {} messages, {} bytes",
            plan.hosts[side],
            flow.messages.len(),
            flow.bytes()
        );
        if flow.immediates() > 0 {
            let _ = write!(text, ", {} with an immediate", flow.immediates());
        }
        text.push('\n');
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Kind::Loss { ppm } => write!(f, "loss of {}", percent(ppm)),
            Kind::Burst { enter_ppm, within_ns } => {
                write!(f, "bursts of loss, {} of up to {}", percent(enter_ppm), time(within_ns))
            }
            Kind::Duplicate { ppm, within_ns } => {
                write!(f, "copies of {}, within {}", percent(ppm), time(within_ns))
            }
            Kind::Jitter { ppm, within_ns } => {
                write!(f, "delays of {}, up to {}", percent(ppm), time(within_ns))
            }
            Kind::BitFlip { ppm, bits } => write!(f, "up to {bits} wrong bits in {}", percent(ppm)),
            Kind::Blackhole => f.write_str("blackhole"),
            Kind::CeMark { ppm } => write!(f, "marks on {}", percent(ppm)),
            Kind::Trim { ppm, last_hop } => {
                let place = if last_hop { " at the last hop" } else { "" };
                write!(f, "trimming of {}{place}", percent(ppm))
            }
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data {
            Some(true) => f.write_str("data packets")?,
            Some(false) => f.write_str("control packets")?,
            None => f.write_str("packets")?,
        }
        if let Some(nth) = self.nth {
            write!(f, " {} to {}", nth.first, nth.first.saturating_add(nth.count - 1))?;
        }
        if let Some(src) = self.src {
            write!(f, " from host {src}")?;
        }
        if let Some(dst) = self.dst {
            write!(f, " to host {dst}")?;
        }
        if let Some(plane) = self.plane {
            write!(f, " on plane {plane}")?;
        }
        if let Some(ppm) = self.ev_share_ppm {
            write!(f, " on {} of the entropy values", percent(ppm))?;
        }
        if let Some(ev) = self.ev {
            write!(f, " on entropy value {ev:#x}")?;
        }
        match self.place {
            Some(place) => write!(f, " at {place}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, of {}, from {}", self.kind, self.scope, time(self.from_ns))?;
        match self.until_ns {
            u64::MAX => f.write_str(" on"),
            until_ns => write!(f, " to {}", time(until_ns)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Link(link) => {
                let (from, to) = ends(*link);
                write!(f, "link from {from} to {to} on plane {}", link.plane())
            }
            Place::Cable(link) => {
                let (from, to) = ends(*link);
                write!(f, "cable between {from} and {to} on plane {}", link.plane())
            }
            Place::Switch(Switch::Leaf { plane, leaf }) => write!(f, "leaf {leaf} of plane {plane}"),
            Place::Switch(Switch::Spine { plane, spine }) => write!(f, "spine {spine} of plane {plane}"),
            Place::Plane(plane) => write!(f, "plane {plane}"),
        }
    }
}

/// What stands at the ends of a link, in its direction.
fn ends(link: Link) -> (String, String) {
    match link {
        Link::HostUp { host, .. } => (format!("host {host}"), "its leaf".to_owned()),
        Link::HostDown { host, .. } => ("the leaf".to_owned(), format!("host {host}")),
        Link::SpineUp { leaf, spine, .. } => (format!("leaf {leaf}"), format!("spine {spine}")),
        Link::SpineDown { leaf, spine, .. } => (format!("spine {spine}"), format!("leaf {leaf}")),
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Link {
                host,
                plane,
                up,
                own_ns,
                peer_ns,
            } => write!(
                f,
                "port {plane} of host {host} goes {}; the host learns it after {}, its peers after {} or when they are told",
                if *up { "up" } else { "down" },
                time(*own_ns),
                time(*peer_ns)
            ),
            Happening::Stall { host, for_ns } => write!(f, "host {host} does nothing for {}", time(*for_ns)),
            Happening::Vanish { host } => write!(f, "host {host} stops for ever"),
            Happening::Forge {
                connection,
                side,
                forgery,
            } => write!(
                f,
                "side {side} of connection {connection} receives what nobody sent: {}",
                words(&format!("{forgery:?}"))
            ),
            Happening::ForgeNode { from, to, forgery } => write!(
                f,
                "host {to} receives in the name of host {from} what nobody sent: {}",
                words(&format!("{forgery:?}"))
            ),
            Happening::Control {
                connection,
                side,
                command,
            } => write!(f, "the controller of side {side} of connection {connection} {command}"),
            Happening::GiveUp { connection, side } => {
                write!(f, "side {side} of connection {connection} gives up")
            }
            Happening::Upset(upset) => upset.fmt(f),
        }
    }
}

impl fmt::Display for Upset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Upset::Slow {
                host,
                for_ns,
                poll_ns,
                ring,
            } => write!(
                f,
                "host {host} looks within {} only, with room for {ring} frames, for {}",
                time(poll_ns),
                time(for_ns)
            ),
            Upset::Leap { host, by_ns } => {
                let sign = if by_ns < 0 { "back" } else { "forward" };
                write!(
                    f,
                    "the clock of host {host} leaps {sign} by {}",
                    time(by_ns.unsigned_abs())
                )
            }
            Upset::Refuse {
                host,
                for_ns,
                ppm,
                reason,
            } => write!(
                f,
                "host {host} refuses {} of the new packets with {reason} for {}",
                percent(ppm),
                time(for_ns)
            ),
            Upset::Short {
                host,
                for_ns,
                ppm,
                shortage,
                lack,
            } => {
                let lack = match lack {
                    Lack::Memory(when) => format!("memory, as it finds when it is {}", words(&format!("{when:?}"))),
                    Lack::Buffer => "a buffer".to_owned(),
                    Lack::Port => {
                        let (packets, time) = (percent(ppm), time(for_ns));
                        return write!(f, "host {host} cannot send {packets} of the packets for {time}");
                    }
                };
                write!(
                    f,
                    "host {host} lacks {lack}, for {} of the writes, and says {} for {}",
                    percent(ppm),
                    words(&format!("{shortage:?}")),
                    time(for_ns)
                )
            }
            Upset::Break { host, when } => write!(
                f,
                "the memory of host {host} fails for good, as it finds when it is {}",
                words(&format!("{when:?}"))
            ),
            Upset::Patience {
                connection,
                side,
                timeout,
            } => write!(f, "side {side} of connection {connection} takes timeout {timeout}"),
            Upset::Window { connection, side, mpr } => write!(
                f,
                "side {side} of connection {connection} announces a window of {} packets",
                u32::from(mpr) * 128
            ),
            Upset::Restart {
                connection,
                side,
                notice_ns,
                rest_ns,
                shift,
                anew,
            } => write!(
                f,
                "side {side} of connection {connection} is {}; the other one learns it after {}, both connect again after \
                 {} more, {shift} PSNs further",
                if anew { "made again" } else { "reset" },
                time(notice_ns),
                time(rest_ns)
            ),
        }
    }
}

/// Nanoseconds, in the unit that needs the fewest digits.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{} ms", ns as f64 / 1e6),
        _ => format!("{} s", ns as f64 / 1e9),
    }
}

fn percent(ppm: u32) -> String {
    format!("{} %", f64::from(ppm) / 10_000.0)
}

/// The words of a name in code: `PsnWrap` is "PSN wrap".
pub(crate) fn words(name: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_ascii_uppercase() => word.push(letter),
            _ => words.push(letter.to_ascii_lowercase().to_string()),
        }
    }
    for word in &mut words {
        if ["psn", "ce", "ack", "nack", "sack", "cack", "nak"].contains(&word.as_str()) {
            word.make_ascii_uppercase();
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_has_an_outline_in_words() {
        for seed in 0..200 {
            let text = outline(&Scenario::from_seed(seed));
            assert!(text.starts_with(&format!("seed {seed}: ")), "{text}");
            for of_code in ['{', '}', '[', '"'] {
                assert!(!text.contains(of_code), "{of_code} in {text}");
            }
            assert!(!text.contains("Some(") && !text.contains("None"), "{text}");
        }
    }

    #[test]
    fn names_in_code_become_words() {
        assert_eq!(words("PsnWrap"), "PSN wrap");
        assert_eq!(words("OneWayBlackhole"), "one way blackhole");
        assert_eq!(words("CackBeyondSent"), "CACK beyond sent");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!((time(999), time(1_500)), ("999 ns".to_owned(), "1.5 us".to_owned()));
        assert_eq!(
            (time(2_000_000), time(1_000_000_000)),
            ("2 ms".to_owned(), "1 s".to_owned())
        );
    }
}
