//! The frame of a chart: where the data goes, the axes around it, reference lines and their labels.

use crate::axis::{Axis, Mapping, Scale};
use crate::font;
use crate::header::{self, BODY_EM, Entry, PAD};
use crate::palette::{GRID, MUTED, TEXT};
use crate::reference::{self, Reference};
use crate::scene::{Anchor, Area, Point, Scene, Stroke, Text};
use crate::ticks::{self, Label, Ticks};

pub(crate) const TICK_EM: f64 = 11.0;
const TICK: f64 = 4.0;
const LINE: f64 = 13.0;

/// What runs along the bottom.
pub(crate) enum Bottom<'a> {
    Numbers { axis: &'a Axis, mapping: Option<Mapping> },
    Categories { label: &'a String, names: &'a [String] },
}

/// All that surrounds the data.
pub(crate) struct Surround<'a> {
    pub title: &'a str,
    pub subtitle: &'a str,
    pub legend: Vec<Entry>,
    pub bottom: Bottom<'a>,
    pub y: &'a Axis,
    pub y_mapping: Option<Mapping>,
    pub horizontal: &'a [Reference],
    pub vertical: &'a [Reference],
}

/// Where data goes, and how values become pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub area: Area,
    pub x_mapping: Mapping,
    pub y_mapping: Mapping,
}

impl Frame {
    pub(crate) fn x(&self, value: f64) -> f64 {
        self.area.left + far(self.x_mapping.unit(value)) * self.area.width()
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        self.area.bottom - far(self.y_mapping.unit(value)) * self.area.height()
    }

    /// The pixel of a point, when both scales admit it.
    pub(crate) fn point(&self, (x, y): Point) -> Option<Point> {
        (self.x_mapping.scale.admits(x) && self.y_mapping.scale.admits(y)).then(|| (self.x(x), self.y(y)))
    }

    /// The value on the y axis from which bars rise: zero, or the low end of a logarithmic axis.
    pub(crate) fn ground(&self) -> f64 {
        if self.y_mapping.scale == Scale::Linear {
            0.0_f64.clamp(self.y_mapping.low, self.y_mapping.high)
        } else {
            self.y_mapping.low
        }
    }
}

/// Keeps positions far outside a fixed range finite, so that they can be clipped.
fn far(unit: f64) -> f64 {
    unit.clamp(-1e6, 1e6)
}

/// Draws everything around the data but the reference lines, and answers where the data goes.
pub(crate) fn draw(scene: &mut Scene, surround: &Surround) -> Frame {
    let (width, height) = (f64::from(scene.width), f64::from(scene.height));
    let header_end = header::draw(scene, surround.title, surround.subtitle, &surround.legend);
    let y_mapping = surround.y_mapping.unwrap_or_else(|| Mapping::empty(surround.y.scale));
    let x_mapping = match &surround.bottom {
        Bottom::Numbers { axis, mapping } => mapping.unwrap_or_else(|| Mapping::empty(axis.scale)),
        Bottom::Categories { names, .. } => Mapping { scale: Scale::Linear, low: 0.0, high: names.len().max(1) as f64 },
    };
    let y_ticks =
        |pixels: f64| ticks::ticks(&y_mapping, (pixels / 45.0).floor().clamp(2.0, 12.0) as usize, surround.y.integers);
    // The layout is circular: the ticks set the left margin, the margin the width, the width the lines of category names, the lines
    // the height, and the height the ticks. The first round guesses the height. The second starts from nearly the right one and is final.
    let guess = y_ticks(height - header_end - 50.0);
    let guess = Margins::new(surround, &guess, (x_mapping, y_mapping), (width, height), header_end);
    let y_ticks = y_ticks(guess.area.height());
    let Margins { area, x_ticks, category_lines, bottom_label, tick_room } =
        Margins::new(surround, &y_ticks, (x_mapping, y_mapping), (width, height), header_end);
    let frame = Frame { area, x_mapping, y_mapping };

    draw_y(scene, &frame, &y_ticks, tick_room);
    match &surround.bottom {
        Bottom::Numbers { .. } => draw_x(scene, &frame, &x_ticks),
        Bottom::Categories { .. } => draw_categories(scene, &frame, &category_lines),
    }
    let axis = Stroke::solid(MUTED, 1.0);
    scene.path(vec![(area.left, area.top), (area.left, area.bottom), (area.right, area.bottom)], axis);
    if y_mapping.scale == Scale::Linear && y_mapping.low < 0.0 && y_mapping.high > 0.0 {
        let zero = frame.y(0.0);
        scene.line((area.left, zero), (area.right, zero), axis);
    }

    let label = font::ellipsize(&bottom_label, BODY_EM, false, width - 2.0 * PAD);
    let half = font::width(&label, BODY_EM, false) / 2.0;
    // Centred on the frame, moved where a long label would leave the scene.
    let center = f64::midpoint(area.left, area.right).min(width - PAD - half).max(PAD + half);
    scene.text((center, height - PAD), label, BODY_EM, TEXT, Anchor::Middle);
    // Down to where the label of the x axis begins, which may be as wide as the scene.
    let end = height - PAD - if bottom_label.is_empty() { 0.0 } else { BODY_EM };
    let room = end - header_end;
    let label = font::ellipsize(&labelled(&surround.y.label, y_ticks.exponent), BODY_EM, false, room);
    let half = font::width(&label, BODY_EM, false) / 2.0;
    let middle = f64::midpoint(area.top, area.bottom).max(header_end + half).min(end - half);
    scene.push_text(Text {
        at: (PAD + BODY_EM - 2.0, middle),
        content: label,
        em: BODY_EM,
        bold: false,
        color: TEXT,
        anchor: Anchor::Middle,
        upright: true,
    });
    frame
}

/// The layout around given ticks of the y axis.
struct Margins {
    area: Area,
    x_ticks: Ticks,
    category_lines: Vec<Vec<String>>,
    bottom_label: String,
    tick_room: f64,
}

impl Margins {
    fn new(
        surround: &Surround,
        y_ticks: &Ticks,
        (x_mapping, y_mapping): (Mapping, Mapping),
        (width, height): (f64, f64),
        header_end: f64,
    ) -> Self {
        let title_room = if labelled(&surround.y.label, y_ticks.exponent).is_empty() { 0.0 } else { BODY_EM + 8.0 };
        let tick_room = y_ticks.major.iter().map(|(_, l)| label_width(l)).fold(10.0, f64::max).min(width * 0.3);
        let left = PAD + title_room + tick_room + TICK + 4.0;
        let reference_room = reference::right_margin(surround.horizontal, &y_mapping, width);
        let mut right = width - if reference_room > 0.0 { reference_room + PAD + 6.0 } else { PAD + 4.0 };
        right = right.max(left + 40.0);

        let mut x_ticks = Ticks { major: Vec::new(), minor: Vec::new(), exponent: 0 };
        let mut category_lines = Vec::new();
        let label = match &surround.bottom {
            Bottom::Numbers { axis, .. } => {
                x_ticks = numbers_that_fit(&x_mapping, axis, right - left);
                // The last label may stand out to the right, but not out of the scene.
                if let Some((value, label)) = x_ticks.major.last() {
                    let end = left + x_mapping.unit(*value) * (right - left) + label_width(label) / 2.0;
                    right = (right - (end - width + 4.0).max(0.0)).max(left + 40.0);
                }
                &axis.label
            }
            Bottom::Categories { label, names } => {
                category_lines = self::category_lines(names, left, right, width);
                *label
            }
        };
        let bottom_label = labelled(label, x_ticks.exponent);
        let tick_lines = category_lines.iter().map(Vec::len).max().unwrap_or(1).max(1) as f64;
        let label_room = if bottom_label.is_empty() { 0.0 } else { BODY_EM + 5.0 };
        let top = header_end + reference::top_margin(surround.vertical, &x_mapping, left, right, width) + 2.0;
        let bottom = height - PAD + 2.0 - label_room - tick_lines * LINE - TICK - 3.0;
        let area = Area { left, top, right, bottom: bottom.max(top + 30.0) };
        Self { area, x_ticks, category_lines, bottom_label, tick_room }
    }
}

fn labelled(label: &str, exponent: i32) -> String {
    match (label.is_empty(), exponent) {
        (_, 0) => label.to_owned(),
        (true, e) => format!("× {}", ticks::power_of_ten(e)),
        (false, e) => format!("{label} (× {})", ticks::power_of_ten(e)),
    }
}

/// The ticks that the axis names, if their labels have room; else as many computed ticks as have room.
fn numbers_that_fit(mapping: &Mapping, axis: &Axis, room: f64) -> Ticks {
    let fit = |ticks: &Ticks| {
        let ends: Vec<(f64, f64)> = ticks
            .major
            .iter()
            .map(|(v, label)| (mapping.unit(*v) * room, label_width(label) / 2.0))
            .map(|(x, half)| (x - half, x + half))
            .collect();
        ends.windows(2).all(|w| w[1].0 - w[0].1 > 10.0)
    };
    let named = axis.ticks.iter().filter(|(v, _)| mapping.scale.admits(*v) && mapping.contains(*v));
    let major: Vec<(f64, Label)> = named.map(|(v, label)| (*v, Label::Plain(label.clone()))).collect();
    let named = Ticks { major, minor: Vec::new(), exponent: 0 };
    if !named.major.is_empty() && fit(&named) {
        return named;
    }
    for count in (2..=((room / 45.0) as usize).clamp(2, 10)).rev() {
        let found = ticks::ticks(mapping, count, axis.integers);
        if fit(&found) {
            return found;
        }
    }
    let mut last = ticks::ticks(mapping, 2, axis.integers);
    last.major.truncate(1);
    last
}

/// Category names broken into lines; where there is no room for all names, every n-th is kept.
fn category_lines(names: &[String], left: f64, right: f64, width: f64) -> Vec<Vec<String>> {
    const NARROWEST: f64 = 22.0;
    let each = (right - left) / names.len().max(1) as f64;
    let widest = names.iter().map(|n| font::width(n, TICK_EM, false)).fold(0.0, f64::max);
    let every = if each >= NARROWEST { 1 } else { ((widest.min(60.0) + 6.0) / each).ceil().max(1.0) as usize };
    let shown = |(i, name): (usize, &String)| {
        if i % every != 0 {
            return Vec::new();
        }
        // The last name may stand out of the frame, but not out of the scene.
        let center = left + (i as f64 + 0.5) * each;
        let room = (each * every as f64 - 6.0).min(2.0 * (width - 4.0 - center));
        font::wrap(name, TICK_EM, false, room, 2)
    };
    names.iter().enumerate().map(shown).collect()
}

fn draw_y(scene: &mut Scene, frame: &Frame, ticks: &Ticks, room: f64) {
    let area = frame.area;
    let stroke = Stroke::solid(MUTED, 1.0);
    for value in &ticks.minor {
        let y = frame.y(*value);
        scene.line((area.left - TICK * 0.6, y), (area.left, y), Stroke::solid(MUTED, 0.6));
    }
    for (value, label) in &ticks.major {
        let y = frame.y(*value);
        scene.line((area.left, y), (area.right, y), Stroke::solid(GRID, 1.0));
        scene.line((area.left - TICK, y), (area.left, y), stroke);
        draw_label(scene, label, (area.left - TICK - 4.0, y + TICK_EM * 0.35), Anchor::End, room);
    }
}

fn draw_x(scene: &mut Scene, frame: &Frame, ticks: &Ticks) {
    let area = frame.area;
    for value in &ticks.minor {
        let x = frame.x(*value);
        scene.line((x, area.bottom), (x, area.bottom + TICK * 0.6), Stroke::solid(MUTED, 0.6));
    }
    for (value, label) in &ticks.major {
        let x = frame.x(*value);
        scene.line((x, area.top), (x, area.bottom), Stroke::solid(GRID, 1.0));
        scene.line((x, area.bottom), (x, area.bottom + TICK), Stroke::solid(MUTED, 1.0));
        draw_label(scene, label, (x, area.bottom + TICK + 3.0 + TICK_EM * 0.75), Anchor::Middle, area.width());
    }
}

fn draw_categories(scene: &mut Scene, frame: &Frame, lines: &[Vec<String>]) {
    for (i, lines) in lines.iter().enumerate() {
        let x = frame.x(i as f64 + 0.5);
        for (n, line) in lines.iter().enumerate() {
            let y = frame.area.bottom + TICK + 3.0 + TICK_EM * 0.75 + n as f64 * LINE;
            scene.text((x, y), line.clone(), TICK_EM, MUTED, Anchor::Middle);
        }
    }
}

const RAISED: f64 = 0.75;

fn label_width(label: &Label) -> f64 {
    match label {
        Label::Plain(text) => font::width(text, TICK_EM, false),
        Label::Power { base, exponent } => {
            let exponent = ticks::number(f64::from(*exponent), 0);
            font::width(&base.to_string(), TICK_EM, false) + font::width(&exponent, TICK_EM * RAISED, false) + 0.5
        }
    }
}

/// Writes a tick label; powers as a base with a smaller raised exponent, which looks alike in every font.
fn draw_label(scene: &mut Scene, label: &Label, (x, y): Point, anchor: Anchor, room: f64) {
    match label {
        Label::Plain(text) => {
            scene.text((x, y), font::ellipsize(text, TICK_EM, false, room + 0.5), TICK_EM, MUTED, anchor);
        }
        Label::Power { base, exponent } => {
            let left = match anchor {
                Anchor::Start => x,
                Anchor::Middle => x - label_width(label) / 2.0,
                Anchor::End => x - label_width(label),
            };
            let base = base.to_string();
            let shift = font::width(&base, TICK_EM, false) + 0.5;
            scene.text((left + shift, y), base, TICK_EM, MUTED, Anchor::End);
            let exponent = ticks::number(f64::from(*exponent), 0);
            let at = (left + shift, y - TICK_EM * 0.38);
            scene.text(at, exponent, TICK_EM * RAISED, MUTED, Anchor::Start);
        }
    }
}
