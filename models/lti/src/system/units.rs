//! Units of states.

use super::{Laid, LinearSystem};
use crate::linalg::{exponent, ldexp};
use faer::Mat;

impl LinearSystem {
    /// The same system where inputs of coupled states, block by block, are within `2^range` of each other: blocks that are not have their
    /// states in the units of their inputs, powers of two. `None` where all are.
    pub(crate) fn in_units_of_inputs(&self, range: i32) -> Option<Self> {
        let sizes: Vec<usize> = match self.a.modes() {
            Some(modes) => modes.iter().map(|mode| mode.states()).collect(),
            None => self.blocks.iter().map(|block| block.states()).collect(),
        };
        let mut units = Vec::with_capacity(self.states());
        for size in sizes {
            let rows = self.b().subrows(units.len(), size);
            let unit = (rows.norm_max() > 0.0).then(|| exponent(rows));
            units.extend(std::iter::repeat_n(unit, size));
        }
        let least = units.iter().copied().flatten().min()?;
        if units.iter().flatten().all(|unit| unit - least <= range) {
            return None;
        }
        let unit = |state: usize| units[state].unwrap_or(0);
        let b = Mat::from_fn(self.states(), self.inputs(), |i, j| ldexp(self.b()[(i, j)], -unit(i)));
        let c = Mat::from_fn(self.outputs(), self.states(), |i, j| ldexp(self.c()[(i, j)], unit(j)));
        Some(Self { b: Laid::Columns(b), c: Laid::Columns(c), image_of: None, stored: None, ..self.clone() })
    }
}
