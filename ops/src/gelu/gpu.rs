//! The kernel on a GPU.

use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Result, Tensor};

static GELU: Kernel = Kernel { name: "gelu", source: include_str!("gelu.wgsl"), bindings: "rrw" };

pub(super) fn gelu(gpu: &'static Gpu, x: &Tensor) -> Result<Tensor> {
    let run = move |x: &Tensor, g: Option<&Tensor>| {
        let (n, y) = (x.elements(), Output::new(gpu, x.elements())?);
        let source = floats("gelu", "x", x, gpu)?;
        let gradient = [("GRADIENT", f64::from(u8::from(g.is_some())))];
        let g = g.map_or(Ok(source), |g| floats("gelu", "gradient", g, gpu))?;
        gpu.launch(&GELU, &gradient, &[source, g, y.buffer()], &[n as u32], groups(n, 256))?;
        y.finish(x.shape())
    };
    let saved = x.detach();
    run(x, None)?.from_operator("gelu", &[Some(x)], move |g, _| Ok(vec![Some(run(&saved, Some(&g))?)]))
}
