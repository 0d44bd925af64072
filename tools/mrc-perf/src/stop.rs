//! Ctrl-C and SIGTERM: every loop asks here, so that everything is dropped in order.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static STOP: AtomicBool = AtomicBool::new(false);

/// Takes over the signals.
pub(crate) fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
        .map_err(|error| Failure::Setup(format!("cannot catch signals: {error}")))
}

/// An error once a signal has come.
pub(crate) fn check() -> Result<(), Failure> {
    if STOP.load(Ordering::Relaxed) {
        Err(Failure::Interrupted)
    } else {
        Ok(())
    }
}
