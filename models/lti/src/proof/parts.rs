//! The matrices of a system in discrete time that has no direct term: what a proof is about.

use super::double::{Double, Matrix};
use super::enclosed::{Enclosed, inverse};
use crate::linalg::{above, beside, product};
use faer::{Mat, MatRef, Scale};

/// A system with a factor of its controllability Gramian.
pub struct Parts {
    /// A, [n, n].
    pub a: Enclosed,
    /// B, or what B is a multiple of.
    pub b: Mat<f64>,
    /// `B = from_b b`, if it is not b.
    pub from_b: Option<Enclosed>,
    /// C, or what C is a multiple of.
    pub c: Mat<f64>,
    /// `C^T = from_c c^T`, if C is not c.
    pub from_c: Option<Enclosed>,
    /// Its product with its transpose is near the controllability Gramian.
    pub factor: Mat<f64>,
}

/// A, B, C of a system in discrete time, as they follow from b and c.
struct Step {
    a: Enclosed,
    /// `B = left b`, `C = c right`, `D = direct + c through b`. `None` is the identity for `left` and `right`, and 0 for `through`.
    left: Option<Enclosed>,
    right: Option<Enclosed>,
    through: Option<Enclosed>,
}

impl Parts {
    /// The same system with the sum of these direct terms, which become a step of delay.
    pub fn delayed(self, direct: &[Mat<f64>], noise: f64) -> Self {
        if direct.is_empty() {
            return self;
        }
        let step = Step { a: self.a.clone(), left: None, right: None, through: None };
        self.with_delays(step, direct, noise)
    }

    /// The image in discrete time of these matrices in continuous time, which are exact, with the sum of the direct terms; `factor` is that of the
    /// image. `None` where a pole is too close to the rate.
    ///
    /// With `R = (rate - A)^-1` the image has `A_d = 2 rate R - 1`, `B_d = R B`, `C_d = 2 rate C R`, `D_d = D + C R B`: that of
    /// [`Bilinear`](crate::continuous::Bilinear) in other units of the states, without a root.
    pub fn mapped(mut self, direct: &[Mat<f64>], rate: f64, noise: f64) -> Option<Self> {
        let n = self.a.middle.rows();
        let shifted = self.a.middle.combined(&Matrix::identity(n), |a, one| one * Double::of(rate) - a);
        let resolvent = inverse(&shifted)?;
        let right = resolvent.scaled(2.0 * rate);
        self.factor *= Scale(1.0 / (2.0 * rate).sqrt());
        let step = Step {
            a: right.minus(&Enclosed::exactly(Matrix::identity(n))),
            left: Some(resolvent.clone()),
            right: Some(right),
            through: Some(resolvent),
        };
        Some(self.with_delays(step, direct, noise))
    }

    /// One step of delay at the output, or at the input where there are fewer, in place of the direct term.
    fn with_delays(self, step: Step, direct: &[Mat<f64>], noise: f64) -> Self {
        let Self { b, c, factor, .. } = self;
        let (n, (p, m)) = (step.a.middle.rows(), (c.nrows(), b.ncols()));
        let (q, at_output) = (p.min(m), p <= m);
        let exactly = |x: MatRef<'_, f64>| Enclosed::exactly(Matrix::of(x));
        // What a delay takes from the states, or they from it; and what it takes from b or c besides the direct term.
        let narrow = if at_output { exactly(c.as_ref()) } else { exactly(b.transpose()).transposed() };
        let times = |map: Option<&Enclosed>| match map {
            None => narrow.clone(),
            Some(map) if at_output => narrow.times(map),
            Some(map) => map.times(&narrow),
        };
        let side = times(if at_output { step.right.as_ref() } else { step.left.as_ref() });
        let through = step.through.as_ref().map(|through| times(Some(through)));
        let a = Enclosed::blocks(n + q, n + q, |i, j| match (i < n, j < n) {
            (true, true) => Some((&step.a, i, j)),
            (false, true) if at_output => Some((&side, i - n, j)),
            (true, false) if !at_output => Some((&side, i, j - n)),
            _ => None,
        });
        // What b, or c, with the direct terms beside it is multiplied by.
        let turned = |map: Option<Enclosed>| if at_output { map } else { map.map(|map| map.transposed()) };
        let (own, through) = (turned(if at_output { step.left } else { step.right }), turned(through));
        let one = exactly(Mat::<f64>::identity(1, 1).as_ref());
        let unit = |on_diagonal: bool| on_diagonal.then_some((&one, 0, 0));
        let from = (own.is_some() || direct.len() > 1).then(|| {
            Enclosed::blocks(n + q, n + q * direct.len(), |i, j| match (i < n, j < n) {
                (true, true) => own.as_ref().map_or(unit(i == j), |own| Some((own, i, j))),
                (false, true) => through.as_ref().map(|through| (through, i - n, j)),
                (true, false) => None,
                (false, false) => unit((j - n) % q == i - n),
            })
        });
        let identity = Mat::<f64>::identity(q, q);
        let (b, c, from_b, from_c, factor) = if at_output {
            let b = direct.iter().fold(b, |all, d| above(all.as_ref(), d.as_ref()));
            let driven = from.as_ref().map(|from| product(from.middle.rounded().as_ref(), b.as_ref()));
            let driven = driven.as_ref().unwrap_or(&b);
            let of_states = product(step.a.middle.rounded().as_ref(), factor.as_ref());
            let of_outputs = product(side.middle.rounded().as_ref(), factor.as_ref());
            let factor = beside(above(of_states.as_ref(), of_outputs.as_ref()).as_ref(), driven.as_ref());
            (b, beside(Mat::zeros(q, n).as_ref(), identity.as_ref()), from, None, factor)
        } else {
            let c = direct.iter().fold(c, |all, d| beside(all.as_ref(), d.as_ref()));
            let factor = above(
                beside(factor.as_ref(), Mat::zeros(n, q).as_ref()).as_ref(),
                beside(Mat::zeros(q, factor.ncols()).as_ref(), identity.as_ref()).as_ref(),
            );
            (above(Mat::zeros(n, q).as_ref(), identity.as_ref()), c, None, from, factor)
        };
        // A state that is always zero, as of an output without a state, is kept apart from the others, too.
        let size = |i: usize| Some(factor.row(i).norm_l2()).filter(|size| *size > 0.0).unwrap_or(1.0);
        let kept_apart = Mat::from_fn(n + q, n + q, |i, j| if i == j { noise.sqrt() * size(i) } else { 0.0 });
        let factor = beside(factor.as_ref(), kept_apart.as_ref());
        Self { a, b, from_b, c, from_c, factor }
    }
}
