//! Attention by cooperative matrices: operands in f16, sums and the softmax in f32.
//!
//! `q`, `k`, `v` and the output's gradient are converted beforehand, each multiplied by the power of two that brings its largest
//! finite magnitude between 2^13 and 2^14: gradients do not become subnormal and nothing finite overflows. What was not finite
//! becomes NaN, and so do the results that depend on it.

use super::{Shape, in_runs, product};
use crate::linear::gpu::{Form, Halves, Left, form, halves};
use hankel_core::Result;
use hankel_core::gpu::{Gpu, GpuBuffer, GpuFacts, Kernel, flag};

/// The widest head of which the fragments of a lane hold the results.
const WIDEST: usize = 128;

macro_rules! kernel {
    ($name:literal, $bindings:literal, $head:literal, $cells:literal, $main:literal) => {
        Kernel {
            name: $name,
            source: concat!(
                "enable f16;\nenable wgpu_cooperative_matrix;\n",
                $head,
                include_str!("../../soft_cap.wgsl"),
                include_str!("problem.wgsl"),
                include_str!("cooperative/inputs.wgsl"),
                include_str!($cells),
                include_str!("cooperative/tile.wgsl"),
                include_str!($main)
            ),
            bindings: $bindings,
        }
    };
}

/// Forward, and backward.
macro_rules! pair {
    ($head:literal, $cells:literal) => {
        [
            kernel!("cooperative attention", "rrrrrrrrww", $head, $cells, "cooperative/forward.wgsl"),
            kernel!("cooperative attention gradient", "rrrrrrrrrrww", $head, $cells, "cooperative/backward.wgsl"),
        ]
    };
}

static SQUARE_16: [Kernel; 2] = pair!(
    "const T = 16u; const WG = 128u; alias FA = coop_mat16x16<f16, A>; alias FB = coop_mat16x16<f16, B>; \
     alias FC = coop_mat16x16<f32, C>;\n",
    "cooperative/cells_vector.wgsl"
);
static SQUARE_8: [Kernel; 2] = pair!(
    "const T = 8u; const WG = 128u; alias FA = coop_mat8x8<f16, A>; alias FB = coop_mat8x8<f16, B>; \
     alias FC = coop_mat8x8<f32, C>;\n",
    "cooperative/cells_vector.wgsl"
);
static SQUARE_8_METAL: [Kernel; 2] = pair!(
    "const T = 8u; const WG = 128u; alias FA = coop_mat8x8<f16, A>; alias FB = coop_mat8x8<f16, B>; \
     alias FC = coop_mat8x8<f32, C>;\n",
    "cooperative/cells_scalar.wgsl"
);
/// For subgroups of 8 lanes, which software has.
static SQUARE_8_NARROW: [Kernel; 2] = pair!(
    "const T = 8u; const WG = 32u; alias FA = coop_mat8x8<f16, A>; alias FB = coop_mat8x8<f16, B>; \
     alias FC = coop_mat8x8<f32, C>;\n",
    "cooperative/cells_vector.wgsl"
);

/// All forms of the kernels.
#[cfg(test)]
pub(super) static KERNELS: [&[Kernel; 2]; 4] = [&SQUARE_16, &SQUARE_8, &SQUARE_8_METAL, &SQUARE_8_NARROW];

/// The kernels for heads of a width on a card.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    forward: &'static Kernel,
    backward: &'static Kernel,
    /// Rows of queries, or keys, of a workgroup.
    tile: usize,
    /// Elements of a head, padded.
    width: usize,
}

impl Plan {
    /// `None` where the card, or the width, has no such kernels.
    pub(super) fn of(facts: &GpuFacts, head_dim: usize) -> Option<Self> {
        let ([forward, backward], tile) = match form(facts).ok()? {
            Form::Square16 => (&SQUARE_16, 32),
            Form::Square8 => (&SQUARE_8, 16),
            Form::Square8Metal => (&SQUARE_8_METAL, 16),
            Form::Square8Narrow => (&SQUARE_8_NARROW, 16),
        };
        let width = head_dim.next_multiple_of(32);
        // Of the gradient, which takes most: four tiles and two of weights in f16, two of scores in f32.
        let memory = 2 * (4 * tile * (width + 8) + 2 * tile * (tile + 8)) + 4 * 2 * tile * tile;
        let suits = (1..=WIDEST).contains(&head_dim) && head_dim.is_multiple_of(4);
        (suits && memory <= facts.workgroup_storage as usize).then_some(Plan { forward, backward, tile, width })
    }

    fn query_tiles(&self, shape: &Shape) -> [u32; 3] {
        let rows = shape.queries * (shape.heads / shape.kv_heads);
        [rows.div_ceil(self.tile) as u32, shape.kv_heads as u32, shape.batch as u32]
    }

    fn key_tiles(&self, shape: &Shape) -> [u32; 3] {
        [shape.keys.div_ceil(self.tile) as u32, shape.kv_heads as u32, shape.batch as u32]
    }

    /// The output to `out`, and the logarithm of each row's sum to `lse`, of `q`, `k` and `v` that are not empty.
    pub(super) fn forward(
        &self,
        gpu: &'static Gpu,
        [q, k, v]: [&GpuBuffer; 3],
        shape: &Shape,
        [out, lse]: [&GpuBuffer; 2],
    ) -> Result<()> {
        let [q, k, v] = [of_queries(gpu, q, shape)?, of_keys(gpu, k, shape)?, of_keys(gpu, v, shape)?];
        // In place of the gradient, which is not read, stands q.
        let buffers = [&q.buffer, &k.buffer, &v.buffer, &q.buffer, &q.scale, &k.scale, &v.scale, &q.scale, out, lse];
        let constants = [("WIDTH", self.width as f64)];
        in_runs(gpu, shape, self.query_tiles(shape), 2.0 * product(shape), |parameters, grid| {
            gpu.launch(self.forward, &constants, &buffers, parameters, grid)
        })
    }

    /// The wanted gradients of `q`, `k` and `v` to `outputs`, given that of the output and what each row has as one number, the
    /// logarithms of sums and `D`.
    pub(super) fn backward(
        &self,
        gpu: &'static Gpu,
        [q, k, v, g]: [&GpuBuffer; 4],
        shape: &Shape,
        [lse, sums]: [&GpuBuffer; 2],
        [d_q, d_k, d_v]: [&GpuBuffer; 3],
        wanted: [bool; 3],
    ) -> Result<()> {
        let [q, g] = [of_queries(gpu, q, shape)?, of_queries(gpu, g, shape)?];
        let [k, v] = [of_keys(gpu, k, shape)?, of_keys(gpu, v, shape)?];
        let width = self.width as f64;
        let fit = 1.0 / (16384 * self.width.next_power_of_two()) as f64;
        let launch = |[d_keys, d_values]: [bool; 2], [first, second]: [&GpuBuffer; 2], grid| {
            let constants = [("WIDTH", width), ("FIT", fit), ("D_K", flag(d_keys)), ("D_V", flag(d_values))];
            let (operands, scales) =
                ([&q.buffer, &k.buffer, &v.buffer, &g.buffer], [&q.scale, &k.scale, &v.scale, &g.scale]);
            let buffers = [&operands[..], &scales[..], &[lse, sums, first, second][..]].concat();
            in_runs(gpu, shape, grid, 4.0 * product(shape), |parameters, grid| {
                gpu.launch(self.backward, &constants, &buffers, parameters, grid)
            })
        };
        if wanted[0] {
            // The second output is not written then.
            launch([false, false], [d_q, d_k], self.query_tiles(shape))?;
        }
        if wanted[1] || wanted[2] {
            launch([wanted[1], wanted[2]], [d_k, d_v], self.key_tiles(shape))?;
        }
        Ok(())
    }
}

/// What has the shape of the queries, in f16.
fn of_queries(gpu: &'static Gpu, data: &GpuBuffer, shape: &Shape) -> Result<Halves> {
    converted(gpu, data, shape.batch * shape.queries * shape.heads, shape)
}

/// What has the shape of the keys, in f16.
fn of_keys(gpu: &'static Gpu, data: &GpuBuffer, shape: &Shape) -> Result<Halves> {
    converted(gpu, data, shape.batch * shape.keys * shape.kv_heads, shape)
}

fn converted(gpu: &'static Gpu, data: &GpuBuffer, rows: usize, shape: &Shape) -> Result<Halves> {
    let matrix = Left { data, first: 0, rows, cols: shape.head_dim, transposed: false, tensor: None };
    Ok(halves(gpu, matrix)?.expect("heads of a multiple of 4 elements"))
}
