//! Bar charts, plain and grouped.

use crate::axis::{Axis, Mapping};
use crate::frame::{self, Bottom, Frame, Surround, TICK_EM};
use crate::header::{Entry, Sample};
use crate::palette::{Ink, PAPER, TEXT};
use crate::reference::{self, Reference};
use crate::scene::{Anchor, Area, Scene, Stroke};
use crate::ticks::number;
use crate::{Chart, chart, csv, font};

#[derive(Clone, Debug)]
struct Bars {
    label: String,
    values: Vec<f64>,
    deviations: Vec<f64>,
    ink: Ink,
}

/// A chart of bars over categories, one bar per category and series, standing on zero (on the low end of a logarithmic
/// axis). A value that is NaN or infinite, or not positive on a logarithmic axis, has no bar.
#[derive(Clone, Debug)]
pub struct BarChart {
    title: String,
    subtitle: String,
    x_label: String,
    categories: Vec<String>,
    y: Axis,
    bars: Vec<Bars>,
    horizontal: Vec<Reference>,
    decimals: Option<usize>,
    size: (u32, u32),
}

impl BarChart {
    /// A chart without bars over `categories`.
    pub fn new<S: Into<String>>(title: impl Into<String>, categories: impl IntoIterator<Item = S>) -> Self {
        Self {
            title: title.into(),
            subtitle: String::new(),
            x_label: String::new(),
            categories: categories.into_iter().map(Into::into).collect(),
            y: Axis::default(),
            bars: Vec::new(),
            horizontal: Vec::new(),
            decimals: None,
            size: chart::DEFAULT_SIZE,
        }
    }

    /// A line of explanation under the title.
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    /// Names what the categories are.
    pub fn x_label(mut self, label: impl Into<String>) -> Self {
        self.x_label = label.into();
        self
    }

    /// Sets the vertical axis.
    pub fn y(mut self, axis: Axis) -> Self {
        self.y = axis;
        self
    }

    /// Adds a bar to each category, in the order of the categories; missing values have no bar, surplus ones are
    /// ignored. Series with an empty label are not in the legend.
    pub fn bars(self, label: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let ink = Ink::Slot(self.bars.len());
        self.inked_bars(label, values, ink)
    }

    /// [`bars`](Self::bars) in a colour of choice.
    pub fn inked_bars(mut self, label: impl Into<String>, values: impl IntoIterator<Item = f64>, ink: Ink) -> Self {
        let values = values.into_iter().collect();
        self.bars.push(Bars { label: label.into(), values, deviations: Vec::new(), ink });
        self
    }

    /// Puts whiskers of one standard deviation on the bars added last; where it is NaN there is none.
    pub fn deviations(mut self, deviations: impl IntoIterator<Item = f64>) -> Self {
        if let Some(bars) = self.bars.last_mut() {
            bars.deviations = deviations.into_iter().collect();
        }
        self
    }

    /// Adds a horizontal reference line at `value`, labelled to the right of the frame. The axis reaches it.
    pub fn horizontal_line(mut self, value: f64, label: impl Into<String>) -> Self {
        self.horizontal.push(Reference { value, label: label.into() });
        self
    }

    /// Writes the values, with this many decimals, above their bars, where all of them fit.
    pub fn show_values(mut self, decimals: usize) -> Self {
        self.decimals = Some(decimals);
        self
    }

    /// Sets the size in pixels; PNG files have twice as many.
    pub fn size(mut self, width: u32, height: u32) -> Self {
        self.size = (width, height);
        self
    }

    /// The numbers: a line per bar with its series, category, value and deviation, then the reference lines.
    pub fn to_csv(&self) -> String {
        let mut out = String::new();
        let (x, y) = (csv::column(&self.x_label, "category"), csv::column(&self.y.label, "value"));
        csv::line(&mut out, &["series", x, y, "deviation"]);
        for bars in &self.bars {
            for (i, (category, value)) in self.categories.iter().zip(&bars.values).enumerate() {
                let deviation = bars.deviations.get(i).copied().map(csv::number).unwrap_or_default();
                csv::line(&mut out, &[&bars.label, category, &csv::number(*value), &deviation]);
            }
        }
        for line in &self.horizontal {
            csv::line(&mut out, &[&line.label, "", &csv::number(line.value), ""]);
        }
        out
    }

    fn mapping(&self) -> Option<Mapping> {
        let ends = self.bars.iter().flat_map(|b| {
            (0..b.values.len().min(self.categories.len())).flat_map(|i| {
                let (v, s) = (b.values[i], b.deviations.get(i).copied().unwrap_or(0.0));
                [v, v - s, v + s]
            })
        });
        let mapping = Mapping::fit(&self.y, ends.chain(self.horizontal.iter().map(|r| r.value)), true)?;
        Some(if self.decimals.is_some() && self.y.range.is_none() { mapping.aired(0.06) } else { mapping })
    }
}

impl chart::Draw for BarChart {
    fn scene(&self) -> Scene {
        let mut scene = Scene::new(self.size.0, self.size.1, chart::description(&self.title, &self.subtitle));
        let entry = |b: &Bars| Entry {
            label: b.label.clone(),
            ink: b.ink,
            sample: Sample::Swatch { hatched: self.bars.len() > 1 },
        };
        let frame = frame::draw(
            &mut scene,
            &Surround {
                title: &self.title,
                subtitle: &self.subtitle,
                legend: self.bars.iter().filter(|b| !b.label.is_empty()).map(entry).collect(),
                bottom: Bottom::Categories { label: &self.x_label, names: &self.categories },
                y: &self.y,
                y_mapping: self.mapping(),
                horizontal: &self.horizontal,
                vertical: &[],
            },
        );
        let labels = self.value_labels(self.bar_width(&frame));
        let bars = self.place(&frame, &labels);
        for bar in &bars {
            scene.rect(bar.area, bar.ink.color());
            if self.bars.len() > 1 {
                scene.hatch(bar.ink.hatch(), bar.area);
            }
        }
        // Over the bars, which would hide most of a threshold, but under their values.
        reference::draw(&mut scene, &frame, &self.horizontal, &[]);
        for bar in &bars {
            bar.annotate(&mut scene, &frame);
        }
        if bars.is_empty() {
            chart::no_data(&mut scene, &frame);
        }
        scene
    }
}

/// A bar with its place.
struct Placed<'a> {
    area: Area,
    ink: Ink,
    /// Ends of the whisker, top first.
    whisker: Option<(f64, f64)>,
    upwards: bool,
    label: Option<&'a str>,
}

impl BarChart {
    fn place<'a>(&'a self, frame: &Frame, labels: &'a [Vec<String>]) -> Vec<Placed<'a>> {
        let share = frame.area.width() / self.categories.len().max(1) as f64;
        let wide = self.bar_width(frame);
        let n = self.bars.len() as f64;
        let gap = if wide > 8.0 { 1.5 } else { 0.0 };
        let ground = frame.y(frame.ground());
        let inside = |y: f64| y.clamp(frame.area.top, frame.area.bottom);
        let mut placed = Vec::new();
        for (k, bars) in self.bars.iter().enumerate() {
            for (i, &value) in bars.values.iter().enumerate().take(self.categories.len()) {
                let Some((_, end)) = frame.point((0.5, value)) else { continue };
                let left = frame.x(i as f64) + share / 2.0 + (k as f64 - n / 2.0) * wide;
                let end = inside(end);
                let whisker = bars.deviations.get(i).filter(|s| s.is_finite() && **s > 0.0).and_then(|s| {
                    let (_, top) = frame.point((0.5, value + s))?;
                    // Below the low end of a logarithmic axis the whisker runs to the axis.
                    let bottom = frame.point((0.5, value - s)).map_or(frame.area.bottom, |p| p.1);
                    Some((inside(top), inside(bottom)))
                });
                placed.push(Placed {
                    area: Area {
                        left: left + gap / 2.0,
                        top: end.min(ground),
                        right: left + wide - gap / 2.0,
                        bottom: end.max(ground),
                    },
                    ink: bars.ink,
                    whisker,
                    upwards: end <= ground,
                    label: labels.get(k).and_then(|l| l.get(i)).map(String::as_str),
                });
            }
        }
        placed
    }

    /// At least a fifth of each category stays free, and few bars do not grow into slabs.
    fn bar_width(&self, frame: &Frame) -> f64 {
        let share = frame.area.width() / self.categories.len().max(1) as f64;
        (share * 0.8 / self.bars.len().max(1) as f64).min(56.0)
    }

    /// The values as texts by series, if each is narrower than its bar's share.
    fn value_labels(&self, wide: f64) -> Vec<Vec<String>> {
        let Some(decimals) = self.decimals else { return Vec::new() };
        let text = |v: &f64| number(*v, decimals);
        let labels: Vec<Vec<String>> = self.bars.iter().map(|b| b.values.iter().map(text).collect()).collect();
        // Beside a single bar there is the space between categories.
        let room = if self.bars.len() > 1 { wide } else { wide + 4.0 };
        let fits = |label: &String| label.len() < 24 && font::width(label, TICK_EM, false) <= room;
        if labels.iter().flatten().all(fits) { labels } else { Vec::new() }
    }
}

impl Placed<'_> {
    /// Draws whisker and value.
    fn annotate(&self, scene: &mut Scene, frame: &Frame) {
        let area = self.area;
        let center = f64::midpoint(area.left, area.right);
        let (mut top, mut bottom) = (area.top, area.bottom);
        if let Some((high, low)) = self.whisker {
            let cap = (area.width() * 0.2).min(6.0);
            let stroke = Stroke::solid(TEXT, 1.4);
            scene.line((center, high), (center, low), stroke);
            for y in [high, low] {
                scene.line((center - cap, y), (center + cap, y), stroke);
            }
            (top, bottom) = (top.min(high), bottom.max(low));
        }
        let Some(label) = self.label else { return };
        let baseline = if self.upwards { top - 4.0 } else { bottom + TICK_EM + 1.0 };
        let baseline = baseline.clamp(frame.area.top + TICK_EM * 0.73, frame.area.bottom - 3.0);
        // A patch of paper, so that reference lines do not strike the number out.
        let half = font::width(label, TICK_EM, false) / 2.0 + 1.0;
        let patch =
            Area { left: center - half, right: center + half, top: baseline - TICK_EM * 0.8, bottom: baseline + 1.5 };
        scene.rect(patch, PAPER);
        scene.text((center, baseline), label, TICK_EM, TEXT, Anchor::Middle);
    }
}

impl Chart for BarChart {}
