//! Hands one of the fuzz targets to libFuzzer; `MRC_FUZZ_TARGET` names it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mrc_fuzz::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("MRC_FUZZ_TARGET").unwrap_or_default();
    mrc_fuzz::target(&name).unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!(
            "error: MRC_FUZZ_TARGET is {name:?}: set it to one of {}",
            names.join(", ")
        );
        std::process::exit(2)
    })
});

fuzz_target!(|data: &[u8]| (TARGET.target)(data));
