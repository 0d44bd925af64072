//! The shipped responder and the one written from the specification, side by side, on hostile sequences of packets: one
//! packet a batch and one SACK a packet, so that every answer has exactly one right form (protocol.md §6).

mod draw;

use draw::{Case, Lack, Step, Write};
use mrc_protocol::{
    AccessError, Cx, EvEntry, InitAttr, Instant, Memory, ModifyAttr, PathConfig, PeerCaps, Qp, QpCreate, QpState, Qpcc,
    RtrAttr, Tuning,
};
use mrc_sim::memory::{Trouble, When};
use mrc_sim::reference::{Attributes, Compare, Ground, Responder};
use mrc_wire::{
    Bth, Condition, Ev, Headers, ImmDt, Meth, Opcode, Packet, Payload, Peth, Pmtu, PortNum, PortSet, Psn, Qpn, Reth,
    Tick, Tseth,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv6Addr};

const KEY: u32 = 0x1a2b_3c4d;
const BASE: u64 = 0x7f00_0000_0000;
const SIZE: u64 = 4096;
const PMTU: usize = 256;
const QPN: Qpn = Qpn::new(0xab_cdef);
const PEER: Qpn = Qpn::new(0x12_3456);

/// One region, and what was written to it.
struct Region {
    bytes: Vec<u8>,
    placed: Vec<(u32, u64, u64)>,
    /// What it says instead of granting an access.
    trouble: Option<Trouble>,
    /// Where something may have been written before it said so.
    loose: Option<(u64, u64)>,
}

fn permits(key: u32, va: u64, len: u64) -> bool {
    key == KEY && va >= BASE && va.checked_add(len).is_some_and(|end| end <= BASE + SIZE)
}

impl Memory for Region {
    fn check(&mut self, key: u32, va: u64, len: u64) -> Result<(), AccessError> {
        match self.trouble {
            _ if !permits(key, va, len) => Err(AccessError::Bounds),
            Some(trouble) if trouble.when == When::Asked => Err(trouble.error),
            _ => Ok(()),
        }
    }

    fn place(&mut self, key: u32, va: u64, payload: &Payload<'_>) -> Result<(), AccessError> {
        self.check(key, va, payload.len() as u64)?;
        let start = (va - BASE) as usize;
        if let Some(trouble) = self.trouble {
            if trouble.when == When::WrittenInPart {
                let half = payload.len() / 2;
                let kept = self.bytes[start + half..start + payload.len()].to_vec();
                payload.copy_to(&mut self.bytes[start..start + payload.len()]);
                self.bytes[start + half..start + payload.len()].copy_from_slice(&kept);
                self.loose = Some((va, half as u64));
            }
            return Err(trouble.error);
        }
        payload.copy_to(&mut self.bytes[start..start + payload.len()]);
        self.placed.push((key, va, payload.len() as u64));
        Ok(())
    }
}

/// Both responders.
struct Pair {
    qp: Qp,
    cc: Qpcc,
    region: Region,
    model: Vec<u8>,
    reference: Responder,
    now: Instant,
    port: PortNum,
    posted: u64,
}

impl Pair {
    fn new(case: &Case) -> Pair {
        let port = PortNum::new(1).expect("a port");
        let path = PathConfig::explicit((1..9).map(|n| EvEntry { ev: Ev(n), port }).collect());
        let create = QpCreate {
            qpn: QPN,
            sq_depth: 1,
            rq_depth: 512,
            max_mpr: 3,
            max_wimm: 128,
            sq_sig_all: false,
            seed: [7; 32],
            path,
            tuning: Tuning {
                sack_gen_threshold_bytes: case.threshold,
                sack_hold_ns: case.hold_ns,
                extra_sacks: 0,
                answers_per_s: case.answers.0,
                answers_burst: case.answers.1,
                ..Tuning::default()
            },
        };
        let now = Instant::from_ns(1_000_000_000);
        let mut qp = Qp::new(create).expect("a queue pair");
        let init = InitAttr {
            p_key: 0xffff,
            remote_write: true,
        };
        qp.handle_init(&init).expect("INIT");
        let rtr = RtrAttr {
            dest_qpn: PEER,
            rq_psn: Psn::new(case.first_psn),
            pmtu: Pmtu::B256,
            mpr_dest: case.mpr,
            max_wimm_dest: case.max_wimm,
            trim_nack: case.trim_nack,
            dynamic_mpr: case.dynamic_mpr,
            svc_time: case.svc_time,
            peer: PeerCaps {
                dynamic_mpr: true,
                ..PeerCaps::default()
            },
        };
        qp.handle_rtr(&rtr, now).expect("RTR");
        let attributes = Attributes {
            qpn: QPN,
            dest_qpn: PEER,
            p_key: 0xffff,
            rq_psn: Psn::new(case.first_psn),
            pmtu: PMTU,
            window: u64::from(case.mpr) * 128,
            max_wimm: case.max_wimm.into(),
            dynamic_mpr: case.dynamic_mpr,
            svc_time: case.svc_time,
            trim_nack: case.trim_nack,
            remote_write: true,
            sack_gen_threshold: case.threshold.into(),
            sack_hold_ns: case.hold_ns,
            answers_per_s: case.answers.0.into(),
            answers_burst: case.answers.1.into(),
        };
        let mut pair = Pair {
            qp,
            cc: Qpcc::fixed(64),
            region: Region {
                bytes: vec![0; SIZE as usize],
                placed: Vec::new(),
                trouble: None,
                loose: None,
            },
            model: vec![0; SIZE as usize],
            reference: Responder::new(attributes, Compare::Exactly),
            now,
            port,
            posted: 0,
        };
        for _ in 0..case.receives {
            pair.post();
        }
        pair
    }

    fn post(&mut self) {
        if self.qp.handle_recv(self.posted).is_ok() {
            self.reference.post(self.posted);
            self.posted += 1;
        }
    }

    fn take(&mut self, packet: &Packet<'_>, lack: Option<Lack>) -> Result<(), String> {
        let (disposition, expected) = if let Some(Lack::Buffer(why)) = lack {
            let disposition = self.qp.handle_refused(self.now, packet, why);
            (disposition, self.reference.lack_buffer(self.now, packet, why))
        } else {
            self.region.trouble = match lack {
                Some(Lack::Memory(trouble)) => Some(trouble),
                _ => None,
            };
            let (permits, trouble) = (&permits, self.region.trouble);
            let mut cx = Cx::new(self.now, &mut self.cc, &mut self.region);
            let disposition = self.qp.handle_packet(&mut cx, packet, self.port);
            let ground = Ground { permits, trouble };
            (disposition, self.reference.take(self.now, packet, ground))
        };
        self.qp.end_of_batch(self.now);
        if disposition != expected.disposition {
            return Err(format!("{disposition:?}, not {:?}", expected.disposition));
        }
        let placed: Vec<_> = self.region.placed.drain(..).collect();
        let allowed =
            placed == expected.placed.iter().copied().collect::<Vec<_>>() || expected.either && placed.is_empty();
        if !allowed {
            return Err(format!("placed {placed:?}, not {expected:?}"));
        }
        for (_, va, len) in placed {
            let start = (va - BASE) as usize;
            packet.payload.copy_to(&mut self.model[start..start + len as usize]);
        }
        if let Some((va, len)) = self.region.loose.take() {
            let stretch = (va - BASE) as usize..(va - BASE + len) as usize;
            self.model[stretch.clone()].copy_from_slice(&self.region.bytes[stretch]);
        }
        if self.model != self.region.bytes {
            return Err("memory differs".to_owned());
        }
        self.compare()
    }

    /// What both say now.
    fn compare(&mut self) -> Result<(), String> {
        let mut nothing = mrc_protocol::NoMemory;
        let mut cx = Cx::new(self.now, &mut self.cc, &mut nothing);
        while let Some(sent) = self.qp.poll_transmit(&mut cx, PortSet::first(1)) {
            self.reference.judge(self.now, &sent)?;
        }
        self.reference.judge_silence()?;
        self.reference.settle();
        while let Some(completion) = self.qp.poll_completion() {
            self.reference.judge_completion(&completion)?;
        }
        self.reference.judge_no_completion()?;
        let failed = self.qp.state() == QpState::Err;
        if failed != self.reference.failed() {
            return Err(format!("{:?}, failed: {}", self.qp.state(), self.reference.failed()));
        }
        let said = (self.qp.cack_psn(), self.qp.ooo_count());
        let known = (self.reference.cack_psn(), self.reference.ooo_count());
        if !failed && said != known {
            return Err(format!("cack_psn and ooo_count {said:?}, not {known:?}"));
        }
        let (timeout, expected) = (self.qp.next_timeout(), self.reference.next_timeout());
        if timeout != expected {
            return Err(format!("next timeout {timeout:?}, not {expected:?}"));
        }
        Ok(())
    }

    fn pass(&mut self, ns: u64) -> Result<(), String> {
        let until = self.now + ns;
        while let Some(due) = self.qp.next_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let mut nothing = mrc_protocol::NoMemory;
            self.qp
                .handle_timeout(&mut Cx::new(self.now, &mut self.cc, &mut nothing));
            self.reference.timeout(self.now);
            self.compare()?;
        }
        self.now = until;
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Write(write) => self.write(write),
            &Step::Probe {
                id,
                entropy,
                stamp,
                ce,
                rtx,
            } => {
                let bth = Bth {
                    rtx,
                    ..Bth::new(Opcode::Probe, QPN, Psn::new(entropy))
                };
                let peth = Peth {
                    probe_id: id,
                    tx_timestamp: Tick(stamp),
                    ftype: 1,
                    ..Peth::default()
                };
                self.take(&packet(bth, Headers::Probe(peth), &[], entropy, ce), None)
            }
            Step::Pass(ns) => self.pass(*ns),
            Step::Post => {
                self.post();
                self.compare()
            }
            Step::Pressure(percent) => {
                self.qp.handle_pressure(*percent, 100);
                self.reference.set_pressure(*percent, 100);
                self.compare()
            }
            Step::Window(mpr) => {
                if self.qp.handle_window(*mpr).is_ok() {
                    self.reference.set_window(u64::from(*mpr) * 128);
                }
                self.compare()
            }
            Step::RemoteWrite(remote_write) => {
                let attr = ModifyAttr {
                    remote_write: Some(*remote_write),
                    retry: None,
                };
                if self.qp.handle_modify(&attr).is_ok() {
                    self.reference.set_remote_write(*remote_write);
                }
                self.compare()
            }
        }
    }

    fn write(&mut self, write: &Write) -> Result<(), String> {
        let [a, rtx, ce, ts, se] = write.flags;
        let opcode = Opcode::ALL[usize::from(write.kind)];
        let psn = self.reference.cack_psn().next().offset(write.ahead);
        let bth = Bth {
            se,
            pad: write.pad,
            p_key: write.p_key,
            a,
            rtx,
            ts,
            ..Bth::new(opcode, QPN, psn)
        };
        let data: Vec<u8> = (0..write.len).map(|i| (i as u32 ^ write.entropy) as u8).collect();
        let headers = Headers::Write {
            meth: Meth::default(),
            tseth: ts.then(|| Tseth::new(Tick(write.stamp))),
            reth: Reth {
                va: BASE.wrapping_add(write.offset),
                r_key: write.key,
                dmalen: write.dmalen,
            },
            imm: opcode.has_imm().then(|| ImmDt(write.entropy.to_le_bytes())),
        };
        let mut packet = packet(bth, headers, &data, write.entropy, ce);
        if let Some(last_hop) = write.trimmed {
            packet.condition = Condition::Trimmed { last_hop };
            packet.payload = Payload::EMPTY;
        }
        self.take(&packet, write.lack)
    }
}

fn packet(bth: Bth, headers: Headers, data: &[u8], entropy: u32, ce: bool) -> Packet<'_> {
    let nowhere = IpAddr::V6(Ipv6Addr::LOCALHOST);
    Packet {
        bth,
        headers,
        payload: Payload::new(data),
        condition: Condition::Whole,
        ev: Ev(entropy),
        ce,
        dscp: 0,
        udp_len: (8 + 12 + headers.wire_len() + data.len().next_multiple_of(4) + 4) as u16,
        src: nowhere,
        dst: nowhere,
    }
}

fn run(case: &Case) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(case);
    for (number, step) in case.steps.iter().enumerate() {
        pair.step(step)
            .map_err(|problem| TestCaseError::fail(format!("step {number}, {step:?}: {problem}")))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(4000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_responders_say_the_same(case in draw::case()) {
        run(&case)?;
    }
}
