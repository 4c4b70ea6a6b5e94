//! Attention by cooperative matrices against the CPU's in f32.

use super::super::cooperative::{KERNELS, Plan};
use super::super::{Shape, backward_by, choice, forward_by};
use super::Call;
use crate::attention::{Heads, ScoreSettings, attention, sizes};
use crate::gpu::compiles;
use hankel_core::gpu::{Gpu, for_tests};
use hankel_core::{Device, Precision, Random, Tensor, with_precision};
use proptest::prelude::*;

/// An operand in f16 is off by 2^-11 of itself: scores of about 1, of up to 5 for a few, by so much, and weights by that share of
/// themselves. Values and weights are rounded too.
const TOLERANCE: f64 = 4e-3;

/// A card and its kernels for a width; `None` where it has none, or one whose driver computes them wrong, as the trial before their use
/// finds. The software driver of tests must be right.
fn on_card(head_dim: usize) -> Option<(&'static Gpu, Plan)> {
    let gpu = for_tests()?;
    let facts = gpu.facts();
    let plan = Plan::of(facts, head_dim);
    if plan.is_none() {
        eprintln!("SKIPPED: {} has no cooperative matrices for heads of {head_dim}", facts.name);
    }
    plan.filter(|&plan| {
        let is_right = facts.kind == "software" || choice::is_right(gpu, plan, head_dim).unwrap();
        if !is_right {
            eprintln!("SKIPPED: {} ({}) is refused attention by cooperative matrices", facts.name, facts.driver);
        }
        is_right
    })
    .map(|plan| (gpu, plan))
}

/// `q`, `k`, `v` and the gradient of the output, each element by `f` of the operand, its place and a normal number.
fn inputs(call: Call, f: &dyn Fn(usize, usize, f32) -> f32) -> [Tensor; 4] {
    let Call { batch, tokens: [queries, keys], heads, head_dim, .. } = call;
    let of = [(queries, heads.query), (keys, heads.key_value), (keys, heads.key_value), (queries, heads.query)];
    [0, 1, 2, 3].map(|operand| {
        let (tokens, heads) = of[operand];
        let shape = [batch, tokens, heads * head_dim];
        let values = Random::new(11, "attention", operand as u64).normal_vec::<f32>(shape.iter().product(), 1.0);
        let values = values.into_iter().enumerate().map(|(i, x)| f(operand, i, x)).collect();
        Tensor::from_vec(values, shape).unwrap()
    })
}

/// Output and gradients of the CPU.
fn expected(call: Call, [q, k, v, g]: &[Tensor; 4]) -> [Tensor; 4] {
    let [q, k, v] = [q, k, v].map(|x| x.parameter().unwrap());
    let out = attention(&q, &k, &v, call.heads, call.settings).unwrap();
    let mut gradients = out.backward_with(g.clone()).unwrap();
    let [d_q, d_k, d_v] = [&q, &k, &v].map(|x| gradients.take(x).unwrap());
    [out.detach(), d_q, d_k, d_v]
}

/// Output and gradients by cooperative matrices, or in f32 without a plan.
fn found(gpu: &'static Gpu, plan: Option<Plan>, call: Call, inputs: &[Tensor; 4]) -> [Tensor; 4] {
    let [q, k, v, g] = [0, 1, 2, 3].map(|i| inputs[i].to_device(Device::Gpu(gpu)).unwrap());
    let shape = sizes(&q, &k, &v, call.heads, call.settings).unwrap();
    let (out, lse) = forward_by(plan, gpu, [&q, &k, &v], &shape).unwrap();
    let gradients = backward_by(plan, gpu, [&q, &k, &v], &shape, [&out, &lse, &g], [true; 3]).unwrap();
    let [d_q, d_k, d_v] = gradients.map(|gradient| gradient.unwrap());
    [out, d_q, d_k, d_v].map(|x| x.to_device(Device::Cpu).unwrap())
}

/// The largest difference relative to the largest value, or to `least`.
fn difference(expected: &Tensor, found: &Tensor, least: f64) -> f64 {
    let (expected, found) = (expected.to_f64_vec(), found.to_f64_vec());
    let scale = expected.iter().fold(least, |m: f64, x| m.max(x.abs()));
    let apart = expected.iter().zip(&found).map(|(a, b)| if b.is_finite() { (a - b).abs() } else { f64::INFINITY });
    apart.fold(0.0, f64::max) / scale
}

/// Checks output and gradients; `units` are the sizes that these have at most where they are not 0 but for rounding.
fn check(call: Call, f: &dyn Fn(usize, usize, f32) -> f32, units: [f64; 4], tolerance: f64) {
    let Some((gpu, plan)) = on_card(call.head_dim) else { return };
    let inputs = inputs(call, f);
    let (expected, found) = (expected(call, &inputs), found(gpu, Some(plan), call, &inputs));
    for (i, name) in ["out", "d_q", "d_k", "d_v"].into_iter().enumerate() {
        let error = difference(&expected[i], &found[i], units[i]);
        assert!(error < tolerance, "{name} of {call:?}: {error:e}");
    }
}

fn call(tokens: [usize; 2], [query, key_value]: [usize; 2], head_dim: usize) -> Call {
    Call { batch: 1, tokens, heads: Heads { query, key_value }, head_dim, settings: ScoreSettings::default() }
}

#[test]
fn kernels_compile() {
    for [forward, backward] in KERNELS {
        for (width, fit) in [(32.0, 2.0_f64.powi(-19)), (128.0, 2.0_f64.powi(-21))] {
            compiles(forward, &[("WIDTH", width)]);
            for [d_k, d_v] in [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]] {
                compiles(backward, &[("WIDTH", width), ("FIT", fit), ("D_K", d_k), ("D_V", d_v)]);
            }
        }
    }
}

fn calls() -> impl Strategy<Value = Call> {
    let head_dim = prop_oneof![Just(32_usize), Just(64), Just(80), Just(128), (1_usize..8).prop_map(|n| 4 * n)];
    let settings = (prop::option::of(1_usize..60), prop::option::of(0.5_f64..8.0));
    (1_usize..3, 1_usize..50, 0_usize..30, 1_usize..4, 1_usize..3, head_dim, settings).prop_map(
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
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn tiles_give_what_the_cpu_gives(call in calls()) {
        check(call, &|_, _, x| x, [1.0; 4], TOLERANCE);
    }
}

/// The largest score of a row grows along its keys, so that what was summed is scaled again and again.
#[test]
fn growing_scores() {
    let call = call([70, 90], [4, 2], 64);
    let growing = |operand: usize, i: usize, x: f32| match operand {
        0 => 0.5 + 0.01 * x,
        1 => 0.1 * (i / 128) as f32 + 0.01 * x,
        _ => x,
    };
    // Scores reach 36, and are off by 2^-11 of that.
    check(call, &growing, [1.0; 4], 36.0 * TOLERANCE);
}

/// Operands are brought into the range of f16, however small or large they are.
#[test]
fn tiny_and_huge_operands_keep_their_digits() {
    let call = call([40, 50], [2, 1], 64);
    for (of_v, of_g) in [(1.0, 1e-6), (1.0, 1e-12), (1e-6, 1e-6), (1e8, 1e6), (1e-20, 1e20)] {
        let sized = |operand: usize, _: usize, x: f32| match operand {
            2 => of_v as f32 * x,
            3 => of_g as f32 * x,
            _ => x,
        };
        let slopes = of_v * of_g;
        check(call, &sized, [of_v, slopes, slopes, of_g], TOLERANCE);
    }
    // Scores are as before.
    for size in [1e-10_f32, 1e10] {
        let sized = |operand: usize, _: usize, x: f32| match operand {
            0 => size * x,
            1 => x / size,
            _ => x,
        };
        let unit = f64::from(size);
        check(call, &sized, [1.0, 1.0 / unit, unit, 1.0], TOLERANCE);
    }
    check(call, &|_, _, _| 0.0, [1.0; 4], TOLERANCE);
}

/// What is not finite is seen by the rows behind it, whose results are not finite either; rows of tiles before have theirs.
#[test]
fn what_is_not_finite_stays_so() {
    let call = call([64, 64], [2, 1], 32);
    let Some((gpu, plan)) = on_card(call.head_dim) else { return };
    for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for operand in 0..4 {
            // In token 40.
            let width = if operand == 0 || operand == 3 { 64 } else { 32 };
            let f = |of: usize, i: usize, x: f32| if of == operand && i == 40 * width + 3 { broken } else { x };
            let [out, d_q, d_k, d_v] = found(gpu, Some(plan), call, &inputs(call, &f)).map(|x| x.to_f64_vec());
            let finite = |x: &[f64]| x.iter().all(|x| x.is_finite());
            match operand {
                0 => assert!(!finite(&out) && !finite(&d_q) && !finite(&d_k) && !finite(&d_v)),
                1 => assert!(out[40 * 64..].chunks(64).all(|row| !finite(row)) && !finite(&d_q) && !finite(&d_v)),
                2 => assert!(out[40 * 64..].chunks(64).all(|row| !finite(row)) && !finite(&d_q) && !finite(&d_k)),
                _ => assert!(finite(&out) && !finite(&d_q) && !finite(&d_k) && !finite(&d_v)),
            }
            assert!(operand == 3 || finite(&out[..16 * 64]), "{operand}");
        }
    }
}

#[test]
fn every_run_gives_the_same_bits() {
    let call = call([70, 80], [4, 2], 48);
    let Some((gpu, plan)) = on_card(call.head_dim) else { return };
    let inputs = inputs(call, &|_, _, x| x);
    let [first, second] = [(); 2].map(|()| found(gpu, Some(plan), call, &inputs).map(|x| x.to_f64_vec()));
    assert!(first == second);
}

/// In f16 a call goes as the measurement on the card has it, and otherwise in f32.
#[test]
fn the_precision_of_a_call_decides() {
    let call = call([40, 40], [2, 1], 32);
    let Some((gpu, plan)) = on_card(call.head_dim) else { return };
    assert!(choice::is_right(gpu, plan, call.head_dim).unwrap());
    let inputs = inputs(call, &|_, _, x| x);
    let there = inputs.each_ref().map(|x| x.to_device(Device::Gpu(gpu)).unwrap());
    let run = |precision| with_precision(precision, || expected(call, &there)).map(|x| x.to_f64_vec());
    let [by_matrices, single] = [Some(plan), None].map(|plan| found(gpu, plan, call, &inputs).map(|x| x.to_f64_vec()));
    assert!(by_matrices.iter().zip(&single).all(|(a, b)| a != b));
    assert!(run(Precision::F32) == single);
    let plan = |precision, shape: Shape| with_precision(precision, || choice::plan(gpu, &shape)).unwrap();
    let shape = sizes(&there[0], &there[1], &there[2], call.heads, call.settings).unwrap();
    let chosen = plan(Precision::F16, shape);
    assert!(run(Precision::F16) == if chosen.is_some() { by_matrices } else { single });
    assert!(plan(Precision::F32, shape).is_none());
    for refused in [Shape { head_dim: 30, ..shape }, Shape { head_dim: 132, ..shape }, Shape { queries: 31, ..shape }] {
        assert!(plan(Precision::F16, refused).is_none(), "{refused:?}");
    }
}

/// Long sequences take several launches, with the same bits.
#[test]
fn parts_are_the_whole() {
    let Some((gpu, plan)) = on_card(32) else { return };
    let heads = Heads { query: 2, key_value: 1 };
    let call = Call { batch: 1, tokens: [70, 90], heads, head_dim: 32, settings: ScoreSettings::default() };
    let inputs = inputs(call, &|_, _, x| x);
    let all = || found(gpu, Some(plan), call, &inputs).map(|x| x.to_f64_vec());
    let whole = all();
    let usual = gpu.set_longest_launch(1e4);
    let parts = all();
    gpu.set_longest_launch(usual);
    assert!(whole == parts);
}
