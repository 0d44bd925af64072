//! Finds the source files.

use std::fs;
use std::path::{Path, PathBuf};

/// All Rust files below a directory, in order.
pub(crate) fn rust_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let unreadable = |error| format!("cannot read {}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
