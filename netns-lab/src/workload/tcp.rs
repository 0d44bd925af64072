//! Data over kernel TCP, to compare with: a connection per plane, each message striped over all of them.
//!
//! A piece is a header and its bytes; the receiver places it, and when all pieces of a message are there answers with a header
//! alone. So a message is complete when the peer's memory holds it, as with a queue pair.

use std::io::{Read, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::{Failure, Memory, Moved, Mover, Probe, Ready};
use crate::agent::{End, EndSample, Job};

/// Smaller messages are not worth more than one piece.
const PIECE: usize = 16 << 10;
/// Bytes taken from a socket at once.
const READ: usize = 64 << 10;
/// How long a connection may take: the first packet may be lost.
const CONNECT: Duration = Duration::from_secs(10);

/// Listening sockets and memory of a job.
pub(crate) struct Sockets {
    job: Job,
    memory: Memory,
    congestion_control: &'static str,
    gid: Ipv6Addr,
    /// Per end, per plane; none at ends that connect.
    listeners: Vec<Vec<TcpListener>>,
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |source| Failure::Socket { what, source }
}

impl Sockets {
    /// Makes them.
    pub(crate) fn new(job: Job, congestion_control: &'static str) -> Result<Sockets, Failure> {
        // The lab's environment names every host's node address.
        let variable = format!("H{}_GID6", job.host);
        let gid = std::env::var(&variable).ok().and_then(|gid| gid.parse().ok());
        let gid = gid.ok_or_else(|| Failure::Other(format!("{variable} is no IPv6 address")))?;
        let listen = |plane| -> Result<TcpListener, Failure> {
            let socket = socket_on(plane, congestion_control)?;
            let any: SocketAddr = (gid, 0).into();
            socket.bind(&any.into()).map_err(failed("bind a TCP socket"))?;
            socket.listen(8).map_err(failed("listen"))?;
            Ok(socket.into())
        };
        let per_end = |end: &crate::agent::EndOfFlow| {
            let planes = if end.first { 0 } else { job.planes };
            (1..=planes).map(listen).collect::<Result<Vec<_>, _>>()
        };
        Ok(Sockets {
            listeners: job.ends.iter().map(per_end).collect::<Result<_, _>>()?,
            memory: Memory::of(&job),
            congestion_control,
            gid,
            job,
        })
    }

    /// What peers need to know.
    pub(crate) fn ends(&self) -> Result<Vec<End>, Failure> {
        let address = |listener: &TcpListener| listener.local_addr().map_err(failed("ask for a socket's address"));
        let end = |(place, listeners): (usize, &Vec<TcpListener>)| {
            Ok(End {
                info: None,
                region: None,
                offset: self.memory.target_of(place) as u64,
                listens: listeners.iter().map(address).collect::<Result<_, _>>()?,
            })
        };
        self.listeners.iter().enumerate().map(end).collect()
    }

    /// Connects or accepts every connection.
    pub(crate) fn connect(self, peers: &[End]) -> Result<Ready, Failure> {
        let (events, inbox) = channel();
        let memory = Arc::new(Mutex::new(vec![0; self.memory.len()]));
        let mut lanes = Vec::new();
        for (number, (end, peer)) in self.job.ends.iter().zip(peers).enumerate() {
            let streams = if end.first {
                let connect = |(place, &address): (usize, &SocketAddr)| -> Result<TcpStream, Failure> {
                    let socket = socket_on(place + 1, self.congestion_control)?;
                    let own: SocketAddr = (self.gid, 0).into();
                    socket.bind(&own.into()).map_err(failed("bind a TCP socket"))?;
                    let what = failed("connect a TCP socket");
                    socket.connect_timeout(&address.into(), CONNECT).map_err(what)?;
                    Ok(socket.into())
                };
                peer.listens
                    .iter()
                    .enumerate()
                    .map(connect)
                    .collect::<Result<Vec<_>, _>>()?
            } else {
                let accept = |listener: &TcpListener| Ok(listener.accept().map_err(failed("accept"))?.0);
                self.listeners[number]
                    .iter()
                    .map(accept)
                    .collect::<Result<Vec<_>, Failure>>()?
            };
            let place = Place {
                end: number,
                at: self.memory.target_of(number),
                len: self.memory.target,
                memory: Arc::clone(&memory),
                arrived: Arc::default(),
                delivered: Arc::default(),
                events: events.clone(),
            };
            lanes.push(Lane::new(streams, place)?);
        }
        let probe = SocketProbe {
            flows: self.job.ends.iter().map(|end| end.flow).collect(),
            delivered: lanes.iter().map(|lane| Arc::clone(&lane.delivered)).collect(),
        };
        let mover = SocketMover {
            lanes,
            memory,
            inbox,
            early: None,
            problem: None,
        };
        Ok(Ready {
            job: self.job,
            mover: Box::new(mover),
            probe: Box::new(probe),
        })
    }
}

/// A socket that uses one plane's port only, however the kernel would route.
fn socket_on(plane: usize, congestion_control: &str) -> Result<Socket, Failure> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)).map_err(failed("open a TCP socket"))?;
    let port = format!("p{plane}");
    let what = failed("bind a TCP socket to its plane's port");
    socket.bind_device(Some(port.as_bytes())).map_err(what)?;
    socket.set_tcp_nodelay(true).map_err(failed("set TCP_NODELAY"))?;
    let what = failed("choose TCP's congestion control (is its module loaded?)");
    socket.set_tcp_congestion(congestion_control.as_bytes()).map_err(what)?;
    Ok(socket)
}

/// The head of a piece on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    /// Number of the message.
    message: u64,
    tag: u64,
    /// Where the piece goes in the receiver's part.
    to: u64,
    /// Bytes that follow; none in an answer.
    len: u32,
    /// Pieces of the message; 0 is an answer.
    pieces: u16,
    notify: bool,
}

const HEAD: usize = 32;

impl Head {
    fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.message.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.to.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.pieces.to_le_bytes());
        bytes[30] = u8::from(self.notify);
        bytes
    }

    fn parse(bytes: [u8; HEAD]) -> Head {
        let long = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Head {
            message: long(0),
            tag: long(8),
            to: long(16),
            len: u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]),
            pieces: u16::from_le_bytes([bytes[28], bytes[29]]),
            notify: bytes[30] != 0,
        }
    }
}

type SharedMemory = Arc<Mutex<Vec<u8>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Event {
    Moved(Moved),
    Broken(String),
}

/// What readers of one end share.
#[derive(Clone)]
struct Place {
    end: usize,
    at: usize,
    len: usize,
    memory: SharedMemory,
    /// Pieces that have come, by message.
    arrived: Arc<Mutex<std::collections::HashMap<u64, u16>>>,
    delivered: Arc<AtomicU64>,
    events: Sender<Event>,
}

/// One end: its sockets, each with a thread that writes and one that reads. The threads end with the connection.
struct Lane {
    writers: Vec<Sender<(Head, Vec<u8>)>>,
    streams: Vec<TcpStream>,
    delivered: Arc<AtomicU64>,
    messages: u64,
}

impl Lane {
    fn new(streams: Vec<TcpStream>, place: Place) -> Result<Lane, Failure> {
        let mut writers = Vec::new();
        for stream in &streams {
            let clone = || stream.try_clone().map_err(failed("share a socket between threads"));
            let (mut to, from) = (clone()?, clone()?);
            let (writer, work) = channel::<(Head, Vec<u8>)>();
            let events = place.events.clone();
            thread::spawn(move || {
                while let Ok((head, bytes)) = work.recv() {
                    if let Err(error) = to.write_all(&head.bytes()).and_then(|()| to.write_all(&bytes)) {
                        let _ = events.send(Event::Broken(error.to_string()));
                        return;
                    }
                }
            });
            let (place, answers) = (place.clone(), writer.clone());
            thread::spawn(move || {
                if let Err(error) = place.read(from, &answers) {
                    let _ = place.events.send(Event::Broken(error.to_string()));
                }
            });
            writers.push(writer);
        }
        Ok(Lane {
            writers,
            streams,
            delivered: place.delivered,
            messages: 0,
        })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for stream in &self.streams {
            // The peer may have closed it before.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Place {
    fn read(&self, mut from: TcpStream, answers: &Sender<(Head, Vec<u8>)>) -> std::io::Result<()> {
        let mut buffer = vec![0; READ];
        loop {
            let mut head = [0; HEAD];
            match from.read_exact(&mut head) {
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                other => other?,
            }
            let head = Head::parse(head);
            if head.pieces == 0 {
                let (end, tag) = (self.end, head.tag);
                let _ = self.events.send(Event::Moved(Moved::Sent { end, tag }));
                continue;
            }
            let (mut at, mut left) = (head.to as usize, head.len as usize);
            if at.checked_add(left).is_none_or(|end| end > self.len) {
                return Err(std::io::Error::other("a piece reaches outside the memory meant for it"));
            }
            while left > 0 {
                let some = left.min(READ);
                from.read_exact(&mut buffer[..some])?;
                lock(&self.memory)[self.at + at..self.at + at + some].copy_from_slice(&buffer[..some]);
                self.delivered.fetch_add(some as u64, Ordering::Relaxed);
                at += some;
                left -= some;
            }
            if self.is_whole(head) {
                if head.notify {
                    let (end, tag) = (self.end, head.tag as u32);
                    let _ = self.events.send(Event::Moved(Moved::Received { end, tag }));
                }
                let answer = Head {
                    pieces: 0,
                    len: 0,
                    ..head
                };
                let _ = answers.send((answer, Vec::new()));
            }
        }
    }

    fn is_whole(&self, head: Head) -> bool {
        let mut arrived = lock(&self.arrived);
        let count = arrived.entry(head.message).or_default();
        *count += 1;
        if *count < head.pieces {
            return false;
        }
        arrived.remove(&head.message);
        true
    }
}

struct SocketMover {
    lanes: Vec<Lane>,
    memory: SharedMemory,
    inbox: Receiver<Event>,
    /// An event that ended a wait.
    early: Option<Event>,
    problem: Option<String>,
}

impl Mover for SocketMover {
    fn post(&mut self, end: usize, tag: u64, from: Range<usize>, to: usize, notify: bool) -> Result<bool, Failure> {
        let bytes = lock(&self.memory)[from].to_vec();
        let lane = &mut self.lanes[end];
        let message = lane.messages;
        lane.messages += 1;
        let pieces = bytes.len().div_ceil(PIECE).clamp(1, lane.writers.len());
        let size = bytes.len().div_ceil(pieces).max(1);
        for (number, piece) in bytes.chunks(size).enumerate() {
            let head = Head {
                message,
                tag,
                to: (to + number * size) as u64,
                len: piece.len() as u32,
                pieces: bytes.len().div_ceil(size) as u16,
                notify,
            };
            let writer = (message as usize + number) % lane.writers.len();
            let closed = |_| Failure::Other("a TCP connection has ended".to_owned());
            lane.writers[writer].send((head, piece.to_vec())).map_err(closed)?;
        }
        Ok(true)
    }

    fn poll(&mut self, moved: &mut Vec<Moved>) -> Result<(), Failure> {
        while let Some(event) = self.early.take().or_else(|| self.inbox.try_recv().ok()) {
            match event {
                Event::Moved(one) => moved.push(one),
                Event::Broken(error) => {
                    self.problem.get_or_insert(format!("a TCP connection broke: {error}"));
                    moved.push(Moved::Failed { end: 0 });
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) {
        if self.early.is_none() {
            match self.inbox.recv_timeout(at_most) {
                Ok(event) => self.early = Some(event),
                Err(RecvTimeoutError::Timeout) => {}
                // Without connections there is nothing to wait for but time.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(at_most),
            }
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        lock(&self.memory)[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), Failure> {
        bytes.copy_from_slice(&lock(&self.memory)[at..at + bytes.len()]);
        Ok(())
    }

    fn problem(&self) -> Option<String> {
        self.problem.clone()
    }
}

struct SocketProbe {
    flows: Vec<usize>,
    delivered: Vec<Arc<AtomicU64>>,
}

impl Probe for SocketProbe {
    fn sample(&mut self, id: usize) -> Vec<EndSample> {
        let ends = self.flows.iter().zip(&self.delivered);
        ends.map(|(&flow, delivered)| EndSample {
            id,
            flow,
            delivered_bytes: delivered.load(Ordering::Relaxed),
            ..EndSample::default()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_wire() {
        let head = Head {
            message: 7,
            tag: 1 << 40 | 3,
            to: 12345,
            len: 678,
            pieces: 4,
            notify: true,
        };
        assert_eq!(Head::parse(head.bytes()), head);
    }
}
