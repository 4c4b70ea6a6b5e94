//! Products of operands rounded to `bf16`, by the processor's own dot products of pairs (`avx512_bf16`).
//!
//! One instruction multiplies 32 pairs of factors and adds two of the products to each of 16 sums in `f32`: twice the work of a
//! fused multiply-add. Factors lie in pairs along `k`: a packed panel holds, for each two steps of `k`, one 32-bit pair for each
//! column, and a row of the left factor is one sequence of pairs. An odd `k` is filled up with a zero.
//!
//! The instruction rounds after each of the two additions and takes subnormal numbers for zero, so that results differ from
//! those of rounded operands in `f32` by the rounding of the sum and by what is below 1e-38.

use super::amx;
use super::micro::{Strip, Target};
use super::panels::{PanelShape, pack_in_parallel};
use super::store::store;
use super::{Accumulate, COLUMNS, K_BLOCK, Mat, ROW_BLOCK, ROWS_AHEAD, k_blocks};
use crate::kernels::scratch::Scratch;
use crate::kernels::simd;
use crate::kernels::transpose::transpose;
use hankel_core::parallel;
use pulp::Arch;
use std::arch::x86_64::{
    __m256bh, __m256i, __m512bh, _mm_loadu_si128, _mm512_broadcast_i64x4, _mm512_cvtepu8_epi32, _mm512_cvtepu16_epi32,
    _mm512_cvtneps_pbh, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_mask_storeu_epi32, _mm512_maskz_loadu_ps,
    _mm512_mul_ps, _mm512_or_si512, _mm512_permutexvar_epi16, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_si512,
};
use std::ops::Range;

/// 32-bit lanes of a register.
pub(super) const LANES: usize = 16;
/// Columns of a panel: two registers.
const WIDTH: usize = 2 * LANES;
pub(super) const PANELS: PanelShape = PanelShape { width: WIDTH, lanes: LANES };
/// Rows of a tile.
pub(super) const ROWS: usize = 8;
/// Columns decoded at a time where rows of the weight are steps of `k`: whole blocks of the 4-bit format.
const DECODED: usize = 256;
/// Elements of a row decoded at a time, with room for a line more, so that 16 rows do not fall on the same lines of the cache.
const ROW: usize = K_BLOCK + 2 * LANES;

/// Proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub struct DotProducts {
    /// Whether [`amx`] multiplies what [`Rounded`] holds.
    matrix_unit: bool,
}

impl DotProducts {
    /// `None` where the instructions are missing, or a test does without.
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("f16c");
        // Tiles inside other kernels are as wide as the vectors that those run with.
        (has && matches!(simd::best(), Arch::V4(_)) && simd::is_unlimited())
            .then(|| DotProducts { matrix_unit: amx::is_available() })
    }

    /// Whether the processor has a matrix unit, too.
    pub(super) fn has_matrix_unit(self) -> bool {
        self.matrix_unit
    }

    /// The instructions alone, as on a processor without a matrix unit.
    #[cfg(test)]
    pub(super) fn detect_without_matrix_unit() -> Option<Self> {
        Self::detect().map(|_| DotProducts { matrix_unit: false })
    }

    /// Runs `f` compiled for these instructions. As with [`simd::vectorized`], code that is not inlined is not compiled for them.
    #[inline]
    pub fn vectorized<R>(self, f: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
        fn call<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        // SAFETY: the processor has them, which made `self`; those not asked for are part of any with AVX-512.
        unsafe { call(f) }
    }

    /// Rounds to the nearest `bf16`, ties to even; subnormal numbers become zeros.
    #[inline(always)]
    pub fn round(self, x: &[f32], out: &mut [u16]) {
        // SAFETY: as above.
        unsafe { round(x, out) }
    }

    /// Decodes nibbles, the high one of each byte first: the value of the codebook times the scale of the block, rounded.
    /// All blocks have equally many bytes.
    #[inline(always)]
    pub fn look_up(self, codebook: &[f32; 16], scales: &[f32], bytes: &[[u8; 16]], out: &mut [[u16; 32]]) {
        // SAFETY: as above.
        unsafe { look_up(codebook, scales, bytes, out) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn look_up(codebook: &[f32; 16], scales: &[f32], bytes: &[[u8; 16]], out: &mut [[u16; 32]]) {
    assert!(bytes.len() == out.len() && bytes.len().is_multiple_of(scales.len().max(1)));
    let of_block = (bytes.len() / scales.len().max(1)).max(1);
    // SAFETY: registers hold any bits, and are as long as the arrays.
    unsafe {
        let codebook = _mm512_loadu_ps(codebook.as_ptr());
        for ((&scale, bytes), out) in scales.iter().zip(bytes.chunks(of_block)).zip(out.chunks_mut(of_block)) {
            let table = _mm512_cvtneps_pbh(_mm512_mul_ps(codebook, _mm512_set1_ps(scale)));
            // Twice, as an index has five bits here, of which the fifth is another nibble's.
            let table = _mm512_broadcast_i64x4(std::mem::transmute::<__m256bh, __m256i>(table));
            for (bytes, out) in bytes.iter().zip(out) {
                let words = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
                let nibbles = _mm512_or_si512(_mm512_srli_epi32::<4>(words), _mm512_slli_epi32::<16>(words));
                _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_permutexvar_epi16(nibbles, table));
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn round(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    let (x, x_tail) = x.as_chunks::<LANES>();
    let (out, out_tail) = out.as_chunks_mut::<LANES>();
    for (x, out) in x.iter().zip(out) {
        // SAFETY: a register of input is 64 bytes; that of output is 32, as is its type.
        *out =
            unsafe { std::mem::transmute::<__m256bh, [u16; LANES]>(_mm512_cvtneps_pbh(_mm512_loadu_ps(x.as_ptr()))) };
    }
    // Rows of heads are short: two calls to copy nothing would take as long as a row.
    if x_tail.is_empty() {
        return;
    }
    let mut last = [0.0; LANES];
    last[..x_tail.len()].copy_from_slice(x_tail);
    // SAFETY: as above.
    let last: [u16; LANES] = unsafe { std::mem::transmute(_mm512_cvtneps_pbh(_mm512_loadu_ps(last.as_ptr()))) };
    out_tail.copy_from_slice(&last[..out_tail.len()]);
}

/// A row-major matrix whose elements can be had in `bf16`.
pub trait Bf16Source: Sync {
    /// The bits of the elements from `first` on. Runs inside [`DotProducts::vectorized`] and must be inlined there.
    fn decode(&self, dot: DotProducts, first: usize, out: &mut [u16]);
    /// Elements that are had together for little more than one.
    fn together(&self) -> usize {
        1
    }
    /// Asks for elements to be brought to the cache, or what lies at their addresses.
    fn prefetch(&self, _first: usize, _count: usize) {}
}

/// A right factor in `bf16`.
pub struct Bf16Factor<'a, S> {
    /// Its elements.
    pub source: &'a S,
    /// Rows of the source.
    pub rows: usize,
    /// Columns of the source.
    pub cols: usize,
    /// Whether the factor is the transpose of the source.
    pub transposed: bool,
    /// What it is multiplied with.
    pub dot: DotProducts,
}

/// The rows of a left factor in pairs, an odd one filled up with a zero.
pub struct Rounded {
    data: Scratch<u32>,
    rows: usize,
    cols: usize,
    /// Pairs from row to row.
    stride: usize,
    matrix_unit: bool,
}

impl Rounded {
    /// Of `a`, in parallel where that is worth it.
    pub fn new(dot: DotProducts, a: Mat<f32>) -> Self {
        // A line more than whole lines, so that the rows of a tile do not fall on the same lines of the cache.
        let stride = a.cols.div_ceil(2).next_multiple_of(LANES) + LANES;
        let mut data = Scratch::<u32>::new(amx::rows_in_memory(a.rows) * stride);
        parallel::for_rows(&mut data[..a.rows * stride], stride, |first, piece| {
            round_rows(dot, a.row_block(first, piece.len() / stride), piece, stride);
        });
        Rounded { data, rows: a.rows, cols: a.cols, stride, matrix_unit: dot.matrix_unit }
    }
}

/// Columns of a right factor in pairs. The order is that of the panels in `f32`.
pub struct Pairs {
    data: Scratch<u32>,
    k: usize,
    /// Steps of each block of `k` but the last.
    block: usize,
    n: usize,
}

impl<S: Bf16Source> super::Factor<f32> for Bf16Factor<'_, S> {
    type Panels = Pairs;
    type Left<'b> = Rounded;

    fn left(&self, a: Mat<f32>) -> Rounded {
        Rounded::new(self.dot, a)
    }

    fn rows(&self) -> usize {
        if self.transposed { self.cols } else { self.rows }
    }

    fn cols(&self) -> usize {
        if self.transposed { self.rows } else { self.cols }
    }

    fn panels(&self, k: Range<usize>, block: usize, j: Range<usize>) -> Pairs {
        let packed = j.len().next_multiple_of(LANES);
        let mut pairs = Pairs { data: Scratch::new(steps_of(k.len(), block) * packed), k: k.len(), block, n: j.len() };
        let mut rest = &mut pairs.data[..];
        for range in k_blocks(k, block) {
            let (block, after) = rest.split_at_mut(range.len().div_ceil(2) * packed);
            rest = after;
            self.pack(range, j.clone(), block);
        }
        pairs
    }

    fn whole(&self, k: Range<usize>, block: usize) -> Pairs {
        let n = self.cols();
        let packed = n.next_multiple_of(LANES);
        let mut pairs = Pairs { data: Scratch::new(steps_of(k.len(), block) * packed), k: k.len(), block, n };
        let blocks: Vec<Range<usize>> = k_blocks(k, block).collect();
        let steps = |block: &Range<usize>| block.len().div_ceil(2);
        let together = if self.transposed { WIDTH } else { self.source.together().next_multiple_of(WIDTH) };
        pack_in_parallel(&mut pairs.data, packed, together, &blocks, steps, |i, j, out| {
            self.pack(blocks[i].clone(), j.start..n.min(j.end), out);
        });
        pairs
    }

    unsafe fn multiply(
        alpha: f32,
        a: &Rounded,
        i: Range<usize>,
        k: Range<usize>,
        panels: &Pairs,
        j: Range<usize>,
        how: Accumulate<f32>,
        target: Target<f32>,
    ) {
        assert!(k.len() == panels.k && target.cols == j.len() && j.end <= panels.n);
        assert!(j.start.is_multiple_of(COLUMNS) && (j.end.is_multiple_of(COLUMNS) || j.end == panels.n));
        // An odd sum ends with the left factor, whose rows end with a zero then.
        assert!(k.start.is_multiple_of(2) && (k.len().is_multiple_of(2) || k.end == a.cols));
        assert!(i.end <= a.rows && k.end <= a.cols);
        // SAFETY: the instructions are there, or there would be no panels; the rest is the caller's promise.
        unsafe { multiply(alpha, a, i, k, panels, j, how, target) }
    }
}

/// Pairs of `k` steps in blocks of `block`, an even number. An odd block, which only the last can be, takes one more.
fn steps_of(k: usize, block: usize) -> usize {
    k_blocks(0..k, block).map(|steps| steps.len().div_ceil(2)).sum()
}

impl<S: Bf16Source> Bf16Factor<'_, S> {
    /// Writes panels as [`super::RightFactor::pack`] does, of pairs.
    fn pack(&self, k: Range<usize>, j: Range<usize>, out: &mut [u32]) {
        self.dot.vectorized(
            #[inline(always)]
            || {
                if self.transposed {
                    self.pack_rows(k, j, out);
                } else {
                    self.pack_columns(k, j, out);
                }
            },
        );
    }

    /// Rows of the source are columns: 16 of them are decoded and transposed in squares of 16 x 16 pairs.
    #[inline(always)]
    fn pack_rows(&self, k: Range<usize>, j: Range<usize>, out: &mut [u32]) {
        let steps = k.len().div_ceil(2);
        // Pieces of `gemm` have a fixed length; attention packs heads of any width as one.
        let stride = (ROW / 2).max(steps.next_multiple_of(LANES) + LANES);
        let mut decoded = Scratch::<u32>::zeros(LANES * stride);
        let mut rest = out;
        for (column, width) in PANELS.columns(j.len()) {
            let (panel, after) = rest.split_at_mut(steps * width);
            rest = after;
            for half in (0..width).step_by(LANES) {
                let count = LANES.min(j.len() - column - half);
                for (i, row) in decoded.chunks_exact_mut(stride).enumerate() {
                    if i < count {
                        let row = bytemuck::cast_slice_mut(row);
                        self.source.decode(
                            self.dot,
                            (j.start + column + half + i) * self.cols + k.start,
                            &mut row[..k.len()],
                        );
                    } else {
                        row.fill(0);
                    }
                }
                for p in (0..steps).step_by(LANES) {
                    let out = &mut panel[p * width + half..];
                    transpose(&decoded[p..], stride, out, width, LANES.min(steps - p));
                }
            }
        }
    }

    /// Rows of the source are steps of `k`: the elements of two of them alternate.
    #[inline(always)]
    fn pack_columns(&self, k: Range<usize>, j: Range<usize>, out: &mut [u32]) {
        let steps = k.len().div_ceil(2);
        let mut decoded = [[0_u16; DECODED]; 2];
        for (i, step) in k.clone().step_by(2).enumerate() {
            for first in (0..j.len()).step_by(DECODED) {
                let cols = DECODED.min(j.len() - first);
                for (row, decoded) in decoded.iter_mut().enumerate() {
                    if step + row < k.end {
                        let from = (step + row) * self.cols + j.start + first;
                        self.source.prefetch(from + ROWS_AHEAD * self.cols, cols);
                        self.source.decode(self.dot, from, &mut decoded[..cols]);
                        decoded[cols..].fill(0);
                    } else {
                        decoded.fill(0);
                    }
                }
                for (column, width) in PANELS.columns(cols) {
                    // Panels before this one are whole, and so are those of the columns before.
                    let out = &mut out[(first + column) * steps + i * width..][..width];
                    let (even, odd) = (&decoded[0][column..][..width], &decoded[1][column..][..width]);
                    for ((out, &even), &odd) in out.iter_mut().zip(even).zip(odd) {
                        *out = u32::from(even) | u32::from(odd) << 16;
                    }
                }
            }
        }
    }
}

/// As [`super::Factor::multiply`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn multiply(
    alpha: f32,
    a: &Rounded,
    i: Range<usize>,
    k: Range<usize>,
    panels: &Pairs,
    j: Range<usize>,
    how: Accumulate<f32>,
    target: Target<f32>,
) {
    let packed = panels.n.next_multiple_of(LANES);
    assert!(i.start.is_multiple_of(ROW_BLOCK), "rows are read in whole registers");
    // SAFETY: it is there.
    let registers = a.matrix_unit.then(|| unsafe { amx::Registers::set_up() });
    // With the matrix unit, the rows of one tile stay in the first-level cache and only the panels, which are contiguous, come from
    // the second. The rows of two tiles would come from there, too.
    let block = if a.matrix_unit { amx::ROWS } else { ROW_BLOCK };
    for first_row in i.clone().step_by(block) {
        let rows = first_row..i.end.min(first_row + block);
        // A sum of nothing still writes the output: one pass with empty panels.
        for k_first in (0..k.len().max(1)).step_by(panels.block) {
            let steps = panels.block.min(k.len() - k_first).div_ceil(2);
            let mut panel_data = &panels.data[k_first / 2 * packed + j.start * steps..];
            for (column, width) in PANELS.columns(j.len()) {
                let (panel, rest) = panel_data.split_at(steps * width);
                panel_data = rest;
                let cols = width.min(j.len() - column);
                let how = how.part(k_first, rows.start - i.start, column..column + cols);
                if let Some(registers) = &registers {
                    // SAFETY: the left factor has these rows and pairs, and in memory whole registers of rows; the target holds rows `i`,
                    // as promised.
                    unsafe {
                        let data = a.data.as_ptr().add(rows.start * a.stride + k.start / 2 + k_first / 2);
                        let to = target.data.add((rows.start - i.start) * target.row_stride + column);
                        let to = Target { data: to, row_stride: target.row_stride, cols };
                        amx::Panel::new(panel, width, steps).multiply(
                            registers,
                            alpha,
                            data,
                            a.stride,
                            rows.len(),
                            how,
                            to,
                        );
                    }
                    continue;
                }
                let panel = panel.as_chunks::<LANES>().0;
                let mut row = rows.start;
                while row < rows.end {
                    // SAFETY: the left factor has the row and its pairs; the target holds rows `i`, as promised.
                    unsafe {
                        let data = a.data.as_ptr().add(row * a.stride + k.start / 2 + k_first / 2);
                        let from = Strip { data, row_stride: a.stride, k_stride: 1 };
                        let data = target.data.add((row - i.start) * target.row_stride + column);
                        let to = Target { data, row_stride: target.row_stride, cols };
                        let how = how.rows_from(row - rows.start);
                        row += rows_of::<true>(rows.end - row, from, panel, width, alpha, how, to);
                    }
                }
            }
        }
    }
}

/// The rows of `a` in pairs, `stride` pairs apart, an odd one filled up with a zero.
pub(super) fn round_rows(_: DotProducts, a: Mat<f32>, out: &mut [u32], stride: usize) {
    // SAFETY: there is the proof that the processor has the instructions.
    unsafe { round_rows_inner(a, out, stride) };
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn round_rows_inner(a: Mat<f32>, out: &mut [u32], stride: usize) {
    if a.cols == 0 {
        return;
    }
    for (i, out) in out.chunks_exact_mut(stride).take(a.rows).enumerate() {
        let out: &mut [u16] = bytemuck::cast_slice_mut(out);
        if a.cols % 2 == 1 {
            out[a.cols] = 0;
        }
        if a.col_stride == 1 {
            round(a.row(i), &mut out[..a.cols]);
        } else {
            for (j, out) in out[..a.cols].iter_mut().enumerate() {
                round(&[a.at(i, j)], std::slice::from_mut(out));
            }
        }
    }
}

/// Two steps of a sum in pairs; the second is zero where there is none.
pub(super) fn interleave(_: DotProducts, even: &[f32], odd: Option<&[f32]>, out: &mut [u32]) {
    // SAFETY: there is the proof that the processor has the instructions.
    unsafe { interleave_inner(even, odd, out) };
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn interleave_inner(even: &[f32], odd: Option<&[f32]>, out: &mut [u32]) {
    assert!(even.len() == out.len() && odd.is_none_or(|odd| odd.len() == out.len()));
    for first in (0..out.len()).step_by(LANES) {
        let left = (out.len() - first).min(LANES);
        let mask = ((1_u32 << left) - 1) as u16;
        // SAFETY: the mask leaves what is in the slices, which are equally long.
        unsafe {
            let even = _mm512_maskz_loadu_ps(mask, even.as_ptr().add(first));
            let odd = odd.map_or(_mm512_setzero_ps(), |odd| _mm512_maskz_loadu_ps(mask, odd.as_ptr().add(first)));
            let [even, odd] = [even, odd]
                .map(|x| _mm512_cvtepu16_epi32(std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x))));
            let pairs = _mm512_or_si512(even, _mm512_slli_epi32::<16>(odd));
            _mm512_mask_storeu_epi32(out.as_mut_ptr().add(first).cast(), mask, pairs);
        }
    }
}

/// `f32` elements, rounded as they are packed.
struct Floats<'a>(&'a [f32]);

impl Bf16Source for Floats<'_> {
    #[inline(always)]
    fn decode(&self, dot: DotProducts, first: usize, out: &mut [u16]) {
        dot.round(&self.0[first..][..out.len()], out);
    }
}

/// Packs all of `b`, whose rows or columns lie without gaps, as [`Pairs`] of one block.
pub(super) fn pack_floats(dot: DotProducts, b: Mat<f32>, out: &mut [u32]) {
    let transposed = !b.is_row_major();
    let source = if transposed { b.t() } else { b };
    assert!(source.row_stride == source.cols || source.rows <= 1, "a factor with gaps");
    let floats = Floats(b.data());
    let factor = Bf16Factor { source: &floats, rows: source.rows, cols: source.cols, transposed, dot };
    factor.pack(0..b.rows, 0..b.cols, out);
}

/// At most [`ROWS`] rows of a panel that is `width` wide.
///
/// # Safety
/// That of [`tile`]; one of the strides of `a` is 1.
pub(super) unsafe fn tile_strip(
    _: DotProducts,
    rows: usize,
    a: Strip<u32>,
    panel: &[u32],
    width: usize,
    alpha: f32,
    how: Accumulate<f32>,
    c: Target<f32>,
) {
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn inner<const BY_ROWS: bool>(
        rows: usize,
        a: Strip<u32>,
        panel: &[u32],
        width: usize,
        alpha: f32,
        how: Accumulate<f32>,
        c: Target<f32>,
    ) {
        let panel = panel.as_chunks::<LANES>().0;
        let mut i = 0;
        while i < rows {
            // SAFETY: the caller's promise; these rows are among those promised.
            unsafe {
                let a = Strip { data: a.data.add(i * a.row_stride), ..a };
                let c = Target { data: c.data.add(i * c.row_stride), ..c };
                i += rows_of::<BY_ROWS>(rows - i, a, panel, width, alpha, how.rows_from(i), c);
            }
        }
    }
    // SAFETY: the instructions are there, or there would be no proof of them; the rest is the caller's promise.
    unsafe {
        if a.k_stride == 1 {
            inner::<true>(rows, a, panel, width, alpha, how, c);
        } else {
            inner::<false>(rows, a, panel, width, alpha, how, c);
        }
    }
}

/// The tallest tile of `rows` rows; returns its height.
///
/// # Safety
/// That of [`tile`].
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn rows_of<const BY_ROWS: bool>(
    rows: usize,
    a: Strip<u32>,
    panel: &[[u32; LANES]],
    width: usize,
    alpha: f32,
    how: Accumulate<f32>,
    c: Target<f32>,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        match (rows, width) {
            (ROWS.., WIDTH) => tile::<BY_ROWS, ROWS, 2>(a, panel, alpha, how, c),
            (4.., WIDTH) => tile::<BY_ROWS, 4, 2>(a, panel, alpha, how, c),
            (_, WIDTH) => tile::<BY_ROWS, 1, 2>(a, panel, alpha, how, c),
            (ROWS.., _) => tile::<BY_ROWS, ROWS, 1>(a, panel, alpha, how, c),
            (4.., _) => tile::<BY_ROWS, 4, 1>(a, panel, alpha, how, c),
            _ => tile::<BY_ROWS, 1, 1>(a, panel, alpha, how, c),
        }
    }
}

/// `MR` rows of one panel of `NV` registers per step; returns `MR`. The stride of pairs is 1 if `BY_ROWS`, else that of rows.
///
/// # Safety
/// `a` must be readable for `MR` rows of as many pairs as the panel has steps, `c` readable and writable for `MR` rows of its
/// columns, which the panel has; a bias has as many elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn tile<const BY_ROWS: bool, const MR: usize, const NV: usize>(
    a: Strip<u32>,
    panel: &[[u32; LANES]],
    alpha: f32,
    how: Accumulate<f32>,
    c: Target<f32>,
) -> usize {
    let mut acc = [[_mm512_setzero_ps(); NV]; MR];
    for (p, b) in panel.as_chunks::<NV>().0.iter().enumerate() {
        // SAFETY: a register holds 16 pairs of any bits.
        let b: [__m512bh; NV] = b.map(|b| unsafe { std::mem::transmute(b) });
        for i in 0..MR {
            let at = if BY_ROWS { i * a.row_stride + p } else { i + p * a.k_stride };
            // SAFETY: the caller's promise; a register holds any bits.
            let a: __m512bh = unsafe { std::mem::transmute(_mm512_set1_epi32(*a.data.add(at) as i32)) };
            for j in 0..NV {
                acc[i][j] = _mm512_dpbf16_ps(acc[i][j], a, b[j]);
            }
        }
    }
    for (i, acc) in acc.into_iter().enumerate() {
        for (j, acc) in acc.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { store(acc, alpha, i, j * LANES, how, c) };
        }
    }
    MR
}
