//! Sums in pieces of rows.

use crate::gpu::{column_sums as sums, floats};
use hankel_core::gpu::Gpu;
use hankel_core::{Result, Tensor};

const NAME: &str = "column_sums";

pub(super) fn column_sums(gpu: &'static Gpu, g: &Tensor, x: Option<&Tensor>) -> Result<Tensor> {
    let x = x.map(|x| floats(NAME, "x", x, gpu)).transpose()?;
    sums(gpu, floats(NAME, "g", g, gpu)?, x, g.shape().rows(), g.shape().last())
}

pub(super) fn dot(gpu: &'static Gpu, g: &Tensor, x: &Tensor) -> Result<Tensor> {
    sums(gpu, floats("dot", "g", g, gpu)?, Some(floats("dot", "x", x, gpu)?), g.elements(), 1)?.reshape([])
}
