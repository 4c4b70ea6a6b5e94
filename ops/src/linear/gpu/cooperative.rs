//! Products by cooperative matrices: operands in f16, sums in f32.
//!
//! Both operands are converted beforehand. The left one, activations or gradients, is multiplied by the power of two that
//! brings its largest finite magnitude between 2^13 and 2^14, and the product by its inverse: gradients do not become
//! subnormal and nothing finite overflows. The right one, a weight, is not scaled. Converted elements that f16 cannot
//! hold, or that were not finite, become NaN.

use super::gemm::{Epilogue, Left, Right, Sizes, scaled_to_half, whole};
use hankel_core::gpu::{Gpu, GpuBuffer, GpuFacts, Kernel, flag, groups};
use hankel_core::{DType, Result};
use std::sync::Arc;

/// Least rows, columns and steps for which the matrix units are worth the conversion of the operands; other products stay in f32.
const ROWS: usize = 64;

macro_rules! kernel {
    ($name:literal, $head:literal, $cells:literal) => {
        Kernel {
            name: $name,
            source: concat!(
                "enable f16;\nenable wgpu_cooperative_matrix;\n",
                $head,
                include_str!($cells),
                include_str!("cooperative.wgsl")
            ),
            bindings: "rrrrrrw",
        }
    };
}

static SQUARE_16: Kernel = kernel!(
    "cooperative 16 x 16",
    "const T = 16u; const WG = 512u; alias FA = coop_mat16x16<f16, A>; alias FB = coop_mat16x16<f16, B>; \
     alias FC = coop_mat16x16<f32, C>;\n",
    "cells_vector.wgsl"
);
static SQUARE_8: Kernel = kernel!(
    "cooperative 8 x 8",
    "const T = 8u; const WG = 512u; alias FA = coop_mat8x8<f16, A>; alias FB = coop_mat8x8<f16, B>; \
     alias FC = coop_mat8x8<f32, C>;\n",
    "cells_vector.wgsl"
);
static SQUARE_8_METAL: Kernel = kernel!(
    "cooperative 8 x 8",
    "const T = 8u; const WG = 512u; alias FA = coop_mat8x8<f16, A>; alias FB = coop_mat8x8<f16, B>; \
     alias FC = coop_mat8x8<f32, C>;\n",
    "cells_scalar.wgsl"
);
/// For subgroups of 8 lanes, which software has.
static SQUARE_8_NARROW: Kernel = kernel!(
    "cooperative 8 x 8 in 8 lanes",
    "const T = 8u; const WG = 128u; alias FA = coop_mat8x8<f16, A>; alias FB = coop_mat8x8<f16, B>; \
     alias FC = coop_mat8x8<f32, C>;\n",
    "cells_vector.wgsl"
);
static LARGEST: Kernel = Kernel { name: "largest magnitude", source: include_str!("largest.wgsl"), bindings: "rw" };

/// All forms of the kernel.
#[cfg(test)]
pub(super) static KERNELS: [&Kernel; 4] = [&SQUARE_16, &SQUARE_8, &SQUARE_8_METAL, &SQUARE_8_NARROW];

/// The size of a card's fragments, and the lanes of the subgroups that work on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// 16 x 16, in subgroups of 32 lanes.
    Square16,
    /// 8 x 8, in subgroups of 32 lanes.
    Square8,
    /// As [`Form::Square8`], from workgroup memory in single elements.
    Square8Metal,
    /// 8 x 8, in subgroups of 8 lanes.
    Square8Narrow,
}

/// The form of a card's products, or what the card lacks.
pub(crate) fn form(facts: &GpuFacts) -> Result<Form, &'static str> {
    let has = |edge: u32| facts.cooperative.contains(&[edge; 3]);
    if !facts.f16 {
        return Err("16-bit floats in kernels");
    }
    match (facts.backend.as_str(), facts.subgroup) {
        // wgpu lists them for Macs with other cards too, which have none.
        ("metal", _) if has(8) && facts.name.starts_with("Apple M") => Ok(Form::Square8Metal),
        ("metal", _) => Err("cooperative matrices, which Apple's own chips have"),
        (_, [32, 32]) if has(16) => Ok(Form::Square16),
        (_, [32, 32]) if has(8) => Ok(Form::Square8),
        (_, [8, 8]) if has(8) => Ok(Form::Square8Narrow),
        _ if has(8) || has(16) => Err("subgroups of a fixed size, of 32 or 8 lanes"),
        _ => Err("cooperative matrices of 16 x 16 or 8 x 8 with 16-bit operands and 32-bit sums"),
    }
}

/// The kernel for a card and the edge of its tiles, or what the card lacks.
fn kernel(facts: &GpuFacts) -> Result<(&'static Kernel, usize), &'static str> {
    let (kernel, edge, lanes) = match form(facts)? {
        Form::Square16 => (&SQUARE_16, 128, 512),
        Form::Square8 => (&SQUARE_8, 64, 512),
        Form::Square8Metal => (&SQUARE_8_METAL, 64, 512),
        Form::Square8Narrow => (&SQUARE_8_NARROW, 64, 128),
    };
    // Two slices, and eight fragments on their way out, with T = edge / 8.
    let bytes = 2 * 2 * edge * (edge / 2 + 8) + 8 * 4 * edge * edge / 64;
    if bytes > facts.workgroup_storage as usize || lanes > facts.workgroup_lanes {
        return Err("memory or lanes for a workgroup's tiles");
    }
    Ok((kernel, edge))
}

/// What a card lacks for products in f16, `None` if nothing.
pub fn lacks(facts: &GpuFacts) -> Option<&'static str> {
    kernel(facts).err()
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    sizes: [u32; 3],
    b: [u32; 2],
    c_first: u32,
    factor: f32,
    first_tile: u32,
}

/// `out = base + factor gate left right + bias` where that suits, and whether it was done.
pub(super) fn gemm(gpu: &'static Gpu, left: Left, right: Right, how: Epilogue, out: &GpuBuffer) -> Result<bool> {
    let sizes = Sizes::of(left, right);
    let Sizes { m, n, k } = sizes;
    let in_fours = [left.first * left.cols, right.cols, right.first * right.cols];
    let Ok((kernel, edge)) = kernel(gpu.facts()) else { return Ok(false) };
    if left.transposed || !suits(m, n, k) || !in_fours.iter().all(|size| size.is_multiple_of(4)) {
        return Ok(false);
    }
    let halved;
    let weight = if right.storage.dtype == DType::F16 {
        right.storage
    } else {
        match whole(gpu, right.storage, DType::F16)? {
            Some(storage) => {
                halved = storage;
                &halved
            }
            None => return Ok(false),
        }
    };
    let converted = match left.tensor {
        Some(tensor) => tensor.converted(|| halves(gpu, left))?,
        None => Arc::new(halves(gpu, left)?),
    };
    let Some(Halves { buffer: a, scale }) = &*converted else { return Ok(false) };
    let whole = m.is_multiple_of(edge) && n.is_multiple_of(edge) && how.first.is_multiple_of(4);
    let direct = whole && how.bias.is_none() && form(gpu.facts()) != Ok(Form::Square8Metal);
    let constants = [
        ("DIRECT", flag(direct)),
        ("B_TRANSPOSED", flag(right.transposed)),
        ("BASE", flag(how.base.is_some())),
        ("BIAS", flag(how.bias.is_some())),
        ("GATED", flag(how.gate.is_some())),
    ];
    let parameters = Parameters {
        sizes: [m as u32, n as u32, k as u32],
        b: [right.cols as u32, (right.first * right.cols) as u32],
        c_first: how.first as u32,
        factor: how.factor,
        first_tile: 0,
    };
    let spare = scale;
    let buffers = [
        a,
        &weight.buffer,
        scale,
        how.base.unwrap_or(spare),
        how.bias.unwrap_or(spare),
        how.gate.unwrap_or(spare),
        out,
    ];
    let tiles = m.div_ceil(edge) * n.div_ceil(edge);
    for run in gpu.runs(tiles, sizes.operations()) {
        let parameters = Parameters { first_tile: run.start as u32, ..parameters };
        gpu.launch(kernel, &constants, &buffers, &parameters, groups(run.len(), 1))?;
        gpu.weigh(sizes.operations() * run.len() as f64 / tiles as f64);
    }
    Ok(true)
}

/// Whether a product of these sizes goes by cooperative matrices, where the card has them.
pub(crate) fn suits(m: usize, n: usize, k: usize) -> bool {
    m.min(n).min(k) >= ROWS && n.is_multiple_of(4) && k.is_multiple_of(4)
}

/// A matrix in f16 that was multiplied by a power of two, and that with its inverse.
pub(crate) struct Halves {
    pub(crate) buffer: GpuBuffer,
    pub(crate) scale: GpuBuffer,
}

/// `matrix` in f16, its largest finite magnitude between 2^13 and 2^14; `None` where its size does not suit.
pub(crate) fn halves(gpu: &'static Gpu, matrix: Left) -> Result<Option<Halves>> {
    let scale = power_of_two(gpu, matrix)?;
    Ok(scaled_to_half(gpu, matrix, &scale)?.map(|elements| Halves { buffer: elements.buffer, scale }))
}

/// The power of two for a left factor, and its inverse.
fn power_of_two(gpu: &'static Gpu, left: Left) -> Result<GpuBuffer> {
    let count = left.rows * left.cols;
    let pieces = (count / 8192).clamp(1, 512);
    let (largest, scale) = (gpu.allocate(4 * pieces as u64)?, gpu.allocate(8)?);
    let parameters = [(left.first * left.cols) as u32, count as u32];
    gpu.launch(&LARGEST, &[("LAST", 0.0)], &[left.data, &largest], &parameters, [pieces as u32, 1, 1])?;
    gpu.launch(&LARGEST, &[("LAST", 1.0)], &[&largest, &scale], &[0, pieces as u32], [1, 1, 1])?;
    Ok(scale)
}
