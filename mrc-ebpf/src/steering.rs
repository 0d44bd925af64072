//! The host's steering program.

use std::fmt;
use std::os::fd::AsRawFd;

use aya::maps::{Array, MapData, PerCpuArray, XskMap};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader, Pod};

use crate::attach::{Attached, attach};
use crate::error::{Error, load_error};

const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// The most UDP ports that MRC can be told to listen on.
const MAX_UDP_PORTS: usize = 8;

/// What the program takes for MRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings(RawSettings);

/// As in bpf/steer.bpf.c.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawSettings {
    trimmed_dscps: u64,
    port_count: u32,
    ports: [u16; MAX_UDP_PORTS],
    // What the compiler would add, spelled out: the kernel reads every byte.
    padding: u32,
}

/// Settings that no program can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The number of UDP ports is out of range.
    #[error("{count} UDP ports: give at least 1 and at most {MAX_UDP_PORTS}")]
    UdpPorts {
        /// How many were given.
        count: usize,
    },
    /// A DSCP is out of range.
    #[error("DSCP {dscp}: the largest is 63")]
    Dscp {
        /// The value given.
        dscp: u8,
    },
}

impl Settings {
    /// Listen on these UDP ports (1 to 8 of them). The lengths in packets with one of `trimmed_dscps` are not believed,
    /// since a switch has cut them (wire-format.md §10).
    pub fn new(udp_ports: &[u16], trimmed_dscps: impl IntoIterator<Item = u8>) -> Result<Self, SettingsError> {
        let mut ports = [0; MAX_UDP_PORTS];
        let count = udp_ports.len();
        match ports.get_mut(..count) {
            Some(slots) if count > 0 => slots.copy_from_slice(udp_ports),
            _ => return Err(SettingsError::UdpPorts { count }),
        }
        let mut dscps = 0;
        for dscp in trimmed_dscps {
            if dscp > 63 {
                return Err(SettingsError::Dscp { dscp });
            }
            dscps |= 1 << dscp;
        }
        Ok(Self(RawSettings {
            trimmed_dscps: dscps,
            port_count: count as u32,
            ports,
            padding: 0,
        }))
    }
}

/// Where the program sent a frame, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Verdict {
    /// MRC: to the socket.
    Steered,
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// A second VLAN tag, or 802.1ad.
    SecondTag,
    /// IPv4 with options.
    IpOptions,
    /// A fragment.
    Fragment,
    /// Another protocol, or IPv6 with extension headers.
    NotUdp,
    /// UDP to another port.
    OtherPort,
    /// Our port, but not an opcode of MRC: plain `RoCEv2`.
    OtherOpcode,
    /// A length that does not fit the frame, or a frame too short for the header it promises.
    BadLength,
    /// MRC, but no socket is bound to the queue on which it came.
    NoSocket,
}

impl Verdict {
    /// Every verdict, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Steered,
        Self::NotIp,
        Self::SecondTag,
        Self::IpOptions,
        Self::Fragment,
        Self::NotUdp,
        Self::OtherPort,
        Self::OtherOpcode,
        Self::BadLength,
        Self::NoSocket,
    ];

    /// A short name, as metrics use it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steered => "steered",
            Self::NotIp => "not_ip",
            Self::SecondTag => "second_tag",
            Self::IpOptions => "ip_options",
            Self::Fragment => "fragment",
            Self::NotUdp => "not_udp",
            Self::OtherPort => "other_port",
            Self::OtherOpcode => "other_opcode",
            Self::BadLength => "bad_length",
            Self::NoSocket => "no_socket",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each verdict was given, all CPUs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerdictCounts([u64; Verdict::ALL.len()]);

impl VerdictCounts {
    /// The count of one verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.0.get(verdict as usize).copied().unwrap_or_default()
    }

    /// All counts.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, u64)> + '_ {
        Verdict::ALL.iter().copied().zip(self.0)
    }
}

/// The steering program on one interface.
#[derive(Debug)]
pub struct Steering {
    object: Ebpf,
    attached: Option<Attached>,
}

impl Steering {
    /// Loads the program for `interface` without attaching it yet; sockets can be put in place first.
    pub fn load(interface: &str, settings: &Settings) -> Result<Self, Error> {
        let mut object = load_object(OBJECT, interface)?;
        xdp_program(&mut object, "steer", interface)?
            .load()
            .map_err(|error| load_error(interface, error))?;
        let mut steering = Self { object, attached: None };
        steering.set(settings)?;
        Ok(steering)
    }

    /// Attaches the program to `interface`: native mode if the driver has it (and `native` is set), else generic mode.
    pub fn attach(&mut self, interface: &str, native: bool) -> Result<&Attached, Error> {
        let program = xdp_program(&mut self.object, "steer", interface)?;
        Ok(self.attached.insert(attach(program, interface, native)?))
    }

    /// How the program is attached, if it is.
    pub fn attached(&self) -> Option<&Attached> {
        self.attached.as_ref()
    }

    /// Changes what is taken for MRC, from the next packet on.
    pub fn set(&mut self, settings: &Settings) -> Result<(), Error> {
        let mut map = Array::<&mut MapData, RawSettings>::try_from(self.map_mut("settings")?)?;
        Ok(map.set(0, settings.0, 0)?)
    }

    /// Gives the MRC packets of receive queue `queue` to an `AF_XDP` socket that is bound to it.
    pub fn set_socket(&mut self, queue: u32, socket: &impl AsRawFd) -> Result<(), Error> {
        let mut map = XskMap::try_from(self.map_mut("sockets")?)?;
        Ok(map.set(queue, socket.as_raw_fd(), 0)?)
    }

    /// How often each verdict was given.
    pub fn counts(&self) -> Result<VerdictCounts, Error> {
        let map = self.object.map("verdicts").ok_or_else(|| no_map("verdicts"))?;
        let map = PerCpuArray::<&MapData, u64>::try_from(map)?;
        let mut counts = VerdictCounts::default();
        for (verdict, count) in Verdict::ALL.iter().zip(&mut counts.0) {
            *count = map.get(&(*verdict as u32), 0)?.iter().sum();
        }
        Ok(counts)
    }

    /// Runs the program on a frame without any interface; returns whether it would be steered, and leaves the reason in the
    /// counts. For tests: there is no socket, so a frame that is ours counts as [`Verdict::NoSocket`].
    pub fn run(&self, frame: &[u8]) -> Result<(), Error> {
        let program = self.object.program("steer").ok_or_else(|| no_map("steer"))?;
        let aya::programs::Program::Xdp(program) = program else {
            return Err(no_map("steer"));
        };
        let mut out = vec![0; frame.len() + 256];
        let options = aya::programs::TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..Default::default()
        };
        aya::programs::TestRun::test_run(program, options)
            .map(drop)
            .map_err(|error| load_error("a test run", error))
    }

    fn map_mut(&mut self, name: &'static str) -> Result<&mut aya::maps::Map, Error> {
        self.object.map_mut(name).ok_or_else(|| no_map(name))
    }
}

/// Loads an object. Our programs touch no kernel types, so the kernel's type information is not read: that takes longer
/// than everything else together.
pub(crate) fn load_object(object: &[u8], interface: &str) -> Result<Ebpf, Error> {
    EbpfLoader::new()
        .btf(None)
        .load(object)
        .map_err(|error| load_error(interface, error))
}

/// The program of that name in an object.
pub(crate) fn xdp_program<'a>(object: &'a mut Ebpf, name: &str, interface: &str) -> Result<&'a mut Xdp, Error> {
    let program = object.program_mut(name).ok_or_else(|| no_map(name))?;
    program
        .try_into()
        .map_err(|error: aya::programs::ProgramError| load_error(interface, error))
}

/// The object is part of this crate, so this means that the crate was built wrongly.
fn no_map(name: &str) -> Error {
    Error::Map(aya::maps::MapError::InvalidName { name: name.to_owned() })
}

#[expect(unsafe_code, reason = "the kernel copies the settings byte by byte")]
mod pod {
    use super::{Pod, RawSettings};
    // SAFETY: plain integers with every byte named, no padding, no pointer.
    unsafe impl Pod for RawSettings {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_the_limit_they_break() {
        assert_eq!(Settings::new(&[], []), Err(SettingsError::UdpPorts { count: 0 }));
        assert_eq!(Settings::new(&[1; 9], []), Err(SettingsError::UdpPorts { count: 9 }));
        assert_eq!(Settings::new(&[4791], [64]), Err(SettingsError::Dscp { dscp: 64 }));
        assert!(Settings::new(&[4791; 8], [12, 16, 63]).is_ok());
    }

    #[test]
    fn verdicts_are_numbered_in_order() {
        for (index, verdict) in Verdict::ALL.iter().enumerate() {
            assert_eq!(index, *verdict as usize);
        }
    }
}
