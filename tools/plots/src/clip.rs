//! Geometry that keeps data inside its frame: clipping, dashes, and thinning of dense lines.

use crate::scene::{Area, Point};

/// The part of a segment inside `area` (Liang and Barsky, 1984).
fn segment((x0, y0): Point, (x1, y1): Point, area: &Area) -> Option<(Point, Point)> {
    let (dx, dy) = (x1 - x0, y1 - y0);
    let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
    for (p, q) in [(-dx, x0 - area.left), (dx, area.right - x0), (-dy, y0 - area.top), (dy, area.bottom - y0)] {
        if p == 0.0 {
            if q < 0.0 {
                return None;
            }
        } else if p < 0.0 {
            enter = enter.max(q / p);
        } else {
            leave = leave.min(q / p);
        }
    }
    (enter <= leave).then_some(((x0 + enter * dx, y0 + enter * dy), (x0 + leave * dx, y0 + leave * dy)))
}

/// The pieces of a polyline inside `area`, in order.
pub(crate) fn polyline(points: &[Point], area: &Area) -> Vec<Vec<Point>> {
    let mut pieces: Vec<Vec<Point>> = Vec::new();
    let mut joined = false;
    for pair in points.windows(2) {
        let Some((from, to)) = segment(pair[0], pair[1], area) else {
            joined = false;
            continue;
        };
        match pieces.last_mut() {
            Some(piece) if joined => piece.push(to),
            _ => pieces.push(vec![from, to]),
        }
        joined = area.contains(pair[1]);
    }
    pieces
}

/// The part of a polygon inside `area` (Sutherland and Hodgman, 1974).
pub(crate) fn polygon(points: Vec<Point>, area: &Area) -> Vec<Point> {
    let sides: [&dyn Fn(Point) -> f64; 4] =
        [&|p| p.0 - area.left, &|p| area.right - p.0, &|p| p.1 - area.top, &|p| area.bottom - p.1];
    sides.iter().fold(points, |points, inside| {
        let mut kept = Vec::with_capacity(points.len() + 4);
        for (i, &to) in points.iter().enumerate() {
            let from = points[(i + points.len() - 1) % points.len()];
            let (a, b) = (inside(from), inside(to));
            if (a < 0.0) != (b < 0.0) {
                let t = a / (a - b);
                kept.push((from.0 + t * (to.0 - from.0), from.1 + t * (to.1 - from.1)));
            }
            if b >= 0.0 {
                kept.push(to);
            }
        }
        kept
    })
}

/// Cuts a polyline into the dashes of `pattern` (on, off, on, off ... in pixels); an empty pattern leaves it whole.
pub(crate) fn dashes(points: &[Point], pattern: &[f64]) -> Vec<Vec<Point>> {
    if pattern.is_empty() {
        return vec![points.to_vec()];
    }
    let mut out = Vec::new();
    let mut current: Vec<Point> = points.first().copied().into_iter().collect();
    let (mut index, mut left) = (0, pattern[0]);
    for pair in points.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let mut done = 0.0;
        while length - done > left {
            done += left;
            let t = done / length;
            let at = (from.0 + t * (to.0 - from.0), from.1 + t * (to.1 - from.1));
            if index % 2 == 0 {
                current.push(at);
                out.push(std::mem::take(&mut current));
            } else {
                current = vec![at];
            }
            index = (index + 1) % pattern.len();
            left = pattern[index];
        }
        left -= length - done;
        if index % 2 == 0 {
            current.push(to);
        }
    }
    if current.len() > 1 {
        out.push(current);
    }
    out
}

/// Thins a line that runs from left to right to at most four points per pixel column (first, lowest, highest, last):
/// what is drawn is the same, and a run of a million steps stays a small file.
pub(crate) fn thin(points: Vec<Point>) -> Vec<Point> {
    if points.len() < 3 || points.windows(2).any(|w| w[1].0 < w[0].0) {
        return points;
    }
    let mut out: Vec<Point> = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        if column.len() <= 4 {
            out.extend_from_slice(column);
            continue;
        }
        let extreme = |pick: fn(f64, f64) -> bool| {
            (1..column.len()).fold(0, |best, i| if pick(column[i].1, column[best].1) { i } else { best })
        };
        let mut keep = [0, extreme(|a, b| a < b), extreme(|a, b| a > b), column.len() - 1];
        keep.sort_unstable();
        for (n, &i) in keep.iter().enumerate() {
            if n == 0 || i != keep[n - 1] {
                out.push(column[i]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AREA: Area = Area { left: 0.0, top: 0.0, right: 10.0, bottom: 10.0 };

    #[test]
    fn lines_end_at_the_frame() {
        let pieces = polyline(&[(-5.0, 5.0), (5.0, 5.0), (5.0, 15.0), (8.0, 15.0), (8.0, 2.0)], &AREA);
        assert_eq!(pieces, [vec![(0.0, 5.0), (5.0, 5.0), (5.0, 10.0)], vec![(8.0, 10.0), (8.0, 2.0)]]);
        assert!(polyline(&[(-5.0, -5.0), (15.0, -5.0)], &AREA).is_empty());
    }

    #[test]
    fn polygons_end_at_the_frame() {
        let clipped = polygon(vec![(-5.0, -5.0), (5.0, -5.0), (5.0, 5.0), (-5.0, 5.0)], &AREA);
        assert_eq!(clipped.len(), 4, "{clipped:?}");
        for corner in [(0.0, 0.0), (5.0, 0.0), (5.0, 5.0), (0.0, 5.0)] {
            assert!(clipped.contains(&corner), "{corner:?} in {clipped:?}");
        }
        assert!(polygon(vec![(20.0, 20.0), (30.0, 20.0), (30.0, 30.0)], &AREA).is_empty());
    }

    #[test]
    fn dashes_have_the_lengths_of_the_pattern() {
        let out = dashes(&[(0.0, 0.0), (7.0, 0.0), (20.0, 0.0)], &[4.0, 2.0]);
        let spans: Vec<(f64, f64)> = out.iter().map(|d| (d[0].0, d[d.len() - 1].0)).collect();
        assert_eq!(spans, [(0.0, 4.0), (6.0, 10.0), (12.0, 16.0), (18.0, 20.0)]);
        assert_eq!(out[1].len(), 3, "a dash bends with its line");
    }

    proptest! {
        #[test]
        fn nothing_leaves_the_frame(points in prop::collection::vec((-1e3..1e3, -1e3..1e3), 0..12)) {
            let slack = Area { left: -1e-9, top: -1e-9, right: 10.0 + 1e-9, bottom: 10.0 + 1e-9 };
            for p in polyline(&points, &AREA).into_iter().flatten().chain(polygon(points, &AREA)) {
                prop_assert!(slack.contains(p), "{p:?}");
            }
        }

        #[test]
        fn thinning_keeps_ends_and_extremes(ys in prop::collection::vec(-50.0..50.0, 1..400)) {
            let points: Vec<Point> = ys.iter().enumerate().map(|(i, &y)| (i as f64 * 0.05, y)).collect();
            let thinned = thin(points.clone());
            prop_assert!(thinned.len() <= 4 * 21);
            prop_assert_eq!(thinned.first(), points.first());
            prop_assert_eq!(thinned.last(), points.last());
            let top = |p: &[Point]| p.iter().map(|p| p.1).fold(f64::MIN, f64::max);
            let low = |p: &[Point]| p.iter().map(|p| p.1).fold(f64::MAX, f64::min);
            prop_assert_eq!((top(&thinned), low(&thinned)), (top(&points), low(&points)));
        }
    }
}
