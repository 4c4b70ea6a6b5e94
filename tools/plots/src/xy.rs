//! Line charts and scatter charts.

use crate::axis::{Axis, Mapping};
use crate::clip;
use crate::frame::{self, Bottom, Frame, Surround};
use crate::header::{Entry, Sample};
use crate::palette::Ink;
use crate::reference::{self, Reference};
use crate::scene::{Point, Scene, Stroke};
use crate::{Chart, chart, csv};

pub(crate) const BAND_ALPHA: f64 = 0.18;
const RADIUS: f64 = 3.4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Line,
    Points,
    LineAndPoints,
}

/// One series of an [`XyChart`]: points in the order in which they are joined.
///
/// A point with a coordinate that is NaN or infinite, or not positive on a logarithmic axis, is left out and leaves a
/// gap in the line.
#[derive(Clone, Debug)]
pub struct Series {
    label: String,
    points: Vec<Point>,
    band: Vec<(f64, f64)>,
    mark: Mark,
    ink: Option<Ink>,
    faint: bool,
    hollow: bool,
    /// What the CSV calls it; none if it is not there.
    name: Option<String>,
}

impl Series {
    fn new(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>, mark: Mark) -> Self {
        let (label, points) = (label.into(), points.into_iter().collect());
        let name = Some(label.clone());
        Self { label, points, band: Vec::new(), mark, ink: None, faint: false, hollow: false, name }
    }

    /// A line. A series with an empty label is not in the legend.
    pub fn line(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(label, points, Mark::Line)
    }

    /// Markers alone: a scatter chart.
    pub fn points(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(label, points, Mark::Points)
    }

    /// Markers joined by a line.
    pub fn line_and_points(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(label, points, Mark::LineAndPoints)
    }

    /// Shades the range from a lower to an upper value at each point, in the order of the points; points beyond the end
    /// of `band` have none.
    pub fn band(mut self, band: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.band = band.into_iter().collect();
        self
    }

    /// Shades one standard deviation to either side of the points; where it is NaN nothing is shaded.
    pub fn deviations(self, deviations: &[f64]) -> Self {
        let band: Vec<_> = self.points.iter().zip(deviations).map(|(p, s)| (p.1 - s, p.1 + s)).collect();
        self.band(band)
    }

    /// Sets the colour; without, the series takes the slot of its position in the chart.
    pub fn ink(mut self, ink: Ink) -> Self {
        self.ink = Some(ink);
        self
    }

    /// Draws it pale and thin, for raw values behind a smoothed line.
    pub fn faint(mut self) -> Self {
        self.faint = true;
        self
    }

    /// Draws the markers as outlines, for values that were discarded or predicted.
    pub fn hollow(mut self) -> Self {
        self.hollow = true;
        self
    }

    /// Sets its name in the CSV, which is else its label.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Leaves it out of the CSV: its points are those of other series.
    pub fn drawn_only(mut self) -> Self {
        self.name = None;
        self
    }
}

/// A chart of series over a numeric axis.
#[derive(Clone, Debug)]
pub struct XyChart {
    title: String,
    subtitle: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    horizontal: Vec<Reference>,
    vertical: Vec<Reference>,
    size: (u32, u32),
}

impl XyChart {
    /// An empty chart of the usual size.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            subtitle: String::new(),
            x: Axis::default(),
            y: Axis::default(),
            series: Vec::new(),
            horizontal: Vec::new(),
            vertical: Vec::new(),
            size: chart::DEFAULT_SIZE,
        }
    }

    /// A line of explanation under the title.
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    /// Sets the horizontal axis.
    pub fn x(mut self, axis: Axis) -> Self {
        self.x = axis;
        self
    }

    /// Sets the vertical axis.
    pub fn y(mut self, axis: Axis) -> Self {
        self.y = axis;
        self
    }

    /// Adds a series.
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a horizontal reference line at `value`, labelled to the right of the frame. The axis reaches it.
    pub fn horizontal_line(mut self, value: f64, label: impl Into<String>) -> Self {
        self.horizontal.push(Reference { value, label: label.into() });
        self
    }

    /// Adds a vertical reference line at `value`, labelled above the frame. The axis reaches it.
    pub fn vertical_line(mut self, value: f64, label: impl Into<String>) -> Self {
        self.vertical.push(Reference { value, label: label.into() });
        self
    }

    /// Sets the size in pixels; PNG files have twice as many.
    pub fn size(mut self, width: u32, height: u32) -> Self {
        self.size = (width, height);
        self
    }

    /// The numbers: a line per point with its series, x, y and the ends of its band, then the reference lines.
    pub fn to_csv(&self) -> String {
        let mut out = String::new();
        let (x, y) = (csv::column(&self.x.label, "x"), csv::column(&self.y.label, "y"));
        csv::line(&mut out, &["series", x, y, "low", "high"]);
        for series in &self.series {
            let Some(name) = &series.name else { continue };
            for (i, point) in series.points.iter().enumerate() {
                let band = series.band.get(i).map(|(low, high)| (csv::number(*low), csv::number(*high)));
                let (low, high) = band.unwrap_or_default();
                csv::line(&mut out, &[name, &csv::number(point.0), &csv::number(point.1), &low, &high]);
            }
        }
        for line in &self.horizontal {
            csv::line(&mut out, &[&line.label, "", &csv::number(line.value), "", ""]);
        }
        for line in &self.vertical {
            csv::line(&mut out, &[&line.label, &csv::number(line.value), "", "", ""]);
        }
        out
    }

    fn ink(&self, index: usize) -> Ink {
        self.series[index].ink.unwrap_or(Ink::Slot(index))
    }

    /// The ranges of both axes, from the points that both scales admit.
    fn mappings(&self) -> (Option<Mapping>, Option<Mapping>) {
        let admitted = |p: &Point| self.x.scale.admits(p.0) && self.y.scale.admits(p.1);
        let within = |range: &Option<(f64, f64)>, v: f64| match range {
            Some((a, b)) if a < b => (*a..=*b).contains(&v),
            _ => true,
        };
        let points = || self.series.iter().flat_map(|s| &s.points).filter(|p| admitted(p));
        // With a fixed x range, y fits what is seen.
        let seen = points().filter(|p| within(&self.x.range, p.0)).map(|p| p.1);
        let bands = self.series.iter().flat_map(|s| s.points.iter().zip(&s.band));
        let bands = bands.filter(|(p, _)| within(&self.x.range, p.0)).flat_map(|(_, b)| [b.0, b.1]);
        let x = Mapping::fit(&self.x, points().map(|p| p.0).chain(values(&self.vertical)), false);
        let y = Mapping::fit(&self.y, seen.chain(bands).chain(values(&self.horizontal)), false);
        (x, y)
    }

    fn legend(&self) -> Vec<Entry> {
        let entry = |(i, s): (usize, &Series)| {
            let band = s.band.iter().any(|(low, high)| low.is_finite() && high.is_finite());
            let sample = match s.mark {
                Mark::Points => Sample::Marker { hollow: s.hollow },
                mark => Sample::Line { marker: mark == Mark::LineAndPoints, hollow: s.hollow, band },
            };
            Entry { label: s.label.clone(), ink: self.ink(i), sample }
        };
        self.series.iter().enumerate().filter(|(_, s)| !s.label.is_empty()).map(entry).collect()
    }
}

fn values(lines: &[Reference]) -> impl Iterator<Item = f64> {
    lines.iter().map(|r| r.value)
}

impl chart::Draw for XyChart {
    fn scene(&self) -> Scene {
        let mut scene = Scene::new(self.size.0, self.size.1, chart::description(&self.title, &self.subtitle));
        let (x, y) = self.mappings();
        let frame = frame::draw(
            &mut scene,
            &Surround {
                title: &self.title,
                subtitle: &self.subtitle,
                legend: self.legend(),
                bottom: Bottom::Numbers { axis: &self.x, mapping: x },
                y: &self.y,
                y_mapping: y,
                horizontal: &self.horizontal,
                vertical: &self.vertical,
            },
        );
        reference::draw(&mut scene, &frame, &self.horizontal, &self.vertical);
        let anything = self.series.iter().any(|s| s.points.iter().any(|p| frame.point(*p).is_some()));
        if !anything {
            chart::no_data(&mut scene, &frame);
        }
        for s in 0..self.series.len() {
            self.draw_band(&mut scene, &frame, s);
        }
        for faint in [true, false] {
            for s in (0..self.series.len()).filter(|s| self.series[*s].faint == faint) {
                self.draw_series(&mut scene, &frame, s);
            }
        }
        scene
    }
}

impl XyChart {
    fn draw_band(&self, scene: &mut Scene, frame: &Frame, index: usize) {
        let series = &self.series[index];
        let edges: Vec<Option<(Point, Point)>> = series
            .points
            .iter()
            .zip(&series.band)
            .map(|(p, (low, high))| Some((frame.point((p.0, *low))?, frame.point((p.0, *high))?)))
            .collect();
        for run in edges.split(Option::is_none) {
            let lower = clip::thin(run.iter().flatten().map(|e| e.0).collect());
            let upper = clip::thin(run.iter().flatten().map(|e| e.1).collect());
            let outline = lower.into_iter().chain(upper.into_iter().rev()).collect();
            scene.polygon(clip::polygon(outline, &frame.area), self.ink(index).color(), BAND_ALPHA);
        }
    }

    fn draw_series(&self, scene: &mut Scene, frame: &Frame, index: usize) {
        let series = &self.series[index];
        let ink = self.ink(index);
        let color = if series.faint { ink.color().tint(0.35) } else { ink.color() };
        let points: Vec<Option<Point>> = series.points.iter().map(|p| frame.point(*p)).collect();
        if series.mark != Mark::Points {
            let stroke =
                if series.faint { Stroke::solid(color, 1.0) } else { Stroke { color, width: 2.0, dash: ink.dash() } };
            for run in points.split(Option::is_none) {
                let run: Vec<Point> = run.iter().flatten().copied().collect();
                if let [alone] = run.as_slice()
                    && series.mark == Mark::Line
                    && frame.area.contains(*alone)
                {
                    // A line through one point would not be seen.
                    scene.marker(ink.marker(), *alone, RADIUS, color, false);
                }
                for piece in clip::polyline(&clip::thin(run), &frame.area) {
                    scene.path(piece, stroke);
                }
            }
        }
        if series.mark != Mark::Line {
            for at in points.into_iter().flatten().filter(|p| frame.area.contains(*p)) {
                scene.marker(ink.marker(), at, RADIUS, color, series.hollow);
            }
        }
    }
}

impl Chart for XyChart {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_whole() {
        let chart = XyChart::new("t")
            .x(Axis::new("T"))
            .y(Axis::new("accuracy, all"))
            .series(Series::line("a \"b\"", [(1.0, 0.1), (2.0, f64::NAN)]).deviations(&[0.5]))
            .horizontal_line(0.25, "chance");
        let expected = "series,T,\"accuracy, all\",low,high\n\"a \"\"b\"\"\",1,0.1,-0.4,0.6\n\"a \"\"b\"\"\",2,,,\nchance,,0.25,,\n";
        assert_eq!(chart.to_csv(), expected);
    }

    #[test]
    fn a_name_in_the_file_needs_no_label() {
        let chart = XyChart::new("t")
            .series(Series::line("", [(1.0, 2.0)]).named("layer 3"))
            .series(Series::line("layer 4: 2 of 8", [(1.0, 3.0)]).named("layer 4"))
            .series(Series::line("", [(1.0, 3.0), (2.0, 4.0)]).drawn_only());
        assert_eq!(chart.to_csv(), "series,x,y,low,high\nlayer 3,1,2,,\nlayer 4,1,3,,\n");
    }
}
