//! The norm of an error, with an upper end that is proved where that is possible.

use super::bounded_real::BoundedReal;
use super::difference::hinf_error;
use super::hinf::{HinfNorm, hinf_sweep};
use super::response::FrequencyResponse;
use super::stored::{APART, Checked, Stored};
use crate::proof::{Digits, Missing, Prover};
use crate::{HankelSpectrum, LinearSystem, Result, StateMatrix};
use faer::{Mat, MatRef};
use std::ops::Range;

/// What stands behind an upper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Both systems have the same transfer function, number by number: the error is 0.
    Identity,
    /// The bounded-real inequality, with every rounding, that of the bilinear map from continuous time included.
    BoundedReal,
    /// A test in floating point, and what is missing for a proof.
    None(Missing),
}

impl Proof {
    /// Whether the upper end is proved.
    pub fn is_one(self) -> bool {
        !matches!(self, Self::None(_))
    }
}

impl std::fmt::Display for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Identity => write!(f, "the same numbers: the error is 0"),
            Self::BoundedReal => write!(f, "the bounded-real inequality, with every rounding"),
            Self::None(missing) => write!(f, "none: {missing}"),
        }
    }
}

/// An error, measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorNorm {
    /// The largest gain found.
    pub norm: HinfNorm,
    /// No gain is larger.
    pub upper: f64,
    /// What proves that, or what a proof lacks.
    pub proof: Proof,
}

/// Relative distance of the upper end from the largest gain.
const MARGIN: f64 = 8e-7;

/// The distance where that cannot be proved, relative to the error and to the norm of the system.
const WIDE_MARGIN: (f64, f64) = (9e-6, 1e-9);

/// What the change of states of a system far from normal is known to add to a gain at most, relative to the norm of the system
/// ([`near_normal`](crate::coordinates::near_normal)); it is 1e-13 as a rule.
const CHANGED: f64 = 1e-9;

/// Both systems without the states that they have in common, and without direct terms that are equal: the difference stays the same.
///
/// # Errors
/// Systems with other inputs or outputs.
pub fn without_shared(full: &LinearSystem, reduced: &LinearSystem) -> Result<(LinearSystem, LinearSystem)> {
    let shapes = |system: &LinearSystem| (system.inputs(), system.outputs());
    if shapes(full) != shapes(reduced) {
        // Says which.
        full.difference(reduced)?;
    }
    let zero = |d: MatRef<'_, f64>| d.norm_max() == 0.0;
    let same_direct = match (full.d(), reduced.d()) {
        (None, None) => true,
        (Some(d), None) | (None, Some(d)) => zero(d),
        (Some(d), Some(e)) => d == e,
    };
    let mut direct = [full.d(), reduced.d()].map(|d| d.filter(|_| !same_direct).map(|d| d.to_owned()));
    let picked = |system: &LinearSystem, kept: &[usize], modes, direct: &mut Option<Mat<f64>>| {
        let b = Mat::from_fn(kept.len(), system.inputs(), |i, j| system.b()[(kept[i], j)]);
        let c = Mat::from_fn(system.outputs(), kept.len(), |i, j| system.c()[(i, kept[j])]);
        let picked = LinearSystem::new(StateMatrix::Modal(modes), b, c, direct.take())?;
        let picked = match system.image_of() {
            Some(original) => picked.with_image_of(original.of_states(kept))?,
            None => picked,
        };
        match system.written() {
            Some(a) => picked.with_written(Mat::from_fn(kept.len(), kept.len(), |i, j| a[(kept[i], kept[j])])),
            None => Ok(picked),
        }
    };
    // Numbers in continuous time may differ where those of the images do not.
    let original = |system: &LinearSystem, states: Range<usize>| {
        let original = system.image_of()?.of_states(&states.collect::<Vec<usize>>());
        Some((original.a, original.b, original.c))
    };
    let (Some(modes), Some(others)) = (full.a().modes(), reduced.a().modes()) else {
        let stored = |system: &LinearSystem| system.stored().map(|s| (s.a.clone(), s.b.clone(), s.c.clone()));
        let same = full.states() == reduced.states()
            && stored(full) == stored(reduced)
            && (full.a(), full.b(), full.c()) == (reduced.a(), reduced.b(), reduced.c())
            && original(full, 0..full.states()) == original(reduced, 0..reduced.states());
        if same && full.a().modes().is_none() {
            let [one, two] = &mut direct;
            return Ok((picked(full, &[], Vec::new(), one)?, picked(reduced, &[], Vec::new(), two)?));
        }
        return Ok(if same_direct {
            (full.without_direct_term(), reduced.without_direct_term())
        } else {
            (full.clone(), reduced.clone())
        });
    };
    let firsts = |modes: &[crate::Mode]| -> Vec<usize> {
        modes
            .iter()
            .scan(0, |next, mode| {
                let first = *next;
                *next += mode.states();
                Some(first)
            })
            .collect()
    };
    let (at, others_at) = (firsts(&modes), firsts(&others));
    let same = |i: usize, j: usize| {
        let (one, two, states) = (at[i], others_at[j], modes[i].states());
        let block = |a: Option<MatRef<'_, f64>>, at| a.map(|a| a.submatrix(at, at, states, states).to_owned());
        modes[i] == others[j]
            && block(full.written(), one) == block(reduced.written(), two)
            && full.b().subrows(one, states) == reduced.b().subrows(two, states)
            && full.c().subcols(one, states) == reduced.c().subcols(two, states)
            && original(full, one..one + states) == original(reduced, two..two + states)
    };
    let mut shared = vec![false; modes.len()];
    let mut left = Vec::new();
    for j in 0..others.len() {
        match (0..modes.len()).find(|&i| !shared[i] && same(i, j)) {
            Some(i) => shared[i] = true,
            None => left.push(j),
        }
    }
    if left.len() == others.len() && !same_direct {
        return Ok((full.clone(), reduced.clone()));
    }
    let own: Vec<usize> = (0..modes.len()).filter(|&i| !shared[i]).collect();
    let states = |modes: &[crate::Mode], at: &[usize], which: &[usize]| -> Vec<usize> {
        which.iter().flat_map(|&i| at[i]..at[i] + modes[i].states()).collect()
    };
    let of = |modes: &[crate::Mode], which: &[usize]| which.iter().map(|&i| modes[i]).collect();
    let [one, two] = &mut direct;
    Ok((
        picked(full, &states(&modes, &at, &own), of(&modes, &own), one)?,
        picked(reduced, &states(&others, &others_at, &left), of(&others, &left), two)?,
    ))
}

/// The norm of `full - reduced`, which share nothing ([`without_shared`]). `spectrum` are the Hankel singular values of the full
/// system, `size` is its norm. An upper end `claimed` is proved where it is no further from the error than one that would be claimed
/// here.
///
/// # Errors
/// Failures of the linear algebra; systems that do not fit.
pub fn proved_error(
    full: &LinearSystem,
    reduced: &LinearSystem,
    spectrum: &HankelSpectrum,
    size: f64,
    claimed: Option<f64>,
) -> Result<ErrorNorm> {
    let difference = full.difference(reduced)?;
    let prover = |digits| Prover::new((full, reduced), &difference, digits);
    let few = match prover(Digits::Few) {
        Ok(None) => {
            let norm = HinfNorm { value: 0.0, frequency: 0.0 };
            return Ok(ErrorNorm { norm, upper: 0.0, proof: Proof::Identity });
        }
        Ok(Some(prover)) => Ok(prover),
        Err(missing) => Err(missing),
    };
    let widest = |error: f64| error * (1.0 + WIDE_MARGIN.0) + WIDE_MARGIN.1 * size;
    let nearest = |error: f64| {
        let claimed = claimed.filter(|claimed| (error * (1.0 + 1e-9)..=widest(error)).contains(claimed));
        claimed.unwrap_or(error * (1.0 + MARGIN))
    };
    let proved = |norm: HinfNorm, upper: f64| ErrorNorm { norm, upper, proof: Proof::BoundedReal };
    let many_gains = difference.inputs().max(difference.outputs()) > difference.states();
    let mut many = None;
    let response = FrequencyResponse::new(&difference);
    // What is searched is rounded, in continuous time an image; proofs are about the numbers that are stored.
    let stored = Stored::new(&[full, reduced], size);
    let attained = |norm: HinfNorm| stored.as_ref().map_or(Ok(norm), |stored| stored.attained(&response, norm));
    if let Ok(few) = &few {
        let norm = attained(hinf_sweep(&response)?)?;
        let upper = nearest(norm.value);
        if few.proves(upper, norm.value) {
            return Ok(proved(norm, upper));
        }
        if !many_gains {
            many = prover(Digits::Many).ok().flatten();
            if many.as_ref().is_some_and(|many| many.proves(upper, norm.value)) {
                return Ok(proved(norm, upper));
            }
        }
    }
    // The sweep may have missed a peak.
    let (on_image, BoundedReal { upper: tested, .. }) = hinf_error(full, reduced, spectrum)?;
    let norm = attained(on_image)?;
    let levels = |norm: HinfNorm| {
        [nearest(norm.value), norm.value * (1.0 + MARGIN) + 0.1 * WIDE_MARGIN.1 * size, widest(norm.value)]
    };
    if many_gains && few.is_ok() {
        many = prover(Digits::Many).ok().flatten();
    }
    let provers = || few.as_ref().ok().into_iter().chain(&many);
    let proof_of = |norm: HinfNorm| {
        let upper = levels(norm).into_iter().find(|upper| provers().any(|prover| prover.proves(*upper, norm.value)));
        upper.map(|upper| proved(norm, upper))
    };
    if let Some(proved) = proof_of(norm) {
        return Ok(proved);
    }
    let is_changed = [full, reduced].iter().any(|system| system.stored().is_some());
    let tested = tested + if is_changed { CHANGED * size } else { 0.0 };
    let missing = few.as_ref().err().copied().unwrap_or("it takes more than twice the digits of a double");
    let checked = stored.as_ref().map(|stored| stored.checked(&response, on_image)).transpose()?.flatten();
    let Some(Checked { norm: found, apart }) = checked.filter(|checked| checked.apart > APART * norm.value) else {
        return Ok(ErrorNorm { norm, upper: tested, proof: Proof::None(missing) });
    };
    Ok(proof_of(found).unwrap_or(ErrorNorm {
        norm: found,
        upper: tested.max(found.value) + apart,
        proof: Proof::None(missing),
    }))
}
