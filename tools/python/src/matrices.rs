//! Systems from numpy arrays, and matrices back.

use crate::refuse_system;
use faer::{Mat, MatRef};
use hankel_lti::{LinearSystem, StateMatrix};
use numpy::ndarray::Array2;
use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;

/// A, B, C and D as they come: two-dimensional arrays of f64.
pub type Given<'py> = (
    PyReadonlyArray2<'py, f64>,
    PyReadonlyArray2<'py, f64>,
    PyReadonlyArray2<'py, f64>,
    Option<PyReadonlyArray2<'py, f64>>,
);

/// A square matrix as an array.
pub type Square<'py> = Bound<'py, PyArray2<f64>>;

/// The system. Its matrices are copied: others may write to the arrays once the interpreter is released.
pub fn system_of((a, b, c, d): Given<'_>) -> PyResult<LinearSystem> {
    let a = matrix(&a);
    let a = if a.nrows() == a.ncols() { StateMatrix::from_square(a) } else { StateMatrix::Dense(a) };
    LinearSystem::new(a, matrix(&b), matrix(&c), d.as_ref().map(matrix)).map_err(refuse_system)
}

fn matrix(array: &PyReadonlyArray2<'_, f64>) -> Mat<f64> {
    let view = array.as_array();
    let (rows, columns) = view.dim();
    Mat::from_fn(rows, columns, |i, j| view[[i, j]])
}

/// The system with A written out as a matrix, which is what a caller gets.
pub fn written_out(system: &LinearSystem) -> hankel_lti::Result<LinearSystem> {
    let a = StateMatrix::from_square(system.a().to_dense());
    LinearSystem::new(a, system.b().to_owned(), system.c().to_owned(), system.d().map(|d| d.to_owned()))
}

/// A new array, row by row.
pub fn to_array<'py>(py: Python<'py>, m: MatRef<'_, f64>) -> Bound<'py, PyArray2<f64>> {
    PyArray2::from_owned_array(py, Array2::from_shape_fn((m.nrows(), m.ncols()), |(i, j)| m[(i, j)]))
}
