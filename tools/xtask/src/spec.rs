//! Which section of the protocol has no code, and which has no test.

use std::fmt::Write as _;
use std::path::Path;

use crate::citations::{NOTES, Section, Survey};

/// Sections that give no rule a program could follow or break.
const INFORMATIVE: &[(&str, &str, &str)] = &[
    ("protocol.md", "1", "terms"),
    ("protocol.md", "7.4", "advice on sizes"),
    ("protocol.md", "8.4", "a summary of §8.2"),
    ("protocol.md", "13", "examples: for tests only"),
    ("protocol.md", "16", "the list of choices"),
    ("wire-format.md", "12", "what the vectors are"),
    ("wire-format.md", "13", "what the sources say"),
    ("wire-format.md", "14", "the list of choices"),
];

/// One line of the report.
struct Row<'a> {
    section: &'a Section,
    /// Files that cite it, outside and inside of tests.
    code: usize,
    tests: usize,
    why_exempt: Option<&'static str>,
}

impl Row<'_> {
    fn lacks(&self) -> Option<&'static str> {
        match (self.code, self.tests) {
            _ if self.why_exempt.is_some() => None,
            (0, 0) => Some("no citation, no test"),
            (0, _) => Some("no citation"),
            (_, 0) => Some("no test"),
            _ => None,
        }
    }
}

/// The report over the notes of these names, and how many sections lack something.
pub(crate) fn report(root: &Path, notes: &[&str]) -> Result<(String, usize), String> {
    let survey = Survey::of(root)?;
    let rows = rows(&survey, notes);
    let mut text = String::new();
    let width = rows
        .iter()
        .map(|row| row.section.title.chars().count())
        .max()
        .unwrap_or(0)
        .min(60);
    for note in notes {
        let _ = writeln!(text, "{note:<9} {:<width$} {:>5} {:>5}", "", "code", "tests");
        for row in rows.iter().filter(|row| row.section.note == *note) {
            let title: String = row.section.title.chars().take(width).collect();
            let remark = row.lacks().or(row.why_exempt).unwrap_or("");
            let line = format!(
                "  §{:<6} {title:<width$} {:>5} {:>5}  {remark}",
                row.section.number, row.code, row.tests
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let lacking = rows.iter().filter(|row| row.lacks().is_some()).count();
    let _ = writeln!(
        text,
        "{} sections, {lacking} without citation or test (numbers are files)",
        rows.len()
    );
    Ok((text, lacking))
}

/// What the test command asks: does each section of the protocol and of the wire format have code and a test?
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let survey = Survey::of(root)?;
    let rows = rows(&survey, &NOTES[..2]);
    let lacking = rows
        .iter()
        .filter_map(|row| row.lacks().map(|lack| (row.section, lack)));
    Ok(lacking
        .map(|(section, lack)| format!("{} §{}: {lack}", section.note, section.number))
        .collect())
}

fn rows<'a>(survey: &'a Survey, notes: &[&str]) -> Vec<Row<'a>> {
    let sections = survey.sections.iter().filter(|section| notes.contains(&section.note));
    sections
        .filter(|section| !is_container(survey, section))
        .map(|section| Row {
            section,
            code: files(survey, section, false),
            tests: files(survey, section, true),
            why_exempt: INFORMATIVE
                .iter()
                .find(|(note, number, _)| *note == section.note && *number == section.number)
                .map(|(_, _, why)| *why),
        })
        .collect()
}

/// Its text stands in its subsections.
fn is_container(survey: &Survey, section: &Section) -> bool {
    let prefix = format!("{}.", section.number);
    let mut sections = survey.sections.iter();
    sections.any(|other| other.note == section.note && other.number.starts_with(&prefix))
}

fn files(survey: &Survey, section: &Section, test: bool) -> usize {
    let citations = survey
        .citations
        .iter()
        .filter(|citation| citation.note == section.note && citation.number == section.number && citation.test == test);
    let mut files: Vec<_> = citations.map(|citation| &citation.file).collect();
    files.sort();
    files.dedup();
    files.len()
}
