//! Two queue pairs and the packets between them, for tests that play the network by hand.

use std::net::{IpAddr, Ipv6Addr};
use std::vec;
use std::vec::Vec;

use mrc_wire::{Condition, Ev, Headers, Packet, Payload, Pmtu, PortNum, PortSet, Psn, Qpn};

use crate::attr::{EvEntry, InitAttr, PathConfig, PeerCaps, QpCreate, RetryAttr, RtrAttr, RtsAttr, Tuning};
use crate::qp::Qp;
use crate::qpcc::Qpcc;
use crate::time::Instant;
use crate::work::{AccessError, Completion, Cx, Disposition, Memory, QpEvent, Queue, SendRequest, Status, Transmit};

pub(crate) const R_KEY: u32 = 0x1a2b_3c4d;
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
pub(crate) const ALL: PortSet = PortSet::first(31);

pub(crate) fn port(num: u8) -> PortNum {
    PortNum::new(num).unwrap()
}

pub(crate) fn psn(value: u32) -> Psn {
    Psn::new(value)
}

/// One region.
pub(crate) struct Region {
    pub(crate) bytes: Vec<u8>,
    pub(crate) placed: usize,
    /// What the memory says instead, when it is asked or when it is written to.
    pub(crate) trouble: Option<(When, AccessError)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Asked,
    Written,
}

impl Region {
    fn fails(&self, when: When) -> Result<(), AccessError> {
        match self.trouble {
            Some((at, error)) if at == when => Err(error),
            _ => Ok(()),
        }
    }
}

impl Memory for Region {
    fn check(&mut self, r_key: u32, va: u64, len: u64) -> Result<(), AccessError> {
        self.fails(When::Asked)?;
        if r_key != R_KEY {
            return Err(AccessError::Key);
        }
        let offset = va.checked_sub(BASE).ok_or(AccessError::Bounds)?;
        let end = offset.checked_add(len).ok_or(AccessError::Bounds)?;
        if end <= self.bytes.len() as u64 {
            Ok(())
        } else {
            Err(AccessError::Bounds)
        }
    }

    fn place(&mut self, r_key: u32, va: u64, payload: &Payload<'_>) -> Result<(), AccessError> {
        self.check(r_key, va, payload.len() as u64)?;
        self.fails(When::Written)?;
        let mut at = (va - BASE) as usize;
        for part in payload.parts() {
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.placed += 1;
        Ok(())
    }
}

/// A queue pair with its surroundings.
pub(crate) struct End {
    pub(crate) qp: Qp,
    pub(crate) cc: Qpcc,
    pub(crate) region: Region,
    /// Data of the send requests, by slot.
    pub(crate) sources: Vec<Vec<u8>>,
    pub(crate) now: Instant,
}

/// A packet on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) sent: Transmit,
    data: Vec<u8>,
    pub(crate) ce: bool,
    pub(crate) condition: Condition,
}

impl Wire {
    pub(crate) fn marked(mut self) -> Self {
        self.ce = true;
        self
    }

    pub(crate) fn trimmed(mut self, last_hop: bool) -> Self {
        self.condition = Condition::Trimmed { last_hop };
        self
    }

    /// A packet that no queue pair made.
    pub(crate) fn forged(sent: Transmit, len: usize) -> Self {
        Self {
            sent,
            data: vec![0xee; len],
            ce: false,
            condition: Condition::Whole,
        }
    }

    pub(crate) fn psn(&self) -> u32 {
        self.sent.bth.psn.get()
    }

    pub(crate) fn packet(&self) -> Packet<'_> {
        let nowhere = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let padded = self.data.len().next_multiple_of(4);
        let trimmed = self.condition != Condition::Whole;
        Packet {
            bth: self.sent.bth,
            headers: self.sent.headers,
            payload: if trimmed {
                Payload::EMPTY
            } else {
                Payload::new(&self.data)
            },
            condition: self.condition,
            ev: self.sent.ev,
            ce: self.ce,
            dscp: 0,
            udp_len: (8 + 12 + self.sent.headers.wire_len() + padded + 4) as u16,
            src: nowhere,
            dst: nowhere,
        }
    }
}

/// EVs 0x1000 * port + n.
pub(crate) fn evs(ports: u8, each: u32) -> Vec<EvEntry> {
    (1..=ports)
        .flat_map(|num| {
            (0..each).map(move |n| EvEntry {
                ev: Ev(0x1000 * u32::from(num) + n),
                port: port(num),
            })
        })
        .collect()
}

/// How a pair is made.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) pmtu: Pmtu,
    pub(crate) mpr: u8,
    pub(crate) max_wimm: u16,
    pub(crate) sq_depth: u32,
    pub(crate) rq_depth: u32,
    pub(crate) path: PathConfig,
    pub(crate) tuning: Tuning,
    pub(crate) retry: RetryAttr,
    pub(crate) first_psn: u32,
    pub(crate) trimming: bool,
    pub(crate) dynamic_mpr: bool,
    pub(crate) svc_time: bool,
    pub(crate) cc: Qpcc,
    pub(crate) region: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            pmtu: Pmtu::B4096,
            mpr: 8,
            max_wimm: 128,
            sq_depth: 64,
            rq_depth: 64,
            path: PathConfig {
                active: Some(8),
                ..PathConfig::explicit(evs(2, 8))
            },
            tuning: Tuning::default(),
            retry: RetryAttr::default(),
            first_psn: 10,
            trimming: false,
            dynamic_mpr: false,
            svc_time: false,
            cc: Qpcc::fixed(192),
            region: 1 << 20,
        }
    }
}

impl Setup {
    pub(crate) fn create(&self, qpn: u32) -> QpCreate {
        let mut path = self.path.clone();
        path.fabric_trims = self.trimming;
        QpCreate {
            qpn: Qpn::new(qpn),
            sq_depth: self.sq_depth,
            rq_depth: self.rq_depth,
            max_mpr: self.mpr,
            max_wimm: self.max_wimm,
            sq_sig_all: false,
            seed: [qpn as u8; 32],
            path,
            tuning: self.tuning.clone(),
        }
    }

    /// Attributes of the three states, towards this peer.
    pub(crate) fn attrs(&self, peer: u32) -> (InitAttr, RtrAttr, RtsAttr) {
        let init = InitAttr {
            p_key: 0xffff,
            remote_write: true,
        };
        let rtr = RtrAttr {
            dest_qpn: Qpn::new(peer),
            rq_psn: psn(self.first_psn),
            pmtu: self.pmtu,
            mpr_dest: self.mpr,
            max_wimm_dest: self.max_wimm,
            trim_nack: self.trimming,
            dynamic_mpr: self.dynamic_mpr,
            svc_time: self.svc_time,
            peer: PeerCaps {
                trim_nack: self.trimming,
                dynamic_mpr: self.dynamic_mpr,
                svc_time: self.svc_time,
            },
        };
        let rts = RtsAttr {
            sq_psn: psn(self.first_psn),
            mpr: self.mpr,
            max_wimm: self.max_wimm,
            retry: self.retry,
        };
        (init, rtr, rts)
    }

    fn end(&self, qpn: u32, peer: u32) -> End {
        let now = Instant::from_ns(1_000_000_000);
        let mut qp = Qp::new(self.create(qpn)).unwrap();
        let (init, rtr, rts) = self.attrs(peer);
        qp.handle_init(&init).unwrap();
        qp.handle_rtr(&rtr, now).unwrap();
        qp.handle_rts(&rts, now).unwrap();
        End {
            qp,
            cc: self.cc.clone(),
            region: Region {
                bytes: vec![0; self.region],
                placed: 0,
                trouble: None,
            },
            sources: Vec::new(),
            now,
        }
    }

    /// A writes, B is written to.
    pub(crate) fn pair(&self) -> (End, End) {
        (self.end(0xa, 0xb), self.end(0xb, 0xa))
    }
}

/// A request for `len` bytes at `offset` of the peer's region.
pub(crate) fn write(wr_id: u64, len: u32, offset: u64) -> SendRequest {
    SendRequest {
        wr_id,
        slot: 0,
        len,
        remote_addr: BASE + offset,
        r_key: R_KEY,
        imm: None,
        solicited: false,
        signaled: true,
    }
}

pub(crate) fn write_imm(wr_id: u64, len: u32, offset: u64, imm: [u8; 4]) -> SendRequest {
    SendRequest {
        imm: Some(imm),
        ..write(wr_id, len, offset)
    }
}

impl End {
    /// Posts with bytes that nobody else has.
    pub(crate) fn post(&mut self, mut request: SendRequest) {
        request.slot = self.sources.len() as u32;
        let tag = request.slot as usize * 7 + 1;
        self.sources.push(
            (0..request.len as usize)
                .map(|i| (i * 31 + i / 251 + tag) as u8)
                .collect(),
        );
        self.qp.handle_send(&request, self.now).unwrap();
    }

    pub(crate) fn cx<T>(&mut self, call: impl FnOnce(&mut Qp, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(self.now, &mut self.cc, &mut self.region);
        call(&mut self.qp, &mut cx)
    }

    pub(crate) fn poll_on(&mut self, room: PortSet) -> Option<Wire> {
        let sent = self.cx(|qp, cx| qp.poll_transmit(cx, room))?;
        let data = sent.payload.map_or_else(Vec::new, |part| {
            self.sources[part.slot as usize][part.offset as usize..(part.offset + part.len) as usize].to_vec()
        });
        Some(Wire {
            sent,
            data,
            ce: false,
            condition: Condition::Whole,
        })
    }

    pub(crate) fn poll(&mut self) -> Option<Wire> {
        self.poll_on(ALL)
    }

    pub(crate) fn poll_all(&mut self) -> Vec<Wire> {
        core::iter::from_fn(|| self.poll()).collect()
    }

    pub(crate) fn receive(&mut self, wire: &Wire) -> Disposition {
        self.cx(|qp, cx| qp.handle_packet(cx, &wire.packet(), wire.sent.port))
    }

    /// A batch.
    pub(crate) fn hear<'a>(&mut self, wires: impl IntoIterator<Item = &'a Wire>) {
        for wire in wires {
            self.receive(wire);
        }
        self.qp.end_of_batch(self.now);
    }

    /// A batch, and what it calls for.
    #[must_use]
    pub(crate) fn receive_all<'a>(&mut self, wires: impl IntoIterator<Item = &'a Wire>) -> Vec<Wire> {
        self.hear(wires);
        self.poll_all()
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        core::iter::from_fn(|| self.qp.poll_completion()).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<QpEvent> {
        core::iter::from_fn(|| self.qp.poll_event()).collect()
    }

    /// Lets time pass, serving each timer at its time.
    pub(crate) fn advance(&mut self, ns: u64) {
        let until = self.now + ns;
        while let Some(due) = self.qp.next_timeout().filter(|&due| due <= until) {
            self.now = self.now.max(due);
            self.cx(Qp::handle_timeout);
            assert!(
                self.qp.next_timeout().is_none_or(|next| next > self.now),
                "timer storm at {}",
                self.now
            );
        }
        self.now = until;
    }

    pub(crate) fn wait_for_timeout(&mut self) {
        let due = self.qp.next_timeout().expect("a timer");
        self.advance(due.since(self.now));
    }

    /// Until a packet in flight times out; tail probes become due before (protocol.md §5.7).
    pub(crate) fn wait_for_loss(&mut self) {
        let before = self.qp.stats().timeouts;
        while self.qp.stats().timeouts == before {
            self.wait_for_timeout();
        }
    }

    /// What goes out, without probes and answers.
    pub(crate) fn poll_writes(&mut self) -> Vec<Wire> {
        let mut wires = self.poll_all();
        wires.retain(|wire| wire.sent.bth.opcode.is_write());
        wires
    }

    pub(crate) fn handle_ports(&mut self, local_up: PortSet, peer_up: PortSet) {
        self.cx(|qp, cx| qp.handle_ports(cx, local_up, peer_up));
    }
}

/// Lets both talk over a perfect network until neither has anything to say; 10 us each way.
pub(crate) fn talk(a: &mut End, b: &mut End) {
    loop {
        let there = a.poll_all();
        let back = b.poll_all();
        if there.is_empty() && back.is_empty() {
            return;
        }
        a.advance(10_000);
        b.advance(10_000);
        for wire in &there {
            b.receive(wire);
        }
        b.qp.end_of_batch(b.now);
        for wire in &back {
            a.receive(wire);
        }
        a.qp.end_of_batch(a.now);
    }
}

pub(crate) fn writes(wires: &[Wire]) -> Vec<u32> {
    wires
        .iter()
        .filter(|wire| wire.sent.bth.opcode.is_write())
        .map(Wire::psn)
        .collect()
}

/// What one packet says, without the parts that every packet has.
pub(crate) fn sacks(wires: &[Wire]) -> Vec<(mrc_wire::Bth, mrc_wire::Seth, mrc_wire::CcState)> {
    wires
        .iter()
        .filter_map(|wire| match wire.sent.headers {
            Headers::Sack(seth, Some(state)) => Some((wire.sent.bth, seth, state)),
            _ => None,
        })
        .collect()
}

/// `count` packets from PSN 10 on, in flight.
pub(crate) fn flying(setup: &Setup, count: u32) -> (End, Vec<Wire>) {
    let (mut a, _) = setup.pair();
    a.post(write(1, count * setup.pmtu.bytes() as u32, 0));
    let sent = a.poll_all();
    assert_eq!(sent.len(), count as usize);
    (a, sent)
}

/// What completions say in short.
pub(crate) fn outcomes(done: &[Completion]) -> Vec<(Queue, u64, Status)> {
    done.iter().map(|c| (c.queue, c.wr_id, c.status)).collect()
}
