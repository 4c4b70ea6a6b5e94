//! Chunks of logits, row by row.

use super::{Head, NAME, Targets, TokenScores};
use crate::dispatch::for_float;
use crate::kernels::elementary::Elementary;
use crate::kernels::rows::{LANES, sum, total};
use crate::kernels::simd::{self, dispatch, vectorized};
use crate::kernels::{Accumulate, Mat, Real, gemm};
use crate::linear::{Weight, product};
use hankel_core::{Buffer, Precision, Result, Tensor, parallel};
use pulp::{Simd, WithSimd};

/// Logits that exist at once.
const CHUNK: usize = 1 << 20;
/// The same where the head is compact and decoded for each chunk, and the rows that a chunk has at least then: decoding for fewer takes
/// longer than multiplying.
const COMPACT_CHUNK: usize = 1 << 24;
const COMPACT_ROWS: usize = 128;
/// Rows of which gradients of the bias are summed up first: the rounding errors of a long sum in `f32` would add up.
const SHORT: usize = 64;

/// Rows of a chunk, of `rows` in all: even ones, as a small last one would cost as much as the others.
fn chunk_rows(rows: usize, classes: usize, compact: bool) -> usize {
    let (logits, least) = if compact { (COMPACT_CHUNK, COMPACT_ROWS) } else { (CHUNK, 1) };
    let most = (logits / classes.max(1)).max(least);
    rows.div_ceil(rows.div_ceil(most).max(1)).max(1)
}

/// The loss, and the wanted gradients of hidden states, head and bias.
pub(super) fn forward(
    hidden: &Tensor,
    head: Head,
    targets: Targets,
    precision: Precision,
    wanted: [bool; 3],
) -> Result<(Tensor, [Option<Tensor>; 3])> {
    let (classes, width) = (head.weight.shape()[0], head.weight.shape()[1]);
    for_float!(hidden, NAME, T => {
        let mut d_weight = wanted[1].then(|| Buffer::<T>::zeros(classes * width));
        let mut d_bias = wanted[2].then(|| Buffer::<T>::zeros(classes));
        let w = Weight::new(head.weight, precision)?;
        let (x, tokens, all) = (hidden.data::<T>()?, targets.tokens.data::<u32>()?, targets.weights.data::<T>()?);
        let counted: Vec<usize> = (0..all.len()).filter(|&i| all[i] != 0.0).collect();
        let some = counted.len() < all.len();
        let packed = some.then(|| Packed::of(&counted, x, tokens, all));
        let (x, tokens, weights) = match &packed {
            Some(packed) => (&packed.x[..], &packed.tokens[..], &packed.weights[..]),
            None => (x, tokens, all),
        };
        let mut d_hidden = wanted[0].then(|| Buffer::<T>::unspecified(counted.len() * width));
        let settings = Settings {
            tokens,
            weights,
            smoothing: targets.smoothing as T,
            scale: (1.0 / targets.normalizer) as T,
            cap: head.cap.map(|cap| cap as T),
            gradient: wanted.contains(&true),
        };
        let mut loss = 0.0;
        for_chunks(x, head, precision, |first, logits: &mut [T]| {
            let n = logits.len() / classes;
            loss += losses(first, classes, &settings, logits);
            let rows = &*logits;
            let logits = Mat::new(rows, n, classes);
            if let Some(d_hidden) = &mut d_hidden {
                let out = &mut d_hidden[first * width..(first + n) * width];
                product(1.0, logits, &w, Accumulate::Overwrite, out, width);
            }
            if let Some(d_weight) = &mut d_weight {
                let x = Mat::new(&x[first * width..], n, width);
                gemm(1.0, logits.t(), &x, Accumulate::Add, d_weight, width);
            }
            if let Some(d_bias) = &mut d_bias {
                for rows in rows.chunks(SHORT * classes) {
                    let mut short = vec![0.0 as T; classes];
                    rows.chunks(classes).for_each(|row| short.iter_mut().zip(row).for_each(|(sum, &g)| *sum += g));
                    d_bias.iter_mut().zip(short).for_each(|(sum, short)| *sum += short);
                }
            }
        })?;
        let d_hidden = d_hidden.map(|d| if some { spread(&counted, &d, all.len(), width) } else { d });
        let tensor = |d: Option<Buffer<T>>, shape: &[usize]| d.map(|d| Tensor::from_buffer(d, shape)).transpose();
        let gradients = [
            tensor(d_hidden, hidden.shape())?,
            tensor(d_weight, &[classes, width])?,
            tensor(d_bias, &[classes])?,
        ];
        Ok((Tensor::scalar(loss as T), gradients))
    })
}

/// `x` times the element of `g`, in the memory of `x`.
pub(super) fn times(mut x: Tensor, g: &Tensor) -> Result<Tensor> {
    for_float!(g, NAME, T => {
        let g = g.data::<T>()?[0];
        if g != 1.0 {
            x.data_mut::<T>()?.iter_mut().for_each(|x| *x *= g);
        }
        Ok(x)
    })
}

pub(super) fn token_scores(
    hidden: &Tensor,
    head: Head,
    tokens: &[u32],
    places: &[usize],
    precision: Precision,
) -> Result<TokenScores> {
    let classes = head.weight.shape()[0];
    for_float!(hidden, "token_scores", T => {
        let all = vec![1.0; tokens.len()];
        let Packed { x, tokens, .. } = Packed::of(places, hidden.data::<T>()?, tokens, &all);
        let mut found = Vec::with_capacity(places.len());
        let cap = head.cap.map(|cap| cap as T);
        for_chunks(&x, head, precision, |first, logits| {
            found.extend(scores(&tokens[first..], classes, cap, logits));
        })?;
        Ok(TokenScores {
            nll: found.iter().map(|s| s.nll).collect(),
            mean_nll: found.iter().map(|s| s.mean_nll).collect(),
            predicted: found.iter().map(|s| s.predicted).collect(),
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

/// Calls `f(first_row, logits)` for chunks of rows.
fn for_chunks<T: Real>(x: &[T], head: Head, precision: Precision, mut f: impl FnMut(usize, &mut [T])) -> Result<()> {
    let (classes, width) = (head.weight.shape()[0], head.weight.shape()[1]);
    let rows = x.len() / width.max(1);
    let chunk = chunk_rows(rows, classes, head.weight.dtype().is_compact());
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

/// The parts of a loss that every row shares.
struct Settings<'a, T> {
    tokens: &'a [u32],
    weights: &'a [T],
    smoothing: T,
    scale: T,
    cap: Option<T>,
    gradient: bool,
}

/// The weighted loss of some rows, which are replaced by its gradient when that is wanted.
fn losses<T: Real + Elementary>(first: usize, classes: usize, settings: &Settings<T>, logits: &mut [T]) -> f64 {
    /// Rows of a task.
    const ROWS: usize = 16;
    let mut of_rows = vec![0.0; logits.len() / classes.max(1)];
    let row_loss = |i: usize, row: &mut [T]| -> f64 {
        let (target, weight) = (settings.tokens[first + i] as usize, settings.weights[first + i] * settings.scale);
        if weight == T::zero() {
            row.fill(T::zero());
            return 0.0;
        }
        cap_row(row, settings.cap);
        let (goal, smoothing) = (row[target], settings.smoothing.f64());
        // A class of no probability makes the mean over all infinite, which counts only where it is asked for.
        let mean = if smoothing > 0.0 { row_sum(row) / classes as f64 } else { 0.0 };
        let log_sum = if settings.gradient {
            let share = settings.smoothing / T::of(classes as f64);
            let log_sum = match settings.cap {
                None => softmax(row, weight, share * weight),
                Some(cap) => {
                    let log_sum = log_sum_exp(row);
                    vectorized(
                        #[inline(always)]
                        || capped_gradient(row, log_sum, share, weight, cap),
                    );
                    log_sum
                }
            };
            row[target] -= (T::one() - settings.smoothing) * weight * slope(goal, settings.cap);
            log_sum
        } else {
            log_sum_exp(row)
        };
        let nll = log_sum - goal.f64();
        let even = if smoothing > 0.0 { log_sum - mean } else { 0.0 };
        weight.f64() * ((1.0 - smoothing) * nll + smoothing * even)
    };
    parallel::for_paired_chunks((logits, ROWS * classes), (&mut of_rows, ROWS), |task, logits, losses| {
        for (i, (row, loss)) in logits.chunks_mut(classes).zip(losses).enumerate() {
            *loss = row_loss(task * ROWS + i, row);
        }
    });
    of_rows.iter().sum()
}

/// Replaces logits by `softmax * weight - share`; their `ln sum exp`.
fn softmax<T: Real + Elementary>(row: &mut [T], weight: T, share: T) -> f64 {
    struct Softmax<'a, T>(&'a mut [T], T, T);
    impl<T: Real + Elementary> WithSimd for Softmax<'_, T> {
        type Output = f64;
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f64 {
            let Softmax(row, weight, share) = self;
            let top = simd::max(simd, row);
            let mut lanes = [T::zero(); LANES];
            for z in row.chunks_mut(LANES) {
                for (sum, z) in lanes.iter_mut().zip(z) {
                    *z = (*z - top).vexp();
                    *sum += *z;
                }
            }
            let sum = total(lanes);
            let factor = weight / sum;
            row.iter_mut().for_each(|z| *z = *z * factor - share);
            top.f64() + sum.f64().ln()
        }
    }
    dispatch(Softmax(row, weight, share))
}

/// Replaces capped logits by `(softmax - share) weight`, times what the cap lets through.
#[inline(always)]
fn capped_gradient<T: Real + Elementary>(row: &mut [T], log_sum: f64, share: T, weight: T, cap: T) {
    // In two parts: what rounding `log_sum` leaves out would be missing in every probability.
    let high = T::of(log_sum);
    let low = T::of(log_sum - high.f64());
    row.iter_mut().for_each(|z| *z = ((*z - high - low).vexp() - share) * weight * slope(*z, Some(cap)));
}

/// The derivative of a capped logit, `1 - (z / cap)^2`.
#[inline(always)]
fn slope<T: Elementary>(z: T, cap: Option<T>) -> T {
    cap.map_or(T::one(), |cap| T::one() - (z / cap) * (z / cap))
}

/// Replaces logits by `cap tanh(z / cap)`.
fn cap_row<T: Elementary>(row: &mut [T], cap: Option<T>) {
    let Some(cap) = cap else { return };
    vectorized(
        #[inline(always)]
        || row.iter_mut().for_each(|z| *z = cap * (*z / cap).vtanh()),
    );
}

/// Scores of one token.
struct Score {
    nll: f64,
    mean_nll: f64,
    predicted: u32,
}

/// Scores of some rows.
fn scores<T: Real + Elementary>(tokens: &[u32], classes: usize, cap: Option<T>, logits: &mut [T]) -> Vec<Score> {
    if cap.is_some() {
        parallel::for_chunks(logits, classes.max(1), |_, row| cap_row(row, cap));
    }
    let logits = &*logits;
    let score = |i: usize| {
        let (row, target) = (&logits[i * classes..][..classes], tokens[i]);
        let (log_sum, sum) = (log_sum_exp(row), row_sum(row));
        let best = (0..classes).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        let nll = log_sum - row[target as usize].f64();
        Score { nll, mean_nll: log_sum - sum / classes as f64, predicted: best as u32 }
    };
    parallel::collect(logits.len() / classes.max(1), score)
}

/// `ln sum exp z`.
fn log_sum_exp<T: Real + Elementary>(row: &[T]) -> f64 {
    struct LogSum<'a, T>(&'a [T]);
    impl<T: Real + Elementary> WithSimd for LogSum<'_, T> {
        type Output = f64;
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f64 {
            let top = simd::max(simd, self.0);
            let mut lanes = [T::zero(); LANES];
            for z in self.0.chunks(LANES) {
                for (sum, &z) in lanes.iter_mut().zip(z) {
                    *sum += (z - top).vexp();
                }
            }
            top.f64() + total(lanes).f64().ln()
        }
    }
    dispatch(LogSum(row))
}

/// `sum z`.
fn row_sum<T: Real>(row: &[T]) -> f64 {
    vectorized(
        #[inline(always)]
        || sum(row).f64(),
    )
}
