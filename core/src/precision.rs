//! In which precision products with frozen weights, and those of attention, are made.

use crate::autograd::with_cell;
use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

/// Precision of the operands of products of activations, or gradients, with frozen weights, and of the products inside attention.
/// Only operands in `f32` are rounded. Sums and everything else are in the type of the tensors, `f32` or `f64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// As the tensors are.
    #[default]
    F32,
    /// Both operands rounded to `bf16`: on the CPU, by its own dot products of `bf16` where it has them and in `f32` where not, which
    /// saves no time; last bits may differ between the two.
    Bf16,
    /// Both operands rounded to `f16`, activations and gradients scaled so that they fit: on GPUs with cooperative matrices.
    F16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::F16];

    /// The name used in configurations and messages: `f32`, `bf16`, `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Precision::ALL.into_iter().find(|precision| precision.name() == name);
        found.ok_or_else(|| format!("unknown precision {name:?}, expected f32, bf16 or f16"))
    }
}

thread_local! {
    static PRECISION: Cell<Precision> = const { Cell::new(Precision::F32) };
}

/// Runs `f` with products in `precision`. An operator keeps the precision it ran with for its gradient, and so does
/// [`crate::checkpoint`].
pub fn with_precision<R>(precision: Precision, f: impl FnOnce() -> R) -> R {
    with_cell(&PRECISION, precision, f)
}

/// The precision of products that begin now.
pub fn precision() -> Precision {
    PRECISION.get()
}
