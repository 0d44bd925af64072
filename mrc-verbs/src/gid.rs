//! Global identifiers: the node addresses of RoCE v2.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A node's address in the 16 bytes of verbs; IPv4 is mapped (`::ffff:a.b.c.d`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Gid([u8; 16]);

/// IPv4 or IPv6; both ends of a connection use the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressFamily::V4 => "IPv4",
            AddressFamily::V6 => "IPv6",
        })
    }
}

impl Gid {
    /// From the raw bytes of `ibv_gid`.
    pub fn from_raw(raw: [u8; 16]) -> Gid {
        Gid(raw)
    }

    /// The raw bytes of `ibv_gid`.
    pub fn raw(self) -> [u8; 16] {
        self.0
    }

    /// The address, unmapped.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// Its family.
    pub fn family(self) -> AddressFamily {
        match self.ip() {
            IpAddr::V4(_) => AddressFamily::V4,
            IpAddr::V6(_) => AddressFamily::V6,
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Gid {
        Gid(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Gid {
        Gid(ip.octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Gid {
        match ip {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

impl FromStr for Gid {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Gid, Self::Err> {
        text.parse::<IpAddr>().map(Gid::from)
    }
}

impl TryFrom<String> for Gid {
    type Error = std::net::AddrParseError;

    fn try_from(text: String) -> Result<Gid, Self::Error> {
        text.parse()
    }
}

impl From<Gid> for String {
    fn from(gid: Gid) -> String {
        gid.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_mapped_and_comes_back_as_ipv4() {
        let gid: Gid = "192.0.2.1".parse().unwrap();
        assert_eq!(&gid.raw()[10..], &[0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(gid.family(), AddressFamily::V4);
        assert_eq!("::ffff:192.0.2.1".parse::<Gid>().unwrap(), gid);
        assert_eq!(gid.to_string(), "192.0.2.1");
        assert_eq!("2001:db8::1".parse::<Gid>().unwrap().family(), AddressFamily::V6);
    }
}
