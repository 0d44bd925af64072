//! Why a port cannot be used: each in one line that names the thing, the limit and the remedy.

use std::io;

use mrc_wire::Pmtu;

/// Opening a port failed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No interface of that name.
    #[error("unknown interface {name}: `ip link` lists those of this network namespace")]
    UnknownInterface {
        /// The name that was given.
        name: String,
    },
    /// Another engine has the port.
    #[error("port {name} is busy: {owner} owns it, and a port has one engine; end that process or use its engine")]
    Busy {
        /// The interface.
        name: String,
        /// "process 123 (mrc-perf)", or what is known instead.
        owner: String,
    },
    /// Something that is no engine has an `AF_XDP` socket on the queue.
    #[error(
        "queue {queue} of {name} is in use by another AF_XDP socket and did not become free within {waited_ms} ms; \
         `ss --xdp --processes` names its owner"
    )]
    QueueBusy {
        /// The interface.
        name: String,
        /// Its queue.
        queue: u32,
        /// How long was waited.
        waited_ms: u64,
    },
    /// The process may not open `AF_XDP` sockets.
    #[error(
        "opening {name} needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: run as root or grant them, \
         e.g. with AmbientCapabilities= in a systemd unit"
    )]
    NoPrivilege {
        /// The interface.
        name: String,
    },
    /// The kernel has no `AF_XDP`.
    #[error("this kernel has no AF_XDP sockets: MRC needs Linux 6.1 or later with CONFIG_XDP_SOCKETS=y")]
    NoAfXdp,
    /// Memory cannot be locked.
    #[error(
        "the packet memory of the ports needs {needed} bytes of locked memory, the limit (RLIMIT_MEMLOCK) is {limit}: \
         raise it with `ulimit -l {}` or LimitMEMLOCK= in a systemd unit, or grant CAP_IPC_LOCK", needed.div_ceil(1024)
    )]
    MemoryLock {
        /// What the ports need.
        needed: u64,
        /// What the process may lock.
        limit: u64,
    },
    /// The packet memory could not be had for another reason.
    #[error("cannot set up {needed} bytes of packet memory (UMEM): {source}")]
    Memory {
        /// What the ports need.
        needed: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The port cannot carry the PMTU.
    #[error(
        "PMTU {} does not fit port {name} (MTU {mtu}): it needs an MTU of {needed_mtu}; {}",
        pmtu.bytes(), remedy(*largest, *needed_mtu, name)
    )]
    MtuTooSmall {
        /// The interface.
        name: String,
        /// What was asked for.
        pmtu: Pmtu,
        /// MTU of the interface.
        mtu: u32,
        /// MTU that would do.
        needed_mtu: usize,
        /// The PMTU that does fit.
        largest: Option<Pmtu>,
    },
    /// The port cannot carry the PMTU without multi-buffer.
    #[error(
        "PMTU {} needs frames of several buffers on port {name}, which it does not have ({reason}); {}",
        pmtu.bytes(), fallback(*largest)
    )]
    NoMultiBuffer {
        /// The interface.
        name: String,
        /// What was asked for.
        pmtu: Pmtu,
        /// Why there is no multi-buffer.
        reason: String,
        /// The PMTU that does fit.
        largest: Option<Pmtu>,
    },
    /// The steering program could not be loaded or attached.
    #[error(transparent)]
    Steering(#[from] mrc_ebpf::Error),
    /// A port cannot do what the others of the engine do.
    #[error("the driver of {name} has no zero-copy, which another port of this engine uses: use copy mode for all")]
    NoZeroCopy {
        /// The interface.
        name: String,
    },
    /// The socket could not be made for another reason.
    #[error("cannot open an AF_XDP socket on queue {queue} of {name}: {what}")]
    Socket {
        /// The interface.
        name: String,
        /// Its queue.
        queue: u32,
        /// All that is known.
        what: String,
    },
    /// The options are not usable.
    #[error("{0}")]
    Options(String),
}

fn remedy(largest: Option<Pmtu>, needed_mtu: usize, name: &str) -> String {
    format!(
        "raise it (ip link set dev {name} mtu {needed_mtu}) or {}",
        fallback(largest)
    )
}

fn fallback(largest: Option<Pmtu>) -> String {
    match largest {
        Some(pmtu) => format!("use a PMTU of at most {}", pmtu.bytes()),
        None => "use another port: not even a PMTU of 256 fits".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_with_limit_and_remedy() {
        let error = PortError::MtuTooSmall {
            name: "p1".into(),
            pmtu: Pmtu::B4096,
            mtu: 1500,
            needed_mtu: 4188,
            largest: Some(Pmtu::B1024),
        };
        assert_eq!(
            error.to_string(),
            "PMTU 4096 does not fit port p1 (MTU 1500): it needs an MTU of 4188; \
             raise it (ip link set dev p1 mtu 4188) or use a PMTU of at most 1024"
        );
        let error = PortError::MemoryLock {
            needed: 2_883_584,
            limit: 65536,
        };
        assert!(error.to_string().contains("ulimit -l 2816"), "{error}");
    }
}
