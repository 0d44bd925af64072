//! Captures of what an engine sends and receives. `AF_XDP` hides it from `tcpdump`.
//!
//! A [`TappedPort`](tap::TappedPort) around each port copies frames that a filter wants into the buffers of a
//! [`Session`](session::Session), which are made when the session starts; a thread of the session writes them as pcapng, to a file or to
//! a client of the control socket. The engine thread neither allocates, nor locks, nor waits: a frame for which no buffer is free is dropped
//! and counted, and the count stands in the capture's interface statistics. Without a session a port costs one comparison more.

mod server;
mod session;
mod tap;
mod writer;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use mrc_capture::Request;
use mrc_capture::control::Directory;
use mrc_wire::{Dscps, EvLayout};
use nix::sys::signal::SigSet;

use crate::port::Port;
use server::Server;
use session::Session;
use tap::{TappedPort, Taps};

/// Which captures an engine makes or lets others make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaptureConfig {
    /// Everything from the start to the end of the engine, into a file.
    pub file: Option<(PathBuf, Request)>,
    /// Where the control socket is; `None`: there is none.
    pub control: Option<Directory>,
}

/// Why there is no capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file of a capture.
    #[error("cannot write the capture {}: {error}: check the path and its permissions", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// The control socket.
    #[error("cannot listen in {}: {error}: let MRC_CONTROL name a directory that this user can write to", .directory.display())]
    Control {
        /// The directory.
        directory: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// Too many sessions.
    #[error("{0} captures are running: end one of them")]
    Busy(usize),
}

/// How to read the engine's packets.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) udp_port: u16,
    pub(crate) dscps: Dscps,
    pub(crate) ev_layout: EvLayout,
}

/// What a capture says of a port.
#[derive(Debug, Clone)]
struct Interface {
    name: String,
    mac: [u8; 6],
    speed_bps: Option<u64>,
}

/// The captures of one engine. When it goes, they end: with all packets that were seen, and the statistics.
pub(crate) struct Capture {
    taps: Arc<Taps>,
    // In this order: clients first, then the file.
    _server: Option<Server>,
    file: Option<(Arc<Session>, JoinHandle<()>)>,
}

/// The engine's ports, all of them tapped if there can be a capture at all.
pub(crate) type Ports = Vec<Vec<Box<dyn Port>>>;

impl Capture {
    /// Taps the ports and starts what `config` asks for; `speeds` are those that it knows better than the interfaces.
    pub(crate) fn start(
        config: &CaptureConfig,
        reading: Reading,
        speeds: &[Option<u64>],
        ports: Ports,
    ) -> Result<(Option<Self>, Ports), CaptureError> {
        if *config == CaptureConfig::default() {
            return Ok((None, ports));
        }
        let first = ports.first().map(Vec::as_slice).unwrap_or_default();
        let interfaces = first.iter().enumerate().map(|(at, port)| Interface {
            name: port.name().to_owned(),
            mac: port.mac(),
            speed_bps: speeds.get(at).copied().flatten(),
        });
        let taps = Arc::new(Taps::new(reading, interfaces.collect()));
        let tapped = |port| Box::new(TappedPort::new(port, taps.clone())) as Box<dyn Port>;
        let ports = ports
            .into_iter()
            .map(|ports| ports.into_iter().map(tapped).collect())
            .collect();
        let file = match &config.file {
            Some((path, request)) => Some(Self::to_file(&taps, path, request)?),
            None => None,
        };
        let server = match &config.control {
            Some(directory) => Self::server(&taps, directory)?,
            None => None,
        };
        let capture = Self {
            taps,
            _server: server,
            file,
        };
        Ok((Some(capture), ports))
    }

    fn server(taps: &Arc<Taps>, directory: &Directory) -> Result<Option<Server>, CaptureError> {
        match Server::start(&directory.path, taps.clone()) {
            Ok(server) => Ok(Some(server)),
            Err(error) => {
                let error = CaptureError::Control {
                    directory: directory.path.clone(),
                    error,
                };
                if directory.is_wanted {
                    return Err(error);
                }
                tracing::warn!("no control socket: {error}");
                Ok(None)
            }
        }
    }

    fn to_file(
        taps: &Arc<Taps>,
        path: &Path,
        request: &Request,
    ) -> Result<(Arc<Session>, JoinHandle<()>), CaptureError> {
        let failed = |error| CaptureError::File {
            path: path.to_owned(),
            error,
        };
        let file = File::create(path).map_err(failed)?;
        let session = taps.open(request)?;
        let (its_session, name) = (session.clone(), path.to_owned());
        let write = move || {
            leave_signals();
            if let Err(error) = writer::run(&its_session, file, || false) {
                tracing::error!("the capture {} ends early: {error}", name.display());
            }
        };
        let thread = std::thread::Builder::new().name("mrc-capture".into()).spawn(write);
        Ok((session, thread.map_err(failed)?))
    }
}

/// Signals belong to the application.
fn leave_signals() {
    if let Err(error) = SigSet::all().thread_block() {
        tracing::warn!("a thread that captures cannot block signals: {error}");
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some((session, thread)) = self.file.take() {
            self.taps.close(&session);
            session.finish();
            // It has said what went wrong, if anything did.
            let _ = thread.join();
        }
    }
}
