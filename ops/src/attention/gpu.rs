//! Attention on a GPU, forward and backward in tiles: no matrix of the size of `T x T` exists.

use super::cpu::Shape;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Error, Result, Tensor, autograd};

const NAME: &str = "attention";
static FORWARD: Kernel = Kernel { name: NAME, source: include_str!("forward.wgsl"), bindings: "rrrww" };
static ROW_SUMS: Kernel = Kernel { name: "attention row sums", source: include_str!("row_sums.wgsl"), bindings: "rrw" };
static BACKWARD: Kernel =
    Kernel { name: "attention gradient", source: include_str!("backward.wgsl"), bindings: "rrrrrrww" };

/// Queries or keys of a workgroup.
const TILE: usize = 32;
/// The widest head: what the registers of a lane hold.
const WIDEST: usize = 256;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    sizes: [u32; 5],
    offset: u32,
    window: u32,
    scale: f32,
}

pub(super) fn attention(gpu: &'static Gpu, q: &Tensor, k: &Tensor, v: &Tensor, shape: Shape) -> Result<Tensor> {
    let Shape { batch, heads, kv_heads, head_dim, queries, keys, offset, window } = shape;
    if head_dim > WIDEST {
        let problem = format!("heads of {head_dim} elements, where a GPU takes at most {WIDEST}");
        return Err(Error::Placement { operator: NAME, problem });
    }
    let parameters = Parameters {
        sizes: [batch, heads, kv_heads, queries, keys].map(|size| size as u32),
        offset: offset as u32,
        window: window.unwrap_or(0) as u32,
        scale: (1.0 / (head_dim as f64).sqrt()) as f32,
    };
    let width = ("HEAD_DIM", head_dim as f64);
    let empty = q.elements() == 0;
    let out = Output::new(gpu, q.elements())?;
    let lse = Output::new(gpu, batch * heads * queries)?;
    let inputs = [floats(NAME, "queries", q, gpu)?, floats(NAME, "keys", k, gpu)?, floats(NAME, "values", v, gpu)?];
    let [q_buffer, k_buffer, v_buffer] = inputs;
    let of_queries = [queries.div_ceil(TILE) as u32, heads as u32, batch as u32];
    if !empty {
        let buffers = [q_buffer, k_buffer, v_buffer, out.buffer(), lse.buffer()];
        gpu.launch(&FORWARD, &[width], &buffers, &parameters, of_queries)?;
    }
    let out = out.finish(q.shape())?;
    let lse = lse.finish([batch * heads * queries])?;
    let tracked = [q, k, v].into_iter().any(autograd::needs_gradient);
    let saved = tracked.then(|| (q.detach(), k.detach(), v.detach(), out.clone(), lse));
    out.from_operator(NAME, &[Some(q), Some(k), Some(v)], move |g, wanted| {
        let Some((q, k, v, out, lse)) = saved else { return Ok(vec![None, None, None]) };
        let buffer = |tensor| floats(NAME, "saved", tensor, gpu);
        let g = floats(NAME, "gradient", &g, gpu)?;
        let rows = batch * heads * queries;
        let sums = Output::new(gpu, rows)?;
        let dq = Output::new(gpu, q.elements())?;
        let (dk, dv) = (Output::new(gpu, k.elements())?, Output::new(gpu, v.elements())?);
        let sizes = [batch as u32, heads as u32, queries as u32];
        if rows * head_dim > 0 {
            gpu.launch(&ROW_SUMS, &[width], &[buffer(&out)?, g, sums.buffer()], &sizes, groups(rows, 64))?;
        }
        let inputs = [buffer(&q)?, buffer(&k)?, buffer(&v)?, g, buffer(&lse)?, sums.buffer()];
        let [q_in, k_in, v_in, g_in, lse_in, sums_in] = inputs;
        if wanted[0] && !empty {
            // The second output is not written then.
            let buffers = [q_in, k_in, v_in, g_in, lse_in, sums_in, dq.buffer(), dk.buffer()];
            gpu.launch(&BACKWARD, &[width, ("KEYS", 0.0)], &buffers, &parameters, of_queries)?;
        }
        if (wanted[1] || wanted[2]) && k.elements() > 0 {
            let buffers = [q_in, k_in, v_in, g_in, lse_in, sums_in, dk.buffer(), dv.buffer()];
            let of_keys = [keys.div_ceil(TILE) as u32, kv_heads as u32, batch as u32];
            gpu.launch(&BACKWARD, &[width, ("KEYS", 1.0)], &buffers, &parameters, of_keys)?;
        }
        let finish =
            |wanted: bool, output: Output, like: &Tensor| wanted.then(|| output.finish(like.shape())).transpose();
        Ok(vec![finish(wanted[0], dq, &q)?, finish(wanted[1], dk, &k)?, finish(wanted[2], dv, &v)?])
    })
}
