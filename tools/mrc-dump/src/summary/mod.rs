//! A capture in one page: who talked to whom, on which paths, and what went wrong.

mod facts;
mod table;
mod text;

use std::io;

use crate::RunError;
use crate::args::SummaryArgs;
use crate::input::{self, Item};
use table::Table;

pub(crate) fn run(args: &SummaryArgs) -> Result<(), RunError> {
    let settings = args.receiver.settings()?;
    let mut table = Table::default();
    let input = std::slice::from_ref(&args.input);
    input::each_item(input, &mut |item| -> Result<(), RunError> {
        match item {
            Item::Frame(frame) if args.receiver.filter.matches(&settings.seen(&frame)) => {
                table.add(&frame, facts::of(&frame, &settings).as_ref());
            }
            Item::Frame(_) => {}
            Item::Statistics(statistics) => table.dropped_by_capture += statistics.dropped,
        }
        Ok(())
    })?;
    let summary = table.finish();
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &summary).map_err(io::Error::from)?;
        io::Write::write_all(&mut out, b"\n")?;
    } else {
        text::write(&mut out, &summary, args.evs)?;
    }
    Ok(())
}
