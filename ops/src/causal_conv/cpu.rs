//! Causal convolutions by Fourier transform, for slices `[batch, tokens, channels]`.
//!
//! Sequences are padded to at least twice their length, so nothing wraps round. Two real sequences with the same kernel
//! are convolved as the real and imaginary part of one complex sequence: for a channel these are two sequences of the
//! batch, for a pair of states (whose kernel is complex) its two states. So each channel costs the paper's three real
//! transforms: kernel (once for the batch), input, inverse.

#[cfg(test)]
mod tests;

use crate::kernels::Real;
use crate::kernels::fft::Transforms;
use crate::scan::cpu::{Direction, Modes};
use rayon::prelude::*;
use rustfft::num_complex::Complex;

/// Channels copied and transformed together: their elements share cache lines.
const BLOCK: usize = 8;

/// Transformed kernels, divided by the length of the transform.
pub struct Spectra<T> {
    transforms: Transforms<T>,
    tokens: usize,
    real: Vec<Vec<Complex<T>>>,
    pairs: Vec<Vec<Complex<T>>>,
}

impl<T: Real> Spectra<T> {
    /// Of one real kernel for each channel, `[channels, tokens]`.
    pub fn of_kernels(kernels: &[T], tokens: usize) -> Self {
        let taps = |kernel: &[T]| kernel.iter().map(|&x| Complex::new(x.f64(), 0.0)).collect();
        Self::new(tokens, kernels.chunks_exact(tokens.max(1)).map(taps).collect(), Vec::new())
    }

    /// Of the impulse responses of a recurrence: the powers of its poles. In the backward direction those of the
    /// transposed state matrix, the conjugate poles.
    ///
    /// The powers are formed in doubles from the poles as the recurrence has them, so both compute the same thing.
    pub fn of_modes(modes: Modes<T>, tokens: usize, direction: Direction) -> Self {
        let powers = |pole: Complex<f64>| {
            let step = |power: &Complex<f64>| Some(power * pole);
            std::iter::successors(Some(Complex::new(1.0, 0.0)), step).take(tokens).collect()
        };
        let real = modes.real.iter().map(|a| powers(Complex::new(a.f64(), 0.0))).collect();
        let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
        let pairs = modes.pairs.iter().map(|[re, im]| powers(Complex::new(re.f64(), sign * im.f64()))).collect();
        Self::new(tokens, real, pairs)
    }

    fn new(tokens: usize, real: Vec<Vec<Complex<f64>>>, pairs: Vec<Vec<Complex<f64>>>) -> Self {
        let transforms = Transforms::<T>::for_convolution(tokens);
        let transformed = |kernel: Vec<Complex<f64>>| {
            let scale = 1.0 / transforms.n as f64;
            let rounded = |x: Complex<f64>| Complex::new(T::of(x.re), T::of(x.im));
            let mut taps: Vec<_> = kernel.into_iter().map(rounded).collect();
            taps.resize(transforms.n, Complex::default());
            transforms.forward.process(&mut taps);
            taps.iter_mut().for_each(|x| *x = x.scale(T::of(scale)));
            taps
        };
        let real = real.into_par_iter().map(transformed).collect();
        let pairs = pairs.into_par_iter().map(transformed).collect();
        Spectra { transforms, tokens, real, pairs }
    }

    fn channels(&self) -> usize {
        self.real.len() + 2 * self.pairs.len()
    }
}

/// Sequences that a task convolves together: lines of complex elements.
#[derive(Clone, Copy)]
enum Lines {
    /// Channels `first..first + n` of two sequences of the batch; the second may be missing.
    Real { first: usize, n: usize, batch: usize },
    /// Pairs `first..first + n` of one sequence.
    Pairs { first: usize, n: usize, batch: usize },
}

/// `out_t = sum over k <= t of kernel_k u_{t-k}`, or with time reversed `sum over k of kernel_k u_{t+k}`.
///
/// `first`, `[batch, channels]`, is added to the first step of `u` (the last one, backwards): what an initial state
/// contributes to it.
///
/// # Panics
/// When sizes do not fit: that is the calling operator's to check.
pub fn convolve<T: Real>(direction: Direction, spectra: &Spectra<T>, u: &[T], first: Option<&[T]>, out: &mut [T]) {
    let (tokens, channels) = (spectra.tokens, spectra.channels());
    assert_eq!(u.len(), out.len(), "inputs and outputs of different sizes");
    if out.is_empty() {
        return;
    }
    assert!(out.len().is_multiple_of(tokens * channels), "outputs that are no whole sequences");
    let batches = out.len() / (tokens * channels);
    assert!(first.is_none_or(|first| first.len() == batches * channels), "first steps of another size");
    let mut tasks = Vec::new();
    for batch in 0..batches {
        for first in (0..if batch.is_multiple_of(2) { spectra.real.len() } else { 0 }).step_by(BLOCK) {
            tasks.push(Lines::Real { first, n: BLOCK.min(spectra.real.len() - first), batch });
        }
        for first in (0..spectra.pairs.len()).step_by(BLOCK) {
            tasks.push(Lines::Pairs { first, n: BLOCK.min(spectra.pairs.len() - first), batch });
        }
    }
    let sequences = Sequences { u, first, tokens, channels, batches, reversed: direction == Direction::Backward };
    let output = Output { data: out.as_mut_ptr(), len: out.len() };
    tasks.into_par_iter().for_each_init(
        || (Vec::new(), vec![Complex::default(); spectra.transforms.scratch_len()]),
        |(lines, scratch), task| {
            let n = spectra.transforms.n;
            sequences.gather(spectra.real.len(), task, n, lines);
            let kernels = match task {
                Lines::Real { first, n, .. } => &spectra.real[first..first + n],
                Lines::Pairs { first, n, .. } => &spectra.pairs[first..first + n],
            };
            for (line, kernel) in lines.chunks_exact_mut(n).zip(kernels) {
                spectra.transforms.forward.process_with_scratch(line, scratch);
                for (x, &k) in line.iter_mut().zip(kernel) {
                    *x *= k;
                }
                spectra.transforms.inverse.process_with_scratch(line, scratch);
            }
            // SAFETY: no two tasks have a sequence and a channel in common.
            unsafe { sequences.scatter(spectra.real.len(), task, n, lines, &output) };
        },
    );
}

/// Gradient of a loss with respect to the kernels, `[channels, tokens]`: `sum over t of d_out_t u_{t-k}`, summed over the
/// batch in order.
///
/// # Panics
/// When sizes do not fit.
pub fn kernel_gradient<T: Real>(channels: usize, tokens: usize, u: &[T], d_out: &[T], d_kernel: &mut [T]) {
    /// Few channels to a task, so that there are tasks enough.
    const CHANNELS: usize = 4;
    assert!(u.len() == d_out.len() && d_kernel.len() == channels * tokens);
    if d_kernel.is_empty() {
        return;
    }
    let batches = u.len() / d_kernel.len();
    let transforms = Transforms::<T>::for_convolution(tokens);
    let n = transforms.n;
    let scale = T::of(1.0 / n as f64);
    let sequences = |u| Sequences { u, first: None, tokens, channels, batches, reversed: false };
    let (u, d_out) = (sequences(u), sequences(d_out));
    d_kernel.par_chunks_mut(CHANNELS * tokens).enumerate().for_each(|(block, d_kernel)| {
        let (first, count) = (block * CHANNELS, d_kernel.len() / tokens);
        let (mut x, mut g) = (Vec::new(), Vec::new());
        let mut scratch = vec![Complex::default(); transforms.scratch_len()];
        let mut sums = vec![Complex::<T>::default(); count * n];
        for batch in (0..batches).step_by(2) {
            let lines = Lines::Real { first, n: count, batch };
            u.gather(channels, lines, n, &mut x);
            d_out.gather(channels, lines, n, &mut g);
            transforms.forward.process_with_scratch(&mut x, &mut scratch);
            transforms.forward.process_with_scratch(&mut g, &mut scratch);
            for ((sum, &x), &g) in sums.iter_mut().zip(&x).zip(&g) {
                *sum += g * x.conj();
            }
        }
        transforms.inverse.process_with_scratch(&mut sums, &mut scratch);
        // The real part is the sum of the correlations of both sequences of a pair.
        for (kernel, sum) in d_kernel.chunks_exact_mut(tokens).zip(sums.chunks_exact(n)) {
            kernel.iter_mut().zip(sum).for_each(|(d, sum)| *d = sum.re * scale);
        }
    });
}

struct Sequences<'a, T> {
    u: &'a [T],
    first: Option<&'a [T]>,
    tokens: usize,
    channels: usize,
    batches: usize,
    reversed: bool,
}

impl<T: Real> Sequences<'_, T> {
    /// Copies lines of `n` elements, zero after the sequences.
    fn gather(&self, real: usize, task: Lines, n: usize, lines: &mut Vec<Complex<T>>) {
        let (Lines::Real { n: count, .. } | Lines::Pairs { n: count, .. }) = task;
        lines.clear();
        lines.resize(count * n, Complex::default());
        let row = |data: &'_ [T], at: usize, first: usize, len: usize| -> [T; 2 * BLOCK] {
            let mut row = [T::zero(); 2 * BLOCK];
            row[..len].copy_from_slice(&data[at * self.channels + first..][..len]);
            row
        };
        let time = |step: usize| if self.reversed { self.tokens - 1 - step } else { step };
        match task {
            Lines::Real { first, n: count, batch } => {
                let second = batch + 1 < self.batches;
                let mut put = |step: usize, data, at: usize, next: usize, add: bool| {
                    let a = row(data, at, first, count);
                    let b = if second { row(data, next, first, count) } else { [T::zero(); 2 * BLOCK] };
                    for c in 0..count {
                        let z = Complex::new(a[c], b[c]);
                        let line = &mut lines[c * n + step];
                        *line = if add { *line + z } else { z };
                    }
                };
                for step in 0..self.tokens {
                    let at = batch * self.tokens + time(step);
                    put(step, self.u, at, at + self.tokens, false);
                }
                if let Some(start) = self.first {
                    put(0, start, batch, batch + 1, true);
                }
            }
            Lines::Pairs { first, n: count, batch } => {
                let mut put = |step: usize, data, at: usize, add: bool| {
                    let x = row(data, at, real + 2 * first, 2 * count);
                    for c in 0..count {
                        let z = Complex::new(x[2 * c], x[2 * c + 1]);
                        let line = &mut lines[c * n + step];
                        *line = if add { *line + z } else { z };
                    }
                };
                for step in 0..self.tokens {
                    put(step, self.u, batch * self.tokens + time(step), false);
                }
                if let Some(start) = self.first {
                    put(0, start, batch, true);
                }
            }
        }
    }

    /// Copies lines back.
    ///
    /// # Safety
    /// No other thread writes these channels of these sequences at the same time.
    unsafe fn scatter(&self, real: usize, task: Lines, n: usize, lines: &[Complex<T>], out: &Output<T>) {
        for step in 0..self.tokens {
            let t = if self.reversed { self.tokens - 1 - step } else { step };
            match task {
                Lines::Real { first, n: count, batch } => {
                    let at = (batch * self.tokens + t) * self.channels + first;
                    for c in 0..count {
                        // SAFETY: the caller's promise.
                        unsafe {
                            out.write(at + c, lines[c * n + step].re);
                            if batch + 1 < self.batches {
                                out.write(at + self.tokens * self.channels + c, lines[c * n + step].im);
                            }
                        }
                    }
                }
                Lines::Pairs { first, n: count, batch } => {
                    let at = (batch * self.tokens + t) * self.channels + real + 2 * first;
                    for c in 0..count {
                        // SAFETY: the caller's promise.
                        unsafe {
                            out.write(at + 2 * c, lines[c * n + step].re);
                            out.write(at + 2 * c + 1, lines[c * n + step].im);
                        }
                    }
                }
            }
        }
    }
}

/// The output, of which each task writes other elements.
struct Output<T> {
    data: *mut T,
    len: usize,
}

// SAFETY: written through `write` only, whose callers promise that threads write different elements.
unsafe impl<T: Send> Sync for Output<T> {}

impl<T> Output<T> {
    /// # Safety
    /// No other thread writes or reads element `i` at the same time.
    #[inline(always)]
    unsafe fn write(&self, i: usize, x: T) {
        assert!(i < self.len);
        // SAFETY: in range, and by the caller's promise the only access.
        unsafe { *self.data.add(i) = x };
    }
}
