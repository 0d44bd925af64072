//! The BPF programs of MRC and their typed loader.
//!
//! * [`Steering`]: the host's program. It gives MRC packets to `AF_XDP` sockets and leaves everything else to the kernel.
//! * [`Passing`]: a program that passes everything, for the switch side of a veth.
//!
//! Both are attached by a BPF link, whose descriptor belongs to this process alone: however the process ends, the kernel
//! detaches the program.

mod attach;
mod error;
mod occupant;
mod passing;
mod steering;

pub use attach::{Attached, Mode};
pub use error::{Error, explain};
pub use occupant::{Occupant, occupant};
pub use passing::{Passing, PassingProgram};
pub use steering::{Settings, SettingsError, Steering, Verdict, VerdictCounts};
