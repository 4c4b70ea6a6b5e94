//! What operators check at their door.

use hankel_core::{DType, Error, Result, Tensor};

/// Runs a body with a type alias for the element type of a tensor (`f32` or `f64`).
macro_rules! for_float {
    ($tensor:expr, $operator:expr, $T:ident => $body:expr) => {
        match $tensor.dtype() {
            _ if $tensor.gpu().is_some() => {
                let problem = "it has no kernel for a GPU".to_owned();
                Err(hankel_core::Error::Placement { operator: $operator, problem })
            }
            hankel_core::DType::F32 => {
                type $T = f32;
                $body
            }
            hankel_core::DType::F64 => {
                type $T = f64;
                $body
            }
            found => Err(hankel_core::Error::DType { operator: $operator, expected: "f32 or f64", found }),
        }
    };
}
pub(crate) use for_float;

/// Fails unless `tensor` has the shape `expected`, which plays the role `name`.
pub(crate) fn shape(operator: &'static str, name: &str, tensor: &Tensor, expected: &[usize]) -> Result<()> {
    if &tensor.shape()[..] == expected {
        return Ok(());
    }
    Err(Error::shape(operator, format!("{name} has shape {}, expected {expected:?}", tensor.shape())))
}

/// Fails unless `tensor` has the element type of `like`.
pub(crate) fn dtype(operator: &'static str, name: &str, tensor: &Tensor, expected: DType) -> Result<()> {
    if tensor.dtype() == expected {
        return Ok(());
    }
    Err(Error::invalid(operator, format!("{name} is {}, expected {expected}", tensor.dtype())))
}

/// Fails unless `weight` has the element type of what it multiplies or one that is widened on the fly.
pub(crate) fn weight_dtype(operator: &'static str, name: &str, weight: &Tensor, expected: DType) -> Result<()> {
    if weight.dtype().is_compact() { Ok(()) } else { dtype(operator, name, weight, expected) }
}
