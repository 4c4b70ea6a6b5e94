//! One row in `f32`: weights are decoded in registers and multiplied there.

use super::GROUP;
#[cfg(target_arch = "x86_64")]
use super::integers::Integers;
use crate::kernels::simd::{Real, prefetch};
use crate::linear::nf4_decode;
use crate::linear::weight::{Source, Weight};
use half::{bf16, f16};
use hankel_core::block_formats::{Blocks, ForFormat, with_format};
use hankel_core::wide::{WIDTH, Wide, WideOp, dispatch};
use hankel_core::{DType, Nf4};
use pulp::Arch;
use std::borrow::Cow;
use std::marker::PhantomData;

/// Elements given at a time.
const GIVEN: usize = 2 * WIDTH;

/// A row in the order in which a weight's elements come.
pub(super) struct Ordered<'a> {
    source: Source<'a>,
    x: Cow<'a, [f32]>,
}

impl<'a> Ordered<'a> {
    /// `None` for a weight whose elements cannot be had in registers, or in another type.
    pub(super) fn new<T: Real>(weight: &Weight<'a, T>, x: &'a [T]) -> Option<Self> {
        if T::ELEMENT != DType::F32 {
            return None;
        }
        let source = weight.source()?;
        let x: &[f32] = bytemuck::cast_slice(x);
        let fits = match source {
            Source::F32(_) | Source::F16(_) | Source::Bf16(_) => x.len().is_multiple_of(GIVEN),
            Source::Nf4(matrix) => nf4_fits(matrix, x.len()),
            Source::Blocks(matrix) => x.len().is_multiple_of(matrix.format().block_size()),
        };
        let x = if matches!(source, Source::Nf4(_)) { Cow::Owned(even_and_odd(x)) } else { Cow::Borrowed(x) };
        fits.then_some(Ordered { source, x })
    }

    /// The row in integers, where it can be had so.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn in_integers(&self) -> Option<Integers<'a>> {
        Integers::new(self.source, &self.x)
    }

    /// The inner products of the row with rows `first ..` of the weight.
    pub(super) fn products(&self, arch: Arch, first: usize, sums: &mut [f32]) {
        let task = Task { arch, x: &self.x, first, sums };
        match self.source {
            Source::F32(data) => task.run(data),
            Source::F16(data) => task.run(data),
            Source::Bf16(data) => task.run(data),
            Source::Nf4(data) => task.run(data),
            Source::Blocks(data) => with_format(data.format(), OfBlocks { bytes: data.bytes(), task })
                .expect("every format of a matrix is in the list"),
        }
    }
}

/// Whether every run of rows of `cols` elements consists of whole blocks, or lies in one.
fn nf4_fits(matrix: &Nf4, cols: usize) -> bool {
    let block = matrix.block();
    let runs = Nf4::RUN.is_multiple_of(block) || block.is_multiple_of(Nf4::RUN);
    runs && cols.is_multiple_of(block) && nf4_decode::in_registers(matrix, 0, block)
}

/// Pairs lie in the nibbles of a byte: the even ones of 32 elements, then the odd ones.
fn even_and_odd(x: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    for (out, x) in out.chunks_exact_mut(GIVEN).zip(x.chunks_exact(GIVEN)) {
        let (even, odd) = out.split_at_mut(WIDTH);
        for (i, pair) in x.as_chunks::<2>().0.iter().enumerate() {
            (even[i], odd[i]) = (pair[0], pair[1]);
        }
    }
    out
}

/// Rows of a weight to be multiplied with `x`.
struct Task<'a> {
    arch: Arch,
    x: &'a [f32],
    first: usize,
    sums: &'a mut [f32],
}

impl Task<'_> {
    fn run<M: InRegisters + ?Sized>(self, matrix: &M) {
        dispatch(self.arch, Products { task: self, matrix });
    }
}

struct OfBlocks<'a> {
    bytes: &'a [u8],
    task: Task<'a>,
}

impl ForFormat for OfBlocks<'_> {
    type Output = ();
    fn with<F: Blocks>(self) {
        self.task.run(&BlockRows { bytes: self.bytes, format: PhantomData::<F> });
    }
}

struct Products<'a, M: ?Sized> {
    task: Task<'a>,
    matrix: &'a M,
}

impl<M: InRegisters + ?Sized> WideOp for Products<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, wide: W) {
        let Products { task: Task { x, first, sums, .. }, matrix } = self;
        let cols = x.len();
        for (i, sums) in sums.chunks_mut(GROUP).enumerate() {
            let mut acc = [[wide.splat(0.0); 2]; GROUP];
            for (k, x) in x.chunks(M::RUN).enumerate() {
                let len = x.len();
                let x = x.as_chunks::<WIDTH>().0.as_chunks::<2>().0;
                for (j, acc) in acc.iter_mut().enumerate().take(sums.len()) {
                    let at = (first + i * GROUP + j) * cols + k * M::RUN;
                    matrix.prefetch(at + GROUP * cols, len);
                    let [mut even, mut odd] = *acc;
                    matrix.values(
                        wide,
                        at,
                        len,
                        #[inline(always)]
                        |i, [a, b]| {
                            let [first, second] = &x[i];
                            even = wide.mul_add(a, wide.load(first), even);
                            odd = wide.mul_add(b, wide.load(second), odd);
                        },
                    );
                    *acc = [even, odd];
                }
            }
            for (sum, [even, odd]) in sums.iter_mut().zip(acc) {
                *sum = wide.sum(wide.add(even, odd));
            }
        }
    }
}

/// A matrix whose elements can be had in registers.
trait InRegisters {
    /// Elements of a row that are multiplied before those of the next row, which share their part of `x`.
    const RUN: usize = 256;

    /// Asks for elements to be brought to the cache.
    fn prefetch(&self, first: usize, len: usize);

    /// Calls `give(i, values)` with the elements `first + 32 i ..`, for all of `len`, at most [`Self::RUN`].
    fn values<W: Wide>(&self, wide: W, first: usize, len: usize, give: impl FnMut(usize, [W::Floats; 2]));
}

/// Element types that are widened one by one.
macro_rules! plain {
    ($type:ty, |$wide:ident, $x:ident| $widened:expr) => {
        impl InRegisters for [$type] {
            #[inline(always)]
            fn prefetch(&self, first: usize, len: usize) {
                prefetch(self, first, len);
            }

            #[inline(always)]
            fn values<W: Wide>(&self, $wide: W, first: usize, len: usize, mut give: impl FnMut(usize, [W::Floats; 2])) {
                for (i, pair) in self[first..][..len].as_chunks::<GIVEN>().0.iter().enumerate() {
                    let [$x, second]: &[[$type; WIDTH]; 2] = pair.as_chunks().0.try_into().expect("two halves");
                    let a = $widened;
                    let $x = second;
                    let b = $widened;
                    give(i, [a, b]);
                }
            }
        }
    };
}

plain!(f32, |wide, x| wide.load(x));
plain!(f16, |wide, x| wide.halves(x));
plain!(bf16, |wide, x| wide.of_bits(wide.shl(wide.shorts(bytemuck::cast_ref(x)), 16)));

/// Blocks of one format.
struct BlockRows<'a, F> {
    bytes: &'a [u8],
    format: PhantomData<F>,
}

impl<F: Blocks> InRegisters for BlockRows<'_, F> {
    #[inline(always)]
    fn prefetch(&self, first: usize, len: usize) {
        prefetch(self.bytes, first / F::SIZE * F::BYTES, len / F::SIZE * F::BYTES);
    }

    #[inline(always)]
    fn values<W: Wide>(&self, wide: W, first: usize, len: usize, mut give: impl FnMut(usize, [W::Floats; 2])) {
        let bytes = &self.bytes[first / F::SIZE * F::BYTES..][..len / F::SIZE * F::BYTES];
        for (k, block) in bytes.chunks_exact(F::BYTES).enumerate() {
            F::values(
                wide,
                block,
                #[inline(always)]
                |i, values| give(k * (F::SIZE / GIVEN) + i, values),
            );
        }
    }
}

impl InRegisters for Nf4 {
    // Where a run begins is found by divisions, as sizes of blocks are not known when this is compiled.
    const RUN: usize = 1024;

    #[inline(always)]
    fn prefetch(&self, first: usize, len: usize) {
        prefetch(self.packed(), first / 2, len / 2);
    }

    #[inline(always)]
    fn values<W: Wide>(&self, wide: W, first: usize, len: usize, give: impl FnMut(usize, [W::Floats; 2])) {
        nf4_decode::values(wide, self, first, len, give);
    }
}
