//! The control socket: where it is, and what is said there.
//!
//! Whoever has an engine (a program, later also a daemon) listens on a Unix stream socket `mrc-PID.sock` in the directory that
//! `MRC_CONTROL` names, else in `XDG_RUNTIME_DIR`. A client is heard if it runs as the same user or as root.
//!
//! The client says one line: a verb and its words. The answer is one line, `ok` or `error: ...`, after which the verb says what
//! follows. There is one verb so far:
//!
//! * `capture [WORDS]`: the words of a [`Request`](crate::Request). A pcapng stream follows until the client closes its
//!   sending half, or the engine ends. It closes with the statistics of each interface; what was dropped is there.

use std::io;
use std::path::{Path, PathBuf};

/// The verb that starts a capture.
pub const CAPTURE: &str = "capture";
/// The answer to a request that is carried out.
pub const OK: &str = "ok";
/// What the answer to any other request begins with; the reason follows.
pub const ERROR: &str = "error: ";
/// The longest line, its end included.
pub const LONGEST_LINE: usize = 4096;

const PREFIX: &str = "mrc-";
const SUFFIX: &str = ".sock";

/// The directory of control sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// The directory.
    pub path: PathBuf,
    /// `MRC_CONTROL` names it: then a socket is wanted, and an engine that cannot make it does not start.
    pub is_wanted: bool,
}

/// The directory of control sockets; `None` if the environment names none.
pub fn directory(variable: impl Fn(&str) -> Option<String>) -> Option<Directory> {
    let named = |name, is_wanted| {
        let path = variable(name).filter(|value| !value.is_empty())?.into();
        Some(Directory { path, is_wanted })
    };
    named("MRC_CONTROL", true).or_else(|| named("XDG_RUNTIME_DIR", false))
}

/// The socket of a process, `mrc-PID.sock`, and of its further engines, `mrc-PID-2.sock` and so on. The process id is the one
/// that the process has for itself; where process namespaces differ, the credentials of the socket tell more.
pub fn socket(directory: &Path, pid: u32, number: u32) -> PathBuf {
    directory.join(if number <= 1 {
        format!("{PREFIX}{pid}{SUFFIX}")
    } else {
        format!("{PREFIX}{pid}-{number}{SUFFIX}")
    })
}

/// The sockets in a directory with the process of each, in the order of their names. Some may be left over from dead ones.
pub fn sockets(directory: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in directory.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let middle = name.and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        let pid = middle.and_then(|middle| middle.split('-').next()?.parse().ok());
        if let Some(pid) = pid {
            found.push((pid, path));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mrc_control_comes_before_the_runtime_directory() {
        let both = |name: &str| Some(format!("/{name}"));
        let expected = |path: &str, is_wanted| {
            let path = path.into();
            Some(Directory { path, is_wanted })
        };
        assert_eq!(directory(both), expected("/MRC_CONTROL", true));
        let one = |name: &str| Some(if name == "MRC_CONTROL" { "" } else { "/run" }.to_owned());
        assert_eq!(directory(one), expected("/run", false));
        assert_eq!(directory(|_| None), None);
    }

    #[test]
    fn sockets_are_found_again_by_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let expected = [
            (7, socket(directory, 7, 2)),
            (7, socket(directory, 7, 1)),
            (12, socket(directory, 12, 1)),
        ];
        for name in expected
            .iter()
            .map(|(_, path)| path.clone())
            .chain(["mrc-x.sock", "other"].map(|name| directory.join(name)))
        {
            std::fs::write(name, "").unwrap();
        }
        let found = sockets(directory).unwrap();
        assert_eq!(found, expected);
    }
}
