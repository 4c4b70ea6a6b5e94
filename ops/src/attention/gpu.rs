//! Attention on a GPU, forward and backward in tiles: no matrix of the size of `T x T` exists.

use super::NAME;
use super::cpu::tiles::Shape;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Error, Result, Tensor};

static FORWARD: Kernel = Kernel {
    name: NAME,
    source: concat!(include_str!("../soft_cap.wgsl"), include_str!("forward.wgsl")),
    bindings: "rrrww",
};
static ROW_SUMS: Kernel = Kernel { name: "attention row sums", source: include_str!("row_sums.wgsl"), bindings: "rrw" };
static BACKWARD: Kernel = Kernel {
    name: "attention gradient",
    source: concat!(include_str!("../soft_cap.wgsl"), include_str!("backward.wgsl")),
    bindings: "rrrrrrww",
};

/// Queries or keys of a workgroup.
const TILE: usize = 32;
/// The widest head that the registers of a lane hold.
const WIDEST: usize = 256;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    sizes: [u32; 5],
    offset: u32,
    window: u32,
    scale: f32,
    cap: f32,
}

impl Parameters {
    fn new(shape: &Shape) -> Self {
        let Shape { batch, heads, kv_heads, head_dim, queries, keys, offset, window, cap } = *shape;
        Parameters {
            sizes: [batch, heads, kv_heads, queries, keys].map(|size| size as u32),
            offset: offset as u32,
            window: window.unwrap_or(0) as u32,
            scale: (1.0 / (head_dim as f64).sqrt()) as f32,
            cap: cap.unwrap_or(0.0) as f32,
        }
    }
}

/// Workgroups for the tiles of the queries.
fn query_tiles(shape: &Shape) -> [u32; 3] {
    [shape.queries.div_ceil(TILE) as u32, shape.heads as u32, shape.batch as u32]
}

/// The output, and the logarithm of each row's sum, `[batch * heads * T_q]`.
pub(super) fn forward(
    gpu: &'static Gpu,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    shape: &Shape,
) -> Result<(Tensor, Tensor)> {
    if shape.head_dim > WIDEST {
        let problem = format!("head_dim = {}, expected at most {WIDEST} on a GPU", shape.head_dim);
        return Err(Error::Placement { operator: NAME, problem });
    }
    let rows = shape.batch * shape.heads * shape.queries;
    let (out, lse) = (Output::new(gpu, q.elements())?, Output::new(gpu, rows)?);
    let [q_in, k_in, v_in] = [("queries", q), ("keys", k), ("values", v)].map(|(name, x)| floats(NAME, name, x, gpu));
    if q.elements() > 0 {
        let (width, buffers) = (("HEAD_DIM", shape.head_dim as f64), [q_in?, k_in?, v_in?, out.buffer(), lse.buffer()]);
        gpu.launch(&FORWARD, &[width], &buffers, &Parameters::new(shape), query_tiles(shape))?;
    }
    Ok((out.finish(q.shape())?, lse.finish([rows])?))
}

/// The wanted gradients of `q`, `k` and `v`.
pub(super) fn backward(
    gpu: &'static Gpu,
    [q, k, v]: [&Tensor; 3],
    shape: &Shape,
    out: &Tensor,
    lse: &Tensor,
    g: &Tensor,
    wanted: [bool; 3],
) -> Result<[Option<Tensor>; 3]> {
    let Shape { batch, heads, kv_heads, head_dim, queries, keys, .. } = *shape;
    let (width, parameters) = (("HEAD_DIM", head_dim as f64), Parameters::new(shape));
    let buffer = |tensor| floats(NAME, "saved", tensor, gpu);
    let g = floats(NAME, "gradient", g, gpu)?;
    let rows = batch * heads * queries;
    let sums = Output::new(gpu, rows)?;
    if rows * head_dim > 0 {
        let sizes = [batch as u32, heads as u32, queries as u32];
        gpu.launch(&ROW_SUMS, &[width], &[buffer(out)?, g, sums.buffer()], &sizes, groups(rows, 64))?;
    }
    let [d_q, d_k, d_v] = [q, k, v].map(|x| Output::new(gpu, x.elements()));
    let (d_q, d_k, d_v) = (d_q?, d_k?, d_v?);
    let [q_in, k_in, v_in, lse] = [buffer(q)?, buffer(k)?, buffer(v)?, buffer(lse)?];
    if wanted[0] && q.elements() > 0 {
        // The second output is not written then.
        let buffers = [q_in, k_in, v_in, g, lse, sums.buffer(), d_q.buffer(), d_k.buffer()];
        gpu.launch(&BACKWARD, &[width, ("KEYS", 0.0)], &buffers, &parameters, query_tiles(shape))?;
    }
    if (wanted[1] || wanted[2]) && k.elements() > 0 {
        let buffers = [q_in, k_in, v_in, g, lse, sums.buffer(), d_k.buffer(), d_v.buffer()];
        let key_tiles = [keys.div_ceil(TILE) as u32, kv_heads as u32, batch as u32];
        gpu.launch(&BACKWARD, &[width, ("KEYS", 1.0)], &buffers, &parameters, key_tiles)?;
    }
    let finish = |wanted: bool, d: Output, like: &Tensor| wanted.then(|| d.finish(like.shape())).transpose();
    Ok([finish(wanted[0], d_q, q)?, finish(wanted[1], d_k, k)?, finish(wanted[2], d_v, v)?])
}
