//! A scenario: everything about a run that is decided before it starts. A seed gives exactly one.

mod faults;
mod generate;
pub mod links;
pub mod profiles;
mod shortage;
mod traffic;
pub mod upset;

pub use self::generate::MIN_PACKETS;
use crate::fabric::FabricPlan;
use crate::fabric::fault::Fault;
use crate::forge::Forgery;
use crate::scenario::links::NodeForgery;
use crate::scenario::profiles::{Command, ProfilePlan};
use crate::scenario::upset::Upset;
use mrc_wire::Pmtu;

/// Default of the answers of one kind per second, and in one burst (protocol.md §14).
pub const ANSWERS: (u32, u32) = (1000, 256);

/// How a run may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Faults pass or are mild: every request must succeed.
    Survivable,
    /// A host stops for ever: its peers' requests end with a retry error.
    PeerVanishes,
    /// All planes swallow everything from some instant on.
    Partition,
    /// A receiver posts too few receives: remote operation error.
    TooFewReceives,
    /// A request that the target must refuse: remote access error.
    BadAccess,
    /// The requestor believes in a larger `max_wimm` than the target has: remote invalid request.
    TooManyImmediates,
    /// The application gives up one queue pair in the middle.
    LocalError,
    /// One end of a connection starts anew, and all is sent again: every request must succeed then.
    Restart,
    /// The memory of a host fails for good: remote operation error.
    MemoryBreaks,
}

/// In which form packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As header values, for speed.
    Values,
    /// Serialised, IPv4.
    BytesV4,
    /// Serialised, IPv6.
    BytesV6,
}

/// A run, planned.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Where it came from.
    pub seed: u64,
    /// How it may end.
    pub class: Class,
    /// How packets travel.
    pub format: Format,
    /// Ports of every host.
    pub planes: u8,
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// The network without faults.
    pub fabric: FabricPlan,
    /// Faults of the network.
    pub faults: Vec<Fault>,
    /// Faults of hosts and links, with their instants.
    pub happenings: Vec<(u64, Happening)>,
    /// The queue pairs, in connected pairs.
    pub connections: Vec<ConnectionPlan>,
    /// Hosts tell each other of their ports with packets (protocol.md §9.3). Else they hear of it by themselves, after a time.
    pub updates: bool,
    /// From here on nothing disturbs but what is for ever.
    pub calm_from_ns: u64,
    /// When all must have ended.
    pub deadline_ns: u64,
    /// Data packets without retransmissions.
    pub packets: u64,
}

/// What governs the window of a congestion controller, besides the limit of every port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Nothing.
    Ports,
    /// NSCC.
    Nscc,
    /// A profile without congestion control: the largest window of NSCC.
    Off,
}

/// One host.
#[derive(Debug, Clone)]
pub struct HostPlan {
    /// From an arrival to the engine's look at it.
    pub poll_delay_ns: u64,
    /// Most packets that one turn takes from the ports.
    pub rx_batch: u64,
    /// Most packets that one turn sends.
    pub tx_batch: u64,
    /// Speed of every port.
    pub rate_mbps: u64,
    /// Frames that a port takes before it has no room.
    pub tx_queue: u64,
    /// Packets in flight that a congestion controller permits on each port.
    pub cwnd_packets: u16,
    /// What governs the window.
    pub control: Control,
    /// One congestion controller for all queue pairs to a peer, or one for each.
    pub shared_qpcc: bool,
    /// Memory regions.
    pub regions: Vec<RegionPlan>,
    /// What its engine and its links are like.
    pub speed: Speed,
}

/// What an engine takes for its work, and what its congestion control is told about the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed {
    /// Between two turns of a busy engine, besides the packets.
    pub turn_ns: u64,
    /// For each packet that it receives or sends.
    pub packet_ns: u64,
    /// Idle round trip of a full packet; `None`: not measured.
    pub base_rtt_ns: Option<u64>,
    /// Links of a path that store a packet before they forward it.
    pub path_links: u8,
    /// `max_cwnd` of the CC profile, in percent of its default.
    pub max_cwnd_percent: u16,
}

impl Default for Speed {
    fn default() -> Self {
        Speed {
            turn_ns: 200,
            packet_ns: 60,
            base_rtt_ns: None,
            path_links: 2,
            max_cwnd_percent: 100,
        }
    }
}

/// One memory region.
#[derive(Debug, Clone, Copy)]
pub struct RegionPlan {
    /// Key.
    pub rkey: u32,
    /// Bytes.
    pub len: u64,
    /// Bytes of nothing before and behind it.
    pub guard: u64,
    /// Whether peers may write.
    pub remote_write: bool,
}

/// Two queue pairs that talk to each other. Arrays are indexed by side.
#[derive(Debug, Clone)]
pub struct ConnectionPlan {
    /// The hosts.
    pub hosts: [usize; 2],
    /// Queue pair numbers.
    pub qpn: [u32; 2],
    /// First PSN that the side sends.
    pub psn: [u32; 2],
    /// Path MTU.
    pub pmtu: Pmtu,
    /// Window that the side offers as responder, unit 128 PSNs.
    pub mpr: [u8; 2],
    /// `WriteIMM` messages that the side can hold as responder.
    pub max_wimm: [u16; 2],
    /// What the peer believes `max_wimm` to be (differs in one class only).
    pub believed_wimm: [u16; 2],
    /// Local ACK timeout exponent.
    pub timeout: u8,
    /// Retries without backoff.
    pub linear_cnt: u8,
    /// Retries with backoff; 25: for ever.
    pub exp_cnt: u8,
    /// Paths per plane.
    pub evs_per_plane: u16,
    /// Of these, in the active set.
    pub active_per_plane: u16,
    /// Floor of the active set.
    pub ev_min_active: u16,
    /// Whether the side answers trimmed packets.
    pub trim_nack: [bool; 2],
    /// Whether the side takes its own delay out of the timestamps that it reflects.
    pub svc_time: [bool; 2],
    /// Whether the side would have windows change (protocol.md §5.4). Both must.
    pub dynamic_mpr: [bool; 2],
    /// Bytes between SACKs.
    pub sack_gen_threshold: u32,
    /// Answers of one kind per second, besides those that packets received pay for.
    pub answers_per_s: u32,
    /// How many of them may come in one burst.
    pub answers_burst: u32,
    /// Least tolerance of reordering.
    pub reo_min_ns: u64,
    /// Send queue depth.
    pub sq_depth: u32,
    /// Paths are those of EV profiles.
    pub profile: Option<ProfilePlan>,
    /// So many SACKs say that the path they answer for is bad.
    pub verdict_ppm: u32,
    /// Paths are drawn by the protocol (AUTO), or listed.
    pub auto_evs: bool,
    /// Queue pairs believe that the fabric trims.
    pub fabric_trims: bool,
    /// When each side goes to RTR and RTS.
    pub ready_ns: [u64; 2],
    /// What each side sends: `flows[s]` goes from side s to side 1 - s.
    pub flows: [FlowPlan; 2],
}

/// What one side of a connection sends.
#[derive(Debug, Clone, Default)]
pub struct FlowPlan {
    /// The messages in the order of posting.
    pub messages: Vec<MessagePlan>,
    /// Pause of the application between two posts.
    pub gap_ns: u64,
    /// Receives that the target posts at first, and tops up to.
    pub receive_depth: u32,
    /// Receives that the target posts in all.
    pub receives: u32,
    /// Messages at the end that wait for something, and are released one by one.
    pub held: usize,
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub struct MessagePlan {
    /// Bytes.
    pub len: u32,
    /// `WriteIMM`, with this immediate.
    pub imm: Option<[u8; 4]>,
    /// Ask for a solicited event.
    pub solicited: bool,
    /// Ask for a completion.
    pub signaled: bool,
    /// Index of the target's region.
    pub region: usize,
    /// Offset of the first byte in it.
    pub offset: u64,
    /// What is wrong with it.
    pub wrong: Option<Wrong>,
}

/// What can be wrong with a write's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// A key that names no region.
    Rkey,
    /// The last byte lies behind the region.
    BeyondEnd,
    /// The region does not permit remote writes.
    ReadOnly,
    /// The address range wraps.
    Overflow,
}

/// What happens to hosts and their links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// The link of a port changes; this end learns it after `own_ns`, and the peers after `peer_ns` or when they are told.
    Link {
        /// Host.
        host: usize,
        /// Port.
        plane: u8,
        /// Up or down.
        up: bool,
        /// Delay of the news here.
        own_ns: u64,
        /// Delay of the news at the peers.
        peer_ns: u64,
    },
    /// The host's engine does nothing for a while.
    Stall {
        /// Host.
        host: usize,
        /// How long.
        for_ns: u64,
    },
    /// The host stops for ever.
    Vanish {
        /// Host.
        host: usize,
    },
    /// A packet that nobody sent arrives.
    Forge {
        /// Connection.
        connection: usize,
        /// Side that receives it.
        side: usize,
        /// What it is.
        forgery: Forgery,
    },
    /// A packet that nobody sent arrives at a node.
    ForgeNode {
        /// Host in whose name.
        from: usize,
        /// Host that receives it.
        to: usize,
        /// What it is.
        forgery: NodeForgery,
    },
    /// A controller does something with the profile of a queue pair.
    Control {
        /// Connection.
        connection: usize,
        /// Side.
        side: usize,
        /// What it does.
        command: Command,
    },
    /// The application moves its queue pair to ERR.
    GiveUp {
        /// Connection.
        connection: usize,
        /// Side.
        side: usize,
    },
    /// A host is upset.
    Upset(Upset),
}

impl Class {
    /// Whether every request must succeed.
    pub fn must_succeed(self) -> bool {
        matches!(self, Class::Survivable | Class::Restart)
    }
}

impl ConnectionPlan {
    /// Whether both sides agreed that windows change.
    pub fn windows_change(&self) -> bool {
        self.dynamic_mpr == [true, true]
    }

    /// Whether its answers have other limits than by default (protocol.md §14, P29).
    pub fn limits_answers(&self) -> bool {
        (self.answers_per_s, self.answers_burst) != ANSWERS
    }

    /// The largest window that either side's memory is made for, in units of 128 PSNs.
    pub fn max_mpr(&self) -> u8 {
        self.mpr[0].max(self.mpr[1]).saturating_mul(2)
    }

    /// Two queue pairs that can do everything and send nothing yet.
    pub fn new(hosts: [usize; 2], qpn: [u32; 2], pmtu: Pmtu) -> ConnectionPlan {
        ConnectionPlan {
            hosts,
            qpn,
            psn: [0, 0],
            pmtu,
            mpr: [8, 8],
            max_wimm: [128, 128],
            believed_wimm: [128, 128],
            timeout: 14,
            linear_cnt: 3,
            exp_cnt: 5,
            evs_per_plane: 32,
            active_per_plane: 16,
            ev_min_active: 4,
            trim_nack: [true, true],
            svc_time: [false, false],
            dynamic_mpr: [false, false],
            sack_gen_threshold: 16_384,
            answers_per_s: ANSWERS.0,
            answers_burst: ANSWERS.1,
            reo_min_ns: 50_000,
            sq_depth: 128,
            profile: None,
            verdict_ppm: 0,
            auto_evs: false,
            fabric_trims: true,
            ready_ns: [0, 0],
            flows: [FlowPlan::default(), FlowPlan::default()],
        }
    }

    /// T0 in nanoseconds (protocol.md §4); `None`: disabled.
    pub fn timeout_ns(&self) -> Option<u64> {
        (self.timeout > 0).then(|| self.t0_ns())
    }

    /// T0 in nanoseconds, of a timeout that is not disabled.
    pub fn t0_ns(&self) -> u64 {
        1024u64 << self.timeout
    }

    /// Time after which a packet that nobody answers must have ended the connection (protocol.md §4, §5.7).
    pub fn retry_budget_ns(&self) -> u64 {
        let longest = 17_180_000_000;
        let linear = u64::from(self.linear_cnt) * self.t0_ns();
        let backoff = (1..=u32::from(self.exp_cnt))
            .map(|k| (self.t0_ns() << k.min(24)).min(longest))
            .sum::<u64>();
        linear + backoff + self.t0_ns()
    }
}

impl FlowPlan {
    /// Bytes of all messages.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| u64::from(message.len)).sum()
    }

    /// Messages with an immediate.
    pub fn immediates(&self) -> u32 {
        self.messages.iter().filter(|message| message.imm.is_some()).count() as u32
    }
}

impl MessagePlan {
    /// Packets at `pmtu` bytes each (protocol.md §5.2).
    pub fn packets(&self, pmtu: u32) -> u32 {
        self.len.div_ceil(pmtu).max(1)
    }
}
