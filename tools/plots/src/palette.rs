//! Colours, dash patterns, markers and hatches, chosen so that a chart reads with any colour vision and in grey.
//!
//! The qualitative colours are those of Okabe and Ito, "Color Universal Design" (2008), without yellow, whose contrast
//! on white is 1.3 : 1. Ordered quantities (layers, say) take a ramp through viridis instead, cut before its pale end.

/// An sRGB colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rgb(pub u8, pub u8, pub u8);

impl Rgb {
    /// The opaque colour that `self` at opacity `alpha` gives on white.
    pub(crate) fn tint(self, alpha: f64) -> Self {
        let mix = |c: u8| (255.0 + (f64::from(c) - 255.0) * alpha).round() as u8;
        Self(mix(self.0), mix(self.1), mix(self.2))
    }
}

/// The paper under everything.
pub(crate) const PAPER: Rgb = Rgb(0xFF, 0xFF, 0xFF);
/// Titles and axis labels.
pub(crate) const TEXT: Rgb = Rgb(0x1F, 0x23, 0x28);
/// Tick labels, axis lines, reference lines.
pub(crate) const MUTED: Rgb = Rgb(0x57, 0x60, 0x6A);
/// Grid lines.
pub(crate) const GRID: Rgb = Rgb(0xE4, 0xE7, 0xEB);

const QUALITATIVE: [Rgb; 7] = [
    Rgb(0x00, 0x72, 0xB2), // blue
    Rgb(0xD5, 0x5E, 0x00), // vermillion
    Rgb(0x00, 0x9E, 0x73), // bluish green
    Rgb(0xCC, 0x79, 0xA7), // reddish purple
    Rgb(0xE6, 0x9F, 0x00), // orange
    Rgb(0x56, 0xB4, 0xE9), // sky blue
    Rgb(0x3B, 0x3B, 0x3B), // black
];

/// Viridis at 0, 1/8 ... 6/8; its last quarter is too pale for lines on white.
const RAMP: [Rgb; 7] = [
    Rgb(0x44, 0x01, 0x54),
    Rgb(0x47, 0x2D, 0x7B),
    Rgb(0x3B, 0x52, 0x8B),
    Rgb(0x2C, 0x72, 0x8E),
    Rgb(0x21, 0x91, 0x8C),
    Rgb(0x28, 0xAE, 0x80),
    Rgb(0x5E, 0xC9, 0x62),
];

/// On and off lengths in pixels; the empty pattern is a solid line. Five patterns and seven colours: 35 distinct lines.
const DASHES: [&[f64]; 5] = [&[], &[7.0, 3.0], &[2.0, 2.5], &[9.0, 3.0, 2.0, 3.0], &[12.0, 3.0, 2.0, 3.0, 2.0, 3.0]];

/// Where a series takes its colour from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ink {
    /// A slot of the qualitative palette; the same slot is the same colour, dash and marker in every chart.
    Slot(usize),
    /// A position in `0..=1` on the ramp for ordered quantities. Always a solid line.
    Ramp(f64),
    /// Neutral grey, for context.
    Muted,
}

/// The shape of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Down,
    Plus,
}

/// The lines drawn over a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hatch {
    None,
    Rising,
    Falling,
    Crossed,
    Level,
}

impl Ink {
    pub(crate) fn color(self) -> Rgb {
        match self {
            Self::Slot(slot) => QUALITATIVE[slot % QUALITATIVE.len()],
            Self::Ramp(t) => ramp(t),
            Self::Muted => MUTED,
        }
    }

    pub(crate) fn dash(self) -> &'static [f64] {
        match self {
            Self::Slot(slot) => DASHES[slot % DASHES.len()],
            Self::Ramp(_) => &[],
            Self::Muted => DASHES[1],
        }
    }

    pub(crate) fn marker(self) -> Marker {
        const ALL: [Marker; 7] = [
            Marker::Circle,
            Marker::Square,
            Marker::Triangle,
            Marker::Diamond,
            Marker::Cross,
            Marker::Down,
            Marker::Plus,
        ];
        match self {
            // Shifted by one in each round of the colours, so that a repeated colour never repeats its marker.
            Self::Slot(slot) => ALL[(slot % 7 + slot / 7 % 7) % 7],
            Self::Ramp(_) | Self::Muted => Marker::Circle,
        }
    }

    pub(crate) fn hatch(self) -> Hatch {
        const ALL: [Hatch; 5] = [Hatch::None, Hatch::Rising, Hatch::Falling, Hatch::Crossed, Hatch::Level];
        match self {
            Self::Slot(slot) => ALL[slot % ALL.len()],
            Self::Ramp(_) | Self::Muted => Hatch::None,
        }
    }
}

fn ramp(t: f64) -> Rgb {
    let t = if t.is_nan() { 0.0 } else { t.clamp(0.0, 1.0) } * (RAMP.len() - 1) as f64;
    let i = (t as usize).min(RAMP.len() - 2);
    let f = t - i as f64;
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * f).round() as u8;
    let (a, b) = (RAMP[i], RAMP[i + 1]);
    Rgb(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_five_slots_are_distinct_lines() {
        let looks: Vec<_> = (0..35).map(|s| (Ink::Slot(s).color(), Ink::Slot(s).dash())).collect();
        for (i, a) in looks.iter().enumerate() {
            assert!(looks[..i].iter().all(|b| a != b), "slot {i} repeats an earlier look");
        }
    }

    #[test]
    fn a_repeated_colour_has_another_marker() {
        for s in 0..42 {
            assert_ne!(Ink::Slot(s).marker(), Ink::Slot(s + 7).marker(), "slot {s}");
        }
    }

    #[test]
    fn the_ramp_is_total_and_gets_lighter() {
        let luma = |Rgb(r, g, b): Rgb| 0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b);
        let steps: Vec<f64> = (0..=20).map(|i| luma(Ink::Ramp(f64::from(i) / 20.0).color())).collect();
        assert!(steps.windows(2).all(|w| w[1] > w[0]), "{steps:?}");
        assert_eq!(Ink::Ramp(-3.0).color(), Ink::Ramp(0.0).color());
        assert_eq!(Ink::Ramp(9.0).color(), Ink::Ramp(1.0).color());
        assert_eq!(Ink::Ramp(f64::NAN).color(), Ink::Ramp(0.0).color());
    }
}
