//! Congestion control: NSCC and what surrounds it (protocol.md §10, §11).
//!
//! [`Nscc`] is one window: it hears what SACKs, NACKs and losses say, and answers with `cwnd`. It counts nothing that the
//! caller counts anyway: the bytes in flight are an argument. [`NsccParams`] are its numbers, computed from what is known
//! of the network ([`Network`]) or taken from a controller's [`NsccConfig`]; [`CcProfiles`] holds those by number.
//! [`Pressure`] is the responder's side: how hard to ask for less. All arithmetic is in integers and fixed point.
//!
//! ```
//! use mrc_protocol::cc::{AckSample, Network, Nscc, NsccParams, RttSample};
//! use mrc_protocol::Instant;
//!
//! // Four planes of 25 Gbit/s, packets of 4184 bytes.
//! let network = Network::new(4, 25_000_000_000, 4184);
//! let mut now = Instant::from_ns(1);
//! let mut nscc = Nscc::new(NsccParams::new(&network), now);
//! let cwnd = nscc.cwnd_bytes();
//! // A packet was NACKed because a switch had to trim it: its bytes leave the window.
//! now = now + 60_000;
//! nscc.on_nack(now, 4184, None, true, 100 * 4184);
//! assert_eq!(nscc.cwnd_bytes(), cwnd - 4184);
//! # let _ = (AckSample::new(now, 4184), RttSample { ns: 1, bytes: 4184 });
//! ```

mod base;
mod config;
mod count;
mod delay;
mod fixed;
mod max;
mod network;
mod nscc;
mod params;
mod penalty;
mod profile;
mod sample;
mod schedule;
mod store;
#[cfg(test)]
mod tests;

pub use self::config::{ConfigError, NsccConfig};
pub use self::count::ReceivedCount;
pub use self::fixed::Fixed;
pub(crate) use self::max::MaxWindow;
pub use self::network::Network;
pub use self::nscc::Nscc;
pub use self::params::NsccParams;
pub use self::penalty::Pressure;
pub use self::profile::{Algorithm, CcAttr, CcChange, CcProfile, CcProfileError, Config};
pub use self::sample::{AckSample, Penalty, RttSample};
pub use self::schedule::SchedulerState;
pub use self::store::CcProfiles;
