//! The control socket: [`mrc_capture::control`] says what is said there.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mrc_capture::{Request, control};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, getsockopt, recv, sockopt};
use socket2::{Domain, SockAddr, Socket, Type};

use super::tap::Taps;
use super::{leave_signals, writer};

/// How long a client may take to say what it wants, and how long a write to it blocks before the engine's end is looked for.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often a client that has fallen silent is waited for, at the end of the engine.
const LAST_TRIES: u32 = 10;

/// Listens until it is dropped.
pub(super) struct Server {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    taps: Arc<Taps>,
    stop: AtomicBool,
    clients: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    pub(super) fn start(directory: &Path, taps: Arc<Taps>) -> io::Result<Self> {
        sweep(directory);
        let (listener, path) = listen(directory)?;
        let shared = Arc::new(Shared {
            taps,
            stop: AtomicBool::new(false),
            clients: Mutex::new(Vec::new()),
        });
        let its_shared = shared.clone();
        let thread = std::thread::Builder::new()
            .name("mrc-control".into())
            .spawn(move || accept(&listener, &its_shared));
        let mut server = Self {
            path,
            shared,
            thread: None,
        };
        server.thread = Some(thread?);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Wakes it. If nobody can connect any more it has ended.
            if UnixStream::connect(&self.path).is_ok() {
                let _ = thread.join();
            }
        }
        let clients = std::mem::take(&mut *self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner));
        for client in clients {
            let _ = client.join();
        }
        // Somebody may have been quicker.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes sockets that dead processes have left.
fn sweep(directory: &Path) {
    for (_, path) in control::sockets(directory).unwrap_or_default() {
        // Sockets get their names when they listen: one that refuses is dead. Those of others cannot be removed, or asked.
        if let Err(error) = UnixStream::connect(&path)
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// A socket for this user only, which has its name once it listens.
///
/// The process id in the name is the one that this process has for itself. Another with the same one may use the directory, in a
/// process namespace of its own, and this one may have another engine.
fn listen(directory: &Path) -> io::Result<(UnixListener, PathBuf)> {
    let pid = std::process::id();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unnamed = directory.join(format!(".mrc-{pid}-{:x}", now.as_nanos()));
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(&unnamed)?)?;
    let named = fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))
        .and_then(|()| socket.listen(8))
        .and_then(|()| name(&unnamed, directory, pid));
    // It has another name, or is not wanted.
    let _ = fs::remove_file(&unnamed);
    Ok((socket.into(), named?))
}

/// Gives a socket the first name that is free.
fn name(unnamed: &Path, directory: &Path, pid: u32) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let path = control::socket(directory, pid, number);
        match fs::hard_link(unnamed, &path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    leave_signals();
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                tracing::error!("the control socket is closed: {error}");
                return;
            }
        };
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let its_shared = shared.clone();
        let client = std::thread::Builder::new()
            .name("mrc-capture".into())
            .spawn(move || serve(&stream, &its_shared));
        let mut clients = shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| !client.is_finished());
        match client {
            Ok(client) => clients.push(client),
            Err(error) => tracing::warn!("no thread for a client of the control socket: {error}"),
        }
    }
}

fn serve(mut stream: &UnixStream, shared: &Arc<Shared>) {
    leave_signals();
    let request = match hear(stream) {
        Ok(request) => request,
        Err(reason) => {
            // A client that has gone need not know.
            let _ = writeln!(stream, "{}{reason}", control::ERROR);
            return;
        }
    };
    let session = match shared.taps.open(&request) {
        Ok(session) => session,
        Err(error) => {
            let _ = writeln!(stream, "{}{error}", control::ERROR);
            return;
        }
    };
    tracing::info!("capture of {request} begins");
    let to = Patient {
        stream,
        stop: &shared.stop,
    };
    let is_over = || {
        let is_over = shared.stop.load(Ordering::Acquire) || has_finished(stream);
        if is_over {
            // From here on nothing is offered, so that the statistics agree with what is written.
            shared.taps.close(&session);
        }
        is_over
    };
    let result = writeln!(stream, "{}", control::OK).and_then(|()| writer::run(&session, to, is_over));
    shared.taps.close(&session);
    match result {
        Ok(()) => tracing::info!("capture of {request} ends"),
        Err(error) => tracing::info!("capture of {request} ends: {error}"),
    }
}

/// What the client asks for, or why it is not given.
fn hear(mut stream: &UnixStream) -> Result<Request, String> {
    let peer =
        getsockopt(&stream, sockopt::PeerCredentials).map_err(|error| format!("cannot tell who asks: {error}"))?;
    let own = nix::unistd::geteuid().as_raw();
    if peer.uid() != own && peer.uid() != 0 {
        return Err(format!(
            "user {} may not capture from user {own}: run as that user or as root",
            peer.uid()
        ));
    }
    let timed = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    timed.map_err(|error| format!("cannot set a timeout: {error}"))?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        match stream.read(&mut byte) {
            Ok(1) if line.len() < control::LONGEST_LINE => line.push(byte[0]),
            Ok(1) => return Err(format!("a line is longer than {} bytes", control::LONGEST_LINE)),
            Ok(_) => return Err("the line has no end".into()),
            Err(error) => return Err(format!("no line came: {error}")),
        }
    }
    let line = String::from_utf8_lossy(&line);
    let line = line.trim();
    let (verb, words) = line.split_once(' ').unwrap_or((line, ""));
    if verb != control::CAPTURE {
        return Err(format!("{verb:?} is unknown: the only verb is {}", control::CAPTURE));
    }
    words.parse::<Request>().map_err(|error| error.to_string())
}

/// Has the client closed its sending half?
fn has_finished(stream: &UnixStream) -> bool {
    let mut rest = [0; 64];
    loop {
        match recv(stream.as_raw_fd(), &mut rest, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return true,
            // Nothing that it says now means anything.
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return false,
            Err(_) => return true,
        }
    }
}

/// Waits for a slow client, but not beyond the end of the engine.
struct Patient<'a> {
    stream: &'a UnixStream,
    stop: &'a AtomicBool,
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut tries = 0;
        loop {
            match (&mut &*self.stream).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tries += u32::from(self.stop.load(Ordering::Acquire));
                    if tries > LAST_TRIES {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
