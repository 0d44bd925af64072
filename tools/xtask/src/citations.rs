//! Finds the sections of `docs/protocol`, and the comments that cite them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources;

/// The notes that a comment may cite.
pub(crate) const NOTES: [&str; 3] = ["protocol.md", "wire-format.md", "api.md"];
const SOURCES: [&str; 7] = [
    "fuzz",
    "mrc-dataplane",
    "mrc-ebpf",
    "mrc-verbs",
    "netns-lab",
    "tests",
    "tools",
];
/// The specification itself, by the section numbers that headings of the notes name.
const ORIGINAL: &str = "MRC 1.0";

/// A heading with a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub note: &'static str,
    pub number: String,
    pub title: String,
}

/// One mention of a section in the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Citation {
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    pub note: &'static str,
    pub number: String,
    /// In test code?
    pub test: bool,
    /// Next to its note's name: such a mention has to lead somewhere.
    pub explicit: bool,
}

/// What the notes have, and what the sources cite.
pub(crate) struct Survey {
    pub sections: Vec<Section>,
    pub citations: Vec<Citation>,
}

impl Survey {
    /// Reads the notes and all sources below `root`.
    pub(crate) fn of(root: &Path) -> Result<Self, String> {
        let mut sections = Vec::new();
        let mut originals = HashMap::new();
        for note in NOTES {
            let text = read(&root.join("docs/protocol").join(note))?;
            for section in headings(note, &text) {
                for original in originals_of(&section.title) {
                    originals.entry(original).or_insert((note, section.number.clone()));
                }
                sections.push(section);
            }
        }
        let mut citations = Vec::new();
        for source in SOURCES
            .iter()
            .map(|source| root.join(source))
            .filter(|path| path.exists())
        {
            for file in sources::rust_files(&source)? {
                let relative = file.strip_prefix(root).unwrap_or(&file);
                citations.extend(citations_of(relative, &read(&file)?, &originals));
            }
        }
        Ok(Self { sections, citations })
    }

    fn knows(&self, citation: &Citation) -> bool {
        let mut sections = self.sections.iter();
        sections.any(|section| section.note == citation.note && section.number == citation.number)
    }
}

/// Checks the sources below `root`, and returns the citations that lead nowhere.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let survey = Survey::of(root)?;
    let dangling = survey
        .citations
        .iter()
        .filter(|citation| citation.explicit && !survey.knows(citation));
    Ok(dangling
        .map(|c| {
            format!(
                "{}:{}: {} has no section {}",
                c.file.display(),
                c.line,
                c.note,
                c.number
            )
        })
        .collect())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// All headings that begin with a number.
fn headings(note: &'static str, text: &str) -> Vec<Section> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines
        .filter_map(|line| line.trim_start_matches('#').trim().split_once(' '))
        .filter(|(number, _)| number.starts_with(|c: char| c.is_ascii_digit()))
        .map(|(number, title)| Section {
            note,
            number: number.trim_end_matches('.').to_owned(),
            title: title.to_owned(),
        })
        .collect()
}

/// The sections of the specification that a heading names, as in `Transport ACK (MRC 1.0 §7.4)`.
fn originals_of(title: &str) -> Vec<String> {
    let Some((_, behind)) = title.split_once(ORIGINAL) else {
        return Vec::new();
    };
    behind
        .match_indices('§')
        .map(|(at, sign)| number_at(&behind[at + sign.len()..]))
        .collect()
}

/// Every section sign of a file. One without a name means the note that the file named last.
fn citations_of(file: &Path, text: &str, originals: &HashMap<String, (&'static str, String)>) -> Vec<Citation> {
    let mut found = Vec::new();
    let mut note = None;
    let mut in_tests = file
        .components()
        .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs");
    for (index, line) in text.lines().enumerate() {
        in_tests |= line.trim_start().starts_with("mod tests {");
        for (at, sign) in line.match_indices('§') {
            let (before, number) = (&line[..at], number_at(&line[at + sign.len()..]));
            let named = last_name(before);
            let (cited, number) = match named {
                Some(ORIGINAL) => match originals.get(&number) {
                    Some((note, number)) => (Some(*note), number.clone()),
                    None => (None, number),
                },
                Some(name) => {
                    note = Some(name);
                    (note, number)
                }
                None => (note, number),
            };
            let (Some(cited), false) = (cited, number.is_empty()) else {
                continue;
            };
            let explicit = before.trim_end_matches(['`', ' ']).ends_with(cited);
            let from = before.strip_suffix(" to ").and(found.last());
            let between = from.and_then(|from: &Citation| range(&from.number, &number));
            for number in between.unwrap_or_default().into_iter().chain([number]) {
                found.push(Citation {
                    file: file.to_owned(),
                    line: index + 1,
                    note: cited,
                    number,
                    test: in_tests,
                    explicit,
                });
            }
        }
    }
    found
}

/// The name that a section sign after this text belongs to.
fn last_name(before: &str) -> Option<&'static str> {
    let names = NOTES.into_iter().chain([ORIGINAL, "UEC", "RFC"]);
    let last = names.filter_map(|name| before.rfind(name).map(|at| (at, name))).max()?;
    // Of other documents there are no notes.
    NOTES
        .into_iter()
        .chain([ORIGINAL])
        .find(|name| *name == last.1)
        .or(Some(ORIGINAL))
}

/// The sections between two of one chapter, as in `§7.2 to §7.6`.
fn range(from: &str, to: &str) -> Option<Vec<String>> {
    let ((chapter, from), (last, to)) = (from.rsplit_once('.')?, to.rsplit_once('.')?);
    let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
    (chapter == last).then(|| (from + 1..to).map(|number| format!("{chapter}.{number}")).collect())
}

fn number_at(text: &str) -> String {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(file: &str, text: &str) -> Vec<(&'static str, String, bool)> {
        let originals = HashMap::from([("7.4".to_owned(), ("protocol.md", "6.7".to_owned()))]);
        let found = citations_of(Path::new(file), text, &originals);
        found.into_iter().map(|c| (c.note, c.number, c.test)).collect()
    }

    #[test]
    fn headings_are_known_by_their_numbers() {
        let known = headings("protocol.md", "# Title\n## 3. Addressing\n### 6.10 Reverse EVs\ntext\n");
        let numbers: Vec<_> = known.iter().map(|section| section.number.as_str()).collect();
        assert_eq!(numbers, ["3", "6.10"]);
        assert_eq!(known[1].title, "Reverse EVs");
    }

    #[test]
    fn citations_are_found_in_every_spelling() {
        let text =
            "//! protocol.md §6.4, wire-format.md §11.\n// `protocol.md` §3 and `api.md §3.7`\n// protocol.md alone";
        let expected = [
            ("protocol.md", "6.4"),
            ("wire-format.md", "11"),
            ("protocol.md", "3"),
            ("api.md", "3.7"),
        ];
        let found = cited("src/a.rs", text);
        assert!(found.iter().all(|(_, _, test)| !test));
        let found: Vec<_> = found.iter().map(|(note, number, _)| (*note, number.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_bare_sign_means_the_note_named_last() {
        let found = cited("src/a.rs", "// §1\n//! protocol.md §5.6\n// §5.7, then (§8.2 (2))\n");
        let numbers: Vec<_> = found.iter().map(|(_, number, _)| number.as_str()).collect();
        assert_eq!(numbers, ["5.6", "5.7", "8.2"]);
    }

    #[test]
    fn a_range_cites_what_lies_between() {
        let found = cited("src/a.rs", "// wire-format.md §7.2 to §7.5, §8");
        let numbers: Vec<_> = found.iter().map(|(_, number, _)| number.as_str()).collect();
        assert_eq!(numbers, ["7.2", "7.3", "7.4", "7.5", "8"]);
    }

    #[test]
    fn the_specifications_own_numbers_lead_to_the_note_that_names_them() {
        assert_eq!(originals_of("Transport ACK (MRC 1.0 §7.4)"), ["7.4"]);
        assert_eq!(
            cited("src/a.rs", "// MRC 1.0 §7.4"),
            [("protocol.md", "6.7".to_owned(), false)]
        );
        assert_eq!(cited("src/a.rs", "// MRC 1.0 §99, UEC 1.0 §7.4.1"), []);
    }

    #[test]
    fn test_code_is_told_from_the_rest() {
        let text = "// protocol.md §1\nmod tests {\n// §2\n}\n";
        let tests: Vec<_> = cited("src/a.rs", text).iter().map(|(_, _, test)| *test).collect();
        assert_eq!(tests, [false, true]);
        assert!(cited("protocol/src/tests/a.rs", text).iter().all(|(_, _, test)| *test));
    }
}
