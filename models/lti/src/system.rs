//! Discrete-time linear systems and the three forms of their state matrix.

mod origin;
mod units;

use super::continuous::{Bilinear, Original};
use super::coordinates::AsStored;
use super::eigen::Eigen;
use super::linalg::{above, beside, block_diagonal, eigenvalues, product, times_power_of_two};
use super::poles::{Pole, sin_cos};
use super::shared::Shared;
use super::{LtiError, Result};
use faer::{Mat, MatRef, c64};
use std::f64::consts::PI;
use std::sync::Arc;

/// One block of a state matrix in real modal form (R5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// A real pole: one state.
    Real(f64),
    /// A complex pair `radius * exp(+-i angle)`: two states, block `radius [cos -sin; sin cos]`.
    Pair {
        /// Modulus of both poles.
        radius: f64,
        /// Argument of the pole above the real axis, in (0, pi).
        angle: f64,
    },
}

impl Mode {
    /// Number of states of the block.
    pub fn states(self) -> usize {
        match self {
            Self::Real(_) => 1,
            Self::Pair { .. } => 2,
        }
    }

    /// Modulus and argument as stored on disk: real poles have the angle 0 or pi.
    pub fn polar(self) -> (f64, f64) {
        match self {
            Self::Real(a) => (a.abs(), if a < 0.0 { PI } else { 0.0 }),
            Self::Pair { radius, angle } => (radius, angle),
        }
    }

    /// The inverse of [`Mode::polar`]: the angles 0 and pi denote real poles, one state each.
    pub fn from_polar(radius: f64, angle: f64) -> Self {
        match angle {
            0.0 => Self::Real(radius),
            PI => Self::Real(-radius),
            _ => Self::Pair { radius, angle },
        }
    }

    /// The pole, for a pair the one with the stored angle.
    pub fn pole(self) -> Pole {
        match self {
            Self::Real(a) => Pole::real(a),
            Self::Pair { radius, angle } => Pole::polar(radius, angle),
        }
    }
}

/// The state matrix A in the form that is stored and run.
#[derive(Debug, Clone, PartialEq)]
pub enum StateMatrix {
    /// Real diagonal: the form an adapter is trained in.
    Diagonal(Vec<f64>),
    /// Real poles and 2x2 rotation-scaling blocks: the form of a truncated adapter.
    Modal(Vec<Mode>),
    /// Any square matrix.
    Dense(Mat<f64>),
}

impl StateMatrix {
    /// A square matrix in the least general form that holds exactly its entries: a modal matrix that was written out
    /// ([`StateMatrix::to_dense`]) is modal again.
    pub fn from_square(a: Mat<f64>) -> Self {
        let n = a.nrows();
        let mut modes = Vec::new();
        let mut inside = 0;
        let mut i = 0;
        while i < n {
            let real = i + 1 == n || (a[(i, i + 1)] == 0.0 && a[(i + 1, i)] == 0.0);
            let mode = if real {
                Mode::Real(a[(i, i)])
            } else {
                let (re, im) = (a[(i, i)], a[(i + 1, i)]);
                if im <= 0.0 || a[(i, i + 1)] != -im || a[(i + 1, i + 1)] != re {
                    return Self::Dense(a);
                }
                inside += 2;
                Mode::Pair { radius: re.hypot(im), angle: im.atan2(re) }
            };
            modes.push(mode);
            i += mode.states();
        }
        let nonzero = (0..n).flat_map(|j| (0..n).map(move |i| (i, j))).filter(|&(i, j)| i != j && a[(i, j)] != 0.0);
        if nonzero.count() != inside {
            return Self::Dense(a);
        }
        if inside == 0 { Self::Diagonal((0..n).map(|i| a[(i, i)]).collect()) } else { Self::Modal(modes) }
    }

    /// Number of states d.
    pub fn states(&self) -> usize {
        match self {
            Self::Diagonal(a) => a.len(),
            Self::Modal(modes) => modes.iter().map(|m| m.states()).sum(),
            Self::Dense(a) => a.nrows(),
        }
    }

    /// `"diagonal"` (all modes real, however they are stored), `"modal"` or `"dense"`.
    pub fn form(&self) -> &'static str {
        match self {
            Self::Diagonal(_) => "diagonal",
            Self::Modal(modes) if modes.iter().all(|mode| matches!(mode, Mode::Real(_))) => "diagonal",
            Self::Modal(_) => "modal",
            Self::Dense(_) => "dense",
        }
    }

    /// Blocks of a diagonal or modal matrix, `None` for a dense one.
    pub fn modes(&self) -> Option<Vec<Mode>> {
        match self {
            Self::Diagonal(a) => Some(a.iter().map(|&a| Mode::Real(a)).collect()),
            Self::Modal(modes) => Some(modes.clone()),
            Self::Dense(_) => None,
        }
    }

    /// The matrix written out, [d, d].
    pub fn to_dense(&self) -> Mat<f64> {
        if let Self::Dense(a) = self {
            return a.clone();
        }
        let mut out = Mat::zeros(self.states(), self.states());
        let mut i = 0;
        for mode in self.modes().unwrap_or_default() {
            match mode {
                Mode::Real(a) => out[(i, i)] = a,
                Mode::Pair { radius, angle } => {
                    let (sin, cos) = sin_cos(angle);
                    out[(i, i)] = radius * cos;
                    out[(i + 1, i + 1)] = radius * cos;
                    out[(i, i + 1)] = -radius * sin;
                    out[(i + 1, i)] = radius * sin;
                }
            }
            i += mode.states();
        }
        out
    }

    /// `A x` for x of shape [d, k].
    pub fn apply(&self, x: MatRef<'_, f64>) -> Mat<f64> {
        match self {
            Self::Dense(a) => product(a.as_ref(), x),
            Self::Diagonal(a) => Mat::from_fn(x.nrows(), x.ncols(), |i, j| a[i] * x[(i, j)]),
            Self::Modal(_) => product(self.to_dense().as_ref(), x),
        }
    }

    /// `[self 0; 0 other]`, in the least general form that holds both.
    pub fn block_diagonal(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Diagonal(a), Self::Diagonal(b)) => Self::Diagonal([a.as_slice(), b].concat()),
            _ => match (self.modes(), other.modes()) {
                (Some(a), Some(b)) => Self::Modal([a, b].concat()),
                _ => Self::Dense(block_diagonal(self.to_dense().as_ref(), other.to_dense().as_ref())),
            },
        }
    }

    /// Eigenvalue of largest modulus, that modulus, and its first state, of a diagonal or modal matrix.
    fn dominant(&self) -> Option<(c64, f64, Option<usize>)> {
        let mut state = 0;
        let mut worst: Option<(c64, f64, Option<usize>)> = None;
        for mode in self.modes().unwrap_or_default() {
            let pole = mode.pole();
            if worst.is_none_or(|w| pole.radius > w.1) {
                worst = Some((pole.value(), pole.radius, Some(state)));
            }
            state += mode.states();
        }
        worst
    }

    /// Modulus of the largest eigenvalue; 0 for a matrix without states.
    ///
    /// # Errors
    /// Eigenvalues that do not converge.
    pub fn spectral_radius(&self) -> Result<f64> {
        Ok(match self {
            Self::Dense(a) => largest(&eigenvalues(a.as_ref())?).map_or(0.0, |d| d.1),
            _ => self.dominant().map_or(0.0, |d| d.1),
        })
    }

    fn check_finite(&self) -> Result<()> {
        let bad = |row, value: f64| LtiError::NotFinite { what: "A".into(), row, column: row, value };
        match self {
            Self::Dense(a) => check_finite("A", a.as_ref()),
            Self::Diagonal(a) => a.iter().position(|v| !v.is_finite()).map_or(Ok(()), |i| Err(bad(i, a[i]))),
            Self::Modal(modes) => {
                for (i, mode) in modes.iter().enumerate() {
                    let (radius, angle) = mode.polar();
                    if !(radius + angle).is_finite() {
                        return Err(bad(i, if radius.is_finite() { angle } else { radius }));
                    }
                }
                Ok(())
            }
        }
    }
}

/// The value of largest modulus, and that modulus.
fn largest(values: &[c64]) -> Option<(c64, f64, Option<usize>)> {
    values.iter().map(|l| (*l, l.norm(), None)).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The stable system `x_{t+1} = A x_t + B u_t, y_t = C x_t (+ D u_t)` with transfer function
/// `G(z) = C (zI - A)^-1 B (+ D)`.
///
/// An HRM adapter reads its state after the update (`s_t = A s_{t-1} + B u_t, y_t = C s_t`); its transfer function is
/// `z G(z)`, so that every norm on the unit circle, every Gramian and every Hankel singular value is that of G.
#[derive(Debug, Clone)]
pub struct LinearSystem {
    a: StateMatrix,
    b: Laid,
    c: Laid,
    d: Option<Mat<f64>>,
    /// A as it was written out, where it was.
    written: Option<Mat<f64>>,
    /// The bilinear map, where this system is the image of one in continuous time.
    map: Option<Bilinear>,
    /// The direct term of that system in continuous time, where it has one.
    direct: Option<Mat<f64>>,
    /// The matrices of that system as they are stored, where they are known.
    image_of: Option<Arc<Original>>,
    /// The matrices as they are stored, in other states.
    stored: Option<Arc<AsStored>>,
    /// Eigenvalues of the diagonal blocks of a dense A; none for the other forms, which tell them.
    blocks: Vec<Arc<Eigen>>,
    /// Whether Gramians take modes for no slower than [`MIN_RATE`](crate::MIN_RATE), as those of adapters (R2).
    clamped: bool,
}

/// A matrix as it lies in memory.
#[derive(Debug, Clone)]
enum Laid {
    /// Column by column.
    Columns(Mat<f64>),
    /// Rows of a matrix of this shape, one after the other, in memory that is shared.
    Rows(Shared, (usize, usize)),
}

impl Laid {
    fn as_ref(&self) -> MatRef<'_, f64> {
        match self {
            Self::Columns(m) => m.as_ref(),
            Self::Rows(values, (rows, columns)) => MatRef::from_row_major_slice(values, *rows, *columns),
        }
    }
}

impl PartialEq for LinearSystem {
    fn eq(&self, other: &Self) -> bool {
        (self.a(), self.b(), self.c(), self.d(), self.written(), self.image_of())
            == (other.a(), other.b(), other.c(), other.d(), other.written(), other.image_of())
    }
}

impl LinearSystem {
    /// A system with A [d, d], B [d, m], C [p, d] and optionally D [p, m].
    ///
    /// # Errors
    /// Shapes that do not fit, entries that are not finite, an eigenvalue of A of modulus 1 or more.
    pub fn new(a: StateMatrix, b: Mat<f64>, c: Mat<f64>, d: Option<Mat<f64>>) -> Result<Self> {
        Self::with_any_poles(a, b, c, d)?.stable()
    }

    /// The system itself, if it is stable.
    ///
    /// # Errors
    /// An eigenvalue of A of modulus 1 or more.
    pub fn stable(self) -> Result<Self> {
        match self.dominant() {
            Some((value, modulus, state)) if modulus >= 1.0 => {
                Err(LtiError::Unstable { re: value.re, im: value.im, modulus, state })
            }
            _ => Ok(self),
        }
    }

    /// As [`LinearSystem::new`], with poles anywhere. Norms are then maxima over the unit circle; there are no Gramians.
    ///
    /// # Errors
    /// Shapes that do not fit, entries that are not finite.
    pub fn with_any_poles(a: StateMatrix, b: Mat<f64>, c: Mat<f64>, d: Option<Mat<f64>>) -> Result<Self> {
        Self::laid(a, Laid::Columns(b), Laid::Columns(c), d)
    }

    /// As [`LinearSystem::new`], of B [d, `inputs`] and C [`outputs`, d] that lie row by row, as in files, and stay where they are.
    ///
    /// # Errors
    /// Those of [`LinearSystem::new`].
    pub fn from_rows(a: StateMatrix, (b, inputs): (Shared, usize), (c, outputs): (Shared, usize)) -> Result<Self> {
        let d = a.states();
        for (what, values, expected) in [("B", &b, (d, inputs)), ("C", &c, (outputs, d))] {
            if values.len() != expected.0 * expected.1 {
                let got = (values.len().div_ceil(expected.1.max(1)), expected.1);
                return Err(LtiError::Shape { what: what.into(), expected, got });
            }
        }
        Self::laid(a, Laid::Rows(b, (d, inputs)), Laid::Rows(c, (outputs, d)), None)?.stable()
    }

    fn laid(a: StateMatrix, b: Laid, c: Laid, d: Option<Mat<f64>>) -> Result<Self> {
        Self::check(&a, b.as_ref(), c.as_ref(), d.as_ref().map(Mat::as_ref))?;
        let blocks = match &a {
            StateMatrix::Dense(a) => vec![Arc::new(Eigen::dense(a.as_ref())?)],
            _ => Vec::new(),
        };
        Ok(Self {
            a,
            b,
            c,
            d,
            written: None,
            map: None,
            direct: None,
            image_of: None,
            stored: None,
            blocks,
            clamped: true,
        })
    }

    /// Whether matrices are those of a system.
    ///
    /// # Errors
    /// Shapes that do not fit, entries that are not finite.
    pub fn check(a: &StateMatrix, b: MatRef<'_, f64>, c: MatRef<'_, f64>, d: Option<MatRef<'_, f64>>) -> Result<()> {
        let states = a.states();
        if let StateMatrix::Dense(a) = a {
            check_shape("A", a.as_ref(), (states, states))?;
        }
        check_shape("B", b, (states, b.ncols()))?;
        check_shape("C", c, (c.nrows(), states))?;
        a.check_finite()?;
        check_finite("B", b)?;
        check_finite("C", c)?;
        if let Some(d) = d {
            check_shape("D", d, (c.nrows(), b.ncols()))?;
            check_finite("D", d)?;
        }
        Ok(())
    }

    fn dominant(&self) -> Option<(c64, f64, Option<usize>)> {
        match self.a {
            StateMatrix::Dense(_) => {
                self.blocks.iter().filter_map(|block| largest(&block.values)).max_by(|a, b| a.1.total_cmp(&b.1))
            }
            _ => self.a.dominant(),
        }
    }

    /// The diagonal blocks of A with their eigenvalues.
    pub(super) fn blocks(&self) -> Vec<Arc<Eigen>> {
        match self.a.modes() {
            Some(modes) => vec![Arc::new(Eigen::modal(&modes, self.a.to_dense()))],
            None => self.blocks.clone(),
        }
    }

    /// State matrix.
    pub fn a(&self) -> &StateMatrix {
        &self.a
    }

    /// Input matrix, [d, m].
    pub fn b(&self) -> MatRef<'_, f64> {
        self.b.as_ref()
    }

    /// Output matrix, [p, d].
    pub fn c(&self) -> MatRef<'_, f64> {
        self.c.as_ref()
    }

    /// Direct term, [p, m], if there is one.
    pub fn d(&self) -> Option<MatRef<'_, f64>> {
        self.d.as_ref().map(Mat::as_ref)
    }

    /// Number of states.
    pub fn states(&self) -> usize {
        self.a.states()
    }

    /// Number of inputs m.
    pub fn inputs(&self) -> usize {
        self.b().ncols()
    }

    /// Number of outputs p.
    pub fn outputs(&self) -> usize {
        self.c().nrows()
    }

    /// The same system in another form of A or other coordinates; shapes and stability are checked again.
    ///
    /// # Errors
    /// Those of [`LinearSystem::new`].
    pub fn with_realization(&self, a: StateMatrix, b: Mat<f64>, c: Mat<f64>) -> Result<Self> {
        Self::new(a, b, c, self.d.clone())
    }

    /// `factor * C` and `factor * D` in place of C and D.
    pub fn scaled(&self, factor: f64) -> Self {
        let scale = faer::Scale(factor);
        Self {
            c: Laid::Columns(self.c() * scale),
            d: self.d.as_ref().map(|d| d * scale),
            image_of: None,
            stored: None,
            ..self.clone()
        }
    }

    /// The same system, whose Gramians take every mode for as slow as it is.
    #[must_use]
    pub fn unclamped(self) -> Self {
        Self { clamped: false, ..self }
    }

    /// Whether Gramians take slow modes for faster than they are.
    pub fn is_clamped(&self) -> bool {
        self.clamped
    }

    /// The system without its direct term.
    pub(super) fn without_direct_term(&self) -> Self {
        Self { d: None, ..self.clone() }
    }

    /// The system with another C, and without a direct term.
    pub(super) fn with_outputs_only(&self, c: Mat<f64>) -> Self {
        Self { c: Laid::Columns(c), d: None, map: None, image_of: None, stored: None, ..self.clone() }
    }

    /// The system with transfer function `G - other`, d + r states.
    ///
    /// # Errors
    /// Different numbers of inputs or outputs.
    pub fn difference(&self, other: &Self) -> Result<Self> {
        check_shape("B of the second system", other.b(), (other.states(), self.inputs()))?;
        check_shape("C of the second system", other.c(), (self.outputs(), other.states()))?;
        let minus = |m: MatRef<'_, f64>| m * faer::Scale(-1.0);
        let d = match (self.d(), other.d()) {
            (None, None) => None,
            (Some(d), None) => Some(d.to_owned()),
            (None, Some(e)) => Some(minus(e)),
            (Some(d), Some(e)) => Some(d - e),
        };
        let a = self.a.block_diagonal(&other.a);
        let blocks = match a {
            StateMatrix::Dense(_) => [self.blocks(), other.blocks()].concat(),
            _ => Vec::new(),
        };
        let (b, c) = (above(self.b(), other.b()), beside(self.c(), minus(other.c()).as_ref()));
        Ok(Self {
            a,
            blocks,
            written: None,
            map: None,
            image_of: None,
            stored: None,
            b: Laid::Columns(b),
            c: Laid::Columns(c),
            d,
            direct: None,
            clamped: self.clamped && other.clamped,
        })
    }

    /// The system `self` driven by the output of `first`: its transfer function is the product of both, its states are those of
    /// `self`, then those of `first`.
    ///
    /// # Errors
    /// `first` has another number of outputs than `self` has inputs.
    pub fn after(&self, first: &Self) -> Result<Self> {
        check_shape("C of the first system", first.c(), (self.inputs(), first.states()))?;
        let (n, k) = (self.states(), first.states());
        let coupling = product(self.b(), first.c());
        let a = if n == 0 || k == 0 || coupling.norm_max() == 0.0 {
            self.a.block_diagonal(&first.a)
        } else {
            let mut a = block_diagonal(self.a.to_dense().as_ref(), first.a.to_dense().as_ref());
            a.submatrix_mut(0, n, n, k).copy_from(&coupling);
            StateMatrix::Dense(a)
        };
        let (c, d) = match self.d() {
            Some(d) => (product(d, first.c()), first.d().map(|e| product(d, e))),
            None => (Mat::zeros(self.outputs(), k), None),
        };
        let b = first.d().map_or_else(|| Mat::zeros(n, first.inputs()), |e| product(self.b(), e));
        // Poles of a product may be rounded onto the circle; both factors are stable.
        Self::with_any_poles(a, above(b.as_ref(), first.b()), beside(self.c(), c.as_ref()), d)
    }

    /// `map` times the transfer function; [q, p].
    ///
    /// # Errors
    /// A map of another width, and results that are not finite.
    pub fn with_outputs(&self, map: MatRef<'_, f64>) -> Result<Self> {
        check_shape("the map of the outputs", map, (map.nrows(), self.outputs()))?;
        let d = self.d().map(|d| product(map, d));
        Self::new(self.a.clone(), self.b().to_owned(), product(map, self.c()), d)
    }

    /// The transfer function times `map`; [m, q].
    pub(super) fn with_inputs(&self, map: MatRef<'_, f64>) -> Result<Self> {
        let d = self.d().map(|d| product(d, map));
        Self::new(self.a.clone(), product(self.b(), map), self.c().to_owned(), d)
    }

    /// The transfer function times `2^exponent`, half of it at B and half at C.
    pub(super) fn times_power_of_two(&self, exponent: i32) -> Self {
        let half = exponent / 2;
        Self {
            a: self.a.clone(),
            b: Laid::Columns(times_power_of_two(self.b(), half)),
            c: Laid::Columns(times_power_of_two(self.c(), exponent - half)),
            d: self.d().map(|d| times_power_of_two(d, exponent)),
            written: self.written.clone(),
            map: self.map,
            direct: self.direct.clone(),
            image_of: None,
            stored: None,
            blocks: self.blocks.clone(),
            clamped: self.clamped,
        }
    }

    /// Modulus of the slowest pole.
    pub fn spectral_radius(&self) -> f64 {
        self.dominant().map_or(0.0, |d| d.1)
    }

    /// All poles, complex ones with their conjugates.
    pub fn eigenvalues(&self) -> Vec<c64> {
        match self.a.modes() {
            None => self.blocks.iter().flat_map(|block| block.values.iter().copied()).collect(),
            Some(modes) => modes
                .iter()
                .flat_map(|m| {
                    let value = m.pole().value();
                    std::iter::once(value).chain((m.states() == 2).then(|| value.conj()))
                })
                .collect(),
        }
    }
}

pub(crate) fn check_shape(what: &str, m: MatRef<'_, f64>, expected: (usize, usize)) -> Result<()> {
    let got = (m.nrows(), m.ncols());
    if got == expected { Ok(()) } else { Err(LtiError::Shape { what: what.into(), expected, got }) }
}

/// Whether all entries are finite. A line in memory has no early exit, so that the loop over it is one of vectors.
fn all_finite(m: MatRef<'_, f64>) -> bool {
    let m = if m.row_stride() == 1 { m } else { m.transpose() };
    m.col_iter().all(|column| match column.try_as_col_major() {
        Some(column) => column.as_slice().iter().fold(true, |all, x| all & x.is_finite()),
        None => column.is_all_finite(),
    })
}

fn check_finite(what: &str, m: MatRef<'_, f64>) -> Result<()> {
    if all_finite(m) {
        return Ok(());
    }
    for column in 0..m.ncols() {
        for row in 0..m.nrows() {
            let value = m[(row, column)];
            if !value.is_finite() {
                return Err(LtiError::NotFinite { what: what.into(), row, column, value });
            }
        }
    }
    Ok(())
}
