//! uSIDs: the 16-bit names that SRv6 addresses of a fabric are made of (wire-format.md §5, format F3216).
//!
//! | uSID | Names |
//! |---|---|
//! | `1pNN` | T0 NN of plane p |
//! | `2pNN` | T1 NN of plane p |
//! | `4pNN` | host NN by its port in plane p |
//! | `e0NN` | on the switch that reads it: its port NN (uA) |

use std::net::Ipv6Addr;

use super::Prefix;

/// The 32 bits before the uSIDs (RFC 9602 sets `5f00::/16` aside for segment identifiers).
pub const BLOCK: u32 = 0x5f00_0000;
/// Length of [`BLOCK`].
pub const BLOCK_BITS: u8 = 32;

fn sid(kind: u16, plane: usize, number: usize) -> u16 {
    kind << 12 | (plane as u16 & 0xf) << 8 | number as u16 & 0xff
}

/// The uSID of a T0.
pub fn t0_sid(plane: usize, number: usize) -> u16 {
    sid(1, plane, number)
}

/// The uSID of a T1.
pub fn t1_sid(plane: usize, number: usize) -> u16 {
    sid(2, plane, number)
}

/// The uSID of a host's port.
pub fn host_sid(plane: usize, host: usize) -> u16 {
    sid(4, plane, host)
}

/// The uSID of an adjacency: port `port` (an index into [`Node::interfaces`](super::Node::interfaces)) of the switch that reads it.
pub fn adjacency_sid(port: usize) -> u16 {
    sid(0xe, 0, port)
}

/// The addresses that begin with a uSID.
pub fn sid_prefix(sid: u16) -> Prefix {
    Prefix {
        address: container(&[sid]).into(),
        length: BLOCK_BITS + 16,
    }
}

/// The address that consists of these uSIDs, at most six of them.
pub(crate) fn container(sids: &[u16]) -> Ipv6Addr {
    let mut bits = u128::from(BLOCK) << 96;
    for (place, sid) in sids.iter().take(6).enumerate() {
        bits |= u128::from(*sid) << (80 - 16 * place);
    }
    bits.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_reads_as_the_way_that_it_describes() {
        let way = [t0_sid(1, 0), t1_sid(1, 2), t0_sid(1, 1), host_sid(1, 9)];
        assert_eq!(container(&way).to_string(), "5f00:0:1100:2102:1101:4109::");
        assert_eq!(sid_prefix(way[0]).to_string(), "5f00:0:1100::/48");
        assert_eq!(adjacency_sid(3), 0xe003);
    }
}
