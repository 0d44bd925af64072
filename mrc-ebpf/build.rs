//! Compiles the BPF programs with clang, against the libbpf headers that `libbpf-sys` brings.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PROGRAMS: [&str; 2] = ["steer", "pass"];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?);
    let libbpf =
        env::var("DEP_BPF_INCLUDE").map_err(|_| "libbpf-sys did not say where its headers are (DEP_BPF_INCLUDE)")?;
    for program in PROGRAMS {
        let source = format!("bpf/{program}.bpf.c");
        println!("cargo::rerun-if-changed={source}");
        compile(&clang, &source, &libbpf, &out.join(format!("{program}.bpf.o")))?;
    }
    Ok(())
}

fn compile(clang: &str, source: &str, libbpf: &str, object: &Path) -> Result<(), String> {
    let mut command = Command::new(clang);
    command.args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpfel", "-mcpu=v3"]);
    if env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() == Ok("big") {
        command.args(["-target", "bpfeb"]);
    }
    command.arg("-I").arg(libbpf);
    // Debian keeps <asm/types.h> in a directory named after the architecture, which clang does not search for a BPF target.
    if let Ok(arch) = env::var("CARGO_CFG_TARGET_ARCH") {
        command.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    }
    let status = command
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status()
        .map_err(|error| {
            format!(
                "cannot run `{clang}` to compile the BPF programs: {error}. \
             Install it (Debian, Ubuntu: apt-get install clang) or name it in the environment variable CLANG"
            )
        })?;
    if status.success() {
        Ok(())
    } else {
        Err(format!(
            "`{clang}` could not compile mrc-ebpf/{source}: {status}. \
             If <linux/bpf.h> or <asm/types.h> is missing: apt-get install linux-libc-dev"
        ))
    }
}
