//! Makes the library's SVG smaller and friendlier: a real size with a fine view box, a title for screen readers, round
//! joins, no attributes that say nothing, and one path element for the dashes of a line.

use std::fmt::Write as _;

use crate::font;
use crate::scene::Scene;

/// The drawing library takes whole coordinates; the view box is this much finer than a pixel.
pub(crate) const UNITS_PER_PIXEL: u32 = 10;

/// Rewrites the document that the library made of `scene`. Lines it does not know pass through unchanged.
pub(crate) fn tidy(raw: &str, scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {} {}\" \
         role=\"img\" stroke-linejoin=\"round\">\n<title>{}</title>\n",
        width * UNITS_PER_PIXEL,
        height * UNITS_PER_PIXEL,
        escape(&scene.description),
    );
    // The polylines with the same look that follow one another, as path data.
    let mut dashes: Option<(String, Vec<String>)> = None;
    let mut lines = raw.lines().skip(1).peekable();
    while let Some(line) = lines.next() {
        let line =
            line.replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", "").replace(" stroke-width=\"0\"", "");
        if let Some((look, points)) = polyline(&line) {
            match &mut dashes {
                Some((open, pieces)) if *open == look => pieces.push(points),
                _ => {
                    flush(&mut out, dashes.take());
                    dashes = Some((look, vec![points]));
                }
            }
            continue;
        }
        flush(&mut out, dashes.take());
        if line.starts_with("<text ") {
            // Content and closing tag come on lines of their own, which would add a space to the text.
            let content: Vec<&str> = lines.by_ref().take_while(|rest| *rest != "</text>").collect();
            out.push_str(&text(&line, &content.concat()));
        } else {
            out.push_str(&line);
        }
        out.push('\n');
    }
    flush(&mut out, dashes);
    out
}

/// A text element. It gets the length that the layout has measured: a machine with neither of the fonts takes a wider one, whose texts
/// would run into each other and out of the picture.
fn text(tag: &str, content: &str) -> String {
    let whole = format!("{tag}{content}</text>");
    let Some((before, rest)) = tag.split_once(" font-size=\"") else { return whole };
    let Some((size, after)) = rest.split_once('"') else { return whole };
    let Ok(em) = size.parse::<f64>() else { return whole };
    let plain = unescape(content);
    if !font::covers(&plain) {
        return whole;
    }
    let length = font::width(&plain, em, after.contains("font-weight=\"bold\"")).round();
    let size = em.round();
    format!(
        "{before} font-size=\"{size}\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\"{after}{content}</text>"
    )
}

/// The reverse of [`escape`].
fn unescape(text: &str) -> String {
    let names = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    names.iter().fold(text.to_owned(), |text, (name, character)| text.replace(name, character))
}

/// Splits `<polyline LOOK points="POINTS"/>`.
fn polyline(line: &str) -> Option<(String, String)> {
    let (look, points) = line.strip_prefix("<polyline ")?.split_once("points=\"")?;
    Some((look.trim_end().to_owned(), points.strip_suffix("\"/>")?.trim_end().to_owned()))
}

fn flush(out: &mut String, dashes: Option<(String, Vec<String>)>) {
    let Some((look, pieces)) = dashes else { return };
    let written = if let [points] = pieces.as_slice() {
        writeln!(out, "<polyline {look} points=\"{points}\"/>")
    } else {
        let data: Vec<String> = pieces.iter().map(|p| format!("M{p}")).collect();
        writeln!(out, "<path {look} d=\"{}\"/>", data.join(""))
    };
    written.expect("writing to a string");
}

/// Escapes text for element content and quoted attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // Not allowed in XML 1.0 in any form.
            c if (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{FFFE}' | '\u{FFFF}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        Scene::new(100, 50, "a < b & \"c\"".into())
    }

    #[test]
    fn dashes_become_one_path() {
        let raw = "<svg>\n<polyline fill=\"none\" opacity=\"1\" stroke=\"#000000\" points=\"0,0 1,1 \"/>\n\
                   <polyline fill=\"none\" opacity=\"1\" stroke=\"#000000\" points=\"2,2 3,3 \"/>\n\
                   <polyline fill=\"none\" opacity=\"1\" stroke=\"#FF0000\" points=\"4,4 5,5 \"/>\n</svg>\n";
        let out = tidy(raw, &scene());
        assert!(out.contains("<path fill=\"none\" stroke=\"#000000\" d=\"M0,0 1,1M2,2 3,3\"/>"), "{out}");
        assert!(out.contains("<polyline fill=\"none\" stroke=\"#FF0000\" points=\"4,4 5,5\"/>"), "{out}");
    }

    #[test]
    fn text_stays_on_one_line_and_the_title_is_escaped() {
        let out = tidy("<svg>\n<text x=\"1\">\nabc\n</text>\n</svg>\n", &scene());
        assert!(out.contains("<text x=\"1\">abc</text>"), "{out}");
        assert!(out.contains("<title>a &lt; b &amp; &quot;c&quot;</title>"), "{out}");
        assert!(out.contains("viewBox=\"0 0 1000 500\""), "{out}");
    }

    /// Whatever font there is, a text is as long as the layout took it to be.
    #[test]
    fn texts_have_the_length_of_the_layout() {
        let of = |content: &str, more: &str| {
            let raw = format!("<svg>\n<text x=\"1\" font-size=\"119.99999\"{more}>\n{content}\n</text>\n</svg>\n");
            tidy(&raw, &scene())
        };
        let length = font::width("a & b", 120.0, false).round();
        let expected =
            format!("font-size=\"120\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\">a &amp; b</text>");
        assert!(of("a &amp; b", "").contains(&expected), "{}", of("a &amp; b", ""));
        let bold = font::width("a", 120.0, true).round();
        assert!(of("a", " font-weight=\"bold\"").contains(&format!("textLength=\"{bold}\"")));
        // Glyphs that the embedded font does not have cannot be measured.
        assert!(!of("\u{6f22}", "").contains("textLength"));
    }
}
