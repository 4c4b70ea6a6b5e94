//! Reading numbers that were not finite: JSON has none, `null` stands for them, and they are NaN when they are read.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Figures by name.
pub(super) fn figures<'de, D: Deserializer<'de>>(source: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let figures = BTreeMap::<String, Option<f64>>::deserialize(source)?;
    Ok(figures.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect())
}

/// One figure.
pub(crate) fn figure<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(source)?.unwrap_or(f64::NAN))
}

/// Points of a curve.
pub(crate) fn curve<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<(u64, f64)>, D::Error> {
    let points = Vec::<(u64, Option<f64>)>::deserialize(source)?;
    Ok(points.into_iter().map(|(step, value)| (step, value.unwrap_or(f64::NAN))).collect())
}

/// Two ends.
pub(super) fn range<'de, D: Deserializer<'de>>(source: D) -> Result<Option<(f64, f64)>, D::Error> {
    let ends = Option::<(Option<f64>, Option<f64>)>::deserialize(source)?;
    Ok(ends.map(|(low, high)| (low.unwrap_or(f64::NAN), high.unwrap_or(f64::NAN))))
}

/// A list.
pub(super) fn list<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<f64>, D::Error> {
    let values = Vec::<Option<f64>>::deserialize(source)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}
