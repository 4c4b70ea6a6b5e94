//! Plain linear systems as files of arrays: `A, B, C[, D][, dt]` in safetensors or npz.

use super::arrays::{self, Array, NamedArrays, Precision};
use super::error::{Result, WeightsError};
use super::npz;
use faer::{Mat, MatRef};
use hankel_lti::{LinearSystem, LtiError, Mode, StateMatrix};
use std::fmt;
use std::path::Path;

/// What to do with a file of MATLAB. Many have no D, and none says by itself whether it is sampled.
const MATLAB: &str = "MATLAB's files are not read; save the matrices as .npz, in Python: m = scipy.io.loadmat(FILE); \
    numpy.savez(OUT, dt=0, **{name: m[name] for name in 'ABCD' if name in m}), where dt is 0 in continuous time and else \
    the sampling time";

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

    /// The format of a file that is read.
    fn of_input(path: &Path) -> Result<Self> {
        Self::of(path).ok_or_else(|| {
            let matlab = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mat"));
            WeightsError::content(
                path,
                if matlab { MATLAB } else { "unknown kind of file; a file of arrays ends in .safetensors or .npz" },
            )
        })
    }

    /// The format of a file that is to be written.
    ///
    /// # Errors
    /// A name that ends in neither `.safetensors` nor `.npz`.
    pub fn of_output(path: &Path) -> Result<Self> {
        Self::of(path)
            .ok_or_else(|| WeightsError::content(path, "the name of an output must end in .safetensors or .npz"))
    }
}

/// Parses the arrays of a file held in memory, in the format its name says.
pub fn parse_arrays(path: &Path, bytes: &[u8]) -> Result<NamedArrays> {
    match ArrayFormat::of_input(path)? {
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
    match ArrayFormat::of_output(path)? {
        ArrayFormat::Safetensors => Ok(arrays::serialize(&named)),
        ArrayFormat::Npz => Ok(npz::serialize(&named)),
    }
}

/// The time that a system runs in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Time {
    /// `x' = A x + B u` is the next step.
    Discrete {
        /// Seconds per step; `None` where the file says that they are unknown. Nothing is computed with it.
        step: Option<f64>,
    },
    /// The file does not say; read as discrete.
    Unstated,
    /// `x' = A x + B u` is the derivative.
    Continuous,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Time::Discrete { step: Some(step) } => write!(f, "{step}"),
            Time::Discrete { step: None } => f.write_str("True"),
            Time::Unstated => f.write_str("not given"),
            Time::Continuous => f.write_str("0"),
        }
    }
}

/// A system as it lies in a file: `A, B, C[, D]` and its time. Its poles may be anywhere.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSystem {
    /// State matrix, d states.
    pub a: StateMatrix,
    /// A as it is written out, where that is modal: moduli and angles of the pairs have the rounding of that change.
    pub written: Option<Mat<f64>>,
    /// States whose sign is not the one of the file.
    pub turned: Vec<usize>,
    /// Input matrix, [d, m].
    pub b: Mat<f64>,
    /// Output matrix, [p, d].
    pub c: Mat<f64>,
    /// Direct term, [p, m].
    pub d: Option<Mat<f64>>,
    /// From the array `dt` or `Ts`; [`Time::Unstated`] where there is none.
    pub time: Time,
}

/// Names of arrays of a system.
const KNOWN: [&str; 11] = ["A", "a", "B", "b", "C", "c", "D", "d", "dt", "Ts", "E"];
/// Other arrays that a message names.
const SHOWN: usize = 5;
/// The arrays of a system, as messages name them.
const ARRAYS: &str = "a system has A, B, C and possibly D and dt";

impl StoredSystem {
    /// Reads the arrays `A, B, C[, D][, dt]` in upper or lower case: A of shape `[d]` (its diagonal) or `[d, d]`, B `[d, m]`, C
    /// `[p, d]`, D `[p, m]`. A vector is a column of B, a row of C, and of D what fits; a number is a matrix with one entry.
    /// `dt` is python-control's: the sampling time, 0 for continuous time, `True` for steps of unknown length; `Ts` is another
    /// name of it.
    ///
    /// # Errors
    /// Arrays that are missing, unexpected or misshapen, by name.
    pub fn parse(path: &Path, mut arrays: NamedArrays) -> Result<Self> {
        let fail = |reason: String| WeightsError::content(path, reason);
        let others: Vec<String> = arrays.keys().filter(|name| !KNOWN.contains(&&name[..])).cloned().collect();
        let mut take = |names: &[&str]| {
            let found: Vec<&str> = names.iter().copied().filter(|name| arrays.contains_key(*name)).collect();
            match found[..] {
                [] => Ok(None),
                [name] => Ok(arrays.remove(name)),
                _ => Err(fail(format!("it holds both {} and {}, which are the same", found[0], found[1]))),
            }
        };
        let more = if others.len() > SHOWN { ", ..." } else { "" };
        let shown = others[..others.len().min(SHOWN)].join(", ");
        let found = if others.is_empty() { String::new() } else { format!("; it holds {shown}{more}") };
        let missing = |name: &str| fail(format!("the array {name} is missing{found}; {ARRAYS}"));
        let a = take(&["A", "a"])?.ok_or_else(|| missing("A"))?;
        let b = take(&["B", "b"])?.ok_or_else(|| missing("B"))?;
        let c = take(&["C", "c"])?.ok_or_else(|| missing("C"))?;
        let (d, dt) = (take(&["D", "d"])?, take(&["dt", "Ts"])?);
        if arrays.contains_key("E") {
            let reason = "it is a descriptor system (it has E); solve E A' = A and E B' = B for A' and B' first";
            return Err(fail(reason.into()));
        }
        // One that is spelt wrongly would be another system, if it were left out in silence.
        let unknown: Vec<&str> = arrays.keys().map(String::as_str).collect();
        if !unknown.is_empty() {
            return Err(fail(format!(
                "unexpected {} {}; {ARRAYS}. Rename what is misspelt, and save the system without the rest: numpy.savez(\"system.npz\", A=A, \
                 B=B, C=C, D=D, dt=dt)",
                if unknown.len() == 1 { "array" } else { "arrays" },
                unknown.join(", ")
            )));
        }
        let mut turned = Vec::new();
        let (a, written) = match a.shape[..] {
            [] | [_] => (StateMatrix::Diagonal(a.data), None),
            [rows, columns] if rows == columns => {
                let mut written = matrix(rows, columns, &a);
                turned = turn_blocks(&mut written);
                (StateMatrix::from_square(written.clone()), Some(written))
            }
            [..] => return Err(fail(format!("A has shape {:?}, expected [d] (a diagonal) or [d, d]", a.shape))),
        };
        let states = a.states();
        // A vector where a matrix is meant: along the states, or, of a single state, along the inputs or outputs.
        let of = |name: &str, array: &Array, vector: fn(usize, usize) -> (usize, usize)| match array.shape[..] {
            [rows, columns] => Ok(matrix(rows, columns, array)),
            [n] => {
                let (rows, columns) = vector(n, states);
                Ok(matrix(rows, columns, array))
            }
            [] => Ok(matrix(1, 1, array)),
            [..] => Err(fail(format!("{name} has shape {:?}, expected two dimensions", array.shape))),
        };
        let mut b = of("B", &b, |n, states| if states == 1 { (1, n) } else { (n, 1) })?;
        let mut c = of("C", &c, |n, states| if states == 1 { (n, 1) } else { (1, n) })?;
        for &state in &turned {
            (0..if state < b.nrows() { b.ncols() } else { 0 }).for_each(|j| b[(state, j)] = -b[(state, j)]);
            (0..if state < c.ncols() { c.nrows() } else { 0 }).for_each(|i| c[(i, state)] = -c[(i, state)]);
        }
        let d = d.map(|d| match d.shape[..] {
            [n] if b.ncols() == 1 => Ok(matrix(n, 1, &d)),
            _ => of("D", &d, |n, _| (1, n)),
        });
        let time = match dt.as_ref().map(|dt| (&dt.data[..], dt.is_bool)) {
            // python-control writes True for a step of unknown length.
            None => Time::Unstated,
            Some(([1.0], true)) => Time::Discrete { step: None },
            Some(([0.0], _)) => Time::Continuous,
            Some(([step], _)) if *step > 0.0 => Time::Discrete { step: Some(*step) },
            Some((other, _)) => {
                let values: Vec<String> = other.iter().map(f64::to_string).collect();
                return Err(fail(format!(
                    "dt (or Ts) is {}; it must be a sampling time, 0 for continuous time, or True for steps of unknown length",
                    values.join(", ")
                )));
            }
        };
        let written = written.filter(|_| matches!(a, StateMatrix::Modal(_)));
        Ok(Self { a, written, turned, b, c, d: d.transpose()?, time })
    }

    /// The matrices of a system.
    pub fn new(system: &LinearSystem, time: Time) -> Self {
        let d = system.d().map(|d| d.to_owned());
        let written = system.written().map(|a| a.to_owned());
        Self {
            a: system.a().clone(),
            written,
            turned: Vec::new(),
            b: system.b().to_owned(),
            c: system.c().to_owned(),
            d,
            time,
        }
    }

    /// The system in discrete time.
    ///
    /// # Errors
    /// Those of [`LinearSystem::new`]; continuous time.
    pub fn system(&self) -> std::result::Result<LinearSystem, LtiError> {
        if self.time == Time::Continuous {
            return Err(LtiError::Unsupported(
                "it is in continuous time (dt = 0); discrete time is needed here".into(),
            ));
        }
        let system = LinearSystem::new(self.a.clone(), self.b.clone(), self.c.clone(), self.d.clone())?;
        match &self.written {
            Some(a) => system.with_written(a.clone()),
            None => Ok(system),
        }
    }

    /// The system that a reader of [`StoredSystem::arrays`] gets: a pair written out as a matrix has its rounding in the pole.
    #[must_use]
    pub fn as_written(self) -> Self {
        if let Some(poles) = self.real_modes() {
            return Self { a: StateMatrix::Diagonal(poles), written: None, ..self };
        }
        let written = self.written.unwrap_or_else(|| self.a.to_dense());
        let a = StateMatrix::from_square(written.clone());
        let written = matches!(a, StateMatrix::Modal(_)).then_some(written);
        Self { a, written, ..self }
    }

    /// The poles where all modes are real.
    fn real_modes(&self) -> Option<Vec<f64>> {
        let modes = self.a.modes()?;
        modes.iter().map(|mode| if let Mode::Real(a) = mode { Some(*a) } else { None }).collect()
    }

    /// Its arrays in f64: A as a diagonal where it has real modes only, else written out.
    pub fn arrays(&self) -> NamedArrays {
        let mut named = NamedArrays::new();
        let mut put = |name: &str, shape: Vec<usize>, data: Vec<f64>| {
            named.insert(name.into(), Array::new(shape, data, Precision::F64));
        };
        let flat = |m: MatRef<'_, f64>| (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect();
        let n = self.a.states();
        if let Some(poles) = self.real_modes() {
            put("A", vec![n], poles);
        } else {
            let a = self.written.clone().unwrap_or_else(|| self.a.to_dense());
            put("A", vec![n, n], flat(a.as_ref()));
        }
        put("B", vec![n, self.b.ncols()], flat(self.b.as_ref()));
        put("C", vec![self.c.nrows(), n], flat(self.c.as_ref()));
        if let Some(d) = &self.d {
            put("D", vec![d.nrows(), d.ncols()], flat(d.as_ref()));
        }
        match self.time {
            Time::Continuous => put("dt", vec![], vec![0.0]),
            Time::Discrete { step: Some(step) } => put("dt", vec![], vec![step]),
            Time::Discrete { step: None } => {
                let unknown = Array { is_bool: true, ..Array::new(vec![], vec![1.0], Precision::F64) };
                named.insert("dt".into(), unknown);
            }
            Time::Unstated => {}
        }
        named
    }

    /// [`StoredSystem::arrays`] as the bytes of a file.
    ///
    /// # Errors
    /// A name that ends in neither `.safetensors` nor `.npz`.
    pub fn to_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let named = self.arrays();
        match ArrayFormat::of_output(path)? {
            ArrayFormat::Safetensors => Ok(arrays::serialize(&named)),
            ArrayFormat::Npz => Ok(npz::serialize(&named)),
        }
    }
}

/// Changes the sign of the second state of each block `[[re, im], [-im, re]]`, the other of two conventions, so that the matrix is modal.
/// Returns these states. If the matrix would still not be modal, it stays unchanged and none are returned.
fn turn_blocks(a: &mut Mat<f64>) -> Vec<usize> {
    let n = a.nrows();
    let is_block = |i: usize| {
        let (upper, lower) = (a[(i, i + 1)], a[(i + 1, i)]);
        upper > 0.0 && lower == -upper && a[(i, i)] == a[(i + 1, i + 1)]
    };
    let turned: Vec<usize> = (0..n.saturating_sub(1)).filter(|&i| is_block(i)).map(|i| i + 1).collect();
    let mut other = a.clone();
    for &state in &turned {
        for i in (0..n).filter(|&i| i != state) {
            (other[(i, state)], other[(state, i)]) = (-other[(i, state)], -other[(state, i)]);
        }
    }
    if turned.is_empty() || !matches!(StateMatrix::from_square(other.clone()), StateMatrix::Modal(_)) {
        return Vec::new();
    }
    *a = other;
    turned
}

fn matrix(rows: usize, columns: usize, array: &Array) -> Mat<f64> {
    Mat::from_fn(rows, columns, |i, j| array.data[i * columns + j])
}

/// The arrays of a system in discrete time, in f64: A as a diagonal where it has real modes only, else written out.
pub fn system_arrays(system: &LinearSystem) -> NamedArrays {
    StoredSystem::new(system, Time::Unstated).arrays()
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
                let written = || StoredSystem::new(&system, Time::Unstated).to_bytes(path).unwrap();
                let bytes = written();
                assert_eq!(written(), bytes);
                let back = StoredSystem::parse(path, parse_arrays(path, &bytes).unwrap()).unwrap().system().unwrap();
                // A modal matrix that was written out is known by its entries, too.
                let system = system.clone().with_written(system.a().to_dense()).unwrap();
                assert_eq!(back, system);
                let stored = StoredSystem::new(&system, Time::Unstated);
                assert_eq!(
                    StoredSystem::parse(path, parse_arrays(path, &bytes).unwrap()).unwrap(),
                    stored.as_written()
                );
            }
        }
    }

    fn array(shape: &[usize], data: &[f64]) -> Array {
        Array::new(shape.to_vec(), data.to_vec(), Precision::F64)
    }

    /// What `numpy.savez` makes of a system with one input and one output, of `control.ss`, and of lists.
    #[test]
    fn vectors_numbers_and_lower_case_names_are_a_system() {
        let parse = |arrays: Vec<(&str, Array)>| {
            StoredSystem::parse(Path::new("s.npz"), arrays.into_iter().map(|(n, a)| (n.to_string(), a)).collect())
        };
        let two = [0.5, 0.25];
        let read = parse(vec![
            ("a", array(&[2], &two)),
            ("b", array(&[2], &[1.0, 2.0])),
            ("c", array(&[2], &[3.0, 4.0])),
            ("d", array(&[], &[5.0])),
            ("dt", array(&[], &[0.1])),
        ])
        .unwrap();
        assert_eq!((read.b.shape(), read.c.shape()), ((2, 1), (1, 2)));
        assert_eq!((read.c[(0, 1)], read.d.as_ref().unwrap()[(0, 0)]), (4.0, 5.0));
        assert_eq!(read.time, Time::Discrete { step: Some(0.1) });
        assert_eq!(read.system().unwrap().states(), 2);
        for name in ["s.npz", "s.safetensors"] {
            let path = Path::new(name);
            let back = StoredSystem::parse(path, parse_arrays(path, &read.to_bytes(path).unwrap()).unwrap()).unwrap();
            assert_eq!(back, read);
        }
        // One state with three inputs and two outputs.
        let one = parse(vec![
            ("A", array(&[], &[0.5])),
            ("B", array(&[3], &[1.0, 2.0, 3.0])),
            ("C", array(&[2], &[1.0, 2.0])),
            ("dt", Array { is_bool: true, ..array(&[], &[1.0]) }),
        ])
        .unwrap();
        assert_eq!((one.b.shape(), one.c.shape(), one.time), ((1, 3), (2, 1), Time::Discrete { step: None }));
        // It is written as it was read.
        for name in ["one.npz", "one.safetensors"] {
            let path = Path::new(name);
            let again = StoredSystem::parse(path, parse_arrays(path, &one.to_bytes(path).unwrap()).unwrap()).unwrap();
            assert_eq!(again, one);
        }
        let continuous = parse(vec![
            ("A", array(&[2], &[-1.0, -2.0])),
            ("B", array(&[2], &two)),
            ("C", array(&[2, 2], &[1.0; 4])),
            ("D", array(&[2], &two)),
            ("dt", array(&[], &[0.0])),
        ])
        .unwrap();
        assert_eq!((continuous.d.as_ref().unwrap().shape(), continuous.time), ((2, 1), Time::Continuous));
        assert!(continuous.system().unwrap_err().to_string().contains("continuous time"));
    }

    /// Both customs of writing a pair of poles are modal, with the same transfer function.
    #[test]
    fn pairs_of_either_custom_are_modal() {
        let parse = |a: &[f64]| {
            let arrays =
                [("A", array(&[3, 3], a)), ("B", array(&[3], &[1.0, 2.0, 3.0])), ("C", array(&[3], &[4.0, 5.0, 6.0]))];
            let arrays = arrays.into_iter().map(|(name, array)| (name.to_owned(), array)).collect();
            StoredSystem::parse(Path::new("s.npz"), arrays).unwrap()
        };
        let found = parse(&[0.5, 0.3, 0.0, -0.3, 0.5, 0.0, 0.0, 0.0, 0.25]);
        assert!(matches!(found.a, StateMatrix::Modal(_)));
        assert_eq!(found.written.as_ref().unwrap()[(1, 0)], 0.3);
        assert_eq!([found.b[(1, 0)], found.b[(2, 0)], found.c[(0, 1)], found.c[(0, 2)]], [-2.0, 3.0, -5.0, 6.0]);
        // Coupled blocks are dense, and stay as they were.
        let dense = parse(&[0.5, 0.3, 0.1, -0.3, 0.5, 0.0, 0.0, 0.0, 0.25]);
        assert!(matches!(&dense.a, StateMatrix::Dense(a) if a[(0, 1)] == 0.3) && dense.b[(1, 0)] == 2.0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |name: &str, arrays: &[(&str, MatRef<'_, f64>)]| {
            let path = Path::new(name);
            let bytes = arrays_to_bytes(path, arrays)?;
            StoredSystem::parse(path, parse_arrays(path, &bytes)?).map(|_| ())
        };
        let m = Mat::<f64>::identity(2, 2);
        let m = m.as_ref();
        let error = message("s.npz", &[("A", m), ("B", m)]).unwrap_err().to_string();
        assert_eq!(error, "s.npz: the array C is missing; a system has A, B, C and possibly D and dt");
        let error = message("s.npz", &[("arr_0", m), ("arr_1", m)]).unwrap_err().to_string();
        assert!(error.starts_with("s.npz: the array A is missing; it holds arr_0, arr_1; a system has A"), "{error}");
        let error = message("s.npz", &[("A", m), ("B", m), ("C", m), ("F", m)]).unwrap_err().to_string();
        assert!(error.contains("unexpected array F;"));
        let error = message("s.npz", &[("A", m), ("B", m), ("C", m), ("d_", m), ("x0", m)]).unwrap_err().to_string();
        assert!(error.contains("unexpected arrays d_, x0;") && error.contains("numpy.savez"), "{error}");
        let error = message("s.npz", &[("A", m), ("B", m), ("C", m), ("E", m)]).unwrap_err().to_string();
        assert!(error.contains("descriptor system"));
        let error = message("s.npz", &[("A", m), ("a", m), ("B", m), ("C", m)]).unwrap_err().to_string();
        assert!(error.contains("both A and a"));
        let error = message("s.npz", &[("A", m), ("B", m), ("C", m), ("dt", m)]).unwrap_err().to_string();
        assert!(error.contains("dt (or Ts) is 1, 0, 0, 1; it must be a sampling time"));
        let nan = Mat::from_fn(2, 2, |_, _| f64::NAN);
        let error = message("s.npz", &[("A", nan.as_ref()), ("B", m), ("C", m)]).unwrap_err().to_string();
        assert!(error.contains("A holds NaN at [0, 0]"));
        let error = parse_arrays(Path::new("s.npz"), b"PK nonsense").unwrap_err().to_string();
        assert!(error.starts_with("s.npz is not a readable npz file"));
        assert!(parse_arrays(Path::new("s.txt"), b"").unwrap_err().to_string().contains(".safetensors or .npz"));
        let error = parse_arrays(Path::new("s.mat"), b"").unwrap_err().to_string();
        for words in
            ["scipy.io.loadmat", "dt=0, ", "if name in m", "dt is 0 in continuous time and else the sampling time"]
        {
            assert!(error.contains(words), "{error}");
        }
        // What is to be written is not what could not be read.
        let system = StoredSystem::new(&example(), Time::Unstated);
        for name in ["s.mat", "s.txt", "s"] {
            for error in [arrays_to_bytes(Path::new(name), &[("A", m)]), system.to_bytes(Path::new(name))] {
                let error = error.unwrap_err().to_string();
                assert!(error.contains("must end in .safetensors or .npz") && !error.contains("MATLAB"), "{error}");
            }
        }
    }
}
