//! The kernels on a GPU.

use super::adamw::{Moments, Scale, Step};
use super::sensitivity::{Decays, Sensitivity};
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, flag, groups};
use hankel_core::{DType, Error, Result, Tensor};

const NAME: &str = "adamw";
static ADAMW: Kernel = Kernel { name: NAME, source: include_str!("adamw.wgsl"), bindings: "wwwrr" };
static SENSITIVITY: Kernel = Kernel { name: "sensitivity", source: include_str!("sensitivity.wgsl"), bindings: "wwrr" };
static SQUARES: Kernel = Kernel { name: "sum_of_squares", source: include_str!("squares.wgsl"), bindings: "rw" };
static NORM: Kernel = Kernel { name: "gradient_norm", source: include_str!("norm.wgsl"), bindings: "rw" };

/// Elements of a gradient to a workgroup, as in `squares.wgsl`, and bytes of a sum there.
const PIECE: usize = 8192;
const SUM_BYTES: usize = 16;

pub(super) fn gradient_norm(gpu: &'static Gpu, gradients: &[&Tensor]) -> Result<Tensor> {
    let pieces = |gradient: &Tensor| gradient.elements().div_ceil(PIECE);
    let count: usize = gradients.iter().map(|gradient| pieces(gradient)).sum();
    let sums = gpu.allocate((SUM_BYTES * count) as u64)?;
    let mut first = 0;
    for &gradient in gradients {
        let x = floats("gradient_norm", "a gradient", gradient, gpu)?;
        if gradient.elements() > 0 {
            let parameters = [gradient.elements() as u32, first as u32];
            gpu.launch(&SQUARES, &[], &[x, &sums], &parameters, groups(gradient.elements(), PIECE))?;
            first += pieces(gradient);
        }
    }
    let norm = Output::new(gpu, 1)?;
    gpu.launch(&NORM, &[], &[&sums, norm.buffer()], &[count as u32], [1, 1, 1])?;
    norm.finish([])
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    elements: u32,
    keep: [f32; 2],
    add: [f32; 2],
    size: f32,
    root: f32,
    eps: f32,
    shrink: f32,
    scale: f32,
}

/// Floats that a kernel changes.
fn in_place<'a>(operator: &'static str, name: &str, tensor: &'a mut Tensor, gpu: &Gpu) -> Result<&'a GpuBuffer> {
    let storage = tensor.gpu_mut(operator)?;
    if storage.dtype != DType::F32 {
        return Err(Error::DType { operator, expected: "f32 on a GPU", found: storage.dtype });
    }
    if !std::ptr::eq(storage.buffer.gpu(), gpu) {
        let problem = format!("{name} is on another GPU than the parameter");
        return Err(Error::Placement { operator, problem });
    }
    Ok(&storage.buffer)
}

pub(super) fn adamw(
    gpu: &'static Gpu,
    parameter: &mut Tensor,
    gradient: &Tensor,
    moments: &mut Moments,
    step: Step,
    scale: Scale,
) -> Result<()> {
    let elements = parameter.elements();
    let g = floats(NAME, "the gradient", gradient, gpu)?;
    let (norm, scale, clip) = match scale {
        Scale::By(factor) => (g, factor, false),
        Scale::Clip { norm, limit } => (floats(NAME, "the norm", norm, gpu)?, limit, true),
    };
    let buffers = [
        in_place(NAME, "the parameter", parameter, gpu)?,
        in_place(NAME, "the first moment", &mut moments.first, gpu)?,
        in_place(NAME, "the second moment", &mut moments.second, gpu)?,
        g,
        norm,
    ];
    let [size, root, eps, shrink, scale] =
        [step.size, step.root, step.eps, step.shrink, scale].map(|number| number as f32);
    let [keep, add] = [step.keep, step.add].map(|pair| pair.map(|number| number as f32));
    let parameters = Parameters { elements: elements as u32, keep, add, size, root, eps, shrink, scale };
    gpu.launch(&ADAMW, &[("CLIP", flag(clip))], &buffers, &parameters, groups(elements, 256))
}

pub(super) fn sensitivity(
    gpu: &'static Gpu,
    parameter: &Tensor,
    gradient: &Tensor,
    scores: &mut Sensitivity,
    decays: Decays,
) -> Result<()> {
    const NAME: &str = "sensitivity";
    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::NoUninit)]
    struct Parameters {
        elements: u32,
        keep: [f32; 2],
        add: [f32; 2],
        factor: f32,
    }
    let elements = parameter.elements();
    let buffers = [
        in_place(NAME, "the mean", &mut scores.mean, gpu)?,
        in_place(NAME, "the uncertainty", &mut scores.uncertainty, gpu)?,
        floats(NAME, "the parameter", parameter, gpu)?,
        floats(NAME, "the gradient", gradient, gpu)?,
    ];
    let [keep, add] = [decays.keep, decays.add].map(|pair| pair.map(|number| number as f32));
    let parameters = Parameters { elements: elements as u32, keep, add, factor: decays.factor as f32 };
    gpu.launch(&SENSITIVITY, &[], &buffers, &parameters, groups(elements, 256))
}
