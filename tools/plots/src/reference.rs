//! Reference lines: thresholds, baselines, chosen orders. Their labels stand outside the frame, to the right of
//! horizontal lines and above vertical ones, and make room for one another.

use crate::axis::Mapping;
use crate::font;
use crate::frame::{Frame, TICK_EM};
use crate::header::PAD;
use crate::palette::{MUTED, TEXT};
use crate::scene::{Anchor, Scene, Stroke};

const LINE: f64 = 13.0;
const DASH: &[f64] = &[4.0, 3.0];

/// A labelled line at one value of an axis.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub value: f64,
    pub label: String,
}

/// A label above the frame.
struct Placed {
    row: usize,
    value: f64,
    x: f64,
    label: String,
}

fn shown<'a>(lines: &'a [Reference], mapping: &'a Mapping) -> impl Iterator<Item = &'a Reference> {
    lines.iter().filter(|r| mapping.scale.admits(r.value) && mapping.contains(r.value))
}

/// Width that the labels of horizontal lines need to the right of the frame.
pub(crate) fn right_margin(lines: &[Reference], y: &Mapping, width: f64) -> f64 {
    shown(lines, y).map(|r| font::width(&r.label, TICK_EM, false)).fold(0.0, f64::max).min(width * 0.28)
}

/// Height that the labels of vertical lines need above the frame.
pub(crate) fn top_margin(lines: &[Reference], x: &Mapping, left: f64, right: f64, width: f64) -> f64 {
    let rows = vertical_rows(lines, x, left, right, width);
    rows.iter().filter(|p| !p.label.is_empty()).map(|p| p.row + 1).max().unwrap_or(0) as f64 * LINE
}

/// Spreads the labels of vertical lines over as few rows as keep them apart.
fn vertical_rows(lines: &[Reference], x: &Mapping, left: f64, right: f64, width: f64) -> Vec<Placed> {
    let mut order: Vec<&Reference> = shown(lines, x).collect();
    order.sort_by(|a, b| a.value.total_cmp(&b.value));
    let mut ends: Vec<f64> = Vec::new();
    let place = |r: &Reference| {
        let label = font::ellipsize(&r.label, TICK_EM, false, width - left - PAD);
        let half = font::width(&label, TICK_EM, false) / 2.0;
        // Not over the tick labels to the left, nor out of the scene to the right.
        let x = (left + x.unit(r.value) * (right - left)).min(width - PAD - half).max(left + half);
        let row = ends.iter().position(|end| x - half > end + 8.0).unwrap_or_else(|| {
            ends.push(0.0);
            ends.len() - 1
        });
        ends[row] = x + half;
        Placed { row, value: r.value, x, label }
    };
    order.into_iter().map(place).collect()
}

/// Draws the lines inside the frame and the labels outside.
pub(crate) fn draw(scene: &mut Scene, frame: &Frame, horizontal: &[Reference], vertical: &[Reference]) {
    let area = frame.area;
    let stroke = Stroke { color: MUTED, width: 1.2, dash: DASH };
    let width = f64::from(scene.width);
    for v in vertical_rows(vertical, &frame.x_mapping, area.left, area.right, width) {
        let x = frame.x(v.value);
        scene.line((x, area.top), (x, area.bottom), stroke);
        if !v.label.is_empty() {
            let baseline = area.top - 5.0 - v.row as f64 * LINE;
            scene.text((v.x, baseline), v.label, TICK_EM, TEXT, Anchor::Middle);
        }
    }
    let mut labels: Vec<(f64, &str)> = Vec::new();
    for r in shown(horizontal, &frame.y_mapping) {
        let at = frame.y(r.value);
        scene.line((area.left, at), (area.right, at), stroke);
        if !r.label.is_empty() {
            labels.push((at, &r.label));
        }
    }
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let room = f64::from(scene.width) - area.right - 6.0 - PAD / 2.0;
    for (center, label) in spread(&labels, area.top, area.bottom) {
        let text = font::ellipsize(label, TICK_EM, false, room);
        scene.text((area.right + 6.0, center + TICK_EM * 0.35), text, TICK_EM, TEXT, Anchor::Start);
    }
}

/// Moves labels, sorted by height, apart to at least one line: down first, then back up from the bottom.
fn spread<'a>(labels: &[(f64, &'a str)], top: f64, bottom: f64) -> Vec<(f64, &'a str)> {
    let mut out = labels.to_vec();
    let mut free = top - LINE;
    for (at, _) in &mut out {
        *at = at.max(free + LINE);
        free = *at;
    }
    let mut limit = bottom + LINE;
    for (at, _) in out.iter_mut().rev() {
        *at = at.min(limit - LINE);
        limit = *at;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_labels_move_apart_and_stay_inside() {
        let labels = [(50.0, "a"), (52.0, "b"), (53.0, "c"), (199.0, "d"), (200.0, "e")];
        let out = spread(&labels, 0.0, 200.0);
        assert!(out.windows(2).all(|w| w[1].0 - w[0].0 >= LINE - 1e-9), "{out:?}");
        assert!(out.iter().all(|l| (0.0..=200.0).contains(&l.0)), "{out:?}");
        assert_eq!(out[0].0, 50.0);
    }
}
