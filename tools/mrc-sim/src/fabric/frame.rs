//! What travels: a packet as a value or as bytes, with the marks that the network leaves on it.

use crate::baseline::segment::Segment;
use mrc_wire::{Bth, Headers};
use std::ops::Range;
use std::sync::Arc;

/// A packet on its way.
// In this order: what switches look at comes first and fits one line of the processor's cache.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct Frame {
    /// Sending host.
    pub src: usize,
    /// Receiving host.
    pub dst: usize,
    /// A switch has cut it.
    pub trim: Option<Trim>,
    /// Size as sent, for the sending port's clock, in bytes.
    pub size: u32,
    /// Entropy value: the path inside the plane.
    pub ev: u32,
    /// Plane, i.e. number of the port at both ends.
    pub plane: u8,
    /// Write or probe, in contrast to answers.
    pub data: bool,
    /// Travels in the class above data.
    pub control: bool,
    /// A switch may cut it.
    pub trimmable: bool,
    /// ECN-capable.
    pub ect: bool,
    /// Congestion was met.
    pub ce: bool,
    /// The packet.
    pub body: Body,
    /// Bits to flip, as random numbers to be taken modulo the frame's length.
    pub flips: Vec<u64>,
    /// Running number of the transmission, for traces and oracles.
    pub id: u64,
}

impl Frame {
    /// UDP length + 40, whatever the layers below are (protocol.md §5.1).
    pub fn nominal_size(&self) -> u32 {
        self.size - 14
    }

    /// Whether switches queue it as data: what is no answer and was not cut.
    pub fn is_data_class(&self) -> bool {
        !self.control && self.trim.is_none()
    }

    /// Bytes that are left of it, from the Ethernet header on, without FCS.
    pub fn wire_size(&self) -> u32 {
        match self.trim {
            Some(trim) => self.size.min(trim.keep as u32),
            None => self.size,
        }
    }
}

/// How a switch cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// At the last hop.
    pub last_hop: bool,
    /// Bytes of the frame that remain.
    pub keep: usize,
}

/// The packet itself.
#[derive(Debug, Clone)]
pub enum Body {
    /// Header values, for speed.
    Value(Value),
    /// A whole Ethernet frame.
    Bytes(Vec<u8>),
    /// A packet of a baseline, which is no MRC.
    Baseline(Segment),
}

/// A packet as header values.
#[derive(Debug, Clone)]
pub struct Value {
    /// Base transport header.
    pub bth: Bth,
    /// The others.
    pub headers: Headers,
    /// Data of a write.
    pub payload: Data,
    /// Code point.
    pub dscp: u8,
    /// UDP length as it would be on the wire.
    pub udp_len: u16,
}

/// A stretch of what a flow sends. Frames share it: to copy it into each would be a large part of the work of a large run.
#[derive(Debug, Clone, Default)]
pub struct Data {
    source: Arc<Vec<u8>>,
    stretch: Range<usize>,
}

impl Data {
    /// A stretch of `source`, inside which it must lie.
    pub fn new(source: &Arc<Vec<u8>>, stretch: Range<usize>) -> Data {
        Data {
            source: Arc::clone(source),
            stretch,
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.source[self.stretch.clone()]
    }
}

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Data {
        Data {
            source: Arc::new(bytes.to_vec()),
            stretch: 0..bytes.len(),
        }
    }
}
