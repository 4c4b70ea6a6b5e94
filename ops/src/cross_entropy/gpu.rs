//! The loss and the scores on a GPU. Targets and weights come from the host, where batches are made.

use super::{Head, Sizes, TokenScores};
use crate::elementwise::{add, times_scalar};
use crate::embedding::{gather_rows as gather, scatter_rows as scatter};
use crate::gpu::{Output, column_sums, floats, stored, words, zeros};
use crate::linear::gpu::{Epilogue, Left, Right, converted, gemm};
use crate::linear::precision;
use hankel_core::gpu::{Gpu, GpuBuffer, GpuStorage, Kernel, groups};
use hankel_core::{Precision, Result, Tensor, autograd, no_grad};

const NAME: &str = "cross_entropy";
static ROWS: Kernel = Kernel { name: NAME, source: include_str!("rows.wgsl"), bindings: "wrw" };
static SCORES: Kernel = Kernel { name: "token_scores", source: include_str!("scores.wgsl"), bindings: "rrw" };

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
    for first in (0..rows).step_by(chunk) {
        let n = chunk.min(rows - first);
        let logits = Output::new(gpu, n * classes)?;
        let left =
            Left { data: floats(NAME, "hidden states", x, gpu)?, first, rows: n, cols: width, transposed: false };
        gemm(gpu, left, right, Epilogue { bias, precision, ..Epilogue::default() }, logits.buffer())?;
        f(first, n, logits.buffer())?;
    }
    Ok(())
}

/// The rows `counted` of `hidden` as a matrix, or all of them.
fn packed(gpu: &'static Gpu, hidden: &Tensor, counted: &[usize], rows: usize, width: usize) -> Result<Tensor> {
    if counted.len() == rows {
        return hidden.detach().reshape([rows, width]);
    }
    let ids: Vec<u32> = counted.iter().map(|&i| i as u32).collect();
    gather(gpu, NAME, &ids, &hidden.detach(), width, [counted.len(), width])
}

pub(super) fn cross_entropy(
    gpu: &'static Gpu,
    hidden: &Tensor,
    head: Head,
    (tokens, weights): (&[u32], &[f32]),
    (smoothing, normalizer): (f64, f64),
    Sizes { rows, width, classes }: Sizes,
) -> Result<Tensor> {
    let inputs = [Some(hidden), Some(head.weight), head.bias];
    let wants = inputs.map(|input| input.is_some_and(autograd::needs_gradient));
    let counted: Vec<usize> = (0..rows).filter(|&i| weights[i] != 0.0).collect();
    let x = packed(gpu, hidden, &counted, rows, width)?;
    let n_counted = counted.len();
    let weights = counted.iter().map(|&i| weights[i].to_bits());
    let targets: Vec<u32> = counted.iter().map(|&i| tokens[i]).chain(weights).collect();
    let targets = words(gpu, &targets)?;
    let losses = Output::new(gpu, n_counted)?;
    let dx = Output::new(gpu, if wants[0] { n_counted * width } else { 0 })?;
    let mut dw = if wants[1] { Some(zeros(gpu, &[classes, width])?) } else { None };
    let mut db = if wants[2] { Some(zeros(gpu, &[classes])?) } else { None };
    let constants = [("GRADIENT", f64::from(u8::from(wants.contains(&true))))];
    let precision = precision::of_product(hidden, head.weight)?;
    let plain = stored(NAME, "head", head.weight, gpu)?;
    let half = converted(gpu, plain, precision)?;
    let weight = half.as_ref().unwrap_or(plain);
    for_chunks(gpu, &x, (head, weight), classes, precision, |first, n, logits| {
        let parameters = Parameters {
            rows: n as u32,
            classes: classes as u32,
            first: first as u32,
            all: n_counted as u32,
            smoothing: smoothing as f32,
            scale: (1.0 / normalizer) as f32,
        };
        gpu.launch(&ROWS, &constants, &[logits, &targets, losses.buffer()], &parameters, groups(n, 1))?;
        let slopes = Left { data: logits, first: 0, rows: n, cols: classes, transposed: false };
        if wants[0] {
            let right = Right { storage: weight, first: 0, rows: classes, cols: width, transposed: false };
            gemm(gpu, slopes, right, Epilogue { first: first * width, precision, ..Epilogue::default() }, dx.buffer())?;
        }
        if let Some(sum) = &mut dw {
            let next = Output::new(gpu, classes * width)?;
            let right = Right { storage: stored(NAME, "x", &x, gpu)?, first, rows: n, cols: width, transposed: false };
            let how = Epilogue { base: Some(floats(NAME, "sum", sum, gpu)?), ..Epilogue::default() };
            gemm(gpu, Left { transposed: true, ..slopes }, right, how, next.buffer())?;
            *sum = next.finish([classes, width])?;
        }
        if let Some(sum) = &mut db {
            *sum = no_grad(|| add(sum, &column_sums(gpu, logits, None, n, classes)?))?;
        }
        Ok(())
    })?;
    let dx = match wants[0] {
        false => None,
        true if n_counted == rows => Some(dx.finish(hidden.shape())?),
        true => {
            let dx = dx.finish([n_counted, width])?;
            let ids: Vec<u32> = counted.iter().map(|&i| i as u32).collect();
            let each: Vec<u32> = (0..=n_counted as u32).collect();
            let spread = scatter(gpu, NAME, (&ids, &each, &each[..n_counted]), &dx, [rows, width])?;
            Some(spread.reshape(hidden.shape())?)
        }
    };
    let loss = column_sums(gpu, losses.buffer(), None, n_counted, 1)?.reshape([])?;
    loss.from_operator(NAME, &inputs, move |g, _| {
        let scaled =
            |gradient: Option<Tensor>| gradient.map(|gradient| times_scalar(gpu, NAME, &gradient, &g)).transpose();
        Ok(vec![scaled(dx)?, scaled(dw)?, scaled(db)?])
    })
}

pub(super) fn token_scores(
    gpu: &'static Gpu,
    hidden: &Tensor,
    head: Head,
    tokens: &[u32],
    places: &[usize],
    Sizes { rows, width, classes }: Sizes,
) -> Result<TokenScores> {
    // In whatever order and number: every place is a row of its own.
    let ids: Vec<u32> = places.iter().map(|&i| i as u32).collect();
    let x = if places.iter().copied().eq(0..rows) {
        hidden.detach().reshape([rows, width])?
    } else {
        gather(gpu, "token_scores", &ids, &hidden.detach(), width, [places.len(), width])?
    };
    let targets: Vec<u32> = places.iter().map(|&i| tokens[i]).collect();
    let targets = words(gpu, &targets)?;
    let scores = Output::new(gpu, 3 * places.len())?;
    let precision = precision::of_product(hidden, head.weight)?;
    let plain = stored(NAME, "head", head.weight, gpu)?;
    let half = converted(gpu, plain, precision)?;
    let weight = half.as_ref().unwrap_or(plain);
    for_chunks(gpu, &x, (head, weight), classes, precision, |first, n, logits| {
        let parameters = [n as u32, classes as u32, first as u32];
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
