use super::*;
use crate::scan::cases::dense;
use crate::testing::Array;
use hankel_core::Random;
use proptest::prelude::*;

fn normal(len: usize, name: &str, seed: u64) -> Vec<f64> {
    let random = Random::new(seed, name, 0);
    (0..len as u64).map(|i| f64::from(random.normal(i) as f32)).collect()
}

fn cast<T: Real>(x: &[f64]) -> Vec<T> {
    x.iter().map(|&x| T::of(x)).collect()
}

/// Real poles and pairs in the unit disc, exact in `f32`.
struct Values<T> {
    real: Vec<T>,
    pairs: Vec<[T; 2]>,
}

impl<T: Real> Values<T> {
    fn modes(&self) -> Modes<'_, T> {
        Modes { real: &self.real, pairs: &self.pairs }
    }
}

fn poles<T: Real>(real: usize, pairs: usize, seed: u64) -> Values<T> {
    let random = Random::new(seed, "poles", 0);
    let radius = |i: u64| 1.0 - 10.0_f64.powf(-0.3 - 3.0 * random.uniform(i));
    let single = |x: f64| T::of(f64::from(x as f32));
    let pair = |i: u64| {
        let angle = std::f64::consts::PI * random.uniform(1000 + i);
        [single(radius(i) * angle.cos()), single(radius(i) * angle.sin())]
    };
    let sign = |i: u64| if i.is_multiple_of(3) { -1.0 } else { 1.0 };
    Values {
        real: (0..real as u64).map(|i| single(sign(i) * radius(500 + i))).collect(),
        pairs: (0..pairs as u64).map(pair).collect(),
    }
}

/// The definition, with the state matrix written out. Backwards: transposed, on the sequence reversed in time.
fn oracle(direction: Direction, poles: &Values<f64>, tokens: usize, u: &[f64], initial: Option<&[f64]>) -> Vec<f64> {
    let (real, dim) = (poles.real.len(), poles.modes().state_dim());
    let forward = direction == Direction::Forward;
    let a = |i: usize, j: usize| {
        let (i, j) = if forward { (i, j) } else { (j, i) };
        if i < real || j < real {
            return if i == j { poles.real[i] } else { 0.0 };
        }
        let ([re, im], (i, j)) = (poles.pairs[(i - real) / 2], (i - real, j - real));
        if i / 2 == j / 2 { [[re, -im], [im, re]][i % 2][j % 2] } else { 0.0 }
    };
    let turn = |x: &[f64]| -> Vec<f64> {
        if forward || x.is_empty() {
            return x.to_vec();
        }
        x.chunks(tokens * dim).flat_map(|x| x.chunks(dim).rev().flatten().copied().collect::<Vec<_>>()).collect()
    };
    let array = |data: Vec<f64>, shape: &[usize]| Array { shape: shape.to_vec(), data };
    let batch = u.len() / (tokens * dim).max(1);
    let initial = initial.map(|s| array(s.to_vec(), &[batch, dim]));
    turn(&dense(&a, &array(turn(u), &[batch, tokens, dim]), initial.as_ref()))
}

/// NaN where an element is, as one that was never written.
fn error<T: Real>(found: &[T], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-30, |a: f64, b| a.max(b.abs()));
    found.iter().zip(expected).map(|(a, b)| (a.f64() - b).abs()).max_by(f64::total_cmp).unwrap_or(0.0) / scale
}

fn agrees<T: Real>(
    evaluation: Evaluation,
    direction: Direction,
    modes: (usize, usize),
    sizes: (usize, usize),
    with_initial: bool,
    tolerance: f64,
) -> Result<(), TestCaseError> {
    let (batch, tokens) = sizes;
    let (exact, rounded) = (poles::<f64>(modes.0, modes.1, 3), poles::<T>(modes.0, modes.1, 3));
    let dim = exact.modes().state_dim();
    let (u, initial) = (normal(batch * tokens * dim, "u", 1), normal(batch * dim, "initial", 2));
    let expected = oracle(direction, &exact, tokens, &u, with_initial.then_some(&initial[..]));
    let (u, initial) = (cast::<T>(&u), cast::<T>(&initial));
    let mut out = vec![T::nan(); u.len()];
    let initial = with_initial.then_some(&initial[..]);
    scan(evaluation, direction, rounded.modes(), tokens, &u, initial, &mut out);
    let error = error(&out, &expected);
    prop_assert!(error < tolerance, "error {error} of {evaluation:?} {direction:?}");
    Ok(())
}

proptest! {
    #[test]
    fn every_evaluation_is_the_recurrence(
        modes in (0_usize..70, 0_usize..7), sizes in (0_usize..4, 0_usize..200), chunk in 0_usize..90,
        backwards: bool, with_initial: bool,
    ) {
        let direction = if backwards { Direction::Backward } else { Direction::Forward };
        for evaluation in [Evaluation::Sequential, Evaluation::Chunked(chunk)] {
            agrees::<f32>(evaluation, direction, modes, sizes, with_initial, 5e-6)?;
            agrees::<f64>(evaluation, direction, modes, sizes, with_initial, 1e-12)?;
        }
    }
}

#[test]
fn long_sequences_stay_within_the_bounds_of_r3() {
    for tokens in [512, 1024, 2048, 4096] {
        for evaluation in [Evaluation::Sequential, Evaluation::Chunked(64), Evaluation::Chunked(100)] {
            agrees::<f32>(evaluation, Direction::Forward, (32, 4), (5, tokens), true, 5e-6).unwrap();
            agrees::<f64>(evaluation, Direction::Forward, (32, 4), (1, tokens), true, 1e-12).unwrap();
        }
    }
}

#[test]
fn token_by_token_equals_at_once() {
    let values = poles::<f32>(9, 3, 7);
    let (poles, tokens) = (values.modes(), 40);
    let dim = poles.state_dim();
    let u = cast::<f32>(&normal(tokens * dim, "u", 4));
    let mut states = vec![0.0; u.len()];
    scan(Evaluation::Sequential, Direction::Forward, poles, tokens, &u, None, &mut states);
    let mut state = vec![0.0; dim];
    for (u, expected) in u.chunks(dim).zip(states.chunks(dim)) {
        advance(poles, u, &mut state);
        assert_eq!(state, expected);
    }
}

#[test]
fn gradients_by_central_differences() {
    let (batch, tokens) = (2, 9);
    let values = poles::<f64>(3, 2, 9);
    let dim = values.modes().state_dim();
    let (u, initial) = (normal(batch * tokens * dim, "u", 5), normal(batch * dim, "s", 6));
    let weights = normal(u.len(), "w", 7);
    let loss = |values: &Values<f64>, u: &[f64], initial: &[f64]| -> f64 {
        let mut states = vec![0.0; u.len()];
        scan(Evaluation::Chunked(4), Direction::Forward, values.modes(), tokens, u, Some(initial), &mut states);
        states.iter().zip(&weights).map(|(s, w)| s * w).sum()
    };
    let (mut states, mut lam) = (vec![0.0; u.len()], vec![0.0; u.len()]);
    scan(Evaluation::Sequential, Direction::Forward, values.modes(), tokens, &u, Some(&initial), &mut states);
    scan(Evaluation::Sequential, Direction::Backward, values.modes(), tokens, &weights, None, &mut lam);
    let d_poles = pole_gradient(values.modes(), tokens, &lam, &states, Some(&initial));
    let first: Vec<f64> = lam.chunks(tokens * dim).flat_map(|lam| &lam[..dim]).copied().collect();
    let d_initial = advanced(Direction::Backward, values.modes(), &first);
    let step = 1e-6;
    let check = |what: &str, found: f64, f: &dyn Fn(f64) -> f64| {
        let expected = (f(step) - f(-step)) / (2.0 * step);
        assert!((found - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{what}: {found}, not {expected}");
    };
    let changed = |x: &[f64], i: usize, h: f64| {
        let mut x = x.to_vec();
        x[i] += h;
        x
    };
    for i in 0..u.len() {
        check("u", lam[i], &|h| loss(&values, &changed(&u, i, h), &initial));
    }
    for i in 0..initial.len() {
        check("initial", d_initial[i], &|h| loss(&values, &u, &changed(&initial, i, h)));
    }
    for i in 0..dim {
        check("pole", d_poles[i], &|h| {
            let mut values = poles::<f64>(3, 2, 9);
            let all = values.real.iter_mut().chain(values.pairs.as_flattened_mut());
            *all.into_iter().nth(i).unwrap() += h;
            loss(&values, &u, &initial)
        });
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let values = poles::<f32>(40, 2, 11);
    let u = cast::<f32>(&normal(5 * 300 * 44, "u", 8));
    let run = |threads, evaluation| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut out = vec![0.0; u.len()];
            scan(evaluation, Direction::Forward, values.modes(), 300, &u, None, &mut out);
            let gradient = pole_gradient(values.modes(), 300, &u, &out, None);
            (out, gradient)
        })
    };
    for evaluation in [Evaluation::Sequential, Evaluation::Chunked(32)] {
        assert!(run(1, evaluation) == run(3, evaluation));
    }
}
