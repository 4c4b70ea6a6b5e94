//! Attention on a GPU against the CPU, at sizes that fill tiles and parts of them.

mod cooperative;

use super::*;
use crate::attention::{Heads, ScoreSettings, attention};
use crate::gpu::compiles;
use hankel_core::gpu::for_tests;
use hankel_core::{Device, Random};
use proptest::prelude::*;

#[test]
fn kernels_compile() {
    for width in [64.0, 128.0, 256.0] {
        for kernel in &FORWARD {
            compiles(kernel, &[("WIDTH", width)]);
        }
        for (kernel, [d_k, d_v]) in BACKWARD.iter().flat_map(|kernel| [0.0, 1.0].map(|d| (kernel, [d, d]))) {
            compiles(kernel, &[("WIDTH", width), ("D_K", d_k), ("D_V", d_v)]);
        }
    }
}

/// Sizes and settings of a call.
#[derive(Debug, Clone, Copy)]
struct Call {
    batch: usize,
    tokens: [usize; 2],
    heads: Heads,
    head_dim: usize,
    settings: ScoreSettings,
}

/// Output and gradients of random tensors.
fn run(device: Device, call: Call) -> [Tensor; 4] {
    let Call { batch, tokens: [queries, keys], heads, head_dim, settings } = call;
    let tensor = |name: &str, tokens: usize, heads: usize| {
        let shape = [batch, tokens, heads * head_dim];
        let values = Random::new(7, name, 0).normal_vec::<f32>(shape.iter().product(), 1.0);
        Tensor::from_vec(values, shape).unwrap().to_device(device).unwrap()
    };
    let q = tensor("q", queries, heads.query).parameter().unwrap();
    let [k, v] = ["k", "v"].map(|name| tensor(name, keys, heads.key_value).parameter().unwrap());
    let out = attention(&q, &k, &v, heads, settings).unwrap();
    let mut gradients = out.backward_with(tensor("g", queries, heads.query)).unwrap();
    let [d_q, d_k, d_v] = [&q, &k, &v].map(|x| gradients.take(x).unwrap());
    [out.detach(), d_q, d_k, d_v]
}

/// The largest difference from the CPU, relative to the largest value, or to 1, the size of the inputs: where a query sees one key its
/// gradient is 0, and what is left is rounding.
fn difference(expected: &Tensor, found: &Tensor) -> f64 {
    let (expected, found) = (expected.to_f64_vec(), found.to_f64_vec());
    let scale = expected.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    let apart = expected.iter().zip(&found).map(|(a, b)| if b.is_finite() { (a - b).abs() } else { f64::INFINITY });
    apart.fold(0.0, f64::max) / scale
}

fn call() -> impl Strategy<Value = Call> {
    let head_dim = prop_oneof![Just(32_usize), Just(64), Just(80), Just(128), Just(256), 1_usize..200];
    let settings = (prop::option::of(1_usize..200), prop::option::of(0.5_f64..8.0));
    (1_usize..3, 1_usize..150, 0_usize..80, 1_usize..5, 1_usize..3, head_dim, settings).prop_map(
        |(batch, queries, before, shared, key_value, head_dim, (window, cap))| Call {
            batch,
            tokens: [queries, queries + before],
            heads: Heads { query: shared * key_value, key_value },
            head_dim,
            settings: ScoreSettings { window, cap },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn tiles_give_what_the_cpu_gives(call in call()) {
        let Some(gpu) = for_tests() else { return Ok(()) };
        for (name, (expected, found)) in
            ["out", "d_q", "d_k", "d_v"].iter().zip(run(Device::Cpu, call).iter().zip(&run(Device::Gpu(gpu), call)))
        {
            let error = difference(expected, found);
            prop_assert!(error < 1e-5, "{name}: {error:e}");
        }
    }
}

#[test]
fn every_run_gives_the_same_bits() {
    let Some(gpu) = for_tests() else { return };
    let call = Call {
        batch: 1,
        tokens: [130, 140],
        heads: Heads { query: 4, key_value: 2 },
        head_dim: 48,
        settings: ScoreSettings::default(),
    };
    let [first, second] = [(); 2].map(|()| run(Device::Gpu(gpu), call).map(|x| x.to_f64_vec()));
    assert!(first == second);
}
