//! Proofs that the H-infinity norm of a system is below a level.
//!
//! `||C (zI - A)^-1 B|| < 1`, and A is stable, if there is a matrix P with
//!
//! ```text
//! K = [ P - V   (P A)^T   ]  > 0          W >= B B^T,  V >= C^T C
//!     [ P A     P - P W P ]
//! ```
//!
//! (the bounded-real lemma: with the second row and column divided by P this is `P - V - A^T (P^-1 - W)^-1 A > 0`). P comes from a
//! Riccati equation, in floating point ([`riccati`]). Then K is enclosed, with every rounding, by matrices of twice the precision, and all
//! matrices enclosed are shown to be positive definite ([`enclosed`]). So the proof depends neither on how P was found nor on a search over
//! frequencies, and the entries of A, B, C and D are taken as they are stored.
//!
//! # Coordinates
//!
//! The difference of two systems that nearly agree is hardly controllable: P in the coordinates of the states would need more digits
//! than there are. So the states are `x = T z` with `T T^T` near the controllability Gramian. There A is nearly a contraction, and C T is as
//! small as the norm is. T is what was computed, taken as exact, and its inverse is enclosed. Where A is far from normal as it is
//! stored, T is that of the states in which it was measured ([`coordinates`](crate::coordinates)), times these.
//!
//! # Inputs and outputs without number
//!
//! Where there are more of them than states only `B B^T` and `C^T C` are used, with a multiple of their diagonals added that is above the
//! rounding of the sums. A direct term is one step of delay more, which does not change the norm: `y' = C x + D u`.
//!
//! # Continuous time
//!
//! The bilinear map to discrete time keeps the norm. It is made of the matrices as they are stored, enclosed as everything else
//! ([`parts`]).

pub(crate) mod double;
mod enclosed;
mod joint;
mod parts;
mod riccati;

use crate::LinearSystem;
use crate::gramians::coordinates;
use crate::linalg::{compress_columns, exponent, gain_exponents, ldexp, product, times_power_of_two};
use crate::poles::Pole;
use double::{Double, Matrix, SMALL, UNIT};
use enclosed::{Enclosed, inverse_of_lower, is_positive_definite};
use faer::{Mat, MatRef, c64};
use joint::Joint;
use parts::Parts;
use riccati::Riccati;

/// More states take too long, delays of a direct term among them.
const MOST_STATES: usize = 200;

/// The Riccati equation of more states is not solved in twice the precision.
const MOST_STATES_PRECISELY: usize = 72;

/// Columns whose products are added in double precision.
const CHUNK: usize = 64;

/// Entries of this size or more might overflow.
const LARGEST: f64 = 1e100;

/// How many digits a proof has for states that are hardly controllable, and for sums over many inputs or outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digits {
    /// Enough where the norm is at least a thousandth of that of the systems it is the difference of. With few inputs and outputs, hardly
    /// controllable states are taken for more controllable than they are, so that T is far from singular.
    Few,
    /// All.
    Many,
}

/// A system in coordinates in which levels can be proved.
pub struct Prover {
    a: Enclosed,
    /// A matrix that is at least `B B^T`.
    w: Enclosed,
    /// A matrix that is at least `C^T C`.
    v: Enclosed,
    /// The system is `2^scale` times that of these matrices.
    scale: i32,
    /// About the largest squared gain from the input to the states.
    response: f64,
    digits: Digits,
}

/// Why nothing can be proved, in words that go after "none: ".
pub type Missing = &'static str;

const UNITS: Missing = "the units of the states or gains are too far apart";

impl Prover {
    /// Prepares the difference of two systems, which is `system`; `None` where its transfer function is zero whatever its numbers, since
    /// no input reaches an output.
    ///
    /// # Errors
    /// What is missing.
    pub fn new(
        (full, reduced): (&LinearSystem, &LinearSystem),
        system: &LinearSystem,
        digits: Digits,
    ) -> Result<Option<Self>, Missing> {
        let joint = Joint::new(full, reduced)?;
        let (a, radius, direct) = (&joint.a, &joint.radius, &joint.direct);
        let (b, c) = joint.gains.as_ref().map_or((system.b(), system.c()), |(b, c)| (b.as_ref(), c.as_ref()));
        let kept = minimal(&a.moduli(), b, c);
        if kept.is_empty() && direct.is_empty() {
            return Ok(None);
        }
        let with_delays = joint.rate.is_some() || !direct.is_empty();
        let delays = if with_delays { system.inputs().min(system.outputs()) } else { 0 };
        if kept.len() + delays > MOST_STATES {
            return Err("too many states for it");
        }
        // Powers of two: units of the states in which B is of size 1, then one for C and D.
        let (size, _) = gain_exponents(system.b(), system.c());
        let scaled_b = times_power_of_two(system.b(), -size);
        let compressed = compress_columns(scaled_b.as_ref());
        // All states change together.
        if joint.t.is_some() && kept.len() < system.states() {
            return Err("a state that nothing reaches, or that reaches nothing, is far from normal");
        }
        let own_units = units(system, &compressed)?;
        // Noise at the input of every state keeps T away from singular.
        let noise = match digits {
            Digits::Few if system.inputs() <= kept.len() => 1e-16,
            Digits::Few => slack_of_chunks(kept.len()),
            Digits::Many if system.inputs() <= kept.len() => 1e-24,
            Digits::Many => 1e-20,
        };
        let mut driven = Mat::zeros(system.states(), compressed.ncols() + kept.len());
        driven.subcols_mut(0, compressed.ncols()).copy_from(&compressed);
        for (k, &state) in kept.iter().enumerate() {
            driven[(state, compressed.ncols() + k)] = ldexp(f64::sqrt(noise), own_units[state]);
        }
        let factor = coordinates(system, driven.as_ref()).map_err(|_| "no Gramian could be computed")?;
        let (factor, units) = match &joint.t {
            None => (factor, own_units),
            Some(t) => {
                let factor = product(t.as_ref(), factor.as_ref());
                let units = (0..factor.nrows()).map(|i| exponent(factor.subrows(i, 1))).collect();
                (factor, units)
            }
        };
        // Exact, unless the result leaves the range of normal numbers.
        let scaled = |x: f64, exponent: i32| {
            let y = times_two_to(x, exponent);
            if x == 0.0 || (f64::MIN_POSITIVE..LARGEST).contains(&y.abs()) { Ok(y) } else { Err(UNITS) }
        };
        let gathered = |rows: usize, columns: usize, f: &dyn Fn(usize, usize) -> Result<f64, Missing>| {
            let mut out = Mat::zeros(rows, columns);
            for j in 0..columns {
                for i in 0..rows {
                    out[(i, j)] = f(i, j)?;
                }
            }
            Ok::<Mat<f64>, Missing>(out)
        };
        let n = kept.len();
        let b = gathered(n, b.ncols(), &|i, j| scaled(b[(kept[i], j)], -size - units[kept[i]]))?;
        let outputs = if joint.t.is_some() { c } else { system.c() };
        let largest = kept.iter().map(|&j| exponent(outputs.subcols(j, 1)) + units[j] + size).max();
        let scale = largest.into_iter().chain(system.d().filter(|_| with_delays).map(exponent)).max().unwrap_or(0);
        let c = gathered(c.nrows(), n, &|i, j| scaled(c[(i, kept[j])], units[kept[j]] + size - scale))?;
        let of_size = |d: &Mat<f64>| gathered(d.nrows(), d.ncols(), &|i, j| scaled(d[(i, j)], -scale));
        let direct: Vec<Mat<f64>> = direct.iter().map(of_size).collect::<Result<_, _>>()?;
        let mut middle = Matrix::zeros(n, n);
        let mut around = Mat::zeros(n, n);
        for i in 0..n {
            for j in 0..n {
                let (unit, entry) = (units[kept[j]] - units[kept[i]], a.at(kept[i], kept[j]));
                middle.set(i, j, Double { hi: scaled(entry.hi, unit)?, lo: scaled(entry.lo, unit)? });
                around[(i, j)] = ldexp(radius[(kept[i], kept[j])], unit) * (1.0 + f64::EPSILON);
            }
        }
        let a = Enclosed { middle, radius: around };

        let factor = Mat::from_fn(n, factor.ncols(), |i, j| ldexp(factor[(kept[i], j)], -units[kept[i]]));
        let parts = Parts { a, b, from_b: None, c, from_c: None, factor };
        let parts = match joint.rate {
            Some(rate) => {
                parts.mapped(&direct, rate, noise).ok_or("the bilinear map has a pole too close to its rate")?
            }
            None => parts.delayed(&direct, noise),
        };
        Self::of(&parts, &poles(system, delays), scale, digits).map(Some)
    }

    fn of(parts: &Parts, poles: &[Pole], scale: i32, digits: Digits) -> Result<Self, Missing> {
        let Parts { a, b, from_b, c, from_c, factor } = parts;
        let singular = "its states are too close to dependent";
        if !factor.norm_max().is_finite() {
            return Err(singular);
        }
        let t = factor.transpose().qr().thin_R().transpose().to_owned();
        let t = Matrix::of(t.as_ref());
        let inverse = inverse_of_lower(&t).ok_or(singular)?;
        let t = Enclosed::exactly(t);
        let through = |rows: MatRef<'_, f64>, from: Option<&Enclosed>, map: &Enclosed| {
            let map = &from.map_or_else(|| map.clone(), |from| map.times(from));
            if rows.ncols() <= rows.nrows() {
                let turned = map.times(&Enclosed::exactly(Matrix::of(rows)));
                return turned.times_symmetric(&turned.transposed());
            }
            let above = Enclosed::exactly(gram_above(rows, digits));
            map.times(&above).times_symmetric(&map.transposed())
        };
        Ok(Self {
            a: inverse.times(&a.times(&t)),
            w: through(b.as_ref(), from_b.as_ref(), &inverse),
            v: through(c.transpose(), from_c.as_ref(), &t.transposed()),
            scale,
            response: response(poles),
            digits,
        })
    }

    /// Whether it is proved that the norm is below `level`, if it is about `norm`, which is less.
    pub fn proves(&self, level: f64, norm: f64) -> bool {
        let n = self.a.middle.rows();
        let inverse = (1.0 + 4.0 * f64::EPSILON) / ldexp(level, -self.scale);
        if !(inverse.is_finite() && inverse > 0.0 && norm < level) {
            return false;
        }
        // The gap between both is shared out: room at the input, at the output, and for rounding.
        let gap = 1.0 - (norm / level).powi(2);
        let (input, output) = (0.25 * gap, 0.25 * gap / self.response);
        let v = self.v.scaled(inverse).scaled(inverse);
        let riccati = Riccati {
            a: self.a.middle.clone(),
            w: self.w.middle.combined(&self.w.middle, |w, _| w * Double::of(1.0 + input)),
            v: Matrix::from_fn(n, n, |i, j| v.middle.at(i, j) + Double::of(if i == j { output } else { 0.0 })),
        };
        let found = riccati.solve().and_then(|p| riccati.refined(p, 0.25 * output / n as f64));
        if found.is_some_and(|p| self.is_fulfilled(p, &v)) {
            return true;
        }
        self.digits == Digits::Many
            && n <= MOST_STATES_PRECISELY
            && riccati.solve_precisely().is_some_and(|p| self.is_fulfilled(p, &v))
    }

    /// Whether P makes K positive definite, whatever the rounding.
    fn is_fulfilled(&self, p: Matrix, v: &Enclosed) -> bool {
        let n = p.rows();
        let p = Enclosed::exactly(p);
        let pa = p.times(&self.a);
        let first = p.minus(v);
        let second = p.minus(&p.times(&self.w).times_symmetric(&p));
        is_positive_definite(&Enclosed::blocks(2 * n, 2 * n, |i, j| {
            Some(match (i < n, j < n) {
                (true, true) => (&first, i, j),
                (false, true) => (&pa, i - n, j),
                (true, false) => (&pa, j - n, i),
                (false, false) => (&second, i - n, j - n),
            })
        }))
    }
}

/// `x * 2^exponent`.
fn times_two_to(x: f64, exponent: i32) -> f64 {
    if exponent.abs() <= 1000 { x * f64::from_bits(((1023 + exponent) as u64) << 52) } else { ldexp(x, exponent) }
}

/// The states that an input reaches and that reach an output, by the entries that are not zero: the others are no part of the transfer
/// function.
fn minimal(a: &Mat<f64>, b: MatRef<'_, f64>, c: MatRef<'_, f64>) -> Vec<usize> {
    let n = a.nrows();
    let spread = |start: &dyn Fn(usize) -> bool, leads: &dyn Fn(usize, usize) -> bool| {
        let mut found: Vec<bool> = (0..n).map(start).collect();
        let mut next: Vec<usize> = (0..n).filter(|&i| found[i]).collect();
        while let Some(from) = next.pop() {
            for to in 0..n {
                if !found[to] && leads(from, to) {
                    found[to] = true;
                    next.push(to);
                }
            }
        }
        found
    };
    // A NaN couples.
    let reached = spread(&|i| b.row(i).norm_max() > 0.0, &|from, to| a[(to, from)] != 0.0);
    let seen = spread(&|j| c.col(j).norm_max() > 0.0, &|from, to| a[(from, to)] != 0.0);
    (0..n).filter(|&i| reached[i] && seen[i]).collect()
}

/// The power of two that each state is near: of its row of B, or of the Gramian where A couples states.
fn units(system: &LinearSystem, b: &Mat<f64>) -> Result<Vec<i32>, Missing> {
    let sizes: Vec<f64> = if let Some(modes) = system.a().modes() {
        let mut sizes = Vec::with_capacity(b.nrows());
        for mode in modes {
            let size = b.subrows(sizes.len(), mode.states()).norm_max();
            sizes.extend(std::iter::repeat_n(size, mode.states()));
        }
        sizes
    } else {
        let factor = coordinates(system, b.as_ref()).map_err(|_| "no Gramian could be computed")?;
        (0..b.nrows()).map(|i| factor.row(i).norm_max()).collect()
    };
    if sizes.iter().any(|size| !size.is_finite()) {
        return Err(UNITS);
    }
    Ok(sizes.iter().map(|&size| if size > 0.0 { size.log2().floor() as i32 } else { 0 }).collect())
}

/// Poles, complex ones with their conjugates, and the zeros of delays.
fn poles(system: &LinearSystem, delays: usize) -> Vec<Pole> {
    let of_value = |l: c64| Pole::polar(l.norm(), l.im.atan2(l.re));
    let own: Vec<Pole> = match system.a().modes() {
        Some(modes) => modes
            .iter()
            .flat_map(|mode| std::iter::once(mode.pole()).chain((mode.states() == 2).then(|| mode.pole().conj())))
            .collect(),
        None => system.eigenvalues().into_iter().map(of_value).collect(),
    };
    own.into_iter().chain(std::iter::repeat_n(Pole::real(0.0), delays)).collect()
}

/// The largest squared gain from white input of unit size to the states in coordinates of unit covariance, where there is one input:
/// `max over omega of sum (1 - |l|^2) / |e^{i omega} - l|^2`; of more inputs it is no more.
fn response(poles: &[Pole]) -> f64 {
    let at = |angle: f64| {
        let z = Pole { radius: 1.0, angle, rate: 0.0 };
        poles.iter().map(|l| l.one_minus_product(*l).re / z.minus(*l).norm_sqr()).sum::<f64>()
    };
    let largest = poles.iter().map(|pole| at(pole.angle)).fold(1.0, f64::max);
    if largest.is_finite() { largest } else { 1e16 }
}

/// More than the rounding of sums of products in chunks, relative to the diagonal.
fn slack_of_chunks(rows: usize) -> f64 {
    rows as f64 * (CHUNK as f64 + 2.0) * 1.2 * 0.5 * f64::EPSILON
}

/// A matrix that is at least `rows rows^T`, for rows with many columns: an error E with `|E_ij| <= e |r_i| |r_j|` is at most the diagonal
/// matrix of `n e |r_i|^2`.
fn gram_above(rows: MatRef<'_, f64>, digits: Digits) -> Matrix {
    let (n, m) = rows.shape();
    let (mut gram, slack) = match digits {
        Digits::Many => {
            let wide = Matrix::of(rows);
            (wide.times_symmetric(&wide.transposed()), n as f64 * 2.0 * (m as f64 + 2.0) * UNIT)
        }
        Digits::Few => {
            let mut gram = Matrix::zeros(n, n);
            for first in (0..m).step_by(CHUNK) {
                let chunk = rows.subcols(first, CHUNK.min(m - first));
                let part = product(chunk, chunk.transpose());
                for i in 0..n {
                    (i..n).for_each(|j| gram.set(i, j, gram.at(i, j) + Double::of(part[(i, j)])));
                }
            }
            (gram.symmetric(), slack_of_chunks(n))
        }
    };
    for i in 0..n {
        let entry = gram.at(i, i);
        gram.set(i, i, entry + Double::of(1.01 * slack * entry.hi + m as f64 * SMALL));
    }
    gram
}
