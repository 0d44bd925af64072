//! A runner that works everywhere: replays corpora and mutates them, the same way for the same seed.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::Target;

/// An input of a corpus and where it lies.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its file.
    pub path: PathBuf,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A target panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// On these bytes.
    pub input: Vec<u8>,
    /// Saying this.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.lines().next().unwrap_or_default();
        write!(f, "an input of {} bytes: {message}", self.input.len())
    }
}

impl std::error::Error for Failure {}

/// Where the corpora lie in the source tree.
pub fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The inputs in this directory, in the order of their names. A directory that is missing is an error.
pub fn corpus(directory: &Path) -> io::Result<Vec<Input>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let read = |path: PathBuf| std::fs::read(&path).map(|data| Input { path, data });
    paths.into_iter().map(read).collect()
}

/// Gives the target one input.
pub fn try_input(target: &Target, data: &[u8]) -> Result<(), Failure> {
    // A target keeps nothing from one call to the next, so nothing half done is seen again.
    catch_unwind(AssertUnwindSafe(|| (target.target)(data))).map_err(|panic| Failure {
        input: data.to_vec(),
        message: message(&*panic),
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
    literal
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// Mutates these inputs this many times; stops at the first failure.
pub fn mutate(target: &Target, inputs: &[Vec<u8>], iterations: u64, seed: u64) -> Result<(), Failure> {
    let mut mutator = Mutator {
        rng: ChaCha8Rng::seed_from_u64(seed),
        inputs,
        max_len: target.max_len,
    };
    for _ in 0..iterations {
        try_input(target, &mutator.input())?;
    }
    Ok(())
}

/// Numbers at which things change.
const EDGES: [u32; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x00ff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    u32::MAX,
];

struct Mutator<'a> {
    rng: ChaCha8Rng,
    inputs: &'a [Vec<u8>],
    max_len: usize,
}

impl Mutator<'_> {
    /// 0 to `end`, exclusive; 0 if `end` is 0.
    fn below(&mut self, end: usize) -> usize {
        (self.rng.next_u64() % end.max(1) as u64) as usize
    }

    fn random(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    fn known(&mut self) -> &[u8] {
        let index = self.below(self.inputs.len());
        self.inputs.get(index).map_or(&[], Vec::as_slice)
    }

    /// Something near what is known; now and then something of which nothing is known.
    fn input(&mut self) -> Vec<u8> {
        if self.inputs.is_empty() || self.below(8) == 0 {
            let len = self.below(self.max_len + 1);
            return self.random(len);
        }
        let mut input = self.known().to_vec();
        for _ in 0..=self.below(6) {
            self.change(&mut input);
        }
        input.truncate(self.max_len);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        let len = (1 + self.below(16)).min(input.len() - at);
        match self.below(8) {
            0 if len > 0 => input[at] ^= 1 << self.below(8),
            1 if len > 0 => input[at] = self.rng.next_u32() as u8,
            2 => {
                let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
                let width = (1 << self.below(3)).min(len);
                input[at..at + width].copy_from_slice(&edge[..width]);
            }
            3 => drop(input.drain(at..at + len)),
            4 => {
                let part = input[at..at + len].to_vec();
                let to = self.below(input.len() + 1);
                input.splice(to..to, part);
            }
            5 => {
                let other = self.known();
                let tail = other[at.min(other.len())..].to_vec();
                input.truncate(at);
                input.extend(tail);
            }
            _ => {
                let len = 1 + self.below(32);
                let part = self.random(len);
                let to = self.below(input.len() + 1);
                input.splice(to..to, part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn target(target: fn(&[u8])) -> Target {
        Target {
            name: "test",
            what: "a test",
            target,
            seeds: None,
            max_len: 64,
        }
    }

    fn mutants(seed: u64) -> Vec<Vec<u8>> {
        let inputs = [vec![1; 20], Vec::new(), vec![2; 64]];
        let mut mutator = Mutator {
            rng: ChaCha8Rng::seed_from_u64(seed),
            inputs: &inputs,
            max_len: 64,
        };
        (0..2000).map(|_| mutator.input()).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_another_seed_others() {
        assert_eq!(mutants(1), mutants(1));
        assert_ne!(mutants(1), mutants(2));
    }

    #[test]
    fn mutants_differ_and_are_never_too_long() {
        let mutants = mutants(3);
        assert!(mutants.iter().all(|mutant| mutant.len() <= 64));
        assert!(mutants.iter().collect::<HashSet<_>>().len() > 1500);
    }

    #[test]
    fn a_panic_is_a_failure_that_holds_its_input() {
        let picky = target(|data| assert!(data.len() != 3, "three bytes"));
        assert_eq!(try_input(&picky, b"ab"), Ok(()));
        let failure = try_input(&picky, b"abc").unwrap_err();
        assert_eq!(failure.input, b"abc");
        assert_eq!(failure.to_string(), "an input of 3 bytes: three bytes");
    }

    #[test]
    fn mutation_finds_what_lies_near_the_corpus() {
        let picky = target(|data| assert!(!data.starts_with(b"MRC") || data.len() == 6, "found"));
        let failure = mutate(&picky, &[b"MRC1.0".to_vec()], 1000, 0).unwrap_err();
        assert!(failure.input.starts_with(b"MRC"));
    }

    #[test]
    fn a_missing_corpus_is_an_error() {
        assert!(corpus(&corpora().join("no-such-target")).is_err());
    }
}
