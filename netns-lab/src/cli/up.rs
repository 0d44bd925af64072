//! A lab to walk around in.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use netns_lab::{Lab, LabError, Topology};

use super::control::{Control, DEFAULT_NAME};
use super::{output, signals};

/// Builds the lab and keeps it until a signal.
pub(crate) fn run(topology: &Topology, name: Option<&str>) -> Result<u8, LabError> {
    let (asked, inbox) = mpsc::channel();
    signals::watch(move |signal| {
        let _ = asked.send(signal);
    })?;
    let control = Control::open(name)?;
    let lab = Lab::build(topology)?;
    let mut text = format!("{}\nto enter, from another terminal:\n", lab.plan());
    // A process in each node gives `nsenter` something to take hold of, with the node's own /sys and /proc.
    let mut holders = Vec::new();
    for node in &lab.plan().nodes {
        let mut holder = Command::new("sleep");
        holder
            .arg("infinity")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let holder = lab.node(&node.name)?.spawn(holder)?;
        let _ = writeln!(text, "  {:<6} nsenter -t {} -n -m -p -u", node.name, holder.id());
        holders.push(holder);
    }
    let configs = lab
        .hosts()
        .filter_map(|h| Some(format!("  {:<6} MRC_CONFIG={}\n", h.name(), h.config_path()?)));
    let configs: String = configs.collect();
    if !configs.is_empty() {
        let _ = write!(text, "\nthere, in addition to the environment above:\n{configs}");
    }
    let link = lab.links().first().cloned().unwrap_or_default();
    let option = match control.name() {
        DEFAULT_NAME => String::new(),
        name => format!("--lab {name} "),
    };
    let _ = writeln!(
        text,
        "\nto break something, and to see what happens:\n  netns-lab fault {option}'link-down = \"{link}\"'\n  netns-lab heal {option}\n  netns-lab counters {option}"
    );
    text.push_str("\nCtrl-C ends the lab and everything in it\n");
    thread::scope(|scope| {
        scope.spawn(|| control.serve(&lab));
        output::print(&text);
        let _ = inbox.recv();
        control.stop();
    });
    Ok(0)
}
