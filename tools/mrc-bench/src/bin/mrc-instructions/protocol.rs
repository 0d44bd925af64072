//! A requestor and a responder, and nothing below them: no bytes are built or copied.

use std::net::{IpAddr, Ipv4Addr};

use mrc_protocol::{
    AccessError, Cx, InitAttr, Instant, Memory, PathConfig, PeerCaps, Qp, QpCreate, Qpcc, RetryAttr, RtrAttr, RtsAttr,
    SendRequest, Transmit, Tuning,
};
use mrc_wire::{Condition, Packet, Payload, Pmtu, PortNum, PortSet, Psn, Qpn};

use crate::{Fault, measured};

const PORTS: PortSet = PortSet::first(PortNum::MAX);
const PMTU: Pmtu = Pmtu::B1024;
const MESSAGE: u32 = 1 << 16;
const MESSAGES: u64 = 64;
/// Packets between two looks of the other side.
const BATCH: usize = 32;
/// Time from one look to the next.
const STEP_NS: u64 = 20_000;
/// Rounds after which it hangs.
const PATIENCE: u64 = 100_000;
static DATA: [u8; 4096] = [0; 4096];

/// [`MESSAGES`] writes; of the packets with data every `lose`-th is lost once.
pub(crate) fn exchange(lose: Option<u64>) -> Result<u64, Fault> {
    let mut world = World::new(lose)?;
    measured(&mut || world.run());
    let stats = world.ends[0].qp.stats();
    if world.completed != MESSAGES {
        return Err(format!("{} of {MESSAGES} writes completed: {stats:?}", world.completed).into());
    }
    if lose.is_some() != (stats.packets_retransmitted > 0) {
        return Err(format!("{} packets were sent again", stats.packets_retransmitted).into());
    }
    Ok(MESSAGES * u64::from(MESSAGE) / PMTU.bytes() as u64)
}

struct World {
    ends: [End; 2],
    /// What is under way to each end.
    wires: [Vec<Transmit>; 2],
    now: Instant,
    lose: Option<u64>,
    sent: u64,
    posted: u64,
    completed: u64,
}

struct End {
    qp: Qp,
    cc: Qpcc,
}

impl World {
    fn new(lose: Option<u64>) -> Result<Self, Fault> {
        Ok(Self {
            ends: [End::new(3, 4)?, End::new(4, 3)?],
            wires: [Vec::with_capacity(4096), Vec::with_capacity(4096)],
            now: Instant::from_ns(1_000_000),
            lose,
            sent: 0,
            posted: 0,
            completed: 0,
        })
    }

    fn run(&mut self) {
        for _ in 0..PATIENCE {
            if self.completed == MESSAGES {
                return;
            }
            self.post();
            for end in 0..2 {
                self.receive(end);
                self.send(end);
            }
            while let Some(completion) = self.ends[0].qp.poll_completion() {
                self.completed += u64::from(completion.status == mrc_protocol::Status::Success);
            }
            self.now = self.now + STEP_NS;
        }
    }

    fn post(&mut self) {
        while self.posted < MESSAGES {
            let request = SendRequest {
                wr_id: self.posted,
                slot: (self.posted % 16) as u32,
                len: MESSAGE,
                remote_addr: 0x7f00_0000_0000,
                r_key: 1,
                imm: None,
                solicited: false,
                signaled: true,
            };
            if self.posted - self.completed >= 16 || self.ends[0].qp.handle_send(&request, self.now).is_err() {
                return;
            }
            self.posted += 1;
        }
    }

    fn receive(&mut self, end: usize) {
        let (qp, cc) = (&mut self.ends[end].qp, &mut self.ends[end].cc);
        for transmit in self.wires[end].drain(..) {
            let mut memory = Anywhere;
            let mut cx = Cx::new(self.now, cc, &mut memory);
            qp.handle_packet(&mut cx, &packet(&transmit), transmit.port);
        }
        qp.end_of_batch(self.now);
        if qp.next_timeout().is_some_and(|due| due <= self.now) {
            let mut memory = Anywhere;
            qp.handle_timeout(&mut Cx::new(self.now, cc, &mut memory));
        }
    }

    fn send(&mut self, end: usize) {
        let (qp, cc) = (&mut self.ends[end].qp, &mut self.ends[end].cc);
        let mut memory = Anywhere;
        let mut cx = Cx::new(self.now, cc, &mut memory);
        for _ in 0..BATCH {
            let Some(transmit) = qp.poll_transmit(&mut cx, PORTS) else {
                break;
            };
            if transmit.payload.is_some() {
                self.sent += 1;
                if self.lose.is_some_and(|every| self.sent.is_multiple_of(every)) {
                    continue;
                }
            }
            self.wires[1 - end].push(transmit);
        }
        while qp.poll_event().is_some() {}
    }
}

impl End {
    fn new(own: u32, peer: u32) -> Result<Self, Fault> {
        let mut qp = Qp::new(QpCreate {
            qpn: Qpn::new(own),
            sq_depth: 16,
            rq_depth: 16,
            max_mpr: 8,
            max_wimm: 16,
            sq_sig_all: false,
            seed: [own as u8; 32],
            path: PathConfig::auto(PortSet::first(4)),
            tuning: Tuning::default(),
        })
        .map_err(|error| format!("{error:?}"))?;
        qp.handle_init(&InitAttr {
            p_key: 0xffff,
            remote_write: true,
        })
        .map_err(|error| format!("{error:?}"))?;
        let rtr = RtrAttr {
            dest_qpn: Qpn::new(peer),
            rq_psn: Psn::new(7),
            pmtu: PMTU,
            mpr_dest: 8,
            max_wimm_dest: 16,
            trim_nack: true,
            dynamic_mpr: false,
            svc_time: false,
            peer: PeerCaps {
                trim_nack: true,
                ..PeerCaps::default()
            },
        };
        qp.handle_rtr(&rtr, Instant::ZERO)
            .map_err(|error| format!("{error:?}"))?;
        let rts = RtsAttr {
            sq_psn: Psn::new(7),
            mpr: 8,
            max_wimm: 16,
            retry: RetryAttr::default(),
        };
        qp.handle_rts(&rts, Instant::ZERO)
            .map_err(|error| format!("{error:?}"))?;
        let cc = Qpcc::fixed(192);
        Ok(Self { qp, cc })
    }
}

fn packet(transmit: &Transmit) -> Packet<'_> {
    let nowhere = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let data = transmit.payload.map_or(0, |part| part.len as usize);
    Packet {
        bth: transmit.bth,
        headers: transmit.headers,
        payload: Payload::new(&DATA[..data]),
        condition: Condition::Whole,
        ev: transmit.ev,
        ce: false,
        dscp: 0,
        udp_len: (8 + 12 + transmit.headers.wire_len() + data.next_multiple_of(4) + 4) as u16,
        src: nowhere,
        dst: nowhere,
    }
}

/// Memory that takes everything and keeps nothing.
struct Anywhere;

impl Memory for Anywhere {
    fn check(&mut self, _r_key: u32, _va: u64, _len: u64) -> Result<(), AccessError> {
        Ok(())
    }

    fn place(&mut self, _r_key: u32, _va: u64, _payload: &Payload<'_>) -> Result<(), AccessError> {
        Ok(())
    }
}
