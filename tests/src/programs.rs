//! Programs of the workspace, as processes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use mrc_verbs::{ConnectionInfo, RemoteRegion};
use netns_lab::{Host, Process};

/// Path of a program of the workspace, built as these tests were.
///
/// Cargo itself tells where it puts it: profile, target directory and target triple need not be guessed.
///
/// # Panics
/// If it cannot be built.
pub fn built(package: &str) -> PathBuf {
    // Once per test program: cargo may have to wait for another cargo.
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let path = built.entry(package.to_owned()).or_insert_with(|| build(package));
    path.clone()
}

fn build(package: &str) -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "--quiet",
        "--message-format",
        "json",
        "--bin",
        package,
        "-p",
        package,
    ]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.stderr(Stdio::inherit()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo cannot build {package}");
    let lines = output.stdout.split(|&byte| byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == package)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the program")
}

/// A process that is one end of a connection: this package's program `mrc-end`.
#[derive(Debug)]
pub struct End {
    /// The process.
    pub process: Process,
    lines: BufReader<ChildStdout>,
}

impl End {
    /// Starts `program` (`CARGO_BIN_EXE_mrc-end`) in a host. `wrapper` comes before it on the command line.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(host: Host<'_>, program: &str, role: &str, wrapper: &[&str]) -> End {
        let mut words = wrapper.iter().copied().chain([program, role]);
        let mut command = Command::new(words.next().expect("the program at least"));
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = host.spawn(command).expect("the program starts");
        let lines = BufReader::new(process.stdout.take().expect("it was piped"));
        End { process, lines }
    }

    /// The next line that it says.
    ///
    /// # Panics
    /// If it ends instead.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        assert!(line.ends_with('\n'), "the process ended: {:?}", self.process.wait());
        line.truncate(line.len() - 1);
        line
    }

    /// What it offers.
    ///
    /// # Panics
    /// If it says anything else.
    pub fn offer(&mut self) -> (ConnectionInfo, RemoteRegion) {
        let (info, region) = (self.line(), self.line());
        let info = info.parse().unwrap_or_else(|_| panic!("no offer: {info}"));
        (info, serde_json::from_str(&region).expect("a region"))
    }

    /// Tells it whom to connect to.
    ///
    /// # Panics
    /// If it does not listen any more.
    pub fn tell(&mut self, info: &ConnectionInfo, region: RemoteRegion) {
        let region = serde_json::to_string(&region).expect("a region");
        let stdin = self.process.stdin.as_mut().expect("it was piped");
        write!(stdin, "{info}\n{region}\n")
            .and_then(|()| stdin.flush())
            .expect("it listens");
    }

    /// Ends it without any chance to clean up.
    ///
    /// # Panics
    /// If it cannot be ended.
    pub fn kill(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("reaped");
    }
}
