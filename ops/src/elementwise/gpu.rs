//! A lane to an element.

use super::Function;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, flag, groups};
use hankel_core::{Result, Tensor};

static MAP: Kernel = Kernel {
    name: "map",
    source: concat!(include_str!("circle.wgsl"), include_str!("../soft_cap.wgsl"), include_str!("map.wgsl")),
    bindings: "rw",
};
static SLOPE: Kernel =
    Kernel { name: "slope", source: concat!(include_str!("circle.wgsl"), include_str!("slope.wgsl")), bindings: "rrw" };
static ZIP: Kernel = Kernel { name: "zip", source: include_str!("zip.wgsl"), bindings: "rrw" };
static BROADCAST: Kernel = Kernel { name: "broadcast", source: include_str!("broadcast.wgsl"), bindings: "rrrw" };
static ROW_DOTS: Kernel = Kernel { name: "row_dots", source: include_str!("row_dots.wgsl"), bindings: "rrw" };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    elements: u32,
    constants: [f32; 2],
}

/// The number of a function in `map.wgsl` and `slope.wgsl`, where 0 is a multiple, and its constants.
fn code(f: Function) -> (f64, [f64; 2]) {
    match f {
        Function::Exp => (1.0, [0.0; 2]),
        Function::Expm1 => (2.0, [0.0; 2]),
        Function::Softplus => (3.0, [0.0; 2]),
        Function::Clamp(low, high) => (4.0, [low, high]),
        Function::SoftCap(cap) => (5.0, [cap, 0.0]),
        Function::Sin => (6.0, [0.0; 2]),
        Function::Cos => (7.0, [0.0; 2]),
    }
}

fn launch_map(gpu: &'static Gpu, x: &Tensor, (op, constants): (f64, [f64; 2])) -> Result<Tensor> {
    let (n, y) = (x.elements(), Output::new(gpu, x.elements())?);
    let parameters = Parameters { elements: n as u32, constants: constants.map(|c| c as f32) };
    gpu.launch(&MAP, &[("OP", op)], &[floats("map", "x", x, gpu)?, y.buffer()], &parameters, groups(n, 256))?;
    y.finish(x.shape())
}

pub(super) fn map(gpu: &'static Gpu, x: &Tensor, f: Function) -> Result<Tensor> {
    launch_map(gpu, x, code(f))
}

pub(super) fn scale(gpu: &'static Gpu, x: &Tensor, factor: f64) -> Result<Tensor> {
    launch_map(gpu, x, (0.0, [factor, 0.0]))
}

/// `g f'(x)`; `saved` is `f(x)` where [`Function::saves_result`], otherwise `x`.
pub(super) fn map_gradient(gpu: &'static Gpu, g: &Tensor, saved: &Tensor, f: Function) -> Result<Tensor> {
    let (n, d_x) = (g.elements(), Output::new(gpu, g.elements())?);
    let (op, constants) = code(f);
    let parameters = Parameters { elements: n as u32, constants: constants.map(|c| c as f32) };
    let buffers = [floats("map", "gradient", g, gpu)?, floats("map", "saved", saved, gpu)?, d_x.buffer()];
    gpu.launch(&SLOPE, &[("OP", op)], &buffers, &parameters, groups(n, 256))?;
    d_x.finish(g.shape())
}

fn zip(gpu: &'static Gpu, product: bool, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (n, z) = (x.elements(), Output::new(gpu, x.elements())?);
    let buffers = [floats("zip", "x", x, gpu)?, floats("zip", "y", y, gpu)?, z.buffer()];
    gpu.launch(&ZIP, &[("PRODUCT", flag(product))], &buffers, &[n as u32], groups(n, 256))?;
    z.finish(x.shape())
}

pub(crate) fn add(gpu: &'static Gpu, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    zip(gpu, false, x, y)
}

pub(crate) fn multiply(gpu: &'static Gpu, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    zip(gpu, true, x, y)
}

/// `x` plus `y` times the element of `factor`.
pub(super) fn add_scaled(gpu: &'static Gpu, x: &Tensor, y: &Tensor, factor: &Tensor) -> Result<Tensor> {
    zip(gpu, false, x, &times_scalar(gpu, y, factor)?)
}

/// `x` times the element of `factor`.
pub(crate) fn times_scalar(gpu: &'static Gpu, x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    // One row, of all elements.
    broadcast(gpu, x, factor, None, x.elements(), true)
}

pub(super) fn scale_rows(gpu: &'static Gpu, x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    broadcast(gpu, x, factor, None, x.shape().last(), true)
}

pub(super) fn scale_columns(gpu: &'static Gpu, x: &Tensor, factor: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    broadcast(gpu, x, factor, bias, x.shape().last(), false)
}

/// `x_ij f_i`, or `x_ij f_j + b_j`, for rows of `width` elements.
fn broadcast(
    gpu: &'static Gpu,
    x: &Tensor,
    factor: &Tensor,
    bias: Option<&Tensor>,
    width: usize,
    rows: bool,
) -> Result<Tensor> {
    let (n, y) = (x.elements(), Output::new(gpu, x.elements())?);
    let constants = [("ROWS", flag(rows)), ("BIAS", flag(bias.is_some()))];
    let factor = floats("broadcast", "factor", factor, gpu)?;
    let bias = bias.map_or(Ok(factor), |bias| floats("broadcast", "bias", bias, gpu))?;
    let buffers = [floats("broadcast", "x", x, gpu)?, factor, bias, y.buffer()];
    gpu.launch(&BROADCAST, &constants, &buffers, &[n as u32, width as u32], groups(n, 256))?;
    y.finish(x.shape())
}

/// The inner product of each row of `g` with that of `x`, both `[n, m]`: `[n]`.
pub(super) fn row_dots(gpu: &'static Gpu, g: &Tensor, x: &Tensor) -> Result<Tensor> {
    let [n, m] = [x.shape()[0], x.shape()[1]];
    let out = Output::new(gpu, n)?;
    let buffers = [floats("row_dots", "g", g, gpu)?, floats("row_dots", "x", x, gpu)?, out.buffer()];
    gpu.launch(&ROW_DOTS, &[], &buffers, &[n as u32, m as u32], groups(n, 1))?;
    out.finish([n])
}

#[cfg(test)]
mod tests {
    use crate::soft_cap;
    use hankel_core::gpu::for_tests;
    use hankel_core::{Device, Tensor};

    /// Small values keep their digits, on both sides of where the series ends.
    #[test]
    fn soft_caps_of_small_values_have_their_digits() {
        let Some(gpu) = for_tests() else { return };
        let values: Vec<f32> = (0..80).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 } * 1e-7 * 1.3_f32.powi(i)).collect();
        let x = Tensor::from_vec(values.clone(), [80]).unwrap().to_device(Device::Gpu(gpu)).unwrap();
        let found = soft_cap(&x, 30.0).unwrap().to_f64_vec();
        for (x, found) in values.iter().zip(found) {
            let expected = 30.0 * (f64::from(*x) / 30.0).tanh();
            assert!((found / expected - 1.0).abs() < 3e-6, "{x}: {found} {expected}");
        }
    }
}
