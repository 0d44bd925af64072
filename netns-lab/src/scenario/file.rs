//! Reads a scenario: built in, or from a file.

use std::path::Path;

use super::{Scenario, check, library};

/// What is wrong with a scenario file: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}")]
pub(crate) struct FileError {
    /// The file, or the name of the scenario.
    pub file: String,
    /// The key, its value, the limit.
    pub what: String,
}

/// A scenario by its name, or from a file: what contains a dot or a slash is a file. Returns its name with it.
pub(crate) fn load(name_or_file: &str) -> Result<(String, Scenario), FileError> {
    if let Some(text) = library::text_of(name_or_file) {
        return Ok((name_or_file.to_owned(), parse(name_or_file, text)?));
    }
    let error = |what: String| FileError {
        file: name_or_file.to_owned(),
        what,
    };
    if !name_or_file.contains(['.', '/']) {
        return Err(error(format!(
            "no scenario of this name, and a file has a dot or a slash in it; there are {}",
            library::NAMES.join(", ")
        )));
    }
    let text = std::fs::read_to_string(name_or_file).map_err(|e| error(format!("cannot be read: {e}")))?;
    let stem = Path::new(name_or_file).file_stem();
    let name = stem.map_or_else(|| "scenario".to_owned(), |stem| stem.to_string_lossy().into_owned());
    Ok((name, parse(name_or_file, &text)?))
}

/// Parses and checks a scenario's text.
pub(crate) fn parse(file: &str, text: &str) -> Result<Scenario, FileError> {
    let error = |what: String| FileError {
        file: file.to_owned(),
        what,
    };
    let scenario: Scenario = toml::from_str(text).map_err(|e| {
        let line = e.span().map_or(1, |span| line_of(text, span.start));
        // The parser's own texts may have several lines.
        let message = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
        error(format!("line {line}: {message}"))
    })?;
    check::check(&scenario).map_err(error)?;
    Ok(scenario)
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}
