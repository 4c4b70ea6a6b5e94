//! Projection on the leading left singular vectors of B, blind to C and to the dynamics.
//!
//! ```text
//! B = U S V^T     L = U_r^T     R = U_r     A_r = L A R     B_r = L B     C_r = C R
//! ```
//!
//! No error bound, and the reduced system may be unstable: it is here to be compared with.

use super::{Accepts, Bound, Definition, Method, Reduced, project};
use crate::linalg::{beside, compress_columns};
use crate::{HankelSpectrum, LinearSystem, LtiError, Result};
use faer::{Mat, MatRef};

/// Projection on the singular vectors of B.
pub const METHOD: Method = Method(&Definition {
    name: "svd",
    summary: "Singular vectors of B, blind to the dynamics (no guarantee)",
    bound: Bound::None,
    bounds: None,
    gramians: Accepts::Unread,
    direct_term: false,
    reduce,
});

fn reduce(system: &LinearSystem, _: &HankelSpectrum, order: usize) -> Result<Reduced> {
    // In continuous time the B of that time: the one of the image depends on A, too.
    let own = system.map().map(|map| map.continuous(system.a(), system.b(), system.c(), None)).transpose()?;
    let small = compress_columns(own.as_ref().map_or_else(|| system.b(), |(_, b, ..)| b.as_ref()));
    // Padded to d columns, so that a B of low rank still has d left singular vectors.
    let padded = beside(small.as_ref(), Mat::zeros(small.nrows(), small.nrows() - small.ncols()).as_ref());
    let svd = padded.svd().map_err(|_| LtiError::NoConvergence("the singular value decomposition"))?;
    let u: MatRef<'_, f64> = svd.U().subcols(0, order);
    project(system, u.transpose().to_owned(), u.to_owned(), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::continuous::Bilinear;
    use crate::{GramianFactors, StateMatrix, reduce};

    /// In continuous time the directions are those of B there, whatever the poles.
    #[test]
    fn directions_are_those_of_b_in_its_own_time() {
        let (b, c) = (Mat::from_fn(2, 1, |i, _| [1.0, 10.0][i]), Mat::<f64>::ones(1, 2));
        let map = Bilinear { rate: 10.0 };
        let poles = StateMatrix::Diagonal(vec![-1.0, -100.0]);
        let (a, b_d, c_d, d) = map.discrete(&poles, b.as_ref(), c.as_ref(), None).unwrap();
        let system = LinearSystem::new(a, b_d, c_d, Some(d)).unwrap().with_map(map, None);
        let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system).unwrap()).unwrap();
        let right = reduce(&system, &spectrum, METHOD, 1).unwrap().projection.unwrap().right;
        let expected = [1.0, 10.0].map(|x| x / 101_f64.sqrt());
        assert!((0..2).all(|i| (right[(i, 0)].abs() - expected[i]).abs() < 1e-12), "{right:?}");
    }
}
