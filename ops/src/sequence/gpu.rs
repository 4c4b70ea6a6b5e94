//! Copies on a GPU.

use crate::gpu::{Output, floats, zeros};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, groups};
use hankel_core::{Result, Tensor};

static COPY: Kernel = Kernel { name: "copy_steps", source: include_str!("copy.wgsl"), bindings: "rw" };

/// Steps of sequences of a length, from a first one on.
#[derive(Clone, Copy)]
struct Place {
    total: usize,
    first: usize,
}

fn copy(gpu: &'static Gpu, from: &GpuBuffer, to: &GpuBuffer, places: [Place; 2], sizes: [usize; 3]) -> Result<()> {
    let [batch, steps, width] = sizes;
    let n = batch * steps * width;
    let [source, target] = places;
    let parameters =
        [n, steps, width, source.total, source.first, target.total, target.first].map(|value| value as u32);
    gpu.launch(&COPY, &[], &[from, to], &parameters, groups(n, 256))
}

pub(super) fn narrow(
    gpu: &'static Gpu,
    x: &Tensor,
    [batch, total, width]: [usize; 3],
    first: usize,
    steps: usize,
) -> Result<Tensor> {
    let (whole, part) = (Place { total, first }, Place { total: steps, first: 0 });
    let sizes = [batch, steps, width];
    let out = Output::new(gpu, batch * steps * width)?;
    copy(gpu, floats("narrow_time", "x", x, gpu)?, out.buffer(), [whole, part], sizes)?;
    out.finish(sizes)?.from_operator("narrow_time", &[Some(x)], move |g, _| {
        let mut dx = zeros(gpu, &[batch, total, width])?;
        copy(
            gpu,
            floats("narrow_time", "gradient", &g, gpu)?,
            &dx.gpu_mut("narrow_time")?.buffer,
            [part, whole],
            sizes,
        )?;
        Ok(vec![Some(dx)])
    })
}

pub(super) fn concat(
    gpu: &'static Gpu,
    parts: &[&Tensor],
    [batch, total, width]: [usize; 3],
    places: Vec<(usize, usize)>,
) -> Result<Tensor> {
    let out = Output::new(gpu, batch * total * width)?;
    for (part, &(first, steps)) in parts.iter().zip(&places) {
        let places = [Place { total: steps, first: 0 }, Place { total, first }];
        copy(gpu, floats("concat_time", "a part", part, gpu)?, out.buffer(), places, [batch, steps, width])?;
    }
    let inputs: Vec<_> = parts.iter().copied().map(Some).collect();
    out.finish([batch, total, width])?.from_operator("concat_time", &inputs, move |g, wanted| {
        let part = |(&(first, steps), &wanted): (&(usize, usize), &bool)| {
            if !wanted {
                return Ok(None);
            }
            let part = Output::new(gpu, batch * steps * width)?;
            let places = [Place { total, first }, Place { total: steps, first: 0 }];
            copy(gpu, floats("concat_time", "gradient", &g, gpu)?, part.buffer(), places, [batch, steps, width])?;
            part.finish([batch, steps, width]).map(Some)
        };
        places.iter().zip(wanted).map(part).collect()
    })
}
