//! Plain linear systems as files of arrays: `A, B, C[, D]` in safetensors or npz.

use super::arrays::{self, Array, NamedArrays, Precision};
use super::atomic::write_file;
use super::error::{Result, WeightsError};
use crate::lti::{LinearSystem, LtiError, StateMatrix};
use faer::{Mat, MatRef};
use npyz::WriterBuilder;
use std::io::{Cursor, Read};
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
        ArrayFormat::Npz => parse_npz(path, bytes),
    }
}

/// Writes arrays in f64, atomically, in the format the name says.
pub fn write_arrays(path: &Path, arrays: &[(&str, MatRef<'_, f64>)]) -> Result<()> {
    let bytes = arrays_to_bytes(path, arrays)?;
    write_file(path, &bytes)
}

/// The bytes of a file of arrays in f64; arrays named in `one_dimensional` must have one row and lose it.
pub fn arrays_to_bytes(path: &Path, arrays: &[(&str, MatRef<'_, f64>)]) -> Result<Vec<u8>> {
    let named: NamedArrays = arrays
        .iter()
        .map(|(name, m)| {
            let data = (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect();
            // By convention of this file format a single row is a diagonal of A or a list of values.
            let shape = if is_vector(name) { vec![m.ncols()] } else { vec![m.nrows(), m.ncols()] };
            ((*name).to_string(), Array::new(shape, data, Precision::F64))
        })
        .collect();
    match ArrayFormat::require(path)? {
        ArrayFormat::Safetensors => Ok(arrays::serialize(&named)),
        ArrayFormat::Npz => write_npz(&named).map_err(WeightsError::io("write", path)),
    }
}

/// Names of arrays that are lists.
fn is_vector(name: &str) -> bool {
    matches!(name, "hankel_singular_values" | "a")
}

/// Reads a system `A, B, C[, D]`: A of shape [d] (its diagonal) or [d, d], B [d, m], C [p, d], D [p, m].
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
    let real: Option<Vec<f64>> = system.a().modes().and_then(|modes| {
        modes.iter().map(|m| if let crate::lti::Mode::Real(a) = m { Some(*a) } else { None }).collect()
    });
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
        ArrayFormat::Npz => write_npz(&named).map_err(WeightsError::io("write", path)),
    }
}

fn parse_npz(path: &Path, bytes: &[u8]) -> Result<NamedArrays> {
    let malformed = |reason: String| WeightsError::Malformed { path: path.to_path_buf(), kind: "npz file", reason };
    let mut archive = npyz::npz::NpzArchive::new(Cursor::new(bytes)).map_err(|e| malformed(e.to_string()))?;
    let names: Vec<String> = archive.array_names().map(String::from).collect();
    let mut out = NamedArrays::new();
    for name in names {
        let file = archive
            .by_name(&name)
            .map_err(|e| malformed(format!("{name}: {e}")))?
            .ok_or_else(|| malformed(format!("{name} is listed and not there")))?;
        let array = read_npy(&name, file).map_err(|reason| malformed(format!("{name}: {reason}")))?;
        if let Some((index, value)) = array.first_non_finite() {
            return Err(WeightsError::content(
                path,
                format!("{name} holds {value} at {index:?}; every value must be finite"),
            ));
        }
        out.insert(name, array);
    }
    Ok(out)
}

fn read_npy<R: Read>(name: &str, file: npyz::NpyFile<R>) -> std::result::Result<Array, String> {
    let shape: Vec<usize> = file.shape().iter().map(|&n| n as usize).collect();
    // A header may promise more than memory holds; a system never needs that much.
    let size = shape.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).filter(|&n| n <= 1 << 31);
    let size = size.ok_or_else(|| format!("shape {shape:?} is too large"))?;
    let fortran = file.order() == npyz::Order::Fortran;
    let dtype = file.dtype().descr();
    let (data, precision) = match dtype.trim_matches('\'') {
        "<f8" | ">f8" => (file.into_vec::<f64>().map_err(|e| e.to_string())?, Precision::F64),
        "<f4" | ">f4" => {
            let data = file.into_vec::<f32>().map_err(|e| e.to_string())?;
            (data.into_iter().map(f64::from).collect(), Precision::F32)
        }
        other => return Err(format!("element type {other}; expected float64 or float32 ({name}.astype(float))")),
    };
    if data.len() != size {
        return Err(format!("{} values for shape {shape:?}", data.len()));
    }
    let data = match shape[..] {
        [rows, cols] if fortran => (0..size).map(|k| data[k / cols + (k % cols) * rows]).collect(),
        [_] | [_, _] | [] => data,
        _ if fortran => return Err("arrays of more than two dimensions must be in C order".into()),
        _ => data,
    };
    Ok(Array::new(shape, data, precision))
}

fn write_npz(arrays: &NamedArrays) -> std::io::Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    {
        let mut writer = npyz::npz::NpzWriter::new(&mut bytes);
        for (name, array) in arrays {
            let shape: Vec<u64> = array.shape.iter().map(|&n| n as u64).collect();
            // No compression and no time stamp: equal arrays give equal bytes, which the certificate's hashes rely on.
            let options = npyz::zip::write::FileOptions::default()
                .compression_method(npyz::zip::CompressionMethod::Stored)
                .last_modified_time(npyz::zip::DateTime::default());
            let mut npy = writer.array::<f64>(name, options)?.default_dtype().shape(&shape).begin_nd()?;
            npy.extend(array.data.iter().copied())?;
            npy.finish()?;
        }
        writer.zip_writer().finish().map_err(std::io::Error::other)?;
    }
    Ok(bytes.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> LinearSystem {
        let a = Mat::from_fn(2, 2, |i, j| if i == j { 0.5 } else { 0.1 * (i as f64 - j as f64) });
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
        for name in ["s.safetensors", "s.npz"] {
            for system in [example(), diagonal.clone()] {
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
