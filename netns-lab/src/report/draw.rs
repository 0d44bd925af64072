//! The fabric, drawn: hosts below, T0s above them, T1s on top, a colour per plane.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::plot::COLOURS;
use crate::run::Shape;

const WIDTH: f64 = 960.0;
const ROW: f64 = 84.0;
const BOX: (f64, f64) = (52.0, 22.0);

/// Where a node stands: the row from below, and the plane that it belongs to.
fn place(name: &str) -> (usize, usize) {
    let row = match name.as_bytes() {
        [b't', b'0', ..] => 1,
        [b't', b'1', ..] => 2,
        _ => 0,
    };
    let plane = name.rsplit_once(".p").and_then(|(_, plane)| plane.parse().ok());
    (row, plane.unwrap_or(0))
}

/// The picture.
pub(super) fn svg(shape: &Shape) -> String {
    let mut rows: BTreeMap<usize, Vec<(usize, &str)>> = BTreeMap::new();
    for node in &shape.nodes {
        let (row, plane) = place(node);
        rows.entry(row).or_default().push((plane, node));
    }
    let top = rows.keys().max().copied().unwrap_or(0);
    let height = ROW * (top as f64 + 1.0);
    let mut at = BTreeMap::new();
    for (row, nodes) in &mut rows {
        nodes.sort_by_key(|(plane, _)| *plane);
        let step = WIDTH / nodes.len() as f64;
        for (n, (_, name)) in nodes.iter().enumerate() {
            let y = height - ROW * (*row as f64 + 0.5);
            at.insert(*name, (step * (n as f64 + 0.5), y, step));
        }
    }
    let mut text = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"the fabric\">\n"
    );
    for link in &shape.links {
        let (Some(a), Some(b)) = (at.get(link.ends[0].as_str()), at.get(link.ends[1].as_str())) else {
            continue;
        };
        let colour = COLOURS[link.plane.saturating_sub(1) % COLOURS.len()];
        let style = if link.broke {
            " stroke-dasharray=\"5 3\" stroke-width=\"2.5\""
        } else {
            " stroke-width=\"1.2\""
        };
        let _ = writeln!(
            text,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"rgb({},{},{})\"{style}/>",
            a.0, a.1, b.0, b.1, colour.0, colour.1, colour.2
        );
        if link.broke {
            let (x, y) = (f64::midpoint(a.0, b.0), f64::midpoint(a.1, b.1));
            let _ = writeln!(
                text,
                "<path d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\" stroke=\"#be1e1e\" stroke-width=\"2.5\"/>",
                x - 4.0,
                y - 4.0
            );
        }
    }
    for (name, (x, y, step)) in &at {
        let (row, plane) = place(name);
        let width = BOX.0.min(step - 4.0);
        let colour = COLOURS[plane.saturating_sub(1) % COLOURS.len()];
        let (fill, stroke) = if row == 0 {
            ("#f2f2f2".to_owned(), "#444".to_owned())
        } else {
            (
                "#fff".to_owned(),
                format!("rgb({},{},{})", colour.0, colour.1, colour.2),
            )
        };
        let broke = shape.broken_nodes.iter().any(|node| node == name);
        let dash = if broke { " stroke-dasharray=\"5 3\"" } else { "" };
        let _ = writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\" rx=\"4\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.6\"{dash}/>",
            x - width / 2.0,
            y - BOX.1 / 2.0,
            BOX.1
        );
        // As much of the name as fits: the plane is told by the colour.
        let (size, label) = match width {
            w if w >= 44.0 => (12, *name),
            w if w >= 22.0 => (9, name.split(".p").next().unwrap_or(name)),
            _ => continue,
        };
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{size}\" text-anchor=\"middle\" font-family=\"sans-serif\">{label}</text>",
            y + 4.0
        );
    }
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn nodes_stand_in_rows_by_their_names() {
        assert_eq!(place("h3"), (0, 0));
        assert_eq!(place("t0.p2"), (1, 2));
        assert_eq!(place("t0.1.p2"), (1, 2));
        assert_eq!(place("t1.3.p8"), (2, 8));
    }
}
