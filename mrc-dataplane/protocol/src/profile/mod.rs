//! EV profiles: which paths there are, what their names look like on the wire, and which of them a controller forbids
//! (protocol.md §7, api.md §4.5 to §4.9).
//!
//! A controller describes an EV twice. The *format* says how the wire value is cut into fields; the *profile fields* say
//! which bits of each are fixed and which come from the EV. What an EV profile holds is therefore a short bit string,
//! and [`Expansion`] makes the wire value of it:
//!
//! ```
//! use mrc_protocol::profile::{EvValue, Expansion, Format, FormatField, FormatMode, ProfileField};
//!
//! // protocol.md §7.3, example 2: twelve bits of entropy over fixed ones.
//! let format = Format::new(FormatMode::Stev, &[FormatField::new(16), FormatField::new(16)])?;
//! let fields = [
//!     ProfileField { width: 16, init_val: 0xa000, min_val: 0, max_val: 0, mask: 0x0f0f },
//!     ProfileField { width: 16, init_val: 0xb050, min_val: 0, max_val: 0, mask: 0x000f },
//! ];
//! let expansion = Expansion::new(&format, &fields)?;
//! let ev = EvValue::left_aligned(&[0x5c, 0x70]).expect("at most 32 bytes");
//! assert_eq!(expansion.expand(&ev)?.first_u32(), 0xa50c_b057);
//! # Ok::<(), mrc_protocol::profile::FieldError>(())
//! ```
//!
//! [`Profiles`] holds the format and EV profiles of one device with their states and references, and hands a queue pair
//! the universe of its profile as [`ProfileEv`]s.
//!
//! **Memory.** A format or profile has at most [`MAX_FIELDS`] fields. The array of an EV profile is allocated when its
//! configuration is set, for at most [`Limits::max_count`] (never above [`MAX_EV_COUNT`]) entries; drawing that many needs
//! working memory in proportion to them and not to the ranges that they are drawn from. Numbers of profiles and of
//! entries over all profiles are limited by [`Limits`] too.

mod config;
mod draw;
mod entries;
mod entry_ops;
mod error;
mod ev;
mod expand;
mod field;
mod format;
mod output;
mod state;
mod store;
mod value;

pub(crate) use self::draw::auto_ports;

pub use self::config::{EvChange, EvMode, EvOp, EventMask, Replace, SetState};
pub use self::entries::{EntryState, PortEv};
pub use self::error::{ErrorClass, FieldError, ProfileError};
pub use self::ev::{Advice, EvProfile, ProfileEv, Touched};
pub use self::expand::Expansion;
pub use self::field::{Format, FormatField, FormatMode, MAX_FIELDS, ProfileField};
pub use self::format::{FormatChange, FormatProfile};
pub use self::output::{Containers, Output};
pub use self::state::{Attr, Need, ProfileState};
pub use self::store::{BUILT_IN, Binding, EvEvent, Limits, MAX_EV_COUNT, Profiles};
pub use self::value::EvValue;

/// Bytes that a provider may keep for itself beside a profile (api.md §4.5).
pub const VENDOR_CFG_LEN: usize = 128;
