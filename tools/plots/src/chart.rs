//! What every chart can do: become SVG or PNG.

use crate::frame::Frame;
use crate::header::BODY_EM;
use crate::palette::MUTED;
use crate::scene::{Anchor, Scene};
use crate::{PlotError, render};

pub(crate) const DEFAULT_SIZE: (u32, u32) = (640, 400);

/// Turns a chart into a scene. Private, so that only this crate makes charts.
pub trait Draw {
    #[doc(hidden)]
    fn scene(&self) -> Scene;
}

/// A chart that can be written as SVG and as PNG. Both are drawn by the same code.
pub trait Chart: Draw {
    /// The chart as a self-contained SVG document with text as text. Nothing in it refers to anything outside.
    ///
    /// # Errors
    /// [`PlotError::Size`] when the chart is too small or too large.
    fn to_svg(&self) -> Result<String, PlotError> {
        render::to_svg(&self.scene())
    }

    /// The chart as the bytes of a PNG file, with two pixels per pixel of the chart's size.
    ///
    /// # Errors
    /// [`PlotError::Size`] when the chart is too small or too large, [`PlotError::Encode`] if the encoder fails.
    fn to_png(&self) -> Result<Vec<u8>, PlotError> {
        render::to_png(&self.scene())
    }
}

pub(crate) fn description(title: &str, subtitle: &str) -> String {
    match (title.is_empty(), subtitle.is_empty()) {
        (true, _) => subtitle.to_owned(),
        (false, true) => title.to_owned(),
        (false, false) => format!("{title}. {subtitle}"),
    }
}

/// Says in the middle of the frame that there is nothing in it.
pub(crate) fn no_data(scene: &mut Scene, frame: &Frame) {
    let area = frame.area;
    let at = (f64::midpoint(area.left, area.right), f64::midpoint(area.top, area.bottom) + 4.0);
    scene.text(at, "no data", BODY_EM, MUTED, Anchor::Middle);
}
