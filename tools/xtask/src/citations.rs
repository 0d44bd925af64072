//! Every section that a comment cites has to stand in `docs/protocol`.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use crate::sources;

const NOTES: [&str; 3] = ["protocol.md", "wire-format.md", "api.md"];
const SOURCES: [&str; 6] = ["mrc-dataplane", "mrc-ebpf", "mrc-verbs", "netns-lab", "tests", "tools"];

/// Checks the sources below `root`, and returns the citations that lead nowhere.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut sections = BTreeMap::new();
    for note in NOTES {
        let path = root.join("docs/protocol").join(note);
        let text = fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        sections.insert(note, headings(&text));
    }
    let mut faults = Vec::new();
    for file in SOURCES
        .iter()
        .map(|source| sources::rust_files(&root.join(source)))
        .collect::<Result<Vec<_>, _>>()?
        .concat()
    {
        let text = fs::read_to_string(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
        for (line, note, section) in citations(&text) {
            if !sections.get(note).is_some_and(|known| known.contains(section)) {
                faults.push(format!("{}:{line}: {note} has no section {section}", file.display()));
            }
        }
    }
    Ok(faults)
}

/// The numbers of all headings.
fn headings(text: &str) -> HashSet<String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .filter_map(|line| line.trim_start_matches('#').split_whitespace().next())
        .map(|number| number.trim_end_matches('.').to_owned())
        .collect()
}

/// Line number, note and section of each citation.
fn citations(text: &str) -> Vec<(usize, &'static str, &str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for note in NOTES {
            for (at, _) in line.match_indices(note) {
                let behind = line[at + note.len()..].trim_start_matches(['`', ' ']);
                if let Some(number) = behind.strip_prefix('§') {
                    let end = number
                        .find(|c: char| !c.is_ascii_digit() && c != '.')
                        .unwrap_or(number.len());
                    found.push((index + 1, note, number[..end].trim_end_matches('.')));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_known_by_their_numbers() {
        let known = headings("# Title\n## 3. Addressing\n### 6.10 Reverse EVs\ntext\n");
        assert!(known.contains("3") && known.contains("6.10") && !known.contains("6"));
    }

    #[test]
    fn citations_are_found_in_every_spelling() {
        let text =
            "//! protocol.md §6.4, wire-format.md §11.\n// `protocol.md` §3 and `api.md §3.7`\n// protocol.md alone";
        assert_eq!(
            citations(text),
            [
                (1, "protocol.md", "6.4"),
                (1, "wire-format.md", "11"),
                (2, "protocol.md", "3"),
                (2, "api.md", "3.7")
            ]
        );
    }
}
