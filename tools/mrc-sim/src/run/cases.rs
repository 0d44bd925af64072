//! The cases of a scenario file.

use crate::run::file::{FileError, Section, set};
use toml::Table;

/// A case of a file, with the changes that make it one.
pub(super) struct Case {
    /// Empty if the file has only one.
    pub(super) name: String,
    pub(super) table: Table,
}

/// The cases of a file; one without a name if it has none.
pub(super) fn cases_of(name: &str, table: &Table) -> Result<Vec<Case>, FileError> {
    let root = Section::root(name, table);
    let mut cases: Vec<Case> = Vec::new();
    for case in root.sections("case")? {
        let case_name = case.text("name")?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        if case_name.is_empty() {
            return Err(case.error("name", "is missing: give a name, such as \"10G\""));
        }
        if case_name.starts_with('.') || !case_name.chars().all(allowed) {
            let what = format!(
                "= \"{case_name}\" names files too: use letters, digits, \"-\", \"_\", \"+\" and \".\", not first"
            );
            return Err(case.error("name", what));
        }
        if cases.iter().any(|other| other.name == case_name) {
            return Err(case.error(
                "name",
                format_args!("= \"{case_name}\" is there twice: give each case a name of its own"),
            ));
        }
        let changes = case.section("set")?;
        case.finish()?;
        let mut changed = table.clone();
        for (key, value) in changes.entries() {
            set(&mut changed, key, value.clone()).map_err(|error| error.within(name))?;
        }
        cases.push(Case {
            name: case_name.to_owned(),
            table: changed,
        });
    }
    if cases.is_empty() {
        cases.push(Case {
            name: String::new(),
            table: table.clone(),
        });
    }
    Ok(cases)
}
