//! Who runs this: root, somebody with sudo, or neither.

use std::fs;
use std::io::{IsTerminal, stdin};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What this process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// Root with the capabilities that namespaces and XDP need.
    Root,
    /// Root in name, in a container that withholds `CAP_SYS_ADMIN` or `CAP_NET_ADMIN`.
    Confined,
    /// An ordinary user who may use sudo.
    Sudo,
    /// An ordinary user.
    None,
}

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

impl Privilege {
    /// Looks at this process and at sudo.
    pub(crate) fn find() -> Privilege {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        match effective(&status) {
            Some((0, capabilities)) if has(capabilities, CAP_NET_ADMIN) && has(capabilities, CAP_SYS_ADMIN) => {
                Privilege::Root
            }
            Some((0, _)) => Privilege::Confined,
            _ if sudo_works() => Privilege::Sudo,
            _ => Privilege::None,
        }
    }

    /// Why the lab cannot be used; `None` when it can.
    pub(crate) fn lack(self) -> Option<&'static str> {
        match self {
            Privilege::Root | Privilege::Sudo => None,
            Privilege::Confined => Some(
                "this root lacks CAP_NET_ADMIN or CAP_SYS_ADMIN; give the container both (docker run --privileged)",
            ),
            Privilege::None => Some("it needs root; run it as root or install and permit sudo"),
        }
    }

    /// Whether packages can be installed.
    pub(crate) fn can_install(self) -> bool {
        self != Privilege::None
    }

    /// The words that go before a command that needs root.
    pub(crate) fn prefix(self) -> &'static [&'static str] {
        match self {
            Privilege::Sudo => &["sudo"],
            _ => &[],
        }
    }
}

/// Effective user id and effective capabilities, from the text of `/proc/self/status`.
fn effective(status: &str) -> Option<(u32, u64)> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let uid = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let capabilities = u64::from_str_radix(field("CapEff:")?, 16).ok()?;
    Some((uid, capabilities))
}

fn has(capabilities: u64, capability: u32) -> bool {
    capabilities >> capability & 1 == 1
}

/// Without a terminal nobody can type a password, so then sudo has to work without one.
fn sudo_works() -> bool {
    if in_path("sudo").is_none() {
        return false;
    }
    let without_password = Command::new("sudo")
        .args(["-n", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    without_password.is_ok_and(|status| status.success()) || stdin().is_terminal()
}

/// Where a command stands. `/usr/sbin` is searched as well: ordinary users of Debian do not have it in their path.
pub(crate) fn in_path(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(command))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n";

    #[test]
    fn the_effective_user_counts_and_not_the_real_one() {
        assert_eq!(effective(STATUS), Some((0, 0x1ff_ffff_ffff)));
    }

    #[test]
    fn capabilities_are_bits() {
        assert!(has(1 << 12, CAP_NET_ADMIN));
        assert!(!has(1 << 12, CAP_SYS_ADMIN));
        assert!(!has(0, CAP_NET_ADMIN));
    }

    #[test]
    fn a_status_that_cannot_be_read_is_no_privilege() {
        assert_eq!(effective(""), None);
        assert_eq!(effective("Uid:\tx\nCapEff:\tzz"), None);
    }

    #[test]
    fn only_root_and_sudo_lack_nothing() {
        assert!(Privilege::Root.lack().is_none() && Privilege::Sudo.lack().is_none());
        assert!(Privilege::Confined.lack().is_some() && Privilege::None.lack().is_some());
    }
}
