//! The two floating-point types that kernels compute in.

use num_traits::{Float as NumFloat, NumAssign};
use std::fmt::{Debug, Display};
use std::iter::Sum;

/// `f32` or `f64`: the types that operators compute in. Weights may be stored in fewer bits; kernels widen them as they read.
pub trait Float:
    NumFloat + NumAssign + Sum + Default + Debug + Display + Send + Sync + crate::Element + 'static
{
    /// Rounds a double to this type.
    fn of(value: f64) -> Self;
    /// Widens to a double.
    fn f64(self) -> f64;
}

impl Float for f32 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }
}

impl Float for f64 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        self
    }
}
