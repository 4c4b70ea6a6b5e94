//! Forest plots: estimates with their intervals, one below the other.

use crate::axis::{Axis, Mapping};
use crate::frame::TICK_EM;
use crate::header::{self, BODY_EM, Entry, PAD, Sample};
use crate::palette::{GRID, Ink, MUTED, TEXT};
use crate::scene::{Anchor, Area, Scene, Stroke};
use crate::ticks::{self, Label};
use crate::{Chart, chart, csv, font};

const ROW: f64 = 15.0;
const RADIUS: f64 = 3.2;
/// Share of the width that names may take.
const NAMES: f64 = 0.45;

/// An estimate.
#[derive(Clone, Debug)]
pub struct Estimated {
    /// What it is an estimate of.
    pub label: String,
    /// Its value.
    pub mean: f64,
    /// The ends of its interval.
    pub interval: (f64, f64),
    /// Index of its group in the legend.
    pub group: usize,
    /// Whether it is drawn as an outline.
    pub hollow: bool,
}

/// A chart of estimates, as high as they take; values that are not finite are left out.
#[derive(Clone, Debug)]
pub struct ForestChart {
    title: String,
    subtitle: String,
    x: Axis,
    groups: Vec<String>,
    rows: Vec<Estimated>,
    width: u32,
}

impl ForestChart {
    /// An empty chart of groups of estimates, over the axis `x`, on which 0 is marked.
    pub fn new<S: Into<String>>(title: impl Into<String>, x: Axis, groups: impl IntoIterator<Item = S>) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { title: title.into(), subtitle: String::new(), x: x.include(0.0), groups, rows: Vec::new(), width: 720 }
    }

    /// A line of explanation under the title.
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    /// Adds an estimate below the others.
    pub fn row(mut self, row: Estimated) -> Self {
        self.rows.push(row);
        self
    }

    /// The numbers: a line per estimate.
    pub fn to_csv(&self) -> String {
        let mut out = String::new();
        csv::line(&mut out, &["estimate", "group", csv::column(&self.x.label, "x"), "low", "high"]);
        for row in &self.rows {
            let group = self.groups.get(row.group).map_or("", String::as_str);
            let (low, high) = row.interval;
            csv::line(&mut out, &[&row.label, group, &csv::number(row.mean), &csv::number(low), &csv::number(high)]);
        }
        out
    }

    fn drawn(&self) -> impl Iterator<Item = &Estimated> {
        let finite = |row: &&Estimated| [row.mean, row.interval.0, row.interval.1].into_iter().all(f64::is_finite);
        self.rows.iter().filter(finite)
    }
}

impl chart::Draw for ForestChart {
    fn scene(&self) -> Scene {
        let entries: Vec<Entry> = self
            .groups
            .iter()
            .enumerate()
            .filter(|(slot, _)| self.drawn().any(|row| row.group == *slot))
            .map(|(slot, label)| Entry {
                label: label.clone(),
                ink: Ink::Slot(slot),
                sample: Sample::Line { marker: true, hollow: false, band: false },
            })
            .collect();
        let description = chart::description(&self.title, &self.subtitle);
        let rows = self.drawn().count().max(1) as f64;
        // The header's height is known once it is drawn.
        let header =
            header::draw(&mut Scene::new(self.width, 2000, String::new()), &self.title, &self.subtitle, &entries);
        let height = header + rows * ROW + 2.0 * BODY_EM + TICK_EM + 3.0 * PAD;
        let height = height.max(f64::from(crate::MIN_SIDE));
        let mut scene = Scene::new(self.width, height.ceil() as u32, description);
        let top = header::draw(&mut scene, &self.title, &self.subtitle, &entries) + PAD;
        let width = f64::from(self.width);
        let longest = self.drawn().map(|row| font::width(&row.label, TICK_EM, false)).fold(0.0, f64::max);
        let names = longest.min(width * NAMES);
        let area = Area { left: PAD + names + 8.0, top, right: width - 2.0 * PAD, bottom: top + rows * ROW };
        let values = self.drawn().flat_map(|row| [row.interval.0, row.interval.1]);
        let mapping = Mapping::fit(&self.x, values, false).unwrap_or_else(|| Mapping::empty(self.x.scale));
        let x = |value: f64| area.left + mapping.unit(value).clamp(0.0, 1.0) * area.width();
        let marks = ticks::ticks(&mapping, (area.width() / 90.0).floor().clamp(2.0, 10.0) as usize, self.x.integers);
        for (value, label) in &marks.major {
            scene.line((x(*value), area.top), (x(*value), area.bottom), Stroke::solid(GRID, 1.0));
            if let Label::Plain(label) = label {
                scene.text((x(*value), area.bottom + TICK_EM + 4.0), label, TICK_EM, MUTED, Anchor::Middle);
            }
        }
        let axis = Stroke::solid(MUTED, 1.0);
        scene.path(vec![(area.left, area.top), (area.left, area.bottom), (area.right, area.bottom)], axis);
        scene.line((x(0.0), area.top), (x(0.0), area.bottom), axis);
        let label = match marks.exponent {
            0 => self.x.label.clone(),
            exponent => format!("{} (10^{exponent})", self.x.label),
        };
        let label = font::ellipsize(&label, BODY_EM, false, width - 2.0 * PAD);
        scene.text((width / 2.0, area.bottom + TICK_EM + BODY_EM + 12.0), label, BODY_EM, TEXT, Anchor::Middle);
        for (index, row) in self.drawn().enumerate() {
            let middle = area.top + (index as f64 + 0.5) * ROW;
            let name = font::ellipsize(&row.label, TICK_EM, false, names);
            scene.text((area.left - 8.0, middle + 4.0), name, TICK_EM, TEXT, Anchor::End);
            let ink = Ink::Slot(row.group);
            let (low, high) = row.interval;
            scene.line((x(low), middle), (x(high), middle), Stroke::solid(ink.color(), 1.6));
            scene.marker(ink.marker(), (x(row.mean), middle), RADIUS, ink.color(), row.hollow);
        }
        if self.drawn().next().is_none() {
            let at = (f64::midpoint(area.left, area.right), f64::midpoint(area.top, area.bottom) + 4.0);
            scene.text(at, "no data", BODY_EM, MUTED, Anchor::Middle);
        }
        scene
    }
}

impl Chart for ForestChart {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Draw;
    use crate::scene::Shape;

    fn chart() -> ForestChart {
        let row = |label: &str, mean: f64, group: usize| Estimated {
            label: label.into(),
            mean,
            interval: (mean - 0.02, mean + 0.02),
            group,
            hollow: false,
        };
        let empty = ForestChart::new("Differences", Axis::new("accuracy"), ["small", "full"]);
        let all = empty.row(row("a, T = 64", 0.01, 0)).row(row("a, T = 64", -0.03, 1)).row(row("b", f64::NAN, 0));
        all.subtitle("mean and interval")
    }

    #[test]
    fn every_estimate_has_a_row_within_the_scene() {
        let scene = chart().scene();
        let texts: Vec<_> =
            scene.shapes.iter().filter_map(|shape| if let Shape::Text(t) = shape { Some(t) } else { None }).collect();
        let named = texts.iter().filter(|text| text.content == "a, T = 64");
        let at: Vec<f64> = named.map(|text| text.at.1).collect();
        assert!(at.len() == 2 && at[1] - at[0] == ROW, "{at:?}");
        assert!(texts.iter().all(|text| text.content != "b"));
        for (i, text) in texts.iter().enumerate() {
            let area = text.area();
            assert!(area.left >= 0.0 && area.right <= f64::from(scene.width), "{:?}: {area:?}", text.content);
            assert!(area.top >= 0.0 && area.bottom <= f64::from(scene.height), "{:?}: {area:?}", text.content);
            for other in &texts[..i] {
                let o = other.area();
                let apart =
                    area.right <= o.left || o.right <= area.left || area.bottom <= o.top || o.bottom <= area.top;
                assert!(apart, "{:?} over {:?}", text.content, other.content);
            }
        }
        let markers = scene.shapes.iter().filter(|shape| matches!(shape, Shape::Circle { .. })).count();
        assert!(markers >= 1 && chart().to_svg().unwrap().contains("small") && !chart().to_png().unwrap().is_empty());
    }

    #[test]
    fn numbers_come_back_whole_and_nothing_is_said_to_be_nothing() {
        let csv = chart().to_csv();
        assert!(csv.starts_with("estimate,group,accuracy,low,high\n\"a, T = 64\",small,0.01,-0.01,0.03\n"), "{csv}");
        assert!(ForestChart::new("t", Axis::new("x"), [""; 0]).to_svg().unwrap().contains("no data"));
    }
}
