//! EV probes (protocol.md §9.2): which answers count, and what they may change.

use crate::ensure;
use crate::oracle::Checked;
use crate::oracle::Oracle::Ports;
use crate::oracle::ports::request_id;
use mrc_protocol::{EndpointRequest, EvProbe, EvProbeResult};
use mrc_wire::{Headers, Packet, TrafficClass};
use std::collections::{BTreeMap, VecDeque};

/// The token of probes that no queue pair asked for.
pub const NOBODY: u64 = u64::MAX;

/// The probes of a host, by its own account. All instants are those of its clock.
#[derive(Debug, Default)]
pub struct Probing {
    /// Asked for, and not sent yet.
    waiting: VecDeque<EvProbe>,
    /// On their way, by id.
    sent: BTreeMap<u16, (EvProbe, u64)>,
    /// Results that are due, in order: whether there was an answer.
    answered: VecDeque<(EvProbe, u64)>,
}

impl Probing {
    /// A probe was asked for.
    pub fn ask(&mut self, probe: &EvProbe) {
        self.waiting.push_back(*probe);
    }

    /// Whether any waits for a port.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A probe leaves, on its own path and as nothing else.
    pub fn judge_sent(&mut self, name: &str, peer: u32, request: &EndpointRequest, now_ns: u64) -> Checked {
        let at = self.waiting.iter().position(|probe| {
            (probe.peer, probe.ev, probe.port, probe.encap) == (peer, request.ev, request.port, request.encap)
        });
        let plain = matches!(&request.headers, Headers::EndpointRequest(erth) if erth.port_status_mask == 0
            && erth.op == mrc_wire::EndpointOp::EV_PROBE);
        let Some(probe) = at.and_then(|at| self.waiting.remove(at)).filter(|_| plain) else {
            ensure!(
                false,
                Ports,
                "{name}: nobody asked for the EV probe {request:?} to h{peer}"
            );
            return Ok(());
        };
        ensure!(
            request.class == probe.class,
            Ports,
            "{name}: the EV probe {probe:?} leaves in class {:?}",
            request.class
        );
        self.sent.insert(request_id(&request.bth), (probe, now_ns));
        Ok(())
    }

    /// An answer has arrived from this peer. Whether it is one to a probe that still waits for it.
    pub fn hear(&mut self, peer: u32, id: u16, packet: &Packet<'_>, now_ns: u64) -> bool {
        if packet.bth.p_key & 0x7fff != 0x7fff {
            return false;
        }
        if self.sent.get(&id).is_none_or(|(probe, _)| probe.peer != peer) {
            return false;
        }
        let Some((probe, sent_ns)) = self.sent.remove(&id) else {
            return false;
        };
        self.answered.push_back((probe, now_ns.saturating_sub(sent_ns)));
        true
    }

    /// What became of a probe. Returns the rule.
    pub fn judge_result(&mut self, name: &str, result: &EvProbeResult) -> Result<&'static str, crate::oracle::Breach> {
        if let Some(answer) = &result.answer {
            let expected = self.answered.pop_front();
            ensure!(
                expected == Some((result.probe, answer.rtt_ns)) && !answer.service_time_removed,
                Ports,
                "{name}: {result:?}, but it was {expected:?}"
            );
            return Ok("§9.2 EV probe tells of its path");
        }
        // Of two alike, the older one.
        let alike = self.sent.iter().filter(|(_, (probe, _))| *probe == result.probe);
        if let Some(id) = alike.min_by_key(|(_, (_, sent_ns))| *sent_ns).map(|(id, _)| *id) {
            self.sent.remove(&id);
        } else if let Some(at) = self.waiting.iter().position(|probe| *probe == result.probe) {
            self.waiting.remove(at);
        } else {
            ensure!(false, Ports, "{name}: {result:?} of a probe that is not under way");
        }
        Ok("§9.2 EV probe without an answer")
    }
}

/// The class of the probes that queue pairs ask for.
pub const CLASS: TrafficClass = TrafficClass::NoTrim;
