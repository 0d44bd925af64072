//! Curves and areas over an axis, as vector graphics that can be printed.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 960;
const HEIGHT: u32 = 340;
/// Room for the names at the right.
const LEGEND: u32 = 190;
/// Colours that people with any kind of colour vision tell apart; for planes in their order.
pub(super) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(200, 150, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(140, 86, 75),
];
const GRID: RGBColor = RGBColor(228, 228, 228);
const BROKE: RGBColor = RGBColor(190, 30, 30);
const HEALED: RGBColor = RGBColor(40, 130, 60);

/// How the x axis grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

/// A curve, or the upper edge of an area that begins where the one before ends.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub colour: RGBColor,
    pub dashed: bool,
}

impl Series {
    /// A curve in the n-th colour.
    pub(super) fn new(name: impl Into<String>, number: usize, points: Vec<(f64, f64)>) -> Series {
        Series {
            name: name.into(),
            points,
            colour: COLOURS[number % COLOURS.len()],
            dashed: false,
        }
    }

    /// Something to compare with.
    pub(super) fn dashed(mut self) -> Series {
        self.dashed = true;
        self
    }
}

/// Curves in one pair of axes.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub x: String,
    pub y: String,
    pub scale: Scale,
    pub series: Vec<Series>,
    /// Areas on top of each other instead of curves.
    pub stacked: bool,
    /// Points are marked, since they are few.
    pub dots: bool,
    /// Vertical lines: where, and whether something broke there.
    pub marks: Vec<(f64, bool)>,
    /// Names of places on the x axis, for sizes.
    pub ticks: fn(f64) -> String,
}

impl Plot {
    /// Curves over seconds.
    pub(super) fn over_time(y: &str, series: Vec<Series>) -> Plot {
        Plot {
            x: "seconds".to_owned(),
            y: y.to_owned(),
            scale: Scale::Linear,
            series,
            stacked: false,
            dots: false,
            marks: Vec::new(),
            ticks: |x| super::number((x * 100.0).round() / 100.0),
        }
    }

    /// The picture; `None` where there is nothing to show.
    pub(super) fn svg(&self) -> Option<String> {
        let ((x0, x1), y1) = self.extent()?;
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
            let (chart, legend) = area.split_horizontally(WIDTH - LEGEND);
            let drawn = match self.scale {
                Scale::Linear => self.draw(&chart, x0..x1, y1),
                Scale::Logarithmic => self.draw(&chart, (x0..x1).log_scale(), y1),
            };
            drawn.ok()?;
            self.draw_legend(&legend).ok()?;
            area.present().ok()?;
        }
        Some(text)
    }

    /// The range of x, and the top of y with some air above.
    fn extent(&self) -> Option<((f64, f64), f64)> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let finite = || points().filter(|(x, y)| x.is_finite() && y.is_finite());
        let (mut x0, mut x1, mut y1) = (f64::INFINITY, f64::NEG_INFINITY, 0.0_f64);
        for &(x, y) in finite() {
            (x0, x1, y1) = (x0.min(x), x1.max(x), y1.max(y));
        }
        if self.stacked {
            let top = |at: usize| -> f64 {
                let heights = self.series.iter().filter_map(|series| series.points.get(at));
                heights.map(|(_, y)| *y).sum()
            };
            let count = self.series.iter().map(|series| series.points.len()).max().unwrap_or(0);
            y1 = (0..count).map(top).fold(0.0, f64::max);
        }
        if x0 > x1 {
            return None;
        }
        match self.scale {
            Scale::Linear => x0 = x0.min(0.0),
            Scale::Logarithmic => (x0, x1) = (x0.max(1e-9) * 0.9, x1.max(1e-9) * 1.1),
        }
        if x1 <= x0 {
            x1 = x0 + 1.0;
        }
        Some(((x0, x1), if y1 > 0.0 { y1 * 1.08 } else { 1.0 }))
    }

    fn draw<'a, X>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
        x: X,
        top: f64,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(16)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(x, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .x_desc(&self.x)
            .y_desc(&self.y)
            .axis_desc_style(("sans-serif", 14))
            .label_style(("sans-serif", 12))
            .x_label_formatter(&|x| (self.ticks)(*x))
            .y_label_formatter(&|y| super::number((y * 1000.0).round() / 1000.0))
            .draw()?;
        if self.stacked {
            let mut floor: Vec<(f64, f64)> = Vec::new();
            for series in &self.series {
                let under = |at: usize| floor.get(at).map_or(0.0, |(_, y)| *y);
                let upper: Vec<(f64, f64)> = series
                    .points
                    .iter()
                    .enumerate()
                    .map(|(at, (x, y))| (*x, y + under(at)))
                    .collect();
                let back = upper.iter().enumerate().rev().map(|(at, (x, _))| (*x, under(at)));
                let outline: Vec<(f64, f64)> = upper.iter().copied().chain(back).collect();
                chart.draw_series(std::iter::once(Polygon::new(outline, series.colour.mix(0.75).filled())))?;
                floor = upper;
            }
        }
        for &(at, broke) in &self.marks {
            let colour = if broke { BROKE } else { HEALED };
            let line = vec![(at, 0.0), (at, top)];
            chart.draw_series(DashedLineSeries::new(line, 3, 3, colour.stroke_width(1)))?;
        }
        if self.stacked {
            return Ok(());
        }
        for series in &self.series {
            let finite = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
            let points: Vec<(f64, f64)> = finite.copied().collect();
            if self.dots {
                let dots = points
                    .iter()
                    .map(|point| Circle::new(*point, 3, series.colour.filled()));
                chart.draw_series(dots)?;
            }
            if series.dashed {
                let style = series.colour.stroke_width(1);
                chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?;
            } else {
                chart.draw_series(LineSeries::new(points, series.colour.stroke_width(2)))?;
            }
        }
        Ok(())
    }

    /// The names beside the plot, so that they hide nothing.
    fn draw_legend<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        let style = TextStyle::from(("sans-serif", 13)).pos(Pos::new(HPos::Left, VPos::Center));
        let step = (HEIGHT as i32 - 40) / (self.series.len() as i32).max(15);
        for (row, series) in self.series.iter().enumerate() {
            let y = 18 + row as i32 * step.min(20);
            let colour = series.colour;
            if self.stacked {
                area.draw(&Rectangle::new([(0, y - 6), (20, y + 6)], colour.mix(0.75).filled()))?;
            } else {
                let width = if series.dashed { 1 } else { 3 };
                area.draw(&PathElement::new(vec![(0, y), (20, y)], colour.stroke_width(width)))?;
            }
            area.draw(&Text::new(series.name.clone(), (26, y), style.clone()))?;
        }
        Ok(())
    }
}
