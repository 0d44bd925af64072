//! Proof that `mrc-wire` and `mrc-protocol` know no operating system.
//!
//! A crate with `#![no_std]` that never says `extern crate std` cannot name a clock, a socket or a thread: the compiler
//! refuses it, since the name `std` does not exist there. So only these two things need a look; the rest is any build.

use std::fs;
use std::path::Path;

use crate::sources;

const PURE: &[Pure] = &[
    Pure {
        source: "mrc-dataplane/wire/src",
        may_allocate: false,
    },
    Pure {
        source: "mrc-dataplane/protocol/src",
        may_allocate: true,
    },
];

struct Pure {
    source: &'static str,
    may_allocate: bool,
}

/// Checks both crates below `root`, and returns what is wrong.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for pure in PURE {
        let source = root.join(pure.source);
        let lib = source.join("lib.rs");
        let text = fs::read_to_string(&lib).map_err(|e| format!("cannot read {}: {e}", lib.display()))?;
        if !declares_no_std(&text) {
            faults.push(format!("{}: `#![no_std]` is missing", lib.display()));
        }
        for file in sources::rust_files(&source)? {
            let text = fs::read_to_string(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
            for (line, krate) in extern_crates(&text) {
                if krate == "std" || (krate == "alloc" && !pure.may_allocate) {
                    faults.push(format!(
                        "{}:{line}: `extern crate {krate}` outside of tests",
                        file.display()
                    ));
                }
            }
        }
    }
    Ok(faults)
}

fn declares_no_std(lib: &str) -> bool {
    lib.lines()
        .map(str::trim)
        .any(|line| line == "#![no_std]" || line == "#![cfg_attr(not(test), no_std)]")
}

/// Every `extern crate` that is not for tests, with its line number.
fn extern_crates(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut for_tests = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let (attribute, rest) = match line.strip_prefix("#[cfg(test)]") {
            Some(rest) => (true, rest.trim()),
            None => (false, line),
        };
        for_tests |= attribute;
        let statement = rest.strip_prefix("pub ").unwrap_or(rest);
        if let Some(krate) = statement.strip_prefix("extern crate ") {
            let name = krate.split([';', ' ']).next().unwrap_or_default();
            if !for_tests {
                found.push((index + 1, name));
            }
        }
        // An attribute speaks of the next item; comments and further attributes may stand between.
        if !(rest.is_empty() && attribute || rest.starts_with("#[") || rest.starts_with("//")) {
            for_tests = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_std_has_to_stand_in_the_crate_root() {
        assert!(declares_no_std("//! Doc.\n#![no_std]\n"));
        assert!(declares_no_std("#![cfg_attr(not(test), no_std)]\n"));
        assert!(!declares_no_std("//! Says #![no_std] in a comment.\n"));
        assert!(!declares_no_std("#![cfg_attr(feature = \"x\", no_std)]\n"));
    }

    #[test]
    fn std_for_tests_is_no_import() {
        assert_eq!(extern_crates("#[cfg(test)]\nextern crate std;\n"), []);
        assert_eq!(extern_crates("#[cfg(test)] extern crate std;\n"), []);
        assert_eq!(
            extern_crates("#[cfg(test)]\n// why\n#[macro_use]\nextern crate std;\n"),
            []
        );
    }

    #[test]
    fn std_without_the_attribute_is_found_with_its_line() {
        assert_eq!(
            extern_crates("extern crate alloc;\nextern crate std;\n"),
            [(1, "alloc"), (2, "std")]
        );
        assert_eq!(
            extern_crates("#[cfg(test)]\nmod tests {}\npub extern crate std as s;\n"),
            [(3, "std")]
        );
        assert_eq!(extern_crates("#[cfg(test)] mod t {}\nextern crate std;"), [(2, "std")]);
    }
}
