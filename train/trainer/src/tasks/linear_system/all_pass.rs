//! Systems that need every one of their states.

use hankel_core::Random;

/// A random stable all-pass system with one input and one output, as a cascade of sections of order 1 and 2.
///
/// `H(z) = prod_i (z^-1 - conj(p_i)) / (1 - p_i z^-1)` passes every frequency with gain 1. All of its Hankel singular values are 1 (K. Glover, 1984,
/// theorem 2.1 and lemma 3.1 in discrete time). So every system of lower order has an error of at least 1, which is the error of the zero
/// system: the task needs every one of its states. In a system with random matrices some states hardly matter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AllPass {
    sections: Vec<[f64; 2]>,
}

impl AllPass {
    /// A system of `order` states: complex pairs, and one real pole of either sign if `order` is odd. Moduli are uniform between `radii`, angles in
    /// (0, pi). With the same `random` the pairs of a system are among those of one of higher order.
    pub(super) fn draw(order: usize, radii: (f64, f64), random: &Random) -> Self {
        let radius = |index: usize| radii.0 + (radii.1 - radii.0) * random.uniform(2 * index as u64);
        let share = |index: usize| random.uniform(2 * index as u64 + 1);
        // The coefficients a1, a2 of the denominator 1 + a1 z^-1 + a2 z^-2.
        let pair = |index: usize| {
            let (r, angle) = (radius(index), std::f64::consts::PI * share(index));
            [-2.0 * r * angle.cos(), r * r]
        };
        let mut sections: Vec<[f64; 2]> = (1..=order / 2).map(pair).collect();
        if order % 2 == 1 {
            let sign = if share(0) < 0.5 { -1.0 } else { 1.0 };
            sections.push([-sign * radius(0), 0.0]);
        }
        AllPass { sections }
    }

    /// The output from rest.
    pub(super) fn output(&self, input: &[f64]) -> Vec<f64> {
        let mut signal = input.to_vec();
        for &[a1, a2] in &self.sections {
            let first_order = a2 == 0.0;
            let (mut inputs, mut outputs) = ([0.0; 2], [0.0; 2]);
            for value in &mut signal {
                let u = *value;
                let forward = if first_order { a1 * u + inputs[0] } else { a2 * u + a1 * inputs[0] + inputs[1] };
                let y = forward - a1 * outputs[0] - a2 * outputs[1];
                (inputs, outputs) = ([u, inputs[0]], [y, outputs[0]]);
                *value = y;
            }
        }
        signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faer::Mat;

    /// The Hankel matrix of the impulse response, by Kronecker: as many singular values as states, and all of them 1.
    #[test]
    fn all_hankel_singular_values_are_one() {
        const LENGTH: usize = 400;
        for order in [1, 2, 3, 8, 13, 24] {
            let system = AllPass::draw(order, (0.5, 0.9), &Random::new(7, "test", 0));
            let mut impulse = vec![0.0; LENGTH];
            impulse[0] = 1.0;
            let response = system.output(&impulse);
            let energy: f64 = response.iter().map(|h| h * h).sum();
            assert!((energy - 1.0).abs() < 1e-9, "order {order}: {energy}");
            let half = LENGTH / 2;
            let hankel = Mat::from_fn(half, half, |i, j| response.get(i + j + 1).copied().unwrap_or(0.0));
            let values = hankel.singular_values().unwrap();
            assert!(
                values[..order].iter().all(|value| (value - 1.0).abs() < 1e-6),
                "order {order}: {:?}",
                &values[..order]
            );
            assert!(values[order] < 1e-6, "order {order}: {}", values[order]);
        }
    }
}
