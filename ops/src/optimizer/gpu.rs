//! The kernels on a GPU.

use super::adamw::{Moments, Scale, Step};
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, GpuBuffer, GpuStorage, Kernel, flag, groups};
use hankel_core::{DType, Error, Result, Tensor};

const NAME: &str = "adamw";
static ADAMW: Kernel = Kernel { name: NAME, source: include_str!("adamw.wgsl"), bindings: "wwwrr" };
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

pub(super) fn adamw(
    gpu: &'static Gpu,
    parameter: &mut Tensor,
    gradient: &Tensor,
    moments: &mut Moments,
    step: Step,
    scale: Scale,
) -> Result<()> {
    fn in_place<'a>(name: &str, storage: &'a GpuStorage, gpu: &Gpu) -> Result<&'a GpuBuffer> {
        if storage.dtype != DType::F32 {
            return Err(Error::DType { operator: NAME, expected: "f32 on a GPU", found: storage.dtype });
        }
        if !std::ptr::eq(storage.buffer.gpu(), gpu) {
            let problem = format!("{name} is on another GPU than the parameter");
            return Err(Error::Placement { operator: NAME, problem });
        }
        Ok(&storage.buffer)
    }
    let elements = parameter.elements();
    let g = floats(NAME, "the gradient", gradient, gpu)?;
    let (norm, scale, clip) = match scale {
        Scale::By(factor) => (g, factor, false),
        Scale::Clip { norm, limit } => (floats(NAME, "the norm", norm, gpu)?, limit, true),
    };
    let buffers = [
        in_place("the parameter", parameter.gpu_mut(NAME)?, gpu)?,
        in_place("the first moment", moments.first.gpu_mut(NAME)?, gpu)?,
        in_place("the second moment", moments.second.gpu_mut(NAME)?, gpu)?,
        g,
        norm,
    ];
    let [size, root, eps, shrink, scale] =
        [step.size, step.root, step.eps, step.shrink, scale].map(|number| number as f32);
    let [keep, add] = [step.keep, step.add].map(|pair| pair.map(|number| number as f32));
    let parameters = Parameters { elements: elements as u32, keep, add, size, root, eps, shrink, scale };
    gpu.launch(&ADAMW, &[("CLIP", flag(clip))], &buffers, &parameters, groups(elements, 256))
}
