//! Delay of what a host sends: a detour through this process.
//!
//! No queueing discipline of the kernel delays. So the switch's port hands what comes in from the host to an interface of its own, whose
//! other end a thread reads; the thread sends each packet back when its time has come, and the switch takes it as if the host had sent it
//! then. A packet costs the machine about 10 us more, and is late by what the thread's waking takes.
#![expect(unsafe_code, reason = "an address for a packet socket")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::time::TimeSpec;

use crate::LabError;
use crate::plan::{End, Interface};
use crate::switch::Switches;
use crate::wiring::Wiring;

/// Largest frame.
const FRAME: usize = 65_536;
/// How soon the thread notices that it is to end.
const TICK: Duration = Duration::from_millis(20);
/// More packets wait for nobody.
const WAITING: usize = 65_536;

/// A detour of one port, until [`Self::end`].
#[derive(Debug)]
pub(crate) struct Delay {
    at: End,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Delay {
    /// Delays what comes in by a switch's port from its host.
    pub(crate) fn start(wiring: &Arc<Wiring>, switches: &Switches, at: End, delay: Duration) -> Result<Self, LabError> {
        let (port, index) = (wiring.plan.interface(at), wiring.index(at));
        let [entry, line] = wiring.detour(at);
        let interface = |name: String, mac| Interface {
            name,
            mac,
            mtu: port.mtu,
            addresses: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
            plane: None,
            rate_bps: None,
        };
        // The kernel forwards only what is addressed to the interface that it comes in by.
        let near = interface(format!("d-{}", port.name), port.mac);
        let far = interface(
            format!("l-{}", port.name),
            [0x02, 0x02, port.mac[2], port.mac[3], port.mac[4], 1],
        );
        {
            let namespace = &wiring.namespaces[at.node];
            let mut rtnl = namespace.rtnl();
            rtnl.add_veth((&near, entry), (&far, line), namespace.as_fd())?;
            switches.attach_detour(&mut rtnl, index, entry)?;
            rtnl.set_up(entry, true)?;
            rtnl.set_up(line, true)?;
            rtnl.flush()?;
        }
        wiring.wait_index(at.node, entry)?;
        let stop = Arc::new(AtomicBool::new(false));
        let host = wiring.plan.far(at).map_or([0; 6], |far| wiring.plan.interface(far).mac);
        let (ready, started) = mpsc::channel();
        let thread = {
            let (wiring, stop) = (Arc::clone(wiring), Arc::clone(&stop));
            thread::spawn(move || {
                let opened = wiring.namespaces[at.node]
                    .join()
                    .and_then(|()| open(line).map_err(|e| LabError::kernel("open a packet socket for a delay", e)));
                match opened {
                    Ok(socket) => {
                        let _ = ready.send(Ok(()));
                        run(&socket, host, delay, &stop);
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            })
        };
        let delay = Self {
            at,
            stop,
            thread: Some(thread),
        };
        match started.recv() {
            Ok(Ok(())) => switches.set_detour(index, entry)?,
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
        Ok(delay)
    }

    /// Takes the detour away; what is on it goes on at once.
    pub(crate) fn end(mut self, wiring: &Wiring, switches: &Switches) -> Result<(), LabError> {
        switches.set_detour(wiring.index(self.at), 0)?;
        self.join();
        let mut rtnl = wiring.namespaces[self.at.node].rtnl();
        rtnl.delete_link(wiring.detour(self.at)[0])?;
        rtnl.flush()
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.join();
    }
}

/// A packet socket on an interface of the calling thread's namespace.
fn open(index: u32) -> io::Result<OwnedFd> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: a system call without pointers.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeroes is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer leads to a value that outlives the call, and the length is its own.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Sends back what the host sent, each packet `delay` after it came; the rest at once when told to stop.
fn run(socket: &OwnedFd, host: [u8; 6], delay: Duration, stop: &AtomicBool) {
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; FRAME];
    // A frame that the kernel does not take is lost, as on any link.
    let pass = |frame: &[u8]| {
        let _ = send(socket.as_raw_fd(), frame, MsgFlags::empty());
    };
    while !stop.load(Ordering::Acquire) {
        let now = Instant::now();
        while let Some((_, frame)) = waiting.pop_front_if(|(due, _)| *due <= now) {
            pass(&frame);
        }
        while let Ok(length) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            // What the kernel itself says on the detour stays there.
            if waiting.len() < WAITING && buffer.get(6..12) == Some(&host) {
                waiting.push_back((Instant::now() + delay, buffer[..length].to_vec()));
            }
        }
        let patience = waiting
            .front()
            .map_or(TICK, |(due, _)| due.saturating_duration_since(Instant::now()).min(TICK));
        let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(patience)), None);
    }
    for (_, frame) in &waiting {
        pass(frame);
    }
}
