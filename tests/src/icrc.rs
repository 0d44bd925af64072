//! The ICRC once more, bit by bit from the text of wire-format.md §9: nothing is shared with the crates under test.

/// What the four bytes at the end of a packet should be. `packet` starts with the IPv4 or IPv6 header and ends with the ICRC
/// itself; `None` if it is too short or neither.
pub fn icrc(packet: &[u8]) -> Option<[u8; 4]> {
    let covered = packet.len().checked_sub(4)?;
    let mut masked = packet[..covered].to_vec();
    let udp = match masked.first()? >> 4 {
        4 => {
            masked.get_mut(1..20)?;
            // TOS, TTL, header checksum.
            masked[1] = 0xff;
            masked[8] = 0xff;
            masked[10..12].fill(0xff);
            20
        }
        6 => {
            masked.get_mut(..40)?;
            // Traffic class, flow label, hop limit.
            masked[0] = 0x6f;
            masked[1..4].fill(0xff);
            masked[7] = 0xff;
            40
        }
        _ => return None,
    };
    // UDP checksum, and byte 4 of the BTH.
    masked.get_mut(udp + 6..udp + 8)?.fill(0xff);
    *masked.get_mut(udp + 8 + 4)? = 0xff;
    let mut crc = u32::MAX;
    for byte in [0xff; 8].iter().chain(&masked) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    Some((!crc).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_a_hardware_nic_is_reproduced() {
        // The congestion notification of wire-format.md §9, without its Ethernet header.
        let hex = "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a";
        let packet: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(icrc(&packet).unwrap(), packet[packet.len() - 4..]);
    }

    #[test]
    fn what_is_no_packet_has_none() {
        assert_eq!(icrc(&[]), None);
        assert_eq!(icrc(&[0x60; 44]), None);
        assert_eq!(icrc(&[0x20; 100]), None);
    }
}
