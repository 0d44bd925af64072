//! All memory of a queue pair is allocated when it is made, and it is little (design: fixed limits, no allocation later).

#![expect(clippy::unwrap_used, reason = "a failure is to be seen")]
#![expect(unsafe_code, reason = "an allocator that counts can only be made with unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

use mrc_protocol::{
    Cx, InitAttr, Instant, NoMemory, PathConfig, PeerCaps, Qp, QpCreate, Qpcc, RetryAttr, RtrAttr, RtsAttr,
    SendRequest, Transmit, Tuning,
};
use mrc_wire::{Condition, Packet, Payload, Pmtu, PortNum, PortSet, Psn, Qpn};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        BYTES.with(|bytes| bytes.set(bytes.get().wrapping_add(layout.size())));
        // SAFETY: as the caller promised us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.with(|bytes| bytes.set(bytes.get().wrapping_sub(layout.size())));
        // SAFETY: as the caller promised us.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ALL: PortSet = PortSet::first(PortNum::MAX);

fn queue_pair(own: u32, peer: u32) -> Qp {
    let mut qp = Qp::new(QpCreate {
        qpn: Qpn::new(own),
        sq_depth: 128,
        rq_depth: 128,
        max_mpr: 8,
        max_wimm: 128,
        sq_sig_all: false,
        seed: [own as u8; 32],
        path: PathConfig::auto(PortSet::first(4)),
        tuning: Tuning::default(),
    })
    .unwrap();
    qp.handle_init(&InitAttr {
        p_key: 0xffff,
        remote_write: true,
    })
    .unwrap();
    let rtr = RtrAttr {
        dest_qpn: Qpn::new(peer),
        rq_psn: Psn::new(7),
        pmtu: Pmtu::B1024,
        mpr_dest: 8,
        max_wimm_dest: 128,
        trim_nack: true,
        dynamic_mpr: false,
        svc_time: false,
        peer: PeerCaps {
            trim_nack: true,
            ..PeerCaps::default()
        },
    };
    qp.handle_rtr(&rtr, Instant::ZERO).unwrap();
    let rts = RtsAttr {
        sq_psn: Psn::new(7),
        mpr: 8,
        max_wimm: 128,
        retry: RetryAttr::default(),
    };
    qp.handle_rts(&rts, Instant::ZERO).unwrap();
    qp
}

#[test]
fn queue_pair_at_the_default_window_takes_at_most_65_kib() {
    let before = BYTES.get();
    let qp = queue_pair(3, 4);
    let bytes = BYTES.get().wrapping_sub(before) + size_of::<Qp>();
    assert!(bytes <= 65 << 10, "{bytes} bytes");
    drop(qp);
    assert_eq!(BYTES.get(), before);
}

#[test]
fn nothing_is_allocated_after_creation() {
    let mut ends = [queue_pair(3, 4), queue_pair(4, 3)];
    let mut cc = [Qpcc::fixed(192), Qpcc::fixed(192)];
    let nowhere = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut wires: Vec<(usize, Transmit)> = Vec::with_capacity(4096);
    let mut now = Instant::ZERO;
    let mut delivered = 0_u64;
    let before = ALLOCATIONS.get();
    for round in 0..3000_u64 {
        for (end, (qp, cc)) in ends.iter_mut().zip(&mut cc).enumerate() {
            // Empty messages need no memory to land in.
            let imm = round.is_multiple_of(3).then_some([1; 4]);
            let request = SendRequest {
                wr_id: round,
                slot: 0,
                len: 0,
                remote_addr: 0,
                r_key: 0,
                imm,
                solicited: false,
                signaled: true,
            };
            let _ = qp.handle_send(&request, now);
            let _ = qp.handle_recv(round);
            let mut cx = Cx::new(now, cc, unused());
            if round % 500 == 250 {
                let down = if round.is_multiple_of(1000) {
                    ALL
                } else {
                    PortSet::first(2)
                };
                qp.handle_ports(&mut cx, down, ALL);
            }
            while let Some(transmit) = qp.poll_transmit(&mut cx, ALL) {
                wires.push((1 - end, transmit));
            }
            while qp.poll_completion().is_some() {}
            while qp.poll_event().is_some() {}
        }
        now = now + 20_000;
        for (n, (to, transmit)) in wires.drain(..).enumerate() {
            // Some are lost, some trimmed, some marked, and they do not arrive in order.
            if (round + n as u64).is_multiple_of(17) {
                continue;
            }
            let trimmed = transmit.bth.opcode.is_write() && (round + n as u64).is_multiple_of(11);
            let packet = Packet {
                bth: transmit.bth,
                headers: transmit.headers,
                payload: Payload::EMPTY,
                condition: if trimmed {
                    Condition::Trimmed { last_hop: false }
                } else {
                    Condition::Whole
                },
                ev: transmit.ev,
                ce: n % 13 == 0,
                dscp: 0,
                udp_len: 60,
                src: nowhere,
                dst: nowhere,
            };
            let mut cx = Cx::new(now, &mut cc[to], unused());
            ends[to].handle_packet(&mut cx, &packet, transmit.port);
            delivered += 1;
        }
        for (qp, cc) in ends.iter_mut().zip(&mut cc) {
            qp.end_of_batch(now);
            let mut cx = Cx::new(now, cc, unused());
            if qp.next_timeout().is_some_and(|due| due <= now) {
                qp.handle_timeout(&mut cx);
            }
        }
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(delivered > 10_000, "{delivered}");
    assert!(
        ends.iter().all(|qp| qp.stats().packets_retransmitted > 100),
        "{:?}",
        ends[0].stats()
    );
}

/// No packet here carries data.
fn unused() -> &'static mut NoMemory {
    // Of a type without size: nothing is allocated, nothing leaks.
    Box::leak(Box::new(NoMemory))
}
