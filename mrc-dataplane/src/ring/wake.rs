//! Event fds: how a sleeper is woken.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

/// `ppoll` cannot say every duration; nobody waits longer than a year.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// A non-blocking event fd.
pub fn eventfd() -> io::Result<OwnedFd> {
    let fd = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
    Ok(fd.into())
}

/// Adds one. A full counter is fine: then the fd is readable anyway.
pub fn write_eventfd(fd: &impl AsFd) {
    // The only errors are a full counter and an fd that is none, which the types exclude.
    let _ = nix::unistd::write(fd, &1u64.to_ne_bytes());
}

/// Takes what is there; true if it was readable.
pub fn drain_eventfd(fd: &impl AsFd) -> bool {
    let mut count = [0; 8];
    nix::unistd::read(fd, &mut count) == Ok(8)
}

/// Waits until the fd is readable; false after the time-out, to the nanosecond: who waits in whole milliseconds has no time left
/// for the last of them, and spins until it is over.
pub fn wait_readable(fd: &impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    matches!(
        ppoll(&mut fds, Some(TimeSpec::from_duration(timeout.min(LONGEST))), None),
        Ok(1)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_of_less_than_a_millisecond_is_one() {
        let fd = eventfd().unwrap();
        let (start, timeout) = (Instant::now(), Duration::from_micros(900));
        assert!(!wait_readable(&fd, timeout));
        assert!(start.elapsed() >= timeout, "it came back after {:?}", start.elapsed());
    }

    #[test]
    fn a_wait_for_ever_ends_with_an_event() {
        let fd = eventfd().unwrap();
        write_eventfd(&fd);
        assert!(wait_readable(&fd, Duration::MAX));
    }
}
