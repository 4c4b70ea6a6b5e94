//! Whether a training had come to its end when it was stopped.

use crate::statistics::slope;

/// Share of the training that is looked at.
const LAST: f64 = 0.2;
/// Most that the loss may be about to fall, as a share of what was gained over no adapter.
pub(super) const STILL_TO_GAIN: f64 = 0.02;

/// How far the validation loss is about to fall: by the line through the evaluations of the last fifth, continued for as many steps again.
/// `None` with fewer than two evaluations there.
pub(crate) fn still_to_fall(curve: &[(u64, f64)], steps: u64) -> Option<f64> {
    let from = (1.0 - LAST) * steps as f64;
    let last: Vec<(f64, f64)> =
        curve.iter().filter(|(step, _)| *step as f64 >= from).map(|&(step, loss)| (step as f64, loss)).collect();
    if last.len() < 2 {
        return None;
    }
    Some(-slope(&last)? * LAST * steps as f64)
}

/// Whether that is little enough beside what was gained over no adapter.
pub(crate) fn is_level(still_to_fall: f64, gained: f64) -> bool {
    still_to_fall < STILL_TO_GAIN * gained
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_converged_when_it_is_level() {
        let curve =
            |rate: f64| -> Vec<(u64, f64)> { (1..10).map(|i| (100 * i, 1.0 + (-rate * i as f64).exp())).collect() };
        let converged = |curve: &[(u64, f64)]| Some(is_level(still_to_fall(curve, 1000)?, 0.5));
        // exp(-0.8) to exp(-0.9): 0.043 in 100 steps.
        assert_eq!(converged(&curve(0.1)), Some(false));
        assert_eq!(converged(&curve(1.0)), Some(true));
        let rising: Vec<(u64, f64)> = vec![(100, 2.0), (800, 1.0), (900, 1.1)];
        assert_eq!(converged(&rising), Some(true));
        assert_eq!(converged(&rising[..2]), None);
        assert_eq!(converged(&[]), None);
    }
}
