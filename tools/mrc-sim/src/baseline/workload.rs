//! What the baselines transfer.

/// Transfers. Those from one host to the same other one share connections, in the order of their start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The transfers.
    pub transfers: Vec<Transfer>,
    /// Connections from a host to another. Each takes its part of every transfer, and the planes take the connections in turn:
    /// an application that knows its ports has as many connections as these.
    pub stripes: usize,
    /// Payload of a full packet.
    pub pmtu: u32,
    /// When the run ends, complete or not.
    pub deadline_ns: u64,
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Sending host.
    pub src: usize,
    /// Receiving host.
    pub dst: usize,
    /// Bytes.
    pub bytes: u64,
    /// When the application posts it.
    pub start_ns: u64,
}

impl Workload {
    /// These transfers, each over one connection in packets of 4096 bytes, within ten seconds.
    pub fn new(transfers: Vec<Transfer>) -> Workload {
        Workload {
            transfers,
            stripes: 1,
            pmtu: 4096,
            deadline_ns: 10_000_000_000,
        }
    }

    /// `bytes` from one host to another.
    pub fn pair(src: usize, dst: usize, bytes: u64) -> Workload {
        Workload::new(vec![Transfer {
            src,
            dst,
            bytes,
            start_ns: 0,
        }])
    }

    /// Every host sends `bytes` to the host that is `shift` behind it, all at once.
    pub fn permutation(hosts: usize, shift: usize, bytes: u64) -> Workload {
        let transfer = |src| Transfer {
            src,
            dst: (src + shift) % hosts.max(1),
            bytes,
            start_ns: 0,
        };
        Workload::new((0..hosts).map(transfer).collect())
    }

    /// The `senders` hosts behind `dst` send it `bytes` each, all at once.
    pub fn incast(senders: usize, dst: usize, bytes: u64) -> Workload {
        let transfer = |at| Transfer {
            src: dst + at,
            dst,
            bytes,
            start_ns: 0,
        };
        Workload::new((1..=senders).map(transfer).collect())
    }

    /// The same over so many connections from a host to another.
    #[must_use]
    pub fn striped(self, stripes: usize) -> Workload {
        Workload { stripes, ..self }
    }

    /// Bytes of all transfers.
    pub fn bytes(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.bytes).sum()
    }
}

impl Transfer {
    /// What one of `stripes` connections carries of it; `None`: nothing.
    pub(super) fn part(&self, stripe: usize, stripes: usize) -> Option<u64> {
        let (stripe, stripes) = (stripe as u64, stripes as u64);
        let bytes = self.bytes / stripes + u64::from(stripe < self.bytes % stripes);
        // An empty message is a packet all the same.
        (bytes > 0 || stripe == 0).then_some(bytes)
    }
}
