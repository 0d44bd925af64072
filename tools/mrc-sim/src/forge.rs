//! Packets that nobody sent: they look like the peer's, and must have no effect (protocol.md §5.5, §5.8, §6.2, §14).

use crate::codec::Route;
use crate::fabric::frame::Data;
use crate::oracle::Breach;
use crate::oracle::flow::Flow;
use crate::rng::Rng;
use crate::scenario::links::NodeForgery;
use crate::world::{Event, World};
use mrc_protocol::Transmit;
use mrc_wire::{
    Aeth, Bth, CcState, Eeth, EndpointOp, Erth, Ev, Headers, Meth, NackReason, Neth, Opcode, Peth, PortNum, Psn, Qpn,
    Reth, Seth, Tick, TrafficClass, Tseth,
};

/// What is forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgery {
    /// A write beyond the window.
    WriteBeyondWindow,
    /// A write that was received long ago, now with other data.
    OldWrite,
    /// The next write, with another partition key.
    WrongPKey,
    /// A SACK of packets that were never sent, in order.
    CackBeyondSent,
    /// A SACK whose bitmap knows packets that were never sent.
    BitmapBeyondSent,
    /// A Transport ACK of packets that were never sent.
    AckBeyondSent,
    /// A NACK of a packet that was never sent.
    NackOfUnsent,
    /// A NACK of a packet that was acknowledged.
    NackOfAcked,
    /// A NAK of a packet that was never sent.
    NakOfUnsent,
    /// A NAK of a packet that was acknowledged.
    NakOfAcked,
    /// A probe that the peer's requestor knows nothing of.
    Probe,
}

impl Forgery {
    /// All of them.
    pub const ALL: [Forgery; 11] = [
        Forgery::WriteBeyondWindow,
        Forgery::OldWrite,
        Forgery::WrongPKey,
        Forgery::CackBeyondSent,
        Forgery::BitmapBeyondSent,
        Forgery::AckBeyondSent,
        Forgery::NackOfUnsent,
        Forgery::NackOfAcked,
        Forgery::NakOfUnsent,
        Forgery::NakOfAcked,
        Forgery::Probe,
    ];
}

impl World {
    /// Sends a forgery to `side` of a connection.
    pub(crate) fn forge(&mut self, connection: usize, side: usize, forgery: Forgery) -> Result<(), Breach> {
        let plan = &self.scenario.connections[connection];
        let (src, dst) = (plan.hosts[1 - side], plan.hosts[side]);
        let plane = self.rng.range(1, self.scenario.planes.into()) as u8;
        let Some(port) = PortNum::new(plane) else { return Ok(()) };
        let flows = &self.flows[connection];
        // A window may grow while a forgery is on its way.
        let most = i64::from(plan.max_mpr()) * 128;
        // Writes and probes come from the peer as requestor, the others answer what this side sends.
        let (arriving, leaving) = (&flows[1 - side], &flows[side]);
        let Some((psn, opcode, headers)) = content(forgery, arriving, leaving, most, &mut self.rng) else {
            return Ok(());
        };
        let mut bth = Bth {
            a: true,
            ..Bth::new(opcode, Qpn::new(plan.qpn[side]), psn)
        };
        bth.ts = opcode.is_write();
        if forgery == Forgery::WrongPKey {
            bth.p_key = 0x1234;
        }
        let transmit = Transmit {
            bth,
            headers,
            ev: Ev(0xF00D),
            path: 0,
            port,
            class: TrafficClass::NoTrim,
            ect: false,
            payload: None,
            is_retransmission: false,
        };
        let payload: &[u8] = if opcode.is_write() {
            b"forged, and of no use"
        } else {
            &[]
        };
        let frame = self.codec.pack(
            Route {
                src,
                dst,
                id: self.sent,
            },
            &transmit,
            payload.into(),
        )?;
        self.events.post(self.now_ns, Event::Arrive(Box::new(frame)));
        Ok(())
    }
}

impl World {
    /// Sends a packet to a node that nobody sent.
    pub(crate) fn forge_node(&mut self, from: usize, to: usize, forgery: NodeForgery) -> Result<(), Breach> {
        let count = if let NodeForgery::Probes(count) = forgery {
            count
        } else {
            1
        };
        for _ in 0..count {
            let plane = self.rng.range(1, self.scenario.planes.into()) as u8;
            let Some(port) = PortNum::new(plane) else { return Ok(()) };
            let id = self.rng.below(1 << 16) as u32;
            let stamp = Tick(self.rng.word() as u16);
            let (op, mask) = match forgery {
                NodeForgery::Update(mask) => (EndpointOp::PORT_STATUS_UPDATE, mask),
                NodeForgery::Stranger => (EndpointOp::PORT_STATUS_UPDATE, 0),
                NodeForgery::WrongPKey | NodeForgery::Answer | NodeForgery::Probes(_) => (EndpointOp::EV_PROBE, 0),
            };
            let (opcode, headers) = if forgery == NodeForgery::Answer {
                let eeth = Eeth {
                    op,
                    tx_timestamp: stamp,
                };
                (Opcode::EndpointResponse, Headers::EndpointResponse(eeth))
            } else {
                let erth = Erth {
                    op,
                    port_status_mask: mask,
                    tx_timestamp: stamp,
                    ftype: Tseth::FTYPE_PRESENT,
                };
                (Opcode::EndpointRequest, Headers::EndpointRequest(erth))
            };
            let mut bth = Bth::new(opcode, Qpn::ENDPOINT, Psn::new(id));
            if forgery == NodeForgery::WrongPKey {
                bth.p_key = 0x1234;
            }
            let transmit = Transmit {
                bth,
                headers,
                ev: Ev(0xF00D),
                path: 0,
                port,
                class: TrafficClass::Control,
                ect: false,
                payload: None,
                is_retransmission: false,
            };
            // No host is a peer of itself.
            let src = if forgery == NodeForgery::Stranger { to } else { from };
            let route = Route {
                src,
                dst: to,
                id: self.sent,
            };
            let frame = self.codec.pack(route, &transmit, Data::default())?;
            self.events.post(self.now_ns, Event::Arrive(Box::new(frame)));
        }
        Ok(())
    }
}

fn content(
    forgery: Forgery,
    arriving: &Flow,
    leaving: &Flow,
    most: i64,
    rng: &mut Rng,
) -> Option<(Psn, Opcode, Headers)> {
    let some = rng.below(1000) as i64;
    let never_sent = leaving.psn_of(leaving.packets.len() as i64 + some);
    let among = |count: i64, rng: &mut Rng| (count > 0).then(|| rng.below(count as u64) as i64);
    let write = |psn| {
        let reth = Reth {
            va: arriving.messages.first().map_or(0, |m| m.va),
            r_key: 0,
            dmalen: 21,
        };
        let tseth = Some(Tseth::new(Tick(some as u16)));
        (
            psn,
            Opcode::WriteOnly,
            Headers::Write {
                meth: Meth { rqmsn: 0, msn: 0 },
                tseth,
                reth,
                imm: None,
            },
        )
    };
    let sack = |cack_psn: Psn, sack_offset, sack_bitmap| {
        // Half of them name no trigger, which would give them away too.
        let seth = Seth {
            pr: some % 2 == 0,
            cack_psn,
            sack_offset,
            sack_bitmap,
            ..Seth::default()
        };
        (cack_psn, Opcode::Sack, Headers::Sack(seth, Some(CcState::default())))
    };
    let nack = |psn| {
        let neth = Neth {
            reason: NackReason::TRIMMED,
            nack_psn: psn,
            ..Neth::default()
        };
        (psn, Opcode::Nack, Headers::Nack(neth))
    };
    let nak = |psn| (psn, Opcode::Ack, Headers::Ack(Aeth { syndrome: 0x62, msn: 0 }));
    Some(match forgery {
        Forgery::WriteBeyondWindow => write(arriving.psn_of(arriving.packets.len() as i64 + most + some)),
        Forgery::OldWrite => write(arriving.psn_of(among(arriving.responder.cack + 1, rng)?)),
        Forgery::WrongPKey => write(arriving.psn_of(arriving.responder.cack + 1)),
        Forgery::CackBeyondSent => sack(never_sent, 1, 0),
        Forgery::BitmapBeyondSent => {
            let unack = leaving.psn_of(leaving.requestor.unack);
            match leaving.packets.len() as i64 - 1 - leaving.requestor.unack {
                // Near the end of the flow, one bitmap holds both a lie that hurts and one that gives it away.
                ahead @ 1..63 => sack(unack, 1, 1 | 1 << ahead),
                _ => sack(unack, i16::try_from(never_sent.diff(unack)).ok()?, 1),
            }
        }
        Forgery::AckBeyondSent => (
            never_sent,
            Opcode::Ack,
            Headers::Ack(Aeth {
                syndrome: 0x1f,
                msn: some as u32,
            }),
        ),
        Forgery::NackOfUnsent => nack(never_sent),
        Forgery::NackOfAcked => nack(leaving.psn_of(among(leaving.requestor.unack + 1, rng)?)),
        Forgery::NakOfUnsent => nak(never_sent),
        Forgery::NakOfAcked => nak(leaving.psn_of(among(leaving.requestor.transport_acked + 1, rng)?)),
        Forgery::Probe => {
            let peth = Peth {
                probe_id: some as u16,
                ..Peth::default()
            };
            (Psn::new(0), Opcode::Probe, Headers::Probe(peth))
        }
    })
}
