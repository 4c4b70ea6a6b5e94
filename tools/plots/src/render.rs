//! Replays a scene through the drawing library, as SVG and as PNG.

use plotters::prelude::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBAColor, ShapeStyle};
use std::fmt::Display;

use crate::palette::Rgb;
use crate::scene::{Anchor, Point, Scene, Shape, Text};
use crate::{MAX_SIDE, MIN_SIDE, PlotError, clip, font, svg};

/// Pixels of a PNG file per pixel of the layout, for sharp text on dense displays and in print.
pub(crate) const PIXEL_RATIO: u32 = 2;
/// PNG files are drawn this many times larger and averaged down: the library's own antialiasing is coarse.
const SUPERSAMPLING: u32 = 2;

/// What differs between the two backends.
struct Target {
    /// Backend units per pixel of the layout; backends take whole numbers, so this is also the precision.
    scale: f64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Takes paths whole and text as text.
    Vector,
    /// The library fills the outline of a wide path with a two-edge sweep, which breaks where a path folds over itself,
    /// and sets glyphs without their left bearings. So it gets paths as segments with round joins, and text as pixels.
    Bitmap,
}

const SVG: Target = Target { scale: svg::UNITS_PER_PIXEL as f64, kind: Kind::Vector };
const BITMAP: Target = Target { scale: (PIXEL_RATIO * SUPERSAMPLING) as f64, kind: Kind::Bitmap };

fn check(scene: &Scene) -> Result<(), PlotError> {
    let sides = MIN_SIDE..=MAX_SIDE;
    if sides.contains(&scene.width) && sides.contains(&scene.height) {
        Ok(())
    } else {
        Err(PlotError::Size { width: scene.width, height: scene.height })
    }
}

/// The scene as a self-contained SVG document.
pub(crate) fn to_svg(scene: &Scene) -> Result<String, PlotError> {
    check(scene)?;
    let mut raw = String::new();
    let units = svg::UNITS_PER_PIXEL;
    {
        let mut backend = SVGBackend::with_string(&mut raw, (scene.width * units, scene.height * units));
        replay(scene, &mut backend, &SVG)?;
        drawn(backend.present())?;
    }
    Ok(svg::tidy(&raw, scene))
}

/// The scene as a PNG file of [`PIXEL_RATIO`] times its size.
pub(crate) fn to_png(scene: &Scene) -> Result<Vec<u8>, PlotError> {
    check(scene)?;
    let factor = PIXEL_RATIO * SUPERSAMPLING;
    let (wide, high) = (scene.width * factor, scene.height * factor);
    let mut large = vec![0xFF_u8; wide as usize * high as usize * 3];
    {
        let mut backend = BitMapBackend::with_buffer(&mut large, (wide, high));
        replay(scene, &mut backend, &BITMAP)?;
        drawn(backend.present())?;
    }
    let (width, height) = (scene.width * PIXEL_RATIO, scene.height * PIXEL_RATIO);
    let pixels = average_down(&large, width as usize, height as usize, SUPERSAMPLING as usize);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    // 96 layout pixels per inch, in pixels per metre.
    let density = (96.0 * f64::from(PIXEL_RATIO) / 0.0254).round() as u32;
    encoder.set_pixel_dims(Some(png::PixelDimensions { xppu: density, yppu: density, unit: png::Unit::Meter }));
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(bytes)
}

fn average_down(large: &[u8], width: usize, height: usize, factor: usize) -> Vec<u8> {
    let stride = width * factor * 3;
    let weight = (factor * factor) as u32;
    let mut out = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let mut sum = weight / 2;
                for dy in 0..factor {
                    for dx in 0..factor {
                        sum += u32::from(large[(y * factor + dy) * stride + (x * factor + dx) * 3 + channel]);
                    }
                }
                out.push((sum / weight) as u8);
            }
        }
    }
    out
}

fn replay<DB: DrawingBackend>(scene: &Scene, backend: &mut DB, target: &Target) -> Result<(), PlotError> {
    let at = |(x, y): Point| ((x * target.scale).round() as i32, (y * target.scale).round() as i32);
    for shape in &scene.shapes {
        match shape {
            Shape::Rect { area, fill } => {
                let (from, to) = (at((area.left, area.top)), at((area.right, area.bottom)));
                drawn(backend.draw_rect(from, to, &style(*fill, 1.0, 1), true))?;
            }
            Shape::Polygon { points, fill, alpha } => {
                drawn(backend.fill_polygon(points.iter().map(|&p| at(p)), &style(*fill, *alpha, 1)))?;
            }
            Shape::Circle { center, radius, fill } => {
                let radius = (radius * target.scale).round().max(1.0) as u32;
                drawn(backend.draw_circle(at(*center), radius, &style(*fill, 1.0, 0), true))?;
            }
            Shape::Path { points, stroke } => {
                let width = (stroke.width * target.scale).round().max(1.0) as u32;
                let style = style(stroke.color, 1.0, width);
                for piece in clip::dashes(points, stroke.dash) {
                    let piece: Vec<_> = piece.into_iter().map(at).collect();
                    match target.kind {
                        Kind::Vector => drawn(backend.draw_path(piece, &style))?,
                        Kind::Bitmap => strokes(backend, &piece, &style)?,
                    }
                }
            }
            Shape::Text(text) => match target.kind {
                Kind::Vector => write_text(backend, text, target)?,
                Kind::Bitmap => paint_text(backend, text, target)?,
            },
        }
    }
    Ok(())
}

fn drawn<E: Display>(result: Result<(), E>) -> Result<(), PlotError> {
    result.map_err(|e| PlotError::Draw(e.to_string()))
}

fn style(Rgb(r, g, b): Rgb, alpha: f64, width: u32) -> ShapeStyle {
    ShapeStyle { color: RGBAColor(r, g, b, alpha), filled: true, stroke_width: width }
}

/// Draws a wide path as segments joined by discs.
fn strokes<DB: DrawingBackend>(backend: &mut DB, path: &[(i32, i32)], style: &ShapeStyle) -> Result<(), PlotError> {
    for pair in path.windows(2) {
        drawn(backend.draw_line(pair[0], pair[1], style))?;
    }
    let radius = style.stroke_width / 2;
    if radius > 0 && path.len() > 2 {
        for &joint in &path[1..path.len() - 1] {
            drawn(backend.draw_circle(joint, radius, style, true))?;
        }
    }
    Ok(())
}

/// Text as text. The backend writes size / 1.24 as the font size, and for its top anchor puts the baseline 0.76 em down.
fn write_text<DB: DrawingBackend>(backend: &mut DB, text: &Text, target: &Target) -> Result<(), PlotError> {
    let lift = text.em * 0.76;
    let (x, y) = if text.upright { (text.at.0 - lift, text.at.1) } else { (text.at.0, text.at.1 - lift) };
    let horizontal = match text.anchor {
        Anchor::Start => HPos::Left,
        Anchor::Middle => HPos::Center,
        Anchor::End => HPos::Right,
    };
    let transform = if text.upright { FontTransform::Rotate270 } else { FontTransform::None };
    let weight = if text.bold { FontStyle::Bold } else { FontStyle::Normal };
    let style = FontDesc::new(FontFamily::Name(font::FAMILY), text.em * 1.24 * target.scale, weight)
        .transform(transform)
        .color(&opaque(text.color))
        .pos(Pos::new(horizontal, VPos::Top));
    let at = ((x * target.scale).round() as i32, (y * target.scale).round() as i32);
    drawn(backend.draw_text(&text.content, &style, at))
}

/// Text as pixels of the embedded font.
fn paint_text<DB: DrawingBackend>(backend: &mut DB, text: &Text, target: &Target) -> Result<(), PlotError> {
    let em = text.em * target.scale;
    let before = match text.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => font::width(&text.content, em, text.bold) / 2.0,
        Anchor::End => font::width(&text.content, em, text.bold),
    };
    let (x, y) = (text.at.0 * target.scale, text.at.1 * target.scale);
    let origin = if text.upright { (x, y + before) } else { (x - before, y) };
    let origin = (origin.0.round() as i32, origin.1.round() as i32);
    font::rasterize(&text.content, em, text.bold, |dx, dy, share| {
        let (dx, dy) = if text.upright { (dy, -dx) } else { (dx, dy) };
        drawn(
            backend.draw_pixel(
                (origin.0 + dx, origin.1 + dy),
                opaque(text.color).mix(f64::from(share)).to_backend_color(),
            ),
        )
    })
}

fn opaque(Rgb(r, g, b): Rgb) -> RGBAColor {
    RGBAColor(r, g, b, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averaging_is_a_box_filter() {
        let large = [0, 0, 0, 4, 4, 4, 8, 8, 8, 12, 12, 12, 100, 200, 50, 100, 200, 50].map(|v: u8| v);
        // Two rows of three columns do not halve; take the two by two case instead.
        assert_eq!(average_down(&large[..12], 1, 1, 2), [6, 6, 6]);
        assert_eq!(average_down(&large[12..], 2, 1, 1), [100, 200, 50, 100, 200, 50]);
    }
}
