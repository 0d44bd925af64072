//! Reading from a frame that lies in one or two buffers.

use crate::Payload;

/// A received Ethernet frame without FCS. A frame larger than one buffer arrives in two (`AF_XDP` multi-buffer); headers
/// and data may straddle them anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The first bytes.
    pub head: &'a [u8],
    /// The rest; empty if all fitted into `head`.
    pub tail: &'a [u8],
}

impl<'a> Frame<'a> {
    /// A frame in one buffer.
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self { head: bytes, tail: &[] }
    }

    /// Bytes in both buffers.
    #[inline]
    pub const fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Is there nothing?
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `N` bytes from offset `at`, or `None` if the frame ends before.
    #[inline]
    pub(crate) fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        match self.head.get(at..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(bytes) => Some(*bytes),
            None => self.straddling(at),
        }
    }

    /// The slow way of `array`: some of the bytes are in the second buffer.
    #[cold]
    fn straddling<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if at.checked_add(N)? > self.len() {
            return None;
        }
        let mut out = [0; N];
        let part = self.slice(at, at + N);
        let (first, second) = out.split_at_mut_checked(part.head.len())?;
        first.copy_from_slice(part.head);
        second.copy_from_slice(part.tail);
        Some(out)
    }

    /// Bytes `from..to`, cut at the end of the frame.
    #[inline]
    pub(crate) fn slice(&self, from: usize, to: usize) -> Payload<'a> {
        let cut = self.head.len();
        Payload {
            head: clamped(self.head, from, to),
            tail: clamped(self.tail, from.saturating_sub(cut), to.saturating_sub(cut)),
        }
    }
}

/// `bytes[from..to]` with both ends moved into the slice.
#[inline]
fn clamped(bytes: &[u8], from: usize, to: usize) -> &[u8] {
    let to = to.min(bytes.len());
    bytes.get(from.min(to)..to).unwrap_or_default()
}
