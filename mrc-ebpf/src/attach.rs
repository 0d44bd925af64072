//! Attaching an XDP program by a BPF link: native mode first, generic mode as a last resort, never over another program.

use std::fmt;

use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};

use crate::error::{Error, errno, explain};
use crate::occupant::{ifindex, occupant};

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's generic receive path.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// A program on an interface. Dropping it (or the end of the process) takes it off.
#[derive(Debug)]
pub struct Attached {
    // Closing its descriptor is what detaches.
    _link: FdLink,
    mode: Mode,
    reason: Option<String>,
}

impl Attached {
    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Why it does not run in native mode.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// Attaches a loaded program; `native` = `false` asks for generic mode at once.
pub(crate) fn attach(program: &mut Xdp, interface: &str, native: bool) -> Result<Attached, Error> {
    let index = ifindex(interface)?;
    let mut reason = "native mode was not asked for".to_owned();
    if native {
        match attach_mode(program, interface, index, XdpMode::Driver)? {
            Ok(link) => {
                return Ok(Attached {
                    _link: link,
                    mode: Mode::Native,
                    reason: None,
                });
            }
            Err(refusal) => reason = refusal,
        }
    }
    match attach_mode(program, interface, index, XdpMode::Skb)? {
        Ok(link) => Ok(Attached {
            _link: link,
            mode: Mode::Generic,
            reason: Some(reason),
        }),
        Err(generic) => Err(Error::NotAttachable {
            interface: interface.to_owned(),
            native: reason,
            generic,
        }),
    }
}

/// The outer error ends the attempt, the inner one says why this mode does not work.
fn attach_mode(program: &mut Xdp, interface: &str, index: u32, mode: XdpMode) -> Result<Result<FdLink, String>, Error> {
    match program.attach_to_if_index(index, mode) {
        // The loader falls back to an attachment that outlives the process; converting it fails, and drops it again.
        Ok(id) => {
            let link = program.take_link(id).map_err(|_| Error::NoLink)?;
            Ok(Ok(FdLink::try_from(link)?))
        }
        Err(error) => match errno(&error) {
            Some(libc::EBUSY | libc::EEXIST) => match occupant(interface)? {
                Some(occupant) => Err(Error::Occupied {
                    interface: interface.to_owned(),
                    occupant,
                }),
                None => Ok(Err(explain(&error))),
            },
            Some(libc::EPERM) => Err(Error::NoPrivilege {
                interface: interface.to_owned(),
            }),
            Some(libc::ENODEV) => Err(Error::UnknownInterface {
                interface: interface.to_owned(),
            }),
            _ => Ok(Err(refusal(&error))),
        },
    }
}

fn refusal(error: &ProgramError) -> String {
    match errno(error) {
        Some(libc::EOPNOTSUPP) => "the driver has none".to_owned(),
        Some(libc::ERANGE) => "the MTU is too large for XDP on this driver".to_owned(),
        _ => explain(error),
    }
}
