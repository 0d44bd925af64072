//! Opening the ports of an engine: one packet memory, and per interface an owner, a steering program and a socket.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mrc_ebpf::{Mode, Settings, Steering};
use mrc_wire::{Encap, Pmtu, PortNum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::afxdp::Hold;
use super::ethtool::{link_speed_bps, receive_queues};
use super::owner::{FORK_PATIENCE, Ownership};
use super::xsk::{Bind, CHUNK_LEN, CHUNK_SIZE, Memory, RING_SIZE};
use super::{AfXdpPort, AttachMode, LinkState, PortCounters, PortError, PortMode};

/// Ethernet header and one VLAN tag.
const ETHERNET_OVERHEAD: usize = 18;
/// A queue stays busy for some 40 ms after its last socket was closed; a killed engine's sockets take longer.
const QUEUE_PATIENCE: Duration = Duration::from_secs(1);

/// One port to open.
#[derive(Debug, Clone)]
pub struct PortSpec {
    /// Its number.
    pub num: PortNum,
    /// Name of the interface.
    pub name: String,
    /// Receive and transmit queue.
    pub queue: u32,
    /// The interface's state, as the netlink watcher keeps it.
    pub link: Arc<LinkState>,
}

/// How to open ports.
#[derive(Debug, Clone)]
pub struct PortOptions {
    /// UDP destination ports that are MRC's.
    pub udp_ports: Vec<u16>,
    /// DSCPs by which switches mark packets that they have cut.
    pub trimmed_dscps: Vec<u8>,
    /// Chunks (4 KiB) per port to receive into, at most 512. Small is fast: memory that is reused stays in the cache.
    pub rx_chunks: u32,
    /// Frames per port that may be with the kernel. A veth ring holds 256 and drops what is more.
    pub tx_window: u32,
    /// Let a frame span several chunks where the MTU needs it. `false`: as on Linux before 6.6.
    pub multi_buffer: bool,
    /// Never let the driver use our memory directly.
    pub force_copy: bool,
    /// Run the steering program in generic mode, though the driver may have a native one.
    pub force_generic: bool,
}

impl Default for PortOptions {
    fn default() -> Self {
        Self {
            udp_ports: vec![mrc_wire::DEFAULT_UDP_PORT],
            trimmed_dscps: vec![12, 16],
            rx_chunks: RING_SIZE,
            tx_window: 192,
            multi_buffer: true,
            force_copy: false,
            force_generic: false,
        }
    }
}

/// Opens all ports of an engine; their frames share one memory. Several queues of one interface share its program.
pub fn open_ports(specs: &[PortSpec], options: &PortOptions) -> Result<Vec<AfXdpPort>, PortError> {
    match open_once(specs, options) {
        // One memory is either all zero-copy or all copy: a port whose driver has none makes it copy for all.
        Err(PortError::NoZeroCopy { .. }) if !options.force_copy => open_once(
            specs,
            &PortOptions {
                force_copy: true,
                ..options.clone()
            },
        ),
        result => result,
    }
}

fn open_once(specs: &[PortSpec], options: &PortOptions) -> Result<Vec<AfXdpPort>, PortError> {
    let settings = Settings::new(&options.udp_ports, options.trimmed_dscps.iter().copied())
        .map_err(|error| PortError::Steering(error.into()))?;
    let rx_chunks = options.rx_chunks.clamp(64, RING_SIZE) as usize;
    let window = options.tx_window.clamp(1, RING_SIZE / 2) as usize;

    let mut holds = BTreeMap::new();
    for spec in specs {
        if !holds.contains_key(&spec.name) {
            holds.insert(spec.name.clone(), hold(&spec.name, &settings)?);
        }
    }
    let chunks: usize = specs
        .iter()
        .map(|spec| rx_chunks + window * chunks_per_frame(&spec.link))
        .sum();
    let mut memory = allocate(specs, chunks)?;
    let mut ports = Vec::with_capacity(specs.len());
    for spec in specs {
        let Some(hold) = holds.get(&spec.name) else { continue };
        ports.push(open_one(spec, options, &mut memory, hold, rx_chunks, window)?);
    }
    for port in &mut ports {
        attach(port, !options.force_generic)?;
        warn_of_unserved_queues(port, specs);
    }
    Ok(ports)
}

/// A packet of ours on a queue without a socket goes to the kernel, which has no use for it.
fn warn_of_unserved_queues(port: &mut AfXdpPort, specs: &[PortSpec]) {
    let served = specs.iter().filter(|spec| spec.name == port.name).count();
    if let Some(queues) = receive_queues(&port.name)
        && queues as usize > served
    {
        let name = &port.name;
        let reason = format!(
            "{name} has {queues} receive queues and the engine serves {served}: what arrives on the others is lost \
             (ethtool -L {name} combined {served})"
        );
        tracing::warn!(port = port.num.get(), "{reason}");
        port.mode.reasons.push(reason);
    }
}

/// The interface becomes ours, and its program is loaded, but nothing is diverted yet.
fn hold(name: &str, settings: &Settings) -> Result<Arc<Hold>, PortError> {
    let index =
        nix::net::if_::if_nametoindex(name).map_err(|_| PortError::UnknownInterface { name: name.to_owned() })?;
    let ownership = Ownership::take(name, index)?;
    let steering = Steering::load(name, settings)?;
    Ok(Arc::new(Hold {
        steering: Mutex::new(steering),
        _ownership: ownership,
    }))
}

fn allocate(specs: &[PortSpec], chunks: usize) -> Result<Memory, PortError> {
    let needed = (chunks * CHUNK_SIZE) as u64;
    let name = || {
        specs
            .iter()
            .map(|spec| spec.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((u64::MAX, u64::MAX));
    if soft < needed && hard > soft {
        // What we may raise ourselves is no reason to bother anybody.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
    Memory::new(chunks as u32).map_err(|error| memory_error(name(), needed, hard, error))
}

fn memory_error(name: String, needed: u64, limit: u64, error: io::Error) -> PortError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => PortError::NoPrivilege { name },
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => PortError::NoAfXdp,
        Some(libc::ENOBUFS) if limit < needed => PortError::MemoryLock { needed, limit },
        _ => PortError::Memory { needed, source: error },
    }
}

fn open_one(
    spec: &PortSpec,
    options: &PortOptions,
    memory: &mut Memory,
    hold: &Arc<Hold>,
    rx_chunks: usize,
    window: usize,
) -> Result<AfXdpPort, PortError> {
    let mut per_frame = chunks_per_frame(&spec.link);
    let mut reasons = Vec::new();
    if per_frame > 1 && !options.multi_buffer {
        reasons.push(format!(
            "no multi-buffer, as asked: frames of at most {CHUNK_LEN} bytes"
        ));
        per_frame = 1;
    }
    let mut bind = Bind {
        interface: &spec.name,
        queue: spec.queue,
        multi_buffer: per_frame > 1,
        force_copy: options.force_copy,
        rx_chunks,
        tx_chunks: window * per_frame,
    };
    let (sender, receiver) = loop {
        match open_patiently(memory, &bind) {
            Ok(halves) => break halves,
            // The kernel does not know the flag.
            Err(error) if bind.multi_buffer && error.raw_os_error() == Some(libc::EINVAL) => {
                reasons.push(format!(
                    "no multi-buffer, which needs Linux 6.6: frames of at most {CHUNK_LEN} bytes"
                ));
                per_frame = 1;
                bind.multi_buffer = false;
                bind.tx_chunks = window;
            }
            Err(error) => return Err(socket_error(spec, &error)),
        }
    };
    hold.steering
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .set_socket(spec.queue, &receiver.fd())?;
    if options.force_copy {
        reasons.push("copy mode was asked for, or another port of the engine has no zero-copy".to_owned());
    } else if !sender.zero_copy() {
        reasons.push("the driver has no zero-copy".to_owned());
    }
    Ok(AfXdpPort {
        num: spec.num,
        name: spec.name.clone(),
        mode: PortMode {
            attach: AttachMode::Native,
            zero_copy: sender.zero_copy(),
            multi_buffer: bind.multi_buffer,
            reasons,
        },
        link: Arc::clone(&spec.link),
        link_speed_bps: link_speed_bps(&spec.name),
        sender,
        receiver,
        window,
        chunks_per_frame: per_frame,
        kick_due: false,
        spoilt: false,
        counters: PortCounters::default(),
        hold: Arc::clone(hold),
    })
}

fn open_patiently(memory: &mut Memory, bind: &Bind<'_>) -> io::Result<(super::xsk::Sender, super::xsk::Receiver)> {
    let deadline = Instant::now() + QUEUE_PATIENCE;
    loop {
        match memory.open(bind) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Diverts MRC to the sockets, which are all in place now.
fn attach(port: &mut AfXdpPort, native: bool) -> Result<(), PortError> {
    let mut steering = port.hold.steering.lock().unwrap_or_else(PoisonError::into_inner);
    if steering.attached().is_none() {
        attach_patiently(&mut steering, &port.name, native)?;
    }
    let Some(attached) = steering.attached() else {
        return Ok(());
    };
    if attached.mode() == Mode::Generic {
        port.mode.attach = AttachMode::Generic;
    }
    if let Some(reason) = attached.reason() {
        port.mode.reasons.insert(0, format!("generic mode: {reason}"));
    }
    drop(steering);
    tracing::info!(port = port.num.get(), interface = port.name, mode = %port.mode, "port open");
    Ok(())
}

/// The port is ours, so another program of our kind is one whose owner is gone, and which goes at once.
fn attach_patiently(steering: &mut Steering, name: &str, native: bool) -> Result<(), mrc_ebpf::Error> {
    let deadline = Instant::now() + FORK_PATIENCE;
    loop {
        match steering.attach(name, native) {
            Err(mrc_ebpf::Error::Occupied { occupant, .. })
                if occupant.name.as_deref() == Some("steer") && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result.map(drop),
        }
    }
}

fn socket_error(spec: &PortSpec, error: &io::Error) -> PortError {
    let name = spec.name.clone();
    match error.raw_os_error() {
        Some(libc::EBUSY) => PortError::QueueBusy {
            name,
            queue: spec.queue,
            waited_ms: QUEUE_PATIENCE.as_millis() as u64,
        },
        Some(libc::EPERM | libc::EACCES) => PortError::NoPrivilege { name },
        Some(libc::ENODEV) => PortError::UnknownInterface { name },
        Some(libc::EOPNOTSUPP) => PortError::NoZeroCopy { name },
        Some(libc::EINVAL) => PortError::Socket {
            name,
            queue: spec.queue,
            what: format!(
                "{error}; is there a queue {}? `ethtool -l` shows how many there are",
                spec.queue
            ),
        },
        _ => PortError::Socket {
            name,
            queue: spec.queue,
            what: error.to_string(),
        },
    }
}

fn chunks_per_frame(link: &LinkState) -> usize {
    if largest_frame(link.mtu()) > CHUNK_LEN { 2 } else { 1 }
}

/// The longest Ethernet frame of an interface with this MTU.
pub fn largest_frame(mtu: u32) -> usize {
    mtu as usize + ETHERNET_OVERHEAD
}

/// The largest PMTU that a port can carry with this encapsulation; `None` if not even 256.
pub fn largest_pmtu(mtu: u32, multi_buffer: bool, encap: Encap) -> Option<Pmtu> {
    let chunks = if multi_buffer { 2 } else { 1 };
    Pmtu::from_mtu((mtu as usize).min(chunks * CHUNK_LEN - ETHERNET_OVERHEAD), encap)
}

/// Says in one line why a port cannot carry a PMTU, if it cannot.
pub fn require_pmtu(port: &dyn super::Port, pmtu: Pmtu, encap: Encap) -> Result<(), PortError> {
    let (mtu, mode) = (port.mtu(), port.mode());
    let largest = largest_pmtu(mtu, mode.multi_buffer, encap);
    if largest.is_some_and(|largest| largest >= pmtu) {
        return Ok(());
    }
    let (name, needed_mtu) = (port.name().to_owned(), pmtu.min_ip_mtu(encap));
    if needed_mtu > mtu as usize {
        return Err(PortError::MtuTooSmall {
            name,
            pmtu,
            mtu,
            needed_mtu,
            largest,
        });
    }
    let reason = mode
        .reasons
        .iter()
        .find(|reason| reason.contains("multi-buffer"))
        .cloned()
        .unwrap_or_else(|| "the MTU was raised after it was opened: restart the engine".to_owned());
    Err(PortError::NoMultiBuffer {
        name,
        pmtu,
        reason,
        largest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(errno: i32) -> String {
        memory_error("p1, p2".into(), 1 << 20, 65536, io::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn what_the_kernel_says_to_packet_memory_becomes_a_remedy() {
        assert!(text(libc::EAFNOSUPPORT).contains("no AF_XDP sockets: MRC needs Linux 6.1"));
        assert!(text(libc::EPERM).contains("p1, p2 needs the capabilities CAP_NET_RAW"));
        assert!(
            text(libc::ENOBUFS).contains("needs 1048576 bytes of locked memory, the limit (RLIMIT_MEMLOCK) is 65536")
        );
        assert!(text(libc::ENOMEM).contains("1048576 bytes of packet memory"));
    }

    #[test]
    fn what_the_kernel_says_to_a_socket_becomes_a_remedy() {
        let link = Arc::new(LinkState::new(true, 1500, [0; 6]));
        let spec = PortSpec {
            num: PortNum::new(1).unwrap(),
            name: "p1".into(),
            queue: 3,
            link,
        };
        let text = |errno| socket_error(&spec, &io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::EBUSY).contains("queue 3 of p1 is in use by another AF_XDP socket"));
        assert!(text(libc::EINVAL).contains("is there a queue 3?"));
        assert!(text(libc::ENODEV).contains("unknown interface p1"));
    }

    #[test]
    fn the_largest_pmtu_follows_mtu_and_multi_buffer() {
        let table = [
            (1500, true, Some(Pmtu::B1024)),
            (3506, true, Some(Pmtu::B2048)),
            (9000, true, Some(Pmtu::B4096)),
            (9000, false, Some(Pmtu::B2048)),
            (4187, true, Some(Pmtu::B2048)),
            (4188, true, Some(Pmtu::B4096)),
            (300, true, None),
        ];
        for (mtu, multi_buffer, expected) in table {
            assert_eq!(
                largest_pmtu(mtu, multi_buffer, Encap::Ipv6),
                expected,
                "MTU {mtu}, multi-buffer {multi_buffer}"
            );
        }
    }
}
