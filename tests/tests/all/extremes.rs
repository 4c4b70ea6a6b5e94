//! Operators at the ends of what they accept: `NaN`, infinities, nothing at all, windows without an end.

use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Precision, Random, Tensor, with_precision};
use hankel_ops::{
    Gate, Head, Heads, KeyValues, Poles, ScanPath, Targets, add, add_linear, attention, clamp, concat_time,
    cross_entropy, inverse_row_norms, linear, scan,
};

fn normal(name: &str, shape: &[usize]) -> Tensor {
    let values = Random::new(7, name, 0).normal_vec::<f32>(shape.iter().product(), 1.0);
    Tensor::from_vec(values, shape.to_vec()).unwrap().parameter().unwrap()
}

fn devices() -> Vec<Device> {
    std::iter::once(Device::Cpu).chain(for_tests().map(Device::Gpu)).collect()
}

#[test]
fn what_is_no_number_is_not_hidden() {
    for device in devices() {
        let x = Tensor::from_vec(vec![f32::NAN, -9.0, 0.25, 9.0], [4]).unwrap().to_device(device).unwrap();
        let y = clamp(&x, -1.0, 1.0).unwrap().to_f64_vec();
        assert!(y[0].is_nan(), "{device}");
        assert_eq!(y[1..], [-1.0, 0.25, 1.0], "{device}");
    }
    let poles = Poles::Diagonal(Tensor::from_vec(vec![f32::NAN, 0.5], [2]).unwrap());
    for path in [ScanPath::Sequential, ScanPath::Chunked, ScanPath::Fft] {
        let states = scan(&normal("u", &[1, 70, 2]), &poles, None, path).unwrap().to_f64_vec();
        assert!(states[2 * 69].is_nan() && states[2 * 69 + 1].is_finite(), "{path:?}");
    }
}

#[test]
fn a_class_of_no_probability() {
    for device in devices() {
        let there = |tensor: Tensor| tensor.to_device(device).unwrap();
        let [hidden, weight] = [("hidden", 3), ("weight", 5)]
            .map(|(name, rows)| there(normal(name, &[rows, 4]).detach()).parameter().unwrap());
        let bias = there(Tensor::from_vec(vec![0.0, f32::NEG_INFINITY, 0.0, 0.0, 0.0], [5]).unwrap());
        let tokens = Tensor::from_vec(vec![0_u32, 2, 4], [3]).unwrap();
        let weights = Tensor::full([3], 1.0_f32);
        let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer: 3.0 };
        let loss = cross_entropy(&hidden, Head { bias: Some(&bias), ..Head::new(&weight) }, targets).unwrap();
        assert!(loss.to_f64_vec()[0].is_finite(), "{device}");
        let gradients = loss.backward().unwrap();
        for leaf in [&hidden, &weight] {
            assert!(gradients.get(leaf).unwrap().to_f64_vec().iter().all(|g| g.is_finite()), "{device}");
        }
    }
}

#[test]
fn a_window_that_nothing_falls_out_of_is_none() {
    let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[1, 70, 8]));
    let heads = Heads { query: 2, key_value: 2 };
    let results = [None, Some(70), Some(usize::MAX)].map(|window| {
        let y = attention(&q, &k, &v, heads, window).unwrap();
        let gradients = y.backward_with(Tensor::full(y.shape(), 1.0_f32)).unwrap();
        let of = |leaf: &Tensor| gradients.get(leaf).unwrap().to_f64_vec();
        [y.to_f64_vec(), of(&q), of(&k), of(&v)]
    });
    assert!(results[1] == results[0] && results[2] == results[0]);
}

#[test]
fn nobody_asks_many_keys() {
    let [q, k, v] = [("q", 0), ("k", 400), ("v", 400)].map(|(name, steps)| normal(name, &[1, steps, 64]));
    let y = attention(&q, &k, &v, Heads { query: 1, key_value: 1 }, None).unwrap();
    let gradients = y.backward_with(Tensor::full(y.shape(), 1.0_f32)).unwrap();
    assert!(gradients.get(&q).unwrap().to_f64_vec().is_empty());
    for leaf in [&k, &v] {
        assert_eq!(gradients.get(leaf).unwrap().to_f64_vec(), vec![0.0; 400 * 64]);
    }
}

/// One head as wide as the model, wider than the pieces in which products are packed.
#[test]
fn a_head_of_any_width_in_16_bits() {
    let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[1, 40, 1100]));
    let of = |precision| {
        with_precision(precision, || {
            let y = attention(&q, &k, &v, Heads { query: 1, key_value: 1 }, None).unwrap();
            let gradients = y.backward_with(Tensor::full(y.shape(), 1.0_f32)).unwrap();
            [y.to_f64_vec(), gradients.get(&q).unwrap().to_f64_vec(), gradients.get(&v).unwrap().to_f64_vec()]
        })
    };
    for (bf16, f32) in of(Precision::Bf16).iter().zip(&of(Precision::F32)) {
        let size = f32.iter().map(|x| x * x).sum::<f64>().sqrt();
        let off = bf16.iter().zip(f32).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        assert!(off < 0.03 * size, "{off} of {size}");
    }
}

#[test]
fn a_matrix_of_poles_is_square() {
    let poles = Poles::Dense(Tensor::from_vec(vec![0.5_f32; 4], [1, 4]).unwrap());
    let error = scan(&normal("u", &[1, 3, 4]), &poles, None, ScanPath::Sequential).unwrap_err();
    assert!(error.to_string().contains("matrix of the poles"), "{error}");
}

/// One tensor as both what is added to and what is multiplied, with a gradient from elsewhere.
#[test]
fn a_sum_with_itself() {
    let (x, w) = (normal("x", &[2, 4]), normal("w", &[4, 4]));
    let seed = Tensor::full([2, 4], 1.0_f32);
    let of = |other: &Tensor| {
        let y = add_linear(&x, other, &w, None, Gate::Fixed(1.0)).unwrap();
        let gradients = add(&y, &x).unwrap().backward_with(seed.clone()).unwrap();
        (gradients.get(&x).unwrap().to_f64_vec(), gradients.get(other).unwrap().to_f64_vec())
    };
    let same = of(&x).0;
    let (alone, other) = of(&x.detach().parameter().unwrap());
    for ((same, alone), other) in same.iter().zip(alone).zip(other) {
        assert!((same - alone - other).abs() < 1e-5, "{same} {alone} {other}");
    }
}

/// Fewer queries than keys, then one token more.
#[test]
fn a_stream_may_be_asked_less_than_it_is_given() {
    let heads = Heads { query: 1, key_value: 1 };
    let [q, k, v] = [("q", 1), ("k", 5), ("v", 5)].map(|(name, steps)| normal(name, &[1, steps, 8]).detach());
    let [q1, k1, v1] = ["q1", "k1", "v1"].map(|name| normal(name, &[1, 1, 8]).detach());
    let mut stream = KeyValues::default();
    stream.attention(&q, &k, &v, heads, None).unwrap();
    let found = stream.attention(&q1, &k1, &v1, heads, None).unwrap().to_f64_vec();
    let whole = attention(&q1, &concat_time(&[&k, &k1]).unwrap(), &concat_time(&[&v, &v1]).unwrap(), heads, None);
    for (found, expected) in found.iter().zip(whole.unwrap().to_f64_vec()) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
}

#[test]
fn products_of_nothing() {
    let (x, w) = (normal("x", &[0, 80]), normal("w", &[100, 80]));
    let y = linear(&x, &w, None).unwrap();
    let gradients = y.backward_with(Tensor::full([0, 100], 1.0_f32)).unwrap();
    assert_eq!(gradients.get(&w).unwrap().to_f64_vec(), vec![0.0; 8000]);
    let [a, b] = [[0, 6], [5, 0]].map(|shape| normal("none", &shape).detach());
    let (squares, product) = (Tensor::full([5], 4.0_f32), Tensor::full([0, 5], 0.0_f32));
    let norms = inverse_row_norms(&squares, &product, &a, &b, 1.0).unwrap();
    assert_eq!(norms.to_f64_vec(), [0.5; 5]);
}

#[test]
fn shapes_that_cannot_be_counted() {
    for shape in [vec![1_usize << 62, 4], vec![1 << 32, 1 << 32], vec![usize::MAX, 2]] {
        assert!(Tensor::from_vec(Vec::<f32>::new(), shape).is_err());
    }
    assert_eq!(Tensor::from_vec(Vec::<f32>::new(), [1 << 62, 4, 0]).unwrap().elements(), 0);
}

#[test]
fn doubles_are_rounded_once() {
    let bit = |exponent: i32| 2.0_f64.powi(exponent);
    // Between two neighbours, a little beyond the middle, by less than single precision sees.
    let cases = [
        1.0 + bit(-11) + bit(-40),
        1.0 + bit(-11) - bit(-40),
        1.0 + bit(-11),
        -1.0 - bit(-11) - bit(-40),
        1e-60,
        1e300,
    ];
    let x = Tensor::from_vec(cases.to_vec(), [6]).unwrap();
    let found = x.to_dtype(DType::F16).unwrap().to_f64_vec();
    assert_eq!(found, [1.0 + bit(-10), 1.0, 1.0, -1.0 - bit(-10), 0.0, f64::INFINITY]);
    let x = Tensor::from_vec(vec![1.0 + bit(-8) + bit(-40), 1.0 + bit(-8) - bit(-40)], [2]).unwrap();
    assert_eq!(x.to_dtype(DType::BF16).unwrap().to_f64_vec(), [1.0 + bit(-7), 1.0]);
}
