//! Namespaces that nothing names: only file descriptors hold them, so they vanish with their holder, however it ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use crate::LabError;
use crate::netlink::Rtnl;
use crate::plan::{Node, Role};

/// A network namespace and its routing socket.
#[derive(Debug)]
pub(crate) struct NetNs {
    fd: OwnedFd,
    inode: u64,
    rtnl: Mutex<Rtnl>,
}

/// What holds in every namespace of a lab. Values of `default` reach the interfaces that are created afterwards.
const SYSCTLS: [(&str, &str); 20] = [
    // Packets of one flow come in by every plane.
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // ARP asks from the link's address, not from the node's.
    ("ipv4/conf/all/arp_announce", "2"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    // A port without carrier is no way; the kernel's own traffic moves to the next plane.
    ("ipv4/conf/default/ignore_routes_with_linkdown", "1"),
    ("ipv6/conf/default/ignore_routes_with_linkdown", "1"),
    ("ipv4/ping_group_range", "0 2147483647"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    // Addresses are usable at once: the plan has no duplicates.
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/dad_transmits", "0"),
    // They stay when their link goes down.
    ("ipv6/conf/all/keep_addr_on_down", "1"),
    ("ipv6/conf/default/keep_addr_on_down", "1"),
    // Nothing is configured by routers.
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/autoconf", "0"),
    ("ipv6/conf/all/router_solicitations", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
];

/// What holds in a switch in addition.
const SWITCH_SYSCTLS: [(&str, &str); 6] = [
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    // Routes over several ports hash over both addresses and both ports, and over the flow label of IPv6.
    ("ipv4/fib_multipath_hash_policy", "3"),
    ("ipv4/fib_multipath_hash_fields", "0x33"),
    ("ipv6/fib_multipath_hash_policy", "3"),
    ("ipv6/fib_multipath_hash_fields", "0x3b"),
];
/// Where a switch's hash starts from; Linux 6.11 and newer have it, older ones draw it at boot.
const HASH_SEED: &str = "/proc/sys/net/ipv4/fib_multipath_hash_seed";

/// Creates a namespace per node.
pub(crate) fn create(nodes: &[Node]) -> Result<Vec<NetNs>, LabError> {
    // A thread of its own, since it ends up in the last of them.
    on_thread(|| nodes.iter().map(create_one).collect())
}

fn create_one(node: &Node) -> Result<NetNs, LabError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| match e {
        nix::Error::EPERM => LabError::Privilege,
        e => LabError::kernel("create a network namespace", e),
    })?;
    let path = "/proc/thread-self/ns/net";
    let failed = |e: io::Error| LabError::kernel(format!("open {path}"), e);
    let file = File::open(path).map_err(failed)?;
    let inode = file.metadata().map_err(failed)?.ino();
    let switch = if node.role == Role::Switch {
        SWITCH_SYSCTLS.as_slice()
    } else {
        &[]
    };
    for (name, value) in SYSCTLS.iter().chain(switch) {
        let path = format!("/proc/sys/net/{name}");
        std::fs::write(&path, value).map_err(|e| LabError::kernel(format!("write '{value}' to {path}"), e))?;
    }
    if let Some(seed) = node.hash_seed
        && let Err(error) = std::fs::write(HASH_SEED, seed.to_string())
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(LabError::kernel(format!("write '{seed}' to {HASH_SEED}"), error));
    }
    let rtnl = Rtnl::open().map_err(|e| LabError::kernel("open a netlink socket", e))?;
    Ok(NetNs {
        fd: file.into(),
        inode,
        rtnl: Mutex::new(rtnl),
    })
}

impl NetNs {
    /// A number that no other live namespace of the machine has.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// The namespace's routing socket.
    pub(crate) fn rtnl(&self) -> MutexGuard<'_, Rtnl> {
        self.rtnl.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the calling thread in.
    pub(crate) fn join(&self) -> Result<(), LabError> {
        setns(&self.fd, CloneFlags::CLONE_NEWNET).map_err(|e| LabError::kernel("enter a network namespace", e))
    }

    /// Runs `work` on a thread in the namespace; `/sys` is that of the caller.
    pub(crate) fn visit<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        on_thread(|| {
            self.join()?;
            Ok(work())
        })
    }

    /// Runs `work` on a thread in the namespace; threads that it starts are there too.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        on_thread(|| {
            self.join()?;
            unshare(CloneFlags::CLONE_NEWNS).map_err(|e| LabError::kernel("create a mount namespace", e))?;
            own_sys().map_err(|e| LabError::kernel("mount sysfs on /sys", e))?;
            Ok(work())
        })
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Gives the calling thread's (own) mount namespace a `/sys` that shows its network namespace.
///
/// No allocation: it also runs between fork and exec.
pub(crate) fn own_sys() -> nix::Result<()> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
        None::<&str>,
    )?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)
}

/// Runs `work` on a thread that ends with it.
pub(crate) fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
