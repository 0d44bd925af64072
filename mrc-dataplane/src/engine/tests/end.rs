//! One side of a test: an engine with a queue pair and everything that it needs.

#![expect(unsafe_code, reason = "registers memory")]
#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(
    clippy::unwrap_used,
    reason = "also part of tests outside the crate, where clippy does not see that"
)]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use mrc_dataplane::engine::{
    Command, CommandError, CqId, CreateQp, Engine, EngineConfig, Outcome, QpChange, QpInfo, QpRings, Reply, Rings,
};
use mrc_dataplane::region::{Access, PdId, RegionMemory, copy};
use mrc_dataplane::ring::{CompletionConsumer, CompletionEntry, RecvEntry, SendData, SendEntry, Sge};
use mrc_protocol::{InitAttr, PeerCaps, RetryAttr, RtrAttr, RtsAttr};
use mrc_wire::{Pmtu, Psn, Qpn};

/// Bytes before and behind the memory that peers may write; they must never change.
pub(super) const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa7;

/// Registered memory between guards.
pub(super) struct Buffer {
    start: *mut u8,
    len: usize,
}

impl Buffer {
    pub(super) fn new(len: usize) -> Self {
        let bytes = vec![GUARD_BYTE; len + 2 * GUARD].into_boxed_slice();
        let start: *mut [u8] = Box::into_raw(bytes);
        let buffer = Self {
            start: start.cast(),
            len,
        };
        buffer.write(0, &vec![0; len]);
        buffer
    }

    pub(super) fn addr(&self) -> u64 {
        self.pointer(0) as u64
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn pointer(&self, offset: usize) -> *mut u8 {
        // SAFETY: inside the allocation.
        unsafe { self.start.add(GUARD + offset) }
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: inside, just checked.
        unsafe { copy::store(self.pointer(offset), bytes) }
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: inside, just checked.
        unsafe { copy::load(self.pointer(offset), &mut bytes) };
        bytes
    }

    pub(super) fn check_guards(&self) {
        let mut guard = [0; GUARD];
        // SAFETY: the guard lies inside the allocation.
        unsafe { copy::load(self.start, &mut guard) };
        assert!(
            guard.iter().all(|&byte| byte == GUARD_BYTE),
            "bytes before the region were written"
        );
        // SAFETY: as above.
        unsafe { copy::load(self.pointer(self.len), &mut guard) };
        assert!(
            guard.iter().all(|&byte| byte == GUARD_BYTE),
            "bytes behind the region were written"
        );
    }

    fn memory(&self) -> RegionMemory {
        // SAFETY: the buffer outlives the engine: `End` declares it last. It is only touched through raw pointers.
        unsafe { RegionMemory::new(self.pointer(0), self.len) }.unwrap()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.check_guards();
        let bytes = std::ptr::slice_from_raw_parts_mut(self.start, self.len + 2 * GUARD);
        // SAFETY: made by `Box::into_raw` in `new`.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

/// Pseudo-random bytes that differ for each seed.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(step).collect();
    bytes.truncate(len);
    bytes
}

/// More than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `condition` yields something.
pub(super) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "timed out waiting for {what}");
        std::thread::yield_now();
    }
}

/// One side: an engine and one queue pair of everything.
pub(super) struct End {
    pub(super) engine: Engine,
    pub(super) address: IpAddr,
    pub(super) pd: PdId,
    pub(super) cq: CqId,
    pub(super) completions: CompletionConsumer,
    pub(super) qpn: Qpn,
    pub(super) rings: QpRings,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    pub(super) memory: Buffer,
}

/// What a test may choose.
pub(super) struct Choice {
    pub(super) planes: u8,
    pub(super) ipv6: bool,
    pub(super) memory: usize,
    pub(super) depth: u32,
    pub(super) cq_depth: u32,
    pub(super) pmtu: Pmtu,
    pub(super) psn: u32,
    pub(super) retry: RetryAttr,
    pub(super) config: EngineConfig,
    pub(super) mtu: u32,
    /// What the interfaces claim.
    pub(super) link_speed_bps: Option<u64>,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            planes: 1,
            ipv6: false,
            memory: 1 << 20,
            depth: 64,
            cq_depth: 256,
            pmtu: Pmtu::B4096,
            psn: 0x00ff_fff0,
            // Threads of a busy test machine may not run for a while: no false time-outs.
            retry: RetryAttr {
                timeout: 17,
                linear_cnt: 3,
                exp_cnt: 5,
            },
            config: EngineConfig::default(),
            mtu: 9000,
            link_speed_bps: None,
        }
    }
}

impl End {
    /// Registers memory and makes a queue pair.
    pub(super) fn new(engine: Engine, choice: &Choice) -> Self {
        let attributes = engine.attributes();
        let address = if choice.ipv6 {
            attributes.address_v6.map(IpAddr::V6)
        } else {
            attributes.address_v4.map(IpAddr::V4)
        };
        let address = address.expect("the engine has an address of this family");
        let Reply::Pd(pd) = reply(&engine, Command::CreatePd) else {
            panic!("no protection domain")
        };
        let memory = Buffer::new(choice.memory);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let register = Command::RegisterRegion {
            pd,
            memory: memory.memory(),
            access,
        };
        let Reply::Region { lkey, rkey } = reply(&engine, register) else {
            panic!("no region")
        };
        let (cq, completions) = create_cq(&engine, choice.cq_depth);
        let (qpn, rings) = create_qp(&engine, CreateQp::new(pd, cq, cq, choice.depth));
        Self {
            engine,
            address,
            pd,
            cq,
            completions,
            qpn,
            rings,
            lkey,
            rkey,
            memory,
        }
    }

    /// Posts a write of `[offset, offset + len)` to the same place at the peer.
    pub(super) fn write(&mut self, wr_id: u64, to: &(u64, u32), offset: usize, len: usize) {
        let entry = SendEntry {
            wr_id,
            remote_addr: to.0 + offset as u64,
            rkey: to.1,
            flags: SendEntry::SIGNALED,
            ..SendEntry::default()
        };
        self.post(entry, offset, len);
    }

    pub(super) fn post(&mut self, entry: SendEntry, offset: usize, len: usize) {
        let sge = Sge {
            addr: self.memory.addr() + offset as u64,
            length: len as u32,
            lkey: self.lkey,
        };
        self.rings.send.push(entry, SendData::Sges(&[sge])).unwrap();
        self.rings.send.publish();
        self.rings.doorbell.ring();
    }

    pub(super) fn post_recv(&mut self, wr_id: u64) {
        self.rings.recv.push(RecvEntry { wr_id }).unwrap();
        self.rings.recv.publish();
        self.rings.doorbell.ring();
    }

    /// Where and with which key this side may be written.
    pub(super) fn target(&self) -> (u64, u32) {
        (self.memory.addr(), self.rkey)
    }

    pub(super) fn completion(&mut self) -> CompletionEntry {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.completions.pop().unwrap() {
                return completion;
            }
            assert!(start.elapsed() < PATIENCE, "no completion: {}", self.state());
            std::thread::yield_now();
        }
    }

    /// All that is known, for messages of failed tests.
    pub(super) fn state(&self) -> String {
        let paths = reply(&self.engine, Command::QueryPaths { qpn: self.qpn });
        format!("{:?} {:?} {paths:?}", self.info(), self.engine.counters())
    }

    pub(super) fn info(&self) -> QpInfo {
        info(&self.engine, self.qpn)
    }

    pub(super) fn modify(&self, change: QpChange) -> Result<(), CommandError> {
        self.engine
            .command(Command::ModifyQp { qpn: self.qpn, change })
            .map(|_| ())
    }
}

pub(super) fn reply(engine: &Engine, command: Command) -> Reply {
    engine.command(command).unwrap().reply
}

pub(super) fn info(engine: &Engine, qpn: Qpn) -> QpInfo {
    match reply(engine, Command::QueryQp { qpn }) {
        Reply::QpInfo(info) => *info,
        other => panic!("{other:?}"),
    }
}

pub(super) fn create_cq(engine: &Engine, depth: u32) -> (CqId, CompletionConsumer) {
    match engine.command(Command::CreateCq { depth }).unwrap() {
        Outcome {
            reply: Reply::Cq(cq),
            rings: Some(Rings::Cq(consumer)),
        } => (cq, consumer),
        _ => panic!("no completion queue"),
    }
}

pub(super) fn create_qp(engine: &Engine, create: CreateQp) -> (Qpn, QpRings) {
    match engine.command(Command::CreateQp(create)).unwrap() {
        Outcome {
            reply: Reply::Qp(qpn),
            rings: Some(Rings::Qp(rings)),
        } => (qpn, rings),
        _ => panic!("no queue pair"),
    }
}

/// Brings `own` to RTS towards `peer`.
pub(super) fn connect(own: &End, peer: &End, choice: &Choice) {
    for change in steps(own, peer.qpn, peer.address, choice) {
        own.modify(change).unwrap();
    }
}

pub(super) fn steps(own: &End, dest_qpn: Qpn, remote: IpAddr, choice: &Choice) -> [QpChange; 3] {
    [
        QpChange::ToInit(InitAttr {
            p_key: 0xffff,
            remote_write: true,
        }),
        QpChange::ToRtr {
            attr: RtrAttr {
                dest_qpn,
                rq_psn: Psn::new(choice.psn),
                pmtu: choice.pmtu,
                mpr_dest: 8,
                max_wimm_dest: 128,
                trim_nack: true,
                dynamic_mpr: false,
                svc_time: false,
                peer: PeerCaps {
                    trim_nack: true,
                    ..PeerCaps::default()
                },
            },
            local: own.address,
            remote,
        },
        QpChange::ToRts(RtsAttr {
            sq_psn: Psn::new(choice.psn),
            mpr: 8,
            max_wimm: 128,
            retry: choice.retry,
        }),
    ]
}
