//! Charts from plain numbers, as SVG, PNG and terminal text. Knows nothing of models.
//!
//! ```
//! use hankel_plots::{Axis, Chart, Scale, Series, XyChart};
//!
//! let values = [3.1, 0.9, 0.2, 0.015, 0.0004];
//! let chart = XyChart::new("Hankel singular values")
//!     .x(Axis::new("index i").integers())
//!     .y(Axis::new("σᵢ").scale(Scale::Log10))
//!     .series(Series::line_and_points("layer 0", values.iter().enumerate().map(|(i, s)| (i as f64 + 1.0, *s))))
//!     .horizontal_line(0.031, "ε = 0.01");
//! let svg = chart.to_svg()?;
//! assert!(svg.starts_with("<svg"));
//! # Ok::<(), hankel_plots::PlotError>(())
//! ```
//!
//! A chart becomes a scene (shapes and texts at pixel coordinates), and the scene is replayed through `plotters` into
//! either format. Layout is done here, so that legends, reference labels and axis labels stay clear of the data and of
//! each other. The font is embedded: no font is looked up, and no system library is needed.

mod axis;
mod bar;
mod chart;
mod clip;
mod csv;
mod error;
mod font;
mod forest;
mod frame;
mod header;
#[cfg(test)]
mod layout_tests;
mod palette;
mod reference;
mod render;
mod scene;
mod svg;
mod table;
pub mod terminal;
mod ticks;
mod xy;

pub use axis::{Axis, Scale};
pub use bar::BarChart;
pub use chart::Chart;
pub use error::PlotError;
pub use forest::{Estimated, ForestChart};
pub use palette::Ink;
pub use table::{Align, Table};
pub use xy::{Series, XyChart};

/// Shortest side of a chart in pixels.
pub const MIN_SIDE: u32 = 160;
/// Longest side of a chart in pixels.
pub const MAX_SIDE: u32 = 2000;
