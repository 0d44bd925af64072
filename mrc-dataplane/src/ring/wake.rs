//! Event fds: how a sleeper is woken.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

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

/// Waits until the fd is readable; false after the time-out.
pub fn wait_readable(fd: &impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let millis = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut fds, millis), Ok(1))
}
