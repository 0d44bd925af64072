//! Lines with the name of the node that wrote them.

use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read, Write};

/// Colours of nodes, in turn: cyan, yellow, green, magenta, blue, red.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// The prefix of a node's lines, coloured where `terminal`.
pub(crate) fn prefix(node: &str, place: usize, terminal: bool) -> String {
    if terminal {
        format!("\x1b[{}m{node}|\x1b[0m ", COLOURS[place % COLOURS.len()])
    } else {
        format!("{node}| ")
    }
}

/// Whether standard output and standard error are terminals that want colours.
pub(crate) fn terminals() -> (bool, bool) {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    (
        wanted && io::stdout().is_terminal(),
        wanted && io::stderr().is_terminal(),
    )
}

/// Copies `from` to `to` line by line, whatever the bytes; the end of a last line without newline is supplied.
pub(crate) fn copy_lines(from: impl Read, mut to: impl Write, prefix: &str) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(prefix.as_bytes());
        // A command whose output fails has ended.
        match from.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // One write per line, so that lines of several commands do not mix. Where nobody reads any more, the command's next line
        // tells it so (SIGPIPE), as in any pipeline.
        if to.write_all(&line).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Prints to standard output; a reader that has gone is no error.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_prefixed_and_the_last_is_ended() {
        let mut out = Vec::new();
        copy_lines(&b"one\n\nthree \xff"[..], &mut out, &prefix("h0", 0, false));
        assert_eq!(out, b"h0| one\nh0| \nh0| three \xff\n");
    }

    #[test]
    fn a_terminal_gets_colours_that_differ_between_neighbours() {
        assert_eq!(prefix("h1", 1, true), "\x1b[33mh1|\x1b[0m ");
        assert_ne!(prefix("h", 0, true), prefix("h", 1, true));
    }
}
