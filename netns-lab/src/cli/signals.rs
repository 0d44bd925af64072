//! Signals as values: blocked in every thread and fetched by one, so that ending the lab is ordinary code.

use std::thread;

use netns_lab::{LabError, Signal};
use nix::sys::signal::SigSet;

/// Calls `each` for every SIGINT, SIGTERM and SIGHUP from now on. To be called before any other thread is started.
pub(crate) fn watch(mut each: impl FnMut(Signal) + Send + 'static) -> Result<(), LabError> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    let failed = |source: nix::Error| LabError::Kernel {
        action: "block signals".to_owned(),
        source: source.into(),
    };
    signals.thread_block().map_err(failed)?;
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            each(signal);
        }
    });
    Ok(())
}
