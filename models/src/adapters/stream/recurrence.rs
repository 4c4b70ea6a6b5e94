//! Linear recurrences with constant coefficients.

use super::{Memory, last_states};
use hankel_core::{Result, Tensor};
use hankel_ops::{Poles, ScanPath, linear, scan};

/// `s_t = A s_{t-1} + B x_t`, `y_t = C s_t`.
pub struct Recurrence {
    /// The state matrix `A`.
    pub poles: Poles,
    /// The input matrix `B`, `[d, D]`.
    pub b: Tensor,
    /// The output matrix `C`, `[D, d]`.
    pub c: Tensor,
    /// How it is evaluated.
    pub path: ScanPath,
}

impl Recurrence {
    /// The output for `x` `[batch, T, D]` and the memory, as [`StreamAdapter::forward`](super::StreamAdapter::forward) gives them.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let before = memory.and_then(|memory| memory.first());
        let u = linear(x, &self.b, None)?;
        let states = scan(&u, &self.poles, before, self.path)?;
        Ok((linear(&states, &self.c, None)?, vec![last_states(&states, before)?]))
    }
}
