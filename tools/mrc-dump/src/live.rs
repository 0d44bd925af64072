//! Captures from the engine of a running program, over its control socket (`mrc_capture::control`).

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use mrc_capture::{Filter, Request, control};
use nix::sys::socket::{getsockopt, sockopt};

use crate::RunError;
use crate::args::LiveArgs;
use crate::input::{self, InputError, Item};
use crate::show::Show;

/// Why there is no capture, or why it broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    #[error("no directory of control sockets: set MRC_CONTROL (or XDG_RUNTIME_DIR) as the program has it")]
    NoDirectory,
    #[error("cannot look into {}: {source}: let MRC_CONTROL name the directory that the program has", .directory.display())]
    Directory { directory: PathBuf, source: io::Error },
    #[error("no engine{} listens in {}: start the program with MRC_CONTROL={}", of(.pid.as_ref()), .directory.display(), .directory.display())]
    None { directory: PathBuf, pid: Option<u32> },
    #[error("{} engines listen in {}: name one of them: {}", .engines.len(), .directory.display(), list(.engines))]
    Several { directory: PathBuf, engines: Vec<Engine> },
    #[error("cannot reach {}: {source}: is the program still running, and are you its user or root?", .path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("the engine says: {0}")]
    Refused(String),
    #[error("the engine does not answer: {0}")]
    Silent(io::Error),
    #[error("cannot write {name}: {source}: check the path and its permissions")]
    Write { name: String, source: io::Error },
    #[error("cannot catch interrupts: {0}")]
    Signal(#[from] ctrlc::Error),
}

fn of(pid: Option<&u32>) -> String {
    pid.map(|pid| format!(" of process {pid}")).unwrap_or_default()
}

fn list(engines: &[Engine]) -> String {
    let names = engines.iter().map(|engine| {
        format!(
            "process {} ({})",
            engine.pid.unwrap_or(engine.named),
            engine.path.display()
        )
    });
    names.collect::<Vec<_>>().join(", ")
}

pub(crate) fn run(args: &LiveArgs) -> Result<(), RunError> {
    // The engine filters.
    let mut show = Show::new(&args.receiver, Filter::default(), &args.show)?;
    let stream = connect(args.process.as_deref())?;
    let request = Request {
        snaplen: args.snaplen,
        buffer: args.buffer,
        filter: args.receiver.filter.clone(),
    };
    ask(&stream, &request)?;
    let copy = match args.write.as_deref() {
        None => None,
        Some("-") => Some((
            "standard output".to_owned(),
            Box::new(io::stdout().lock()) as Box<dyn Write>,
        )),
        Some(name) => {
            let file = File::create(name).map_err(|source| LiveError::Write {
                name: name.to_owned(),
                source,
            })?;
            Some((name.to_owned(), Box::new(file) as Box<dyn Write>))
        }
    };
    let is_copied = copy.is_some();
    let interrupted = stream.try_clone().map_err(LiveError::Silent)?;
    let twice = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        // The engine answers with the statistics. Who interrupts twice does not want them.
        if twice.swap(true, Ordering::Relaxed) || interrupted.shutdown(Shutdown::Write).is_err() {
            std::process::exit(130);
        }
    })
    .map_err(LiveError::Signal)?;

    let (mut packets, mut dropped, mut interfaces) = (0_u64, 0, 0);
    let source = Copying { stream: &stream, copy };
    let result = input::from_reader("the engine's stream", source, &mut |item| -> Result<(), RunError> {
        match item {
            Item::Frame(_) if args.count.is_some_and(|count| packets >= count) => {}
            Item::Frame(frame) => {
                packets += 1;
                if !is_copied {
                    show.frame(&frame)?;
                    show.flush()?;
                }
                if args.count == Some(packets) {
                    // It may have ended by itself.
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
            Item::Statistics(statistics) => {
                dropped += statistics.dropped;
                interfaces += 1;
            }
        }
        Ok(())
    });
    if let Err(RunError::Output(error)) = &result
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        return result;
    }
    let end = match (&result, interfaces) {
        (Ok(()), 1..) => "",
        _ => "; the engine ended without a word",
    };
    eprintln!("{packets} packets captured, {dropped} dropped for want of buffers{end}");
    match result {
        // As much as was there is shown and counted; a process that was killed cannot finish its capture.
        Err(RunError::Input(InputError::Damaged { .. })) if interfaces == 0 => Ok(()),
        other => other,
    }
}

/// The engine that is meant.
fn connect(process: Option<&str>) -> Result<UnixStream, LiveError> {
    let pid = match process.map(|name| (name, name.parse::<u32>())) {
        Some((name, Err(_))) => {
            let path = PathBuf::from(name);
            return UnixStream::connect(&path).map_err(|source| LiveError::Connect { path, source });
        }
        Some((_, Ok(pid))) => Some(pid),
        None => None,
    };
    let directory = control::directory(|name| env::var(name).ok())
        .ok_or(LiveError::NoDirectory)?
        .path;
    let mut engines = engines(&directory)?;
    if let Some(pid) = pid {
        // What the kernel says of a socket comes before what its name says.
        let is_known = engines.iter().any(|engine| engine.pid == Some(pid));
        engines.retain(|engine| {
            pid == if is_known {
                engine.pid.unwrap_or(0)
            } else {
                engine.named
            }
        });
    }
    match (engines.len(), engines.pop()) {
        (1, Some(engine)) => engine.stream.map_err(|source| LiveError::Connect {
            path: engine.path,
            source,
        }),
        (_, Some(last)) => {
            engines.push(last);
            Err(LiveError::Several { directory, engines })
        }
        (_, None) => Err(LiveError::None { directory, pid }),
    }
}

/// A control socket that is in use.
#[derive(Debug)]
pub(crate) struct Engine {
    path: PathBuf,
    /// The process in its name.
    named: u32,
    /// The process as seen from here.
    pid: Option<u32>,
    stream: io::Result<UnixStream>,
}

/// The engines that listen in the directory, or would if we were allowed to ask.
fn engines(directory: &Path) -> Result<Vec<Engine>, LiveError> {
    let sockets = control::sockets(directory).map_err(|source| LiveError::Directory {
        directory: directory.to_owned(),
        source,
    })?;
    let mut engines = Vec::new();
    for (named, path) in sockets {
        let stream = UnixStream::connect(&path);
        if matches!(&stream, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
            continue;
        }
        let credentials = stream
            .as_ref()
            .ok()
            .and_then(|stream| getsockopt(stream, sockopt::PeerCredentials).ok());
        let pid = credentials
            .and_then(|credentials| u32::try_from(credentials.pid()).ok())
            .filter(|pid| *pid > 0);
        engines.push(Engine {
            path,
            named,
            pid,
            stream,
        });
    }
    Ok(engines)
}

fn ask(mut stream: &UnixStream, request: &Request) -> Result<(), LiveError> {
    match writeln!(stream, "{} {request}", control::CAPTURE) {
        // Who refuses somebody says so at once, and hangs up: what it said is there all the same.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        sent => sent.map_err(LiveError::Silent)?,
    }
    // Not more than the line: what follows is the capture.
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while answer.last() != Some(&b'\n') && answer.len() < control::LONGEST_LINE {
        stream.read_exact(&mut byte).map_err(LiveError::Silent)?;
        answer.push(byte[0]);
    }
    let answer = String::from_utf8_lossy(&answer);
    match answer.trim_end() {
        control::OK => Ok(()),
        other => Err(LiveError::Refused(other.trim_start_matches(control::ERROR).to_owned())),
    }
}

/// The stream, with a copy of what is read.
struct Copying<'a> {
    stream: &'a UnixStream,
    copy: Option<(String, Box<dyn Write>)>,
}

impl Read for Copying<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = self.stream.read(to)?;
        if let (Some((_, copy)), Some(read)) = (&mut self.copy, to.get(..len)) {
            copy.write_all(read)?;
            copy.flush()?;
        }
        Ok(len)
    }
}
