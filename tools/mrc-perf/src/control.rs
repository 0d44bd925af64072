//! What the two ends tell each other over TCP: one JSON object a line.
//!
//! A thread reads, so that the test loop can ask for news without a system call, and so that a peer that dies is noticed at
//! once. Every wait has a deadline and ends on Ctrl-C.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use mrc_verbs::{ConnectionInfo, Incompatible, RemoteRegion};
use serde::{Deserialize, Serialize};

use crate::cli::Plan;
use crate::failure::Failure;
use crate::stats::{Bandwidth, Latency};
use crate::stop;

/// Version of these messages; both ends must have the same.
const VERSION: u32 = 1;
/// Says that the peer is an mrc-perf.
const MAGIC: &str = "mrc-perf";
/// How long the peer may take to answer while it has nothing else to do.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// How long a client tries to reach a server that is not there yet.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest line: the infos of 1024 queue pairs.
const MAX_LINE: u64 = 1 << 20;
/// Messages that wait for the test to look at them; a peer that says more than belongs to a session waits.
const MAX_WAITING: usize = 16;
/// How much of a peer's reason is shown.
const MAX_REASON: usize = 500;

/// The messages, in the order of a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Message {
    /// Client to server: what to do.
    Hello { magic: String, version: u32, plan: Plan },
    /// Server to client: it will do so.
    Welcome { magic: String, version: u32 },
    /// Each way: the queue pairs, as text so that one that cannot be read is diagnosed, and the memory.
    Endpoint {
        queue_pairs: Vec<String>,
        region: RemoteRegion,
        credits: RemoteRegion,
    },
    /// Each way: this end is ready for step `step`.
    Ready { step: usize },
    /// Each way: this end has sent what it had to in this step.
    Done {
        step: usize,
        sent: Vec<u64>,
        bandwidth: Option<Bandwidth>,
        latency: Option<Latency>,
    },
    /// Each way: what arrived was compared with what was sent; the first difference in words.
    Verdict { step: usize, difference: Option<String> },
    /// Either way: this end gives up.
    Failed { reason: String },
}

/// The connection to the other end.
pub(crate) struct Control {
    stream: TcpStream,
    incoming: Receiver<Result<Message, Failure>>,
    peer: SocketAddr,
}

impl Control {
    /// Connects to a server, which may still be starting.
    pub(crate) fn connect(server: &str, port: u16) -> Result<Control, Failure> {
        let deadline = Instant::now() + CONNECT;
        loop {
            let error = match addresses(server, port)?.iter().map(connect_one).find_map_ok() {
                Ok(stream) => return Control::over(stream),
                Err(error) => error,
            };
            if Instant::now() >= deadline {
                let wait = CONNECT.as_secs();
                return Err(Failure::Peer(format!(
                    "cannot reach a server at {server} port {port} within {wait} s: {error}; start `mrc-perf server` there first"
                )));
            }
            stop::check()?;
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    fn over(stream: TcpStream) -> Result<Control, Failure> {
        let setup = || -> std::io::Result<(SocketAddr, TcpStream)> {
            stream.set_nodelay(true)?;
            // A host that vanishes without a word is noticed too.
            let keepalive = socket2::TcpKeepalive::new()
                .with_time(Duration::from_secs(10))
                .with_interval(Duration::from_secs(5))
                .with_retries(3);
            socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            stream.set_write_timeout(Some(ANSWER))?;
            let peer = stream.peer_addr()?;
            Ok((
                SocketAddr::new(peer.ip().to_canonical(), peer.port()),
                stream.try_clone()?,
            ))
        };
        let (peer, reader) =
            setup().map_err(|error| Failure::Peer(format!("the connection broke at once: {error}")))?;
        let (sender, incoming) = sync_channel(MAX_WAITING);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            loop {
                let message = read_message(&mut reader, peer);
                let ended = message.is_err();
                if sender.send(message).is_err() || ended {
                    return;
                }
            }
        });
        Ok(Control { stream, incoming, peer })
    }

    /// Where the other end is.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Client: says what to do, and learns whether the server will.
    pub(crate) fn hello(&self, plan: &Plan) -> Result<(), Failure> {
        self.send(&Message::Hello {
            magic: MAGIC.into(),
            version: VERSION,
            plan: plan.clone(),
        })?;
        match self.receive(ANSWER)? {
            Message::Welcome { magic, version } => same_program(&magic, version),
            other => Err(unexpected("a welcome", &other)),
        }
    }

    /// Server: learns what to do.
    pub(crate) fn welcome(&self) -> Result<Plan, Failure> {
        let plan = match self.receive(ANSWER)? {
            Message::Hello { magic, version, plan } => {
                // The client gets our version either way and says the same.
                self.send(&Message::Welcome {
                    magic: MAGIC.into(),
                    version: VERSION,
                })?;
                same_program(&magic, version)?;
                plan
            }
            other => return Err(unexpected("a hello", &other)),
        };
        plan.checked().map_err(Failure::Peer)
    }

    /// Exchanges descriptions of queue pairs and memory.
    pub(crate) fn exchange(
        &self,
        mine: &[ConnectionInfo],
        region: RemoteRegion,
        credits: RemoteRegion,
    ) -> Result<(Vec<ConnectionInfo>, RemoteRegion, RemoteRegion), Failure> {
        let queue_pairs = mine.iter().map(ToString::to_string).collect();
        self.send(&Message::Endpoint {
            queue_pairs,
            region,
            credits,
        })?;
        match self.receive(ANSWER)? {
            Message::Endpoint {
                queue_pairs,
                region,
                credits,
            } => {
                if queue_pairs.len() != mine.len() {
                    let (theirs, ours) = (queue_pairs.len(), mine.len());
                    return Err(Failure::Peer(format!(
                        "the peer made {theirs} queue pairs, this end {ours}"
                    )));
                }
                let infos = queue_pairs.iter().map(|text| text.parse());
                let infos = infos.collect::<Result<Vec<ConnectionInfo>, Incompatible>>();
                Ok((
                    infos.map_err(|error| Failure::Peer(error.to_string()))?,
                    region,
                    credits,
                ))
            }
            other => Err(unexpected("queue pairs", &other)),
        }
    }

    /// Waits until both ends are ready for a step.
    pub(crate) fn barrier(&self, step: usize, patience: Duration) -> Result<(), Failure> {
        self.send(&Message::Ready { step })?;
        match self.receive(patience)? {
            Message::Ready { step: theirs } if theirs == step => Ok(()),
            other => Err(unexpected("readiness for the same step", &other)),
        }
    }

    /// Sends one message.
    pub(crate) fn send(&self, message: &Message) -> Result<(), Failure> {
        let mut line =
            serde_json::to_vec(message).map_err(|error| Failure::Peer(format!("cannot write a message: {error}")))?;
        line.push(b'\n');
        (&self.stream).write_all(&line).map_err(|error| {
            // What the peer said last explains more than a broken pipe.
            match self.incoming.recv_timeout(Duration::from_millis(200)) {
                Ok(Ok(Message::Failed { reason })) => said(&reason),
                Ok(Err(failure)) => failure,
                _ => lost(self.peer, &error.to_string()),
            }
        })
    }

    /// The next message, waited for.
    pub(crate) fn receive(&self, patience: Duration) -> Result<Message, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            stop::check()?;
            match self.incoming.recv_timeout(Duration::from_millis(100)) {
                Ok(message) => return checked(message),
                Err(RecvTimeoutError::Disconnected) => return Err(lost(self.peer, "closed")),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err(lost(self.peer, &format!("no answer for {} s", patience.as_secs())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The next message, if it comes within this time.
    pub(crate) fn receive_within(&self, time: Duration) -> Result<Option<Message>, Failure> {
        stop::check()?;
        match self.incoming.recv_timeout(time) {
            Ok(message) => checked(message).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(lost(self.peer, "closed")),
        }
    }

    /// A message that has come already. Also notices Ctrl-C.
    pub(crate) fn try_receive(&self) -> Result<Option<Message>, Failure> {
        stop::check()?;
        match self.incoming.try_recv() {
            Ok(message) => checked(message).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(lost(self.peer, "closed")),
        }
    }

    /// Tells the peer why this end gives up, if it can still be told.
    pub(crate) fn give_up(&self, failure: &Failure) {
        let reason = failure.to_string();
        let _ = self.stream.set_write_timeout(Some(Duration::from_secs(1)));
        let _ = self.send(&Message::Failed { reason });
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the reading thread.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Listens for clients.
pub(crate) struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// On this address and port; `::` takes IPv4 too, and where there is no IPv6, IPv4 only.
    pub(crate) fn bind(address: IpAddr, port: u16) -> Result<Listener, Failure> {
        let open = |address: IpAddr| -> std::io::Result<TcpListener> {
            let at = SocketAddr::new(address, port);
            let socket = socket2::Socket::new(socket2::Domain::for_address(at), socket2::Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            if address.is_ipv6() && address.is_unspecified() {
                socket.set_only_v6(false)?;
            }
            socket.bind(&at.into())?;
            socket.listen(16)?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        };
        let socket = match open(address) {
            Err(_) if address.is_unspecified() => open(IpAddr::from([0, 0, 0, 0])),
            other => other,
        };
        let socket = socket.map_err(|error| {
            Failure::Setup(format!(
                "cannot listen on {address} port {port}: {error}; choose another with --port on both ends"
            ))
        })?;
        Ok(Listener { socket })
    }

    /// Waits for a client.
    pub(crate) fn accept(&self) -> Result<Control, Failure> {
        loop {
            stop::check()?;
            match self.socket.accept() {
                Ok((stream, _)) => {
                    stream
                        .set_nonblocking(false)
                        .map_err(|error| Failure::Peer(error.to_string()))?;
                    return Control::over(stream);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
                Err(error) => return Err(Failure::Peer(format!("cannot accept a client: {error}"))),
            }
        }
    }
}

fn addresses(server: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let found = (server, port).to_socket_addrs();
    found
        .map(Iterator::collect)
        .map_err(|error| Failure::Peer(format!("cannot resolve {server:?}: {error}")))
}

fn connect_one(address: &SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(address, Duration::from_secs(2))
}

/// The first success, or the last error.
trait FindMapOk<T> {
    fn find_map_ok(self) -> std::io::Result<T>;
}

impl<T, I: Iterator<Item = std::io::Result<T>>> FindMapOk<T> for I {
    fn find_map_ok(self) -> std::io::Result<T> {
        let mut last = Err(std::io::Error::new(std::io::ErrorKind::NotFound, "no address"));
        for outcome in self {
            if outcome.is_ok() {
                return outcome;
            }
            last = outcome;
        }
        last
    }
}

fn read_message(reader: &mut BufReader<TcpStream>, peer: SocketAddr) -> Result<Message, Failure> {
    let mut line = Vec::new();
    match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
        Err(error) => Err(lost(peer, &error.to_string())),
        Ok(0) => Err(lost(peer, "it closed the connection")),
        Ok(_) => serde_json::from_slice(&line).map_err(|error| {
            Failure::Peer(format!(
                "{peer} sent what is no message of this program ({error}); is it an mrc-perf of this version?"
            ))
        }),
    }
}

fn checked(message: Result<Message, Failure>) -> Result<Message, Failure> {
    match message? {
        Message::Failed { reason } => Err(said(&reason)),
        message => Ok(message),
    }
}

fn same_program(magic: &str, version: u32) -> Result<(), Failure> {
    if magic != MAGIC {
        return Err(Failure::Peer(format!("the peer is a {magic:?}, not an {MAGIC}")));
    }
    if version != VERSION {
        return Err(Failure::Peer(format!(
            "mrc-perf protocol version differs: ours {VERSION}, peer's {version}; use the same build on both ends"
        )));
    }
    Ok(())
}

fn said(reason: &str) -> Failure {
    Failure::Peer(format!("the peer gave up: {}", printable(reason)))
}

/// A text of the peer, as one line that leaves the terminal alone.
pub(crate) fn printable(text: &str) -> String {
    let safe = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_REASON).map(safe).collect()
}

fn lost(peer: SocketAddr, how: &str) -> Failure {
    Failure::Peer(format!("lost the peer {peer}: {how}"))
}

pub(crate) fn unexpected(wanted: &str, got: &Message) -> Failure {
    let got = serde_json::to_value(got)
        .ok()
        .and_then(|value| value["type"].as_str().map(String::from))
        .unwrap_or_default();
    Failure::Peer(format!(
        "the peer sent {got:?} instead of {wanted}; use the same build on both ends"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_stays_one_short_line() {
        let said = said(&format!("broken\nmrc-perf: done\x1b[31m{}", "x".repeat(10_000))).to_string();
        assert!(
            said.starts_with("the peer gave up: broken mrc-perf: done [31mxx"),
            "{said}"
        );
        assert!(!said.chars().any(char::is_control) && said.len() < 600);
    }
}
