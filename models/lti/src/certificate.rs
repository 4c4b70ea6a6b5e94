//! What is measured about a reduction, and what is claimed.

use super::continuous::Bilinear;
use super::gramians::GramianFactors;
use super::hankel::HankelSpectrum;
use super::methods::Method;
use super::norms::{h2_norm, h2_norm_by, h2_norm_in, hinf_sweep_of, proved_error, rounding_of_entries, without_shared};
use super::system::LinearSystem;
use super::weighted::WeightedFacts;
use super::{GramianSource, LtiError, Result};
use serde::{Deserialize, Deserializer, Serialize};

/// Facts about one reduced system. All norms and values are those of the gated system `gate * G`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemCertificate {
    /// How the system was reduced.
    pub method: Method,
    /// Gramians the reduction was based on.
    pub gramians: GramianSource,
    /// States of the full system.
    pub states: usize,
    /// States kept.
    pub order: usize,
    /// Form of the reduced state matrix.
    pub form: String,
    /// Element type of the reduced poles and matrices.
    pub dtype: String,
    /// The gate (1 for a plain system).
    pub gate: f64,
    /// Hankel singular values of the full system, descending, from its analytic Gramians.
    pub hankel_singular_values: Vec<f64>,
    /// How many of them are above rounding.
    pub numerical_rank: usize,
    /// `sigma_{order+1}`: no system of this order comes closer than this, if there are no clamped poles.
    pub lower_bound: f64,
    /// Bound of the H-infinity error before anything is measured: that of theory, for arithmetic without rounding, computed with it;
    /// absent where theory gives none, as for values from clamped poles. `rounding` is part of it.
    pub error_bound: Option<f64>,
    /// What is added to theory's bound for entries stored in doubles: nothing, unless poles are so near the stability boundary that
    /// rounding A moves the response by more than that bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounding: f64,
    /// Measured H-infinity norm of the difference of both systems: frequency sweep with local refinement, raised by the
    /// bounded-real test if the sweep missed a peak.
    pub hinf_error: f64,
    /// Frequency in radians per step at which it is attained.
    pub hinf_error_frequency: f64,
    /// No error is larger: what is guaranteed, rounding included, if it is `proved`.
    pub hinf_error_upper: f64,
    /// Whether `hinf_error_upper` is proved, for the systems as they are stored; else it comes from a test in floating point.
    #[serde(default)]
    pub proved: bool,
    /// By what ([`Proof`](crate::norms::Proof)), or `none:` and what is missing.
    #[serde(default = "before_proofs")]
    pub proof: String,
    /// H-infinity norm of the full system.
    pub hinf_norm: f64,
    /// H2 norm of the difference; in continuous time that of continuous time, infinite (in JSON `null`) where the direct terms differ.
    #[serde(deserialize_with = "null_is_infinite")]
    pub h2_error: f64,
    /// H2 norm of the full system; in continuous time infinite where it has a direct term.
    #[serde(deserialize_with = "null_is_infinite")]
    pub h2_norm: f64,
    /// Relative residuals of the two Lyapunov equations.
    pub lyapunov_residuals: Option<(f64, f64)>,
    /// Poles of the full system treated as faster than they are, in its Gramians only.
    pub clamped_poles: usize,
    /// Modulus of the slowest pole of the full system.
    pub spectral_radius: f64,
    /// Modulus of the slowest pole of the reduced system.
    pub reduced_spectral_radius: f64,
    /// Condition number of the eigenvectors that led to modal form.
    pub modal_condition: Option<f64>,
    /// `hinf_error <= error_bound (1 + 1e-6) + 1e-9 size` and `hinf_error_upper <= error_bound (1 + 1e-5) + 2e-9 size`;
    /// absent where there is no bound. `size` is `hinf_norm`, or twice the sum of the Hankel singular values, if that is less, as where D
    /// dwarfs the rest.
    pub holds: Option<bool>,
    /// The error under weights or in a band, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighted: Option<WeightedFacts>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// JSON has no infinity, and `serde_json` writes it as `null`.
fn null_is_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

/// What [`SystemCertificate::proof`] begins with where there is none.
const NO_PROOF: &str = "none: ";

/// [`SystemCertificate::proof`] of certificates from before there were proofs.
pub const BEFORE_PROOFS: &str = "none: written before upper ends were proved";

fn before_proofs() -> String {
    BEFORE_PROOFS.into()
}

/// What the measurement cannot see in the two systems.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// How the system was reduced.
    pub method: Method,
    /// Gramians the reduction was based on.
    pub gramians: GramianSource,
    /// Factor on the output of both systems.
    pub gate: f64,
    /// Guaranteed bound of the ungated error.
    pub bound: Option<f64>,
    /// Spectrum of the full, ungated system from its analytic Gramians.
    pub spectrum: &'a HankelSpectrum,
    /// Those Gramians.
    pub factors: &'a GramianFactors,
    /// Condition number of the eigenvectors that led to modal form.
    pub modal_condition: Option<f64>,
    /// Element type of the reduced system.
    pub dtype: String,
    /// An upper end that is to be proved, gate included, if it is as good as the one that would be.
    pub upper: Option<f64>,
    /// The map that made both systems of ones in continuous time: H2 norms are theirs.
    pub map: Option<Bilinear>,
}

/// Whether a measured error is within its bound: `error <= bound (1 + 1e-6) + 1e-9 size`.
pub fn bound_holds(error: f64, bound: f64, size: f64) -> bool {
    error <= bound * (1.0 + 1e-6) + 1e-9 * size
}

/// How much larger an error may be because A of both systems is stored in doubles: the larger of the estimate below and `of_entries`,
/// that of continuous time ([`rounding_of_entries`]). Each counts only if it is a small part of `norm`.
///
/// Rounding an entry moves a pole by about `2^-53`, and the response near it by that over the distance `1 - radius` from the circle,
/// relative to `norm`; the margin is for several entries of a dense A.
fn rounding(norm: f64, radius: f64, of_entries: f64) -> f64 {
    let of_poles = 4.0 * f64::EPSILON / (1.0 - radius) * norm;
    let small = |moved: f64, share: f64| if moved <= share * norm { moved } else { 0.0 };
    small(of_poles, 1e-5).max(small(of_entries, 1e-4))
}

/// What rounding is relative to: the norm of a system, or of what it is without its direct term, by its Hankel singular values.
fn size_of(norm: f64, values: &[f64], clamped_poles: usize) -> f64 {
    if clamped_poles > 0 { norm } else { norm.min(2.0 * values.iter().rev().sum::<f64>()) }
}

impl SystemCertificate {
    /// Measures the reduction of `full` to `reduced` (both without the gate).
    ///
    /// # Errors
    /// Systems with other inputs or outputs; a norm that does not converge; an error below what the Hankel singular values allow,
    /// which says that rounding has lost the Gramians.
    pub fn measure(full: &LinearSystem, reduced: &LinearSystem, claim: &Claim<'_>) -> Result<Self> {
        let gate = claim.gate.abs();
        let order = reduced.states();
        let norm = gate * hinf_sweep_of(full)?.value;
        let (own, others) = without_shared(full, reduced)?;
        let difference = own.difference(&others)?;
        let values: Vec<f64> = claim.spectrum.values().iter().map(|s| gate * s).collect();
        let gated_size = size_of(norm, &values, claim.factors.clamped_poles);
        let ungated = |size: f64| if gate > 0.0 { size / gate } else { 0.0 };
        let (size, norm_of_full) = (ungated(gated_size), ungated(norm));
        let error = proved_error(&own, &others, claim.spectrum, size, claim.upper.map(|upper| upper / gate))?;
        let hinf_error = gate * error.norm.value;
        // The product may be rounded down.
        let upper = gate * error.upper;
        let hinf_error_upper = if gate > 0.0 && error.upper > 0.0 { upper.next_up() } else { upper };
        let (spectral_radius, reduced_spectral_radius) = (full.spectral_radius(), reduced.spectral_radius());
        let within = |bound: f64| {
            bound_holds(hinf_error, bound, gated_size) && hinf_error_upper <= bound * (1.0 + 1e-5) + 2e-9 * gated_size
        };
        let theory = claim.bound.map(|b| gate * b);
        let rounding = match theory {
            Some(bound) if !within(bound) => {
                let of_entries = gate * rounding_of_entries([full, reduced], error.norm.frequency);
                rounding(gated_size, spectral_radius.max(reduced_spectral_radius), of_entries)
            }
            _ => 0.0,
        };
        let error_bound = theory.map(|bound| bound + rounding);
        let direct = |other: Option<&LinearSystem>| full.direct_term_beside(other, norm_of_full);
        let measured = Self {
            method: claim.method,
            gramians: claim.gramians,
            states: full.states(),
            order,
            form: reduced.a().form().into(),
            dtype: claim.dtype.clone(),
            gate: claim.gate,
            numerical_rank: if gate == 0.0 { 0 } else { claim.spectrum.rank() },
            lower_bound: values.get(order).copied().unwrap_or(0.0),
            hankel_singular_values: values,
            error_bound,
            rounding,
            hinf_error,
            hinf_error_frequency: error.norm.frequency,
            hinf_error_upper,
            proved: error.proof.is_one(),
            proof: error.proof.to_string(),
            hinf_norm: norm,
            h2_error: gate * h2_norm_in(claim.map, &difference, direct(Some(reduced)), h2_norm)?,
            h2_norm: gate * h2_norm_in(claim.map, full, direct(None), |full| h2_norm_by(full, claim.factors))?,
            lyapunov_residuals: claim.factors.residual_c.zip(claim.factors.residual_o),
            clamped_poles: claim.factors.clamped_poles,
            spectral_radius,
            reduced_spectral_radius,
            modal_condition: claim.modal_condition,
            holds: error_bound.map(within),
            weighted: None,
        };
        measured.check_finite(claim.map.is_some())?;
        if let Some(problem) = measured.impossible() {
            return Err(LtiError::Unsupported(format!(
                "{problem}: the Gramians are lost in rounding, A is too far from normal; store it as a diagonal or as 2x2 blocks"
            )));
        }
        Ok(measured)
    }

    /// The same about systems that are not those stored: nothing is proved, for this reason.
    pub fn unproved(self, missing: &str) -> Self {
        Self { proved: false, proof: format!("{NO_PROOF}{missing}"), ..self }
    }

    /// A number that is not finite would be written as `null`, which H2 norms in continuous time may be.
    fn check_finite(&self, continuous: bool) -> Result<()> {
        let h2 = |norm: f64| if continuous && norm == f64::INFINITY { 0.0 } else { norm };
        let (residual_c, residual_o) = self.lyapunov_residuals.unwrap_or_default();
        let named = [
            ("hinf_error", self.hinf_error),
            ("hinf_error_upper", self.hinf_error_upper),
            ("hinf_norm", self.hinf_norm),
            ("h2_error", h2(self.h2_error)),
            ("h2_norm", h2(self.h2_norm)),
            ("error_bound", self.error_bound.unwrap_or(0.0)),
            ("hankel_singular_values", self.hankel_singular_values.iter().fold(0.0, |sum, s| sum + s)),
            ("modal_condition", self.modal_condition.unwrap_or(0.0)),
            ("lyapunov_residuals", residual_c + residual_o),
        ];
        match named.into_iter().find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => Err(LtiError::Unsupported(format!(
                "{name} is {value} in double precision; scale the inputs or outputs of the system"
            ))),
            None => Ok(()),
        }
    }

    /// What the numbers themselves contradict: a negative one, or an error below what no system of this order comes below.
    fn impossible(&self) -> Option<String> {
        let numbers = [
            ("lower_bound", self.lower_bound),
            ("error_bound", self.error_bound.unwrap_or(0.0)),
            ("rounding", self.rounding),
            ("hinf_error", self.hinf_error),
            ("hinf_error_upper", self.hinf_error_upper),
            ("hinf_norm", self.hinf_norm),
            ("h2_error", self.h2_error),
            ("h2_norm", self.h2_norm),
        ];
        if let Some((name, value)) = numbers.into_iter().find(|(_, value)| *value < 0.0) {
            return Some(format!("{name} is negative ({value:e})"));
        }
        let largest = self.hankel_singular_values.first().copied().unwrap_or(0.0);
        let (lower, upper) = (self.lower_bound, self.hinf_error_upper);
        (self.clamped_poles == 0 && lower > 1.001 * upper + 1e-12 * largest)
            .then(|| format!("lower_bound is {lower:e}, hinf_error_upper {upper:e}, which is less"))
    }

    /// Claims that a fresh measurement contradicts, in words.
    ///
    /// Not compared is what says how the system was reduced (`method`, `gramians`, `dtype`, `modal_condition`), where the error is
    /// largest, which may be at several frequencies, and the numerical rank, which rounding decides.
    pub fn contradictions(&self, measured: &Self) -> Vec<String> {
        let mut found: Vec<String> = self.impossible().into_iter().collect();
        let scale = measured.size();
        // What rounding may do to a measurement.
        let radius = measured.spectral_radius.max(measured.reduced_spectral_radius);
        let noise = scale * (1e-12 + 8.0 * f64::EPSILON / (1.0 - radius)).min(1e-9);
        if self.hinf_error_upper < measured.hinf_error * (1.0 - 1e-6) - noise {
            found.push(format!(
                "hinf_error_upper is claimed to be {:e}, and an error of {:e} was measured",
                self.hinf_error_upper, measured.hinf_error
            ));
        }
        let mut number = |what: &str, claimed: f64, got: f64, slack: f64| {
            let difference = if claimed == got { 0.0 } else { (claimed - got).abs() };
            if difference.is_nan() || difference > slack {
                found.push(format!("{what} is claimed to be {claimed:e}, measured {got:e}"));
            }
        };
        // Two runs of the peak search may stop at points a rounding apart; 1e-6 is the accuracy promised.
        let close = |got: f64| 1e-6 * got.abs() + noise;
        number("hinf_error", self.hinf_error, measured.hinf_error, close(measured.hinf_error));
        number("hinf_error_upper", self.hinf_error_upper, measured.hinf_error_upper, close(measured.hinf_error_upper));
        number("hinf_norm", self.hinf_norm, measured.hinf_norm, 1e-6 * measured.hinf_norm + 1e-9 * scale);
        // Of an infinite norm only an infinite one is within the tolerance.
        let finite = |norm: f64| if norm.is_finite() { norm } else { 0.0 };
        let (h2_error, h2_norm) = (finite(measured.h2_error), finite(measured.h2_norm));
        number("h2_error", self.h2_error, measured.h2_error, 1e-6 * h2_error + 1e-9 * h2_norm);
        number("h2_norm", self.h2_norm, measured.h2_norm, 1e-6 * h2_norm);
        number("rounding", self.rounding, measured.rounding, close(measured.rounding));
        number("gate", self.gate, measured.gate, 0.0);
        number("spectral_radius", self.spectral_radius, measured.spectral_radius, 1e-9);
        number("reduced_spectral_radius", self.reduced_spectral_radius, measured.reduced_spectral_radius, 1e-9);
        let largest = measured.hankel_singular_values.first().copied().unwrap_or(0.0);
        number("lower_bound", self.lower_bound, measured.lower_bound, 1e-9 * largest);
        if self.hankel_singular_values.len() == measured.hankel_singular_values.len() {
            for (i, (a, b)) in self.hankel_singular_values.iter().zip(&measured.hankel_singular_values).enumerate() {
                number(&format!("hankel_singular_values[{i}]"), *a, *b, 1e-9 * largest);
            }
        } else {
            number(
                "the number of Hankel singular values",
                self.hankel_singular_values.len() as f64,
                measured.hankel_singular_values.len() as f64,
                0.0,
            );
        }
        match (self.error_bound, measured.error_bound) {
            (Some(a), Some(b)) if a < b => number("error_bound", a, b, 1e-6 * b + self.states as f64 * noise),
            (Some(a), Some(b)) => number("error_bound", a, b, 1e-6 * b + 1e-9 * largest),
            (Some(a), None) => number("error_bound (for which there is no theory)", a, f64::NAN, 0.0),
            (None, _) => {}
        }
        for (what, claimed, got) in [
            ("order", self.order, measured.order),
            ("states", self.states, measured.states),
            ("clamped_poles", self.clamped_poles, measured.clamped_poles),
        ] {
            number(what, claimed as f64, got as f64, 0.0);
        }
        if let (Some((c, o)), Some((got_c, got_o))) = (self.lyapunov_residuals, measured.lyapunov_residuals) {
            // They are rounding, which another machine does otherwise: only a claim that is far too small is false.
            for (i, claimed, got) in [(0, c, got_c), (1, o, got_o)] {
                if got > 10.0 * claimed + 1e-12 {
                    found.push(format!("lyapunov_residuals[{i}] is claimed to be {claimed:e}, measured {got:e}"));
                }
            }
        }
        let without = self.proof.starts_with(NO_PROOF);
        if self.proved == without {
            found.push(format!("proved is claimed to be {}, the proof is {:?}", self.proved, self.proof));
        } else if self.proved && !measured.proved {
            found.push(format!("hinf_error_upper is claimed to be proved; the proof is {:?}", measured.proof));
        } else if self.proved && measured.hinf_error_upper > self.hinf_error_upper * (1.0 + 4.0 * f64::EPSILON) {
            found.push(format!(
                "hinf_error_upper is claimed to be proved at {:e}; only {:e} is",
                self.hinf_error_upper, measured.hinf_error_upper
            ));
        } else if self.proved == measured.proved && self.proof != measured.proof && self.proof != BEFORE_PROOFS {
            found.push(format!("the proof is claimed to be {:?}, it is {:?}", self.proof, measured.proof));
        }
        if self.form != measured.form {
            found.push(format!("form is claimed to be {}, it is {}", self.form, measured.form));
        }
        if self.holds == Some(true) && measured.holds != Some(true) {
            found.push("the bound is claimed to hold".into());
        }
        match (&self.weighted, &measured.weighted) {
            (Some(claimed), Some(measured)) => found.extend(claimed.contradictions(measured)),
            (Some(_), None) => {
                found.push("a weighted error is claimed, and there is no weight to measure it with".into());
            }
            (None, _) => {}
        }
        found
    }

    /// The `size` of [`SystemCertificate::holds`].
    fn size(&self) -> f64 {
        size_of(self.hinf_norm, &self.hankel_singular_values, self.clamped_poles)
    }

    /// Whether the bound holds only because rounding is allowed for: the measured error is larger than it.
    pub fn is_within_rounding(&self) -> bool {
        is_within_rounding(self.holds, self.hinf_error, self.error_bound)
    }

    /// Whether a measured error exceeds its bound, weighted or not.
    pub fn is_broken(&self) -> bool {
        self.holds == Some(false) || self.weighted.as_ref().is_some_and(|weighted| weighted.holds == Some(false))
    }
}

/// Whether a bound holds although the measured error is larger than it.
pub(crate) fn is_within_rounding(holds: Option<bool>, error: f64, bound: Option<f64>) -> bool {
    holds == Some(true) && bound.is_some_and(|bound| error > bound * (1.0 + 1e-6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StateMatrix, reduce};
    use faer::Mat;

    /// Two states truncated to one.
    fn measured() -> SystemCertificate {
        let (b, c) = (Mat::from_fn(2, 1, |i, _| 1.0 + i as f64), Mat::from_fn(1, 2, |_, j| 2.0 - j as f64));
        let system = LinearSystem::new(StateMatrix::Diagonal(vec![0.9, 0.5]), b, c, None).unwrap();
        let factors = GramianFactors::analytic(&system).unwrap();
        let spectrum = HankelSpectrum::new(&factors).unwrap();
        let reduced = reduce(&system, &spectrum, Method::default(), 1).unwrap();
        let claim = Claim {
            method: Method::default(),
            gramians: GramianSource::Analytic,
            gate: 1.0,
            bound: reduced.bound,
            spectrum: &spectrum,
            factors: &factors,
            modal_condition: None,
            dtype: "f64".into(),
            upper: None,
            map: None,
        };
        SystemCertificate::measure(&system, &reduced.system, &claim).unwrap()
    }

    #[test]
    fn claims_that_a_measurement_does_not_confirm_are_named() {
        let honest = measured();
        assert_eq!((honest.holds, honest.contradictions(&measured())), (Some(true), vec![]));
        let contradicts = |claimed: &SystemCertificate, measured: &SystemCertificate, word: &str| {
            let found = claimed.contradictions(measured);
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        };
        let unknown = SystemCertificate { error_bound: None, holds: None, ..honest.clone() };
        let claimed = SystemCertificate { error_bound: None, ..honest.clone() };
        contradicts(&claimed, &unknown, "claimed to hold");
        let claimed = SystemCertificate { holds: None, ..honest.clone() };
        contradicts(&claimed, &unknown, "error_bound");
        // To claim less than what is true is not a false claim.
        assert_eq!(unknown.contradictions(&honest), Vec::<String>::new());
        // Less than what was measured, by however little of the norm.
        let claimed = SystemCertificate { hinf_error_upper: 0.9 * honest.hinf_error, ..honest.clone() };
        assert!(claimed.contradictions(&honest).iter().any(|said| said.contains("an error of")));
        let tiny = |upper: f64| SystemCertificate {
            hinf_error: 1e-10 * upper,
            hinf_error_upper: 1e-10 * upper,
            lower_bound: 0.0,
            proved: false,
            proof: "none: of a test".into(),
            ..honest.clone()
        };
        assert_eq!(tiny(1.0).contradictions(&tiny(1.0)), Vec::<String>::new());
        let claimed = tiny(0.0).contradictions(&tiny(1.0));
        assert!(claimed.iter().any(|said| said.contains("an error of")), "{claimed:?}");
        assert!(claimed.iter().any(|said| said.starts_with("hinf_error is claimed to be 0e0")), "{claimed:?}");
        // What cannot be, whatever is measured.
        let claimed = SystemCertificate { lower_bound: 1.1 * honest.hinf_error_upper, ..honest.clone() };
        assert!(claimed.contradictions(&claimed)[0].contains("which is less"));
        let claimed = SystemCertificate { error_bound: Some(-1e-13), ..honest.clone() };
        assert!(claimed.contradictions(&honest)[0].starts_with("error_bound is negative"));
        let claimed = SystemCertificate { clamped_poles: 1, ..honest.clone() };
        contradicts(&claimed, &honest, "clamped_poles");
        // `null` is infinity, which is not what was measured, and is when it was.
        let json = |h2: &str| serde_json::to_string(&honest).unwrap().replace(&honest.h2_norm.to_string(), h2);
        let infinite: SystemCertificate = serde_json::from_str(&json("null")).unwrap();
        assert_eq!(infinite.h2_norm, f64::INFINITY);
        contradicts(&infinite, &honest, "h2_norm");
        contradicts(&honest, &infinite, "h2_norm");
        assert_eq!(infinite.contradictions(&infinite), Vec::<String>::new());
        contradicts(&SystemCertificate { h2_error: 2.0 * honest.h2_error, ..infinite.clone() }, &infinite, "h2_error");
        let inexact = SystemCertificate { lyapunov_residuals: Some((1e-15, 1e-9)), ..honest.clone() };
        contradicts(&honest, &inexact, "lyapunov_residuals[1]");
        let claimed = SystemCertificate { lyapunov_residuals: Some((1e-15, 2e-10)), ..honest.clone() };
        assert_eq!(claimed.contradictions(&inexact), Vec::<String>::new());
    }
}
