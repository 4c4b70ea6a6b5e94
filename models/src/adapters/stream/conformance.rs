//! What must be true of every stream adapter, checked in double precision on a small example, and that it runs in single precision.

use super::{Memory, SiteContext, StreamAdapter, StreamKind, StreamSite, make};
use crate::adapters::shared::SharedParameters;
use crate::parameter::Parameter;
use hankel_core::{DType, Error, Random, Result, Tensor, no_grad};
use hankel_ops::narrow_time;

const BATCH: usize = 2;
const STEPS: usize = 9;
const WIDTH: usize = 6;
/// Elements of a tensor whose derivative is checked.
const SAMPLES: usize = 6;
/// Largest difference between two ways to the same numbers, relative to their size.
const SAME: f64 = 1e-10;
/// Largest relative error of a gradient.
const GRADIENT: f64 = 1e-6;

/// Checks that the adapter of these settings
///
/// - gives an output of the shape of its input,
/// - looks at no later token,
/// - gives the same in chunks and step by step as at once, and the same as the recurrence and the system that it says it is,
/// - has gradients that agree with central differences, at up to six elements of its input and of everything it learns,
///
/// and that it can be trained in single precision. Parameters are moved away from their initial values first, so that nothing is 0 by
/// accident.
///
/// # Errors
/// What was found, with numbers.
pub fn conformance<K: StreamKind>(settings: &K::Settings) -> Result<()> {
    let shared = SharedParameters::default();
    let context = SiteContext::new(K::KIND, [0, WIDTH, STEPS], StreamSite::Mlp, 1, &shared);
    let adapter = make::<K>(settings, &context)?;
    let x = noise("x")?;
    single(&adapter, &x)?;
    for (i, parameter) in adapter.parameters().iter().enumerate() {
        let noise = Random::new(2, "shake", i as u64);
        let moved = parameter.tensor().to_f64_vec().into_iter().zip(0..).map(|(v, i)| v + 0.3 * noise.normal(i));
        parameter.set(&Tensor::from_vec(moved.collect(), parameter.tensor().shape())?)?;
        parameter.to_dtype(DType::F64)?;
    }
    no_grad(|| {
        let (whole, _) = adapter.forward(&x, None)?;
        if whole.shape() != x.shape() {
            return Err(fail(format!("an input {} gives an output {}", x.shape(), whole.shape())));
        }
        if let Some(recurrence) = adapter.recurrence()? {
            compare("the output of `recurrence`", &recurrence.forward(&x, None)?.0, &whole)?;
        }
        if let Some(system) = adapter.system(&x)? {
            compare("the output of `system`", &system.forward(&x, None)?.0, &whole)?;
        }
        causality(&adapter, &x, &whole)?;
        [&[1; STEPS][..], &[4, 1, 4]].into_iter().try_for_each(|parts| chunks(&adapter, &x, &whole, parts))
    })?;
    gradients(&adapter, &x)
}

fn fail(problem: String) -> Error {
    Error::invalid("conformance", problem)
}

fn noise(name: &str) -> Result<Tensor> {
    Tensor::from_vec(Random::new(3, name, 0).normal_vec::<f64>(BATCH * STEPS * WIDTH, 1.0), [BATCH, STEPS, WIDTH])
}

/// The larger of two numbers, NaN if one is.
fn larger(a: f64, b: f64) -> f64 {
    if b.is_nan() || b > a { b } else { a }
}

fn compare(what: &str, got: &Tensor, expected: &Tensor) -> Result<()> {
    let (got, expected) = (got.to_f64_vec(), expected.to_f64_vec());
    let scale = expected.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    let worst = got.iter().zip(&expected).fold(0.0, |m, (a, b)| larger(m, (a - b).abs()));
    if got.len() == expected.len() && worst <= SAME * scale {
        return Ok(());
    }
    Err(fail(format!("{what} differs from reading the sequence at once by {worst:e}, outputs being up to {scale:e}")))
}

/// Runs as it is trained: in the type of its parameters.
fn single(adapter: &dyn StreamAdapter, x: &Tensor) -> Result<()> {
    let x = x.to_dtype(DType::F32)?.parameter()?;
    let whole = || adapter.forward(&x, None).and_then(|(y, _)| y.backward_with(y.full_like(y.shape(), 1.0)?));
    match whole() {
        Ok(_) | Err(Error::NotTracked) => Ok(()),
        Err(error) => Err(fail(format!("in single precision: {error}"))),
    }
}

fn causality(adapter: &dyn StreamAdapter, x: &Tensor, whole: &Tensor) -> Result<()> {
    let other = noise("other")?;
    let seen = STEPS / 2;
    let changed = hankel_ops::concat_time(&[&narrow_time(x, 0, seen)?, &narrow_time(&other, seen, STEPS - seen)?])?;
    let (y, _) = adapter.forward(&changed, None)?;
    let what = format!("the output of steps before {seen} after a change of later tokens");
    compare(&what, &narrow_time(&y, 0, seen)?, &narrow_time(whole, 0, seen)?)
}

fn chunks(adapter: &dyn StreamAdapter, x: &Tensor, whole: &Tensor, parts: &[usize]) -> Result<()> {
    let (mut memory, mut first): (Option<Memory>, usize) = (None, 0);
    for &steps in parts {
        let (y, after) = adapter.forward(&narrow_time(x, first, steps)?, memory.as_ref())?;
        let what = format!("the output of steps {first}..{}, read in chunks of {parts:?},", first + steps);
        compare(&what, &y, &narrow_time(whole, first, steps)?)?;
        (memory, first) = (Some(after), first + steps);
    }
    Ok(())
}

fn gradients(adapter: &dyn StreamAdapter, x: &Tensor) -> Result<()> {
    let (x, seed) = (x.parameter()?, noise("seed")?);
    let value = |x: &Tensor| -> Result<f64> {
        let (y, _) = no_grad(|| adapter.forward(x, None))?;
        Ok(y.data::<f64>()?.iter().zip(seed.data::<f64>()?).map(|(y, s)| y * s).sum())
    };
    let (y, _) = adapter.forward(&x, None)?;
    if !y.is_tracked() {
        return Err(fail("the output depends on nothing that is learnt".to_owned()));
    }
    let gradients = y.backward_with(seed.clone())?;
    let check = |name: &str, at: &Tensor, value: &dyn Fn(usize, f64) -> Result<f64>| -> Result<()> {
        let analytic = gradients.get(at).map_or_else(|| vec![0.0; at.elements()], Tensor::to_f64_vec);
        let values = at.to_f64_vec();
        let mut picks = Random::new(5, name, 0).permutation(values.len());
        picks.truncate(SAMPLES);
        let (mut scale, mut worst) = (1e-3, 0.0_f64);
        for i in picks {
            // Of fourth order, so that the step can be large enough to keep rounding small.
            let h = 1e-4 * values[i].abs().max(0.1);
            let slope =
                (8.0 * (value(i, h)? - value(i, -h)?) - (value(i, 2.0 * h)? - value(i, -2.0 * h)?)) / (12.0 * h);
            scale = f64::max(scale, slope.abs());
            worst = larger(worst, (slope - analytic[i]).abs());
        }
        let error = worst / scale;
        if error <= GRADIENT {
            return Ok(());
        }
        Err(fail(format!("the gradient of {name} has a relative error of {error:e}")))
    };
    check("the input", &x, &|i, step| {
        let mut moved = x.to_f64_vec();
        moved[i] += step;
        value(&Tensor::from_vec(moved, x.shape())?)
    })?;
    for parameter in adapter.parameters().into_iter().filter(Parameter::is_trainable) {
        let tensor = parameter.tensor();
        let detached = x.detach();
        let result = check(parameter.name(), &tensor, &|i, step| {
            let mut moved = tensor.to_f64_vec();
            moved[i] += step;
            parameter.set(&Tensor::from_vec(moved, tensor.shape())?)?;
            value(&detached)
        });
        parameter.update(|value| *value = tensor.clone());
        result?;
    }
    Ok(())
}
