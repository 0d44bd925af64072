//! Where frames come from: a capture file, hex digits, or either of them on standard input.

mod capture;
mod hex;
mod link;

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use mrc_capture::Direction;

use crate::fields::Section;

/// What a capture holds.
pub(crate) enum Item {
    Frame(CapturedFrame),
    Statistics(Statistics),
}

/// What a capture says of one of its interfaces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) dropped: u64,
}

/// The place where a frame was captured.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Counted from 1: in captures of an engine the number of the port.
    pub(crate) number: u32,
    pub(crate) name: Option<Rc<str>>,
}

/// One frame as it was captured.
pub(crate) struct CapturedFrame {
    /// Counted from 1.
    pub(crate) number: u64,
    /// Since the epoch; a frame given in hex has no time.
    pub(crate) time: Option<Duration>,
    /// From the Ethernet header on, without FCS.
    pub(crate) bytes: Vec<u8>,
    /// How long it was on the wire, if the capture holds less of it.
    pub(crate) cut_from: Option<usize>,
    /// What the capture has in place of an Ethernet header; `bytes` then starts with a made-up one.
    pub(crate) cooked: Option<Section>,
    /// Only in pcapng files.
    pub(crate) place: Option<Place>,
    pub(crate) direction: Option<Direction>,
}

impl CapturedFrame {
    /// Length on the wire.
    pub(crate) fn wire_len(&self) -> usize {
        self.cut_from.unwrap_or(self.bytes.len())
    }
}

/// What is wrong with the input.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(
        "{0:?} is neither a file nor hex digits: give a pcap or pcapng file, a frame in hex, or - for standard input"
    )]
    NoInput(String),
    #[error("{name}: {source}: check the path and its permissions")]
    Read { name: String, source: io::Error },
    #[error("{name}: odd number of hex digits ({digits}): give two digits per byte")]
    OddHex { name: String, digits: usize },
    #[error("{name}: {found:?} is not a hex digit: give hex digits, spaces or colons, or a pcap or pcapng file")]
    NotHex { name: String, found: char },
    #[error("{name} is empty: give a pcap or pcapng file, or a frame in hex")]
    Empty { name: String },
    #[error(
        "{name}: the capture is damaged or cut off after {frames} frames ({what}): capture again, or repair it with `editcap`"
    )]
    Damaged { name: String, frames: u64, what: String },
    #[error(
        "{name}: link type {link_type} is not Ethernet: capture on an Ethernet interface (or `any`), or convert the file"
    )]
    LinkType { name: String, link_type: String },
}

/// Hands everything of the input to `each`, in order.
pub(crate) fn each_item<E: From<InputError>>(
    input: &[String],
    each: &mut impl FnMut(Item) -> Result<(), E>,
) -> Result<(), E> {
    if let [only] = input {
        if only == "-" {
            return from_reader("standard input", io::stdin().lock(), each);
        }
        if is_file(only) {
            let file = File::open(only).map_err(|source| InputError::Read {
                name: only.clone(),
                source,
            })?;
            return from_reader(only, file, each);
        }
    }
    // Unquoted spaces make several arguments of one frame.
    let joined = input.join(" ");
    if !hex::looks_like_hex(&joined) {
        return Err(InputError::NoInput(input.first().cloned().unwrap_or_default()).into());
    }
    each(Item::Frame(hex::frame("the hex digits", &joined, 1)?))
}

/// Anything that can be opened; a directory is left to the error message of opening it.
fn is_file(name: &str) -> bool {
    // A path that is no file may still be hex, and a long frame is too long a file name to be looked up.
    Path::new(name).try_exists().unwrap_or(false)
}

/// The same from anything that can be read, such as a socket.
pub(crate) fn from_reader<E: From<InputError>>(
    name: &str,
    mut reader: impl Read,
    each: &mut impl FnMut(Item) -> Result<(), E>,
) -> Result<(), E> {
    let read_error = |source| InputError::Read {
        name: name.to_owned(),
        source,
    };
    let mut magic = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut magic).map_err(read_error)?;
    if let Some(format) = capture::Format::of(&magic) {
        return capture::each_item(name, format, Cursor::new(magic).chain(reader), each);
    }
    let mut bytes = magic;
    reader.read_to_end(&mut bytes).map_err(read_error)?;
    hex::each_line(name, &String::from_utf8_lossy(&bytes), each)
}
