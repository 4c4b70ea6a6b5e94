//! Axes: what the caller says about one, the range it ends up with, and its mapping to pixels.

use std::ops::RangeInclusive;

/// How values map to distance along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances for equal differences.
    #[default]
    Linear,
    /// Equal distances for equal ratios, ticks at powers of ten. Values that are not positive are left out.
    Log10,
    /// The same with ticks at powers of two, for sizes such as ranks and lengths.
    Log2,
}

/// An axis of a chart.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) include: Vec<f64>,
    pub(crate) integers: bool,
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis with `label`, which should name the unit: `"time (s)"`.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    /// Sets the scale.
    pub fn scale(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self
    }

    /// Fixes the ends of the axis instead of deriving them from the data, which is cut off outside. Ends that are not
    /// finite, equal, or not positive on a logarithmic axis are ignored.
    pub fn range(mut self, range: RangeInclusive<f64>) -> Self {
        self.range = Some((*range.start(), *range.end()));
        self
    }

    /// Makes the axis reach at least as far as `value`.
    pub fn include(mut self, value: f64) -> Self {
        self.include.push(value);
        self
    }

    /// Puts ticks at whole numbers only: steps, layers, indices.
    pub fn integers(mut self) -> Self {
        self.integers = true;
        self
    }

    /// Puts the ticks of a horizontal axis at these values, with these labels, where all of them have room; else they are as usual.
    pub fn ticks<S: Into<String>>(mut self, ticks: impl IntoIterator<Item = (f64, S)>) -> Self {
        self.ticks = ticks.into_iter().map(|(value, label)| (value, label.into())).collect();
        self.ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        self
    }
}

/// Magnitudes beyond this are left out like NaN: differences and paddings of them would overflow.
const LARGEST: f64 = 1e300;

impl Scale {
    /// Whether a value can be drawn on this scale.
    pub(crate) fn admits(self, value: f64) -> bool {
        value.abs() <= LARGEST && (self == Self::Linear || value > 0.0)
    }

    fn forward(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log10 => value.log10(),
            Self::Log2 => value.log2(),
        }
    }

    fn back(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log10 => 10_f64.powf(value),
            Self::Log2 => value.exp2(),
        }
    }
}

/// A scale with its ends, from values to `0..=1`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub scale: Scale,
    /// The ends, as values of the axis.
    pub low: f64,
    pub high: f64,
}

impl Mapping {
    /// The ends that show all of `values` (those the scale admits) and what the axis asks for. With `from_zero`, a
    /// linear axis starts or ends at zero where the values allow, as bars need. `None` when there is nothing to show.
    pub(crate) fn fit(axis: &Axis, values: impl Iterator<Item = f64>, from_zero: bool) -> Option<Self> {
        let scale = axis.scale;
        let fixed = axis.range.filter(|&(a, b)| scale.admits(a) && scale.admits(b) && a < b);
        if let Some((low, high)) = fixed {
            return Some(Self { scale, low, high }.widened());
        }
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.chain(axis.include.iter().copied()).filter(|&v| scale.admits(v)) {
            low = low.min(v);
            high = high.max(v);
        }
        if low > high {
            return None;
        }
        let zero_based = from_zero && scale == Scale::Linear;
        if zero_based {
            low = low.min(0.0);
            high = high.max(0.0);
        }
        let exact = Self { scale, low, high }.widened();
        Some(exact.spread(0.04, zero_based))
    }

    /// Adds `share` of its length to each end that is not the zero on which bars stand.
    pub(crate) fn aired(self, share: f64) -> Self {
        self.spread(share, self.scale == Scale::Linear)
    }

    fn spread(self, share: f64, keep_zero: bool) -> Self {
        let Self { scale, low, high } = self;
        let (a, b) = self.exponents();
        let air = (b - a) * share;
        let keep = |end: f64| keep_zero && end == 0.0;
        let low = if keep(low) { low } else { scale.back(a - air).max(smallest(scale)) };
        let high = if keep(high) { high } else { scale.back(b + air).min(f64::MAX) };
        Self { scale, low, high }
    }

    /// The range of a chart without data.
    pub(crate) fn empty(scale: Scale) -> Self {
        let (low, high) = if scale == Scale::Linear { (0.0, 1.0) } else { (1.0, 10.0) };
        Self { scale, low, high }
    }

    /// Opens a range that is a point, or so narrow that f64 cannot place ticks in it.
    fn widened(self) -> Self {
        let Self { scale, low, high } = self;
        if scale == Scale::Linear {
            let size = low.abs().max(high.abs());
            if high - low > size * 1e-11 {
                return self;
            }
            let half = if size == 0.0 { 1.0 } else { size * 0.5 };
            Self { scale, low: low - half, high: high + half }
        } else if high / low > 1.0 + 1e-9 {
            self
        } else {
            Self { scale, low: (low / 2.0).max(smallest(scale)), high: high * 2.0 }
        }
    }

    /// Position of `value` along the axis: 0 at the low end, 1 at the high end, beyond them outside.
    pub(crate) fn unit(&self, value: f64) -> f64 {
        let (a, b) = (self.scale.forward(self.low), self.scale.forward(self.high));
        (self.scale.forward(value) - a) / (b - a)
    }

    /// Powers of the logarithmic base at the two ends.
    pub(crate) fn exponents(&self) -> (f64, f64) {
        (self.scale.forward(self.low), self.scale.forward(self.high))
    }

    pub(crate) fn contains(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.unit(value))
    }
}

fn smallest(scale: Scale) -> f64 {
    if scale == Scale::Linear { -f64::MAX } else { f64::from_bits(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(axis: &Axis, values: &[f64]) -> Option<Mapping> {
        Mapping::fit(axis, values.iter().copied(), false)
    }

    #[test]
    fn values_that_cannot_be_drawn_do_not_count() {
        let axis = Axis::new("").scale(Scale::Log10);
        let m = fit(&axis, &[f64::NAN, 0.0, -4.0, f64::INFINITY, 1.0, 100.0]).unwrap();
        assert!(m.low > 0.5 && m.low < 1.0 && m.high > 100.0 && m.high < 200.0, "{m:?}");
        assert!(fit(&axis, &[0.0, -1.0, f64::NAN]).is_none());
    }

    #[test]
    fn a_single_value_gets_a_range_around_it() {
        for (scale, v) in [(Scale::Linear, 0.0), (Scale::Linear, -3.5), (Scale::Log10, 1e-9), (Scale::Log2, 64.0)] {
            let m = fit(&Axis::new("").scale(scale), &[v]).unwrap();
            assert!(m.low < v && v < m.high && m.contains(v), "{scale:?} {v}: {m:?}");
        }
    }

    #[test]
    fn bars_stand_on_zero() {
        let m = Mapping::fit(&Axis::new(""), [2.0, 5.0].into_iter(), true).unwrap();
        assert_eq!(m.low, 0.0);
        let m = Mapping::fit(&Axis::new(""), [-2.0, -5.0].into_iter(), true).unwrap();
        assert_eq!(m.high, 0.0);
    }

    #[test]
    fn bad_fixed_ranges_are_ignored() {
        for bad in [f64::NAN..=1.0, 3.0..=3.0, 5.0..=2.0, 0.0..=f64::INFINITY] {
            let m = fit(&Axis::new("").range(bad), &[0.0, 10.0]).unwrap();
            assert!(m.low < 0.0 && m.high > 10.0, "{m:?}");
        }
        assert!(fit(&Axis::new("").scale(Scale::Log10).range(0.0..=1.0), &[10.0, 20.0]).unwrap().low > 5.0);
        let m = fit(&Axis::new("").range(0.0..=1.0), &[-5.0, 0.5]).unwrap();
        assert_eq!((m.low, m.high), (0.0, 1.0));
    }
}
