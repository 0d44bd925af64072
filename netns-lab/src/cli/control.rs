//! A lab that is up takes orders: `fault`, `heal`, `counters` talk to it by a socket.
//!
//! The socket has an abstract name, so nothing is left of it either. One request a connection, one answer, each a line of JSON.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netns_lab::{Fault, Lab, LabError, SwitchPort};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

/// The name of a lab that was given none.
pub(crate) const DEFAULT_NAME: &str = "lab";
/// How long either side waits for the other's line; a fault takes as long as its links.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest request.
const MAX_REQUEST: u64 = 64 * 1024;

/// What a lab is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Break something.
    Fault(Fault),
    /// Take a fault back, or all of them.
    Heal(Option<Fault>),
    /// Tell what is broken and what ports have counted.
    Tell,
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    /// What is broken now.
    pub(crate) faults: Vec<Fault>,
    /// All ports of its switches.
    pub(crate) ports: Vec<SwitchPort>,
}

type Answer = Result<State, String>;

/// Listens for requests to the lab of that name.
pub(crate) struct Control {
    name: String,
    listener: UnixListener,
    address: SocketAddr,
    stopped: AtomicBool,
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("netns-lab/{name}"))
}

impl Control {
    /// Takes a name, or without one the first free of `lab`, `lab2`, `lab3`, ...
    pub(crate) fn open(name: Option<&str>) -> Result<Self, LabError> {
        let numbered = (2..100).map(|n| format!("{DEFAULT_NAME}{n}"));
        let free = || [DEFAULT_NAME.to_owned()].into_iter().chain(numbered);
        let names: Vec<String> = name.map_or_else(|| free().collect(), |name| vec![name.to_owned()]);
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for name in names {
            let bound = address(&name).and_then(|a| UnixListener::bind_addr(&a).map(|listener| (listener, a)));
            match bound {
                Ok((listener, address)) => {
                    return Ok(Self {
                        name,
                        listener,
                        address,
                        stopped: AtomicBool::new(false),
                    });
                }
                Err(error) => last = error,
            }
        }
        let remedy = if last.kind() == io::ErrorKind::AddrInUse {
            "a lab of that name is up already: choose another with --name"
        } else {
            "choose a shorter name with --name"
        };
        Err(LabError::Usage {
            message: format!(
                "cannot take orders as lab '{}': {last}; {remedy}",
                name.unwrap_or(DEFAULT_NAME)
            ),
        })
    }

    /// What the lab is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Serves until [`Self::stop`].
    pub(crate) fn serve(&self, lab: &Lab) {
        for stream in self.listener.incoming() {
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            // A client that is gone or talks nonsense is its own problem.
            let _ = stream.and_then(|stream| answer(lab, &stream));
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _ = UnixStream::connect_addr(&self.address);
    }
}

fn answer(lab: &Lab, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let user = getsockopt(stream, sockopt::PeerCredentials)?.uid();
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
    let answer: Answer = if user != 0 && user != geteuid().as_raw() {
        Err("only root and the lab's owner may do this".to_owned())
    } else {
        match serde_json::from_str(&line) {
            Ok(request) => carry_out(lab, request).map_err(|error| error.to_string()),
            Err(error) => Err(format!("the lab does not understand this request: {error}")),
        }
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    let mut stream = stream;
    stream.write_all(text.as_bytes())
}

fn carry_out(lab: &Lab, request: Request) -> Result<State, LabError> {
    match request {
        Request::Fault(fault) => lab.fault(&fault)?,
        Request::Heal(Some(fault)) => lab.heal(&fault)?,
        Request::Heal(None) => lab.heal_all()?,
        Request::Tell => {}
    }
    Ok(State {
        faults: lab.faults(),
        ports: lab.switch_ports()?,
    })
}

/// Asks the lab of that name.
pub(crate) fn ask(name: &str, request: &Request) -> Result<State, LabError> {
    let failed = |what: &str, error: io::Error| LabError::Usage {
        message: format!("cannot {what} lab '{name}': {error}; `netns-lab up --name {name}` starts one of that name"),
    };
    let stream = address(name)
        .and_then(|a| UnixStream::connect_addr(&a))
        .map_err(|e| failed("reach", e))?;
    let exchange = || -> io::Result<Answer> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let text = serde_json::to_string(request)? + "\n";
        (&stream).write_all(text.as_bytes())?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    exchange()
        .map_err(|e| failed("talk to", e))?
        .map_err(|message| LabError::Usage { message })
}

/// A fault as people write it: one line of TOML.
pub(crate) fn fault(text: &str) -> Result<Fault, String> {
    toml::from_str(text).map_err(|error| {
        format!(
            "{}; expected one line such as 'link-down = \"h0-t0.0.p1\"' (netns-lab/README.md lists all faults)",
            error.message()
        )
    })
}

/// What is broken, for people.
pub(crate) fn faults(state: &State) -> String {
    if state.faults.is_empty() {
        return "nothing is broken\n".to_owned();
    }
    let lines: Vec<String> = state.faults.iter().map(|fault| format!("broken: {fault}\n")).collect();
    lines.concat()
}

/// The counters of all ports, for people.
pub(crate) fn table(state: &State) -> String {
    let heads = [
        "packets",
        "bytes",
        "marked",
        "trimmed",
        "dropped",
        "lost",
        "flipped",
        "no path",
        "most bytes",
    ];
    let row = |switch: &str, link: &str, cells: [String; 9]| {
        let cells = cells.map(|cell| format!(" {cell:>11}")).concat();
        format!("{switch:<9} {link:<17}{cells}\n")
    };
    let port = |port: &SwitchPort| {
        let c = &port.counters;
        let counts = [
            c.packets,
            c.bytes,
            c.marked,
            c.trimmed,
            c.dropped,
            c.lost,
            c.flipped,
            c.no_path,
            c.high_water_bytes,
        ];
        row(&port.switch, &port.link, counts.map(|n| n.to_string()))
    };
    row("switch", "to link", heads.map(str::to_owned)) + &state.ports.iter().map(port).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_line_of_toml() {
        assert_eq!(fault("dead = \"t0.0.p1\""), Ok(Fault::Dead("t0.0.p1".to_owned())));
        for wrong in [
            "",
            "dead",
            "dead = 3",
            "broken = \"t0.0.p1\"",
            "dead = \"a\"\nblackhole = \"b\"",
        ] {
            let message = fault(wrong).unwrap_err();
            assert!(
                message.contains("expected one line such as") && !message.contains('\n'),
                "{message}"
            );
        }
    }

    #[test]
    fn what_is_asked_and_told_survives_the_socket() {
        let request = Request::Heal(Some(Fault::Dead("t0.0.p1".to_owned())));
        let text = serde_json::to_string(&request).unwrap();
        assert!(!text.contains('\n'));
        assert!(matches!(
            serde_json::from_str(&text).unwrap(),
            Request::Heal(Some(Fault::Dead(_)))
        ));
    }
}
