//! What a queue pair counts.

/// Counters since creation; they only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpStats {
    /// Write packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Write packets sent whose PSN was sent before.
    pub packets_retransmitted: u64,
    /// Payload bytes of first transmissions.
    pub payload_bytes_sent: u64,
    /// Packets declared lost by rules A to C (protocol.md §5.6).
    pub losses_inferred: u64,
    /// Of these, by rule A: a later packet on the same path was acknowledged.
    pub losses_same_path: u64,
    /// By rule B: a packet sent much later was acknowledged.
    pub losses_late: u64,
    /// By rule C: the answer to a probe did not show them.
    pub losses_unseen: u64,
    /// Packets whose local ACK timeout expired (rule E).
    pub timeouts: u64,
    /// Packets declared lost that had arrived.
    pub losses_spurious: u64,
    /// Packets taken back because their port went down.
    pub packets_withdrawn: u64,
    /// Reliability probes sent.
    pub probes_sent: u64,
    /// Of these, tail probes: packets were in flight and no SACK came (protocol.md §5.7).
    pub tail_probes_sent: u64,
    /// SACKs received and used.
    pub sacks_received: u64,
    /// NACKs received and used.
    pub nacks_received: u64,
    /// Transport ACKs received and used.
    pub acks_received: u64,
    /// Highest PSN sent again because its Transport ACK was missing (P9).
    pub ack_resends: u64,
    /// Bytes that the peer says it received beyond what it acknowledged: it takes packets for larger than they are (P26).
    pub bytes_overcounted: u64,
    /// SACKs received with a CE mark.
    pub marks_received: u64,
    /// Write packets received and placed.
    pub packets_placed: u64,
    /// Payload bytes of them.
    pub payload_bytes_placed: u64,
    /// Of these, packets that arrived before an earlier one.
    pub packets_out_of_order: u64,
    /// Write packets received that had been received before.
    pub duplicates_received: u64,
    /// Trimmed packets received.
    pub trims_received: u64,
    /// SACKs sent.
    pub sacks_sent: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// Transport ACKs and NAKs sent.
    pub acks_sent: u64,
    /// Answers that the rate limit, or a full queue of answers, suppressed (protocol.md §14).
    pub answers_suppressed: u64,
    /// Times at which nothing could be sent because no path was eligible.
    pub blocked: u64,
}
