//! What can go wrong when a chart is written.

use std::path::{Path, PathBuf};

/// An error from rendering or saving a chart.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The requested size is outside what can be drawn legibly and held in memory.
    #[error(
        "a chart of {width} x {height} is outside the supported {min}..={max} pixels a side",
        min = crate::MIN_SIDE,
        max = crate::MAX_SIDE
    )]
    Size {
        /// Requested width in pixels.
        width: u32,
        /// Requested height in pixels.
        height: u32,
    },
    /// A path whose extension names no known format.
    #[error("{}: a chart is saved as .svg or .png; give the file one of these extensions", path.display())]
    Extension {
        /// The path as given.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("could not write the chart {}: {reason}", path.display())]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// Why the system refused.
        reason: std::io::Error,
    },
    /// The drawing library refused a shape or the embedded font.
    #[error("drawing failed: {0}")]
    Draw(String),
    /// The PNG encoder failed.
    #[error("PNG encoding failed: {0}")]
    Encode(#[from] png::EncodingError),
}

impl PlotError {
    pub(crate) fn write(path: &Path, reason: std::io::Error) -> Self {
        Self::Write { path: path.to_path_buf(), reason }
    }
}
