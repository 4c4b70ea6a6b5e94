//! Chunks of logits, a workgroup to a row. Targets and weights come from main memory, where batches are made.

use super::{Head, NAME, Targets, TokenScores};
use crate::elementwise::gpu::{add, times_scalar};
use crate::embedding::gpu::{gather, scatter};
use crate::gpu::{Output, column_sums, floats, stored, words, zeros};
use crate::linear::gpu::{Epilogue, Left, Right, converted, gemm, suits_f16};
use hankel_core::gpu::{Gpu, GpuBuffer, GpuStorage, Kernel, flag, groups};
use hankel_core::{Precision, Result, Tensor};

static ROWS: Kernel = Kernel {
    name: NAME,
    source: concat!(include_str!("../soft_cap.wgsl"), include_str!("rows.wgsl")),
    bindings: "wrw",
};
static SCORES: Kernel = Kernel {
    name: "token_scores",
    source: concat!(include_str!("../soft_cap.wgsl"), include_str!("scores.wgsl")),
    bindings: "rrw",
};

/// Logits that exist at once. Each chunk of rows reads the head once, so that they should be hundreds.
const CHUNK: usize = 1 << 24;
/// Rows of a tile of the product, of which chunks are a multiple.
const TILE: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    rows: u32,
    classes: u32,
    first: u32,
    all: u32,
    smoothing: f32,
    scale: f32,
    cap: f32,
}

/// 0 for no cap.
fn cap_of(head: Head) -> f32 {
    head.cap.unwrap_or(0.0) as f32
}

/// Calls `f(first_row, rows, logits)` for chunks of rows of `x` `[rows, width]`, with the head's weight as it is stored.
fn for_chunks(
    gpu: &'static Gpu,
    x: &Tensor,
    (head, weight): (Head, &GpuStorage),
    classes: usize,
    precision: Precision,
    mut f: impl FnMut(usize, usize, &GpuBuffer) -> Result<()>,
) -> Result<()> {
    let (rows, width) = (x.shape()[0], x.shape()[1]);
    let right = Right { storage: weight, first: 0, rows: classes, cols: width, transposed: true };
    let bias = head.bias.map(|bias| floats(NAME, "bias", bias, gpu)).transpose()?;
    let chunk = (CHUNK / classes.max(1) / TILE).max(1) * TILE;
    let mut first = 0;
    while first < rows {
        // A short rest joins the last chunk: by itself it would be multiplied by another kernel than the others.
        let n = if rows - first < chunk + TILE { rows - first } else { chunk };
        let logits = Output::new(gpu, n * classes)?;
        let left = Left {
            data: floats(NAME, "hidden states", x, gpu)?,
            first,
            rows: n,
            cols: width,
            transposed: false,
            tensor: None,
        };
        gemm(gpu, left, right, Epilogue { bias, precision, ..Epilogue::default() }, logits.buffer())?;
        f(first, n, logits.buffer())?;
        first += n;
    }
    Ok(())
}

/// The weight as the products of `rows` rows take it, if that is not as it is stored.
fn converted_for(
    rows: usize,
    gpu: &'static Gpu,
    weight: &GpuStorage,
    head: Head,
    precision: Precision,
) -> Result<Option<GpuStorage>> {
    let (classes, width) = (head.weight.shape()[0], head.weight.shape()[1]);
    // What is multiplied in f32 is not rounded.
    let is_half = precision != Precision::F16 || suits_f16(rows, classes, width);
    converted(gpu, weight, if is_half { precision } else { Precision::F32 })
}

/// The rows `counted` of the `rows` of `hidden`, in that order, as a matrix.
fn packed(gpu: &'static Gpu, hidden: &Tensor, counted: &[usize], rows: usize, width: usize) -> Result<Tensor> {
    if counted.iter().copied().eq(0..rows) {
        return hidden.detach().reshape([rows, width]);
    }
    let ids: Vec<u32> = counted.iter().map(|&i| i as u32).collect();
    gather(gpu, NAME, None, &ids, hidden, width)
}

/// The loss, and the wanted gradients of hidden states, head and bias.
pub(super) fn forward(
    gpu: &'static Gpu,
    hidden: &Tensor,
    head: Head,
    targets: Targets,
    precision: Precision,
    wanted: [bool; 3],
) -> Result<(Tensor, [Option<Tensor>; 3])> {
    let (classes, width) = (head.weight.shape()[0], head.weight.shape()[1]);
    let (tokens, weights) = (targets.tokens.data::<u32>()?, targets.weights.data::<f32>()?);
    let rows = weights.len();
    let counted: Vec<usize> = (0..rows).filter(|&i| weights[i] != 0.0).collect();
    let n_counted = counted.len();
    let x = packed(gpu, hidden, &counted, rows, width)?;
    let of_rows = counted.iter().map(|&i| tokens[i]).chain(counted.iter().map(|&i| weights[i].to_bits()));
    let of_rows = words(gpu, &of_rows.collect::<Vec<u32>>())?;
    let losses = Output::new(gpu, n_counted)?;
    let d_hidden = Output::new(gpu, if wanted[0] { n_counted * width } else { 0 })?;
    let mut d_weight = wanted[1].then(|| zeros(gpu, &[classes, width])).transpose()?;
    let mut d_bias = wanted[2].then(|| zeros(gpu, &[classes])).transpose()?;
    let constants = [("GRADIENT", flag(wanted.contains(&true)))];
    let plain = stored(NAME, "head", head.weight, gpu)?;
    let converted = converted_for(n_counted, gpu, plain, head, precision)?;
    let weight = converted.as_ref().unwrap_or(plain);
    for_chunks(gpu, &x, (head, weight), classes, precision, |first, n, logits| {
        let parameters = Parameters {
            rows: n as u32,
            classes: classes as u32,
            first: first as u32,
            all: n_counted as u32,
            smoothing: targets.smoothing as f32,
            scale: (1.0 / targets.normalizer) as f32,
            cap: cap_of(head),
        };
        gpu.launch(&ROWS, &constants, &[logits, &of_rows, losses.buffer()], &parameters, groups(n, 1))?;
        let slopes = Left { data: logits, first: 0, rows: n, cols: classes, transposed: false, tensor: None };
        if wanted[0] {
            let right = Right { storage: weight, first: 0, rows: classes, cols: width, transposed: false };
            let how = Epilogue { first: first * width, precision, ..Epilogue::default() };
            gemm(gpu, slopes, right, how, d_hidden.buffer())?;
        }
        if let Some(sum) = &mut d_weight {
            let next = Output::new(gpu, classes * width)?;
            let right = Right { storage: stored(NAME, "x", &x, gpu)?, first, rows: n, cols: width, transposed: false };
            let how = Epilogue { base: Some(floats(NAME, "sum", sum, gpu)?), ..Epilogue::default() };
            gemm(gpu, Left { transposed: true, ..slopes }, right, how, next.buffer())?;
            *sum = next.finish([classes, width])?;
        }
        if let Some(sum) = &mut d_bias {
            *sum = add(gpu, sum, &column_sums(gpu, logits, None, n, classes)?)?;
        }
        Ok(())
    })?;
    let d_hidden = match wanted[0] {
        false => None,
        true if n_counted == rows => Some(d_hidden.finish(hidden.shape())?),
        true => {
            let d_hidden = d_hidden.finish([n_counted, width])?;
            let ids: Vec<u32> = counted.iter().map(|&i| i as u32).collect();
            let each: Vec<u32> = (0..=n_counted as u32).collect();
            let spread = scatter(gpu, NAME, (&ids, &each, &each[..n_counted]), &d_hidden, [rows, width])?;
            Some(spread.reshape(hidden.shape())?)
        }
    };
    let loss = column_sums(gpu, losses.buffer(), None, n_counted, 1)?.reshape([])?;
    Ok((loss, [d_hidden, d_weight, d_bias]))
}

/// `x` times the element of `g`.
#[expect(clippy::needless_pass_by_value, reason = "on the CPU its memory is used for the result")]
pub(super) fn times(gpu: &'static Gpu, x: Tensor, g: &Tensor) -> Result<Tensor> {
    times_scalar(gpu, &x, g)
}

pub(super) fn token_scores(
    gpu: &'static Gpu,
    hidden: &Tensor,
    head: Head,
    tokens: &[u32],
    places: &[usize],
    precision: Precision,
) -> Result<TokenScores> {
    let (classes, width) = (head.weight.shape()[0], head.weight.shape()[1]);
    let x = packed(gpu, hidden, places, tokens.len(), width)?;
    let targets: Vec<u32> = places.iter().map(|&i| tokens[i]).collect();
    let targets = words(gpu, &targets)?;
    let scores = Output::new(gpu, 3 * places.len())?;
    let plain = stored(NAME, "head", head.weight, gpu)?;
    let converted = converted_for(places.len(), gpu, plain, head, precision)?;
    let weight = converted.as_ref().unwrap_or(plain);
    for_chunks(gpu, &x, (head, weight), classes, precision, |first, n, logits| {
        let parameters = [n as u32, classes as u32, first as u32, cap_of(head).to_bits()];
        gpu.launch(&SCORES, &[], &[logits, &targets, scores.buffer()], &parameters, groups(n, 1))
    })?;
    let bytes = gpu.download(scores.buffer(), 12 * places.len())?;
    let scores: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
    let column = |k: usize| scores.iter().skip(k).step_by(3);
    Ok(TokenScores {
        nll: column(0).map(|&x| f64::from(x)).collect(),
        mean_nll: column(1).map(|&x| f64::from(x)).collect(),
        predicted: column(2).map(|x| x.to_bits()).collect(),
    })
}
