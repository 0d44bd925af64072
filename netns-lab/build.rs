//! Compiles the switch programs with clang and writes their typed skeleton.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "bpf/switch.bpf.c";

fn main() -> ExitCode {
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=bpf/switch.h");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?);
    let mut arguments = ["-Wall", "-Werror", "-mcpu=v3"].map(OsString::from).to_vec();
    // Debian keeps <asm/types.h> in a directory named after the architecture, which clang does not search for a BPF target.
    if let Ok(arch) = env::var("CARGO_CFG_TARGET_ARCH") {
        arguments.push(format!("-I/usr/include/{arch}-linux-gnu").into());
    }
    let mut builder = SkeletonBuilder::new();
    if let Some(clang) = env::var_os("CLANG") {
        builder.clang(clang);
    }
    builder
        .source(SOURCE)
        .clang_args(arguments)
        .build_and_generate(out.join("switch.skel.rs"))
        .map_err(|error| {
            format!(
                "cannot compile netns-lab/{SOURCE}: {error:#}. Needs clang (apt-get install clang linux-libc-dev), which the \
                 environment variable CLANG may name"
            )
        })
}
