//! The part of a chart above its frame: title, subtitle and legend. The legend never lies over data.

use crate::font;
use crate::palette::{Ink, MUTED, TEXT};
use crate::scene::{Anchor, Area, Scene, Stroke, Text};

pub(crate) const TITLE_EM: f64 = 15.0;
pub(crate) const BODY_EM: f64 = 12.0;
pub(crate) const PAD: f64 = 12.0;

const ROW: f64 = 18.0;
const SAMPLE: f64 = 26.0;
const SAMPLE_GAP: f64 = 6.0;
const ENTRY_GAP: f64 = 18.0;

/// How a legend entry pictures its series.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sample {
    Line { marker: bool, hollow: bool, band: bool },
    Marker { hollow: bool },
    Swatch { hatched: bool },
}

/// A line of the legend.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub label: String,
    pub ink: Ink,
    pub sample: Sample,
}

/// Draws title, subtitle and legend at the top of the scene; returns where they end.
pub(crate) fn draw(scene: &mut Scene, title: &str, subtitle: &str, entries: &[Entry]) -> f64 {
    let width = f64::from(scene.width) - 2.0 * PAD;
    let mut y = PAD;
    for line in font::wrap(title, TITLE_EM, true, width, 2) {
        y += TITLE_EM;
        scene.push_text(Text {
            at: (PAD, y - 1.0),
            content: line,
            em: TITLE_EM,
            bold: true,
            color: TEXT,
            anchor: Anchor::Start,
            upright: false,
        });
        y += 4.0;
    }
    for line in font::wrap(subtitle, BODY_EM, false, width, 2) {
        y += BODY_EM;
        scene.text((PAD, y), line, BODY_EM, MUTED, Anchor::Start);
        y += 4.0;
    }
    if !entries.is_empty() {
        y = legend(scene, entries, y + 3.0, width);
    }
    y + 6.0
}

/// Flows the entries into rows, at most as many as a third of the scene holds; the rest is counted.
fn legend(scene: &mut Scene, entries: &[Entry], top: f64, width: f64) -> f64 {
    let rows = ((f64::from(scene.height) / 3.0 / ROW) as usize).max(1);
    let label_room = (width - SAMPLE - SAMPLE_GAP).max(20.0);
    let mut placed: Vec<(f64, usize, &Entry, String)> = Vec::new();
    let (mut x, mut row) = (0.0, 0);
    for (i, entry) in entries.iter().enumerate() {
        let fit = |room: f64| {
            let label = font::ellipsize(&entry.label, BODY_EM, false, room.max(20.0));
            let wide = SAMPLE + SAMPLE_GAP + font::width(&label, BODY_EM, false);
            (label, wide)
        };
        // The last row keeps room for the note on what did not fit, unless this is the last entry.
        let reserve =
            |row: usize| if row + 1 == rows && i + 1 < entries.len() { 80.0_f64.min(width / 3.0) } else { 0.0 };
        let (mut label, mut wide) = fit(label_room);
        if x > 0.0 && x + wide + reserve(row) > width {
            row += 1;
            x = 0.0;
        }
        if row == rows {
            let last_row = rows - 1;
            let end = placed
                .iter()
                .filter(|p| p.1 == last_row)
                .map(|(x, _, _, label)| x + SAMPLE + SAMPLE_GAP + font::width(label, BODY_EM, false) + ENTRY_GAP);
            let at = (PAD + end.fold(0.0, f64::max), top + last_row as f64 * ROW + 13.0);
            scene.text(at, format!("+ {} more", entries.len() - i), BODY_EM, MUTED, Anchor::Start);
            row = last_row;
            break;
        }
        if x == 0.0 {
            (label, wide) = fit(label_room - reserve(row));
        }
        placed.push((x, row, entry, label));
        x += wide + ENTRY_GAP;
    }
    for (x, row, entry, label) in placed {
        let (left, middle) = (PAD + x, top + row as f64 * ROW + 9.0);
        sample(scene, entry, left, middle);
        scene.text((left + SAMPLE + SAMPLE_GAP, middle + 4.2), label, BODY_EM, TEXT, Anchor::Start);
    }
    top + (row + 1) as f64 * ROW
}

fn sample(scene: &mut Scene, entry: &Entry, left: f64, middle: f64) {
    let color = entry.ink.color();
    let center = (left + SAMPLE / 2.0, middle);
    match entry.sample {
        Sample::Line { marker, hollow, band } => {
            if band {
                let (top, bottom) = (middle - 6.0, middle + 6.0);
                let corners = vec![(left, top), (left + SAMPLE, top), (left + SAMPLE, bottom), (left, bottom)];
                scene.polygon(corners, color, crate::xy::BAND_ALPHA);
            }
            let stroke = Stroke { color, width: 2.0, dash: entry.ink.dash() };
            scene.line((left, middle), (left + SAMPLE, middle), stroke);
            if marker {
                scene.marker(entry.ink.marker(), center, 3.6, color, hollow);
            }
        }
        Sample::Marker { hollow } => scene.marker(entry.ink.marker(), center, 4.0, color, hollow),
        Sample::Swatch { hatched } => {
            let area = Area { left: left + 4.0, top: middle - 6.0, right: left + SAMPLE, bottom: middle + 6.0 };
            scene.rect(area, color);
            if hatched {
                scene.hatch(entry.ink.hatch(), area);
            }
        }
    }
}
