//! The scenario files that come with the program.

/// Name and text, in the order of the list.
const FILES: [(&str, &str); 16] = [
    ("all_to_all", include_str!("../../scenarios/all_to_all.toml")),
    ("bulk", include_str!("../../scenarios/bulk.toml")),
    ("dead_at_start", include_str!("../../scenarios/dead_at_start.toml")),
    ("dead_path", include_str!("../../scenarios/dead_path.toml")),
    ("dead_plane", include_str!("../../scenarios/dead_plane.toml")),
    ("exchange", include_str!("../../scenarios/exchange.toml")),
    ("flapping", include_str!("../../scenarios/flapping.toml")),
    ("heavy_loss", include_str!("../../scenarios/heavy_loss.toml")),
    ("incast", include_str!("../../scenarios/incast.toml")),
    ("loss", include_str!("../../scenarios/loss.toml")),
    ("lossy_paths", include_str!("../../scenarios/lossy_paths.toml")),
    ("many_qps", include_str!("../../scenarios/many_qps.toml")),
    ("mixed", include_str!("../../scenarios/mixed.toml")),
    ("ping_pong", include_str!("../../scenarios/ping_pong.toml")),
    ("reordering", include_str!("../../scenarios/reordering.toml")),
    ("ring", include_str!("../../scenarios/ring.toml")),
];

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
