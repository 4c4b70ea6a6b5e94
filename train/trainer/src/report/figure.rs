//! A chart with a caption, in the page and as files.

use hankel_plots::{BarChart, Chart, PlotError, XyChart};
use std::collections::BTreeSet;

use super::html::Text;

/// Size of the files and of the drawing in the page, and of the drawing for narrow screens.
const WIDE: (u32, u32) = (600, 380);
const NARROW: (u32, u32) = (340, 320);

/// A chart of either kind.
#[derive(Debug, Clone)]
pub enum AnyChart {
    /// Lines and points.
    Xy(XyChart),
    /// Bars.
    Bar(BarChart),
}

impl AnyChart {
    fn sized(&self, (width, height): (u32, u32)) -> Box<dyn Chart> {
        match self {
            Self::Xy(chart) => Box::new(chart.clone().size(width, height)),
            Self::Bar(chart) => Box::new(chart.clone().size(width, height)),
        }
    }
}

/// A chart of the report.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Stem of its file names; a report numbers those that it has several times.
    pub name: String,
    /// What the reader sees in it, as plain text.
    pub caption: String,
    /// The chart.
    pub chart: AnyChart,
}

/// Numbers names that are there already: names of rows and points of the grid that differ can be the same in a file name, and
/// files are written at the same time.
pub(super) fn number_repeated_names<'a>(figures: impl Iterator<Item = &'a mut Figure>) {
    let mut taken = BTreeSet::new();
    for figure in figures {
        let mut numbered = (2..).map(|n| format!("{}-{n}", figure.name));
        let is_free = taken.insert(figure.name.clone());
        if !is_free && let Some(name) = numbered.find(|name| taken.insert(name.clone())) {
            figure.name = name;
        }
    }
}

impl Figure {
    /// A figure of lines and points.
    pub fn xy(name: impl Into<String>, caption: impl Into<String>, chart: XyChart) -> Self {
        Self { name: name.into(), caption: caption.into(), chart: AnyChart::Xy(chart) }
    }

    /// A figure of bars.
    pub fn bar(name: impl Into<String>, caption: impl Into<String>, chart: BarChart) -> Self {
        Self { name: name.into(), caption: caption.into(), chart: AnyChart::Bar(chart) }
    }

    /// Its numbers as comma-separated values.
    pub fn to_csv(&self) -> String {
        match &self.chart {
            AnyChart::Xy(chart) => chart.to_csv(),
            AnyChart::Bar(chart) => chart.to_csv(),
        }
    }

    /// Names and contents of its files: `NAME.svg`, `NAME.png` and, with its numbers, `NAME.csv`.
    pub(super) fn files(&self) -> Result<[(String, Vec<u8>); 3], PlotError> {
        let chart = self.chart.sized(WIDE);
        let named = |extension: &str, content: Vec<u8>| (format!("{}.{extension}", self.name), content);
        Ok([
            named("svg", chart.to_svg()?.into_bytes()),
            named("png", chart.to_png()?),
            named("csv", self.to_csv().into_bytes()),
        ])
    }

    /// The figure drawn twice, for wide and narrow screens; the style sheet shows one of them.
    pub(super) fn html(&self) -> Result<String, PlotError> {
        let wide = self.chart.sized(WIDE).to_svg()?;
        let narrow = self.chart.sized(NARROW).to_svg()?;
        let caption = if self.caption.is_empty() {
            String::new()
        } else {
            format!("<figcaption>{}</figcaption>", Text(&self.caption))
        };
        Ok(format!("<figure><div class=\"wide\">{wide}</div><div class=\"narrow\">{narrow}</div>{caption}</figure>\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_are_numbered() {
        let mut figures: Vec<Figure> =
            ["a", "b", "a", "a-2", "a"].map(|name| Figure::xy(name, "", XyChart::new(""))).into();
        number_repeated_names(figures.iter_mut());
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "a-2", "a-2-2", "a-3"]);
    }
}
