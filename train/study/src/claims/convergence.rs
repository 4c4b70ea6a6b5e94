//! Whether a training had come to its end when it was stopped.

use crate::statistics::slope;

/// Share of the training that is looked at.
const LAST: f64 = 0.2;
/// Most that the loss may be about to fall, as a share of what was gained over no adapter.
const STILL_TO_GAIN: f64 = 0.02;

/// Whether the validation loss had levelled off: the line through the evaluations of the last fifth, continued for as many steps again, falls
/// by less than 2 % of what the row has gained over `none`. `None` with fewer than two evaluations there.
pub(super) fn converged(curve: &[(u64, f64)], steps: u64, gained: f64) -> Option<bool> {
    let from = (1.0 - LAST) * steps as f64;
    let last: Vec<(f64, f64)> =
        curve.iter().filter(|(step, _)| *step as f64 >= from).map(|&(step, loss)| (step as f64, loss)).collect();
    if last.len() < 2 {
        return None;
    }
    let still_to_fall = -slope(&last)? * LAST * steps as f64;
    Some(still_to_fall < STILL_TO_GAIN * gained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_converged_when_it_is_level() {
        let curve =
            |rate: f64| -> Vec<(u64, f64)> { (1..10).map(|i| (100 * i, 1.0 + (-rate * i as f64).exp())).collect() };
        // exp(-0.8) to exp(-0.9): 0.043 in 100 steps.
        assert_eq!(converged(&curve(0.1), 1000, 0.5), Some(false));
        assert_eq!(converged(&curve(1.0), 1000, 0.5), Some(true));
        let rising: Vec<(u64, f64)> = vec![(100, 2.0), (800, 1.0), (900, 1.1)];
        assert_eq!(converged(&rising, 1000, 0.5), Some(true));
        assert_eq!(converged(&rising[..2], 1000, 0.5), None);
        assert_eq!(converged(&[], 1000, 0.5), None);
    }
}
