//! Plain linear systems as files of arrays: `A, B, C[, D]` in safetensors or npz.

use super::arrays::{self, Array, NamedArrays, Precision};
use super::error::{Result, WeightsError};
use super::npz;
use faer::{Mat, MatRef};
use hankel_lti::{LinearSystem, LtiError, Mode, StateMatrix};
use std::path::Path;

/// The two kinds of files, by extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayFormat {
    /// `.safetensors`.
    Safetensors,
    /// `.npz`, as numpy's `savez` writes it.
    Npz,
}

impl ArrayFormat {
    /// The format a path's extension stands for.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "safetensors" => Some(Self::Safetensors),
            "npz" => Some(Self::Npz),
            _ => None,
        }
    }

    fn require(path: &Path) -> Result<Self> {
        Self::of(path).ok_or_else(|| {
            WeightsError::content(path, "unknown kind of file; a file of arrays ends in .safetensors or .npz")
        })
    }
}

/// Parses the arrays of a file held in memory, in the format its name says.
pub fn parse_arrays(path: &Path, bytes: &[u8]) -> Result<NamedArrays> {
    match ArrayFormat::require(path)? {
        ArrayFormat::Safetensors => arrays::parse(path, bytes),
        ArrayFormat::Npz => npz::parse(path, bytes),
    }
}

/// The bytes of a file of arrays in f64. An array called `hsv` (or `... .hsv`) is a list and must have one row.
pub fn arrays_to_bytes(path: &Path, arrays: &[(&str, MatRef<'_, f64>)]) -> Result<Vec<u8>> {
    let named: NamedArrays = arrays
        .iter()
        .map(|(name, m)| {
            let data = (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect();
            let shape = if *name == "hsv" || name.rsplit_once('.').is_some_and(|n| n.1 == "hsv") {
                vec![m.ncols()]
            } else {
                vec![m.nrows(), m.ncols()]
            };
            ((*name).to_string(), Array::new(shape, data, Precision::F64))
        })
        .collect();
    match ArrayFormat::require(path)? {
        ArrayFormat::Safetensors => Ok(arrays::serialize(&named)),
        ArrayFormat::Npz => Ok(npz::serialize(&named)),
    }
}

/// Reads a system `A, B, C[, D]`: A of shape `[d]` (its diagonal) or `[d, d]`, B `[d, m]`, C `[p, d]`, D `[p, m]`.
///
/// # Errors
/// Arrays that are missing, unexpected or misshapen, by name.
pub fn system_from_arrays(path: &Path, mut arrays: NamedArrays) -> Result<std::result::Result<LinearSystem, LtiError>> {
    let mut take = |name: &str| arrays.remove(name);
    let missing = |name: &str| {
        WeightsError::content(path, format!("the array {name} is missing; a system has A, B, C and possibly D"))
    };
    let (a, b, c) = (
        take("A").ok_or_else(|| missing("A"))?,
        take("B").ok_or_else(|| missing("B"))?,
        take("C").ok_or_else(|| missing("C"))?,
    );
    let d = take("D");
    if let Some(extra) = arrays.keys().next() {
        return Err(WeightsError::content(
            path,
            format!("unexpected array {extra}; a system has A, B, C and possibly D"),
        ));
    }
    let matrix = |name: &str, array: &Array| match array.shape[..] {
        [rows, cols] => Ok(Mat::from_fn(rows, cols, |i, j| array.data[i * cols + j])),
        _ => Err(WeightsError::content(path, format!("{name} has shape {:?}, expected two dimensions", array.shape))),
    };
    let a = match a.shape[..] {
        [_] => StateMatrix::Diagonal(a.data),
        [rows, columns] if rows == columns => StateMatrix::from_square(matrix("A", &a)?),
        [_, _] => StateMatrix::Dense(matrix("A", &a)?),
        _ => {
            return Err(WeightsError::content(
                path,
                format!("A has shape {:?}, expected [d] (a diagonal) or [d, d]", a.shape),
            ));
        }
    };
    let d = d.map(|d| matrix("D", &d)).transpose()?;
    Ok(LinearSystem::new(a, matrix("B", &b)?, matrix("C", &c)?, d))
}

/// The arrays of a system: A as a diagonal where it has real modes only, else written out.
pub fn system_to_bytes(path: &Path, system: &LinearSystem) -> Result<Vec<u8>> {
    let real: Option<Vec<f64>> = system
        .a()
        .modes()
        .and_then(|modes| modes.iter().map(|m| if let Mode::Real(a) = m { Some(*a) } else { None }).collect());
    let mut named = NamedArrays::new();
    let mut put = |name: &str, shape: Vec<usize>, data: Vec<f64>| {
        named.insert(name.into(), Array::new(shape, data, Precision::F64));
    };
    let flat = |m: MatRef<'_, f64>| (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect();
    let n = system.states();
    match real {
        Some(poles) => put("A", vec![n], poles),
        None => put("A", vec![n, n], flat(system.a().to_dense().as_ref())),
    }
    put("B", vec![n, system.inputs()], flat(system.b()));
    put("C", vec![system.outputs(), n], flat(system.c()));
    if let Some(d) = system.d() {
        put("D", vec![system.outputs(), system.inputs()], flat(d));
    }
    match ArrayFormat::require(path)? {
        ArrayFormat::Safetensors => Ok(arrays::serialize(&named)),
        ArrayFormat::Npz => Ok(npz::serialize(&named)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> LinearSystem {
        let a = Mat::from_fn(2, 2, |i, j| if i == j { 0.5 } else { 0.1 * (i as f64 - 2.0 * j as f64) });
        let (b, c) = (Mat::from_fn(2, 3, |i, j| (i + 2 * j) as f64), Mat::from_fn(1, 2, |_, j| j as f64 - 0.5));
        LinearSystem::new(StateMatrix::Dense(a), b, c, Some(Mat::from_fn(1, 3, |_, j| j as f64))).unwrap()
    }

    #[test]
    fn systems_survive_both_formats() {
        let diagonal = LinearSystem::new(
            StateMatrix::Diagonal(vec![0.9, -0.5]),
            example().b().to_owned(),
            example().c().to_owned(),
            None,
        )
        .unwrap();
        let pair = Mode::Pair { radius: 0.5, angle: 1.0 };
        let modal = |modes| LinearSystem::new(modes, Mat::ones(3, 1), Mat::ones(1, 3), None).unwrap();
        let modal = modal(StateMatrix::Modal(vec![Mode::Real(0.25), pair]));
        for name in ["s.safetensors", "s.npz"] {
            for system in [example(), diagonal.clone(), modal.clone()] {
                let path = Path::new(name);
                let bytes = system_to_bytes(path, &system).unwrap();
                assert_eq!(system_to_bytes(path, &system).unwrap(), bytes);
                let back = system_from_arrays(path, parse_arrays(path, &bytes).unwrap()).unwrap().unwrap();
                assert_eq!(back, system);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |name: &str, arrays: &[(&str, MatRef<'_, f64>)]| {
            let path = Path::new(name);
            let bytes = arrays_to_bytes(path, arrays)?;
            system_from_arrays(path, parse_arrays(path, &bytes)?).map(|_| ())
        };
        let m = Mat::<f64>::identity(2, 2);
        let m = m.as_ref();
        let error = message("s.npz", &[("A", m), ("B", m)]).unwrap_err().to_string();
        assert_eq!(error, "s.npz: the array C is missing; a system has A, B, C and possibly D");
        let error = message("s.npz", &[("A", m), ("B", m), ("C", m), ("E", m)]).unwrap_err().to_string();
        assert!(error.contains("unexpected array E"));
        let nan = Mat::from_fn(2, 2, |_, _| f64::NAN);
        let error = message("s.npz", &[("A", nan.as_ref()), ("B", m), ("C", m)]).unwrap_err().to_string();
        assert!(error.contains("A holds NaN at [0, 0]"));
        let error = parse_arrays(Path::new("s.npz"), b"PK nonsense").unwrap_err().to_string();
        assert!(error.starts_with("s.npz is not a readable npz file"));
        assert!(parse_arrays(Path::new("s.mat"), b"").unwrap_err().to_string().contains(".safetensors or .npz"));
    }
}
