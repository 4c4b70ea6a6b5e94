//! `hankel._hankel`: what the Python package `hankel` computes with. Its functions take and give numpy arrays of f64; the package
//! around them takes what users have and gives dataclasses.
//!
//! The interpreter is released while a function computes.

mod matrices;

use hankel_lti::norms::{FrequencyResponse, hinf_norm as norm};
use hankel_lti::{LinearSystem, LtiError, Method, OrderRule, SystemCertificate, gramians as gramians_of};
use hankel_reduce::{
    LayerAnalysis, OrderChoice, Purpose, ReduceError, ReduceOptions, choose_orders, reduce_system, verify_layer,
};
use matrices::{Given, Square, system_of, to_array};
use numpy::{PyArray1, PyArray2};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

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
        ReduceError::Mismatch(problem) => HankelError::new_err(problem),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn refuse_system(error: LtiError) -> PyErr {
    HankelError::new_err(error.to_string())
}

fn analyse(system: LinearSystem) -> Result<LayerAnalysis, ReduceError> {
    if system.states() == 0 {
        return Err(LtiError::NoStates.into());
    }
    LayerAnalysis::new(LABEL, system, 1.0)
}

fn to_json(certificate: &SystemCertificate) -> PyResult<String> {
    serde_json::to_string(certificate).map_err(|error| HankelError::new_err(error.to_string()))
}

type Matrices<'py> = (
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Option<Bound<'py, PyArray2<f64>>>,
);

/// The reduced `(A, B, C, D)` and its certificate as JSON. At most one of the rules is given; without one, epsilon is 0.01.
#[pyfunction]
#[pyo3(signature = (system, *, order, epsilon, energy, bound, method))]
fn reduce<'py>(
    py: Python<'py>,
    system: Given<'py>,
    order: Option<usize>,
    epsilon: Option<f64>,
    energy: Option<f64>,
    bound: Option<f64>,
    method: &str,
) -> PyResult<(Matrices<'py>, String)> {
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
    let options = ReduceOptions { method, orders: OrderChoice::PerLayer(rule), ..ReduceOptions::default() };
    let system = system_of(system)?;
    let compute = || -> Result<_, ReduceError> {
        let layer = analyse(system)?;
        let order = choose_orders(std::slice::from_ref(&layer), &options)?[0];
        let purpose = Purpose { direct_term: true, single: false };
        let reduction = reduce_system(&layer, method, order, &options.gramians, purpose)?;
        // Certified is what the caller gets: a pair written out as a matrix has its rounding in the pole.
        let given = matrices::written_out(&reduction.system)?;
        let measured = verify_layer(&layer, &given, 1.0, Some(&reduction.certificate))?.measured;
        Ok((given, measured))
    };
    let (reduced, certificate) = py.detach(compute).map_err(refuse)?;
    let arrays = (
        to_array(py, reduced.a().to_dense().as_ref()),
        to_array(py, reduced.b()),
        to_array(py, reduced.c()),
        reduced.d().map(|d| to_array(py, d)),
    );
    Ok((arrays, to_json(&certificate)?))
}

/// Hankel singular values, descending.
#[pyfunction]
fn singular_values<'py>(py: Python<'py>, system: Given<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let system = system_of(system)?;
    let values = py.detach(|| analyse(system).map(|layer| layer.spectrum.values().to_vec())).map_err(refuse)?;
    Ok(PyArray1::from_vec(py, values))
}

/// The controllability and the observability Gramian.
#[pyfunction]
fn gramians<'py>(py: Python<'py>, system: Given<'py>) -> PyResult<(Square<'py>, Square<'py>)> {
    let system = system_of(system)?;
    let (wc, wo) = py.detach(|| gramians_of(&system)).map_err(refuse_system)?;
    Ok((to_array(py, wc.as_ref()), to_array(py, wo.as_ref())))
}

/// `(norm, frequency in radians per step, upper end of the enclosure)`.
#[pyfunction]
fn hinf_norm(py: Python<'_>, system: Given<'_>) -> PyResult<(f64, f64, f64)> {
    let system = system_of(system)?;
    let (found, check) = py.detach(|| FrequencyResponse::new(&system).and_then(|g| norm(&g))).map_err(refuse_system)?;
    Ok((found.value, found.frequency, check.upper.max(found.value)))
}

/// `(problems, certificate as JSON)`: what a fresh measurement says of a claim, or of the bound of balanced truncation without one.
#[pyfunction]
fn verify(py: Python<'_>, full: Given<'_>, reduced: Given<'_>, claim: Option<&str>) -> PyResult<(Vec<String>, String)> {
    let claim: Option<SystemCertificate> = claim
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| HankelError::new_err(format!("this is not a certificate: {error}")))?;
    let (full, reduced) = (system_of(full)?, system_of(reduced)?);
    let compute = || -> Result<_, ReduceError> { Ok(verify_layer(&analyse(full)?, &reduced, 1.0, claim.as_ref())?) };
    let found = py.detach(compute).map_err(refuse)?;
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
