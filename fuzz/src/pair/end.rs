//! One queue pair with its surroundings, and what must hold of it after every call.

use mrc_protocol::{
    AccessError, Cx, EvState, Instant, Memory, Qp, QpState, Qpcc, Queue, SendRequest, Status, Transmit,
};
use mrc_wire::{Condition, Ev, Headers, Packet, Payload, PortNum, PortSet};
use std::net::{IpAddr, Ipv6Addr};

use super::setup::Setup;

pub(super) const R_KEY: u32 = 0x1a2b_3c4d;
pub(super) const BASE: u64 = 0x7f00_0000_0000;
pub(super) const REGION: usize = 1 << 16;

/// Byte `at` of the data of a request.
pub(super) fn byte(slot: u32, at: u32) -> u8 {
    (at.wrapping_mul(31) ^ at >> 8 ^ slot.wrapping_mul(7)).wrapping_add(1) as u8
}

/// One region, which watches how it is used.
pub(super) struct Region {
    pub(super) bytes: Vec<u8>,
    /// What `check` has permitted last.
    permitted: Option<(u32, u64, u64)>,
    /// May anything be placed at present?
    writable: bool,
    /// What the memory says instead; `true` when it is written to, else when it is asked.
    pub(super) trouble: Option<(bool, AccessError)>,
}

impl Memory for Region {
    fn check(&mut self, r_key: u32, va: u64, len: u64) -> Result<(), AccessError> {
        assert!(len > 0, "the memory was asked for nothing");
        self.permitted = None;
        if let Some((false, error)) = self.trouble {
            return Err(error);
        }
        if r_key != R_KEY {
            return Err(AccessError::Key);
        }
        let offset = va.checked_sub(BASE).ok_or(AccessError::Bounds)?;
        let end = offset.checked_add(len).ok_or(AccessError::Bounds)?;
        if end > REGION as u64 {
            return Err(AccessError::Bounds);
        }
        self.permitted = Some((r_key, va, len));
        Ok(())
    }

    fn place(&mut self, r_key: u32, va: u64, payload: &Payload<'_>) -> Result<(), AccessError> {
        assert!(
            self.writable,
            "data was placed for a queue pair that may not be written to"
        );
        let (key, from, len) = self.permitted.take().expect("nobody asked before writing");
        assert_eq!(key, r_key);
        let ahead = va.checked_sub(from).expect("before what was permitted");
        assert!(ahead + payload.len() as u64 <= len, "behind what was permitted");
        if let Some((true, error)) = self.trouble {
            return Err(error);
        }
        let mut at = (va - BASE) as usize;
        for part in payload.parts() {
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(())
    }
}

/// A packet on its way.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) sent: Transmit,
    pub(super) data: Vec<u8>,
    pub(super) ce: bool,
    pub(super) condition: Condition,
    /// Resets of its sender before it was sent; `None`: nobody sent it like that.
    pub(super) life: Option<u32>,
}

impl Wire {
    /// As a parser hands it over.
    pub(super) fn packet(&self) -> Packet<'_> {
        let nowhere = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let trimmed = self.condition != Condition::Whole;
        let padded = self.data.len().next_multiple_of(4);
        let mut headers = self.sent.headers;
        if trimmed && let Headers::Write { reth, imm, .. } = &mut headers {
            (*reth, *imm) = (mrc_wire::Reth::default(), None);
        }
        Packet {
            bth: self.sent.bth,
            headers,
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

/// A send request that is not complete.
pub(super) struct Posted {
    pub(super) request: SendRequest,
    /// Nobody else writes to where it writes.
    pub(super) alone: bool,
}

/// A queue pair with its surroundings.
pub(super) struct End {
    pub(super) qp: Qp,
    pub(super) cc: Qpcc,
    pub(super) region: Region,
    pub(super) now: Instant,
    /// Resets so far.
    pub(super) life: u32,
    pub(super) lingering: bool,
    pub(super) remote_write: bool,
    pub(super) local_up: PortSet,
    window: i32,
    /// In posting order, oldest first.
    sends: Vec<Posted>,
    recvs: Vec<u64>,
    next_wr_id: u64,
    /// Succeeded, and not to be written to by anybody else.
    pub(super) written: Vec<SendRequest>,
}

impl End {
    /// A queue pair in RESET.
    pub(super) fn new(setup: &Setup, qpn: u32) -> Self {
        Self {
            qp: Qp::new(setup.create(qpn)).expect("the setup is right"),
            cc: setup.cc.clone(),
            region: Region {
                bytes: vec![0; REGION],
                permitted: None,
                writable: false,
                trouble: None,
            },
            now: Instant::from_ns(1_000_000_000),
            life: 0,
            lingering: false,
            remote_write: false,
            local_up: PortSet::first(31),
            window: i32::from(setup.max_mpr) * 128,
            sends: Vec::new(),
            recvs: Vec::new(),
            next_wr_id: 0,
            written: Vec::new(),
        }
    }

    pub(super) fn cx<T>(&mut self, call: impl FnOnce(&mut Qp, &mut Cx<'_>) -> T) -> T {
        let ready = matches!(self.qp.state(), QpState::Rtr | QpState::Rts);
        self.region.writable = ready && self.remote_write && !self.lingering;
        self.region.permitted = None;
        let mut cx = Cx::new(self.now, &mut self.cc, &mut self.region);
        call(&mut self.qp, &mut cx)
    }

    pub(super) fn post(&mut self, request: SendRequest, alone: bool) -> bool {
        let request = SendRequest {
            wr_id: self.next_wr_id,
            slot: self.next_wr_id as u32,
            ..request
        };
        let accepted = self.qp.handle_send(&request, self.now).is_ok();
        if accepted {
            assert!(!self.lingering && matches!(self.qp.state(), QpState::Rts | QpState::Err));
            self.next_wr_id += 1;
            self.sends.push(Posted { request, alone });
        }
        accepted
    }

    pub(super) fn post_recv(&mut self) {
        if self.qp.handle_recv(self.next_wr_id).is_ok() {
            assert!(!self.lingering && self.qp.state() != QpState::Reset);
            self.recvs.push(self.next_wr_id);
            self.next_wr_id += 1;
        }
    }

    /// The next packet, which must be one that may be sent now.
    pub(super) fn poll(&mut self, room: PortSet) -> Option<Wire> {
        let sent = self.cx(|qp, cx| qp.poll_transmit(cx, room))?;
        assert!(room.contains(sent.port), "sent on a port without room");
        assert!(sent.headers.fit(sent.bth.opcode));
        let data: Vec<u8> = sent.payload.map_or_else(Vec::new, |part| {
            let end = part.offset.checked_add(part.len).expect("the data ends before 2^32");
            (part.offset..end).map(|at| byte(part.slot, at)).collect()
        });
        let wire = Wire {
            sent,
            data,
            ce: false,
            condition: Condition::Whole,
            life: Some(self.life),
        };
        if sent.bth.opcode.is_write() {
            self.may_send(&wire);
        } else {
            assert!(sent.payload.is_none(), "a control packet with data");
        }
        Some(wire)
    }

    fn may_send(&self, wire: &Wire) {
        let sent = &wire.sent;
        assert!(self.qp.state() == QpState::Rts && !self.lingering);
        let ahead = sent.bth.psn.diff(self.qp.unack_psn());
        assert!((0..=self.window).contains(&ahead), "{ahead} PSNs ahead");
        // protocol.md §5.3 rule 2
        let before = self.cc.inflight_bytes() - i64::from(wire.packet().nominal_size());
        assert!(self.cc.cwnd_bytes().is_none_or(|cwnd| before < cwnd.cast_signed()));
        // protocol.md §8.1
        let path = self
            .qp
            .ev_states()
            .nth(sent.path.into())
            .expect("a path of the universe");
        assert_eq!((path.entry.ev, path.entry.port), (sent.ev, sent.port));
        assert!(
            path.state != EvState::Denied,
            "sent on a path that the controller denies"
        );
        assert!(self.local_up.contains(sent.port), "sent on a port that is down");
        let request = sent.payload.and_then(|part| {
            let mut posted = self.sends.iter();
            posted.find(|posted| posted.request.slot == part.slot)
        });
        if let Some(part) = sent.payload.filter(|part| part.len > 0) {
            let len = request.expect("data of a request that is not complete").request.len;
            assert!(part.offset + part.len <= len, "data behind the end of the request");
        }
    }

    pub(super) fn receive(&mut self, wire: &Wire, port: PortNum) {
        self.cx(|qp, cx| qp.handle_packet(cx, &wire.packet(), port));
    }

    /// Lets time pass and serves each timer at its time.
    pub(super) fn advance(&mut self, ns: u64) {
        let until = self.now + ns;
        for _ in 0..2000 {
            let Some(due) = self.qp.next_timeout().filter(|&due| due <= until) else {
                break;
            };
            self.now = self.now.max(due);
            self.serve();
        }
        self.leap(until);
    }

    /// The engine was away until then.
    pub(super) fn leap(&mut self, until: Instant) {
        self.now = self.now.max(until);
        if self.qp.next_timeout().is_some_and(|due| due <= self.now) {
            self.serve();
        }
    }

    fn serve(&mut self) {
        self.cx(Qp::handle_timeout);
        let next = self.qp.next_timeout();
        assert!(
            next.is_none_or(|next| next > self.now),
            "due again at once: {next:?} at {}",
            self.now
        );
    }

    /// What was posted before is forgotten.
    pub(super) fn forget(&mut self) {
        self.sends.clear();
        self.recvs.clear();
    }

    /// Takes completions and events, and checks what must hold.
    pub(super) fn check(&mut self) {
        while let Some(done) = self.qp.poll_completion() {
            match done.queue {
                Queue::Send => {
                    assert!(!self.sends.is_empty(), "a completion of nothing: {done:?}");
                    let posted = self.sends.remove(0);
                    let request = posted.request;
                    assert_eq!((done.wr_id, done.slot), (request.wr_id, request.slot), "posting order");
                    if done.status == Status::Success && posted.alone {
                        self.written.push(request);
                    }
                }
                Queue::Recv => {
                    assert!(!self.recvs.is_empty(), "a completion of nothing: {done:?}");
                    assert_eq!(done.wr_id, self.recvs.remove(0), "posting order");
                }
            }
        }
        while self.qp.poll_event().is_some() {}
        while self.qp.poll_path_report().is_some() {}
        assert_eq!(self.qp.sq_outstanding() as usize, self.sends.len());
        self.check_inflight();
    }

    fn check_inflight(&self) {
        let cc = &self.cc;
        let ports = || (1..=31).filter_map(PortNum::new);
        let by_port: u32 = ports().map(|port| u32::from(cc.inflight_on(port))).sum();
        assert_eq!(by_port, cc.inflight_packets());
        // protocol.md §5.6: nothing waits for a port that went down.
        let mut down = ports().filter(|&port| !self.local_up.contains(port));
        assert!(
            down.all(|port| cc.inflight_on(port) == 0),
            "in flight on a port that is down"
        );
        assert!(cc.inflight_packets() as i32 <= self.window);
        assert!(cc.inflight_bytes() >= 0);
        assert_eq!(cc.inflight_bytes() == 0, cc.inflight_packets() == 0);
        if let Some(nscc) = cc.as_nscc() {
            let mtu = u64::from(nscc.params().mtu_bytes);
            assert!((mtu..=nscc.max_wnd_bytes()).contains(&nscc.cwnd_bytes()));
        }
        if self.qp.state() != QpState::Rts || self.lingering {
            assert_eq!(cc.inflight_packets(), 0, "in flight in {:?}", self.qp.state());
        }
    }

    /// Fails it, then empties it: every request has ended, and nothing is left.
    pub(super) fn finish(&mut self) {
        let live = !self.lingering;
        self.cx(Qp::handle_error);
        self.check();
        if live {
            assert!(self.sends.is_empty() && self.recvs.is_empty(), "a request has no end");
        }
        self.cx(Qp::handle_reset);
        self.forget();
        self.lingering = false;
        self.check();
        assert_eq!(self.qp.state(), QpState::Reset);
        assert!(self.qp.next_timeout().is_none(), "a timer runs in RESET");
        assert!(self.poll(PortSet::first(31)).is_none(), "a packet leaves in RESET");
    }
}

/// A path as the entropy value and port that an EV probe is sent on.
pub(super) fn path(ev: u32, port: PortNum) -> mrc_protocol::EvEntry {
    mrc_protocol::EvEntry { ev: Ev(ev), port }
}
