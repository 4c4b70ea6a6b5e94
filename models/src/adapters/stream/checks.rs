//! Checks of settings that several kinds have.

use crate::settings::SettingsError;

type Result = std::result::Result<(), SettingsError>;

/// The most states of a diagonal recurrence, and columns of a map.
pub(crate) const MOST: usize = 1 << 20;

/// Each size, a key with its value and the most that it can be, is from 1 to that.
pub(crate) fn sizes(all: &[(&str, usize, usize)]) -> Result {
    all.iter().try_for_each(|&(key, value, most)| {
        SettingsError::unless((1..=most).contains(&value), key, || format!("must be from 1 to {most}, found {value}"))
    })
}

/// Standard deviations.
pub(crate) fn deviations(all: &[(&str, f64)]) -> Result {
    all.iter().try_for_each(|&(key, std)| {
        let problem = || format!("must be finite and at least 0, found {std:?}");
        SettingsError::unless(std.is_finite() && std >= 0.0, key, problem)
    })
}

/// Initial poles, those that are given.
pub(crate) fn poles(a_min: Option<f64>, a_max: Option<f64>) -> Result {
    for (key, a) in [("a_min", a_min), ("a_max", a_max)] {
        let is_inside = a.is_none_or(|a| a > 0.0 && a < 1.0);
        let found = || format!("must be above 0 and below 1, found {:?}", a.unwrap_or_default());
        SettingsError::unless(is_inside, key, found)?;
    }
    match (a_min, a_max) {
        (Some(a_min), Some(a_max)) => {
            SettingsError::unless(a_min <= a_max, "a_max", || format!("is {a_max}, below a_min = {a_min}"))
        }
        _ => Ok(()),
    }
}
