//! Weights in block formats: products of few rows read their blocks, all others a decoded copy that is given back.

use super::kernels::kernel;
use hankel_core::block_formats::BlockFormat;
use hankel_core::gpu::{Gpu, GpuBuffer, GpuStorage, Kernel, groups};
use hankel_core::{DType, Error, Result};

/// The kernels of a format.
pub(super) struct Kernels {
    name: &'static str,
    pub(super) matvec: &'static Kernel,
    to_f32: &'static Kernel,
    to_f16: &'static Kernel,
    gather: &'static Kernel,
}

/// The kernels of the format `$name`, whose elements `$part`s say.
macro_rules! kernels {
    ($name:literal, $($part:literal),+) => {
        Kernels {
            name: $name,
            matvec: kernel!(
                concat!($name, " matrix times vector"),
                "rrrrrrrw",
                include_str!("common.wgsl"),
                include_str!("result.wgsl"),
                $(include_str!($part),)+
                include_str!("blocks/common.wgsl"),
                include_str!("scalars.wgsl"),
                include_str!("matvec.wgsl")
            ),
            to_f32: kernel!(
                concat!($name, " to f32"),
                "wr",
                $(include_str!($part),)+
                include_str!("blocks/common.wgsl"),
                include_str!("to_f32.wgsl"),
                include_str!("blocks/decode.wgsl")
            ),
            to_f16: kernel!(
                concat!($name, " to f16"),
                "wr",
                $(include_str!($part),)+
                include_str!("blocks/common.wgsl"),
                include_str!("to_f16.wgsl"),
                include_str!("blocks/decode.wgsl")
            ),
            gather: kernel!(
                concat!($name, " embedding"),
                "rrw",
                $(include_str!($part),)+
                include_str!("blocks/common.wgsl"),
                include_str!("blocks/gather.wgsl")
            ),
        }
    };
}

static FORMATS: &[Kernels] = &[
    kernels!("q4_0", "blocks/q4_0.wgsl"),
    kernels!("q4_1", "blocks/q4_1.wgsl"),
    kernels!("q5_0", "blocks/q5_0.wgsl"),
    kernels!("q5_1", "blocks/q5_1.wgsl"),
    kernels!("q8_0", "blocks/q8_0.wgsl"),
    kernels!("q2_k", "blocks/q2_k.wgsl"),
    kernels!("q3_k", "blocks/q3_k.wgsl"),
    kernels!("q4_k", "blocks/k_scales.wgsl", "blocks/q4_k.wgsl"),
    kernels!("q5_k", "blocks/k_scales.wgsl", "blocks/q5_k.wgsl"),
    kernels!("q6_k", "blocks/q6_k.wgsl"),
    kernels!("iq4_nl", "blocks/iq4_nl.wgsl"),
];

/// The kernels of `format`.
pub(super) fn kernels(format: &dyn BlockFormat) -> Result<&'static Kernels> {
    FORMATS.iter().find(|kernels| kernels.name == format.name()).ok_or_else(|| {
        let problem = format!("{} has no kernel for a GPU", format.name());
        Error::Placement { operator: "linear", problem }
    })
}

/// Operations of decoding an element, about: shifts, masks and clamps, where multiplying it takes two.
pub(super) const DECODING: f64 = 40.0;

/// All elements in f32 or f16.
pub(super) fn decoded(
    gpu: &'static Gpu,
    storage: &GpuStorage,
    format: &dyn BlockFormat,
    dtype: DType,
) -> Result<GpuStorage> {
    let (kernels, elements) = (kernels(format)?, storage.elements);
    let (kernel, bytes) = if dtype == DType::F16 { (kernels.to_f16, 2) } else { (kernels.to_f32, 4) };
    let buffer = gpu.allocate((bytes * elements) as u64)?;
    gpu.launch(kernel, &[], &[&buffer, &storage.buffer], &[(elements / 4) as u32], groups(elements / 4, 256))?;
    gpu.weigh(DECODING * elements as f64);
    Ok(GpuStorage { buffer, dtype, elements, nf4: None })
}

/// Rows `ids` of a table, `width` elements each, one after the other in `out`.
pub(crate) fn gather(
    gpu: &'static Gpu,
    (ids, rows): (&GpuBuffer, usize),
    table: &GpuStorage,
    format: &dyn BlockFormat,
    width: usize,
    out: &GpuBuffer,
) -> Result<()> {
    let n = rows * width;
    let parameters = [n as u32, width as u32];
    gpu.launch(kernels(format)?.gather, &[], &[ids, &table.buffer, out], &parameters, groups(n, 256))
}

/// Every kernel of every format.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static Kernel> {
    FORMATS.iter().flat_map(|kernels| [kernels.matvec, kernels.to_f32, kernels.to_f16, kernels.gather])
}
