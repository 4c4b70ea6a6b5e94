//! What was not finite: adapters whose training came to it, and numbers, for which JSON has `null`; they are NaN when they are read.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// An adapter whose training came to a value that is not finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diverged {
    /// Its name.
    pub name: String,
    /// The step that failed.
    pub step: u64,
    /// What happened, in a sentence that names both.
    pub error: String,
}

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
