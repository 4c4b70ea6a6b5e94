//! The embedded font: text measurement for the layout, and glyphs for the PNG files.
//!
//! A subset of Arimo (SIL Open Font Licence, see `assets/Arimo-LICENSE.txt`) draws the PNG files and measures text for
//! both formats. It has the advance widths of Arial and Helvetica, which the SVG names first, so that a layout made with
//! it holds on any machine, and no font is ever looked up on the machine that draws.

use ab_glyph::{Font, FontRef, PxScale, ScaleFont, point};
use std::sync::LazyLock;

/// The font stack written into SVG files.
pub(crate) const FAMILY: &str = "Helvetica, Arial, Arimo, Liberation Sans, sans-serif";

static REGULAR: LazyLock<FontRef<'static>> =
    LazyLock::new(|| load(include_bytes!("../assets/Arimo-Regular-subset.ttf")));
static BOLD: LazyLock<FontRef<'static>> = LazyLock::new(|| load(include_bytes!("../assets/Arimo-Bold-subset.ttf")));

fn load(bytes: &'static [u8]) -> FontRef<'static> {
    FontRef::try_from_slice(bytes).expect("the embedded font is part of the program and is read by its tests")
}

fn font(bold: bool) -> &'static FontRef<'static> {
    if bold { &BOLD } else { &REGULAR }
}

fn scale(font: &FontRef, em: f64) -> PxScale {
    let per_em = font.height_unscaled() / font.units_per_em().unwrap_or(2048.0);
    PxScale::from(em as f32 * per_em)
}

/// Advance width in pixels of `text` set at `em` pixels.
pub(crate) fn width(text: &str, em: f64, bold: bool) -> f64 {
    let font = font(bold);
    let font = font.as_scaled(scale(font, em));
    text.chars().map(|c| f64::from(font.h_advance(font.glyph_id(c)))).sum()
}

/// Whether the font has a glyph for every character.
pub(crate) fn covers(text: &str) -> bool {
    text.chars().all(|c| REGULAR.glyph_id(c).0 != 0 && BOLD.glyph_id(c).0 != 0)
}

/// Rasterises `text` with its baseline starting at the origin: calls `pixel` with the column, the row (negative above
/// the baseline) and the covered share of each pixel.
pub(crate) fn rasterize<E>(
    text: &str,
    em: f64,
    bold: bool,
    mut pixel: impl FnMut(i32, i32, f32) -> Result<(), E>,
) -> Result<(), E> {
    let font = font(bold);
    let scale = scale(font, em);
    let scaled = font.as_scaled(scale);
    let mut x = 0.0;
    for c in text.chars() {
        let id = font.glyph_id(c);
        if let Some(outline) = font.outline_glyph(id.with_scale_and_position(scale, point(x, 0.0))) {
            let corner = outline.px_bounds().min;
            let mut result = Ok(());
            outline.draw(|dx, dy, share| {
                if result.is_ok() && share > 0.0 {
                    result = pixel(corner.x as i32 + dx as i32, corner.y as i32 + dy as i32, share.min(1.0));
                }
            });
            result?;
        }
        x += scaled.h_advance(id);
    }
    Ok(())
}

/// Shortens `text` with an ellipsis so that it is at most `max` pixels wide.
pub(crate) fn ellipsize(text: &str, em: f64, bold: bool, max: f64) -> String {
    if width(text, em, bold) <= max {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    let fits = |n: usize| {
        let short: String = chars[..n].iter().collect::<String>().trim_end().to_owned() + "…";
        (width(&short, em, bold) <= max).then_some(short)
    };
    // Bisect on the number of characters kept: width grows with it.
    let (mut low, mut high) = (0, chars.len());
    while low < high {
        let mid = usize::midpoint(low, high + 1);
        if fits(mid).is_some() { low = mid } else { high = mid - 1 }
    }
    fits(low).unwrap_or_default()
}

/// Breaks `text` at spaces into at most `lines` lines of at most `max` pixels; the last one may end in an ellipsis.
pub(crate) fn wrap(text: &str, em: f64, bold: bool, max: f64, lines: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if line.is_empty() || width(&longer, em, bold) <= max {
            line = longer;
        } else if out.len() + 1 < lines {
            out.push(ellipsize(&line, em, bold, max));
            word.clone_into(&mut line);
        } else {
            line = longer;
            for rest in words.by_ref() {
                line.push(' ');
                line.push_str(rest);
            }
        }
    }
    if !line.is_empty() {
        out.push(ellipsize(&line, em, bold, max));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_arial() {
        // Advance widths of Arial per 2048 units: A 1366, i 455, zero 1139; bold A 1479.
        assert!((width("A", 2048.0, false) - 1366.0).abs() < 0.5, "{}", width("A", 2048.0, false));
        assert!((width("i", 2048.0, false) - 455.0).abs() < 0.5);
        assert!((width("000", 2048.0, false) - 3.0 * 1139.0).abs() < 0.5);
        assert!((width("A", 2048.0, true) - 1479.0).abs() < 0.5);
    }

    #[test]
    fn the_font_has_greek_superscripts_and_signs() {
        let ink = |text: &str| {
            let mut pixels = Vec::new();
            rasterize(text, 40.0, false, |x, y, share| {
                pixels.push((x, y, share > 0.5));
                Ok::<(), ()>(())
            })
            .unwrap();
            pixels
        };
        let missing = ink("\u{4e2d}"); // not in the subset: the replacement box
        for c in "αβγδεσωΓΔΣΩ⁰¹²³⁴⁵⁶⁷⁸⁹⁻−×±≤≥≈∞√∑∂→₀₁₂".chars()
        {
            let ink = ink(&c.to_string());
            assert!(!ink.is_empty() && ink != missing, "{c} is not in the embedded font");
        }
    }

    #[test]
    fn text_is_shortened_to_fit() {
        let long = "a rather long description of a series";
        for max in [0.0, 5.0, 20.0, 60.0, 120.0, 1e4] {
            let short = ellipsize(long, 12.0, false, max);
            assert!(short.is_empty() || width(&short, 12.0, false) <= max, "{short:?} at {max}");
        }
        assert_eq!(ellipsize(long, 12.0, false, 1e4), long);
        assert!(ellipsize(long, 12.0, false, 60.0).ends_with('…'));
    }

    #[test]
    fn text_wraps_at_spaces() {
        let lines = wrap("one two three four five six seven", 12.0, false, 80.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with('…'), "{lines:?}");
        assert_eq!(wrap("one two", 12.0, false, 500.0, 2), ["one two"]);
        assert_eq!(wrap("one two three", 12.0, false, 50.0, 2), ["one two", "three"]);
        assert!(wrap("  ", 12.0, false, 50.0, 2).is_empty());
    }
}
