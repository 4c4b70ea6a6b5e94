//! What a measurement must show, and the probability of its showing that by chance.

use crate::measure::Group;
use crate::statistics::{CONFIDENCE, Estimate, all_on_a_side};
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

/// Twice the probability of a mean so far on that side of a limit at which the true one is.
fn on_side(group: &Group, limit: f64, side: f64) -> Option<f64> {
    let Estimate { t, p, .. } = group.estimate(limit)?;
    Some(if side * t > 0.0 { p } else { 1.0 })
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
        if low == high && all_on_a_side(estimate.summary.n) > 1.0 - CONFIDENCE {
            return Finding::TooFew;
        }
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
    pub(crate) fn p(self, group: &Group) -> Option<f64> {
        match self {
            Expect::Above(limit) => on_side(group, limit, 1.0),
            Expect::Below(limit) => on_side(group, limit, -1.0),
            Expect::Within(low, high) => {
                // No figure can be beyond an end that is also that of what is possible; equality with an end is within.
                let within = |limit: f64, side: f64, possible: f64| {
                    let is_at = group.estimate(limit)?.t == 0.0 && group.summary.n > 1;
                    let certain = side * (possible - limit) >= 0.0;
                    Some(match (certain, is_at && group.is_constant()) {
                        (true, _) => 0.0,
                        (_, true) => all_on_a_side(group.summary.n),
                        _ => on_side(group, limit, side)?,
                    })
                };
                Some(within(low, 1.0, group.range.0)?.max(within(high, -1.0, group.range.1)?))
            }
            Expect::EachWithin(..) | Expect::AtMost(_) => None,
        }
    }

    /// The same for figures that speak against it.
    pub(super) fn p_against(self, group: &Group) -> Option<f64> {
        match self {
            Expect::Above(limit) => on_side(group, limit, -1.0),
            Expect::Below(limit) => on_side(group, limit, 1.0),
            Expect::Within(low, high) => Some(on_side(group, low, -1.0)?.min(on_side(group, high, 1.0)?)),
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

    /// What is asked of the figures, without saying which: `above 0.5`.
    pub(crate) fn bar(self) -> String {
        let number =
            |limit: f64| if limit.abs() < 1e-3 && limit != 0.0 { format!("{limit:e}") } else { limit.to_string() };
        let words = match self {
            Expect::Above(limit) => format!("above {}", number(limit)),
            Expect::Below(limit) => format!("below {}", number(limit)),
            Expect::EachWithin(low, high) if low == high => number(low),
            Expect::Within(low, high) | Expect::EachWithin(low, high) => {
                format!("within {} to {}", number(low), number(high))
            }
            Expect::AtMost(limit) => format!("not above {}", number(limit)),
        };
        words.replace('-', "−")
    }

    /// In words.
    pub(crate) fn describe(self) -> String {
        let bar = self.bar();
        match self {
            Expect::Above(_) | Expect::Below(_) | Expect::Within(..) => {
                format!("the {:.0} % interval of the mean is {bar}", 100.0 * CONFIDENCE)
            }
            Expect::EachWithin(..) => format!("every value is {bar}"),
            Expect::AtMost(_) => format!("no value is {}", bar.trim_start_matches("not ")),
        }
    }
}
