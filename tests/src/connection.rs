//! Connected queue pairs, and writes that are checked to the last byte.

use std::ops::Range;

use mrc_verbs::{
    Access, AddressFamily, CompletionQueue, ConnectionInfo, MemoryRegion, QpAttr, QpConfig, QpInit, QpSizes, QueuePair,
    RetryCount, SendRequest, WorkCompletion,
};

use crate::wait::until;
use crate::{Fabric, Node, noise};

/// How to connect. Everything has a default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Family of the GIDs; default IPv6.
    pub family: AddressFamily,
    /// Payload of a full packet; default: the largest that the ports carry.
    pub pmtu: Option<u32>,
    /// First PSN of both directions; default: random.
    pub psn: Option<u32>,
    /// Bytes of each side's region; default 1 MiB.
    pub region: usize,
    /// Sizes of the queue pairs.
    pub sizes: QpSizes,
    /// Timeout exponent, linear and exponential retries; default: those of the library.
    pub retry: Option<(u8, u8, u8)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            family: AddressFamily::V6,
            pmtu: None,
            psn: None,
            region: 1 << 20,
            sizes: QpSizes::default(),
            retry: None,
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Side {
    /// The queue pair.
    pub qp: QueuePair,
    /// Where all its work completes.
    pub cq: CompletionQueue,
    /// Memory that the peer may write.
    pub region: MemoryRegion,
}

/// Two queue pairs that are connected to each other.
#[derive(Debug)]
pub struct Connection {
    /// On host 0.
    pub a: Side,
    /// On host 1.
    pub b: Side,
    /// Payload of a full packet.
    pub pmtu: usize,
}

impl Side {
    /// A queue pair in RESET with a queue and a region of its own.
    ///
    /// # Panics
    /// If the engine refuses.
    pub fn new(node: &Node, options: &Options) -> Side {
        let depth = options.sizes.max_send_wr + options.sizes.max_recv_wr;
        let cq = node.context.create_cq(depth).expect("a completion queue");
        let init = QpInit {
            sizes: options.sizes,
            ..QpInit::new(&cq)
        };
        let qp = node.context.create_qp(&node.pd, &init).expect("a queue pair");
        let region = node
            .pd
            .register_owned(options.region, Access::PEER_WRITABLE)
            .expect("a region");
        Side { qp, cq, region }
    }

    /// What this side tells the peer.
    ///
    /// # Panics
    /// If the ports carry nothing.
    pub fn offer(&self, options: &Options) -> ConnectionInfo {
        let mut info = self
            .qp
            .offer()
            .expect("an offer")
            .only(options.family)
            .expect("an address");
        info.pmtu = options.pmtu.unwrap_or(info.pmtu);
        info.psn = options.psn.unwrap_or(info.psn);
        info
    }

    /// Makes the retry budget some tens of milliseconds from now on: for a peer that will not answer.
    ///
    /// # Panics
    /// If the engine refuses.
    pub fn give_up_soon(&self) {
        let attr = QpAttr {
            timeout: Some(12),
            retry: Some(RetryCount {
                linear: 2,
                exponential: 2,
            }),
            ..QpAttr::default()
        };
        self.qp.modify(&attr).expect("the budget may change in any state");
    }

    /// The next completion, which must come.
    ///
    /// # Panics
    /// If none comes.
    pub fn completion(&self) -> WorkCompletion {
        completion(&self.cq)
    }

    /// Posts a write of `piece` of the own region to the peer's at `to`.
    ///
    /// # Panics
    /// If it is refused.
    pub fn write(&self, wr_id: u64, piece: Range<usize>, peer: &Side, to: usize) {
        let piece = self.region.slice(piece).expect("inside the region");
        let request = SendRequest::write(wr_id, piece, peer.region.remote().at(to as u64));
        self.qp.post_write(&request).expect("room in the send queue");
    }
}

/// How a queue pair is connected.
pub fn connect(
    qp: &QueuePair,
    mine: ConnectionInfo,
    theirs: ConnectionInfo,
    options: &Options,
) -> Result<usize, mrc_verbs::Error> {
    let mut config = QpConfig::new(mine, theirs);
    if let Some((timeout, linear, exponential)) = options.retry {
        config = config.timeout(timeout).retry(linear, exponential);
    }
    qp.connect(&config).map(|agreed| agreed.pmtu as usize)
}

impl Connection {
    /// Connects two new queue pairs.
    ///
    /// # Panics
    /// If that fails.
    pub fn open(fabric: &Fabric, options: &Options) -> Connection {
        Connection::between(&fabric.a, &fabric.b, options)
    }

    /// As [`open`](Self::open), between any two nodes.
    ///
    /// # Panics
    /// If that fails.
    pub fn between(a: &Node, b: &Node, options: &Options) -> Connection {
        let (a, b) = (Side::new(a, options), Side::new(b, options));
        let (of_a, of_b) = (a.offer(options), b.offer(options));
        let pmtu = connect(&a.qp, of_a.clone(), of_b.clone(), options).expect("A connects");
        connect(&b.qp, of_b, of_a, options).expect("B connects");
        Connection { a, b, pmtu }
    }

    /// The same connection, looked at from B.
    #[must_use]
    pub fn turned(self) -> Connection {
        Connection {
            a: self.b,
            b: self.a,
            pmtu: self.pmtu,
        }
    }

    /// Writes `size` bytes from A to B at offset `to`, and compares B's whole region: the bytes, and everything around them.
    ///
    /// # Panics
    /// If anything is not as it should be.
    pub fn write_and_compare(&self, size: usize, to: usize, seed: u64) {
        const GUARD: u8 = 0xa5;
        let what = || format!("{size} bytes to offset {to} with PMTU {}", self.pmtu);
        // Sources are not aligned as targets are.
        let from = (seed as usize % 7).min(self.a.region.len() - size);
        let data = noise(size, seed);
        self.a.region.write_at(from, &data).expect("inside the region");
        self.b
            .region
            .fill(0, self.b.region.len(), GUARD)
            .expect("inside the region");
        self.a.write(seed, from..from + size, &self.b, to);
        let done = self.a.completion();
        assert!(done.is_ok() && !done.is_recv, "{}: {done:?}", what());
        assert_eq!((done.wr_id, done.byte_len as usize), (seed, size), "{}", what());
        let all = self.b.region.to_vec(0, self.b.region.len()).expect("the region");
        assert!(all[to..to + size] == data[..], "{}: other bytes", what());
        let outside = all[..to].iter().chain(&all[to + size..]);
        assert!(
            outside.copied().all(|byte| byte == GUARD),
            "{}: more was written",
            what()
        );
    }
}

/// The next completion of a queue, which must come.
///
/// # Panics
/// If none comes.
pub fn completion(cq: &CompletionQueue) -> WorkCompletion {
    let mut found = None;
    until("a completion", || {
        // Polling works for the engine where it can; only then a pause.
        for _ in 0..64 {
            found = cq.poll_one().expect("no overrun");
            if found.is_some() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    });
    found.expect("found")
}

/// The next `count` completions.
///
/// # Panics
/// If they do not come.
pub fn completions(cq: &CompletionQueue, count: usize) -> Vec<WorkCompletion> {
    (0..count).map(|_| completion(cq)).collect()
}
