//! Checks of the inputs of operators, the same on every device.

use hankel_core::{DType, Error, Result, Tensor};

/// Fails unless operators compute in the element type of `tensor`.
pub(crate) fn float(operator: &'static str, tensor: &Tensor) -> Result<()> {
    let found = tensor.dtype();
    if found.is_float() { Ok(()) } else { Err(Error::DType { operator, expected: "f32 or f64", found }) }
}

/// Fails unless `tensor`, the input called `name`, has the shape `expected` and the element type and device of `like`.
pub(crate) fn input(
    operator: &'static str,
    name: &str,
    tensor: &Tensor,
    expected: &[usize],
    like: &Tensor,
) -> Result<()> {
    shape(operator, name, tensor, expected)?;
    dtype(operator, name, tensor, like.dtype())?;
    device(operator, name, tensor, like)
}

/// Fails unless `tensor` is on the device of `like`.
pub(crate) fn device(operator: &'static str, name: &str, tensor: &Tensor, like: &Tensor) -> Result<()> {
    if tensor.device() == like.device() {
        return Ok(());
    }
    let problem = format!("{name} is on {}, expected on {}", tensor.device(), like.device());
    Err(Error::Placement { operator, problem })
}

/// Fails unless `tensor` has the shape `expected`.
pub(crate) fn shape(operator: &'static str, name: &str, tensor: &Tensor, expected: &[usize]) -> Result<()> {
    if &tensor.shape()[..] == expected {
        return Ok(());
    }
    Err(Error::shape(operator, format!("{name} has shape {}, expected {expected:?}", tensor.shape())))
}

/// Fails unless `tensor` has the element type `expected`.
pub(crate) fn dtype(operator: &'static str, name: &str, tensor: &Tensor, expected: DType) -> Result<()> {
    if tensor.dtype() == expected {
        return Ok(());
    }
    Err(Error::invalid(operator, format!("{name} is {}, expected {expected}", tensor.dtype())))
}

/// The class indices in `tensor`, all below `classes`. They are `u32`, in main memory, where batches are made.
pub(crate) fn tokens<'a>(operator: &'static str, name: &str, tensor: &'a Tensor, classes: usize) -> Result<&'a [u32]> {
    tokens_where(operator, name, tensor, classes, |_| true)
}

/// As [`tokens`], of those places alone that are read: at the others may stand anything.
pub(crate) fn tokens_where<'a>(
    operator: &'static str,
    name: &str,
    tensor: &'a Tensor,
    classes: usize,
    is_read: impl Fn(usize) -> bool,
) -> Result<&'a [u32]> {
    if tensor.dtype() != DType::U32 {
        return Err(Error::DType { operator, expected: "u32", found: tensor.dtype() });
    }
    if tensor.gpu().is_some() {
        let problem = format!("{name}s are on {}, expected on cpu", tensor.device());
        return Err(Error::Placement { operator, problem });
    }
    let ids = tensor.data::<u32>()?;
    match ids.iter().enumerate().position(|(i, &id)| id as usize >= classes && is_read(i)) {
        None => Ok(ids),
        Some(i) => Err(Error::invalid(
            operator,
            format!("{name} {} at position {i} is outside a vocabulary of {classes}", ids[i]),
        )),
    }
}

/// Fails unless `weight` has the element type `expected` or a compact one, which kernels widen as they read.
pub(crate) fn weight_dtype(operator: &'static str, name: &str, weight: &Tensor, expected: DType) -> Result<()> {
    if weight.dtype().is_compact() { Ok(()) } else { dtype(operator, name, weight, expected) }
}

/// Whether values can be capped by it, in single precision too.
pub(crate) fn is_cap(cap: f64) -> bool {
    cap as f32 > 0.0 && (cap as f32).is_finite()
}
