//! A program that passes everything: what the switch side of a veth needs.

use aya::Ebpf;

use crate::attach::{Attached, attach};
use crate::error::{Error, load_error};

const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pass.bpf.o"));

/// `XDP_PASS` on an interface, until dropped.
///
/// A native program on the receiving end of a veth makes it take frames that are redirected into it. It also copies each
/// frame on arrival and so completes the sender's `AF_XDP` buffer at once, rather than when some queue behind it drains.
#[derive(Debug)]
pub struct Passing {
    // The program lives as long as it is attached; only the link has to be kept.
    attached: Attached,
}

impl Passing {
    /// Attaches the program to `interface` of this network namespace.
    pub fn attach(interface: &str) -> Result<Self, Error> {
        PassingProgram::load()?.attach(interface)
    }

    /// How the program is attached.
    pub fn attached(&self) -> &Attached {
        &self.attached
    }
}

/// The program of [`Passing`], loaded once for any number of interfaces, in whatever network namespaces.
#[derive(Debug)]
pub struct PassingProgram {
    object: Ebpf,
}

impl PassingProgram {
    /// Loads the program.
    pub fn load() -> Result<Self, Error> {
        let mut object = crate::steering::load_object(OBJECT, ALL)?;
        let program = crate::steering::xdp_program(&mut object, "pass", ALL)?;
        program.load().map_err(|error| load_error(ALL, error))?;
        Ok(Self { object })
    }

    /// Attaches it to `interface` of the calling thread's network namespace.
    pub fn attach(&mut self, interface: &str) -> Result<Passing, Error> {
        let program = crate::steering::xdp_program(&mut self.object, "pass", interface)?;
        let attached = attach(program, interface, true)?;
        Ok(Passing { attached })
    }
}

/// What errors call the interfaces of a program that is not attached yet.
const ALL: &str = "all";
