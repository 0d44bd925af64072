//! Captures from the engine of a running program, over its control socket (`mrc_capture::control`).

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use mrc_capture::{Filter, Request, control};

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
    #[error("no engine listens in {}: start the program with MRC_CONTROL={}", .0.display(), .0.display())]
    None(PathBuf),
    #[error("{} engines listen in {}: name one of the processes {}", .pids.len(), .directory.display(), list(.pids))]
    Several { directory: PathBuf, pids: Vec<u32> },
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

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
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

/// The socket that is meant.
fn connect(process: Option<&str>) -> Result<UnixStream, LiveError> {
    let directory = || control::directory(|name| env::var(name).ok()).ok_or(LiveError::NoDirectory);
    let path = match process {
        Some(name) => match name.parse::<u32>() {
            Ok(pid) => control::socket(&directory()?, pid, 1),
            Err(_) => name.into(),
        },
        None => return only(&directory()?),
    };
    UnixStream::connect(&path).map_err(|source| LiveError::Connect { path, source })
}

/// The only socket of the directory where somebody listens.
fn only(directory: &Path) -> Result<UnixStream, LiveError> {
    let sockets = control::sockets(directory).map_err(|source| LiveError::Directory {
        directory: directory.to_owned(),
        source,
    })?;
    let connected = sockets
        .into_iter()
        .map(|(pid, path)| (pid, UnixStream::connect(&path), path));
    let mut alive: Vec<_> = connected
        .filter(|(_, stream, _)| !matches!(stream, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused))
        .collect();
    if alive.len() > 1 {
        return Err(LiveError::Several {
            directory: directory.to_owned(),
            pids: alive.iter().map(|(pid, ..)| *pid).collect(),
        });
    }
    let (_, stream, path) = alive.pop().ok_or_else(|| LiveError::None(directory.to_owned()))?;
    stream.map_err(|source| LiveError::Connect { path, source })
}

fn ask(mut stream: &UnixStream, request: &Request) -> Result<(), LiveError> {
    writeln!(stream, "{} {request}", control::CAPTURE).map_err(LiveError::Silent)?;
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
