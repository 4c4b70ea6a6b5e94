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
    within: usize,
}

impl Table {
    /// A table without rows, with a name and an alignment for each column.
    pub fn new<S: Into<String>>(headers: impl IntoIterator<Item = (S, Align)>) -> Self {
        let headers = headers.into_iter().map(|(name, align)| (name.into(), align)).collect();
        Self { headers, rows: Vec::new(), within: usize::MAX }
    }

    /// Breaks lines of more than `width` columns: what does not fit is a further table below, with the first column again.
    pub fn within(mut self, width: usize) -> Self {
        self.within = width;
        self
    }

    /// The columns of the tables that this one is printed as.
    fn blocks(&self, widths: &[usize]) -> Vec<Vec<usize>> {
        let first = widths.first().copied().unwrap_or(0);
        let mut blocks = vec![vec![0]];
        let mut line = first;
        for (c, width) in widths.iter().enumerate().skip(1) {
            line += 2 + width;
            match blocks.last_mut() {
                Some(block) if block.len() == 1 || line <= self.within => block.push(c),
                _ => {
                    blocks.push(vec![0, c]);
                    line = first + 2 + width;
                }
            }
        }
        blocks
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
        let write_row = |f: &mut fmt::Formatter<'_>, columns: &[usize], cell: &dyn Fn(usize) -> String| {
            let mut line = String::new();
            for (i, &c) in columns.iter().enumerate() {
                let cell = cell(c);
                let fill = " ".repeat(widths[c] - cell.width());
                line += if i == 0 { "" } else { "  " };
                match self.headers[c].1 {
                    Align::Left => line += &(cell + &fill),
                    Align::Right => line += &(fill + &cell),
                }
            }
            writeln!(f, "{}", line.trim_end())
        };
        if self.headers.is_empty() {
            return Ok(());
        }
        for (i, columns) in self.blocks(&widths).iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write_row(f, columns, &|c| self.headers[c].0.clone())?;
            write_row(f, columns, &|c| "─".repeat(widths[c]))?;
            // Tables below the first one leave out rows that have no cell in them.
            let told = |row: &&Vec<String>| i == 0 || columns[1..].iter().any(|&c| !row[c].is_empty());
            self.rows.iter().filter(told).try_for_each(|row| write_row(f, columns, &|c| row[c].clone()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_cells() {
        let mut table = Table::new([("σ", Align::Right), ("name", Align::Left), ("d̂", Align::Right)]);
        table.row(["1.25", "層", "6"]);
        table.row(["10.5", "longer name"]);
        table.row(["1", "a\nb", "12", "surplus"]);
        let expected = "   σ  name          d̂\n────  ───────────  ──\n1.25  層            6\n10.5  longer name\n   1  a b          12\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn columns_that_do_not_fit_are_a_table_below() {
        let mut table =
            Table::new([("", Align::Left), ("one", Align::Right), ("two", Align::Right), ("three", Align::Left)]);
        table.row(["a", "1", "2", "3"]);
        table.row(["b", "4"]);
        let expected = "   one  two\n─  ───  ───\na    1    2\nb    4\n\n   three\n─  ─────\na  3\n";
        assert_eq!(table.clone().within(12).to_string(), expected);
        assert!(table.clone().within(19).to_string().lines().count() == 4);
        // A column that is too wide for itself is printed all the same.
        assert_eq!(table.within(1).to_string().lines().count(), 12);
    }
}
