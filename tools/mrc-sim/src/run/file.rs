//! Reads scenario files: TOML tables of which every key is known and every number has a range.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use thiserror::Error;
use toml::{Table, Value};

/// What is wrong with a scenario: where, what, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}: {what}")]
pub struct FileError {
    /// The file, or the name of the scenario.
    pub file: String,
    /// The key, the limit, the remedy.
    pub what: String,
}

/// A table of a file. It remembers what was asked for: all else in it is a mistake.
pub struct Section<'a> {
    file: &'a str,
    path: String,
    table: Option<&'a Table>,
    known: RefCell<BTreeSet<&'static str>>,
}

/// Parses a file.
pub fn parse(file: &str, text: &str) -> Result<Table, FileError> {
    text.parse::<Table>().map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        FileError {
            file: file.to_owned(),
            what: format!("line {line}: {}", error.message().replace('\n', ", ")),
        }
    })
}

/// Sets a key such as `fabric.planes` or `fault.0.percent`. The value is TOML, or else a word that is taken for a text.
pub fn set_text(table: &mut Table, key: &str, value: &str) -> Result<(), FileError> {
    let parsed = format!("v = {value}").parse::<Table>();
    let value = match parsed.map(|mut table| table.remove("v").filter(|_| table.is_empty())) {
        Ok(Some(found)) => found,
        found => {
            let is_number = value.replace('_', "").parse::<f64>().is_ok();
            let is_toml = found.is_ok() || value.is_empty() || value.starts_with(['"', '\'', '[', '{']);
            if is_number || is_toml {
                let why = match found {
                    Err(error) => error.message().replace('\n', ", "),
                    Ok(_) => "more than one value".to_owned(),
                };
                let what = if is_number {
                    "a number that TOML has"
                } else {
                    "a value of TOML"
                };
                return Err(FileError {
                    file: format!("set {key}"),
                    what: format!(
                        "{value:?} is not {what} ({why}): give a number up to 2^63 - 1, true, false, a word, or a list or table in quotes of the shell"
                    ),
                });
            }
            Value::String(value.to_owned())
        }
    };
    set(table, key, value)
}

/// Sets a key such as `fabric.planes` or `fault.0.percent`.
pub fn set(table: &mut Table, key: &str, value: Value) -> Result<(), FileError> {
    let bad = |what: String| FileError {
        file: format!("set {key}"),
        what,
    };
    if key.split('.').any(str::is_empty) {
        return Err(bad(
            "a name is missing beside a dot: write it as in fabric.planes".to_owned()
        ));
    }
    let Some((path, last)) = key.rsplit_once('.') else {
        table.insert(key.to_owned(), value);
        return Ok(());
    };
    let mut at = Value::Table(table.clone());
    let mut place = &mut at;
    let mut steps = path.split('.').peekable();
    while let Some(step) = steps.next() {
        let index = steps.peek().unwrap_or(&last).parse::<usize>();
        place = match place {
            Value::Array(items) => {
                let count = items.len();
                let found = step.parse().ok().and_then(|index: usize| items.get_mut(index));
                match found {
                    Some(found) => found,
                    None if count == 0 => {
                        return Err(bad(format!("there are none of them, so \"{step}\" is none")));
                    }
                    None => {
                        return Err(bad(format!("give a number from 0 to {}, not \"{step}\"", count - 1)));
                    }
                }
            }
            Value::Table(table) if index.is_ok() && !table.contains_key(step) => {
                return Err(bad(format!(
                    "there is no {step}: give a whole list, as in fault=[{{kind=\"loss\"}}], in quotes of the shell"
                )));
            }
            Value::Table(table) => table.entry(step).or_insert_with(|| Value::Table(Table::new())),
            _ => return Err(bad(format!("\"{step}\" is inside a value: name a key of a table"))),
        };
    }
    match place {
        Value::Table(inner) => {
            inner.insert(last.to_owned(), value);
        }
        _ => return Err(bad(format!("\"{last}\" is inside a value: name a key of a table"))),
    }
    if let Value::Table(whole) = at {
        *table = whole;
    }
    Ok(())
}

impl FileError {
    /// The same, of something inside `file`.
    pub(super) fn within(self, file: &str) -> FileError {
        FileError {
            file: format!("{file}: {}", self.file),
            what: self.what,
        }
    }
}

impl<'a> Section<'a> {
    /// The whole file.
    pub fn root(file: &'a str, table: &'a Table) -> Section<'a> {
        Section {
            file,
            path: String::new(),
            table: Some(table),
            known: RefCell::default(),
        }
    }

    fn name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// An error about a key of this section.
    pub fn error(&self, key: &str, what: impl fmt::Display) -> FileError {
        FileError {
            file: self.file.to_owned(),
            what: format!("{} {what}", self.name(key)),
        }
    }

    fn find(&self, key: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().insert(key);
        self.table?.get(key)
    }

    /// Whether a key is there.
    pub fn has(&self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// A whole number.
    pub fn number(&self, key: &'static str, range: RangeInclusive<u64>, default: u64) -> Result<u64, FileError> {
        let (low, high) = (range.start(), range.end());
        match self.find(key) {
            None => Ok(default),
            Some(Value::Integer(number)) if u64::try_from(*number).is_ok_and(|number| range.contains(&number)) => {
                Ok(*number as u64)
            }
            Some(found) => Err(self.error(key, format_args!("= {found}: give a whole number from {low} to {high}"))),
        }
    }

    /// A number that may have a fraction.
    pub fn fraction(&self, key: &'static str, range: RangeInclusive<f64>) -> Result<Option<f64>, FileError> {
        let Some(found) = self.find(key) else { return Ok(None) };
        let number = match found {
            Value::Integer(number) => *number as f64,
            Value::Float(number) => *number,
            _ => f64::NAN,
        };
        if range.contains(&number) {
            return Ok(Some(number));
        }
        let (low, high) = (range.start(), range.end());
        if *low <= f64::MIN {
            return Err(self.error(key, format_args!("= {found}: give a number")));
        }
        Err(self.error(key, format_args!("= {found}: give a number from {low} to {high}")))
    }

    /// Yes or no.
    pub fn flag(&self, key: &'static str, default: bool) -> Result<bool, FileError> {
        match self.find(key) {
            None => Ok(default),
            Some(Value::Boolean(flag)) => Ok(*flag),
            Some(found) => Err(self.error(key, format_args!("= {found}: give true or false"))),
        }
    }

    /// One of some words; the first one is the default.
    pub fn word(&self, key: &'static str, words: &[&'static str]) -> Result<&'static str, FileError> {
        self.place(key, words).map(|at| words[at])
    }

    /// The same, as number of the word.
    pub fn place(&self, key: &'static str, words: &[&'static str]) -> Result<usize, FileError> {
        let Some(found) = self.find(key) else { return Ok(0) };
        let at = words.iter().position(|word| found.as_str() == Some(*word));
        at.ok_or_else(|| self.error(key, format_args!("= {found}: give one of {}", words.join(", "))))
    }

    /// A text.
    pub fn text(&self, key: &'static str) -> Result<&'a str, FileError> {
        match self.find(key) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(found) => Err(self.error(key, format_args!("= {found}: give a text in quotes"))),
        }
    }

    /// A table, empty if it is not there.
    pub fn section(&self, key: &'static str) -> Result<Section<'a>, FileError> {
        let table = match self.find(key) {
            None => None,
            Some(Value::Table(table)) => Some(table),
            Some(_) => return Err(self.error(key, format_args!("must be a table: write [{}]", self.name(key)))),
        };
        Ok(Section {
            file: self.file,
            path: self.name(key),
            table,
            known: RefCell::default(),
        })
    }

    /// Tables of an array, none if it is not there.
    pub fn sections(&self, key: &'static str) -> Result<Vec<Section<'a>>, FileError> {
        let wrong = || {
            self.error(
                key,
                format_args!("must be an array of tables: write [[{}]]", self.name(key)),
            )
        };
        let items = match self.find(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(wrong()),
        };
        let section = |(index, item): (usize, &'a Value)| {
            Ok(Section {
                file: self.file,
                path: format!("{}.{index}", self.name(key)),
                table: Some(item.as_table().ok_or_else(wrong)?),
                known: RefCell::default(),
            })
        };
        items.iter().enumerate().map(section).collect()
    }

    /// The raw table, for keys that are not known beforehand.
    pub fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.table.into_iter().flatten()
    }

    /// Everything that is there must have been asked for.
    pub fn finish(&self) -> Result<(), FileError> {
        let known = self.known.borrow();
        let stray = self.entries().find(|(key, _)| !known.contains(key.as_str()));
        match stray {
            None => Ok(()),
            Some((key, _)) => {
                let names: Vec<_> = known.iter().copied().collect();
                Err(self.error(key, format_args!("is not a key: use one of {}", names.join(", "))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, ask: impl Fn(&Section<'_>) -> Result<(), FileError>) -> String {
        let table = parse("a.toml", text).expect("TOML");
        let section = Section::root("a.toml", &table).section("fabric").expect("a table");
        let asked = ask(&section).and_then(|()| section.finish());
        asked.expect_err("a mistake").to_string()
    }

    #[test]
    fn mistakes_are_told_with_file_key_and_limits() {
        let planes = |section: &Section<'_>| section.number("planes", 1..=8, 4).map(drop);
        assert_eq!(
            told("[fabric]\nplanes = 9", planes),
            "a.toml: fabric.planes = 9: give a whole number from 1 to 8"
        );
        assert_eq!(
            told("[fabric]\nplane = 2", planes),
            "a.toml: fabric.plane is not a key: use one of planes"
        );
        assert_eq!(
            told("[fabric]\nrouting = \"best\"", |section| section
                .word("routing", &["ecmp", "structured"])
                .map(drop)),
            "a.toml: fabric.routing = \"best\": give one of ecmp, structured"
        );
        let least =
            |range: RangeInclusive<f64>| move |section: &Section<'_>| section.fraction("min", range.clone()).map(drop);
        assert_eq!(
            told("[fabric]\nmin = \"x\"", least(f64::MIN..=f64::MAX)),
            "a.toml: fabric.min = \"x\": give a number"
        );
        assert_eq!(
            told("[fabric]\nmin = 101", least(0.0..=100.0)),
            "a.toml: fabric.min = 101: give a number from 0 to 100"
        );
        let error = parse("a.toml", "[fabric]\nplanes = = 2")
            .expect_err("not TOML")
            .to_string();
        assert!(
            error.starts_with("a.toml: line 2: ") && !error.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn keys_can_be_set_wherever_they_are() {
        let mut table = parse("a.toml", "[fabric]\nplanes = 2\n[[fault]]\npercent = 1").expect("TOML");
        set_text(&mut table, "fabric.planes", "4").expect("a key");
        set_text(&mut table, "fault.0.kind", "loss").expect("a key");
        set_text(&mut table, "seed", "7").expect("a key");
        let expected = "seed = 7\n[fabric]\nplanes = 4\n[[fault]]\npercent = 1\nkind = \"loss\"";
        assert_eq!(Ok(&table), parse("b.toml", expected).as_ref());
        let error = set_text(&mut table, "fault.3.kind", "loss")
            .expect_err("only one fault")
            .to_string();
        let huge = set_text(&mut table, "workload.bytes", "9223372036854775808");
        let huge = huge.expect_err("TOML ends before").to_string();
        assert!(
            huge.starts_with("set workload.bytes: \"9223372036854775808\" is not a number that TOML has"),
            "{huge}"
        );
        for (key, expected) in [
            ("fabric.", "set fabric.: a name is missing beside a dot: "),
            (".", "set .: a name is missing beside a dot: "),
            (
                "criterion.0.min",
                "set criterion.0.min: there is no criterion: give a whole list, ",
            ),
            ("fault.0.kind.x", "set fault.0.kind.x: \"x\" is inside a value: "),
        ] {
            let error = set_text(&mut table, key, "1").expect_err(key).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        for (value, why) in [("[1,", "not closed"), ("", "no value"), ("1\nx = 2", "two values")] {
            let error = set_text(&mut table, "seed", value).expect_err(why).to_string();
            assert!(!error.contains('\n'), "{error}");
        }
        set_text(&mut table, "title", "100 hosts").expect("words");
        assert_eq!(table["title"].as_str(), Some("100 hosts"));
        assert_eq!(error, "set fault.3.kind: give a number from 0 to 0, not \"3\"");
    }
}
