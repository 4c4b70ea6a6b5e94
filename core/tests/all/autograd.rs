//! The engine itself, on three tiny operators.

use hankel_core::autograd::{self, Wanted, find_non_finite};
use hankel_core::{DType, Error, Result, Tensor, checkpoint, no_grad, scope};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn map(x: &Tensor, f: impl Fn(f64) -> f64) -> Result<Tensor> {
    Tensor::from_vec(x.data::<f64>()?.iter().map(|&x| f(x)).collect(), x.shape())
}

fn zip(x: &Tensor, y: &Tensor, f: impl Fn(f64, f64) -> f64) -> Result<Tensor> {
    let pairs = x.data::<f64>()?.iter().zip(y.data::<f64>()?);
    Tensor::from_vec(pairs.map(|(&x, &y)| f(x, y)).collect(), x.shape())
}

fn multiply(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (saved_x, saved_y) = (x.detach(), y.detach());
    zip(x, y, |x, y| x * y)?.from_operator("multiply", &[Some(x), Some(y)], move |g, wanted| {
        let dx = wanted[0].then(|| zip(&g, &saved_y, |g, y| g * y)).transpose()?;
        let dy = wanted[1].then(|| zip(&g, &saved_x, |g, x| g * x)).transpose()?;
        Ok(vec![dx, dy])
    })
}

fn double(x: &Tensor) -> Result<Tensor> {
    map(x, |x| 2.0 * x)?.from_operator("double", &[Some(x)], |g, _| Ok(vec![Some(map(&g, |g| 2.0 * g)?)]))
}

fn add(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    zip(x, y, |x, y| x + y)?.from_operator("add", &[Some(x), Some(y)], |g, wanted| {
        Ok(wanted.iter().map(|w| w.then(|| g.clone())).collect())
    })
}

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_vec(values.to_vec(), [values.len()]).and_then(|t| t.parameter()).unwrap()
}

fn gradient(output: &Tensor, leaf: &Tensor) -> Vec<f64> {
    let seed = Tensor::full(output.shape(), 1.0_f64);
    output.backward_with(seed).unwrap().get(leaf).unwrap().to_f64_vec()
}

#[test]
fn paths_that_meet_are_summed() {
    let x = leaf(&[3.0, -1.0]);
    let y = multiply(&multiply(&x, &x).unwrap(), &double(&x).unwrap()).unwrap();
    assert_eq!(y.to_f64_vec(), [54.0, -2.0]);
    assert_eq!(gradient(&y, &x), [54.0, 6.0]);
}

/// Only its values count: a rule may write into what it gets, and gradients carry no node.
#[test]
fn a_seed_may_be_tracked() {
    let (x, w) = (leaf(&[3.0, -1.0]), leaf(&[0.5, 2.0]));
    let seed = double(&w).unwrap();
    let gradients = add(&x, &x).unwrap().backward_with(seed).unwrap();
    let of_x = gradients.get(&x).unwrap();
    assert_eq!((of_x.to_f64_vec(), of_x.is_tracked()), (vec![2.0, 8.0], false));
    assert!(gradients.get(&w).is_none());
}

#[test]
fn frozen_inputs_get_no_gradient_and_no_node() {
    let frozen = Tensor::full([2], 5.0_f64);
    assert!(!double(&frozen).unwrap().is_tracked());
    let x = leaf(&[1.0, 2.0]);
    let y = multiply(&frozen, &x).unwrap();
    assert_eq!(gradient(&y, &x), [5.0, 5.0]);
    assert!(no_grad(|| multiply(&frozen, &x)).unwrap().backward_with(frozen).is_err());
}

#[test]
fn an_operator_without_a_gradient_is_refused_by_name() {
    let x = leaf(&[1.0]);
    let rounded = map(&x, f64::round).unwrap().from_untracked("round", &[&x]);
    assert!(matches!(rounded, Err(Error::NoGradient("round"))));
    assert!(no_grad(|| map(&x, f64::round).unwrap().from_untracked("round", &[&x])).is_ok());
    assert!(map(&x, f64::round).unwrap().from_untracked("round", &[&x.detach()]).is_ok());
}

#[test]
fn a_graph_is_used_once_and_errors_say_so() {
    let x = leaf(&[1.0]);
    let y = double(&x).unwrap();
    y.backward().unwrap();
    assert!(matches!(y.backward(), Err(Error::Consumed("double"))));
    assert!(matches!(x.detach().backward(), Err(Error::NotTracked)));
    assert!(matches!(double(&leaf(&[1.0, 2.0])).unwrap().backward(), Err(Error::NotScalar(_))));
    assert!(double(&x).unwrap().backward_with(Tensor::full([2], 1.0_f64)).is_err());
}

#[test]
fn gradients_accumulate_over_passes() {
    let x = leaf(&[1.5]);
    let mut total = double(&x).unwrap().backward().unwrap();
    total.accumulate(multiply(&x, &x).unwrap().backward().unwrap()).unwrap();
    assert_eq!(total.get(&x).unwrap().to_f64_vec(), [5.0]);
}

#[test]
fn saved_tensors_are_freed_in_order() {
    // Each rule holds a token; when the rule of the first operator runs, those of all later ones must be gone.
    let alive = Arc::new(());
    let mut x = leaf(&[1.0]);
    let last_seen = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let (token, seen) = (alive.clone(), last_seen.clone());
        x = map(&x, |x| x)
            .unwrap()
            .from_operator("identity", &[Some(&x)], move |g, _| {
                seen.store(Arc::strong_count(&token), Ordering::Relaxed);
                Ok(vec![Some(g)])
            })
            .unwrap();
    }
    assert_eq!(Arc::strong_count(&alive), 11);
    x.backward().unwrap();
    assert_eq!(last_seen.load(Ordering::Relaxed), 2);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_chain_of_a_hundred_thousand_operators_neither_recurses_nor_leaks() {
    let x = leaf(&[1.0]);
    let long = || (0..100_000).try_fold(x.clone(), |y, _| y.reshape([1])).unwrap();
    assert_eq!(gradient(&long(), &x), [1.0]);
    drop(long());
}

#[test]
fn a_recomputed_region_has_the_same_gradients() {
    let calls = Arc::new(AtomicUsize::new(0));
    let (x, weight) = (leaf(&[2.0, 3.0]), leaf(&[5.0, 7.0]));
    let (inner_weight, inner_calls) = (weight.clone(), calls.clone());
    let input = double(&x).unwrap();
    let y = checkpoint(None, &[&input], move |inputs| {
        inner_calls.fetch_add(1, Ordering::Relaxed);
        let squared = multiply(&inputs[0], &inputs[0])?;
        multiply(&squared, &inner_weight)
    })
    .unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let y = multiply(&y, &weight).unwrap();
    let gradients = y.backward_with(Tensor::full([2], 1.0_f64)).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    // y = (2x)^2 w^2
    assert_eq!(gradients.get(&x).unwrap().to_f64_vec(), [8.0 * 2.0 * 25.0, 8.0 * 3.0 * 49.0]);
    assert_eq!(gradients.get(&weight).unwrap().to_f64_vec(), [2.0 * 5.0 * 16.0, 2.0 * 7.0 * 36.0]);
}

#[test]
fn recomputed_regions_nest_and_stay_untracked_when_frozen() {
    let x = leaf(&[3.0]);
    let outer = checkpoint(None, &[&x], |x| {
        let inner = checkpoint(None, &[&x[0]], |x| multiply(&x[0], &x[0]))?;
        multiply(&inner, &x[0])
    })
    .unwrap();
    assert_eq!(gradient(&outer, &x), [27.0]);
    assert!(!checkpoint(None, &[&x.detach()], |x| double(&x[0])).unwrap().is_tracked());
}

#[test]
fn a_recomputed_region_may_not_capture_results_from_outside() {
    let x = leaf(&[1.0]);
    let outside = double(&x).unwrap();
    let y = checkpoint(None, &[&x], move |x| multiply(&x[0], &outside)).unwrap();
    assert!(matches!(y.backward(), Err(Error::CapturedOutside("double"))));
}

#[test]
fn the_first_value_that_is_not_finite_is_named() {
    let x = leaf(&[0.0]);
    let run = || {
        let y = scope("layers.1", || {
            scope("mlp", || map(&x, f64::ln)?.from_operator("ln", &[Some(&x)], |_, _| Ok(vec![None])))
        })?;
        double(&y)
    };
    assert!(run().is_ok());
    let error = find_non_finite(run).unwrap_err().to_string();
    assert_eq!(error, "ln in layers.1.mlp produced a value that is not finite (forward)");
    let backward = find_non_finite(|| {
        let y = map(&x, f64::sqrt)?.from_operator("sqrt", &[Some(&x)], |g, _| Ok(vec![Some(map(&g, |g| g / 0.0)?)]))?;
        y.backward()
    });
    assert!(backward.is_err_and(|e| e.to_string().contains("sqrt in model") && e.to_string().contains("backward")));
}

#[test]
fn updates_in_place_keep_the_leaf() {
    let mut x = leaf(&[1.0]);
    let copy = x.clone();
    x.data_mut::<f64>().unwrap()[0] = 4.0;
    assert_eq!((x.item().unwrap(), copy.item().unwrap()), (4.0, 1.0));
    assert_eq!(gradient(&multiply(&x, &x).unwrap(), &x), [8.0]);
    assert!(double(&x).unwrap().data_mut::<f64>().is_err());
    assert!(autograd::needs_gradient(&x));
}

/// Inside another region as well: what is computed first is what is differentiated.
#[test]
fn rounding_inside_a_recomputed_region() {
    let x = Tensor::from_vec(vec![1.0 + 1.0 / 512.0, -3.0], [2]).unwrap().parameter().unwrap();
    let inner = |x: &[Tensor]| checkpoint(Some(DType::BF16), &[&x[0]], |x| multiply(&x[0], &x[0]));
    let y = checkpoint(None, &[&x], inner).unwrap();
    assert_eq!(y.to_f64_vec(), [1.0, 9.0]);
    assert_eq!(gradient(&y, &x), [2.0, -6.0]);
}

#[test]
fn inputs_of_a_recomputed_region_may_be_kept_in_fewer_bits() {
    let x = Tensor::from_vec(vec![1.0 + 1.0 / 512.0, -3.0, 0.1], [3]).unwrap().parameter().unwrap();
    let y = checkpoint(Some(DType::BF16), &[&x], |x| multiply(&x[0], &x[0])).unwrap();
    let rounded: Vec<f64> = x.to_dtype(DType::BF16).unwrap().to_f64_vec();
    assert_eq!(rounded[0], 1.0);
    let close = |found: Vec<f64>, factor: f64, power: i32| {
        for (found, x) in found.iter().zip(&rounded) {
            assert!((found - factor * x.powi(power)).abs() < 1e-12, "{found} {x}");
        }
    };
    close(y.to_f64_vec(), 1.0, 2);
    let gradients = y.backward_with(Tensor::full([3], 1.0)).unwrap();
    assert_eq!(gradients.get(&x).unwrap().dtype(), DType::F64);
    close(gradients.get(&x).unwrap().to_f64_vec(), 2.0, 1);
}

/// `factor x`, whose rule adds to what others have added to the gradient of `x`, and counts how often there was such a sum.
fn scaled(x: &Tensor, factor: f64, sums: &Arc<AtomicUsize>) -> Result<Tensor> {
    let sums = Arc::clone(sums);
    map(x, |x| factor * x)?.from_operator("scaled", &[Some(x)], move |g, wanted| {
        let own = map(&g, |g| factor * g)?;
        let Some(sum) = wanted.take_sum(0) else { return Ok(vec![Some(own)]) };
        sums.fetch_add(1, Ordering::Relaxed);
        Ok(vec![Some(zip(&sum, &own, |x, y| x + y)?)])
    })
}

#[test]
fn rules_may_add_to_the_sum_so_far() {
    let sums = Arc::new(AtomicUsize::new(0));
    for through in [false, true] {
        let x = leaf(&[1.0, 2.0]);
        // A leaf, and the result of an operator.
        let y = if through { double(&x).unwrap() } else { x.clone() };
        let parts = [2.0, 3.0, 5.0].map(|factor| scaled(&y, factor, &sums).unwrap());
        let plain = double(&y).unwrap();
        let all = parts.iter().try_fold(plain, |sum, part| add(&sum, part)).unwrap();
        let expected = if through { 24.0 } else { 12.0 };
        assert_eq!(gradient(&all, &x), [expected; 2]);
    }
    // The rule of `plain`, made last, runs first.
    assert_eq!(sums.load(Ordering::Relaxed), 6);
}

#[test]
#[should_panic(expected = "the rule of taker took a sum and did not return it")]
fn a_sum_that_was_taken_must_come_back() {
    let x = leaf(&[1.0]);
    let take = |_: Tensor, wanted: &mut Wanted| Ok(vec![wanted.take_sum(0).and(None)]);
    let taker = map(&x, |x| x).unwrap().from_operator("taker", &[Some(&x)], take).unwrap();
    let later = double(&x).unwrap();
    let _ = add(&taker, &later).unwrap().backward();
}

#[test]
fn a_rule_that_forgets_an_input_is_named() {
    let (x, y) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 4.0]));
    let z = zip(&x, &y, |x, y| x + y).unwrap();
    let z = z.from_operator("forgetful", &[Some(&x), Some(&y)], |g, _| Ok(vec![Some(g)])).unwrap();
    let message = z.backward_with(z.full_like([2], 1.0).unwrap()).err().unwrap().to_string();
    assert!(message.contains("forgetful") && message.contains("1 gradients for 2 inputs"), "{message}");
}

/// Added to a parameter, it would be repeated along it, or change its type.
#[test]
fn a_gradient_of_another_shape_or_type_is_named() {
    let x = leaf(&[1.0, 2.0]);
    for wrong in [Tensor::full([1], 1.0), Tensor::full([2], 1.0_f32)] {
        let found = format!("{} {}", wrong.dtype(), wrong.shape());
        let z = map(&x, |x| x).unwrap().from_operator("wrong", &[Some(&x)], |_, _| Ok(vec![Some(wrong)])).unwrap();
        let z = double(&z).unwrap();
        let message = z.backward_with(z.full_like([2], 1.0).unwrap()).err().unwrap().to_string();
        assert!(
            message.contains(&format!("wrong: the rule gives a gradient {found} for an input f64 [2]")),
            "{message}"
        );
    }
}
