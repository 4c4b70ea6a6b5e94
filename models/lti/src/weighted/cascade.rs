//! The weighted error system `W (G - G_r) V` in blocks, its squared H2 norm, and the gradient of that by the reduced system.
//!
//! ```text
//! x_v' = A_v x_v                 + B_v w        u = C_v x_v + D_v w
//! x'   = A x     + B u                          G
//! x_r' = A_r x_r + B_r u                        G_r
//! x_w' = A_w x_w + B_w e         e = C x - C_r x_r        z = C_w x_w + D_w e
//! ```
//!
//! With `F`, `E`, `H` the matrices of the whole, block by block, and P and Q its Gramians, `J = tr(H P H^T)` has the derivatives `2 Q F P` by F,
//! `2 Q E` by E and `2 H P` by H (D. A. Wilson, Proc. IEE 117 (1970)); A_r, B_r and C_r each sit in a few blocks. Blocks of P and Q without x_r
//! do not change and are solved for once.

use super::Weights;
use crate::linalg::product;
use crate::stein::Powers;
use crate::{LinearSystem, StateMatrix};
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef, Scale};

/// Places of the blocks: every one is driven by those before it.
const V: usize = 0;
const X: usize = 1;
const R: usize = 2;
const W: usize = 3;
const BLOCKS: usize = 4;

/// Share of the mean square that keeps the metric of inputs and outputs invertible.
const RIDGE: f64 = 1e-9;

/// Matrices of one weight; without states and with `D = I` where there is none.
struct Filter {
    a: Mat<f64>,
    b: Mat<f64>,
    c: Mat<f64>,
    d: Mat<f64>,
}

impl Filter {
    fn of(weight: Option<&LinearSystem>, channels: usize) -> Self {
        let Some(weight) = weight else {
            let d = Mat::identity(channels, channels);
            return Self { a: Mat::zeros(0, 0), b: Mat::zeros(0, channels), c: Mat::zeros(channels, 0), d };
        };
        let d = weight.d().map_or_else(|| Mat::zeros(weight.outputs(), weight.inputs()), |d| d.to_owned());
        Self { a: weight.a().to_dense(), b: weight.b().to_owned(), c: weight.c().to_owned(), d }
    }
}

/// A reduced system, or the derivative by one, or a step towards one.
#[derive(Clone)]
pub(crate) struct Matrices {
    pub a: Mat<f64>,
    pub b: Mat<f64>,
    pub c: Mat<f64>,
}

impl Matrices {
    /// Sum of the products of all entries.
    pub fn dot(&self, other: &Self) -> f64 {
        let one = |x: &Mat<f64>, y: &Mat<f64>| -> f64 {
            (0..x.ncols()).map(|j| (0..x.nrows()).map(|i| x[(i, j)] * y[(i, j)]).sum::<f64>()).sum()
        };
        one(&self.a, &other.a) + one(&self.b, &other.b) + one(&self.c, &other.c)
    }

    /// `self + factor * other`.
    pub fn plus(&self, factor: f64, other: &Self) -> Self {
        let one = |x: &Mat<f64>, y: &Mat<f64>| x + y * Scale(factor);
        Self { a: one(&self.a, &other.a), b: one(&self.b, &other.b), c: one(&self.c, &other.c) }
    }
}

/// J at a reduced system, its gradient, and the metric in which J is nearly round there.
pub(crate) struct Value {
    pub cost: f64,
    pub gradient: Matrices,
    inverse_p: Mat<f64>,
    inverse_q: Mat<f64>,
}

/// G between its weights.
pub(crate) struct Cascade {
    full: Matrices,
    input: Filter,
    output: Filter,
    /// Powers of A_v, A and A_w, in the places of their blocks; R is empty.
    powers: [Powers; BLOCKS],
    p: Blocks,
    q: Blocks,
    inverse_input: Mat<f64>,
    inverse_output: Mat<f64>,
}

/// Blocks of a symmetric matrix, by row and column, row not before column.
type Blocks = [[Option<Mat<f64>>; BLOCKS]; BLOCKS];

fn block(blocks: &Blocks, i: usize, j: usize) -> Option<MatRef<'_, f64>> {
    if i >= j { blocks[i][j].as_ref().map(Mat::as_ref) } else { blocks[j][i].as_ref().map(Mat::transpose) }
}

/// Blocks of F (by row and column; `None` is zero), of E and of H.
struct Whole<'a> {
    f: [[Option<MatRef<'a, f64>>; BLOCKS]; BLOCKS],
    e: [MatRef<'a, f64>; BLOCKS],
    h: [MatRef<'a, f64>; BLOCKS],
    powers: [&'a Powers; BLOCKS],
}

impl Whole<'_> {
    /// Solves for the blocks of the controllability Gramian that are asked for and not there, from the first block on.
    fn controllability(&self, p: &mut Blocks, wanted: impl Fn(usize, usize) -> bool) {
        for i in 0..BLOCKS {
            for j in 0..=i {
                if p[i][j].is_some() || !wanted(i, j) {
                    continue;
                }
                let mut rhs = product(self.e[i], self.e[j].transpose());
                for k in 0..=i {
                    let Some(left) = self.f[i][k] else { continue };
                    for l in (0..=j).filter(|&l| (k, l) != (i, j)) {
                        if let (Some(right), Some(known)) = (self.f[j][l], block(p, k, l)) {
                            rhs += product(product(left, known).as_ref(), right.transpose());
                        }
                    }
                }
                p[i][j] = Some(self.powers[i].sylvester_with(rhs.as_ref(), self.powers[j]));
            }
        }
    }

    /// As above of the observability Gramian, from the last block on.
    fn observability(&self, q: &mut Blocks, wanted: impl Fn(usize, usize) -> bool) {
        for j in (0..BLOCKS).rev() {
            for i in (j..BLOCKS).rev() {
                if q[i][j].is_some() || !wanted(i, j) {
                    continue;
                }
                let mut rhs = product(self.h[i].transpose(), self.h[j]);
                for k in i..BLOCKS {
                    let Some(left) = self.f[k][i] else { continue };
                    for l in (j..BLOCKS).filter(|&l| (k, l) != (i, j)) {
                        if let (Some(right), Some(known)) = (self.f[l][j], block(q, k, l)) {
                            rhs += product(product(left.transpose(), known).as_ref(), right);
                        }
                    }
                }
                q[i][j] = Some(self.powers[i].transposed_sylvester_with(rhs.as_ref(), self.powers[j]));
            }
        }
    }
}

impl Cascade {
    /// Of a stable system with the input matrix `b` and output matrix `c`, between weights that fit it.
    pub fn new(a: Mat<f64>, b: Mat<f64>, c: Mat<f64>, weights: &Weights) -> Self {
        let input = Filter::of(weights.input.as_ref(), b.ncols());
        let output = Filter::of(weights.output.as_ref(), c.nrows());
        let powers = [&input.a, &a, &Mat::zeros(0, 0), &output.a].map(|a| Powers::of(a.as_ref()));
        let none = || std::array::from_fn(|_| std::array::from_fn(|_| None));
        let empty = Mat::zeros(0, 0);
        let mut cascade = Self {
            full: Matrices { a, b, c },
            input,
            output,
            powers,
            p: none(),
            q: none(),
            inverse_input: empty.clone(),
            inverse_output: empty,
        };
        let nothing = Matrices {
            a: Mat::zeros(0, 0),
            b: Mat::zeros(0, cascade.full.b.ncols()),
            c: Mat::zeros(cascade.full.c.nrows(), 0),
        };
        let (mut p, mut q) = (none(), none());
        cascade.with_whole(&nothing, |whole| {
            whole.controllability(&mut p, |i, _| i <= X);
            whole.observability(&mut q, |i, j| i == W && (j == W || j == X));
        });
        let gram = |m: &Mat<f64>, inner: Option<MatRef<'_, f64>>, direct: &Mat<f64>| {
            let inner = inner.map(|inner| product(product(m.as_ref(), inner).as_ref(), m.transpose()));
            let direct = product(direct.as_ref(), direct.transpose());
            inverse_of(&inner.map_or(direct.clone(), |inner| inner + direct))
        };
        cascade.inverse_input = gram(&cascade.input.c, block(&p, V, V), &cascade.input.d);
        let (b_w, d_w) = (cascade.output.b.transpose().to_owned(), cascade.output.d.transpose().to_owned());
        cascade.inverse_output = gram(&b_w, block(&q, W, W), &d_w);
        (cascade.p, cascade.q) = (p, q);
        cascade
    }

    /// The matrices of the whole with `reduced` in its place.
    fn with_whole<T>(&self, reduced: &Matrices, then: impl FnOnce(&Whole<'_>) -> T) -> T {
        let Self { full, input, output, powers, .. } = self;
        let negative = &reduced.c * Scale(-1.0);
        let own = Powers::of(reduced.a.as_ref());
        let (xv, rv) = (product(full.b.as_ref(), input.c.as_ref()), product(reduced.b.as_ref(), input.c.as_ref()));
        let (wx, wr) = (product(output.b.as_ref(), full.c.as_ref()), product(output.b.as_ref(), negative.as_ref()));
        let (ex, er) = (product(full.b.as_ref(), input.d.as_ref()), product(reduced.b.as_ref(), input.d.as_ref()));
        let (hx, hr) = (product(output.d.as_ref(), full.c.as_ref()), product(output.d.as_ref(), negative.as_ref()));
        let (ew, hv) = (Mat::zeros(output.a.nrows(), ex.ncols()), Mat::zeros(hx.nrows(), input.a.nrows()));
        then(&Whole {
            f: [
                [Some(input.a.as_ref()), None, None, None],
                [Some(xv.as_ref()), Some(full.a.as_ref()), None, None],
                [Some(rv.as_ref()), None, Some(reduced.a.as_ref()), None],
                [None, Some(wx.as_ref()), Some(wr.as_ref()), Some(output.a.as_ref())],
            ],
            e: [input.b.as_ref(), ex.as_ref(), er.as_ref(), ew.as_ref()],
            h: [hv.as_ref(), hx.as_ref(), hr.as_ref(), output.c.as_ref()],
            powers: [&powers[V], &powers[X], &own, &powers[W]],
        })
    }

    /// J and its gradient; `None` where the reduced system is unstable or out of range.
    pub fn value(&self, reduced: &Matrices) -> Option<Value> {
        let stable = reduced.a.is_all_finite()
            && StateMatrix::Dense(reduced.a.clone()).spectral_radius().is_ok_and(|radius| radius < 1.0);
        if !stable {
            return None;
        }
        let (mut p, mut q) = (self.p.clone(), self.q.clone());
        let value = self.with_whole(reduced, |whole| {
            whole.controllability(&mut p, |_, _| true);
            whole.observability(&mut q, |i, j| i == W || i == R || j == R);
            self.assemble(whole, &p, &q)
        })?;
        value.cost.is_finite().then_some(value)
    }

    fn assemble(&self, whole: &Whole<'_>, p: &Blocks, q: &Blocks) -> Option<Value> {
        // Row i of Q F, and Q F P.
        let qf = |i: usize, l: usize| {
            let mut sum: Option<Mat<f64>> = None;
            for k in l..BLOCKS {
                if let (Some(left), Some(right)) = (block(q, i, k), whole.f[k][l]) {
                    let term = product(left, right);
                    sum = Some(sum.map_or(term.clone(), |sum| sum + term));
                }
            }
            sum
        };
        let row = |i: usize| -> [Option<Mat<f64>>; BLOCKS] { std::array::from_fn(|l| qf(i, l)) };
        let (of_r, of_w) = (row(R), row(W));
        let qfp = |row: &[Option<Mat<f64>>; BLOCKS], rows: usize, j: usize| {
            let columns = block(p, j, j).map_or(0, |p| p.ncols());
            let mut sum = Mat::zeros(rows, columns);
            for (l, left) in row.iter().enumerate() {
                if let (Some(left), Some(right)) = (left, block(p, l, j)) {
                    sum += product(left.as_ref(), right);
                }
            }
            sum
        };
        let (p_r, q_r) = (block(p, R, R)?, block(q, R, R)?);
        let order = p_r.nrows();
        let two = Scale(2.0);
        let mut q_e = Mat::zeros(order, self.input.b.ncols());
        for k in 0..BLOCKS {
            q_e += product(block(q, R, k)?, whole.e[k]);
        }
        let hp = |j: usize| {
            let mut sum = Mat::zeros(self.output.c.nrows(), block(p, j, j).map_or(0, |p| p.ncols()));
            for k in 0..BLOCKS {
                if let Some(right) = block(p, k, j) {
                    sum += product(whole.h[k], right);
                }
            }
            sum
        };
        let cost = (0..BLOCKS)
            .map(|j| {
                let (left, right) = (hp(j), whole.h[j]);
                let rows = 0..left.nrows();
                rows.map(|i| (0..left.ncols()).map(|k| left[(i, k)] * right[(i, k)]).sum::<f64>()).sum::<f64>()
            })
            .sum();
        let a = qfp(&of_r, order, R) * two;
        let b = (product(qfp(&of_r, order, V).as_ref(), self.input.c.transpose())
            + product(q_e.as_ref(), self.input.d.transpose()))
            * two;
        let c = (product(self.output.b.transpose(), qfp(&of_w, self.output.a.nrows(), R).as_ref())
            + product(self.output.d.transpose(), hp(R).as_ref()))
            * Scale(-2.0);
        let (inverse_p, inverse_q) = (inverse_of(&p_r.to_owned()), inverse_of(&q_r.to_owned()));
        Some(Value { cost, gradient: Matrices { a, b, c }, inverse_p, inverse_q })
    }

    /// A gradient in the metric of `at`: half of it over the second derivatives of J where the error of the whole is not looked at. It turns
    /// with the coordinates of the states.
    pub fn in_metric(&self, at: &Value, gradient: &Matrices) -> Matrices {
        let both = |left: &Mat<f64>, m: &Mat<f64>, right: &Mat<f64>| {
            product(product(left.as_ref(), m.as_ref()).as_ref(), right.as_ref()) * Scale(0.5)
        };
        Matrices {
            a: both(&at.inverse_q, &gradient.a, &at.inverse_p),
            b: both(&at.inverse_q, &gradient.b, &self.inverse_input),
            c: both(&self.inverse_output, &gradient.c, &at.inverse_p),
        }
    }
}

/// Inverse of a positive semidefinite matrix to which a little of its mean is added.
fn inverse_of(m: &Mat<f64>) -> Mat<f64> {
    let n = m.nrows();
    let ridge = RIDGE * (0..n).map(|i| m[(i, i)]).sum::<f64>() / n.max(1) as f64 + f64::MIN_POSITIVE;
    let moved = Mat::from_fn(n, n, |i, j| 0.5 * (m[(i, j)] + m[(j, i)]) + if i == j { ridge } else { 0.0 });
    moved.partial_piv_lu().solve(Mat::<f64>::identity(n, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norms::h2_norm;

    fn matrix(rows: usize, columns: usize, seed: usize) -> Mat<f64> {
        Mat::from_fn(rows, columns, |i, j| ((3 * i + 7 * j + 5 * seed) as f64).sin() + 0.2)
    }

    fn system(states: usize, inputs: usize, outputs: usize, seed: usize, direct: bool) -> LinearSystem {
        let poles = (0..states).map(|i| 0.9 - 0.35 * i as f64 / (1.0 + 0.1 * seed as f64)).collect();
        let (b, c) = (matrix(states, inputs, seed), matrix(outputs, states, seed + 1));
        let d = direct.then(|| matrix(outputs, inputs, seed + 2));
        LinearSystem::new(StateMatrix::Diagonal(poles), b, c, d).unwrap()
    }

    fn matrices(system: &LinearSystem) -> Matrices {
        Matrices { a: system.a().to_dense(), b: system.b().to_owned(), c: system.c().to_owned() }
    }

    #[test]
    fn cost_and_gradient_are_those_of_the_weighted_h2_norm() {
        let (full, reduced) = (system(4, 2, 3, 1, false), system(2, 2, 3, 2, false));
        // Without the first, second, both weights, and with weights that have no direct term.
        let (input, output) = (system(3, 4, 2, 3, true), system(2, 3, 2, 4, true));
        let plain = (system(2, 1, 2, 5, false), system(1, 3, 1, 6, false));
        let cases = [
            (None, None),
            (Some(input.clone()), None),
            (None, Some(output.clone())),
            (Some(input), Some(output)),
            (Some(plain.0), Some(plain.1)),
        ];
        for (case, (input, output)) in cases.into_iter().enumerate() {
            let weights = Weights { input, output };
            let Matrices { a, b, c } = matrices(&full);
            let cascade = Cascade::new(a, b, c, &weights);
            let expected = |at: &Matrices| {
                let a = StateMatrix::Dense(at.a.clone());
                let reduced = LinearSystem::new(a, at.b.clone(), at.c.clone(), None).unwrap();
                h2_norm(&weights.around(&full.difference(&reduced).unwrap()).unwrap()).unwrap().powi(2)
            };
            let at = matrices(&reduced);
            let value = cascade.value(&at).unwrap();
            assert!((value.cost / expected(&at) - 1.0).abs() < 1e-12, "{case}: {} {}", value.cost, expected(&at));
            let size = value.gradient.dot(&value.gradient).sqrt();
            for k in 0..3 {
                let step = Matrices { a: matrix(2, 2, k), b: matrix(2, 2, k + 9), c: matrix(3, 2, k + 4) };
                let h = 1e-5;
                let difference = (expected(&at.plus(h, &step)) - expected(&at.plus(-h, &step))) / (2.0 * h);
                let slope = value.gradient.dot(&step);
                let tolerance = 1e-7 * size * step.dot(&step).sqrt();
                assert!((slope - difference).abs() < tolerance, "{case}, {k}: {slope} {difference}");
            }
            // The metric is positive.
            assert!(cascade.in_metric(&value, &value.gradient).dot(&value.gradient) > 0.0);
            let unstable = Matrices { a: Mat::identity(2, 2), ..at };
            assert!(cascade.value(&unstable).is_none());
        }
    }
}
