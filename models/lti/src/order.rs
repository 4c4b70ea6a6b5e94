//! How many states to keep (R6).

use super::hankel::glover_bound;
use super::{LtiError, Result};
use serde::{Deserialize, Serialize};

/// A rule that turns Hankel singular values into an order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderRule {
    /// Keep the states with `sigma_i >= epsilon * sigma_1`.
    Epsilon(f64),
    /// Keep this many.
    Order(usize),
    /// Keep the fewest whose values sum to this fraction of the total.
    Energy(f64),
    /// Keep the fewest whose error bound is at most this (absolute, H-infinity norm of the gated system).
    Bound(f64),
}

impl Default for OrderRule {
    fn default() -> Self {
        Self::Epsilon(0.01)
    }
}

impl OrderRule {
    /// Checks the parameter of the rule against its range.
    ///
    /// # Errors
    /// A parameter out of range.
    pub fn check(self) -> Result<()> {
        let fail = |name, value, range| Err(LtiError::OutOfRange { name, value, range });
        match self {
            Self::Epsilon(e) if !(0.0..=1.0).contains(&e) => fail("epsilon", e, "between 0 and 1"),
            Self::Energy(f) if !(f > 0.0 && f <= 1.0) => fail("energy", f, "above 0 and at most 1"),
            Self::Bound(tol) if !(tol >= 0.0 && tol.is_finite()) => fail("bound", tol, "finite and not negative"),
            _ => Ok(()),
        }
    }

    /// The order for values `sigma` (descending, of the gated system). It is at most `rank`: as many values as are above rounding, or all
    /// states, for rules and methods that read no values.
    ///
    /// `bound` gives the certified error bound of keeping a number of states; [`glover_bound`] for balanced truncation.
    /// A system whose values are all zero has order 0.
    ///
    /// # Errors
    /// A parameter out of range, an order above the number of states, a bound below what double precision reaches.
    pub fn choose(self, sigma: &[f64], rank: usize, bound: impl Fn(usize) -> f64) -> Result<usize> {
        self.check()?;
        let order = match self {
            Self::Epsilon(epsilon) => {
                let threshold = epsilon * sigma.first().copied().unwrap_or(0.0);
                sigma.iter().take_while(|&&s| s >= threshold).count()
            }
            Self::Order(order) if order > sigma.len() => {
                return Err(LtiError::OrderTooLarge { order, states: sigma.len() });
            }
            Self::Order(order) => order,
            Self::Energy(fraction) => {
                let total: f64 = sigma.iter().rev().sum();
                let mut kept = 0.0;
                sigma
                    .iter()
                    .position(|s| {
                        kept += s;
                        kept >= fraction * total
                    })
                    .map_or(sigma.len(), |i| i + 1)
            }
            Self::Bound(tolerance) => (0..=rank)
                .find(|&r| bound(r) <= tolerance)
                .ok_or_else(|| LtiError::UnreachableBound { tolerance, best: bound(rank), rank })?,
        };
        Ok(order.min(rank))
    }
}

/// Orders of several systems that together keep `budget` states, or all above rounding if those are fewer, and make the sum of their Glover bounds least.
///
/// The sum is separable and each system's tail is convex in its order, so keeping the `budget` largest values of all
/// systems together is optimal. `spectra` are the gated values, each descending; of each the first of `ranks` are above
/// rounding, and others are never kept.
///
/// # Panics
/// When a rank is above the number of values of its system.
pub fn allocate_budget(spectra: &[Vec<f64>], ranks: &[usize], budget: usize) -> Vec<usize> {
    let mut orders = vec![0; spectra.len()];
    for &(_, system) in pooled(spectra, ranks).iter().take(budget) {
        orders[system] += 1;
    }
    orders
}

/// Fewest states in total such that the sum of the Glover bounds of all systems is at most `tolerance`; `spectra` and `ranks`
/// as in [`allocate_budget`].
///
/// # Errors
/// A tolerance that is negative or not finite, or below the sum of the bounds at the ranks.
pub fn allocate_total_bound(spectra: &[Vec<f64>], ranks: &[usize], tolerance: f64) -> Result<Vec<usize>> {
    if !(tolerance >= 0.0 && tolerance.is_finite()) {
        return Err(LtiError::OutOfRange { name: "total-bound", value: tolerance, range: "finite and not negative" });
    }
    let mut orders = ranks.to_vec();
    // What is below rounding is discarded in any case.
    let mut tail: f64 = spectra.iter().zip(ranks).map(|(values, &rank)| glover_bound(values, rank)).sum();
    if tail > tolerance {
        return Err(LtiError::UnreachableBound { tolerance, best: tail, rank: ranks.iter().sum() });
    }
    for &(value, system) in pooled(spectra, ranks).iter().rev() {
        tail += 2.0 * value;
        if tail > tolerance {
            break;
        }
        orders[system] -= 1;
    }
    Ok(orders)
}

/// All values above rounding with their system, descending; equal values in the order of the systems.
fn pooled(spectra: &[Vec<f64>], ranks: &[usize]) -> Vec<(f64, usize)> {
    let ranked = spectra.iter().zip(ranks).enumerate();
    let mut all: Vec<(f64, usize)> =
        ranked.flat_map(|(system, (values, &rank))| values[..rank].iter().map(move |&value| (value, system))).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all
}

/// The order the rule of `--epsilon`, `--energy` or `--bound` gives for plain balanced truncation.
///
/// # Errors
/// Those of [`OrderRule::choose`].
pub fn choose_order(rule: OrderRule, sigma: &[f64], rank: usize) -> Result<usize> {
    rule.choose(sigma, rank, |r| glover_bound(sigma, r))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGMA: [f64; 5] = [10.0, 4.0, 1.0, 0.1, 0.0];

    fn order(rule: OrderRule) -> Result<usize> {
        choose_order(rule, &SIGMA, 4)
    }

    #[test]
    fn rules() {
        assert_eq!(order(OrderRule::Epsilon(0.1)), Ok(3));
        assert_eq!(order(OrderRule::Epsilon(0.0)), Ok(4));
        assert_eq!(order(OrderRule::Epsilon(1.0)), Ok(1));
        assert_eq!(order(OrderRule::Energy(0.9)), Ok(2));
        assert_eq!(order(OrderRule::Energy(1.0)), Ok(4));
        assert_eq!(order(OrderRule::Bound(2.2)), Ok(2));
        assert_eq!(order(OrderRule::Bound(0.0)), Ok(4));
        assert_eq!(order(OrderRule::Order(5)), Ok(4));
        assert_eq!(order(OrderRule::Order(0)), Ok(0));
    }

    #[test]
    fn a_closed_gate_keeps_nothing() {
        for rule in [OrderRule::Epsilon(0.01), OrderRule::Energy(0.9), OrderRule::Bound(0.0), OrderRule::Order(3)] {
            assert_eq!(choose_order(rule, &[0.0; 4], 0), Ok(0));
        }
    }

    #[test]
    fn bad_parameters_are_named() {
        assert!(matches!(order(OrderRule::Order(6)), Err(LtiError::OrderTooLarge { order: 6, states: 5 })));
        for rule in [
            OrderRule::Epsilon(-0.1),
            OrderRule::Epsilon(f64::NAN),
            OrderRule::Energy(0.0),
            OrderRule::Energy(1.5),
            OrderRule::Bound(-1.0),
            OrderRule::Bound(f64::INFINITY),
        ] {
            assert!(matches!(order(rule), Err(LtiError::OutOfRange { .. })), "{rule:?}");
        }
        let unreachable = choose_order(OrderRule::Bound(1e-9), &[1.0, 1e-8], 1);
        assert!(matches!(unreachable, Err(LtiError::UnreachableBound { rank: 1, .. })));
    }

    #[test]
    fn allocation_keeps_the_largest_values_of_all() {
        let (spectra, ranks) = ([vec![10.0, 1.0, 0.1], vec![5.0, 4.0, 0.0], vec![0.0, 0.0, 0.0]], [3, 2, 0]);
        assert_eq!(allocate_budget(&spectra, &ranks, 3), [1, 2, 0]);
        assert_eq!(allocate_budget(&spectra, &ranks, 100), [3, 2, 0]);
        assert_eq!(allocate_total_bound(&spectra, &ranks, 2.2).unwrap(), [1, 2, 0]);
        assert_eq!(allocate_total_bound(&spectra, &ranks, 2.19).unwrap(), [2, 2, 0]);
        assert_eq!(allocate_total_bound(&spectra, &ranks, 1e9).unwrap(), [0, 0, 0]);
        assert_eq!(allocate_total_bound(&spectra, &ranks, 0.0).unwrap(), [3, 2, 0]);
    }

    /// Rounding of a large system beside true values of a small one: the first is neither kept nor forgotten.
    #[test]
    fn allocation_keeps_nothing_below_rounding() {
        let (spectra, ranks) = ([vec![1e6, 1e-3, 1e-3], vec![1e-2, 1e-4]], [1, 2]);
        assert_eq!(allocate_budget(&spectra, &ranks, 3), [1, 2]);
        assert_eq!(allocate_total_bound(&spectra, &ranks, 4e-3 + 1e-5).unwrap(), [1, 2]);
        assert_eq!(allocate_total_bound(&spectra, &ranks, 4e-3 + 3e-4).unwrap(), [1, 1]);
        let refused = allocate_total_bound(&spectra, &ranks, 3.9e-3);
        assert_eq!(refused, Err(LtiError::UnreachableBound { tolerance: 3.9e-3, best: 4e-3, rank: 3 }));
    }
}
