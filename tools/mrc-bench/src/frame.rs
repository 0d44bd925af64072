//! The frames of the bare loops: Ethernet, IPv4, UDP and the first bytes of a BTH, so that the steering program takes them.

use std::net::Ipv4Addr;

/// Ethernet, IPv4, UDP and BTH.
pub(crate) const HEADER: usize = 14 + 20 + 8 + 12;
/// Where the sequence number stands: in the BTH's place for a PSN, and four bytes wide.
const SEQUENCE: usize = HEADER - 4;
/// Where the number of the run stands: in the place of a `P_Key`.
const RUN: usize = 14 + 20 + 8 + 2;
/// Everything that an MRC write with a timestamp has beside its data: 16 (RETH), 4 (METH), 4 (TSETH) and 4 (ICRC) more.
pub(crate) const WRITE_OVERHEAD: usize = HEADER + 16 + 4 + 4 + 4;
/// As long as an MRC SACK over IPv4.
pub(crate) const ACK: usize = 14 + 20 + 8 + 52;

const UDP_PORT: u16 = 4791;
const OPCODE_WRITE_MIDDLE: u8 = 0xC7;

/// Headers for frames of one length in one direction.
#[derive(Clone)]
pub(crate) struct Template([u8; HEADER]);

impl Template {
    /// For frames of `len` bytes, Ethernet header included. `run` tells frames of one run from stragglers of the last one.
    pub(crate) fn new(run: u16, len: usize, source: ([u8; 6], Ipv4Addr), destination: ([u8; 6], Ipv4Addr)) -> Self {
        let ip_len = (len - 14) as u16;
        let mut bytes = [0; HEADER];
        bytes[0..6].copy_from_slice(&destination.0);
        bytes[6..12].copy_from_slice(&source.0);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14] = 0x45;
        bytes[16..18].copy_from_slice(&ip_len.to_be_bytes());
        bytes[20] = 0x40;
        bytes[22] = 64;
        bytes[23] = 17;
        bytes[26..30].copy_from_slice(&source.1.octets());
        bytes[30..34].copy_from_slice(&destination.1.octets());
        let checksum = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
        bytes[34..36].copy_from_slice(&0xC000_u16.to_be_bytes());
        bytes[36..38].copy_from_slice(&UDP_PORT.to_be_bytes());
        bytes[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
        bytes[42] = OPCODE_WRITE_MIDDLE;
        bytes[RUN..RUN + 2].copy_from_slice(&run.to_be_bytes());
        Self(bytes)
    }

    /// Writes the headers of the frame with this sequence number.
    pub(crate) fn write(&self, frame: &mut [u8], sequence: u32) {
        frame[..HEADER].copy_from_slice(&self.0);
        frame[SEQUENCE..HEADER].copy_from_slice(&sequence.to_be_bytes());
    }
}

/// The sequence number of a frame; `None` if it is not of this run.
pub(crate) fn sequence(frame: &[u8], run: u16) -> Option<u32> {
    if frame.get(RUN..RUN + 2)? != run.to_be_bytes() {
        return None;
    }
    let bytes = frame.get(SEQUENCE..HEADER)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !(((folded & 0xFFFF) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(len: usize) -> Template {
        Template::new(
            7,
            len,
            ([2; 6], Ipv4Addr::new(10, 0, 0, 1)),
            ([4; 6], Ipv4Addr::new(10, 0, 0, 2)),
        )
    }

    #[test]
    fn a_sequence_number_comes_back() {
        let mut frame = vec![0; 100];
        template(100).write(&mut frame, 0xDEAD_BEEF);
        assert_eq!(sequence(&frame, 7), Some(0xDEAD_BEEF));
        assert_eq!(sequence(&frame[..HEADER - 1], 7), None);
        assert_eq!(sequence(&frame, 8), None);
    }

    #[test]
    fn the_lengths_are_those_of_the_frame() {
        let mut frame = vec![0; 1106];
        template(1106).write(&mut frame, 0);
        assert_eq!(u16::from_be_bytes([frame[16], frame[17]]), 1092);
        assert_eq!(u16::from_be_bytes([frame[38], frame[39]]), 1072);
    }

    #[test]
    fn the_ip_checksum_verifies() {
        let mut frame = vec![0; 200];
        template(200).write(&mut frame, 7);
        assert_eq!(checksum(&frame[14..34]), 0);
    }
}
