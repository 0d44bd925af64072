//! A capture as it is asked for.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::filter::{Filter, FilterError};

/// Which packets, and how much of them. Written as words: `snaplen=96 buffer=8192 qp=0x11 dir=tx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes kept of each packet, 1 to [`Self::LONGEST`].
    pub snaplen: u32,
    /// Packets that may wait to be written, 1 to [`Self::LARGEST_BUFFER`]; beyond it they are dropped and counted.
    pub buffer: u32,
    /// Which packets.
    pub filter: Filter,
}

/// What is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A word of the filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A number out of range.
    #[error("{word:?} is out of range: give 1 to {most}")]
    Range {
        /// The word.
        word: String,
        /// Its largest value.
        most: u32,
    },
    /// No file to capture to.
    #[error("no file is named: write FILE or FILE,WORDS, as in /tmp/%p.pcapng,snaplen=96 dir=tx")]
    NoFile,
}

impl Request {
    /// The longest frame: PMTU 4096 with all headers, tunnel and tag.
    pub const LONGEST: u32 = 4096 + 256;
    /// Packets in the largest buffer.
    pub const LARGEST_BUFFER: u32 = 1 << 20;

    /// A file and a request: `FILE` or `FILE,WORDS`. `%p` in the file's name stands for the process id.
    pub fn with_file(text: &str) -> Result<(PathBuf, Self), RequestError> {
        let (file, words) = text.split_once(',').unwrap_or((text, ""));
        if file.is_empty() {
            return Err(RequestError::NoFile);
        }
        let file = file.replace("%p", &std::process::id().to_string());
        Ok((PathBuf::from(file), words.parse()?))
    }
}

impl Default for Request {
    fn default() -> Self {
        Self {
            snaplen: Self::LONGEST,
            buffer: 4096,
            filter: Filter::default(),
        }
    }
}

impl FromStr for Request {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let mut request = Self::default();
        for word in text.split_whitespace() {
            let range = |most: u32, value: &str| {
                let value = value.parse().ok().filter(|value| (1..=most).contains(value));
                value.ok_or(RequestError::Range {
                    word: word.to_owned(),
                    most,
                })
            };
            match word.split_once('=') {
                Some(("snaplen", value)) => request.snaplen = range(Self::LONGEST, value)?,
                Some(("buffer", value)) => request.buffer = range(Self::LARGEST_BUFFER, value)?,
                _ => request.filter.add(word)?,
            }
        }
        Ok(request)
    }
}

/// As it can be parsed again.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snaplen={} buffer={}", self.snaplen, self.buffer)?;
        if !self.filter.is_empty() {
            write!(f, " {}", self.filter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_any_order_and_survive_being_written() {
        let request: Request = "dir=tx buffer=7 qp=3 snaplen=96".parse().unwrap();
        assert_eq!((request.snaplen, request.buffer), (96, 7));
        assert_eq!(request.filter, "dir=tx qp=3".parse().unwrap());
        assert_eq!(request.to_string().parse(), Ok(request));
        assert_eq!("".parse(), Ok(Request::default()));
    }

    #[test]
    fn a_file_may_be_followed_by_words_with_commas() {
        let (file, request) = Request::with_file("/tmp/a-%p.pcapng,qp=1,2 snaplen=64").unwrap();
        assert_eq!(file, PathBuf::from(format!("/tmp/a-{}.pcapng", std::process::id())));
        assert_eq!((request.snaplen, request.filter.to_string()), (64, "qp=0x1,0x2".into()));
        assert_eq!(
            Request::with_file("a").unwrap(),
            (PathBuf::from("a"), Request::default())
        );
    }

    #[test]
    fn wrong_words_are_named() {
        for (text, message) in [
            ("snaplen=0", "\"snaplen=0\" is out of range: give 1 to 4352"),
            ("buffer=many", "\"buffer=many\" is out of range: give 1 to 1048576"),
        ] {
            assert_eq!(text.parse::<Request>().unwrap_err().to_string(), message);
        }
        assert!(
            Request::with_file(",qp=1")
                .unwrap_err()
                .to_string()
                .starts_with("no file")
        );
        assert!(
            Request::with_file("a,b")
                .unwrap_err()
                .to_string()
                .starts_with("\"b\" is no filter")
        );
    }
}
