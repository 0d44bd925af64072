//! One engine per port: who has it.
//!
//! The owner listens on a socket with an abstract name made of the interface's index. Such names belong to the network
//! namespace, like the index, and go with the process that bound them, `kill -9` included, so nothing can be left behind;
//! the kernel tells who listens (`SO_PEERCRED`) to whoever connects, and translates the pid between pid namespaces. A lock
//! file would need a directory that all engines can write to and something that tells namespaces apart.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket, sockopt,
};

use super::PortError;

/// A process that is being started has copies of our descriptors between its fork and its exec, and so keeps for a moment
/// what its parent has just given up or died with.
pub(super) const FORK_PATIENCE: Duration = Duration::from_millis(300);

/// Being the one engine of a port, until dropped.
#[derive(Debug)]
pub(super) struct Ownership {
    _listener: OwnedFd,
}

impl Ownership {
    /// Takes the port `name` with index `ifindex`, or says who has it.
    pub(super) fn take(name: &str, ifindex: u32) -> Result<Self, PortError> {
        let failed = |what: &str, errno: Errno| {
            PortError::Options(format!("cannot {what} the owner's socket of port {name}: {errno}"))
        };
        let address = address(ifindex).map_err(|errno| failed("name", errno))?;
        let listener = open().map_err(|errno| failed("make", errno))?;
        let deadline = Instant::now() + FORK_PATIENCE;
        loop {
            match bind(listener.as_raw_fd(), &address) {
                Ok(()) => break,
                Err(Errno::EADDRINUSE) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Err(Errno::EADDRINUSE) => {
                    return Err(PortError::Busy {
                        name: name.to_owned(),
                        owner: describe_owner(&address),
                    });
                }
                Err(errno) => return Err(failed("bind", errno)),
            }
        }
        // Nobody ever accepts; whoever asks who we are stays in the queue. A full queue costs the next one only the pid.
        listen(&listener, Backlog::MAXCONN).map_err(|errno| failed("listen on", errno))?;
        Ok(Self { _listener: listener })
    }
}

fn open() -> nix::Result<OwnedFd> {
    socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )
}

fn address(ifindex: u32) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(format!("mrc/port/{ifindex}").as_bytes())
}

fn describe_owner(address: &UnixAddr) -> String {
    match owner_pid(address) {
        Ok(pid) if pid > 0 => match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim_end()),
            Err(_) => format!("process {pid}"),
        },
        Ok(_) => "a process of another pid namespace".to_owned(),
        Err(_) => "another process".to_owned(),
    }
}

fn owner_pid(address: &UnixAddr) -> io::Result<i32> {
    let asking = open()?;
    connect(asking.as_raw_fd(), address)?;
    Ok(getsockopt(&asking, sockopt::PeerCredentials)?.pid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_owner_is_told_the_first_until_that_is_gone() {
        // No interface has this index.
        let index = u32::MAX - std::process::id();
        let first = Ownership::take("p1", index).unwrap();
        let refused = Ownership::take("p1", index).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("process {}", std::process::id())),
            "{refused}"
        );
        drop(first);
        drop(Ownership::take("p1", index).unwrap());
    }
}
