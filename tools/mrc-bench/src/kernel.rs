//! What a user would otherwise pick: sockets of the kernel over the same kind of link.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netns_lab::{Lab, Topology};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, setsockopt, sockopt};

use crate::bare::{PORT, REGION, WARM_UP, pin};
use crate::error::BenchError;

/// Messages per system call.
const BATCH: usize = 64;
/// A receiver looks this often whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// May the kernel hand the link more than a packet at a time? A veth never cuts such giants up, a wire would have to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offload {
    On,
    Off,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tcp {
    Cubic,
    Bbr,
}

impl Tcp {
    fn name(self) -> &'static str {
        match self {
            Tcp::Cubic => "cubic",
            Tcp::Bbr => "bbr",
        }
    }
}

/// A lab of two hosts.
pub(crate) struct Kernel {
    lab: Lab,
}

impl Kernel {
    /// Builds the lab with links of this MTU.
    pub(crate) fn build(mtu: u32, offload: Offload) -> Result<Kernel, BenchError> {
        let lab = Lab::build(&Topology::pair(1).mtu(mtu))?;
        if offload == Offload::Off {
            for host in 0..2 {
                lab.host(host).enter(one_packet_at_a_time)??;
            }
        }
        Ok(Kernel { lab })
    }

    /// Gb/s that arrive over one connection.
    pub(crate) fn tcp(&self, control: Tcp, seconds: f64) -> Result<f64, BenchError> {
        let address = self.lab.host(1).gid_v4();
        let listener = self.lab.host(1).enter(|| TcpListener::bind((address, 0)))?;
        let listener = listener.map_err(failed("listen"))?;
        let to = listener.local_addr().map_err(failed("listen"))?;
        let stream = self.lab.host(0).enter(|| connect(to, control))?;
        let stream = stream.map_err(failed("connect"))?;
        let (accepted, _) = listener.accept().map_err(failed("accept"))?;
        accepted.set_read_timeout(Some(LOOK)).map_err(failed("a TCP socket"))?;
        measure(
            seconds,
            move |running| stream_out(stream, running),
            move |running, arrived| stream_in(accepted, running, arrived),
        )
    }

    /// Gb/s of messages of `len` bytes that arrive; what the receiver is too slow for is lost.
    pub(crate) fn udp(&self, len: usize, seconds: f64) -> Result<f64, BenchError> {
        let bind = |host: usize| -> Result<UdpSocket, BenchError> {
            let address: Ipv4Addr = self.lab.host(host).gid_v4();
            let socket = self.lab.host(host).enter(|| UdpSocket::bind((address, 0)))?;
            socket.map_err(failed("a UDP socket"))
        };
        let (source, target) = (bind(0)?, bind(1)?);
        let to = target.local_addr().map_err(failed("a UDP socket"))?;
        source.connect(to).map_err(failed("a UDP socket"))?;
        target.set_read_timeout(Some(LOOK)).map_err(failed("a UDP socket"))?;
        // Larger ones need a privilege of the initial namespace, which is not worth it: failing to enlarge costs some loss.
        let _ = setsockopt(&target, sockopt::RcvBuf, &(4 << 20));
        measure(
            seconds,
            move |running| messages_out(&source, len, running),
            move |running, arrived| messages_in(&target, len, running, arrived),
        )
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::Io { what, source }
}

/// `ip` can say "no more than one segment", which is what segmentation offload is.
fn one_packet_at_a_time() -> Result<(), BenchError> {
    let status = Command::new("ip")
        .args(["link", "set", "dev", PORT, "gso_max_segs", "1"])
        .status()
        .map_err(failed("ip (of iproute2)"))?;
    if status.success() {
        Ok(())
    } else {
        Err(failed("ip link set gso_max_segs")(io::Error::other(status.to_string())))
    }
}

fn connect(to: SocketAddr, control: Tcp) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    setsockopt(&stream, sockopt::TcpCongestion, &control.name().into())?;
    Ok(stream)
}

/// Lets a sender and a receiver work on a core each, and returns Gb/s of what arrived.
fn measure(
    seconds: f64,
    send: impl FnOnce(&AtomicBool) -> io::Result<()> + Send,
    receive: impl FnOnce(&AtomicBool, &AtomicU64) -> io::Result<()> + Send,
) -> Result<f64, BenchError> {
    let (running, arrived) = (AtomicBool::new(true), AtomicU64::new(0));
    thread::scope(|scope| {
        let (running, arrived) = (&running, &arrived);
        let threads = [
            scope.spawn(move || {
                pin(0);
                send(running)
            }),
            scope.spawn(move || {
                pin(1);
                receive(running, arrived)
            }),
        ];
        thread::sleep(WARM_UP);
        let (from, before) = (Instant::now(), arrived.load(Ordering::Relaxed));
        thread::sleep(Duration::from_secs_f64(seconds));
        let bytes = arrived.load(Ordering::Relaxed) - before;
        let elapsed = from.elapsed().as_secs_f64();
        running.store(false, Ordering::Relaxed);
        for thread in threads {
            let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome.map_err(failed("a socket of the kernel"))?;
        }
        if bytes == 0 {
            return Err(BenchError::Silence {
                what: "a socket of the kernel",
                seconds: elapsed,
            });
        }
        Ok(bytes as f64 * 8.0 / elapsed / 1e9)
    })
}

fn stream_out(mut stream: TcpStream, running: &AtomicBool) -> io::Result<()> {
    let data = vec![0x5A; REGION];
    while running.load(Ordering::Relaxed) {
        stream.write_all(&data)?;
    }
    Ok(())
}

/// Reads on to the end, so that the sender never hangs.
fn stream_in(mut stream: TcpStream, running: &AtomicBool, arrived: &AtomicU64) -> io::Result<()> {
    let mut data = vec![0; REGION];
    loop {
        match stream.read(&mut data) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                arrived.fetch_add(count as u64, Ordering::Relaxed);
            }
            Err(error) if is_idle(&error) => {
                if !running.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn messages_out(socket: &UdpSocket, len: usize, running: &AtomicBool) -> io::Result<()> {
    let data = vec![0x5A; len];
    let slices = [[IoSlice::new(&data)]; BATCH];
    let nowhere = [None::<SockaddrIn>; BATCH];
    let mut headers = MultiHeaders::preallocate(BATCH, None);
    while running.load(Ordering::Relaxed) {
        match sendmmsg(
            socket.as_raw_fd(),
            &mut headers,
            &slices,
            nowhere,
            [],
            MsgFlags::empty(),
        ) {
            // Full queues are what this is about.
            Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn messages_in(socket: &UdpSocket, len: usize, running: &AtomicBool, arrived: &AtomicU64) -> io::Result<()> {
    let mut data = vec![0; len * BATCH];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    while running.load(Ordering::Relaxed) {
        let mut slices: Vec<_> = data.chunks_mut(len).map(|piece| [IoSliceMut::new(piece)]).collect();
        match recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            &mut slices,
            MsgFlags::MSG_WAITFORONE,
            None,
        ) {
            Ok(messages) => {
                let bytes: usize = messages.map(|message| message.bytes).sum();
                arrived.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn is_idle(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
