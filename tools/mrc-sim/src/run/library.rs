//! The scenario files that come with the program.

/// Name and text, in the order of the list.
const FILES: [(&str, &str); 1] = [("bulk", include_str!("../../scenarios/bulk.toml"))];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The text of one.
pub fn text_of(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The title of one.
pub fn title_of(name: &str) -> Option<String> {
    let table = super::file::parse(name, text_of(name)?).ok()?;
    Some(table.get("title")?.as_str()?.to_owned())
}
