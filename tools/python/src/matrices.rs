//! Systems from numpy arrays, and matrices back.

use crate::{refuse, refuse_system};
use faer::{Mat, MatRef};
use hankel_files::system_file::{StoredSystem, Time};
use hankel_lti::{LinearSystem, LtiError, StateMatrix};
use hankel_reduce::Plant;
use numpy::ndarray::Array2;
use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;

/// A, B, C and D as they come, two-dimensional arrays of f64, and the sampling time: 0 for continuous time, none for steps of unknown length.
pub type Given<'py> = (
    PyReadonlyArray2<'py, f64>,
    PyReadonlyArray2<'py, f64>,
    PyReadonlyArray2<'py, f64>,
    Option<PyReadonlyArray2<'py, f64>>,
    Option<f64>,
);

/// A square matrix as an array.
pub type Square<'py> = Bound<'py, PyArray2<f64>>;

/// The system. Its matrices are copied: others may write to the arrays once the interpreter is released.
pub fn stored((a, b, c, d, step): &Given<'_>) -> StoredSystem {
    let written = matrix(a);
    let square = written.nrows() == written.ncols();
    let a = if square { StateMatrix::from_square(written.clone()) } else { StateMatrix::Dense(written.clone()) };
    let written = matches!(a, StateMatrix::Modal(_)).then_some(written);
    let time = match *step {
        Some(0.0) => Time::Continuous,
        None => Time::Unstated,
        step => Time::Discrete { step },
    };
    StoredSystem { a, written, turned: Vec::new(), b: matrix(b), c: matrix(c), d: d.as_ref().map(matrix), time }
}

/// The system ready to be reduced, which is stable. Decomposes A: not for under the interpreter's lock.
pub fn plant_of(stored: &StoredSystem) -> PyResult<Plant> {
    let plant = Plant::new(stored);
    // Far from normal, eigenvalues tell nothing.
    let is_far = plant.as_ref().is_ok_and(|plant| plant.system.stored().is_some());
    if stored.time != Time::Continuous && !is_far {
        LinearSystem::new(stored.a.clone(), stored.b.clone(), stored.c.clone(), stored.d.clone())
            .map_err(refuse_system)?;
    }
    let plant = plant.map_err(refuse)?;
    match plant.kept.a.states() {
        0 => Ok(plant),
        n => Err(refuse_system(LtiError::Unsupported(format!(
            "the system is not stable: {n} of its poles are not inside the stability boundary; the program bt keeps such poles and \
             reduces the rest"
        )))),
    }
}

fn matrix(array: &PyReadonlyArray2<'_, f64>) -> Mat<f64> {
    let view = array.as_array();
    let (rows, columns) = view.dim();
    Mat::from_fn(rows, columns, |i, j| view[[i, j]])
}

/// A new array, row by row.
pub fn to_array<'py>(py: Python<'py>, m: MatRef<'_, f64>) -> Bound<'py, PyArray2<f64>> {
    PyArray2::from_owned_array(py, Array2::from_shape_fn((m.nrows(), m.ncols()), |(i, j)| m[(i, j)]))
}
