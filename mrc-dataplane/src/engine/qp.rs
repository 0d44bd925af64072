//! A queue pair inside an engine thread: the protocol's object between its rings.

use std::net::{IpAddr, Ipv6Addr};

use mrc_protocol::profile::Containers;
use mrc_protocol::{Completion, EvEntry, PathConfig, PathCounts, Qp, QpState, Queue, SendRequest, Status};
use mrc_wire::{Encap, L3Template, Pmtu, PortNum, PortSet, Qpn, Srv6Path};

use super::command::CqId;
use super::config::EngineConfig;
use super::job::NewQp;
use super::peer::{Peer, Way};
use crate::region::{PdId, RegionFault, RegionTable};
use crate::ring::{CompletionEntry, RecvConsumer, RingCorrupt, SendConsumer, SendEntry, Sge};

/// Longest message.
pub const MAX_MESSAGE: u32 = 1 << 31;

/// `ibv_wc_status` values.
mod wc {
    pub(super) const SUCCESS: u8 = 0;
    pub(super) const LOC_QP_OP_ERR: u8 = 2;
    pub(super) const LOC_PROT_ERR: u8 = 4;
    pub(super) const WR_FLUSH_ERR: u8 = 5;
    pub(super) const REM_INV_REQ_ERR: u8 = 9;
    pub(super) const REM_ACCESS_ERR: u8 = 10;
    pub(super) const REM_OP_ERR: u8 = 11;
    pub(super) const RETRY_EXC_ERR: u8 = 12;
}

/// The engine's copy of a send request, as far as its data is concerned.
#[derive(Clone, Copy, Default)]
struct Source {
    num_sge: u8,
    inline: bool,
    /// It contradicted itself or the limits of its queue.
    inconsistent: bool,
}

/// Whom the queue pair talks to.
#[derive(Clone, Copy)]
pub(super) struct Connection {
    pub(super) peer: u32,
    /// Its window.
    pub(super) flow: u32,
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    pub(super) dest_qpn: Qpn,
    pub(super) pmtu: Pmtu,
    /// How its largest packets are carried.
    pub(super) encap: Encap,
}

/// The headers of a path, with SRv6.
#[derive(Clone, Copy)]
struct Tunnel {
    /// Of the peer's next hops; 0: never made.
    generation: u32,
    template: L3Template,
}

/// On which lists a queue pair stands, so that it stands there once.
#[derive(Default)]
pub(super) struct Lists {
    /// To be asked for packets.
    pub(super) ready: bool,
    /// To be asked for answers, which do not wait for the link.
    pub(super) owes: bool,
    /// To be told that the batch has ended.
    pub(super) touched: bool,
    /// To be asked for completions, events and its next deadline.
    pub(super) dirty: bool,
    /// Waits for a port's transmit ring.
    pub(super) waits_for_room: bool,
    /// Waits for the window towards its peer.
    pub(super) waits_for_window: bool,
}

/// A queue pair and the engine's ends of its rings.
pub(super) struct QpSlot {
    pub(super) qp: Qp,
    pub(super) qpn: Qpn,
    pub(super) pd: PdId,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
    pub(super) connection: Option<Connection>,
    /// The ports that the protocol was last told to be up: own, and the peer's.
    pub(super) ports: (PortSet, PortSet),
    pub(super) lists: Lists,
    /// Paths withdrawn and returned, as far as they have been counted.
    counted: Vec<PathCounts>,
    /// Write packets sent by path.
    pub(super) path_packets: Box<[u64]>,
    /// By path, with SRv6.
    tunnels: Box<[Option<Tunnel>]>,
    /// Outer source address, with SRv6.
    outer_source: Option<Ipv6Addr>,
    /// The application has destroyed it; it only answers duplicates (api.md D11).
    pub(super) lingering: bool,
    send: SendConsumer,
    recv: RecvConsumer,
    sources: Vec<Source>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    sent: Progress,
    received: Progress,
}

/// How far a queue has come, in requests modulo 2^32.
#[derive(Default, Clone, Copy)]
struct Progress {
    fetched: u32,
    done: u32,
    told: u32,
}

impl Progress {
    fn outstanding(self) -> u32 {
        self.fetched.wrapping_sub(self.done)
    }

    fn reset(&mut self, next: u32) {
        *self = Self {
            fetched: next,
            done: next,
            told: next,
        };
    }
}

impl QpSlot {
    pub(super) fn new(new: NewQp) -> Self {
        let NewQp {
            qpn,
            pd,
            qp,
            send,
            recv,
            send_cq,
            recv_cq,
            ..
        } = new;
        // A power of two, so that numbers of requests that wrap still give each outstanding one a slot of its own.
        let slots = send.depth().next_power_of_two() as usize;
        Self {
            counted: qp.path_counts().collect(),
            path_packets: vec![0; qp.ev_states().count()].into_boxed_slice(),
            tunnels: Box::default(),
            outer_source: None,
            qp,
            qpn,
            pd,
            send_cq,
            recv_cq,
            connection: None,
            ports: (PortSet::EMPTY, PortSet::EMPTY),
            lists: Lists::default(),
            lingering: false,
            sources: vec![Source::default(); slots],
            sges: vec![Sge::default(); slots * send.max_sge() as usize],
            inline: vec![0; slots * send.max_inline() as usize],
            send,
            recv,
            sent: Progress::default(),
            received: Progress::default(),
        }
    }

    /// Gives it other paths (api.md §4.7). `outer_source`: of their tunnels, if they have any.
    pub(super) fn set_paths(
        &mut self,
        path: &PathConfig,
        outer_source: Option<Ipv6Addr>,
    ) -> Result<(), mrc_protocol::UniverseError> {
        self.qp.handle_universe(path)?;
        let count = self.qp.ev_states().count();
        self.counted = self.qp.path_counts().collect();
        self.path_packets = vec![0; count].into_boxed_slice();
        let tunnels = if outer_source.is_some() { count } else { 0 };
        self.tunnels = vec![None; tunnels].into_boxed_slice();
        self.outer_source = outer_source;
        Ok(())
    }

    /// A path may have another EV: its headers are made anew.
    pub(super) fn forget_tunnels(&mut self) {
        self.tunnels.fill(None);
    }

    /// Makes the headers of this path, if it is a tunnel and they are not there or old.
    pub(super) fn refresh_tunnel(&mut self, path: u16, port: PortNum, peer: &Peer, config: &EngineConfig) {
        let place = self.tunnels.get(usize::from(path));
        let stale = |tunnel: &Option<Tunnel>| tunnel.is_none_or(|tunnel| tunnel.generation != peer.generation);
        if !place.is_some_and(stale) {
            return;
        }
        let template = self.tunnel(path).and_then(|way| peer.tunnelled(port, &way, config));
        let tunnel = template.map(|template| Tunnel {
            generation: peer.generation,
            template,
        });
        if let Some(place) = self.tunnels.get_mut(usize::from(path)) {
            *place = tunnel;
        }
    }

    /// The headers of packets on this path.
    pub(super) fn template<'a>(&'a self, path: u16, port: PortNum, peer: &'a Peer) -> Option<&'a L3Template> {
        match self.tunnels.get(usize::from(path)) {
            None => peer.template(port),
            Some(tunnel) => tunnel.as_ref().map(|tunnel| &tunnel.template),
        }
    }

    /// The paths that it has, for packets between the nodes.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> + '_ {
        (0..).zip(self.qp.ev_states()).map(|(path, view)| Way {
            port: view.entry.port,
            ev: view.entry.ev,
            tunnel: self.tunnel(path),
        })
    }

    /// Outer addresses of the path with this EV, with SRv6. Looks at all of them: not for every packet.
    pub(super) fn encap_of(&self, path: EvEntry) -> Option<Containers> {
        if self.tunnels.is_empty() {
            return None;
        }
        let at = self.qp.ev_states().position(|view| view.entry == path)?;
        self.qp.encap(at as u16)
    }

    /// Outer addresses of a path, with SRv6.
    fn tunnel(&self, path: u16) -> Option<Srv6Path> {
        Some(self.qp.encap(path)?.tunnel(self.outer_source?))
    }

    /// Calls with the paths withdrawn and returned on each port since the last time: of events, some may be lost.
    pub(super) fn count_paths(&mut self, mut count: impl FnMut(PortNum, u32, u32)) {
        for (counted, counts) in self.counted.iter_mut().zip(self.qp.path_counts()) {
            count(
                counts.port,
                counts.withdrawn.wrapping_sub(counted.withdrawn),
                counts.returned.wrapping_sub(counted.returned),
            );
            *counted = counts;
        }
    }

    /// Takes new requests out of the send ring. Returns the slots of those that contradict themselves: they have to fail.
    /// `requests` gets at most `most` of them; true if there are more.
    pub(super) fn fetch_sends(
        &mut self,
        now: mrc_protocol::Instant,
        most: usize,
        mut inconsistent: impl FnMut(&mut Qp, u32),
    ) -> Result<bool, RingCorrupt> {
        if !matches!(self.qp.state(), QpState::Rts | QpState::Err) || self.lingering {
            return Ok(false);
        }
        let (max_sge, max_inline) = (self.send.max_sge() as usize, self.send.max_inline() as usize);
        for _ in 0..most {
            // A client that posts more than its queue holds waits; the library does not.
            if self.sent.outstanding() >= self.send.depth() {
                return Ok(false);
            }
            let slot = self.sent.fetched as usize & (self.sources.len() - 1);
            let sges = &mut self.sges[slot * max_sge..][..max_sge];
            let inline = &mut self.inline[slot * max_inline..][..max_inline];
            let Some(entry) = self.send.fetch(sges, inline)? else {
                return Ok(false);
            };
            self.sent.fetched = self.sent.fetched.wrapping_add(1);
            let is_inline = entry.flags & SendEntry::INLINE != 0;
            let consistent = consistent(&entry, is_inline, sges, max_inline);
            self.sources[slot] = Source {
                num_sge: entry.num_sge,
                inline: is_inline,
                inconsistent: !consistent,
            };
            let request = SendRequest {
                wr_id: entry.wr_id,
                slot: slot as u32,
                len: if consistent { entry.length } else { 0 },
                remote_addr: entry.remote_addr,
                r_key: entry.rkey,
                imm: (entry.opcode == SendEntry::WRITE_WITH_IMM).then_some(entry.imm),
                solicited: entry.flags & SendEntry::SOLICITED != 0,
                signaled: entry.flags & SendEntry::SIGNALED != 0,
            };
            // State, depth and length have been checked, so the protocol takes it.
            let accepted = self.qp.handle_send(&request, now).is_ok();
            debug_assert!(accepted, "the engine checks what the protocol would refuse");
            if !consistent {
                inconsistent(&mut self.qp, slot as u32);
            }
        }
        Ok(true)
    }

    /// Takes new requests out of the receive ring. True if there were any.
    pub(super) fn fetch_recvs(&mut self) -> Result<bool, RingCorrupt> {
        if self.qp.state() == QpState::Reset || self.lingering {
            return Ok(false);
        }
        let mut any = false;
        while self.received.outstanding() < self.recv.depth() {
            let Some(entry) = self.recv.fetch()? else { break };
            self.received.fetched = self.received.fetched.wrapping_add(1);
            any = true;
            let accepted = self.qp.handle_recv(entry.wr_id).is_ok();
            debug_assert!(accepted, "the engine checks what the protocol would refuse");
        }
        Ok(any)
    }

    /// Forgets everything that was posted (RESET).
    pub(super) fn discard(&mut self) -> Result<(), RingCorrupt> {
        let next = self.send.discard()?;
        self.sent.reset(next);
        let next = self.recv.discard()?;
        self.received.reset(next);
        Ok(())
    }

    /// What a completion of the protocol looks like in the queue; `None`: the application asked for none.
    pub(super) fn completion(&mut self, completion: &Completion) -> Option<CompletionEntry> {
        let progress = if completion.queue == Queue::Send {
            &mut self.sent
        } else {
            &mut self.received
        };
        let wqe = progress.done;
        progress.done = wqe.wrapping_add(1);
        let mut status = wc_status(completion.status);
        let is_send = completion.queue == Queue::Send;
        if is_send && status == wc::LOC_PROT_ERR && self.sources.get(completion.slot as usize)?.inconsistent {
            status = wc::LOC_QP_OP_ERR;
        }
        if status == wc::SUCCESS && !completion.signaled && is_send {
            return None;
        }
        let failed = CompletionEntry {
            wr_id: completion.wr_id,
            qpn: self.qpn.get(),
            wqe,
            status,
            opcode: if is_send {
                CompletionEntry::RDMA_WRITE
            } else {
                CompletionEntry::RECV
            },
            solicited: (status != wc::SUCCESS).into(),
            ..CompletionEntry::default()
        };
        if status != wc::SUCCESS {
            return Some(failed);
        }
        let succeeded = CompletionEntry {
            src_qp: completion.src_qp.get(),
            byte_len: completion.byte_len,
            ..failed
        };
        if is_send {
            return Some(succeeded);
        }
        Some(CompletionEntry {
            opcode: CompletionEntry::RECV_RDMA_WITH_IMM,
            wc_flags: CompletionEntry::WITH_IMM,
            imm: completion.imm.unwrap_or_default(),
            solicited: completion.solicited.into(),
            ..succeeded
        })
    }

    /// Tells the application which requests have ended.
    pub(super) fn tell_progress(&mut self) {
        if self.sent.told != self.sent.done {
            self.sent.told = self.sent.done;
            self.send.complete(self.sent.done);
        }
        if self.received.told != self.received.done {
            self.received.told = self.received.done;
            self.recv.complete(self.received.done);
        }
    }

    /// The data of `[offset, offset + len)` of the request in `slot`.
    pub(super) fn data<'a>(&'a self, regions: &'a RegionTable, slot: u32, offset: u32, len: u32) -> Data<'a> {
        let slot = slot as usize & (self.sources.len() - 1);
        let source = self.sources[slot];
        let (max_sge, max_inline) = (self.send.max_sge() as usize, self.send.max_inline() as usize);
        let (sges, inline) = if source.inline {
            (&[][..], &self.inline[slot * max_inline..][..max_inline])
        } else {
            (
                &self.sges[slot * max_sge..][..usize::from(source.num_sge).min(max_sge)],
                &[][..],
            )
        };
        Data {
            regions,
            pd: self.pd,
            sges,
            inline,
            offset,
            len,
        }
    }
}

/// Part of the data of a send request.
pub(super) struct Data<'a> {
    regions: &'a RegionTable,
    pd: PdId,
    sges: &'a [Sge],
    inline: &'a [u8],
    offset: u32,
    len: u32,
}

impl Data<'_> {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Hands the data over in pieces: a length, and something that reads the piece from a position on.
    pub(super) fn pieces<E: From<RegionFault>>(
        &self,
        mut each: impl FnMut(usize, &dyn Fn(usize, &mut [u8])) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut skip, mut left) = (self.offset as usize, self.len as usize);
        if left == 0 {
            return Ok(());
        }
        if !self.inline.is_empty() {
            let bytes = self.inline.get(skip..skip + left).ok_or(RegionFault::OutOfBounds)?;
            return each(left, &|at, to| to.copy_from_slice(&bytes[at..at + to.len()]));
        }
        for sge in self.sges {
            let length = sge.length as usize;
            if skip >= length {
                skip -= length;
                continue;
            }
            let take = left.min(length - skip);
            let piece = self.regions.local(self.pd, sge.lkey, sge.addr, sge.length.into())?;
            each(take, &|at, to| {
                piece.read(skip + at, to);
            })?;
            left -= take;
            skip = 0;
            if left == 0 {
                return Ok(());
            }
        }
        Err(RegionFault::OutOfBounds.into())
    }
}

/// Does the request agree with itself and with the limits of its queue?
fn consistent(entry: &SendEntry, inline: bool, sges: &[Sge], max_inline: usize) -> bool {
    if entry.opcode > SendEntry::WRITE_WITH_IMM || entry.length > MAX_MESSAGE {
        return false;
    }
    if inline {
        return entry.length as usize <= max_inline;
    }
    let Some(sges) = sges.get(..entry.num_sge.into()) else {
        return false;
    };
    sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>() == u64::from(entry.length)
}

fn wc_status(status: Status) -> u8 {
    match status {
        Status::Success => wc::SUCCESS,
        Status::LocalProtection => wc::LOC_PROT_ERR,
        Status::Flushed => wc::WR_FLUSH_ERR,
        Status::RemoteInvalidRequest => wc::REM_INV_REQ_ERR,
        Status::RemoteAccess => wc::REM_ACCESS_ERR,
        Status::RemoteOperation => wc::REM_OP_ERR,
        Status::RetryExceeded => wc::RETRY_EXC_ERR,
    }
}
