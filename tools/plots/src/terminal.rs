//! Charts made of characters.

use std::fmt::Write as _;

use crate::ticks::number;

/// A decaying sequence (Hankel singular values) over its index, on a logarithmic axis, with the threshold below which
/// values are discarded and the number that is kept.
///
/// ```text
///  10⁰ ┤●●
///      │  ●●
/// 10⁻¹ ┤    ●●●
/// 10⁻² ┤┄┄┄┄┄┄┄●┊○┄┄┄┄┄ ε σ₁ = 0.031
/// 10⁻³ ┤        ┊ ○○○○
///      └┬─────────┬────
///       1         10     i   (8 of 13 kept)
/// ```
#[derive(Clone, Debug)]
pub struct DecayPlot<'a> {
    values: &'a [f64],
    kept: Option<usize>,
    threshold: Option<(f64, String)>,
    width: usize,
    height: usize,
}

/// Values this far below the largest are drawn at the bottom: they are rounding noise in f64.
const DECADES: f64 = 17.0;

impl<'a> DecayPlot<'a> {
    /// A plot of `values` in the order given, 64 columns by 10 rows inside its axes.
    pub fn new(values: &'a [f64]) -> Self {
        Self { values, kept: None, threshold: None, width: 64, height: 10 }
    }

    /// Marks how many of the values, from the first, are kept; the others are drawn hollow.
    pub fn kept(mut self, kept: usize) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Draws a line at `value`, with `label` at its right end.
    pub fn threshold(mut self, value: f64, label: impl Into<String>) -> Self {
        self.threshold = Some((value, label.into()));
        self
    }

    /// Sets the columns and rows inside the axes, at least 8 by 3.
    pub fn size(mut self, width: usize, height: usize) -> Self {
        (self.width, self.height) = (width.clamp(8, 400), height.clamp(3, 100));
        self
    }

    /// The plot as lines of text, each ended by a line break.
    pub fn render(&self) -> String {
        let drawable = |v: f64| v.is_finite() && v > 0.0;
        let largest = self.values.iter().copied().filter(|v| drawable(*v)).fold(0.0, f64::max);
        if largest == 0.0 {
            return format!("  no positive values to plot ({} in all)\n", self.values.len());
        }
        let floor = largest.log10() - DECADES;
        let logs = self.values.iter().filter(|v| drawable(**v)).map(|v| v.log10().max(floor));
        let threshold = self.threshold.as_ref().filter(|t| drawable(t.0) && t.0.log10() > floor);
        let low = logs.chain(threshold.map(|t| t.0.log10())).fold(f64::INFINITY, f64::min);
        let high = threshold.map_or(largest.log10(), |t| t.0.log10().max(largest.log10()));
        // Whole decades look calm, but must not waste most of the rows on a short range.
        let (low, high) = if high - low > 1.5 { (low.floor(), high.ceil()) } else { (low - 0.1, high + 0.1) };
        let row = |log: f64| ((high - log) / (high - low) * (self.height - 1) as f64).round() as usize;

        let columns = Columns::new(self.values.len(), self.width);
        let wide = columns.width();
        let mut grid = vec![vec![' '; wide]; self.height];
        if let Some((value, _)) = threshold {
            grid[row(value.log10())].fill('┄');
        }
        if let Some(x) = self.kept.filter(|k| *k > 0 && *k < self.values.len()).and_then(|k| columns.after(k)) {
            for line in &mut grid {
                line[x] = '┊';
            }
        }
        for (i, &value) in self.values.iter().enumerate() {
            let y = if drawable(value) { row(value.log10().max(floor)) } else { self.height - 1 };
            let glyph = match self.kept {
                _ if !drawable(value) => '·',
                Some(kept) if i >= kept => '○',
                _ => '●',
            };
            let cell = &mut grid[y][columns.at(i)];
            // Where several share a cell, what is kept is seen.
            if *cell != '●' {
                *cell = glyph;
            }
        }
        self.assemble(&grid, &columns, low, high, threshold.map(|(v, label)| (row(v.log10()), label.as_str())))
    }

    fn assemble(
        &self,
        grid: &[Vec<char>],
        columns: &Columns,
        low: f64,
        high: f64,
        mark: Option<(usize, &str)>,
    ) -> String {
        let labels = self.row_labels(low, high);
        let margin = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0) + 1;
        let mut out = String::new();
        for (y, line) in grid.iter().enumerate() {
            let text: String = line.iter().collect();
            let axis = if labels[y].is_empty() { '│' } else { '┤' };
            let note = mark.filter(|m| m.0 == y).map_or(String::new(), |m| format!(" {}", m.1));
            let fill = " ".repeat(margin - labels[y].chars().count());
            let row = format!("{fill}{} {axis}{text}{note}", labels[y]);
            writeln!(out, "{}", row.trim_end()).expect("writing to a string");
        }
        let (rule, numbers) = columns.scale(self.values.len());
        let note = match self.kept {
            Some(kept) => format!("   ({} of {} kept)", kept.min(self.values.len()), self.values.len()),
            None => String::new(),
        };
        let fill = " ".repeat(margin);
        writeln!(out, "{fill} └{rule}").expect("writing to a string");
        writeln!(out, "{fill}  {numbers}  i{note}").expect("writing to a string");
        out
    }

    /// A label for each row that is the nearest to a decade (or, in a short range, for the first and the last row).
    fn row_labels(&self, low: f64, high: f64) -> Vec<String> {
        let last = (self.height - 1) as f64;
        let mut labels = vec![String::new(); self.height];
        if high - low < 1.5 {
            labels[0] = short(10_f64.powf(high));
            labels[self.height - 1] = short(10_f64.powf(low));
            return labels;
        }
        let every = ((high - low) / last).ceil().max(1.0) as i32;
        for e in (low as i32..=high as i32).rev().filter(|e| e.rem_euclid(every) == 0) {
            let y = ((high - f64::from(e)) / (high - low) * last).round() as usize;
            labels[y] = crate::ticks::power_of_ten(e);
        }
        labels
    }
}

/// Three significant digits.
fn short(value: f64) -> String {
    let e = value.log10().floor() as i32;
    if (-4..4).contains(&e) { number(value, usize::try_from(2 - e).unwrap_or(0)) } else { format!("{value:.1e}") }
}

/// Which column of characters an index falls into: two or three columns per value when there is room (so that the cut
/// goes between values), one, or several values per column.
struct Columns {
    per_value: usize,
    values_per: usize,
    used: usize,
}

impl Columns {
    fn new(values: usize, room: usize) -> Self {
        let per_value = (room / values.max(1)).clamp(1, 3);
        let values_per = values.div_ceil(room).max(1);
        let used = if values_per > 1 { values.div_ceil(values_per) } else { values * per_value };
        Self { per_value, values_per, used }
    }

    fn width(&self) -> usize {
        self.used
    }

    fn at(&self, index: usize) -> usize {
        if self.values_per > 1 { index / self.values_per } else { index * self.per_value }
    }

    /// The column between value `kept - 1` and value `kept`, if there is one.
    fn after(&self, kept: usize) -> Option<usize> {
        (self.per_value > 1).then(|| kept * self.per_value - 1)
    }

    /// The rule under the plot and the numbers under it: indices from one, at steps that leave room.
    fn scale(&self, values: usize) -> (String, String) {
        let step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
            .into_iter()
            .find(|s| s * self.per_value / self.values_per >= 8)
            .unwrap_or(values.max(1));
        let mut rule = vec!['─'; self.used];
        let mut numbers = String::new();
        let ticks = (0..values).filter(|i| *i == 0 || (i + 1) % step == 0);
        for i in ticks {
            let x = self.at(i);
            let written = numbers.chars().count();
            if written > 0 && written >= x {
                continue;
            }
            rule[x] = '┬';
            numbers += &" ".repeat(x - written);
            numbers += &(i + 1).to_string();
        }
        (rule.into_iter().collect(), numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_geometric_decay_falls_on_the_diagonal() {
        let values: Vec<f64> = (0..10).map(|i| 10_f64.powi(-i)).collect();
        let plot = DecayPlot::new(&values).kept(4).threshold(1e-4, "ε").size(20, 10).render();
        let expected = "  10⁰ ┤●      ┊
 10⁻¹ ┤  ●    ┊
 10⁻² ┤    ●  ┊
 10⁻³ ┤      ●┊
 10⁻⁴ ┤┄┄┄┄┄┄┄┊○┄┄┄┄┄┄┄┄┄┄┄ ε
 10⁻⁵ ┤       ┊  ○
 10⁻⁶ ┤       ┊    ○
 10⁻⁷ ┤       ┊      ○
 10⁻⁸ ┤       ┊        ○
 10⁻⁹ ┤       ┊          ○
      └┬───────┬─────────┬─
       1       5         10  i   (4 of 10 kept)
";
        assert_eq!(plot, expected, "\n{plot}");
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert!(DecayPlot::new(&[]).render().contains("no positive values"));
        assert!(DecayPlot::new(&[0.0, f64::NAN]).render().contains("(2 in all)"));
    }

    #[test]
    fn zeros_lie_at_the_bottom() {
        let plot = DecayPlot::new(&[1.0, 0.1, 0.0]).kept(2).size(12, 5).render();
        assert!(plot.lines().nth(4).unwrap().contains('·'), "{plot}");
    }

    proptest! {
        #[test]
        fn any_values_give_a_plot_of_the_asked_height(
            values in prop::collection::vec(prop_oneof![any::<f64>(), 0.0..1.0], 1..300),
            kept in 0_usize..310, threshold: f64, width in 0_usize..120, height in 0_usize..30,
        ) {
            let text = DecayPlot::new(&values).kept(kept).threshold(threshold, "t").size(width, height).render();
            if values.iter().any(|v| v.is_finite() && *v > 0.0) {
                prop_assert_eq!(text.lines().count(), height.clamp(3, 100) + 2);
            }
        }
    }
}
