use super::*;
use crate::attention::oracle;
use crate::kernels::Real;
use crate::kernels::gemm::tiles::Products;
use hankel_core::Random;
use proptest::prelude::*;

/// Normal values, rounded to `f32` so that every precision starts from the same numbers.
fn normal(len: usize, name: &str) -> Vec<f64> {
    let random = Random::new(1, name, 0);
    (0..len as u64).map(|i| f64::from(random.normal(i) as f32)).collect()
}

fn cast<T: Real>(x: &[f64]) -> Vec<T> {
    x.iter().map(|&x| T::of(x)).collect()
}

struct Inputs {
    shape: Shape,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    d_out: Vec<f64>,
}

const SCALE: f64 = 0.375;

impl Inputs {
    fn new(shape: Shape) -> Self {
        let n_q = shape.batch * shape.queries * shape.heads * shape.head_dim;
        let n_k = shape.batch * shape.keys * shape.kv_heads * shape.head_dim;
        Inputs { shape, q: normal(n_q, "q"), k: normal(n_k, "k"), v: normal(n_k, "v"), d_out: normal(n_q, "d_out") }
    }

    fn oracle(&self) -> oracle::Attention {
        let mut expected = oracle::attention(&self.shape, SCALE, &self.q, &self.k, &self.v, &self.d_out);
        expected.lse.iter_mut().for_each(|lse| *lse *= std::f64::consts::LOG2_E);
        expected
    }

    fn kernels<T: Real>(&self) -> oracle::Attention {
        self.kernels_in::<T>(Precision::F32)
    }

    fn kernels_in<T: Real>(&self, precision: Precision) -> oracle::Attention {
        self.kernels_by::<T>(
            |shape, scale, q, k, v, out, lse| forward(precision, shape, scale, q, k, v, out, lse),
            |shape, scale, inputs, lse, gradients| backward(precision, shape, scale, inputs, lse, gradients),
        )
    }

    /// In `bf16` by one of the ways that processors have.
    fn kernels_with<P: Products<f32>>(&self, products: P) -> oracle::Attention {
        self.kernels_by::<f32>(
            |shape, scale, q, k, v, out, lse| forward::forward(products, shape, scale, q, k, v, out, lse),
            |shape, scale, inputs, lse, gradients| backward::backward(products, shape, scale, inputs, lse, gradients),
        )
    }

    fn kernels_by<T: Real>(
        &self,
        forward: impl Fn(Shape, T, Heads<T>, Heads<T>, Heads<T>, &mut [T], &mut [T]),
        backward: impl Fn(Shape, T, [Heads<T>; 5], &[T], Gradients<T>),
    ) -> oracle::Attention {
        let shape = self.shape;
        let (q, k, v, d_out) = (cast::<T>(&self.q), cast::<T>(&self.k), cast::<T>(&self.v), cast::<T>(&self.d_out));
        let queries = |data| Heads::contiguous(data, shape.queries, shape.heads, shape.head_dim);
        let keys = |data| Heads::contiguous(data, shape.keys, shape.kv_heads, shape.head_dim);
        // Outputs start as NaN: what is not written would show.
        let mut out = vec![T::nan(); q.len()];
        let mut lse = vec![T::nan(); shape.batch * shape.heads * shape.queries];
        forward(shape, T::of(SCALE), queries(&q), keys(&k), keys(&v), &mut out, &mut lse);
        let [mut d_q, mut d_k, mut d_v] = [&q, &k, &v].map(|x| vec![T::nan(); x.len()]);
        let gradients = Gradients { q: Some(&mut d_q), k: Some(&mut d_k), v: Some(&mut d_v) };
        let (q, k, v) = (queries(&q), keys(&k), keys(&v));
        backward(shape, T::of(SCALE), [q, k, v, queries(&out), queries(&d_out)], &lse, gradients);
        let wide = |x: Vec<T>| x.iter().map(|x| x.f64()).collect();
        oracle::Attention { out: wide(out), lse: wide(lse), gradients: [d_q, d_k, d_v].map(wide) }
    }
}

fn close(name: &str, found: &[f64], expected: &[f64], tolerance: f64) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        prop_assert!((found - expected).abs() <= tolerance * scale, "{name}[{i}] = {found}, not {expected}");
    }
    Ok(())
}

fn agrees(shape: Shape) -> Result<(), TestCaseError> {
    let inputs = Inputs::new(shape);
    let expected = inputs.oracle();
    for (found, tolerance) in [(inputs.kernels::<f64>(), 1e-12), (inputs.kernels::<f32>(), 2e-5)] {
        close("out", &found.out, &expected.out, tolerance)?;
        close("lse", &found.lse, &expected.lse, tolerance)?;
        for (name, (found, expected)) in
            ["d_q", "d_k", "d_v"].into_iter().zip(found.gradients.iter().zip(&expected.gradients))
        {
            close(name, found, expected, tolerance)?;
        }
    }
    Ok(())
}

/// As `agrees`, of products in `bf16`: of the ways that processors have, which round the same operands, each is near the definition, and
/// all are nearer to each other, but for scores and probabilities that they round to either side.
fn agrees_rounded(shape: Shape) -> Result<(), TestCaseError> {
    let inputs = Inputs::new(shape);
    let expected = inputs.oracle();
    let by_rounding = inputs.kernels_with(Rounded);
    let mut by_instructions = vec![inputs.kernels_in::<f32>(Precision::Bf16)];
    #[cfg(target_arch = "x86_64")]
    by_instructions.extend(DotProducts::detect().map(|dot| inputs.kernels_with(Pairs(dot))));
    // The slope of a cap moves with the rounding of a score over the cap.
    let of_bf16 = 0.03 + shape.cap.map_or(0.0, |cap| 0.02 / cap);
    for found in &by_instructions {
        for (other, tolerance) in [(&expected, of_bf16), (&by_rounding, 1e-2)] {
            close("out", &found.out, &other.out, tolerance)?;
            close("lse", &found.lse, &other.lse, tolerance)?;
            for (i, name) in ["d_q", "d_k", "d_v"].into_iter().enumerate() {
                close(name, &found.gradients[i], &other.gradients[i], tolerance)?;
            }
        }
    }
    // In f64 nothing is rounded.
    prop_assert_eq!(inputs.kernels_in::<f64>(Precision::Bf16).out, inputs.kernels::<f64>().out);
    Ok(())
}

prop_compose! {
    fn shapes()(
        batch in 0_usize..3, kv_heads in 1_usize..3, group in 1_usize..4, head_dim in 1_usize..40,
        queries in 1_usize..150, before in 0_usize..150, window in prop::option::of(1_usize..100),
        offset_from_end in 0_usize..5, cap in prop::option::of(0.2_f64..5.0),
    ) -> Shape {
        let keys = queries + before;
        let offset = before.saturating_sub(offset_from_end);
        Shape { batch, heads: kv_heads * group, kv_heads, head_dim, queries, keys, offset, window, cap }
    }
}

/// Where a query sees only its own key, scores have no gradient, and rounding makes none.
#[test]
fn scores_of_one_key_have_no_gradient_in_bf16() {
    let inputs = Inputs::new(Shape { kv_heads: 1, window: Some(1), ..Shape::causal(1, 60, 3, 25) });
    for [d_q, d_k, _] in [inputs.kernels_in::<f32>(Precision::Bf16), inputs.kernels_with(Rounded)].map(|x| x.gradients)
    {
        close("d_q", &d_q, &vec![0.0; d_q.len()], 1e-5).unwrap();
        close("d_k", &d_k, &vec![0.0; d_k.len()], 1e-5).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn agrees_with_the_definition(shape in shapes()) {
        agrees(shape)?;
    }

    #[test]
    fn agrees_with_the_definition_but_for_rounding(shape in shapes()) {
        agrees_rounded(shape)?;
    }
}

#[test]
fn usual_sizes() {
    for (tokens, head_dim) in [(1, 32), (64, 32), (257, 32), (600, 32), (130, 64), (65, 128), (70, 80)] {
        agrees(Shape::causal(1, tokens, 2, head_dim)).unwrap();
        let windowed = Shape { kv_heads: 1, window: Some(33), ..Shape::causal(1, tokens, 2, head_dim) };
        agrees(windowed).unwrap();
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let mut inputs = Inputs::new(Shape::causal(1, 80, 1, 8));
    inputs.q.iter_mut().for_each(|q| *q *= 300.0);
    let expected = inputs.oracle();
    let found = inputs.kernels::<f32>();
    assert!(found.out.iter().chain(found.gradients.iter().flatten()).all(|x| x.is_finite()));
    close("out", &found.out, &expected.out, 1e-3).unwrap();
    // Every row sees one key, of probability 1, whatever the size of the scores.
    inputs.q.iter_mut().for_each(|q| *q *= 1e3);
    let (found, expected) = (inputs.kernels::<f32>(), inputs.oracle());
    close("d_v", &found.gradients[2], &expected.gradients[2], 1e-4).unwrap();
}

#[test]
fn the_gradients_are_those_of_the_output() {
    // <d_out, out> as a function of each input, by central differences.
    let shape = Shape { window: Some(4), kv_heads: 1, queries: 7, offset: 2, ..Shape::causal(2, 9, 2, 3) };
    let mut inputs = Inputs::new(shape);
    let gradients = inputs.kernels::<f64>().gradients;
    let loss =
        |inputs: &Inputs| -> f64 { inputs.kernels::<f64>().out.iter().zip(&inputs.d_out).map(|(a, b)| a * b).sum() };
    let step = 1e-6;
    let fields: [fn(&mut Inputs) -> &mut Vec<f64>; 3] = [|x| &mut x.q, |x| &mut x.k, |x| &mut x.v];
    for (field, gradient) in fields.into_iter().zip(&gradients) {
        for (i, &gradient) in gradient.iter().enumerate() {
            let x = field(&mut inputs)[i];
            let [above, below] = [x + step, x - step].map(|x| {
                field(&mut inputs)[i] = x;
                loss(&inputs)
            });
            field(&mut inputs)[i] = x;
            let difference = (above - below) / (2.0 * step);
            assert!((difference - gradient).abs() < 1e-7 * (1.0 + gradient.abs()), "{difference} for {gradient}");
        }
    }
}

#[test]
fn strided_heads_equal_contiguous_ones() {
    let shape = Shape::causal(2, 50, 2, 8);
    let inputs = Inputs::new(shape);
    let fused: Vec<f64> = (0..100)
        .flat_map(|t| [&inputs.q, &inputs.k, &inputs.v].into_iter().flat_map(move |x| x[t * 16..(t + 1) * 16].to_vec()))
        .collect();
    let part = |i: usize| Heads { data: &fused[i * 16..], batch_stride: 50 * 48, token_stride: 48 };
    let (mut out, mut lse) = (vec![0.0; inputs.q.len()], vec![0.0; 200]);
    forward(Precision::F32, shape, SCALE, part(0), part(1), part(2), &mut out, &mut lse);
    let expected = inputs.kernels::<f64>();
    assert_eq!((out, lse), (expected.out, expected.lse));
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    // The keys in three pieces, and heads that are tasks enough for some of these threads only.
    let inputs = Inputs::new(Shape::causal(3, 400, 4, 32));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        [Precision::F32, Precision::Bf16].map(|precision| {
            let found = pool.install(|| inputs.kernels_in::<f32>(precision));
            (found.out, found.lse, found.gradients)
        })
    };
    assert!(run(1) == run(2) && run(1) == run(7));
}

#[test]
fn unwanted_gradients_are_left_out() {
    let shape = Shape::causal(1, 70, 1, 16);
    let inputs = Inputs::new(shape);
    let all = inputs.kernels::<f64>();
    let heads = |data| Heads::contiguous(data, 70, 1, 16);
    let mut d_v = vec![0.0; inputs.v.len()];
    let (q, k, v) = (heads(&inputs.q), heads(&inputs.k), heads(&inputs.v));
    let gradients = Gradients { q: None, k: None, v: Some(&mut d_v[..]) };
    backward(Precision::F32, shape, SCALE, [q, k, v, heads(&all.out), heads(&inputs.d_out)], &all.lse, gradients);
    assert_eq!(d_v, all.gradients[2]);
}

/// Enough groups make a task each, few a task for each of their heads.
#[test]
fn groups_of_heads_in_tasks_of_either_kind() {
    for batch in [1, 20] {
        let shape = Shape { heads: 6, kv_heads: 2, ..Shape::causal(batch, 20, 6, 8) };
        let inputs = Inputs::new(shape);
        let (found, expected) = (inputs.kernels::<f64>(), inputs.oracle());
        for (name, i) in [("d_q", 0), ("d_k", 1), ("d_v", 2)] {
            close(name, &found.gradients[i], &expected.gradients[i], 1e-12).unwrap();
        }
    }
}
