//! Cross entropy fused with the head, in chunks of tokens.
//!
//! With `z = W h + b` over `V` classes and `log p = z - logsumexp(z)`,
//!
//! ```text
//! loss = 1/normalizer * sum_i weight_i ( (1 - e) (-log p_i[target_i]) + e/V sum_v (-log p_i[v]) )
//! ```
//!
//! `hidden` `[..., D]`, head `weight` `[V, D]` and `bias` `[V]`, `targets` u32 `[...]`, `weights` `[...]`, `e` the label
//! smoothing; the loss has one element and no dimensions. Logits exist for one chunk of tokens at a time, so the memory does
//! not grow with `tokens x V`. Rows of weight 0 are left out altogether: a prompt costs nothing here. While gradients are being recorded, each chunk's gradient is formed in the forward pass from
//! the logits at hand: nothing is computed twice, and only gradients of the size of `hidden` and of the head are kept.

#[doc(hidden)]
pub mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::for_float;
use crate::kernels::{Accumulate, Mat, Real, gemm};
use crate::linear::{Weight, precision, product};
use hankel_core::{Buffer, Device, Error, Precision, Result, Tensor, autograd};

/// Logits that exist at once.
const CHUNK: usize = 1 << 20;
/// Rows of a chunk at least where the head is compact: decoding it for fewer takes longer than multiplying.
const COMPACT_ROWS: usize = 128;

/// The last linear map of a model.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// `[V, D]`.
    pub weight: &'a Tensor,
    /// `[V]`.
    pub bias: Option<&'a Tensor>,
}

/// What the loss of a token is compared with and how it counts.
#[derive(Clone, Copy)]
pub struct Targets<'a> {
    /// Class of each row of the hidden states, u32.
    pub tokens: &'a Tensor,
    /// Weight of each, of the type of the hidden states; 0 leaves a token out.
    pub weights: &'a Tensor,
    /// Share of the target distribution spread evenly over all classes, `0 <= e < 1`.
    pub smoothing: f64,
    /// Divides the sum; usually the sum of all weights of a step, over its micro-batches.
    pub normalizer: f64,
}

#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    width: usize,
    classes: usize,
}

fn sizes(hidden: &Tensor, head: Head, tokens: &Tensor) -> Result<Sizes> {
    let &[classes, width] = &head.weight.shape()[..] else {
        return Err(Error::shape("cross_entropy", format!("head has shape {}, expected [V, D]", head.weight.shape())));
    };
    if hidden.shape().is_empty() || hidden.shape().last() != width {
        let problem = format!("hidden states {} do not fit a head {}", hidden.shape(), head.weight.shape());
        return Err(Error::shape("cross_entropy", problem));
    }
    check::weight_dtype("cross_entropy", "head", head.weight, hidden.dtype())?;
    if let Some(bias) = head.bias {
        check::shape("cross_entropy", "bias", bias, &[classes])?;
        check::dtype("cross_entropy", "bias", bias, hidden.dtype())?;
    }
    let rows = hidden.shape().rows();
    check::shape("cross_entropy", "targets", tokens, &hidden.shape()[..hidden.shape().len() - 1])?;
    if let Some((i, token)) = tokens.data::<u32>()?.iter().enumerate().find(|&(_, &t)| t as usize >= classes) {
        return Err(Error::invalid(
            "cross_entropy",
            format!("target {token} at position {i} is not below {classes} classes"),
        ));
    }
    Ok(Sizes { rows, width, classes })
}

/// The weighted mean loss.
///
/// # Errors
/// When shapes or element types do not fit, a target is not a class, or a setting is out of range.
pub fn cross_entropy(hidden: &Tensor, head: Head, targets: Targets) -> Result<Tensor> {
    let sizes = sizes(hidden, head, targets.tokens)?;
    let Sizes { rows, width, classes } = sizes;
    check::shape("cross_entropy", "weights", targets.weights, targets.tokens.shape())?;
    check::dtype("cross_entropy", "weights", targets.weights, hidden.dtype())?;
    let Targets { smoothing, normalizer, .. } = targets;
    if !(0.0..1.0).contains(&smoothing) {
        return Err(Error::invalid("cross_entropy", format!("label smoothing {smoothing} is not in 0 <= e < 1")));
    }
    if !(normalizer > 0.0 && normalizer.is_finite()) {
        return Err(Error::invalid(
            "cross_entropy",
            format!("the weights of the tokens sum to {normalizer}: nothing to learn from"),
        ));
    }
    if let Some(gpu) = hidden.gpu() {
        let weights = targets.weights.to_device(Device::Cpu)?;
        let counting = (targets.tokens.data()?, weights.data()?);
        return gpu::cross_entropy(gpu, hidden, head, counting, (smoothing, normalizer), sizes);
    }
    for_float!(hidden, "cross_entropy", T => {
        let inputs = [Some(hidden), Some(head.weight), head.bias];
        let wants = inputs.map(|input| input.is_some_and(autograd::needs_gradient));
        let mut dw = wants[1].then(|| Buffer::<T>::zeros(classes * width));
        let mut db = wants[2].then(|| Buffer::<T>::zeros(classes));
        let precision = precision::of_product(hidden, head.weight)?;
        let w = Weight::new(head.weight, precision)?;
        let all = targets.weights.data::<T>()?;
        let counted: Vec<usize> = (0..rows).filter(|&i| all[i] != 0.0).collect();
        let some = counted.len() < rows;
        let (x, tokens) = (hidden.data::<T>()?, targets.tokens.data::<u32>()?);
        let packed = some.then(|| Packed::of(&counted, x, tokens, all));
        let (x, tokens, weights) = match &packed {
            Some(packed) => (&packed.x[..], &packed.tokens[..], &packed.weights[..]),
            None => (x, tokens, all),
        };
        let mut dx = wants[0].then(|| Buffer::<T>::unspecified(counted.len() * width));
        let settings = cpu::Settings {
            tokens,
            weights,
            smoothing: smoothing as T,
            scale: (1.0 / normalizer) as T,
            gradient: wants.contains(&true),
        };
        let mut loss = 0.0;
        for_chunks(x, head, precision, |first, logits: &mut [T]| {
            let n = logits.len() / classes;
            loss += cpu::rows(first, classes, &settings, logits);
            let logits = Mat::new(logits, n, classes);
            if let Some(dx) = &mut dx {
                let out = &mut dx[first * width..(first + n) * width];
                product(1.0, logits, &w, Accumulate::Overwrite, out, width);
            }
            if let Some(dw) = &mut dw {
                let x = Mat::new(&x[first * width..], n, width);
                gemm(1.0, logits.t(), &x, Accumulate::Add, dw, width);
            }
            if let Some(db) = &mut db {
                (0..n).for_each(|i| (0..classes).for_each(|j| db[j] += logits.at(i, j)));
            }
        })?;
        let dx = dx.map(|dx| if some { spread(&counted, &dx, rows, width) } else { dx });
        let hidden_shape = hidden.shape().clone();
        Tensor::scalar(loss as T).from_operator("cross_entropy", &inputs, move |g, _| {
            let g = g.data::<T>()?[0];
            let scaled = |gradient: Option<Buffer<T>>, shape: &[usize]| {
                let scaled = gradient.map(|mut gradient| {
                    if g != 1.0 {
                        gradient.iter_mut().for_each(|x| *x *= g);
                    }
                    Tensor::from_buffer(gradient, shape)
                });
                scaled.transpose()
            };
            Ok(vec![scaled(dx, &hidden_shape)?, scaled(dw, &[classes, width])?, scaled(db, &[classes])?])
        })
    })
}

/// The rows that count, next to each other.
struct Packed<T> {
    x: Vec<T>,
    tokens: Vec<u32>,
    weights: Vec<T>,
}

impl<T: Copy> Packed<T> {
    fn of(counted: &[usize], x: &[T], tokens: &[u32], weights: &[T]) -> Self {
        let width = x.len() / weights.len().max(1);
        Packed {
            x: counted.iter().flat_map(|&i| &x[i * width..][..width]).copied().collect(),
            tokens: counted.iter().map(|&i| tokens[i]).collect(),
            weights: counted.iter().map(|&i| weights[i]).collect(),
        }
    }
}

/// Gradients of the rows that count, at their places among all rows.
fn spread<T: Real>(counted: &[usize], gradient: &[T], rows: usize, width: usize) -> Buffer<T> {
    let mut all = Buffer::<T>::zeros(rows * width);
    for (&i, row) in counted.iter().zip(gradient.chunks(width.max(1))) {
        all[i * width..][..width].copy_from_slice(row);
    }
    all
}

/// What evaluation wants to know of each token.
pub struct TokenScores {
    /// `-log p[target]`, in nats.
    pub nll: Vec<f64>,
    /// `-log p` averaged over all classes, in nats: the second term of a smoothed loss.
    pub mean_nll: Vec<f64>,
    /// The most probable class (the lowest of equals).
    pub predicted: Vec<u32>,
}

/// Scores the tokens in the rows `places` without recording a gradient.
///
/// # Errors
/// When shapes or element types do not fit, a target is not a class, or there is no such row.
pub fn token_scores(hidden: &Tensor, head: Head, targets: &Tensor, places: &[usize]) -> Result<TokenScores> {
    let sizes = sizes(hidden, head, targets)?;
    let Sizes { rows, classes, .. } = sizes;
    if let Some(place) = places.iter().find(|place| **place >= rows) {
        return Err(Error::shape("token_scores", format!("row {place} of {rows}")));
    }
    if let Some(gpu) = hidden.gpu() {
        return gpu::token_scores(gpu, hidden, head, targets.data()?, places, sizes);
    }
    for_float!(hidden, "token_scores", T => {
        let Packed { x, tokens, .. } = Packed::of(places, hidden.data::<T>()?, targets.data()?, &vec![1.0; rows]);
        let mut scores = Vec::with_capacity(places.len());
        let precision = precision::of_product(hidden, head.weight)?;
        for_chunks(&x, head, precision, |first, logits| {
            scores.extend(cpu::scores(&tokens[first..], classes, logits));
        })?;
        Ok(TokenScores {
            nll: scores.iter().map(|s| s.nll).collect(),
            mean_nll: scores.iter().map(|s| s.mean_nll).collect(),
            predicted: scores.iter().map(|s| s.predicted).collect(),
        })
    })
}

/// Calls `f(first_row, logits)` for chunks of rows.
fn for_chunks<T: Real>(x: &[T], head: Head, precision: Precision, mut f: impl FnMut(usize, &mut [T])) -> Result<()> {
    let (classes, width) = (head.weight.shape()[0], head.weight.shape()[1]);
    let rows = x.len() / width.max(1);
    let least = if head.weight.dtype().is_compact() { COMPACT_ROWS } else { 1 };
    let chunk = (CHUNK / classes.max(1)).max(least);
    let right = Weight::new(head.weight, precision)?.t();
    let mut logits = Buffer::unspecified(chunk.min(rows) * classes);
    for first in (0..rows).step_by(chunk) {
        let n = chunk.min(rows - first);
        let how = match head.bias {
            Some(bias) => Accumulate::Bias(bias.data()?),
            None => Accumulate::Overwrite,
        };
        product(T::one(), Mat::new(&x[first * width..], n, width), &right, how, &mut logits, classes);
        f(first, &mut logits[..n * classes]);
    }
    Ok(())
}
