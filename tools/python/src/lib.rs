//! `hankel._hankel`: what the Python package `hankel` computes with. Its functions take and give numpy arrays of f64; the package
//! around them takes what users have and gives dataclasses.
//!
//! The interpreter is released as soon as the matrices are copied.

mod matrices;

use hankel_files::system_file::{StoredSystem, Time};
use hankel_lti::norms::hinf_norm_of;
use hankel_lti::weighted::Weights;
use hankel_lti::{GramianSource, LtiError, Method, OrderRule, SystemCertificate, gramians as gramians_of};
use hankel_reduce::{
    Certificate, Gramians, LayerAnalysis, LayerCertificate, OrderChoice, Plant, ReduceError, ReduceOptions,
    choose_orders, verify_layer, weigh_with,
};
use matrices::{Given, Square, plant_of, stored, to_array};
use numpy::{PyArray1, PyArray2};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

create_exception!(
    hankel,
    HankelError,
    PyValueError,
    "A system that cannot be reduced, or an argument out of range: the message of `bt`."
);

/// The label of a system in messages of `hankel-reduce`, which they are told without.
const LABEL: &str = "system";

/// The sentence of `bt`, without the name of a layer: there is one system.
fn refuse(error: ReduceError) -> PyErr {
    match error {
        ReduceError::Layer { reason, .. } | ReduceError::System(reason) => refuse_system(reason),
        ReduceError::Excess(problem) | ReduceError::Mismatch(problem) => HankelError::new_err(problem),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn refuse_system(error: LtiError) -> PyErr {
    HankelError::new_err(error.to_string())
}

fn analyse(plant: &Plant) -> Result<LayerAnalysis, ReduceError> {
    if plant.system.states() == 0 {
        return Err(LtiError::NoStates.into());
    }
    plant.analyse(LABEL)
}

/// The weights of input and output, in the time of what they weigh.
fn weights_of(plant: &Plant, input: Option<&StoredSystem>, output: Option<&StoredSystem>) -> PyResult<Weights> {
    let side = |name: &str, given: Option<&StoredSystem>| {
        let weight = given.map(|given| plant.weight(given));
        weight.transpose().map_err(|reason| HankelError::new_err(format!("the {name}: {reason}")))
    };
    Ok(Weights { input: side("weight", input)?, output: side("output_weight", output)? })
}

/// Refuses two systems of which one runs in continuous time, or whose sampling times are known and differ.
fn same_time(full: Time, reduced: Time) -> PyResult<()> {
    match (full, reduced) {
        (Time::Discrete { step: Some(full) }, Time::Discrete { step: Some(reduced) }) if full != reduced => {
            Err(HankelError::new_err(format!("the sampling time of one system is {full}, that of the other {reduced}")))
        }
        _ if (full == Time::Continuous) == (reduced == Time::Continuous) => Ok(()),
        _ => Err(HankelError::new_err("one of both systems runs in continuous time, the other does not")),
    }
}

fn to_json(certificate: &SystemCertificate) -> PyResult<String> {
    serde_json::to_string(certificate).map_err(|error| HankelError::new_err(error.to_string()))
}

/// The result of `compute`, which runs on threads of this process without the interpreter. A child that was forked has no threads but its own, so
/// that the pool of its parent would never answer.
fn in_parallel<R: Send>(py: Python<'_>, compute: impl FnOnce() -> R + Send) -> R {
    static POOL: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);
    py.detach(|| {
        let process = std::process::id();
        let mut held = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_none_or(|(owner, _)| *owner != process) {
            // Dropping the parent's would wait for its threads.
            mem::forget(held.take());
            *held = ThreadPoolBuilder::new().build().ok().map(|pool| (process, Arc::new(pool)));
        }
        let pool = held.as_ref().map(|(_, pool)| Arc::clone(pool));
        drop(held);
        match pool {
            Some(pool) => pool.install(compute),
            None => compute(),
        }
    })
}

type Matrices<'py> = (
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Option<Bound<'py, PyArray2<f64>>>,
);

/// The reduced `(A, B, C, D)`, its certificate as JSON and the rate of the bilinear map in continuous time. At most one of the rules is
/// given; without one, epsilon is 0.01.
#[pyfunction]
#[pyo3(signature = (system, *, order, epsilon, energy, bound, method, weight, output_weight))]
#[expect(clippy::too_many_arguments, reason = "those of Python")]
fn reduce<'py>(
    py: Python<'py>,
    system: Given<'py>,
    order: Option<usize>,
    epsilon: Option<f64>,
    energy: Option<f64>,
    bound: Option<f64>,
    method: &str,
    weight: Option<Given<'py>>,
    output_weight: Option<Given<'py>>,
) -> PyResult<(Matrices<'py>, String, Option<f64>)> {
    let method = Method::named(method).ok_or_else(|| {
        HankelError::new_err(format!("method {method:?} is unknown; there are {}", Method::NAMES.join(", ")))
    })?;
    let rules = [
        order.map(OrderRule::Order),
        epsilon.map(OrderRule::Epsilon),
        energy.map(OrderRule::Energy),
        bound.map(OrderRule::Bound),
    ];
    let rule = rules.into_iter().flatten().next().unwrap_or_default();
    let (system, weight, output_weight) =
        (stored(&system), weight.as_ref().map(stored), output_weight.as_ref().map(stored));
    let compute = || -> PyResult<_> {
        let plant = plant_of(&system)?;
        let weights = weights_of(&plant, weight.as_ref(), output_weight.as_ref())?;
        let weighted = !weights.is_empty() && method.takes_weights();
        let gramians = if weighted { Gramians::Weighted } else { Gramians::Analytic };
        let orders = OrderChoice::PerLayer(rule);
        let options = ReduceOptions { method, orders, gramians, ..ReduceOptions::default() };
        let layer = analyse(&plant).and_then(|layer| weigh_with(layer, options.gramians.source(), &weights));
        let layer = layer.map_err(refuse)?;
        let order = choose_orders(std::slice::from_ref(&layer), &options).map_err(refuse)?[0];
        // Certified is what the caller gets.
        let (reduction, given) = plant.reduce(&layer, method, order, &options.gramians).map_err(refuse)?;
        let facts = LayerCertificate { layer: layer.label.clone(), facts: reduction.certificate.clone() };
        if let Some(excess) = Certificate::of_system(orders, facts, plant.facts()).excess() {
            return Err(HankelError::new_err(excess));
        }
        Ok((given, reduction.certificate, plant.map.map(|map| map.rate)))
    };
    let (reduced, certificate, rate) = in_parallel(py, compute)?;
    let arrays = (
        to_array(py, reduced.written.clone().unwrap_or_else(|| reduced.a.to_dense()).as_ref()),
        to_array(py, reduced.b.as_ref()),
        to_array(py, reduced.c.as_ref()),
        reduced.d.as_ref().map(|d| to_array(py, d.as_ref())),
    );
    Ok((arrays, to_json(&certificate)?, rate))
}

/// Hankel singular values, descending.
#[pyfunction]
fn singular_values<'py>(py: Python<'py>, system: Given<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let system = stored(&system);
    let compute = || analyse(&plant_of(&system)?).map(|layer| layer.spectrum.values().to_vec()).map_err(refuse);
    let values = in_parallel(py, compute)?;
    Ok(PyArray1::from_vec(py, values))
}

/// The controllability and the observability Gramian.
#[pyfunction]
fn gramians<'py>(py: Python<'py>, system: Given<'py>) -> PyResult<(Square<'py>, Square<'py>)> {
    let system = stored(&system);
    let compute = || -> PyResult<_> {
        let plant = plant_of(&system)?;
        let (wc, wo) = gramians_of(&plant.system).map_err(refuse_system)?;
        Ok(match plant.system.stored() {
            Some(own) => (own.controllability(&wc), own.observability(&wo)),
            None => (wc, wo),
        })
    };
    let (wc, wo) = in_parallel(py, compute)?;
    Ok((to_array(py, wc.as_ref()), to_array(py, wo.as_ref())))
}

/// `(norm, frequency in radians per step or per unit of time, upper end of the enclosure)`.
#[pyfunction]
fn hinf_norm(py: Python<'_>, system: Given<'_>) -> PyResult<(f64, f64, f64)> {
    let system = stored(&system);
    let compute = || -> PyResult<_> {
        let plant = plant_of(&system)?;
        let found = hinf_norm_of(&plant.system).map_err(refuse_system)?;
        Ok((plant, found))
    };
    let (plant, (found, check)) = in_parallel(py, compute)?;
    let frequency = plant.map.map_or(found.frequency, |map| map.frequency(found.frequency));
    Ok((found.value, frequency, check.upper.max(found.value)))
}

/// `(problems, certificate as JSON)`: what a fresh measurement says of a claim, or of the bound of balanced truncation without one.
#[pyfunction]
#[pyo3(signature = (full, reduced, claim, weight, output_weight))]
fn verify(
    py: Python<'_>,
    full: Given<'_>,
    reduced: Given<'_>,
    claim: Option<&str>,
    weight: Option<Given<'_>>,
    output_weight: Option<Given<'_>>,
) -> PyResult<(Vec<String>, String)> {
    let claim: Option<SystemCertificate> = claim
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| HankelError::new_err(format!("this is not a certificate: {error}")))?;
    let (full, reduced) = (stored(&full), stored(&reduced));
    let (weight, output_weight) = (weight.as_ref().map(stored), output_weight.as_ref().map(stored));
    let compute = || -> PyResult<_> {
        same_time(full.time, reduced.time)?;
        let full = plant_of(&full)?;
        let weights = weights_of(&full, weight.as_ref(), output_weight.as_ref())?;
        let reduced = full.beside(&reduced).map_err(refuse)?;
        let source = claim.as_ref().map_or(GramianSource::Analytic, |claim| claim.gramians);
        let layer = analyse(&full).and_then(|layer| weigh_with(layer, source, &weights)).map_err(refuse)?;
        verify_layer(&layer, &reduced.system, 1.0, claim.as_ref()).map_err(refuse_system)
    };
    let found = in_parallel(py, compute)?;
    Ok((found.problems, to_json(&found.measured)?))
}

#[pymodule]
fn _hankel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("HankelError", module.py().get_type::<HankelError>())?;
    module.add("METHODS", Method::NAMES.to_vec())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(reduce, module)?)?;
    module.add_function(wrap_pyfunction!(singular_values, module)?)?;
    module.add_function(wrap_pyfunction!(gramians, module)?)?;
    module.add_function(wrap_pyfunction!(hinf_norm, module)?)?;
    module.add_function(wrap_pyfunction!(verify, module)?)
}
