//! R3: the evaluations of the recurrence agree, over 100 random sequences of 512 to 4,096 steps.

use hankel_core::{DType, Random, Tensor};
use hankel_ops::{Poles, ScanPath, scan};
use hankel_tests::largest_difference;

/// The recurrence in f64, as it is written, from the poles at hand.
fn reference(u: &Tensor, a: &Tensor) -> Vec<f64> {
    let (d, a) = (a.elements(), a.to_f64_vec());
    let mut state = vec![0.0; d];
    let step = |u: &[f64]| {
        for ((s, &u), &a) in state.iter_mut().zip(u).zip(&a) {
            *s = a * *s + u;
        }
        state.clone()
    };
    u.to_f64_vec().chunks(d).flat_map(step).collect()
}

#[test]
fn evaluations_agree_relative_to_the_largest_output() {
    let d = 32;
    let mut worst = [[0.0_f64; 3]; 2];
    for sequence in 0..100_u64 {
        let steps = [512, 1024, 2048, 4096][(sequence % 4) as usize];
        let random = Random::new(6, "exactness", sequence);
        // Time scales from two steps to ten thousand; both precisions start from the same f32 numbers.
        let poles = (0..d as u64).map(|i| (1.0 - 0.5 * (2e-4_f64).powf(random.uniform(i))) as f32).collect();
        let poles = Tensor::from_vec(poles, [d]).unwrap();
        let u =
            Tensor::from_vec(Random::new(7, "exactness", sequence).normal_vec::<f32>(steps * d, 1.0), [1, steps, d])
                .unwrap();
        let expected = reference(&u, &poles);
        let scale = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        for (row, dtype) in [DType::F32, DType::F64].into_iter().enumerate() {
            let (u, a) = (u.to_dtype(dtype).unwrap(), poles.to_dtype(dtype).unwrap());
            for (column, path) in [ScanPath::Sequential, ScanPath::Chunked, ScanPath::Fft].into_iter().enumerate() {
                let states = scan(&u, &Poles::Diagonal(a.clone()), None, path).unwrap().to_f64_vec();
                let error = largest_difference(&states, &expected) / scale;
                if error.total_cmp(&worst[row][column]).is_gt() {
                    worst[row][column] = error;
                }
            }
        }
    }
    println!("largest error, f32 and f64; sequential, chunked, fft: {worst:?}");
    assert!(worst[0][0] < 5e-6 && worst[0][1] < 5e-6 && worst[0][2] < 1e-5, "f32: {:?}", worst[0]);
    assert!(worst[1].iter().all(|&e| e < 1e-12), "f64: {:?}", worst[1]);
}
