//! Where the ticks of an axis go, and what is written at them.

use crate::axis::{Mapping, Scale};

/// What is written at a tick.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Label {
    Plain(String),
    /// Set as a base with a raised exponent.
    Power {
        base: u32,
        exponent: i32,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Ticks {
    /// Values with labels.
    pub major: Vec<(f64, Label)>,
    /// Values between them, on logarithmic axes.
    pub minor: Vec<f64>,
    /// Power of ten by which all labels are divided, to be named in the axis label.
    pub exponent: i32,
}

/// About `count` ticks for `mapping`; with `integers` only whole numbers.
pub(crate) fn ticks(mapping: &Mapping, count: usize, integers: bool) -> Ticks {
    match mapping.scale {
        Scale::Linear => linear(mapping, count, integers),
        Scale::Log10 => logarithmic(mapping, count, 10),
        Scale::Log2 => logarithmic(mapping, count, 2),
    }
}

fn linear(mapping: &Mapping, count: usize, integers: bool) -> Ticks {
    let (low, high) = (mapping.low, mapping.high);
    let count = count.max(1) as f64;
    let mut step = nice_step((high - low) / count);
    if integers {
        step = step.max(1.0);
        if step == 2.5 {
            step = 2.0;
        }
    }
    let exponent = common_exponent(low.abs().max(high.abs()));
    let unit = 10_f64.powi(exponent);
    let decimals = decimals(step / unit);
    // Ticks are whole multiples of the step, so that no rounding error accumulates.
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    let n = (last - first).clamp(0.0, 4.0 * count + 4.0) as usize;
    let major = (0..=n)
        .map(|i| (first + i as f64) * step)
        .filter(|v| mapping.contains(*v))
        .map(|v| (v, Label::Plain(number(v / unit, decimals))))
        .collect();
    Ticks { major, minor: Vec::new(), exponent }
}

/// The nearest, by ratio, of 1, 2, 2.5, 5 times a power of ten.
fn nice_step(raw: f64) -> f64 {
    let raw = raw.max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(raw.log10().floor()).max(f64::MIN_POSITIVE);
    let distance = |step: f64| (step / raw).ln().abs();
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power);
    steps.into_iter().min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(power)
}

/// Values from a thousandth to just below a million are written out; others share a power of ten, a multiple of three.
fn common_exponent(largest: f64) -> i32 {
    if largest == 0.0 || (1e-3..1e6).contains(&largest) {
        0
    } else {
        // 10^-306 and below would make the unit subnormal.
        ((largest.log10() / 3.0).floor() as i32 * 3).clamp(-306, 300)
    }
}

fn decimals(step: f64) -> usize {
    (0..12)
        .find(|&d| {
            let scaled = step * 10_f64.powi(d);
            (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1.0) && scaled.round() >= 1.0
        })
        .unwrap_or(12) as usize
}

/// A number with a true minus sign, and commas between thousands from 10,000 on.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let mut out = String::new();
    if value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('−');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && whole.len() > 4 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

fn logarithmic(mapping: &Mapping, count: usize, base: u32) -> Ticks {
    let (a, b) = mapping.exponents();
    let (first, last) = ((a - 1e-9).ceil() as i32, (b + 1e-9).floor() as i32);
    let power = |e: i32| f64::from(base).powi(e);
    let whole = last - first + 1;
    if whole < 2 {
        return within_a_decade(mapping, count, base);
    }
    // Every power, or every second, third ...; aligned so that 10^0 keeps its tick when it is on the axis.
    let every = (whole as usize).div_ceil(count.max(2)) as i32;
    let shown: Vec<i32> = (first..=last).filter(|e| e.rem_euclid(every) == 0).collect();
    let limit = if base == 10 { 3 } else { 16 };
    let plain = shown.iter().all(|e| if base == 10 { e.abs() <= limit } else { (-1..=limit).contains(e) });
    let label = |e: i32| {
        if plain {
            let digits = if base == 2 && e == -1 { 1 } else { usize::try_from(-e).unwrap_or(0) };
            Label::Plain(number(power(e), digits))
        } else {
            Label::Power { base, exponent: e }
        }
    };
    let minor = if every == 1 && base == 10 {
        ((first - 1)..=last)
            .flat_map(|e| (2..10).map(move |m| f64::from(m) * power(e)))
            .filter(|v| mapping.contains(*v))
            .collect()
    } else if every > 1 {
        (first..=last).filter(|e| e.rem_euclid(every) != 0).map(power).collect()
    } else {
        Vec::new()
    };
    Ticks { major: shown.into_iter().map(|e| (power(e), label(e))).collect(), minor, exponent: 0 }
}

/// A logarithmic axis that holds fewer than two powers of its base: labels at 1, 2, 5 times powers of ten where three of
/// them fit, and at the ticks of a linear axis otherwise.
fn within_a_decade(mapping: &Mapping, count: usize, base: u32) -> Ticks {
    let (low, high) = (mapping.low.log10(), mapping.high.log10());
    let exponents = low.floor() as i32..=high.ceil() as i32;
    let multiples = |of: &[i32]| -> Vec<f64> {
        exponents
            .clone()
            .flat_map(|e| of.iter().map(move |m| f64::from(*m) * 10_f64.powi(e)).collect::<Vec<_>>())
            .filter(|v| mapping.contains(*v))
            .collect()
    };
    let coarse = if base == 10 { multiples(&[1, 2, 5]) } else { Vec::new() };
    if coarse.len() < 3 || coarse.len() > count.max(3) {
        return Ticks { minor: Vec::new(), ..linear(mapping, count, false) };
    }
    let exponent = common_exponent(mapping.high);
    let unit = 10_f64.powi(exponent);
    let digits = coarse.iter().map(|v| decimals(v / unit)).max().unwrap_or(0);
    let minor = multiples(&[1, 2, 3, 4, 5, 6, 7, 8, 9]).into_iter().filter(|v| !coarse.contains(v)).collect();
    let major = coarse.into_iter().map(|v| (v, Label::Plain(number(v / unit, digits)))).collect();
    Ticks { major, minor, exponent }
}

/// `10³`, for the label of an axis whose ticks share a power of ten.
pub(crate) fn power_of_ten(exponent: i32) -> String {
    let mut out = String::from("10");
    for c in exponent.to_string().chars() {
        out.push(match c {
            '-' => '⁻',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            '9' => '⁹',
            _ => '⁰',
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(scale: Scale, low: f64, high: f64, count: usize) -> Vec<String> {
        ticks(&Mapping { scale, low, high }, count, false)
            .major
            .into_iter()
            .map(|(_, label)| match label {
                Label::Plain(text) => text,
                Label::Power { base, exponent } => format!("{base}^{exponent}"),
            })
            .collect()
    }

    #[test]
    fn linear_ticks_are_round_numbers() {
        assert_eq!(labels(Scale::Linear, 0.0, 1.0, 5), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(Scale::Linear, -0.1, 0.1, 4), ["−0.10", "−0.05", "0.00", "0.05", "0.10"]);
        assert_eq!(labels(Scale::Linear, 0.0, 20_000.0, 4), ["0", "5000", "10,000", "15,000", "20,000"]);
        assert_eq!(labels(Scale::Linear, 3.0, 13.0, 4), ["5.0", "7.5", "10.0", "12.5"]);
    }

    #[test]
    fn very_large_and_small_values_share_a_power() {
        let t = ticks(&Mapping { scale: Scale::Linear, low: 0.0, high: 8.4e6 }, 4, false);
        assert_eq!(t.exponent, 6);
        assert_eq!(t.major[1].1, Label::Plain("2".into()));
        let t = ticks(&Mapping { scale: Scale::Linear, low: 0.0, high: 4e-5 }, 4, false);
        assert_eq!((t.exponent, t.major.last().unwrap().1.clone()), (-6, Label::Plain("40".into())));
        assert_eq!(power_of_ten(-306), "10⁻³⁰⁶");
    }

    #[test]
    fn whole_numbers_only() {
        let t = ticks(&Mapping { scale: Scale::Linear, low: 0.0, high: 3.0 }, 10, true);
        assert_eq!(t.major.iter().map(|t| t.0).collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0]);
        let t = ticks(&Mapping { scale: Scale::Linear, low: 0.0, high: 11.0 }, 5, true);
        assert!(t.major.iter().all(|(v, _)| v.fract() == 0.0), "{t:?}");
    }

    #[test]
    fn logarithmic_ticks_are_powers() {
        assert_eq!(labels(Scale::Log10, 0.005, 200.0, 6), ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(labels(Scale::Log10, 1e-8, 1.0, 5), ["10^-8", "10^-6", "10^-4", "10^-2", "10^0"]);
        assert_eq!(labels(Scale::Log2, 4.0, 128.0, 8), ["4", "8", "16", "32", "64", "128"]);
        assert_eq!(labels(Scale::Log10, 0.9, 8.0, 5), ["1", "2", "5"]);
        assert_eq!(labels(Scale::Log10, 3.0, 3.5, 4), ["3.0", "3.1", "3.2", "3.3", "3.4", "3.5"]);
    }

    proptest! {
        #[test]
        fn ticks_are_inside_sorted_and_few(
            scale in prop_oneof![Just(Scale::Linear), Just(Scale::Log10), Just(Scale::Log2)],
            a in -300.0..299.0_f64, width in 0.001..300.0_f64, count in 1_usize..12, integers: bool,
        ) {
            let mapping = Mapping { scale, low: 10_f64.powf(a), high: 10_f64.powf((a + width).min(300.0)) };
            let t = ticks(&mapping, count, integers);
            prop_assert!(t.major.len() <= 4 * count + 6, "{} ticks", t.major.len());
            prop_assert!(t.major.windows(2).all(|w| w[0].0 < w[1].0));
            prop_assert!(t.major.iter().all(|(v, _)| mapping.contains(*v)));
            prop_assert!(t.minor.iter().all(|v| mapping.contains(*v)));
            let texts: Vec<_> = t.major.iter().map(|t| format!("{:?}", t.1)).collect();
            prop_assert!(texts.windows(2).all(|w| w[0] != w[1]), "repeated label in {texts:?}");
        }
    }
}
