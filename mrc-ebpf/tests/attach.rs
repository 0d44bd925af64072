//! Programs on the interfaces of a namespace of their own.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::process::Command;

use mrc_ebpf::{Error, Mode, Passing, PassingProgram, Settings, Steering, occupant};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;

/// Runs a test in a network namespace with a veth pair `left` and `right`; on a thread, so that nothing is left of it.
fn in_namespace(name: &str, test: impl FnOnce() + Send + 'static) {
    if !Uid::effective().is_root() {
        eprintln!("skipped {name}: it makes a network namespace, which needs root");
        return;
    }
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link add left mtu 9000 type veth peer name right mtu 9000");
        ip("link set left up");
        ip("link set right up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(
        output.status.success(),
        "ip {words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn settings() -> Settings {
    Settings::new(&[4791], [12, 16]).unwrap()
}

#[test]
fn programs_attach_natively_and_leave_when_dropped() {
    in_namespace("programs_attach_natively_and_leave_when_dropped", || {
        let mut steering = Steering::load("left", &settings()).unwrap();
        assert_eq!(occupant("left").unwrap(), None);
        let attached = steering.attach("left", true).unwrap();
        assert_eq!((attached.mode(), attached.reason()), (Mode::Native, None));
        let found = occupant("left").unwrap().unwrap();
        assert_eq!((found.name.as_deref(), found.generic), (Some("steer"), false));
        assert!(found.link.is_some(), "held by a link, so that it goes with its owner");
        drop(steering);
        assert_eq!(occupant("left").unwrap(), None);
    });
}

#[test]
fn one_passing_program_serves_many_interfaces() {
    in_namespace("one_passing_program_serves_many_interfaces", || {
        let mut program = PassingProgram::load().unwrap();
        let passing = [program.attach("left").unwrap(), program.attach("right").unwrap()];
        drop(program);
        for interface in ["left", "right"] {
            assert_eq!(occupant(interface).unwrap().unwrap().name.as_deref(), Some("pass"));
        }
        drop(passing);
        assert_eq!(occupant("left").unwrap(), None);
    });
}

#[test]
fn generic_mode_is_only_used_when_asked_for_or_needed() {
    in_namespace("generic_mode_is_only_used_when_asked_for_or_needed", || {
        let mut steering = Steering::load("left", &settings()).unwrap();
        let attached = steering.attach("left", false).unwrap();
        assert_eq!(attached.mode(), Mode::Generic);
        assert!(occupant("left").unwrap().unwrap().generic);
        // A loopback interface has no native mode.
        ip("link set lo up");
        let mut steering = Steering::load("lo", &settings()).unwrap();
        let attached = steering.attach("lo", true).unwrap();
        assert_eq!(
            (attached.mode(), attached.reason()),
            (Mode::Generic, Some("the driver has none"))
        );
    });
}

#[test]
fn a_program_attached_without_a_link_is_refused_with_the_command_that_removes_it() {
    in_namespace(
        "a_program_attached_without_a_link_is_refused_with_the_command_that_removes_it",
        || {
            let object = concat!(env!("OUT_DIR"), "/pass.bpf.o");
            for (way, off) in [("xdpdrv", "xdp"), ("xdpgeneric", "xdpgeneric")] {
                ip(&format!("link set dev left {way} obj {object} sec xdp.frags"));
                let found = occupant("left").unwrap().unwrap();
                let refused = Steering::load("left", &settings())
                    .unwrap()
                    .attach("left", true)
                    .unwrap_err()
                    .to_string();
                let removal = format!("ip link set dev left {off} off");
                assert_eq!(
                    refused,
                    format!(
                        "left already carries an XDP program (id {}, name pass), which MRC will not replace; remove it with: {removal}",
                        found.id
                    )
                );
                ip(removal.strip_prefix("ip ").unwrap());
            }
            drop(Passing::attach("left").unwrap());
        },
    );
}

#[test]
fn an_unknown_interface_is_named() {
    in_namespace("an_unknown_interface_is_named", || {
        let error = Passing::attach("nope").unwrap_err();
        assert!(
            matches!(error, Error::UnknownInterface { ref interface } if interface == "nope"),
            "{error}"
        );
    });
}
