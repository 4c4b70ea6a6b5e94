//! Element by element on a GPU.

use crate::gpu::{Output, column_sums, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Result, Tensor, autograd};

/// A function of one element and two constants; the numbers are those of `map.wgsl`.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Function {
    Scale = 0,
    Exp = 1,
    Expm1 = 2,
    Softplus = 3,
    Clamp = 4,
}

static MAP: Kernel = Kernel { name: "map", source: include_str!("map.wgsl"), bindings: "rw" };
static SLOPE: Kernel = Kernel { name: "slope", source: include_str!("slope.wgsl"), bindings: "rrrw" };
static ZIP: Kernel = Kernel { name: "zip", source: include_str!("zip.wgsl"), bindings: "rrw" };
static BROADCAST: Kernel = Kernel { name: "broadcast", source: include_str!("broadcast.wgsl"), bindings: "rrrw" };
static ROW_DOTS: Kernel = Kernel { name: "row_dots", source: include_str!("row_dots.wgsl"), bindings: "rrw" };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    elements: u32,
    constants: [f32; 2],
}

/// `f(x)`, with its gradient.
pub(super) fn map(
    gpu: &'static Gpu,
    operator: &'static str,
    f: Function,
    constants: [f64; 2],
    x: &Tensor,
) -> Result<Tensor> {
    let n = x.elements();
    let constants = constants.map(|c| c as f32);
    let parameters = Parameters { elements: n as u32, constants };
    let apply = move |x: &Tensor| {
        let y = Output::new(gpu, n)?;
        let op = [("OP", f64::from(f as u8))];
        gpu.launch(&MAP, &op, &[floats(operator, "x", x, gpu)?, y.buffer()], &parameters, groups(n, 256))?;
        y.finish(x.shape())
    };
    let y = apply(x)?;
    let (saved_x, saved_y) = (x.detach(), y.clone());
    y.from_operator(operator, &[Some(x)], move |g, _| {
        if f == Function::Scale {
            return Ok(vec![Some(apply(&g)?)]);
        }
        let dx = Output::new(gpu, n)?;
        let buffers = [&g, &saved_x, &saved_y].map(|tensor| floats(operator, "gradient", tensor, gpu));
        let [g, x, y] = buffers;
        gpu.launch(&SLOPE, &[("OP", f64::from(f as u8))], &[g?, x?, y?, dx.buffer()], &parameters, groups(n, 256))?;
        Ok(vec![Some(dx.finish(saved_x.shape())?)])
    })
}

fn zip(gpu: &'static Gpu, operator: &'static str, product: bool, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let n = x.elements();
    let z = Output::new(gpu, n)?;
    let buffers = [floats(operator, "x", x, gpu)?, floats(operator, "y", y, gpu)?, z.buffer()];
    gpu.launch(&ZIP, &[("PRODUCT", f64::from(u8::from(product)))], &buffers, &[n as u32], groups(n, 256))?;
    z.finish(x.shape())
}

pub(super) fn add(gpu: &'static Gpu, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    zip(gpu, "add", false, x, y)?.from_operator("add", &[Some(x), Some(y)], |g, wanted| {
        Ok(wanted.iter().map(|&w| w.then(|| g.clone())).collect())
    })
}

pub(super) fn multiply(gpu: &'static Gpu, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (saved_x, saved_y) = (x.detach(), y.detach());
    zip(gpu, "multiply", true, x, y)?.from_operator("multiply", &[Some(x), Some(y)], move |g, wanted| {
        let product = |wanted: bool, y: &Tensor| wanted.then(|| zip(gpu, "multiply", true, &g, y)).transpose();
        Ok(vec![product(wanted[0], &saved_y)?, product(wanted[1], &saved_x)?])
    })
}

pub(super) fn add_scaled(gpu: &'static Gpu, x: &Tensor, y: &Tensor, factor: &Tensor) -> Result<Tensor> {
    const NAME: &str = "add_scaled";
    let n = y.elements();
    let saved_y = autograd::needs_gradient(factor).then(|| y.detach());
    let saved_factor = factor.detach();
    let z = zip(gpu, NAME, false, x, &times_scalar(gpu, NAME, y, factor)?)?;
    z.from_operator(NAME, &[Some(x), Some(y), Some(factor)], move |g, wanted| {
        let dy = wanted[1].then(|| times_scalar(gpu, NAME, &g, &saved_factor)).transpose()?;
        let dot = |y: Tensor| {
            let (g, y) = (floats(NAME, "gradient", &g, gpu)?, floats(NAME, "y", &y, gpu)?);
            column_sums(gpu, g, Some(y), n, 1)?.reshape(saved_factor.shape())
        };
        let dfactor = saved_y.map(dot).transpose()?;
        Ok(vec![wanted[0].then_some(g), dy, dfactor])
    })
}

/// `x_ij f_i`, or `x_ij f_j + b_j`.
fn broadcast(
    gpu: &'static Gpu,
    operator: &'static str,
    x: &Tensor,
    factor: &Tensor,
    bias: Option<&Tensor>,
    rows: bool,
) -> Result<Tensor> {
    let (n, width) = (x.elements(), x.shape().last());
    let y = Output::new(gpu, n)?;
    let factor = floats(operator, "factor", factor, gpu)?;
    let with_bias = bias.is_some();
    let bias = bias.map_or(Ok(factor), |bias| floats(operator, "bias", bias, gpu))?;
    let constants = [("ROWS", f64::from(u8::from(rows))), ("BIAS", f64::from(u8::from(with_bias)))];
    let buffers = [floats(operator, "x", x, gpu)?, factor, bias, y.buffer()];
    gpu.launch(&BROADCAST, &constants, &buffers, &[n as u32, width as u32], groups(n, 256))?;
    y.finish(x.shape())
}

pub(super) fn scale_rows(gpu: &'static Gpu, x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    let [n, m] = [x.shape()[0], x.shape()[1]];
    let (saved_x, saved_factor) = (x.detach(), factor.detach());
    broadcast(gpu, "scale_rows", x, factor, None, true)?.from_operator(
        "scale_rows",
        &[Some(x), Some(factor)],
        move |g, wanted| {
            let dx = wanted[0].then(|| broadcast(gpu, "scale_rows", &g, &saved_factor, None, true)).transpose()?;
            let dots = || {
                let out = Output::new(gpu, n)?;
                let buffers =
                    [floats("scale_rows", "g", &g, gpu)?, floats("scale_rows", "x", &saved_x, gpu)?, out.buffer()];
                gpu.launch(&ROW_DOTS, &[], &buffers, &[n as u32, m as u32], groups(n, 1))?;
                out.finish([n])
            };
            Ok(vec![dx, wanted[1].then(dots).transpose()?])
        },
    )
}

pub(super) fn scale_columns(gpu: &'static Gpu, x: &Tensor, factor: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    const NAME: &str = "scale_columns";
    let (rows, width) = (x.shape().rows(), x.shape().last());
    let saved_x = autograd::needs_gradient(factor).then(|| x.detach());
    let saved_factor = autograd::needs_gradient(x).then(|| factor.detach());
    let out = broadcast(gpu, NAME, x, factor, bias, false)?;
    out.from_operator(NAME, &[Some(x), Some(factor), bias], move |g, wanted| {
        let dx = saved_factor.map(|factor| broadcast(gpu, NAME, &g, &factor, None, false)).transpose()?;
        let data = floats(NAME, "g", &g, gpu)?;
        let weighed = |x: Tensor| column_sums(gpu, data, Some(floats(NAME, "x", &x, gpu)?), rows, width);
        let dfactor = saved_x.map(weighed).transpose()?;
        let dbias = if wanted[2] { Some(column_sums(gpu, data, None, rows, width)?) } else { None };
        Ok(vec![dx, dfactor, dbias])
    })
}

/// All elements of `x` times the single one of `factor`.
pub(crate) fn times_scalar(gpu: &'static Gpu, operator: &'static str, x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    let n = x.elements();
    let y = Output::new(gpu, n)?;
    let factor = floats(operator, "factor", factor, gpu)?;
    let buffers = [floats(operator, "x", x, gpu)?, factor, factor, y.buffer()];
    gpu.launch(&BROADCAST, &[("ROWS", 1.0), ("BIAS", 0.0)], &buffers, &[n as u32, n as u32], groups(n, 256))?;
    y.finish(x.shape())
}
