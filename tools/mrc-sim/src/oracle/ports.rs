//! What two hosts tell each other about their ports (protocol.md §9.3), and what EV probes may and may not do (§9.2).

use crate::ensure;
use crate::oracle::Breach;
use crate::oracle::Checked;
use crate::oracle::Oracle::Ports;
use mrc_protocol::{EndpointReply, EndpointRequest};
use mrc_wire::{Bth, EndpointOp, Headers, Packet, PortNum, PortSet, TrafficClass};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
/// Updates that say the same, until one is answered (P24).
const TRIES: usize = 5;
/// When they begin again, if the peer is heard.
const AGAIN_NS: u64 = 100 * MS;
/// So long a mask has its way against what arrives.
const MASK_RULES_NS: u64 = 1000 * MS;

/// One host's account of what it says to a peer and hears from it. All instants are those of its own clock.
#[derive(Debug, Clone)]
pub struct PortTalk {
    /// Own ports that are up.
    own: PortSet,
    /// What the peer was told last; before, it believes that all are.
    told: PortSet,
    /// Updates that said so, and the ports that they left from.
    round: Vec<(u16, PortNum)>,
    /// Updates before these: what they said.
    past: BTreeMap<u16, PortSet>,
    last_sent_ns: Option<u64>,
    /// One of the round was answered, or there was no need for any.
    settled: bool,
    /// A reason for another round: the peer was heard after a long silence, or has answered an update that said something else.
    again: bool,
    /// Updates sent, and news that they were for.
    pub sent: u64,
    news: u64,
    rounds: u64,
    /// What the peer said of its own ports, and when.
    known: PortSet,
    known_since_ns: u64,
    /// Ports that it said were down and that were probed since, with the id of the last probe; and those that answered.
    doubted: BTreeMap<PortNum, u16>,
    proven: PortSet,
    last_doubt_ns: Option<u64>,
    /// Rules that were exercised.
    pub exercised: BTreeMap<&'static str, u64>,
}

impl PortTalk {
    /// With a peer that neither said nor was told anything. `own`: all ports here.
    pub fn new(own: PortSet) -> PortTalk {
        PortTalk {
            own,
            told: own,
            round: Vec::new(),
            past: BTreeMap::new(),
            last_sent_ns: None,
            settled: true,
            again: false,
            sent: 0,
            news: 0,
            rounds: 0,
            known: PortSet::first(PortNum::MAX),
            known_since_ns: 0,
            doubted: BTreeMap::new(),
            proven: PortSet::EMPTY,
            last_doubt_ns: None,
            exercised: BTreeMap::new(),
        }
    }

    fn note(&mut self, rule: &'static str) {
        *self.exercised.entry(rule).or_default() += 1;
    }

    /// Ports that the peer said to be up, or has shown to be.
    pub fn known(&self) -> PortSet {
        self.known
    }

    /// The own ports have changed.
    pub fn change(&mut self, own: PortSet, now_ns: u64) {
        if own == self.own {
            return;
        }
        let recent = self.last_sent_ns.is_some_and(|last_ns| now_ns < last_ns + MS);
        if own == self.told && recent {
            self.note("§9.3 flap is not told");
        }
        self.own = own;
        self.news += 1;
        if own.is_empty() {
            self.note("§9.3 nothing can be said without a port");
        }
    }

    /// A probe leaves on a port that the peer says is down (protocol.md §14).
    fn judge_doubt(&mut self, name: &str, request: &EndpointRequest, room: PortSet, now_ns: u64) -> Checked {
        let open = room.intersection(self.own).difference(self.known);
        let told_ns = now_ns.saturating_sub(self.known_since_ns);
        let since_ns = self
            .last_doubt_ns
            .map_or(u64::MAX, |last_ns| now_ns.saturating_sub(last_ns));
        ensure!(
            open.contains(request.port) && told_ns >= MASK_RULES_NS && since_ns >= MS,
            Ports,
            "{name}: a probe on port {} {told_ns} ns after the peer's word and {since_ns} ns after another one; doubtful are {open:?}",
            request.port.get()
        );
        self.last_doubt_ns = Some(now_ns);
        self.doubted.insert(request.port, request_id(&request.bth));
        self.note("§14 port said to be down is probed");
        Ok(())
    }

    /// An update leaves, or a probe of what the peer has said. `room`: ports with room.
    pub fn judge_update(&mut self, name: &str, request: &EndpointRequest, room: PortSet, now_ns: u64) -> Checked {
        let Headers::EndpointRequest(erth) = &request.headers else {
            return Err(Breach(Ports, format!("{name}: {:?} as an update", request.headers)));
        };
        if erth.op == EndpointOp::EV_PROBE {
            return self.judge_doubt(name, request, room, now_ns);
        }
        let open = room.intersection(self.own);
        ensure!(
            erth.ports() == self.own && open.contains(request.port),
            Ports,
            "{name}: {erth:?} leaves on port {}, while {:?} are up and {room:?} have room",
            request.port.get(),
            self.own
        );
        let since_ns = self
            .last_sent_ns
            .map_or(u64::MAX, |last_ns| now_ns.saturating_sub(last_ns));
        ensure!(
            since_ns >= MS,
            Ports,
            "{name}: an update {since_ns} ns after another one"
        );
        let is_news = self.own != self.told;
        let begins_again = !is_news && self.again;
        let repeats = !is_news && !begins_again;
        if repeats {
            let gap_ns = MS << (self.round.len().max(1) - 1);
            ensure!(
                !self.settled && self.round.len() < TRIES && since_ns >= gap_ns,
                Ports,
                "{name}: update {} of the same ports after {since_ns} ns, answered: {}",
                self.round.len() + 1,
                self.settled
            );
            self.note("§9.3 update repeats");
            let mut used = PortSet::EMPTY;
            self.round.iter().for_each(|(_, port)| used.insert(*port));
            let fresh = open.difference(used);
            let best = fresh.intersection(self.known);
            ensure!(
                best.contains(request.port) || best.is_empty() && (fresh.is_empty() || fresh.contains(request.port)),
                Ports,
                "{name}: it repeats an update on port {} after {used:?}, although {open:?} are open",
                request.port.get()
            );
            if fresh.contains(request.port) {
                self.note("§9.3 update repeats on another plane");
            }
        } else {
            let round = std::mem::take(&mut self.round);
            self.past.extend(round.iter().map(|(id, _)| (*id, self.told)));
            self.rounds += 1;
            self.note(match (begins_again, since_ns) {
                (true, _) => "§9.3 updates begin again",
                (false, MS..2_000_000) => "§9.3 changes coalesce",
                _ => "§9.3 update at once",
            });
        }
        self.told = self.own;
        self.settled = false;
        self.again = false;
        let id = request_id(&request.bth);
        self.past.remove(&id);
        self.round.push((id, request.port));
        self.sent += 1;
        self.last_sent_ns = Some(now_ns);
        ensure!(
            self.sent <= TRIES as u64 * self.rounds,
            Ports,
            "{name}: {} updates in {} rounds for {} changes",
            self.sent,
            self.rounds,
            self.news
        );
        Ok(())
    }

    /// An answer has arrived. Whether it is one to an update; `None`: to an old one, which may be remembered or not.
    pub fn hear_answer(&mut self, id: u16) -> Option<bool> {
        if self.round.iter().any(|(sent, _)| *sent == id) {
            if self.told == self.own && !self.again {
                self.settled = true;
            }
            self.note("§9.3 update is answered");
            return Some(true);
        }
        let Some(said) = self.past.get(&id) else {
            let port = self
                .doubted
                .iter()
                .find(|(_, asked)| **asked == id)
                .map(|(port, _)| *port);
            if let Some(port) = port {
                self.doubted.remove(&port);
                self.proven.insert(port);
            }
            return Some(port.is_some());
        };
        if *said != self.told {
            self.again = true;
            self.settled = false;
            self.note("§9.3 answer to what is out of date");
        }
        None
    }

    /// The peer has told its ports.
    pub fn hear_update(&mut self, mask: PortSet, usable: PortSet, now_ns: u64) {
        if usable.intersection(mask).is_empty() {
            self.note("§9.3 mask without a usable port");
        }
        self.known = mask;
        self.known_since_ns = now_ns;
        self.doubted.clear();
        self.proven = PortSet::EMPTY;
        self.last_doubt_ns = None;
        self.note("§9.3 the last mask wins");
    }

    /// A packet of the peer has arrived on `port`. True if that shows the port to work.
    pub fn hear(&mut self, port: PortNum, now_ns: u64) -> bool {
        if !self.settled
            && self.round.len() == TRIES
            && self.last_sent_ns.is_some_and(|last_ns| now_ns >= last_ns + AGAIN_NS)
        {
            self.again = true;
        }
        let proven = std::mem::replace(&mut self.proven, PortSet::EMPTY);
        let shown = proven.with(port).difference(self.known);
        if shown.is_empty() {
            return false;
        }
        if now_ns.saturating_sub(self.known_since_ns) < MASK_RULES_NS {
            self.note("§9.3 mask against traffic within a second");
            return false;
        }
        self.note(if proven.intersection(shown).is_empty() {
            "§9.3 traffic shows a port to work"
        } else {
            "§14 probe shows a port to work"
        });
        self.known = self.known.union(shown);
        true
    }
}

/// The id of an endpoint request or its answer (wire-format.md §8).
pub fn request_id(bth: &Bth) -> u16 {
    (bth.psn.get() & 0xffff) as u16
}

/// An answer to an endpoint request says what was asked, and goes back where it came from (wire-format.md §8, W21, W22).
pub fn judge_reply(name: &str, asked: &Packet<'_>, port: PortNum, reply: &EndpointReply) -> Checked {
    let same = match (&asked.headers, &reply.headers) {
        (Headers::EndpointRequest(erth), Headers::EndpointResponse(eeth)) => {
            (eeth.op, eeth.tx_timestamp) == (erth.op, erth.tx_timestamp)
        }
        _ => false,
    };
    ensure!(
        same && request_id(&reply.bth) == request_id(&asked.bth)
            && reply.port == port
            && reply.class == TrafficClass::Control,
        Ports,
        "{name}: {asked:?} on port {} is answered by {reply:?}",
        port.get()
    );
    Ok(())
}
