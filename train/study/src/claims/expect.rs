//! What a measurement must show, and the probability of its showing that by chance.

use crate::measure::Group;
use crate::statistics::{CONFIDENCE, Estimate};
use serde::Deserialize;

/// What a measurement must show.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The whole interval of the mean is above this.
    Above(f64),
    /// The whole interval of the mean is below this.
    Below(f64),
    /// The whole interval of the mean is between these: a size, or the equivalence of two rows (two one-sided tests).
    Within(f64, f64),
    /// Every value is between these. For what is computed and not sampled: counts of parameters, rows that must be equal.
    EachWithin(f64, f64),
    /// No value is above this. For bounds, which one value refutes.
    AtMost(f64),
}

/// What a group of cells says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    Shown,
    Contrary,
    Outside,
    Undecided,
    TooFew,
}

impl Expect {
    pub(crate) fn evaluate(self, group: &Group) -> Finding {
        let each = |shown: bool| if shown { Finding::Shown } else { Finding::Outside };
        match self {
            Expect::EachWithin(low, high) => {
                return each(group.values.iter().all(|value| (low..=high).contains(value)));
            }
            Expect::AtMost(limit) => return each(group.largest() <= limit),
            _ => {}
        }
        let Some(estimate) = group.estimate(0.0) else { return Finding::TooFew };
        let (low, high) = estimate.interval;
        let (shown, contrary) = match self {
            Expect::Above(limit) => (low > limit, high < limit),
            Expect::Below(limit) => (high < limit, low > limit),
            Expect::Within(least, most) => (low >= least && high <= most, high < least || low > most),
            Expect::EachWithin(..) | Expect::AtMost(_) => unreachable!("decided above"),
        };
        match (shown, contrary, self) {
            (true, ..) => Finding::Shown,
            (_, true, Expect::Within(..)) => Finding::Outside,
            (_, true, _) => Finding::Contrary,
            _ => Finding::Undecided,
        }
    }

    /// Twice the probability of figures that speak for the claim at least as clearly where it just does not hold, at most 1: below 5 %
    /// exactly where [`Expect::evaluate`] finds it shown. `None` for what is not tested, and for a single figure.
    pub(super) fn p(self, group: &Group) -> Option<f64> {
        let on_its_side = |limit: f64, side: f64| -> Option<f64> {
            let Estimate { t, p, .. } = group.estimate(limit)?;
            Some(if side * t > 0.0 { p } else { 1.0 })
        };
        match self {
            Expect::Above(limit) => on_its_side(limit, 1.0),
            Expect::Below(limit) => on_its_side(limit, -1.0),
            // Equality with an end of the range is within it.
            Expect::Within(low, high) if group.summary.sd == Some(0.0) => {
                Some(if (low..=high).contains(&group.summary.mean) { 0.0 } else { 1.0 })
            }
            Expect::Within(low, high) => Some(on_its_side(low, 1.0)?.max(on_its_side(high, -1.0)?)),
            Expect::EachWithin(..) | Expect::AtMost(_) => None,
        }
    }

    /// What the mean is tested against, where a side of something is claimed.
    pub(crate) fn limit(self) -> Option<f64> {
        match self {
            Expect::Above(limit) | Expect::Below(limit) => Some(limit),
            Expect::Within(..) | Expect::EachWithin(..) | Expect::AtMost(_) => None,
        }
    }

    /// In words.
    pub(crate) fn describe(self) -> String {
        let interval = format!("the {:.0} % interval of the mean", 100.0 * CONFIDENCE);
        let words = match self {
            Expect::Above(limit) => format!("{interval} is above {limit}"),
            Expect::Below(limit) => format!("{interval} is below {limit}"),
            Expect::Within(low, high) => format!("{interval} is within {low} to {high}"),
            Expect::EachWithin(low, high) if low == high => format!("every value is {low}"),
            Expect::EachWithin(low, high) => format!("every value is within {low} to {high}"),
            Expect::AtMost(limit) if limit < 1e-3 => format!("no value is above {limit:e}"),
            Expect::AtMost(limit) => format!("no value is above {limit}"),
        };
        words.replace('-', "−")
    }
}
