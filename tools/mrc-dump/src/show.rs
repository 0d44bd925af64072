//! Packets on standard output.

use std::io::{self, BufWriter, StdoutLock, Write};

use mrc_capture::Filter;

use crate::args::{ReceiverArgs, ShowArgs};
use crate::decode::{Settings, decode};
use crate::input::CapturedFrame;
use crate::{RunError, json, text};

/// Shows the packets that the filter wants.
pub(crate) struct Show {
    settings: Settings,
    filter: Filter,
    json: bool,
    data: bool,
    out: BufWriter<StdoutLock<'static>>,
    /// One of them would be dropped, or is cut.
    pub(crate) any_bad: bool,
}

impl Show {
    pub(crate) fn new(receiver: &ReceiverArgs, filter: Filter, show: &ShowArgs) -> Result<Self, RunError> {
        Ok(Self {
            settings: receiver.settings()?,
            filter,
            json: show.json,
            data: show.data,
            out: BufWriter::new(io::stdout().lock()),
            any_bad: false,
        })
    }

    pub(crate) fn frame(&mut self, frame: &CapturedFrame) -> io::Result<()> {
        if !self.filter.is_empty() && !self.filter.matches(&self.settings.seen(frame)) {
            return Ok(());
        }
        let packet = decode(frame, &self.settings);
        self.any_bad |= packet.verdict.is_bad();
        if self.json {
            json::write(&mut self.out, &packet, self.data)
        } else {
            text::write(&mut self.out, &packet, self.data)
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
