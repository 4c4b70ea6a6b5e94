//! What can go wrong when a chart is written.

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
    /// The drawing library refused a shape or the embedded font.
    #[error("drawing failed: {0}")]
    Draw(String),
    /// The PNG encoder failed.
    #[error("PNG encoding failed: {0}")]
    Encode(#[from] png::EncodingError),
}
