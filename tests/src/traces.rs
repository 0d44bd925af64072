//! What a program and everything it started hold on the machine, and whether it is gone.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;

use nix::sched::{CloneFlags, setns};

/// Namespaces, XDP programs and processes.
#[derive(Debug, Default)]
pub struct Traces {
    /// As their links in `/proc` read: `net:[4026532999]`.
    pub namespaces: BTreeSet<String>,
    /// Ids of XDP programs in these namespaces. The kernel never gives one twice.
    pub programs: BTreeSet<u32>,
    /// Processes, with their start times: a number alone may be given again.
    pub processes: BTreeSet<(u32, String)>,
}

impl Traces {
    /// Everything that `leader` and its children hold now.
    pub fn of(leader: u32) -> Traces {
        let mut traces = Traces::default();
        let mut pids = children(leader);
        pids.push(leader);
        let own = fs::read_link("/proc/self/ns/net").ok();
        for pid in pids {
            traces.processes.extend(identity(pid));
            for path in links(pid) {
                let Ok(target) = fs::read_link(&path) else { continue };
                let name = target.to_string_lossy().into_owned();
                if !name.starts_with("net:[") || own.as_ref() == Some(&target) || !traces.namespaces.insert(name) {
                    continue;
                }
                traces.programs.extend(programs_in(path));
            }
        }
        traces
    }

    /// What of it is still there.
    ///
    /// # Panics
    /// If the kernel does not tell.
    #[must_use]
    pub fn left(&self) -> Traces {
        let mut left = Traces::default();
        for entry in fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A zombie that waits for init to reap it holds nothing.
            left.processes
                .extend(identity(pid).filter(|identity| self.processes.contains(identity) && !is_zombie(pid)));
            let held = links(pid).into_iter().filter_map(|path| fs::read_link(path).ok());
            let names = held.map(|target| target.to_string_lossy().into_owned());
            left.namespaces
                .extend(names.filter(|name| self.namespaces.contains(name)));
        }
        // One that cannot be looked at has gone since it was listed.
        let loaded = aya::programs::loaded_programs().filter_map(|program| Some(program.ok()?.id()));
        left.programs.extend(loaded.filter(|id| self.programs.contains(id)));
        left
    }

    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.programs.is_empty() && self.processes.is_empty()
    }
}

/// Children and their children.
pub fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{parent}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in text.split_whitespace().filter_map(|word| word.parse().ok()) {
            found.push(pid);
            found.extend(children(pid));
        }
    }
    found
}

/// Whether the interface `port` in the namespace of process `pid` has sent more than `count` packets.
pub fn has_packets(pid: u32, port: &str, count: u64) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().strip_prefix(port)?.strip_prefix(':'))
        .filter_map(|numbers| numbers.split_whitespace().nth(9)?.parse::<u64>().ok())
        .any(|sent| sent > count)
}

/// Where a process may hold a namespace.
fn links(pid: u32) -> Vec<PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    descriptors
        .map(|entry| entry.path())
        .chain([process.join("ns/net")])
        .collect()
}

fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain anything.
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(ToOwned::to_owned).collect())
}

fn identity(pid: u32) -> Option<(u32, String)> {
    Some((pid, stat(pid)?.get(19)?.clone()))
}

fn is_zombie(pid: u32) -> bool {
    stat(pid).is_none_or(|fields| fields.first().is_some_and(|state| state == "Z"))
}

/// XDP programs on the interfaces of a namespace.
fn programs_in(namespace: PathBuf) -> Vec<u32> {
    let look = move || {
        let entered = File::open(namespace).map(|file| setns(file, CloneFlags::CLONE_NEWNET));
        if !matches!(entered, Ok(Ok(()))) {
            return Vec::new();
        }
        let interfaces = nix::net::if_::if_nameindex().expect("interfaces");
        let names = interfaces
            .iter()
            .map(|interface| interface.name().to_string_lossy().into_owned());
        names
            .filter_map(|name| mrc_ebpf::occupant(&name).ok().flatten())
            .map(|occupant| occupant.id)
            .collect()
    };
    // A thread of its own, since it stays in there.
    thread::spawn(look).join().unwrap_or_default()
}
