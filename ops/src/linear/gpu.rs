//! Products on a GPU.

use super::Gate;
use crate::gpu::{Output, column_sums, floats, stored};
use hankel_core::gpu::{Gpu, GpuBuffer, GpuStorage, Kernel};
use hankel_core::{DType, Error, Result, Tensor, autograd};

static GEMM: Kernel = Kernel { name: "gemm", source: include_str!("gemm.wgsl"), bindings: "rrrrrrrw" };

/// Rows and columns of tiles.
const TILE: usize = 64;

/// The left factor `[m, k]`, in rows from `first` on, or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) data: &'a GpuBuffer,
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) transposed: bool,
}

/// The right factor, a stored matrix `[rows, cols]` or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) storage: &'a GpuStorage,
    /// Row of the stored matrix at which it begins.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) transposed: bool,
}

/// What is added to a product, and how it is scaled.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    pub(crate) factor: f32,
    pub(crate) gate: Option<&'a GpuBuffer>,
    pub(crate) base: Option<&'a GpuBuffer>,
    pub(crate) bias: Option<&'a GpuBuffer>,
    /// Where the result begins.
    pub(crate) first: usize,
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Epilogue { factor: 1.0, gate: None, base: None, bias: None, first: 0 }
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    sizes: [u32; 3],
    a: [u32; 3],
    b: [u32; 3],
    c_first: u32,
    block: u32,
    factor: f32,
}

/// `out = base + factor gate left right + bias`.
pub(crate) fn gemm(gpu: &'static Gpu, left: Left, right: Right, how: Epilogue, out: &GpuBuffer) -> Result<()> {
    let (m, k, a) =
        if left.transposed { (left.cols, left.rows, [1, left.cols]) } else { (left.rows, left.cols, [left.cols, 1]) };
    let (n, b) = if right.transposed { (right.rows, [1, right.cols]) } else { (right.cols, [right.cols, 1]) };
    if m == 0 || n == 0 {
        return Ok(());
    }
    let weight = &right.storage.buffer;
    let (format, scales, book, block) = match (right.storage.dtype, &right.storage.nf4) {
        (DType::F32, _) => (0, weight, weight, 1),
        (DType::BF16, _) => (1, weight, weight, 1),
        (DType::F16, _) => (2, weight, weight, 1),
        (DType::Nf4, Some(nf4)) => {
            let rounded = match nf4.source {
                DType::BF16 => 4,
                DType::F16 => 5,
                _ => 3,
            };
            (rounded, &nf4.scales, &nf4.book, nf4.block)
        }
        (found, _) => return Err(Error::DType { operator: "linear", expected: "a float", found }),
    };
    let flag = |set: bool| f64::from(u8::from(set));
    let constants = [
        ("STORED", f64::from(format)),
        ("BASE", flag(how.base.is_some())),
        ("BIAS", flag(how.bias.is_some())),
        ("GATED", flag(how.gate.is_some())),
    ];
    let parameters = Parameters {
        sizes: [m as u32, n as u32, k as u32],
        a: [a[0] as u32, a[1] as u32, (left.first * left.cols) as u32],
        b: [b[0] as u32, b[1] as u32, (right.first * right.cols) as u32],
        c_first: how.first as u32,
        block: block as u32,
        factor: how.factor,
    };
    let spare = left.data;
    let buffers = [
        left.data,
        weight,
        scales,
        book,
        how.base.unwrap_or(spare),
        how.bias.unwrap_or(spare),
        how.gate.unwrap_or(spare),
        out,
    ];
    gpu.launch(&GEMM, &constants, &buffers, &parameters, [n.div_ceil(TILE) as u32, m.div_ceil(TILE) as u32, 1])
}

fn rows<'a>(data: &'a GpuBuffer, like: &Tensor) -> Left<'a> {
    Left { data, first: 0, rows: like.shape().rows(), cols: like.shape().last(), transposed: false }
}

/// `factor gate x W^T + b + base`.
fn project(gpu: &'static Gpu, name: &'static str, x: &Tensor, weight: &Tensor, how: Epilogue) -> Result<Tensor> {
    let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
    let out = Output::new(gpu, x.shape().rows() * outputs)?;
    let right = Right {
        storage: stored(name, "weight", weight, gpu)?,
        first: 0,
        rows: outputs,
        cols: inputs,
        transposed: true,
    };
    gemm(gpu, rows(floats(name, "x", x, gpu)?, x), right, how, out.buffer())?;
    out.finish(x.shape().with_last(outputs))
}

/// `factor gate g W`.
fn times_weight(gpu: &'static Gpu, name: &'static str, g: &Tensor, weight: &Tensor, how: Epilogue) -> Result<Tensor> {
    let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
    let out = Output::new(gpu, g.shape().rows() * inputs)?;
    let right = Right {
        storage: stored(name, "weight", weight, gpu)?,
        first: 0,
        rows: outputs,
        cols: inputs,
        transposed: false,
    };
    gemm(gpu, rows(floats(name, "gradient", g, gpu)?, g), right, how, out.buffer())?;
    out.finish(g.shape().with_last(inputs))
}

/// `factor gate g^T x`, `[out, in]`.
fn weight_gradient(gpu: &'static Gpu, name: &'static str, g: &Tensor, x: &Tensor, how: Epilogue) -> Result<Tensor> {
    let (outputs, inputs) = (g.shape().last(), x.shape().last());
    let out = Output::new(gpu, outputs * inputs)?;
    let left = Left { transposed: true, ..rows(floats(name, "gradient", g, gpu)?, g) };
    let right = Right {
        storage: stored(name, "x", x, gpu)?,
        first: 0,
        rows: x.shape().rows(),
        cols: inputs,
        transposed: false,
    };
    gemm(gpu, left, right, how, out.buffer())?;
    out.finish([outputs, inputs])
}

pub(super) fn linear(gpu: &'static Gpu, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    const NAME: &str = "linear";
    let bias_buffer = bias.map(|bias| floats(NAME, "bias", bias, gpu)).transpose()?;
    let out = project(gpu, NAME, x, weight, Epilogue { bias: bias_buffer, ..Epilogue::default() })?;
    let saved_x = autograd::needs_gradient(weight).then(|| x.detach());
    let saved_weight = autograd::needs_gradient(x).then(|| weight.detach());
    let placeholder = Tensor::zeros::<f32>([0]);
    out.from_operator(NAME, &[x, weight, bias.unwrap_or(&placeholder)], move |g, wanted| {
        let plain = Epilogue::default();
        let dx = saved_weight.map(|w| times_weight(gpu, NAME, &g, &w, plain)).transpose()?;
        let dw = saved_x.map(|x| weight_gradient(gpu, NAME, &g, &x, plain)).transpose()?;
        let sums = || column_sums(gpu, floats(NAME, "gradient", &g, gpu)?, None, g.shape().rows(), g.shape().last());
        Ok(vec![dx, dw, wanted[2].then(sums).transpose()?])
    })
}

pub(super) fn add_linear(
    gpu: &'static Gpu,
    base: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    gate: Gate,
) -> Result<Tensor> {
    const NAME: &str = "add_linear";
    let unlearned = Tensor::zeros::<f32>([0]);
    let (factor, gate) = match gate {
        Gate::Fixed(factor) => (factor as f32, None),
        Gate::Learned(_) if weight.dtype().is_compact() => {
            let problem = format!("a learned gate needs a weight in f32, found {}", weight.dtype());
            return Err(Error::invalid(NAME, problem));
        }
        Gate::Learned(gate) if gate.elements() == 1 => (1.0, Some(gate)),
        Gate::Learned(gate) => {
            return Err(Error::shape(NAME, format!("gate has shape {}, expected one element", gate.shape())));
        }
    };
    let how = Epilogue {
        factor,
        gate: gate.map(|gate| floats(NAME, "gate", gate, gpu)).transpose()?,
        base: Some(floats(NAME, "base", base, gpu)?),
        bias: bias.map(|bias| floats(NAME, "bias", bias, gpu)).transpose()?,
        first: 0,
    };
    let out = project(gpu, NAME, x, weight, how)?;

    let gate_tensor = gate.unwrap_or(&unlearned);
    let learns = autograd::needs_gradient(weight) || autograd::needs_gradient(gate_tensor);
    let saved_x = learns.then(|| x.detach());
    let saved_weight = (autograd::needs_gradient(x) || autograd::needs_gradient(gate_tensor)).then(|| weight.detach());
    let saved_gate = gate.map(Tensor::detach);
    let parents = [base, x, weight, bias.unwrap_or(&unlearned), gate_tensor];
    out.from_operator(NAME, &parents, move |g, wanted| {
        let gate = saved_gate.as_ref().map(|gate| floats(NAME, "gate", gate, gpu)).transpose()?;
        let scaled = Epilogue { factor, gate, ..Epilogue::default() };
        let (mut dw, mut dgate) = (None, None);
        if let Some(x) = &saved_x {
            if wanted[2] {
                dw = Some(weight_gradient(gpu, NAME, &g, x, scaled)?);
            }
            if let (true, Some(weight), Some(gate)) = (wanted[4], &saved_weight, &saved_gate) {
                // The inner product of g^T x and W.
                let product = weight_gradient(gpu, NAME, &g, x, Epilogue::default())?;
                let (product, weight) = (floats(NAME, "product", &product, gpu)?, floats(NAME, "weight", weight, gpu)?);
                let n = g.shape().last() * x.shape().last();
                dgate = Some(column_sums(gpu, product, Some(weight), n, 1)?.reshape(gate.shape())?);
            }
        }
        let dx = match (&saved_weight, wanted[1]) {
            (Some(weight), true) => Some(times_weight(gpu, NAME, &g, weight, scaled)?),
            _ => None,
        };
        let sums = || column_sums(gpu, floats(NAME, "gradient", &g, gpu)?, None, g.shape().rows(), g.shape().last());
        let db = wanted[3].then(sums).transpose()?;
        Ok(vec![wanted[0].then_some(g), dx, dw, db, dgate])
    })
}
