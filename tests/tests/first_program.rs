//! The README's first program does what the README says.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use netns_lab::{Lab, Topology};

/// Cargo builds examples beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let path = test
        .ancestors()
        .nth(2)
        .expect("tests stand in deps")
        .join("examples/first-program");
    assert!(
        path.is_file(),
        "{} is not built: cargo test -p mrc-tests does",
        path.display()
    );
    path
}

#[test]
fn the_first_program_writes_from_one_host_to_the_other() {
    let lab = Lab::build(&Topology::pair(4)).unwrap();
    let start = |host: usize, argument: Option<String>| {
        let mut command = Command::new(program());
        command.args(argument).stdout(Stdio::piped()).stderr(Stdio::piped());
        lab.host(host).spawn(command).unwrap()
    };
    let target = start(0, None);
    let source = start(1, Some(lab.host(0).mgmt().to_string()));
    for (output, says) in [
        (source.wait_with_output().unwrap(), "written to "),
        (target.wait_with_output().unwrap(), "hi, MRC!"),
    ] {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains(says),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn the_readme_shows_the_program_as_it_is() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let program = std::fs::read_to_string(root.join("mrc-verbs/examples/hello.rs")).unwrap();
    let shown = readme
        .split("```rust\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap_or_default();
    assert_eq!(shown, program);
}
