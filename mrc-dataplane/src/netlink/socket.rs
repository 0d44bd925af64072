//! Netlink sockets: one for questions, one for events.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

/// The kernel puts at most 32 KiB into one datagram.
const BUFFER: usize = 1 << 16;

/// Asks the kernel and waits for the answer.
pub(super) struct Questions {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Questions {
    pub(super) fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel answers inside our own system call. Should it ever not, we do not hang.
        setsockopt(&socket.as_fd(), sockopt::ReceiveTimeout, &TimeVal::new(2, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// Everything of a kind.
    pub(super) fn dump(&mut self, question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        // Interrupted: something changed meanwhile and the list may lack something.
        for _ in 0..8 {
            match self.exchange(question.clone(), NLM_F_DUMP) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
        self.exchange(question, NLM_F_DUMP)
    }

    /// One question with at most one answer.
    pub(super) fn ask(&mut self, question: RouteNetlinkMessage) -> io::Result<Option<RouteNetlinkMessage>> {
        Ok(self.exchange(question, NLM_F_ACK)?.into_iter().next())
    }

    /// An order, with more flags.
    pub(super) fn order(&mut self, order: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.exchange(order, NLM_F_ACK | flags).map(drop)
    }

    fn exchange(&mut self, question: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(question);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            self.buffer.clear();
            self.socket.recv(&mut self.buffer, 0)?;
            for message in messages(&self.buffer) {
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                interrupted |= message.header.flags & netlink_packet_core::NLM_F_DUMP_INTR != 0;
                match message.payload {
                    NetlinkPayload::Done(_) if interrupted => return Err(io::ErrorKind::Interrupted.into()),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
            }
        }
    }
}

/// Hears of changes.
pub(super) struct Events {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Events {
    /// `groups` are numbers of rtnetlink's multicast groups.
    pub(super) fn new(groups: &[u32], buffer: usize) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        if setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &buffer).is_err() {
            // Less than wanted means more resynchronisations, nothing worse.
            let _ = setsockopt(&socket.as_fd(), sockopt::RcvBuf, &buffer);
        }
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// The next changes; `None` when there are no more. An error of `ENOBUFS` says that some were lost.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<RouteNetlinkMessage>>> {
        self.buffer.clear();
        match self.socket.recv(&mut self.buffer, 0) {
            Ok(_) => Ok(Some(
                messages(&self.buffer)
                    .filter_map(|message| match message.payload {
                        NetlinkPayload::InnerMessage(inner) => Some(inner),
                        _ => None,
                    })
                    .collect(),
            )),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// For logs.
    pub(super) fn raw_fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }
}

/// The messages of a datagram. One that cannot be parsed is passed over: a newer kernel may say what we do not know.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> + '_ {
    std::iter::from_fn(move || {
        loop {
            let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
            let message = bytes.get(..length).filter(|message| message.len() >= 16)?;
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            match NetlinkMessage::deserialize(message) {
                Ok(message) => return Some(message),
                Err(error) => tracing::debug!(%error, "netlink message passed over"),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_and_foreign_messages_are_passed_over() {
        assert_eq!(messages(&[]).count(), 0);
        assert_eq!(messages(&[1, 2, 3]).count(), 0);
        // Longer than the datagram, shorter than a header, and of an unknown type.
        assert_eq!(messages(&[200; 40]).count(), 0);
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&4u32.to_ne_bytes());
        assert_eq!(messages(&bytes).count(), 0);
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&16u32.to_ne_bytes());
        bytes[4..6].copy_from_slice(&0xfff0u16.to_ne_bytes());
        bytes[16..20].copy_from_slice(&16u32.to_ne_bytes());
        bytes[20..22].copy_from_slice(&3u16.to_ne_bytes());
        assert!(messages(&bytes).count() <= 1);
    }
}
