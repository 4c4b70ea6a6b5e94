//! Convolutions by Fourier transform on a GPU.
//!
//! Lengths are powers of two. Up to [`SIDE`] a convolution is one launch: gather, transform, multiply, transform back, scatter,
//! all in the memory of a workgroup. Up to `SIDE * SIDE` it is three, with one buffer of complex numbers between them.

use crate::gpu::{Output, Tables};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, flag, groups};
use hankel_core::{Error, Result};
use std::f64::consts::PI;
use std::sync::Arc;

static FFT: Kernel = Kernel { name: "fft", source: include_str!("fft.wgsl"), bindings: "rrrrw" };
static PRODUCTS: Kernel = Kernel { name: "fft_products", source: include_str!("products.wgsl"), bindings: "rrw" };

/// The longest transform in the memory of a workgroup, as in `fft.wgsl`.
const SIDE: usize = 2048;

/// Roots of unity, by the length of a transform: 32 KiB each.
static ROOTS: Tables<usize> = Tables::new(24);

/// Which numbers of a signal `[batch, steps, width]` are transformed, each over its steps: `count` columns from `column` on, two
/// sequences as the real and imaginary part of one line; or `count` pairs of columns, which are complex already.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    pub(crate) batch: usize,
    pub(crate) steps: usize,
    pub(crate) width: usize,
    pub(crate) column: usize,
    pub(crate) count: usize,
    pub(crate) pairs: bool,
}

impl Lines {
    /// Groups of `count` lines.
    fn quantity(&self) -> usize {
        if self.pairs { self.batch } else { self.batch.div_ceil(2) }
    }
}

/// Where a launch reads its lines.
#[derive(Clone, Copy)]
pub(crate) enum Load<'a> {
    /// From where it writes.
    InPlace,
    /// `[batch, steps, width]`.
    Signal(&'a GpuBuffer),
    /// `[count, steps]`.
    Taps(&'a GpuBuffer),
    /// Another launch's complex numbers.
    Complex(&'a GpuBuffer),
}

/// Where it writes them.
#[derive(Clone, Copy)]
enum Store {
    Complex = 0,
    Signal = 1,
    Taps = 2,
}

/// The elements of a line that one launch transforms together: all, or every `n / columns`-th of them, or those in between.
#[derive(Clone, Copy, PartialEq)]
enum Axis {
    Columns,
    Rows,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Forward,
    Inverse,
    Both,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    batch: u32,
    steps: u32,
    width: u32,
    column: u32,
    lines: u32,
    n: u32,
    outer: u32,
    stride_i: u32,
    stride_j: u32,
    quantity: u32,
    per: u32,
}

/// Transforms of one length.
pub(crate) struct Plan {
    gpu: &'static Gpu,
    columns: usize,
    rows: usize,
    roots: Arc<GpuBuffer>,
}

impl Plan {
    /// For convolutions of `steps` steps without wrapping round.
    pub(crate) fn new(gpu: &'static Gpu, operator: &'static str, steps: usize) -> Result<Self> {
        let n = (2 * steps).next_power_of_two().max(2);
        if n > SIDE * SIDE {
            let problem = format!("{steps} steps, where a GPU convolves at most {}", SIDE * SIDE / 2);
            return Err(Error::Placement { operator, problem });
        }
        let columns = if n <= SIDE { 1 } else { 1 << (n.ilog2() / 2) };
        let root = |k: usize, n: usize| {
            let (sin, cos) = (-2.0 * PI * k as f64 / n as f64).sin_cos();
            [cos as f32, sin as f32]
        };
        let make = || (0..SIDE).map(|k| root(k, SIDE)).chain((0..SIDE).map(|k| root(k, n))).flatten().collect();
        Ok(Plan { gpu, columns, rows: n / columns, roots: ROOTS.get(gpu, n, make)? })
    }

    /// The length of the transforms.
    fn n(&self) -> usize {
        self.columns * self.rows
    }

    /// Room for the transforms of `groups` groups of `lines`.
    fn room(&self, lines: Lines, groups: usize) -> Result<Output> {
        Output::new(self.gpu, 2 * groups * self.n() * lines.count)
    }

    /// One launch. `factor` is the spectrum to multiply by between the two transforms, or its conjugate.
    fn launch(
        &self,
        lines: Lines,
        (axis, way): (Axis, Way),
        (load, first): (Load, Option<&GpuBuffer>),
        factor: Option<(&GpuBuffer, bool)>,
        (store, out): (Store, &GpuBuffer),
    ) -> Result<()> {
        let (length, outer, stride_i, stride_j) = match axis {
            Axis::Columns => (self.columns, self.rows, self.rows, 1),
            Axis::Rows => (self.rows, self.columns, 1, self.rows),
        };
        let quantity = lines.quantity();
        let per = (outer * lines.count).div_ceil(SIDE / length);
        let (kind, source) = match load {
            Load::InPlace => (0, &*self.roots),
            Load::Signal(source) => (1, source),
            Load::Taps(source) => (2, source),
            Load::Complex(source) => (3, source),
        };
        let constants = [
            ("M", length as f64),
            ("LOAD", f64::from(kind)),
            ("STORE", f64::from(store as u8)),
            ("FORWARD", flag(way != Way::Inverse)),
            ("MULTIPLY", factor.map_or(0.0, |(_, conjugate)| 1.0 + flag(conjugate))),
            ("INVERSE", flag(way != Way::Forward)),
            ("TWIDDLE", flag(axis == Axis::Columns)),
            ("PAIRS", flag(lines.pairs)),
            ("FIRST", flag(first.is_some())),
        ];
        let Lines { batch, steps, width, column, count, .. } = lines;
        let sizes = [batch, steps, width, column, count, self.n(), outer, stride_i, stride_j, quantity, per];
        let parameters: [u32; 11] = sizes.map(|size| size as u32);
        let spectrum = factor.map_or(&*self.roots, |(spectrum, _)| spectrum);
        let buffers = [source, first.unwrap_or(&self.roots), spectrum, &*self.roots, out];
        self.gpu.launch(&FFT, &constants, &buffers, &parameters, groups(quantity * per, 1))
    }

    /// Transforms, in an order of frequencies of their own.
    pub(crate) fn spectrum(&self, lines: Lines, from: Load) -> Result<Output> {
        let out = self.room(lines, lines.quantity())?;
        let to = (Store::Complex, out.buffer());
        let rows = (Axis::Rows, Way::Forward);
        if self.columns == 1 {
            self.launch(lines, rows, (from, None), None, to)?;
        } else {
            self.launch(lines, (Axis::Columns, Way::Forward), (from, None), None, to)?;
            self.launch(lines, rows, (Load::InPlace, None), None, to)?;
        }
        Ok(out)
    }

    /// `out` gets the convolution of the lines of `u` with kernels of this spectrum, or with `conjugate` their correlation:
    /// the convolution with the conjugate kernels backwards in time. `first`, `[batch, width]`, is added to the first step.
    pub(crate) fn convolve(
        &self,
        lines: Lines,
        u: &GpuBuffer,
        first: Option<&GpuBuffer>,
        (spectrum, conjugate): (&GpuBuffer, bool),
        out: &GpuBuffer,
    ) -> Result<()> {
        let (from, to) = ((Load::Signal(u), first), (Store::Signal, out));
        let (rows, factor) = ((Axis::Rows, Way::Both), Some((spectrum, conjugate)));
        if self.columns == 1 {
            return self.launch(lines, rows, from, factor, to);
        }
        let between = self.room(lines, lines.quantity())?;
        let inside = (Store::Complex, between.buffer());
        self.launch(lines, (Axis::Columns, Way::Forward), from, None, inside)?;
        self.launch(lines, rows, (Load::InPlace, None), factor, inside)?;
        self.launch(lines, (Axis::Columns, Way::Inverse), (Load::Complex(between.buffer()), None), None, to)
    }

    /// `out`, `[count, steps]`, gets the sum over sequences and `t` of `g_t u_{t-k}`.
    pub(crate) fn correlate(&self, lines: Lines, u: &GpuBuffer, g: &GpuBuffer, out: &GpuBuffer) -> Result<()> {
        let [of_u, of_g] = [self.spectrum(lines, Load::Signal(u))?, self.spectrum(lines, Load::Signal(g))?];
        let one = Lines { batch: 1, ..lines };
        let sums = self.room(lines, 1)?;
        let elements = self.n() * lines.count;
        let parameters = [elements as u32, lines.quantity() as u32];
        let buffers = [of_u.buffer(), of_g.buffer(), sums.buffer()];
        self.gpu.launch(&PRODUCTS, &[], &buffers, &parameters, groups(elements, 256))?;
        let to = (Store::Taps, out);
        if self.columns == 1 {
            return self.launch(one, (Axis::Rows, Way::Inverse), (Load::Complex(sums.buffer()), None), None, to);
        }
        let inside = (Store::Complex, sums.buffer());
        self.launch(one, (Axis::Rows, Way::Inverse), (Load::InPlace, None), None, inside)?;
        self.launch(one, (Axis::Columns, Way::Inverse), (Load::Complex(sums.buffer()), None), None, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_powers_of_two_up_to_a_limit() {
        let Some(gpu) = hankel_core::gpu::for_tests() else { return };
        for (steps, columns, rows) in [(1, 1, 2), (3, 1, 8), (1024, 1, 2048), (1025, 64, 64), (1 << 21, SIDE, SIDE)] {
            let plan = Plan::new(gpu, "causal_conv", steps).unwrap();
            assert_eq!((plan.columns, plan.rows), (columns, rows), "{steps}");
        }
        let refused = Plan::new(gpu, "causal_conv", (1 << 21) + 1).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("2097153 steps, where a GPU convolves at most 2097152"), "{refused}");
    }
}
