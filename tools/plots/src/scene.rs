//! A drawing as plain data: what a chart produces, before it becomes SVG or PNG.
//!
//! Coordinates are pixels, x to the right and y down. Both output formats replay the same scene, and the layout tests
//! look at it directly.

#[cfg(test)]
use crate::font;
use crate::palette::{Hatch, Marker, PAPER, Rgb};

pub(crate) type Point = (f64, f64);

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stroke {
    pub color: Rgb,
    pub width: f64,
    pub dash: &'static [f64],
}

impl Stroke {
    pub(crate) fn solid(color: Rgb, width: f64) -> Self {
        Self { color, width, dash: &[] }
    }
}

/// Which point of a text its x coordinate names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A run of text on a baseline.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub at: Point,
    pub content: String,
    pub em: f64,
    pub bold: bool,
    pub color: Rgb,
    pub anchor: Anchor,
    /// Reads upwards: the baseline is the vertical line through `at`.
    pub upright: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Path { points: Vec<Point>, stroke: Stroke },
    Polygon { points: Vec<Point>, fill: Rgb, alpha: f64 },
    Rect { area: Area, fill: Rgb },
    Circle { center: Point, radius: f64, fill: Rgb },
    Text(Text),
}

/// An upright rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Area {
    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub(crate) fn contains(&self, (x, y): Point) -> bool {
        x >= self.left && x <= self.right && y >= self.top && y <= self.bottom
    }
}

/// A finished drawing.
///
/// `pub` because a sealed public trait returns it; nothing outside the crate can name it.
#[derive(Clone, Debug)]
pub struct Scene {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// What the drawing shows, for readers who do not see it.
    pub(crate) description: String,
    pub(crate) shapes: Vec<Shape>,
}

impl Scene {
    pub(crate) fn new(width: u32, height: u32, description: String) -> Self {
        let area = Area { left: 0.0, top: 0.0, right: f64::from(width), bottom: f64::from(height) };
        Self { width, height, description, shapes: vec![Shape::Rect { area, fill: PAPER }] }
    }

    pub(crate) fn line(&mut self, from: Point, to: Point, stroke: Stroke) {
        self.path(vec![from, to], stroke);
    }

    pub(crate) fn path(&mut self, points: Vec<Point>, stroke: Stroke) {
        if points.len() > 1 {
            self.shapes.push(Shape::Path { points, stroke });
        }
    }

    pub(crate) fn polygon(&mut self, points: Vec<Point>, fill: Rgb, alpha: f64) {
        if points.len() > 2 {
            self.shapes.push(Shape::Polygon { points, fill, alpha });
        }
    }

    pub(crate) fn rect(&mut self, area: Area, fill: Rgb) {
        self.shapes.push(Shape::Rect { area, fill });
    }

    pub(crate) fn text(&mut self, at: Point, text: impl Into<String>, em: f64, color: Rgb, anchor: Anchor) {
        self.push_text(Text { at, content: text.into(), em, bold: false, color, anchor, upright: false });
    }

    pub(crate) fn push_text(&mut self, mut text: Text) {
        // Line breaks have no meaning here, and SVG has no place for control characters and these two.
        let forbidden = |c: char| c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}');
        if text.content.contains(forbidden) {
            text.content = text.content.replace(forbidden, " ");
        }
        if !text.content.is_empty() {
            self.shapes.push(Shape::Text(text));
        }
    }

    /// Draws a marker of about `2 * radius` pixels; a hollow one is filled with paper.
    pub(crate) fn marker(&mut self, marker: Marker, (x, y): Point, radius: f64, color: Rgb, hollow: bool) {
        const RIM: f64 = 1.4;
        let scaled = |shape: &[(f64, f64)], r: f64| shape.iter().map(|&(dx, dy)| (x + dx * r, y + dy * r)).collect();
        let (shape, grow): (&[(f64, f64)], f64) = match marker {
            Marker::Circle => {
                self.shapes.push(Shape::Circle { center: (x, y), radius, fill: color });
                if hollow {
                    self.shapes.push(Shape::Circle { center: (x, y), radius: (radius - RIM).max(0.5), fill: PAPER });
                }
                return;
            }
            Marker::Cross | Marker::Plus => {
                let strokes: [[Point; 2]; 2] = if marker == Marker::Cross {
                    [[(-0.8, -0.8), (0.8, 0.8)], [(-0.8, 0.8), (0.8, -0.8)]]
                } else {
                    [[(-1.0, 0.0), (1.0, 0.0)], [(0.0, -1.0), (0.0, 1.0)]]
                };
                let width = if hollow { 1.0 } else { 2.0 };
                for s in strokes {
                    self.path(scaled(&s, radius), Stroke::solid(color, width));
                }
                return;
            }
            Marker::Square => (&[(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)], 1.0),
            Marker::Triangle => (&[(0.0, -1.15), (1.1, 0.8), (-1.1, 0.8)], 1.9),
            Marker::Down => (&[(0.0, 1.15), (1.1, -0.8), (-1.1, -0.8)], 1.9),
            Marker::Diamond => (&[(0.0, -1.25), (1.1, 0.0), (0.0, 1.25), (-1.1, 0.0)], 1.4),
        };
        self.polygon(scaled(shape, radius), color, 1.0);
        if hollow {
            // `grow` keeps the rim as wide on slanted sides as on straight ones.
            self.polygon(scaled(shape, (radius - RIM * grow).max(0.4)), PAPER, 1.0);
        }
    }

    /// Draws the lines of a hatch, in paper colour, over a filled rectangle.
    pub(crate) fn hatch(&mut self, hatch: Hatch, area: Area) {
        const GAP: f64 = 7.0;
        let stroke = Stroke::solid(PAPER, 1.3);
        let (w, h) = (area.width(), area.height());
        let mut clipped = |from: Point, to: Point| {
            for piece in crate::clip::polyline(&[from, to], &area) {
                self.path(piece, stroke);
            }
        };
        if matches!(hatch, Hatch::Rising | Hatch::Crossed) {
            for i in 1..((w + h) / GAP).ceil() as usize {
                let c = i as f64 * GAP;
                clipped((area.left, area.top + c), (area.left + c, area.top));
            }
        }
        if matches!(hatch, Hatch::Falling | Hatch::Crossed) {
            for i in 1..((w + h) / GAP).ceil() as usize {
                let c = i as f64 * GAP;
                clipped((area.left, area.bottom - c), (area.left + c, area.bottom));
            }
        }
        if hatch == Hatch::Level {
            for i in 1..(h / GAP).ceil() as usize {
                let y = area.bottom - i as f64 * GAP;
                clipped((area.left, y), (area.right, y));
            }
        }
    }
}

impl Text {
    /// The rectangle that the text covers, from its ascenders to its descenders.
    #[cfg(test)]
    pub(crate) fn area(&self) -> Area {
        let width = font::width(&self.content, self.em, self.bold);
        let before = match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let (up, down) = (0.73 * self.em, 0.21 * self.em);
        let (x, y) = self.at;
        if self.upright {
            Area { left: x - up, top: y - (width - before), right: x + down, bottom: y + before }
        } else {
            Area { left: x - before, top: y - up, right: x - before + width, bottom: y + down }
        }
    }
}
