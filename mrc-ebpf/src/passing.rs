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
        let mut object = Ebpf::load(OBJECT).map_err(|error| load_error(interface, error))?;
        let program = crate::steering::xdp_program(&mut object, "pass", interface)?;
        program.load().map_err(|error| load_error(interface, error))?;
        let attached = attach(program, interface, true)?;
        Ok(Self { attached })
    }

    /// How the program is attached.
    pub fn attached(&self) -> &Attached {
        &self.attached
    }
}
