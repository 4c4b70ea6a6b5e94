//! Products of operands in `bf16` by the matrix unit of the processor (`amx_bf16`: Intel from Sapphire Rapids on, under Linux).
//!
//! An instruction multiplies 16 rows of 16 pairs by 16 pairs of 16 columns: the work of 256 dot products of [`bf16`](super::bf16), whose
//! packed factors it reads as they are. Even and odd steps are summed apart within 32 steps of the sum, so that last bits differ from
//! those of dot products; subnormal numbers are zeros here, too. A process must ask Linux for the registers.

use super::Accumulate;
use super::bf16::LANES;
use super::micro::Target;
use super::store::store;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _mm512_loadu_ps};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Rows, and pairs of the sum, of a register.
pub(super) const SIDE: usize = 16;
/// Rows of a tile of the output: two registers of the left factor.
pub(super) const ROWS: usize = 2 * SIDE;
/// Columns of one: two registers of the right factor, unless its panel is narrow.
const COLUMNS: usize = 2 * LANES;
/// Sums of one.
const TILE: usize = ROWS * COLUMNS;

/// Rows that a left factor needs to have in memory, for `rows` of its own: whole registers are read.
#[inline(always)]
pub(super) fn rows_in_memory(rows: usize) -> usize {
    rows.next_multiple_of(SIDE)
}

/// Whether the processor has the unit, and Linux lets this process use it.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| cfg!(target_os = "linux") && processor_has_it() && linux_allows_it())
}

/// By bits 22 and 24 of EDX of leaf 7 of `cpuid`.
fn processor_has_it() -> bool {
    const NEEDED: u32 = 1 << 22 | 1 << 24;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & NEEDED == NEEDED
}

/// Asks for the registers, once for all threads. Systems that do not know the question refuse it.
fn linux_allows_it() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let answer: i64;
    // SAFETY: the call has no arguments in memory; it changes what the process may use, and nothing that it has.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => answer, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    answer == 0
}

/// The registers of this thread, set up for whole tiles until this is dropped.
pub(super) struct Registers(());

impl Registers {
    /// # Safety
    /// [`is_available`].
    pub(super) unsafe fn set_up() -> Self {
        let mut setup = [0_u8; 64];
        // The first palette: 8 registers, each of 16 rows of 64 bytes.
        setup[0] = 1;
        for register in 0..8 {
            setup[16 + 2 * register] = 64;
            setup[48 + register] = SIDE as u8;
        }
        // SAFETY: the instruction is there, by the caller's promise, and reads 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) setup.as_ptr(), options(nostack, readonly)) };
        Registers(())
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: the instruction is there, or there would be no registers.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// A panel of a packed right factor, with the steps beyond whole registers apart and filled up with zeros.
pub(super) struct Panel<'a> {
    data: &'a [u32],
    width: usize,
    /// Pairs of the sum.
    steps: usize,
    /// Written where there are such steps.
    last: MaybeUninit<Aligned<{ SIDE * COLUMNS }, u32>>,
}

#[repr(align(64))]
struct Aligned<const N: usize, T>([T; N]);

impl<'a> Panel<'a> {
    /// Of `steps` rows of `width` pairs.
    #[inline]
    pub(super) fn new(data: &'a [u32], width: usize, steps: usize) -> Self {
        assert!(data.len() == steps * width && (width == LANES || width == COLUMNS));
        let mut last = MaybeUninit::uninit();
        let rest = &data[steps / SIDE * SIDE * width..];
        if !rest.is_empty() {
            last.write(Aligned([0; SIDE * COLUMNS])).0[..rest.len()].copy_from_slice(rest);
        }
        Panel { data, width, steps, last }
    }

    /// `alpha A B` to `rows` rows of the target. Row `i` of `A` is at `a[i * stride..]`.
    ///
    /// With an `alpha` of 1 and [`Accumulate::Add`] the sum starts from the output's former content. In every other case the addend
    /// is added after the sum.
    ///
    /// # Safety
    /// `a` is readable for [`rows_in_memory`] rows of as many pairs as the panel has; the target is writable, and readable when added to,
    /// for the rows; what is added has them, and its columns.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn multiply(
        &self,
        _: &Registers,
        alpha: f32,
        a: *const u32,
        stride: usize,
        rows: usize,
        how: Accumulate<f32>,
        target: Target<f32>,
    ) {
        let is_sum = alpha == 1.0 && matches!(how, Accumulate::Overwrite | Accumulate::Add);
        let adds = is_sum && matches!(how, Accumulate::Add);
        let mut sums = MaybeUninit::<Aligned<TILE, f32>>::uninit();
        for first in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - first);
            // SAFETY: these are rows among the promised; a tile that does not go to the target has memory of its own, of which whole rows are
            // written before they are read.
            unsafe {
                let (a, both) = (a.add(first * stride), count > SIDE);
                let to = Target { data: target.data.add(first * target.row_stride), ..target };
                if is_sum && count.is_multiple_of(SIDE) && target.cols == self.width {
                    self.tile(a, stride, both, adds, to.data, to.row_stride);
                    continue;
                }
                let sums = sums.as_mut_ptr().cast::<f32>();
                let row = |i: usize| sums.add(i * COLUMNS);
                if adds {
                    sums.write_bytes(0, TILE);
                    (0..count).for_each(|i| row(i).copy_from_nonoverlapping(to.data.add(i * to.row_stride), to.cols));
                }
                self.tile(a, stride, both, adds, sums, COLUMNS);
                let how = if is_sum { Accumulate::Overwrite } else { how.rows_from(first) };
                for i in 0..count {
                    for j in (0..self.width).step_by(LANES) {
                        store(_mm512_loadu_ps(row(i).add(j)), alpha, i, j, how, to);
                    }
                }
            }
        }
    }

    /// The sums of 16 rows, or of twice as many, to rows of the panel's width that are `c_stride` apart, to which they are added, or not.
    ///
    /// # Safety
    /// `a` is readable for the rows, `c` writable, and readable when added to.
    #[inline]
    unsafe fn tile(&self, a: *const u32, stride: usize, both: bool, adds: bool, c: *mut f32, c_stride: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.width == LANES, adds) {
                (true, false) => self.tile_of::<0, false>(a, stride, both, c, c_stride),
                (true, true) => self.tile_of::<0, true>(a, stride, both, c, c_stride),
                (false, false) => self.tile_of::<{ 4 * LANES }, false>(a, stride, both, c, c_stride),
                (false, true) => self.tile_of::<{ 4 * LANES }, true>(a, stride, both, c, c_stride),
            }
        }
    }

    /// As [`Self::tile`]. Where half of a tile does not exist, the other half stands for it: both compute the same and write it to the same
    /// place. `BESIDE` is how many bytes the second 16 columns are behind the first.
    ///
    /// # Safety
    /// That of [`Self::tile`].
    #[inline]
    unsafe fn tile_of<const BESIDE: usize, const ADDS: bool>(
        &self,
        a: *const u32,
        stride: usize,
        both: bool,
        c: *mut f32,
        c_stride: usize,
    ) {
        const BYTES: usize = size_of::<u32>();
        let (whole, rest) = (self.steps / SIDE, self.steps % SIDE);
        let mut last = MaybeUninit::<Aligned<{ ROWS * SIDE }, u32>>::uninit();
        // SAFETY: the left factor has the rows, by the caller's promise, and as many pairs as the panel; a panel has rows of its width, and
        // its end and the other array have those that are read and written.
        unsafe {
            if rest > 0 {
                let last = last.write(Aligned([0; ROWS * SIDE]));
                for (i, last) in last.0.chunks_exact_mut(SIDE).enumerate() {
                    let i = if both { i } else { i % SIDE };
                    let from = std::slice::from_raw_parts(a.add(i * stride + whole * SIDE), rest);
                    last[..rest].copy_from_slice(from);
                }
            }
            macro_rules! sums {
                ($($begin:literal,)*) => {
                    asm!(
                        $($begin,)*
                        "test {steps}, {steps}",
                        "jz 3f",
                        "2:",
                        "tileloadd tmm4, [{a} + {a_stride}]",
                        "tileloadd tmm6, [{b} + {b_stride}]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tileloadd tmm7, [{b} + {b_stride} + {beside}]",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tileloadd tmm5, [{below} + {a_stride}]",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                        "add {a}, 64",
                        "add {below}, 64",
                        "add {b}, {b_step}",
                        "dec {steps}",
                        "jnz 2b",
                        "3:",
                        "test {rest}, {rest}",
                        "jz 4f",
                        "mov {a_stride}, 64",
                        "tileloadd tmm4, [{last_a} + {a_stride}]",
                        "tileloadd tmm5, [{last_a} + {a_stride} + 1024]",
                        "tileloadd tmm6, [{last_b} + {b_stride}]",
                        "tileloadd tmm7, [{last_b} + {b_stride} + {beside}]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                        "4:",
                        "tilestored [{c} + {c_stride}], tmm0",
                        "tilestored [{c} + {c_stride} + {beside}], tmm1",
                        "tilestored [{c_below} + {c_stride}], tmm2",
                        "tilestored [{c_below} + {c_stride} + {beside}], tmm3",
                        steps = inout(reg) whole => _,
                        a = inout(reg) a => _,
                        below = inout(reg) if both { a.add(SIDE * stride) } else { a } => _,
                        a_stride = inout(reg) BYTES * stride => _,
                        b = inout(reg) self.data.as_ptr() => _,
                        b_stride = in(reg) BYTES * self.width,
                        rest = in(reg) rest,
                        last_a = in(reg) last.as_ptr(),
                        last_b = in(reg) self.last.as_ptr(),
                        c = in(reg) c,
                        c_below = in(reg) if both { c.add(SIDE * c_stride) } else { c },
                        c_stride = in(reg) BYTES * c_stride,
                        beside = const BESIDE,
                        b_step = const if BESIDE == 0 { 4 * LANES * SIDE } else { 4 * COLUMNS * SIDE },
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    )
                };
            }
            if ADDS {
                sums!(
                    "tileloadd tmm0, [{c} + {c_stride}]",
                    "tileloadd tmm1, [{c} + {c_stride} + {beside}]",
                    "tileloadd tmm2, [{c_below} + {c_stride}]",
                    "tileloadd tmm3, [{c_below} + {c_stride} + {beside}]",
                );
            } else {
                sums!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",);
            }
        }
    }
}
