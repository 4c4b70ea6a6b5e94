//! Aligned tables for the terminal.

use std::fmt;
use unicode_width::UnicodeWidthStr;

/// To which side the cells of a column are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Text.
    #[default]
    Left,
    /// Numbers.
    Right,
}

/// A table of text cells, printed by its `Display` with a rule under the header.
///
/// ```
/// use hankel_plots::{Align, Table};
/// let mut table = Table::new([("adapter", Align::Left), ("parameters", Align::Right)]);
/// table.row(["hrm", "33,028"]);
/// table.row(["lora", "32,768"]);
/// assert_eq!(
///     table.to_string(),
///     "adapter  parameters\n───────  ──────────\nhrm          33,028\nlora         32,768\n"
/// );
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    headers: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// A table without rows, with a name and an alignment for each column.
    pub fn new<S: Into<String>>(headers: impl IntoIterator<Item = (S, Align)>) -> Self {
        let headers = headers.into_iter().map(|(name, align)| (name.into(), align)).collect();
        Self { headers, rows: Vec::new(), indent: 0 }
    }

    /// Sets every line this many spaces in.
    pub fn indent(mut self, spaces: usize) -> Self {
        self.indent = spaces;
        self
    }

    /// Adds a row. Missing cells are empty, cells beyond the last column are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut cells: Vec<String> = cells.into_iter().map(|c| c.into().replace(char::is_control, " ")).collect();
        cells.resize(self.headers.len(), String::new());
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |c: usize| {
            let cells = self.rows.iter().map(|r| r[c].width());
            cells.chain([self.headers[c].0.width()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headers.len()).map(width).collect();
        let write_row = |f: &mut fmt::Formatter<'_>, cells: &mut dyn Iterator<Item = &str>| {
            let mut line = " ".repeat(self.indent);
            for (c, cell) in cells.enumerate() {
                let fill = " ".repeat(widths[c] - cell.width());
                let gap = if c == 0 { "" } else { "  " };
                line += gap;
                match self.headers[c].1 {
                    Align::Left => line += &(cell.to_owned() + &fill),
                    Align::Right => line += &(fill + cell),
                }
            }
            writeln!(f, "{}", line.trim_end())
        };
        write_row(f, &mut self.headers.iter().map(|h| h.0.as_str()))?;
        let rules: Vec<String> = widths.iter().map(|w| "─".repeat(*w)).collect();
        write_row(f, &mut rules.iter().map(String::as_str))?;
        self.rows.iter().try_for_each(|row| write_row(f, &mut row.iter().map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_cells() {
        let mut table = Table::new([("σ", Align::Right), ("name", Align::Left), ("d̂", Align::Right)]).indent(2);
        table.row(["1.25", "層", "6"]);
        table.row(["10.5", "longer name"]);
        table.row(["1", "a\nb", "12", "surplus"]);
        let expected = "     σ  name          d̂\n  ────  ───────────  ──\n  1.25  層            6\n  10.5  longer name\n     1  a b          12\n";
        assert_eq!(table.to_string(), expected);
    }
}
