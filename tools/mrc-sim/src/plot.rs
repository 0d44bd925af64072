//! Draws curves over time as vector graphics.
//!
//! ```
//! use mrc_sim::plot::{Axis, Curve, Plot};
//! let plot = Plot::new("Throughput per plane", Axis::new("time", "ms"), Axis::new("goodput", "Gb/s"))
//!     .curve(Curve::new("plane 1", vec![(0.0, 0.0), (1.0, 9.7), (2.0, 9.8)]))
//!     .mark(1.5, "plane 2 dies");
//! assert!(plot.svg().expect("a plot of finite numbers").starts_with("<svg"));
//! ```

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thiserror::Error;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 420;
/// What names of curves take, beside the plot.
const LEGEND: u32 = 190;
/// A curve of no more points than these shows them.
const FEW: usize = 40;
/// Colours that people with any kind of colour vision, and printers without colour, tell apart.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(150, 110, 20),
];
const GRID: RGBColor = RGBColor(225, 225, 225);
const MARK: RGBColor = RGBColor(120, 120, 120);

/// Why a plot cannot be drawn.
#[derive(Debug, Error)]
pub enum PlotError {
    /// Not one point is finite.
    #[error("\"{title}\" has no finite point to plot")]
    Empty {
        /// Of the plot.
        title: String,
    },
    /// The drawing library refused.
    #[error("\"{title}\" cannot be drawn: {reason}")]
    Draw {
        /// Of the plot.
        title: String,
        /// What it said.
        reason: String,
    },
}

/// What an axis shows.
#[derive(Debug, Clone)]
pub struct Axis {
    name: String,
    unit: String,
}

impl Axis {
    /// An axis; an empty unit for plain numbers.
    pub fn new(name: &str, unit: &str) -> Axis {
        Axis {
            name: name.to_owned(),
            unit: unit.to_owned(),
        }
    }

    fn label(&self) -> String {
        if self.unit.is_empty() {
            self.name.clone()
        } else {
            format!("{} ({})", self.name, self.unit)
        }
    }
}

/// One line.
#[derive(Debug, Clone)]
pub struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
    dashed: bool,
}

impl Curve {
    /// A curve through these points, which are in the order of x.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Curve {
        Curve {
            name: name.to_owned(),
            points,
            dashed: false,
        }
    }

    /// The name, with the value of a curve that never changes: others may lie on it.
    fn label(&self) -> String {
        let mut finite = self.points.iter().map(|(_, y)| *y).filter(|y| y.is_finite());
        match finite.next() {
            Some(only) if self.points.len() == 1 => format!("{}: {}", self.name, number(only, only)),
            Some(first) if finite.all(|y| (y - first).abs() <= first.abs() * 1e-12) => {
                format!("{}: always {}", self.name, number(first, first))
            }
            _ => self.name.clone(),
        }
    }

    /// Something to compare with, such as a capacity.
    #[must_use]
    pub fn dashed(mut self) -> Curve {
        self.dashed = true;
        self
    }
}

/// Curves in one pair of axes, which begin at zero.
#[derive(Debug, Clone)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    curves: Vec<Curve>,
    marks: Vec<(f64, String)>,
}

impl Plot {
    /// An empty plot.
    pub fn new(title: &str, x: Axis, y: Axis) -> Plot {
        Plot {
            title: title.to_owned(),
            x,
            y,
            curves: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Adds a curve.
    #[must_use]
    pub fn curve(mut self, curve: Curve) -> Plot {
        self.curves.push(curve);
        self
    }

    /// Adds a vertical line where something happened; without a text, it happened again.
    #[must_use]
    pub fn mark(mut self, x: f64, what: &str) -> Plot {
        self.marks.push((x, what.to_owned()));
        self
    }

    /// The picture.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
            self.draw(&area)?;
        }
        Ok(text)
    }

    /// Largest x and y, over what is finite.
    fn extent(&self) -> Option<(f64, f64)> {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let finite = points.filter(|(x, y)| x.is_finite() && y.is_finite());
        finite.fold(None, |most, &(x, y)| {
            let (most_x, most_y): (f64, f64) = most.unwrap_or((x, y));
            Some((most_x.max(x), most_y.max(y)))
        })
    }

    /// Whether there is nothing above zero to see.
    fn is_flat(&self) -> bool {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        points.filter(|(_, y)| y.is_finite()).all(|(_, y)| *y <= 0.0)
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), PlotError> {
        let Some((most_x, most_y)) = self.extent() else {
            return Err(PlotError::Empty {
                title: self.title.clone(),
            });
        };
        let (most_x, most_y) = (
            if most_x > 0.0 { most_x } else { 1.0 },
            if most_y > 0.0 { most_y } else { 1.0 },
        );
        self.draw_within(area, most_x, most_y * 1.15)
            .map_err(|error| PlotError::Draw {
                title: self.title.clone(),
                reason: error.to_string(),
            })
    }

    fn draw_within<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
        most_x: f64,
        most_y: f64,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        area.fill(&WHITE)?;
        let font = ("sans-serif", 14).into_font();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .margin_right(if self.curves.len() > 1 { LEGEND } else { 24 })
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..most_x, 0.0..most_y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .x_desc(self.x.label())
            .y_desc(self.y.label())
            .axis_desc_style(font.clone())
            .label_style(("sans-serif", 12))
            .x_label_formatter(&|x| number(*x, most_x))
            .y_label_formatter(&|y| number(*y, most_y))
            .draw()?;
        let mut row = 0;
        for (x, what) in &self.marks {
            chart.draw_series(DashedLineSeries::new(
                [(*x, 0.0), (*x, most_y)],
                3,
                4,
                MARK.stroke_width(1),
            ))?;
            if what.is_empty() {
                continue;
            }
            // A text stands on the side where there is room for it, below the one before.
            let (side, gap) = if *x > most_x * 0.6 {
                (HPos::Right, -4)
            } else {
                (HPos::Left, 4)
            };
            let style = ("sans-serif", 12)
                .into_font()
                .color(&MARK)
                .pos(Pos::new(side, VPos::Top));
            let text = Text::new(what.clone(), (gap, 4 + 15 * (row % 3)), style);
            chart.draw_series([EmptyElement::at((*x, most_y)) + text])?;
            row += 1;
        }
        if self.is_flat() {
            let style = font.color(&MARK).pos(Pos::new(HPos::Center, VPos::Center));
            let place = (most_x / 2.0, most_y / 2.0);
            chart.draw_series([Text::new(FLAT, place, style)])?;
        }
        for (index, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let finite = curve
                .points
                .iter()
                .copied()
                .filter(|(x, y)| x.is_finite() && y.is_finite());
            if finite.clone().count() <= FEW && !curve.dashed {
                let dot = |point| Circle::new(point, 3, colour.filled());
                chart.draw_series(finite.clone().map(dot))?;
            }
            if curve.dashed {
                chart.draw_series(DashedLineSeries::new(finite, 8, 6, colour.stroke_width(1)))?;
            } else {
                chart.draw_series(LineSeries::new(finite, colour.stroke_width(2)))?;
            }
        }
        if self.curves.len() > 1 {
            self.draw_legend(area)?;
        }
        area.present()
    }

    /// Names of the curves beside the plot, where they cover none.
    fn draw_legend<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        let left = (WIDTH - LEGEND + 14) as i32;
        for (index, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let y = 56 + 18 * index as i32;
            let width = if curve.dashed { 1 } else { 2 };
            let line = PathElement::new([(left, y), (left + 18, y)], colour.stroke_width(width));
            area.draw(&line)?;
            let style = ("sans-serif", 12)
                .into_font()
                .color(&BLACK)
                .pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(curve.label(), (left + 24, y), style))?;
        }
        Ok(())
    }
}

/// What a plot says in which nothing rises above zero.
const FLAT: &str = "0 at every sample";

/// A number on an axis that ends at `most`, with the digits that tell two labels apart.
fn number(value: f64, most: f64) -> String {
    let digits = match most {
        most if most >= 20.0 => 0,
        most if most >= 2.0 => 1,
        most if most >= 0.2 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        Plot::new("Round trips", Axis::new("time", "ms"), Axis::new("round trip", "us"))
    }

    #[test]
    fn a_plot_carries_its_title_axes_units_curves_and_marks() {
        let svg = plot()
            .curve(Curve::new("smoothed", vec![(0.0, 10.0), (4.0, 30.0)]))
            .curve(Curve::new("base", vec![(0.0, 9.0), (4.0, 9.0)]).dashed())
            .mark(2.0, "link down")
            .svg()
            .expect("finite points");
        for text in [
            "Round trips",
            "time (ms)",
            "round trip (us)",
            "smoothed",
            "base",
            "link down",
        ] {
            assert!(svg.contains(text), "no {text:?} in the picture");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_left_out_and_alone_make_no_plot() {
        let nothing = plot().curve(Curve::new("c", vec![(0.0, f64::NAN), (f64::INFINITY, 1.0)]));
        let error = nothing.svg().expect_err("no finite point").to_string();
        assert_eq!(error, "\"Round trips\" has no finite point to plot");
        assert!(plot().svg().is_err(), "no curve at all");
        let some = plot().curve(Curve::new("c", vec![(0.0, f64::NAN), (1.0, 1.0), (2.0, 2.0)]));
        assert!(!some.svg().expect("two finite points").contains("NaN"));
    }

    #[test]
    fn a_curve_of_zeros_has_axes_too() {
        let svg = plot().curve(Curve::new("c", vec![(0.0, 0.0), (0.0, 0.0)])).svg();
        let svg = svg.expect("zeros are finite");
        assert!(svg.contains("time (ms)") && svg.contains(FLAT), "{svg}");
        let some = plot().curve(Curve::new("c", vec![(0.0, 0.0), (1.0, 2.0)])).svg();
        assert!(!some.expect("finite points").contains(FLAT));
    }

    #[test]
    fn one_sample_is_a_dot_and_a_curve_that_never_changes_says_so() {
        let level = plot().curve(Curve::new("level", vec![(0.0, 3.0), (1.0, 3.0)]));
        let svg = level.curve(Curve::new("other", vec![])).svg().expect("finite points");
        assert!(svg.contains("level: always 3"), "{svg}");
        let both = plot()
            .curve(Curve::new("one", vec![(1.0, 3.0)]))
            .curve(Curve::new("other", vec![(0.0, 3.0), (1.0, 4.0)]));
        let svg = both.svg().expect("finite points");
        assert!(
            svg.contains("<circle") && svg.contains("one: 3") && !svg.contains("other: always"),
            "{svg}"
        );
    }

    #[test]
    fn labels_have_the_digits_that_they_need() {
        assert_eq!(number(12.34, 100.0), "12");
        assert_eq!(number(1.25, 5.0), "1.2");
        assert_eq!(number(0.0125, 0.05), "0.0125");
        assert_eq!(number(0.1, 0.1), "0.1");
        assert_eq!(number(100.0, 100.0), "100");
        assert_eq!(number(4.0, 12.0), "4");
    }
}
