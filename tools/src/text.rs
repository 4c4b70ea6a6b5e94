//! Numbers, tables and little pictures for the terminal.

use hankel_plots::{Align, Table};

/// Columns of a terminal that tables fit into.
const WIDTH: usize = 80;

/// A table of these columns that fits into a terminal.
pub fn table<S: Into<String>>(columns: impl IntoIterator<Item = (S, Align)>) -> Table {
    Table::new(columns).within(WIDTH)
}

/// A number to four significant digits, in scientific notation where that is shorter.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        "0".into()
    } else if !(1e-3..1e5).contains(&magnitude) {
        format!("{value:.3e}")
    } else {
        let decimals = (3 - magnitude.log10().floor() as i32).max(0) as usize;
        format!("{value:.decimals$}")
    }
}

/// A number that is not below the value, to four significant digits: for upper ends.
pub fn number_above(value: f64) -> String {
    let text = number(value);
    let written: f64 = text.parse().unwrap_or(f64::NAN);
    if written >= value || value == 0.0 || !value.is_finite() {
        return text;
    }
    // One more in the last digit that is written.
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    let step = 10_f64.powi(exponent.parse().unwrap_or(0) - decimals);
    number(written + step)
}

/// One character per value, each step of height half a decade below the largest; `·` is below the lowest step.
pub fn decay(values: &[f64]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = values.first().copied().unwrap_or(0.0);
    values
        .iter()
        .map(|&v| {
            if v <= 0.0 || largest <= 0.0 {
                return '·';
            }
            let below = -2.0 * (v / largest).log10();
            if below < 8.0 { STEPS[7 - below.max(0.0) as usize] } else { '·' }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!(
            [0.0, 1.0, 1234.5, 0.012_346, 1e-7, -3e9].map(number),
            ["0", "1.000", "1234", "0.01235", "1.000e-7", "-3.000e9"]
        );
    }

    #[test]
    fn upper_ends_are_rounded_up() {
        assert_eq!(
            [0.0, 1.0, 1.000_000_1, 0.012_341, 1.234_4e-7, 12_344.2, 9.999_1, -1.0].map(number_above),
            ["0", "1.000", "1.001", "0.01235", "1.235e-7", "12345", "10.00", "-1.000"]
        );
    }

    #[test]
    fn decay_falls_one_step_per_half_decade() {
        assert_eq!(decay(&[1.0, 0.3, 0.1, 1e-3, 1e-9, 0.0]), "█▇▆▂··");
        assert_eq!(decay(&[0.0, 0.0]), "··");
        assert_eq!(decay(&[]), "");
    }
}
