//! The way of a packet through the engine allocates nothing. Needs root.

#![expect(unsafe_code, reason = "counts what the allocator is asked for")]

#[path = "../src/engine/tests/end.rs"]
mod end;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use end::{Choice, End, connect};
use mrc_dataplane::config_file;
use mrc_dataplane::engine::{Engine, EngineConfig};
use netns_lab::{Lab, Topology};

struct Counting;

/// Made by engine threads.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Is this an engine thread? Not known at first.
    static IS_ENGINE: Cell<Option<bool>> = const { Cell::new(None) };
}

fn is_engine() -> bool {
    let known = IS_ENGINE.try_with(Cell::get);
    let Ok(None) = known else {
        return known.is_ok_and(|known| known == Some(true));
    };
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let is_engine = name.starts_with(b"mrc-engine");
    IS_ENGINE.set(Some(is_engine));
    is_engine
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_engine() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Writes all of A's memory to B a few times; returns how many packets that took.
fn write(a: &mut End, b: &End, times: u64) -> u64 {
    let sent = |a: &End| {
        a.engine
            .counters()
            .ports
            .iter()
            .map(|port| port.tx_packets)
            .sum::<u64>()
    };
    let before = sent(a);
    let target = b.target();
    for id in 0..times {
        a.write(id, &target, 0, a.memory.len());
        assert_eq!(a.completion().status, 0);
    }
    sent(a) - before
}

/// Structured EVs, ports with a speed, and with it congestion control.
const PROFILED: &str = "
device = { ev_profile = 'four' }
port = [{ name = 'p1', speed_bps = 10_000_000_000 }, { name = 'p2', speed_bps = 10_000_000_000 }]
ev_format_profile = [{ name = 'structured', mode = 'STEV', fields = [16, 16] }]
[[ev_profile]]
name = 'four'
mode = 'EXPLICIT'
format = 'structured'
active = 4
evs = [{ port = 1, ev = '1001d001' }, { port = 1, ev = '1002d002' }, { port = 2, ev = '2001d003' }, { port = 2, ev = '2002d004' }]
";

#[test]
fn ten_thousand_packets_allocate_nothing() {
    let lab = Lab::build(&Topology::pair(2)).expect("the lab can be built (needs root)");
    let plain = EngineConfig::with_ports(lab.host(0).port_names());
    let profiled = config_file::parse(PROFILED, "profiled.toml", plain.clone()).expect("a valid file");
    for config in [plain, profiled] {
        let choice = Choice {
            memory: 4 << 20,
            ..Choice::default()
        };
        let [mut a, b] = [0, 1].map(|host| {
            let config = config.clone();
            End::new(
                lab.host(host)
                    .enter(|| Engine::start(config))
                    .expect("inside the host")
                    .expect("an engine"),
                &choice,
            )
        });
        connect(&a, &b, &choice);
        connect(&b, &a, &choice);
        write(&mut a, &b, 2);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(before > 0, "making the queue pairs did allocate, on engine threads");
        let packets = write(&mut a, &b, 10);
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert!(packets >= 10_000, "{packets} packets");
        assert_eq!(allocations, 0, "for {packets} packets");
        drop((a, b));
    }
}
