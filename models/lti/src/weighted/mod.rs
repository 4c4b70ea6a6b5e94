//! Reduction for inputs that are not white: input and output weights, and bands of frequencies.
//!
//! With stable weights V (of the input, `u = V w`) and W (of the output) the error that matters is `||W (G - G_r) V||`. The Gramian of
//! the states under the weighted input,
//!
//! ```text
//! [P   P12]                                      A P A^T - P + X = 0
//! [*   P_v]  of the cascade G V,  which obeys    X = A P12 (B Cv)^T + (B Cv) P12^T A^T + (B Cv) P_v (B Cv)^T + (B Dv) (B Dv)^T
//! ```
//!
//! takes the place of the controllability Gramian (D. F. Enns, Proc. IEEE CDC 1984). X need not be positive semidefinite, so Enns' reduced
//! system may be unstable and has no bound: [`Weighted::enns`].
//!
//! # The modification, and its bound
//!
//! [`Weighted::modified`] replaces X by a positive semidefinite `Bh Bh^T >= X` whose range holds that of B, so that `B = Bh K`; likewise
//! `C = L Ch` on the side of the output. Then `G = L Gh K` with `Gh = Ch (zI - A)^-1 Bh`, and both systems are projected alike:
//! `G_r = L Gh_r K`, where `Gh_r` is the balanced truncation of the stable system Gh. So the reduced system is stable, and
//!
//! ```text
//! ||W (G - G_r) V|| <= ||W L|| ||K V|| 2 (sh_{r+1} + ... + sh_d)        sh: Hankel singular values of Gh
//! ||G - G_r||       <= ||L|| ||K|| 2 (sh_{r+1} + ... + sh_d)
//! ```
//!
//! Bh and Ch are scaled so that `||K V|| = ||W L|| = 1`.
//!
//! Nothing here depends on continuous time: the bound of balanced truncation for Gh is the discrete one. This is the argument of G. Wang,
//! V. Sreeram and W. Q. Liu (IEEE TAC 44 (1999)), who take `Bh Bh^T = |X|`; A. Varga and B. D. O. Anderson (Automatica 39 (2003)) take
//! the positive part. Both depend on the coordinates of the states, in which `|X|` is formed. Here it is formed where
//! the observability Gramian is the identity: of all `Y >= X, Y >= -X` this `|X|` adds the least energy at the output, and the result is
//! the same in all coordinates. A share of `B B^T` is added, which puts the range of B into that of Bh where X alone would not, and
//! keeps K small.
//!
//! A band of frequencies ([`Band`]) is an ideal weight, with X in closed form. Surveys: A. Ghafoor and V. Sreeram, J. Dyn. Syst. Meas.
//! Control 130 (2008); S. Gugercin and A. C. Antoulas, Int. J. Control 77 (2004).

mod band;
pub(crate) mod cascade;
mod energy;
mod facts;

pub use band::Band;
pub use facts::{Emphasis, WeightedFacts};

use crate::linalg::{compress_columns, exponent, gain_exponents, spectral_norm};
use crate::norms::{FrequencyResponse, hinf_norm};
use crate::stein::stein_factor;
use crate::{GramianFactors, HankelSpectrum, LinearSystem, LtiError, Result};
use energy::{Coordinates, Drive, Modified, in_band, under_weight};
use faer::Mat;

/// Weights of the input and of the output; none is the identity.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weights {
    /// V, with as many outputs as the system has inputs.
    pub input: Option<LinearSystem>,
    /// W, with as many inputs as the system has outputs.
    pub output: Option<LinearSystem>,
}

impl Weights {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.input.is_none() && self.output.is_none()
    }

    /// `W G V`.
    ///
    /// # Errors
    /// A weight that does not fit the inputs or outputs.
    pub fn around(&self, system: &LinearSystem) -> Result<LinearSystem> {
        let weighted = match &self.input {
            None => system.clone(),
            Some(weight) if weight.outputs() == system.inputs() => system.after(weight)?,
            Some(weight) => {
                return Err(LtiError::Unsupported(format!(
                    "the input weight has {} outputs, the system {} inputs: they must be as many",
                    weight.outputs(),
                    system.inputs()
                )));
            }
        };
        match &self.output {
            None => Ok(weighted),
            Some(weight) if weight.inputs() == system.outputs() => weight.after(&weighted),
            Some(weight) => Err(LtiError::Unsupported(format!(
                "the output weight has {} inputs, the system {} outputs: they must be as many",
                weight.inputs(),
                system.outputs()
            ))),
        }
    }
}

/// Gramians under weights, and what they guarantee.
#[derive(Debug, Clone)]
pub struct Weighted {
    /// The factors.
    pub factors: GramianFactors,
    /// Their decomposition. Its guarantee is one of the unweighted error; [`Weighted::bound`] is one of the weighted error.
    pub spectrum: HankelSpectrum,
}

impl Weighted {
    /// The modified Gramians: a stable reduced system and a bound. `spectrum` is the system's own, from its analytic Gramians.
    ///
    /// # Errors
    /// A weight that does not fit or vanishes; failures of the linear algebra.
    pub fn modified(system: &LinearSystem, spectrum: &HankelSpectrum, weights: &Weights) -> Result<Self> {
        weights.around(system)?;
        let a = system.a().to_dense();
        let mut sides = [None, None];
        if let Some(weight) = &weights.input {
            let drive = Drive::of(&of_unit_size(weight));
            let side = under_weight(a.as_ref(), system.b(), &drive, &coordinates(spectrum, Side::Input))?;
            let norm = hinf_upper(&weight.with_outputs(side.map.as_ref())?)?;
            sides[0] = Some(side.with_map_over(norm));
        }
        if let Some(weight) = &weights.output {
            let drive = Drive::of_transpose(&of_unit_size(weight));
            let c = system.c().transpose();
            let side = under_weight(a.transpose(), c, &drive, &coordinates(spectrum, Side::Output))?;
            let norm = hinf_upper(&weight.with_inputs(side.map.transpose())?)?;
            sides[1] = Some(side.with_map_over(norm));
        }
        Self::of_sides(system, sides)
    }

    /// The Gramians of a band of frequencies, modified: a stable reduced system and a bound of the error at all frequencies.
    ///
    /// # Errors
    /// A dense A that has no modal form; failures of the linear algebra.
    pub fn band(system: &LinearSystem, spectrum: &HankelSpectrum, band: Band) -> Result<Self> {
        let share = band.share(system)?;
        let (b, c) = (system.b(), system.c().transpose());
        let sides = [
            in_band(share.as_ref(), b, &coordinates(spectrum, Side::Input))?,
            in_band(share.transpose(), c, &coordinates(spectrum, Side::Output))?,
        ];
        let over_norm = |side: Modified| {
            let norm = spectral_norm(side.map.as_ref())?;
            Ok(Some(side.with_map_over(norm)))
        };
        let [input, output] = sides.map(over_norm);
        Self::of_sides(system, [input?, output?])
    }

    /// Enns' Gramians: the covariance of the states under the weighted input, and the energy of the weighted output, as they are. The
    /// reduced system may be unstable, and no bound is known.
    ///
    /// # Errors
    /// A weight that does not fit; failures of the linear algebra.
    pub fn enns(system: &LinearSystem, factors: &GramianFactors, weights: &Weights) -> Result<Self> {
        weights.around(system)?;
        let states = system.states();
        let mut sensitivity = factors.sensitivity;
        let mut top = |cascade: &LinearSystem, transposed: bool| -> Result<Mat<f64>> {
            sensitivity = sensitivity.max(1.0 / (1.0 - cascade.spectral_radius()).max(f64::EPSILON));
            let a = cascade.a().to_dense();
            let factor = if transposed {
                stein_factor(a.transpose(), cascade.c().transpose())?
            } else {
                stein_factor(a.as_ref(), cascade.b())?
            };
            let first = if transposed { factor.nrows() - states } else { 0 };
            Ok(compress_columns(factor.subrows(first, states)))
        };
        let lc = match &weights.input {
            Some(weight) => top(&system.after(weight)?, false)?,
            None => factors.lc.clone(),
        };
        let lo = match &weights.output {
            Some(weight) => top(&weight.after(system)?, true)?,
            None => factors.lo.clone(),
        };
        let factors = GramianFactors::without_equation(lc, lo, sensitivity);
        Ok(Self { spectrum: HankelSpectrum::new(&factors)?, factors })
    }

    /// The Gramians of Gh; without a side, its own B or C.
    fn of_sides(system: &LinearSystem, [input, output]: [Option<Modified>; 2]) -> Result<Self> {
        let norm = |side: &Option<Modified>| side.as_ref().map_or(Ok(1.0), |side| spectral_norm(side.map.as_ref()));
        let unweighted = norm(&input)? * norm(&output)?;
        let b = input.map_or_else(|| system.b().to_owned(), |side| side.gain);
        let c = output.map_or_else(|| system.c().to_owned(), |side| side.gain.transpose().to_owned());
        let weighted = LinearSystem::new(system.a().clone(), b, c, None)?;
        let weighted = if system.is_clamped() { weighted } else { weighted.unclamped() };
        let factors = GramianFactors::analytic(&weighted)?;
        Ok(Self { spectrum: HankelSpectrum::new(&factors)?.with_bound_factor(unweighted), factors })
    }

    /// `2 (sh_{r+1} + ... + sh_d)`, bound of the weighted error at `order` states by balanced truncation and its relatives; `None` for
    /// Enns' Gramians.
    pub fn bound(&self, order: usize) -> Option<f64> {
        self.spectrum.guarantee(order).map(|_| self.spectrum.bound(order))
    }
}

/// Which of the two Gramians.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Input,
    Output,
}

/// Those of all states above rounding in which the Gramian of the other side is the identity.
fn coordinates(spectrum: &HankelSpectrum, side: Side) -> Coordinates {
    let (left, right) = spectrum.directions(spectrum.rank());
    let (to, back) = if side == Side::Input { (left, right) } else { (right, left) };
    let values = spectrum.values();
    let back = Mat::from_fn(back.nrows(), back.ncols(), |i, j| back[(i, j)] / values[j]);
    Coordinates { to: to.transpose().to_owned(), back }
}

/// The weight times the power of two that brings its largest gain to about 1: Bh is found up to a factor, so that weights in any unit
/// neither overflow nor underflow.
fn of_unit_size(weight: &LinearSystem) -> LinearSystem {
    let (b, c) = gain_exponents(weight.b(), weight.c());
    let direct = weight.d().filter(|d| d.norm_max() > 0.0).map(exponent);
    let dynamic = (weight.b().norm_max() > 0.0 && weight.c().norm_max() > 0.0).then_some(b + c);
    weight.times_power_of_two(-direct.into_iter().chain(dynamic).max().unwrap_or(0))
}

/// Upper end of the enclosure of a norm.
fn hinf_upper(system: &LinearSystem) -> Result<f64> {
    Ok(hinf_norm(&FrequencyResponse::new(system))?.1.upper)
}
