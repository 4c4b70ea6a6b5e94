//! Causal convolutions by Fourier transform, for slices `[batch, tokens, channels]`.
//!
//! Sequences are padded to at least twice their length, so nothing wraps round. Two real sequences with the same kernel
//! are convolved as the real and imaginary part of one complex sequence: for a channel these are two sequences of the
//! batch, for a pair of states (whose kernel is complex) its two states. So each channel costs the paper's three real
//! transforms: kernel (once for the batch), input, inverse.

mod lines;
mod spectra;
#[cfg(test)]
mod tests;

pub use spectra::Spectra;

use crate::kernels::Real;
use crate::kernels::scratch::Scratch;
use crate::kernels::simd::vectorized;
use crate::scan::cpu::recurrence::Direction;
use hankel_core::parallel;
use hankel_fft::Transforms;
use lines::{BLOCK, GAP, Kind, Lines, Output, Sequences, blocks};
use num_complex::Complex;

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
    assert!(out.len().is_multiple_of(tokens * channels), "outputs that are not whole sequences");
    let batches = out.len() / (tokens * channels);
    assert!(first.is_none_or(|first| first.len() == batches * channels), "first steps of another size");
    let mut tasks = Vec::new();
    for batch in 0..batches {
        if batch.is_multiple_of(2) {
            tasks.extend(blocks(Kind::Channels, spectra.real.len(), batch));
        }
        tasks.extend(blocks(Kind::Pairs, spectra.pairs.len(), batch));
    }
    let reversed = direction == Direction::Backward;
    let sequences = Sequences { u, first, tokens, channels, batches, real: spectra.real.len(), reversed };
    let output = Output { data: out.as_mut_ptr(), len: out.len() };
    let transforms = &spectra.transforms;
    parallel::for_each(tasks.len(), |i| {
        let task = tasks[i];
        let Workspace { mut lines, mut scratch } = Workspace::new(transforms, BLOCK);
        let lines: &mut [Complex<T>] = bytemuck::cast_slice_mut(&mut lines);
        let kernels = match task.kind {
            Kind::Channels => &spectra.real[task.first..],
            Kind::Pairs => &spectra.pairs[task.first..],
        };
        sequences.gather(task, transforms.n, lines);
        for (line, kernel) in lines.chunks_exact_mut(transforms.n + GAP).zip(kernels).take(task.count) {
            let line = &mut line[..transforms.n];
            transforms.forward.process_with_scratch(line, &mut scratch);
            vectorized(
                #[inline(always)]
                || line.iter_mut().zip(kernel).for_each(|(x, &k)| *x *= k),
            );
            transforms.inverse.process_with_scratch(line, &mut scratch);
        }
        // SAFETY: no two tasks have a sequence and a channel in common.
        unsafe { sequences.scatter(task, transforms.n, lines, &output) };
    });
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
    let sequences = |u| Sequences { u, first: None, tokens, channels, batches, real: channels, reversed: false };
    let (u, d_out) = (sequences(u), sequences(d_out));
    parallel::for_chunks(d_kernel, CHANNELS * tokens, |block, d_kernel| {
        let (mut x, mut g) = (Workspace::new(&transforms, CHANNELS), Workspace::new(&transforms, CHANNELS));
        for lines in blocks(Kind::Channels, d_kernel.len() / tokens, 0) {
            let d_kernel = &mut d_kernel[lines.first * tokens..][..lines.count * tokens];
            let first = block * CHANNELS + lines.first;
            let mut sums = vec![Complex::<T>::default(); lines.count * n];
            for batch in (0..batches).step_by(2) {
                let lines = Lines { first, batch, ..lines };
                for (sequences, Workspace { lines: to, scratch }) in [(&u, &mut x), (&d_out, &mut g)] {
                    let to: &mut [Complex<T>] = bytemuck::cast_slice_mut(to);
                    sequences.gather(lines, n, to);
                    for line in to.chunks_exact_mut(n + GAP).take(lines.count) {
                        transforms.forward.process_with_scratch(&mut line[..n], scratch);
                    }
                }
                let (x, g): (&[Complex<T>], &[Complex<T>]) =
                    (bytemuck::cast_slice(&x.lines), bytemuck::cast_slice(&g.lines));
                let lines = x.chunks_exact(n + GAP).zip(g.chunks_exact(n + GAP));
                for (sums, (x, g)) in sums.chunks_exact_mut(n).zip(lines) {
                    vectorized(
                        #[inline(always)]
                        || sums.iter_mut().zip(x.iter().zip(g)).for_each(|(sum, (x, &g))| *sum += g * x.conj()),
                    );
                }
            }
            transforms.inverse.process_with_scratch(&mut sums, &mut x.scratch);
            // The real part is the sum of the correlations of both sequences of a line.
            for (kernel, sum) in d_kernel.chunks_exact_mut(tokens).zip(sums.chunks_exact(n)) {
                kernel.iter_mut().zip(sum).for_each(|(d, sum)| *d = sum.re * scale);
            }
        }
    });
}

/// What a task works in: lines of complex elements, real and imaginary parts in turn, and the transforms' own memory.
struct Workspace<T: Real> {
    lines: Scratch<T>,
    scratch: Vec<Complex<T>>,
}

impl<T: Real> Workspace<T> {
    fn new(transforms: &Transforms<T>, lines: usize) -> Self {
        let scratch = vec![Complex::default(); transforms.scratch_len()];
        Workspace { lines: Scratch::new(2 * lines * (transforms.n + GAP)), scratch }
    }
}
