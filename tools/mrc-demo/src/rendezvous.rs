//! How source and target find each other: a TCP connection over the management network, a line at a time. MRC has no connection
//! manager; every application brings something like this.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mrc_verbs::{ConnectionInfo, RemoteRegion};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::{DemoError, io};

const PORT: u16 = 18515;
/// How long the source waits for the target to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one side has to know of the other.
#[derive(Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) queue_pair: ConnectionInfo,
    /// Where to write; only the target has one.
    pub(crate) region: Option<RemoteRegion>,
}

/// What was sent, told when everything is.
#[derive(Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) sha256: String,
}

/// The connection to the other side.
pub(crate) struct Rendezvous {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    peer: &'static str,
}

impl Rendezvous {
    /// The target's end: waits for the source.
    pub(crate) fn accept() -> Result<Self, DemoError> {
        let listener = TcpListener::bind((variable("H1_MGMT")?, PORT)).map_err(io("listening for the source"))?;
        let (stream, _) = listener.accept().map_err(io("waiting for the source"))?;
        Self::over(stream, "the source")
    }

    /// The source's end: calls until the target listens.
    pub(crate) fn call() -> Result<Self, DemoError> {
        let target = (variable("H1_MGMT")?, PORT);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect((target.0.as_str(), target.1)) {
                Ok(stream) => return Self::over(stream, "the target"),
                Err(error) if Instant::now() >= deadline => return Err(io("calling the target")(error)),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn over(stream: TcpStream, peer: &'static str) -> Result<Self, DemoError> {
        let writer = stream.try_clone().map_err(io("talking to the other side"))?;
        Ok(Self {
            reader: BufReader::new(stream),
            writer,
            peer,
        })
    }

    /// Sends one line.
    pub(crate) fn say(&mut self, message: &impl Serialize) -> Result<(), DemoError> {
        let mut line = serde_json::to_string(message).map_err(|error| io("talking to the other side")(error.into()))?;
        line.push('\n');
        self.writer
            .write_all(line.as_bytes())
            .map_err(io("talking to the other side"))
    }

    /// Waits for one line.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, DemoError> {
        let mut line = String::new();
        self.reader
            .read_line(&mut line)
            .map_err(io("listening to the other side"))?;
        serde_json::from_str(&line).map_err(|_| DemoError::Unexpected { from: self.peer, line })
    }
}

fn variable(name: &'static str) -> Result<String, DemoError> {
    std::env::var(name).map_err(|_| DemoError::NotInLab(name))
}
