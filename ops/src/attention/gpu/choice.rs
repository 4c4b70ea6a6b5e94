//! Whether attention goes by cooperative matrices: where products go in f16, a trial gives the right results, and a measurement
//! finds that it saves time.

use super::cooperative::Plan;
use super::{Shape, backward_by, forward_by};
use crate::gpu::{Answers, tried, zeros};
use crate::linear::gpu::{LONG_ENOUGH, WORTH, f16_is_right, least_seconds};
use hankel_core::gpu::Gpu;
use hankel_core::{Device, Error, Precision, Result, Tensor, precision};

/// By width of the heads, as each width is a kernel of its own.
static RIGHT: Answers<usize> = Answers::new();
static FASTER: Answers<usize> = Answers::new();

/// Rows of queries from which the matrix units are worth the conversion of the operands; steps of generation have fewer.
const ROWS: usize = 64;
/// The least and the most tokens that are measured.
const TOKENS: [usize; 2] = [128, 2048];
/// The largest difference from the results in f32, relative to the largest of them, that rounding explains: an operand in f16 is
/// off by 2^-11 at most, and each result depends on three of them.
const CLOSE: f64 = 1e-2;

/// The kernels for a call in the thread's precision, `None` for those in f32.
///
/// # Errors
/// When the trial or the measurement cannot be run.
pub(super) fn plan(gpu: &'static Gpu, shape: &Shape) -> Result<Option<Plan>> {
    let (head_dim, rows) = (shape.head_dim, shape.queries * (shape.heads / shape.kv_heads));
    if precision() != Precision::F16 || rows < ROWS {
        return Ok(None);
    }
    let Some(plan) = Plan::of(gpu.facts(), head_dim) else { return Ok(None) };
    let suits = || Ok(f16_is_right(gpu)? && is_right(gpu, plan, head_dim)? && is_faster(gpu, plan, head_dim)?);
    match suits() {
        // A trial needs memory that the f32 kernels may do without. `false` is recorded, so that one run uses one kernel throughout.
        Err(Error::GpuMemory { .. }) => {
            let refuse = || Ok(false);
            RIGHT.get(gpu, head_dim, refuse).and(FASTER.get(gpu, head_dim, refuse))?;
            Ok(None)
        }
        suits => Ok(suits?.then_some(plan)),
    }
}

/// Output and gradients, of `q`, `k`, `v` and the gradient of the output.
fn run(plan: Option<Plan>, inputs: &[Tensor; 4], gpu: &'static Gpu, shape: &Shape) -> Result<[Tensor; 4]> {
    let [q, k, v, g] = inputs;
    let (out, lse) = forward_by(plan, gpu, [q, k, v], shape)?;
    let [d_q, d_k, d_v] = backward_by(plan, gpu, [q, k, v], shape, [&out, &lse, g], [true; 3])?;
    let wanted = "all three are";
    Ok([out, d_q.expect(wanted), d_k.expect(wanted), d_v.expect(wanted)])
}

/// Whether the kernels of a plan give what those in f32 give, on tiles and parts of them. Where the driver does not compile them they do not.
pub(super) fn is_right(gpu: &'static Gpu, plan: Plan, head_dim: usize) -> Result<bool> {
    RIGHT.get(gpu, head_dim, || {
        tried(gpu, agrees(gpu, plan, head_dim, false).and_then(|right| Ok(right && agrees(gpu, plan, head_dim, true)?)))
    })
}

/// With `growing`, the scores of a row grow by 4 and more from each tile of keys to the next, so that what was summed is scaled again.
fn agrees(gpu: &'static Gpu, plan: Plan, head_dim: usize, growing: bool) -> Result<bool> {
    let shape = Shape { heads: 2, kv_heads: 1, ..Shape::causal(1, 45, 2, head_dim) };
    let input = |heads: usize, step: usize| {
        let elements = 45 * heads * head_dim;
        let values: Vec<f32> = (0..elements).map(|i| (i * step % 101) as f32 / 50.0 - 1.0).collect();
        Tensor::from_vec(values, [1, 45, heads * head_dim])?.to_device(Device::Gpu(gpu))
    };
    let (q, k) = if growing {
        // By a quarter and more a token; powers of two, so that scores are exact.
        let step = (0.5 / (head_dim as f32).sqrt()).log2().ceil().exp2();
        let keys = (0..45 * head_dim).map(|i| step * (i / head_dim) as f32).collect();
        let like = |values: Vec<f32>, heads: usize| {
            Tensor::from_vec(values, [1, 45, heads * head_dim])?.to_device(Device::Gpu(gpu))
        };
        (like(vec![0.5; 45 * 2 * head_dim], 2)?, like(keys, 1)?)
    } else {
        (input(2, 37)?, input(1, 29)?)
    };
    let inputs = [q, k, input(1, 61)?, input(2, 17)?];
    let (found, expected) = (run(Some(plan), &inputs, gpu, &shape)?, run(None, &inputs, gpu, &shape)?);
    Ok(found.iter().zip(&expected).all(|(found, expected)| {
        let (found, expected) = (found.to_f64_vec(), expected.to_f64_vec());
        let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        // Not so for NaN.
        found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= CLOSE * largest)
    }))
}

/// Whether the kernels of a plan take clearly less time than those in f32 for output and gradients, conversions included.
fn is_faster(gpu: &'static Gpu, plan: Plan, head_dim: usize) -> Result<bool> {
    FASTER.get(gpu, head_dim, || {
        let inputs = |tokens: usize| {
            let input = || zeros(gpu, &[1, tokens, 8 * head_dim]);
            Ok::<_, Error>((Shape::causal(1, tokens, 8, head_dim), [input()?, input()?, input()?, input()?]))
        };
        let [mut tokens, last] = TOKENS;
        let mut case = inputs(tokens)?;
        let by = |plan: Option<Plan>, (shape, inputs): &(Shape, [Tensor; 4])| run(plan, inputs, gpu, shape).map(|_| ());
        while least_seconds(gpu, [&|| by(None, &case)])?[0] < LONG_ENOUGH && tokens < last {
            tokens *= 2;
            case = inputs(tokens)?;
        }
        let [single, half] = least_seconds(gpu, [&|| by(None, &case), &|| by(Some(plan), &case)])?;
        Ok(half < WORTH * single)
    })
}
