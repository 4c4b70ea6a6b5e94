//! State matrices as tensors, and the choice of an evaluation.

use hankel_core::{Error, Result, Tensor};
use serde::{Deserialize, Serialize};

/// How a recurrence is evaluated. All agree within rounding (R3). Dense state matrices run step by step on any path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanPath {
    /// Step by step: the definition. On a GPU, most of which would wait, as [`ScanPath::Chunked`]. The default: on a CPU the states fit the
    /// cache and the recurrence is vectorised over channels, one pass over memory, which neither of the others can beat.
    #[default]
    Sequential,
    /// Chunks side by side, then the states between them.
    Chunked,
    /// Causal convolution with the powers of the poles by FFT.
    Fft,
}

/// The state matrix of a recurrence.
#[derive(Clone)]
pub enum Poles {
    /// Real poles `[d]`.
    Diagonal(Tensor),
    /// `real` signed poles, then `pairs` of complex ones: `d = real + 2 pairs`.
    Modal {
        /// `[real + pairs]`.
        radius: Tensor,
        /// `[pairs]`, in radians.
        angle: Tensor,
        /// `[real]`, 1 or -1, untracked.
        sign: Tensor,
    },
    /// Any matrix `[d, d]`.
    Dense(Tensor),
}

impl Poles {
    /// Signed real poles `sign * radius[..real]`, then blocks `radius [cos -sin; sin cos]` of two states each.
    ///
    /// # Errors
    /// When the lengths do not fit.
    pub fn modal(radius: &Tensor, angle: &Tensor, sign: &Tensor) -> Result<Self> {
        if radius.elements() != angle.elements() + sign.elements() {
            let problem = format!(
                "{} radii for {} real poles and {} pairs",
                radius.elements(),
                sign.elements(),
                angle.elements()
            );
            return Err(Error::shape("scan", problem));
        }
        Ok(Poles::Modal { radius: radius.clone(), angle: angle.clone(), sign: sign.detach() })
    }

    /// Number of states.
    pub fn state_dim(&self) -> usize {
        match self {
            Poles::Diagonal(a) => a.elements(),
            Poles::Modal { radius, angle, .. } => radius.elements() + angle.elements(),
            Poles::Dense(a) => a.shape().last(),
        }
    }

    /// The tensors that can learn.
    pub(super) fn parameters(&self) -> Vec<&Tensor> {
        match self {
            Poles::Diagonal(a) | Poles::Dense(a) => vec![a],
            Poles::Modal { radius, angle, .. } => vec![radius, angle],
        }
    }

    pub(super) fn detach(&self) -> Poles {
        match self {
            Poles::Diagonal(a) => Poles::Diagonal(a.detach()),
            Poles::Modal { radius, angle, sign } => {
                Poles::Modal { radius: radius.detach(), angle: angle.detach(), sign: sign.clone() }
            }
            Poles::Dense(a) => Poles::Dense(a.detach()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan;

    #[test]
    fn lengths_that_do_not_fit_are_refused_however_they_are_made() {
        let ones = |n: usize| Tensor::full([n], 0.5_f64);
        let poles = Poles::Modal { radius: ones(2), angle: ones(1), sign: ones(3) };
        let u = Tensor::full([1, 4, 3], 1.0_f64);
        let message = scan(&u, &poles, None, ScanPath::Sequential).unwrap_err().to_string();
        assert!(message.contains("2 radii for 3 real poles and 1 pairs"), "{message}");
    }
}
