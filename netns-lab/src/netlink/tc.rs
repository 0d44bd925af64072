//! Queues and programs at a port: HTB with a class for control and one for data, clsact with the switch programs.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption};

use super::Rtnl;
use crate::LabError;

/// Bytes that an Ethernet link carries beside what the kernel counts: preamble, frame check sequence, gap.
const LINK_OVERHEAD: i32 = 24;
/// A port that was kept from sending, by a busy machine, catches up on at most this time.
const BURST_US: u64 = 1_000;
/// Bytes that a class sends before another of the same priority has its turn; no two have the same here.
const QUANTUM: u32 = 10_000;
/// Packets in a class: the switch programs limit bytes, and long before.
const CLASS_PACKETS: u32 = 10_000;
/// Packets in the queue of a host's own kernel; the engine's do not pass it.
const HOST_PACKETS: u32 = 256;

// <linux/pkt_sched.h> and <linux/rtnetlink.h>
const TCA_OPTIONS: u16 = 2;
const TCA_STAB_BASE: u16 = 1;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const HTB_VERSION: u32 = 3;
const LINKLAYER_ETHERNET: u8 = 1;
/// The kernel counts bursts in ticks of 64 ns.
const TICK_SHIFT: u32 = 6;
const CLSACT: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0xfff1,
};
const CLSACT_INGRESS: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0xfff2,
};
const CLSACT_EGRESS: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0xfff3,
};
const ETH_P_ALL: u16 = 3;

const fn class(minor: u16) -> TcHandle {
    TcHandle { major: 1, minor }
}

const QDISC: TcHandle = class(0);
const ALL: TcHandle = class(1);
/// `CLASS_CONTROL` and `CLASS_DATA` of bpf/switch.h.
const CONTROL: TcHandle = class(0x10);
const DATA: TcHandle = class(0x20);

/// One class of an HTB.
struct Class {
    handle: TcHandle,
    parent: TcHandle,
    /// What it has for itself, and what it may have at most, bytes per second.
    rate: u64,
    ceil: u64,
    prio: u32,
}

/// Control has nearly all for itself and is served first; data takes what is left.
fn switch_classes(rate_bps: u64) -> [Class; 3] {
    let ceil = rate_bps / 8;
    [
        (ALL, QDISC, ceil, 0),
        (CONTROL, ALL, ceil - ceil / 100, 0),
        (DATA, ALL, ceil / 100, 1),
    ]
    .map(|(handle, parent, rate, prio)| Class {
        handle,
        parent,
        rate,
        ceil,
        prio,
    })
}

impl Rtnl {
    /// Gives a switch's port its queue: a class for control, served first, and one for data, together `rate_bps` fast.
    pub(crate) fn add_switch_queue(&mut self, index: u32, rate_bps: u64) -> Result<(), LabError> {
        self.add_htb(index, DATA)?;
        for class in switch_classes(rate_bps) {
            self.set_class(index, &class, NLM_F_CREATE | NLM_F_EXCL)?;
        }
        self.add_fifo(index, CONTROL, CLASS_PACKETS)?;
        self.add_fifo(index, DATA, CLASS_PACKETS)
    }

    /// Sets the speed of a queue that [`Self::add_switch_queue`] made.
    pub(crate) fn set_switch_rate(&mut self, index: u32, rate_bps: u64) -> Result<(), LabError> {
        let mut classes = switch_classes(rate_bps).into_iter();
        classes.try_for_each(|class| self.set_class(index, &class, 0))
    }

    /// Slows what a host's own kernel sends down to the link's speed.
    pub(crate) fn add_host_queue(&mut self, index: u32, rate_bps: u64) -> Result<(), LabError> {
        let rate = rate_bps / 8;
        self.add_htb(index, ALL)?;
        let all = Class {
            handle: ALL,
            parent: QDISC,
            rate,
            ceil: rate,
            prio: 0,
        };
        self.set_class(index, &all, NLM_F_CREATE | NLM_F_EXCL)?;
        self.add_fifo(index, ALL, HOST_PACKETS)
    }

    fn add_htb(&mut self, index: u32, default: TcHandle) -> Result<(), LabError> {
        // Version, bytes of rate per byte of quantum, class of packets that name none, debug, packets that bypassed it.
        let init = [HTB_VERSION, 10, default.minor.into(), 0, 0];
        // A size table makes the kernel measure packets again at the queue, after a program has cut them.
        let mut stab = Vec::new();
        stab.extend([0_u8; 4]);
        stab.extend(LINK_OVERHEAD.to_ne_bytes());
        stab.extend(u32::from(LINKLAYER_ETHERNET).to_ne_bytes());
        stab.extend([0_u8; 12]);
        let attributes = vec![
            TcAttribute::Kind("htb".to_owned()),
            TcAttribute::Options(vec![option(TCA_HTB_INIT, words(&init))]),
            TcAttribute::Stab(nested(TCA_STAB_BASE, &stab)),
        ];
        let message = tc(index, QDISC, TcHandle::ROOT, attributes);
        let action = format!("add a queue to interface {index} (needs CONFIG_NET_SCH_HTB)");
        self.push(
            action,
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    fn set_class(&mut self, index: u32, class: &Class, flags: u16) -> Result<(), LabError> {
        let (rate, ceil) = (class.rate.max(1), class.ceil.max(1));
        let mut parms = Vec::new();
        for rate in [rate, ceil] {
            // Cell size, link layer, overhead, alignment, smallest packet: nothing of it is left to a table.
            parms.extend([0, LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
            parms.extend((rate as u32).to_ne_bytes());
        }
        let ticks = ((BURST_US * 1_000) >> TICK_SHIFT) as u32;
        // Burst and burst of the ceiling, both as a time at that rate; a child's own rate may be small, and its burst is then of the
        // parent's bytes.
        let own_ticks = (u64::from(ticks) * ceil / rate).min(u32::MAX.into()) as u32;
        parms.extend(words(&[own_ticks, ticks, QUANTUM, 0, class.prio]));
        let attributes = vec![
            TcAttribute::Kind("htb".to_owned()),
            TcAttribute::Options(vec![option(TCA_HTB_PARMS, parms)]),
        ];
        let message = tc(index, class.handle, class.parent, attributes);
        let action = format!("set class {} of interface {index}", class.handle);
        self.push(action, RouteNetlinkMessage::NewTrafficClass(message), flags)
    }

    fn add_fifo(&mut self, index: u32, parent: TcHandle, packets: u32) -> Result<(), LabError> {
        let handle = TcHandle {
            major: parent.minor,
            minor: 0,
        };
        let handle = if handle == QDISC {
            TcHandle { major: 0x10, minor: 0 }
        } else {
            handle
        };
        let attributes = vec![
            TcAttribute::Kind("pfifo".to_owned()),
            // Not nested: the structure itself.
            TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, words(&[packets]))),
        ];
        let message = tc(index, handle, parent, attributes);
        let action = format!("add a queue to class {parent} of interface {index}");
        self.push(
            action,
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Puts a program at an interface's ingress, and one at its egress if there is one.
    pub(crate) fn add_programs(
        &mut self,
        index: u32,
        ingress: BorrowedFd<'_>,
        egress: Option<BorrowedFd<'_>>,
    ) -> Result<(), LabError> {
        let handle = TcHandle {
            major: 0xffff,
            minor: 0,
        };
        let message = tc(index, handle, CLSACT, vec![TcAttribute::Kind("clsact".to_owned())]);
        let action = format!("prepare interface {index} for programs (needs CONFIG_NET_SCH_INGRESS)");
        self.push(
            action,
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )?;
        let programs = [
            (CLSACT_INGRESS, Some(ingress), "ingress"),
            (CLSACT_EGRESS, egress, "egress"),
        ];
        for (parent, fd, name) in programs {
            let Some(fd) = fd else { continue };
            let options = vec![
                TcOption::Bpf(TcFilterBpfOption::ProgFd(fd.as_raw_fd() as u32)),
                TcOption::Bpf(TcFilterBpfOption::ProgName(name.to_owned())),
                TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
            ];
            let attributes = vec![TcAttribute::Kind("bpf".to_owned()), TcAttribute::Options(options)];
            let mut message = tc(index, TcHandle::UNSPEC, parent, attributes);
            message.header.info = 1 << 16 | u32::from(ETH_P_ALL.to_be());
            let action = format!("attach the switch's {name} program to interface {index} (needs CONFIG_NET_CLS_BPF)");
            self.push(
                action,
                RouteNetlinkMessage::NewTrafficFilter(message),
                NLM_F_CREATE | NLM_F_EXCL,
            )?;
        }
        Ok(())
    }
}

fn tc(index: u32, handle: TcHandle, parent: TcHandle, attributes: Vec<TcAttribute>) -> TcMessage {
    let mut message = TcMessage::with_index(index as i32);
    message.header.handle = handle;
    message.header.parent = parent;
    message.attributes = attributes;
    message
}

fn option(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// An attribute as bytes; its value is a multiple of four long.
fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from((value.len() as u16 + 4).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes
}
