//! Where lines go. What cannot be written is told once, and fails the command; a reader that has gone (`| head`) does not.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Mutex;

/// The first thing that went wrong with standard output.
static BROKEN: Mutex<Option<String>> = Mutex::new(None);

/// Standard output that remembers what went wrong.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        noted(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        noted(io::stdout().flush())
    }
}

fn noted<T>(result: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &result
        && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted)
        && let Ok(mut broken) = BROKEN.lock()
    {
        broken.get_or_insert_with(|| error.to_string());
    }
    result
}

/// A line of output.
pub(crate) fn say(line: &str) {
    // What went wrong is noted, and told at the end.
    let _ = writeln!(Stdout, "{line}");
}

/// A line of complaint. Nobody is left to hear that it cannot be written.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A mistake of the person at the keyboard, or of a file.
pub(crate) fn fail(error: &str) -> ExitCode {
    tell(&format!("mrc-sim: {error}"));
    ExitCode::from(2)
}

/// Help and version, which clap prints itself.
pub(crate) fn help(text: &clap::Error) -> ExitCode {
    let _ = noted(text.print());
    ExitCode::SUCCESS
}

/// The exit status, given that of the command.
pub(crate) fn end(code: ExitCode) -> ExitCode {
    let _ = Stdout.flush();
    let broken = BROKEN.lock().ok().and_then(|mut broken| broken.take());
    match broken {
        None => code,
        Some(error) => fail(&format!(
            "standard output cannot be written: {error}: write to another file or disk"
        )),
    }
}
