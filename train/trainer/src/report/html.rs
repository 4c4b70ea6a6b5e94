//! The page around the sections, and the few pieces of HTML that they share.

use std::fmt::{self, Write as _};

use super::{ReportError, Section};

/// Text that is escaped when written: everything that comes from a file or a name goes through this.
pub struct Text<T>(pub T);

impl<T: fmt::Display> fmt::Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl fmt::Write for Escape<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for c in text.chars() {
                    match c {
                        '&' => self.0.write_str("&amp;")?,
                        '<' => self.0.write_str("&lt;")?,
                        '>' => self.0.write_str("&gt;")?,
                        '"' => self.0.write_str("&quot;")?,
                        '\'' => self.0.write_str("&#39;")?,
                        '\0' => self.0.write_char('\u{FFFD}')?,
                        c => self.0.write_char(c)?,
                    }
                }
                Ok(())
            }
        }
        write!(Escape(f), "{}", self.0)
    }
}

/// Text in which a figure stays on one line with its deviation or sign, and a count with its name: `0.51 ± 0.01 (n = 3)`, `5 %`.
pub fn unbroken(text: &str) -> String {
    text.replace(" ± ", "\u{a0}±\u{a0}").replace(" = ", "\u{a0}=\u{a0}").replace(" %", "\u{a0}%")
}

/// A cell of a table: its HTML and whether it is a number.
pub struct Cell {
    html: String,
    /// The plain text, escaped, without notes.
    label: String,
    class: &'static str,
}

impl Cell {
    /// A cell of text, escaped.
    pub fn text(text: impl fmt::Display) -> Self {
        let html = Text(text).to_string();
        Self { label: html.clone(), html, class: "" }
    }

    /// A number, set to the right.
    pub fn number(text: impl fmt::Display) -> Self {
        Self { class: "number", ..Self::text(text) }
    }

    /// Finished HTML.
    pub fn html(html: String) -> Self {
        Self { html, label: String::new(), class: "" }
    }

    /// Marks the cell as the best of its column.
    pub fn best(self, best: bool) -> Self {
        if best { Self { html: format!("<strong>{}</strong>", self.html), ..self } } else { self }
    }

    /// Adds a second, smaller line.
    pub fn with_note(mut self, note: &str) -> Self {
        if !note.is_empty() {
            write!(self.html, "<small>{}</small>", Text(note)).expect("writing to a string");
        }
        self
    }
}

/// A table with a header row; the first column names the row. On narrow screens a row is a card, where each cell says its column.
pub fn table(headers: &[Cell], rows: &[Vec<Cell>]) -> String {
    let mut out = String::from("<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>");
    for cell in headers {
        write!(out, "<th scope=\"col\" class=\"{}\">{}</th>", cell.class, cell.html).expect("writing to a string");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let (open, close) = if i == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
            let column = headers.get(i).map_or("", |header| &header.label);
            let label = if i == 0 { String::new() } else { format!(" data-label=\"{column}\"") };
            write!(out, "<{open}{label} class=\"{}\">{}</{close}>", cell.class, cell.html)
                .expect("writing to a string");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// Names and values in two columns.
pub fn facts(items: &[(String, String)]) -> String {
    let mut out = String::from("<dl class=\"facts\">\n");
    for (name, value) in items {
        writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", Text(name), Text(value)).expect("writing to a string");
    }
    out.push_str("</dl>\n");
    out
}

/// A paragraph of plain text.
pub fn paragraph(text: impl fmt::Display) -> String {
    format!("<p>{}</p>\n", Text(text))
}

/// A sub-heading, for the name of a run among several.
pub fn subheading(text: impl fmt::Display) -> String {
    format!("<h3>{}</h3>\n", Text(text))
}

/// How every page begins.
const BEGINNING: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    <meta name=\"color-scheme\" content=\"light dark\">\n<title>";

/// Whether the content of a file is that of a page.
pub fn is_page(content: &[u8]) -> bool {
    content.starts_with(BEGINNING.as_bytes())
}

/// The whole page.
pub(super) fn page(title: &str, header: &str, sections: &[Section]) -> Result<String, ReportError> {
    let mut body = String::new();
    for section in sections {
        write!(body, "<section>\n<h2>{}</h2>\n{}", Text(&section.title), section.html).expect("writing to a string");
        if !section.figures.is_empty() {
            body.push_str("<div class=\"figures\">\n");
            for figure in &section.figures {
                body.push_str(&figure.html()?);
            }
            body.push_str("</div>\n");
        }
        body.push_str(&section.details);
        body.push_str("</section>\n");
    }
    Ok(format!(
        "{BEGINNING}{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<header>\n{header}</header>\n<main>\n{body}</main>\n\
         </body>\n</html>\n",
        Text(title),
        include_str!("style.css"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_everywhere() {
        let hostile = "<script>alert('x')</script> & \"y\"";
        let made = [
            table(&[Cell::text(hostile)], &[vec![Cell::number(hostile).with_note(hostile).best(true)]]),
            facts(&[(hostile.into(), hostile.into())]),
            paragraph(hostile),
            subheading(hostile),
            page(hostile, "", &[Section { title: hostile.into(), ..Section::default() }]).unwrap(),
        ];
        for html in made {
            assert!(!html.contains("<script"), "{html}");
            assert!(html.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;"), "{html}");
        }
    }
}
