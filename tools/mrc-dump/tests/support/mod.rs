//! Runs the binary, and writes captures for it to read.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its part; a test may unwrap"
)]

pub(crate) mod tshark;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The objects that `--json` printed.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The only object.
    #[track_caller]
    pub(crate) fn object(&self) -> Value {
        let mut objects = self.objects();
        assert_eq!(objects.len(), 1, "{}{}", self.stdout, self.stderr);
        objects.remove(0)
    }

    /// It said in one line what is wrong, and that line holds these words.
    #[track_caller]
    pub(crate) fn complains(&self, words: &[&str]) {
        assert_eq!(self.status, 2, "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.starts_with("mrc-dump: "), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in {}", self.stderr);
        }
    }
}

pub(crate) fn run(args: &[&str]) -> Run {
    run_with(args, b"")
}

/// With something on standard input.
pub(crate) fn run_with(args: &[&str], stdin: &[u8]) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mrc-dump"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    // A thread, since the child may write before it has read everything. It may also stop reading early.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Run {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The packets of `vectors.json`.
pub(crate) fn vectors() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../../../mrc-dataplane/wire/tests/vectors.json")).unwrap();
    file["packets"].as_array().unwrap().clone()
}

pub(crate) fn vector(name: &str) -> Value {
    vectors().into_iter().find(|packet| packet["name"] == name).unwrap()
}

pub(crate) fn hex_of(name: &str) -> String {
    vector(name)["hex"].as_str().unwrap().to_owned()
}

pub(crate) fn bytes_of(name: &str) -> Vec<u8> {
    unhex(&hex_of(name))
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.concat()
}

/// A file that lives as long as the returned directory.
pub(crate) fn file(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A little-endian pcap in microseconds. Each frame: time in microseconds, length on the wire, bytes.
pub(crate) fn pcap(link_type: u32, frames: &[(u64, usize, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 262_144, link_type] {
        out.extend_from_slice(&u32::to_le_bytes(word));
    }
    for (micros, wire_len, bytes) in frames {
        let seconds = u32::try_from(micros / 1_000_000).unwrap();
        let rest = u32::try_from(micros % 1_000_000).unwrap();
        let captured = u32::try_from(bytes.len()).unwrap();
        for word in [seconds, rest, captured, u32::try_from(*wire_len).unwrap()] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(bytes);
    }
    out
}

/// A pcap with these frames as they are.
pub(crate) fn ethernet(frames: &[Vec<u8>]) -> Vec<u8> {
    let frames: Vec<(u64, usize, &[u8])> = frames
        .iter()
        .map(|frame| (1_500_000, frame.len(), frame.as_slice()))
        .collect();
    pcap(1, &frames)
}
