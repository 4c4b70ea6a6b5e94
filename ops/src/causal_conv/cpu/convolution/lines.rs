//! Copies between sequences `[batch, tokens, channels]` and the lines that are transformed.

use crate::kernels::Real;
use num_complex::Complex;

/// Lines copied and transformed together at most: their elements share cache lines.
pub(super) const BLOCK: usize = 8;
/// Elements between the ends of lines: lines a power of two apart would share few sets of the cache.
pub(super) const GAP: usize = 8;

/// Sequences that a task convolves together, as lines of complex elements.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    pub kind: Kind,
    /// First channel or pair, and their number: 8, 4, 2 or 1.
    pub first: usize,
    pub count: usize,
    /// Sequence of the batch.
    pub batch: usize,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A channel of two sequences of the batch, of which the second may be missing.
    Channels,
    /// Both states of a pair.
    Pairs,
}

/// Cuts `0..n` into blocks of 8, then 4, 2 and 1.
pub(super) fn blocks(kind: Kind, n: usize, batch: usize) -> impl Iterator<Item = Lines> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let left = n.checked_sub(first).filter(|&left| left > 0)?;
        let count = if left >= BLOCK { BLOCK } else { 1 << left.ilog2() };
        first += count;
        Some(Lines { kind, first: first - count, count, batch })
    })
}

/// Sequences `[batches, tokens, channels]`: single channels, then pairs.
pub(super) struct Sequences<'a, T> {
    pub u: &'a [T],
    pub first: Option<&'a [T]>,
    pub tokens: usize,
    pub channels: usize,
    pub batches: usize,
    pub real: usize,
    pub reversed: bool,
}

impl<T: Real> Sequences<'_, T> {
    /// Copies lines of `n` elements, `n + GAP` apart, zero after the sequences.
    pub(super) fn gather(&self, task: Lines, n: usize, lines: &mut [Complex<T>]) {
        for line in lines.chunks_exact_mut(n + GAP).take(task.count) {
            line[self.tokens..n].fill(Complex::default());
        }
        match (task.kind, task.count) {
            (Kind::Channels, 8) => self.gather_channels::<8>(task, n, lines),
            (Kind::Channels, 4) => self.gather_channels::<4>(task, n, lines),
            (Kind::Channels, 2) => self.gather_channels::<2>(task, n, lines),
            (Kind::Channels, _) => self.gather_channels::<1>(task, n, lines),
            (Kind::Pairs, 8) => self.gather_pairs::<8>(task, n, lines),
            (Kind::Pairs, 4) => self.gather_pairs::<4>(task, n, lines),
            (Kind::Pairs, 2) => self.gather_pairs::<2>(task, n, lines),
            (Kind::Pairs, _) => self.gather_pairs::<1>(task, n, lines),
        }
    }

    /// Row of the step-th step of a sequence.
    #[inline(always)]
    fn row(&self, batch: usize, step: usize) -> usize {
        batch * self.tokens + if self.reversed { self.tokens - 1 - step } else { step }
    }

    fn gather_channels<const N: usize>(&self, task: Lines, n: usize, lines: &mut [Complex<T>]) {
        let second = task.batch + 1 < self.batches;
        let elements = |data: &[T], row: usize| -> [T; N] {
            let at = row * self.channels + task.first;
            *data[at..].first_chunk().expect("a row of the sequence")
        };
        for step in 0..self.tokens {
            let a = elements(self.u, self.row(task.batch, step));
            let b = if second { elements(self.u, self.row(task.batch + 1, step)) } else { [T::zero(); N] };
            for c in 0..N {
                lines[c * (n + GAP) + step] = Complex::new(a[c], b[c]);
            }
        }
        if let Some(first) = self.first {
            let a = elements(first, task.batch);
            let b = if second { elements(first, task.batch + 1) } else { [T::zero(); N] };
            for c in 0..N {
                lines[c * (n + GAP)] += Complex::new(a[c], b[c]);
            }
        }
    }

    fn gather_pairs<const N: usize>(&self, task: Lines, n: usize, lines: &mut [Complex<T>]) {
        let elements = |data: &[T], row: usize| -> [[T; 2]; N] {
            let at = row * self.channels + self.real + 2 * task.first;
            *data[at..].as_chunks().0.first_chunk().expect("a row of the sequence")
        };
        for step in 0..self.tokens {
            for (c, [x, y]) in elements(self.u, self.row(task.batch, step)).into_iter().enumerate() {
                lines[c * (n + GAP) + step] = Complex::new(x, y);
            }
        }
        if let Some(first) = self.first {
            for (c, [x, y]) in elements(first, task.batch).into_iter().enumerate() {
                lines[c * (n + GAP)] += Complex::new(x, y);
            }
        }
    }

    /// Copies lines back.
    ///
    /// # Safety
    /// No other thread uses these channels of these sequences of the output at the same time.
    pub(super) unsafe fn scatter(&self, task: Lines, n: usize, lines: &[Complex<T>], out: &Output<T>) {
        // SAFETY: the caller's promise, passed on.
        unsafe {
            match task.count {
                8 => self.scatter_lines::<8>(task, n, lines, out),
                4 => self.scatter_lines::<4>(task, n, lines, out),
                2 => self.scatter_lines::<2>(task, n, lines, out),
                _ => self.scatter_lines::<1>(task, n, lines, out),
            }
        }
    }

    /// # Safety
    /// As [`Self::scatter`].
    unsafe fn scatter_lines<const N: usize>(&self, task: Lines, n: usize, lines: &[Complex<T>], out: &Output<T>) {
        for step in 0..self.tokens {
            let z: [Complex<T>; N] = std::array::from_fn(|c| lines[c * (n + GAP) + step]);
            let row = self.row(task.batch, step) * self.channels;
            // SAFETY: the caller's promise.
            unsafe {
                match task.kind {
                    Kind::Channels => {
                        out.write(row + task.first, z.map(|z| z.re));
                        if task.batch + 1 < self.batches {
                            let row = self.row(task.batch + 1, step) * self.channels;
                            out.write(row + task.first, z.map(|z| z.im));
                        }
                    }
                    Kind::Pairs => out.write(row + self.real + 2 * task.first, z.map(|z| [z.re, z.im])),
                }
            }
        }
    }
}

/// The output, of which each task writes other elements.
pub(super) struct Output<T> {
    pub data: *mut T,
    pub len: usize,
}

// SAFETY: written through `write` only, whose callers promise that threads write different elements.
unsafe impl<T: Send> Sync for Output<T> {}

impl<T: Real> Output<T> {
    /// Writes `elements`, an array of `T` or of pairs of `T`, from element `at` on.
    ///
    /// # Safety
    /// No other thread uses these elements at the same time.
    #[inline(always)]
    unsafe fn write<A: bytemuck::Pod, const N: usize>(&self, at: usize, elements: [A; N]) {
        let elements: &[T] = bytemuck::cast_slice(&elements);
        assert!(at + elements.len() <= self.len);
        // SAFETY: in range, and by the caller's promise the only access.
        unsafe { std::ptr::copy_nonoverlapping(elements.as_ptr(), self.data.add(at), elements.len()) };
    }
}
