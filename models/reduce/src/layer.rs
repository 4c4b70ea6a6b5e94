//! Reduction of one layer.

use super::analysis::LayerAnalysis;
use super::options::{Gramians, ReduceError, Result};
use faer::{Mat, MatRef};
use hankel_lti::certificate::{Claim, SystemCertificate};
use hankel_lti::modal::to_modal;
use hankel_lti::{
    GramianFactors, HankelSpectrum, LinearSystem, LtiError, Method, Projection, Reduced, StateMatrix, reduce,
};

/// A reduced layer with its certificate and the change of state that led to it.
#[derive(Debug, Clone)]
pub struct LayerReduction {
    /// What theory and measurement say.
    pub certificate: SystemCertificate,
    /// The reduced system as it is stored, without the gate.
    pub system: LinearSystem,
    /// How the reduced states follow from the full ones (`B_r = L B`, `C_r = C R`), where they do.
    pub projection: Option<Projection>,
    /// The states kept unchanged, where that is all that happened.
    pub kept: Option<Vec<usize>>,
}

impl LayerReduction {
    /// Carries a gradient-like quantity (Adam's first moment) of B [d, D] and C [D, d] over to the reduced coordinates. B is
    /// the discretised input matrix: a derivative by trained rows is divided by [`hrm::input_gains`](crate::hrm::input_gains) first. With
    /// `B = R B_r` and `C = C_r L` near the kept subspace, the chain rule gives `R^T dB` and `dC L^T`; `None` where the reduction is
    /// no projection.
    pub fn carry_gradients(&self, d_b: MatRef<'_, f64>, d_c: MatRef<'_, f64>) -> Option<(Mat<f64>, Mat<f64>)> {
        let Projection { left, right } = self.projection.as_ref()?;
        Some((right.transpose() * d_b, d_c * left.transpose()))
    }
}

/// Reduces one system to a given order and certifies the result; the state matrix comes out in the least general form that
/// carries the transfer function (R5).
pub fn reduce_system(
    layer: &LayerAnalysis,
    method: Method,
    order: usize,
    gramians: &Gramians,
    allow_direct_term: bool,
) -> Result<LayerReduction> {
    reduce_inner(layer, method, order, gramians, allow_direct_term)
        .map_err(|reason| ReduceError::Layer { label: layer.label.clone(), reason })
}

fn reduce_inner(
    layer: &LayerAnalysis,
    method: Method,
    order: usize,
    gramians: &Gramians,
    allow_direct_term: bool,
) -> hankel_lti::Result<LayerReduction> {
    let system = &layer.system;
    if method.has_direct_term() && !allow_direct_term {
        return Err(LtiError::Unsupported(format!(
            "method {} makes a direct term D, which the recurrence of an adapter has no place for; use bt or bfsr",
            method.name()
        )));
    }
    method.check_gramians(gramians.source())?;
    let states = system.states();
    let reduced = if order == states {
        // Nothing is discarded: the system stays as it is, exactly.
        let identity = Mat::identity(states, states);
        let kept = Some((0..states).collect());
        let bound = method.error_bound(system, &layer.spectrum, order)?;
        let projection = Some(Projection { left: identity.clone(), right: identity });
        Reduced { system: system.clone(), projection, bound, kept }
    } else {
        let spectrum = match gramians {
            Gramians::Analytic => None,
            Gramians::TimeLimited(steps) => Some(HankelSpectrum::new(&GramianFactors::time_limited(system, *steps)?)?),
            Gramians::Empirical(recorded) => {
                let of_layer = recorded.get(&layer.label).ok_or_else(|| {
                    LtiError::Unsupported("the file of recorded states has none of this layer".into())
                })?;
                let factors = GramianFactors::empirical(system, of_layer.states.as_ref(), of_layer.steps)?;
                Some(HankelSpectrum::new(&factors)?)
            }
        };
        reduce(system, spectrum.as_ref().unwrap_or(&layer.spectrum), method, order)?
    };
    let certify = |reduced: Reduced, modal_condition: Option<f64>| -> hankel_lti::Result<LayerReduction> {
        let claim = Claim {
            method,
            gramians: gramians.source(),
            gate: layer.gate,
            bound: reduced.bound,
            spectrum: &layer.spectrum,
            factors: &layer.factors,
            modal_condition,
            dtype: "f64".into(),
        };
        let certificate = SystemCertificate::measure(system, &reduced.system, &claim)?;
        Ok(LayerReduction { certificate, system: reduced.system, projection: reduced.projection, kept: reduced.kept })
    };
    if order < states
        && let Some((modal, condition)) = into_modal(&reduced)?
    {
        let modal = certify(modal, Some(condition))?;
        // The rounding of the conversion can exceed a small bound: the dense form is kept where it holds.
        if modal.certificate.holds != Some(false) {
            return Ok(modal);
        }
        let dense = certify(reduced, None)?;
        return Ok(if dense.certificate.holds == Some(true) { dense } else { modal });
    }
    certify(reduced, None)
}

/// A dense result in modal form with the condition number of its eigenvectors; `None` where the transfer function does not survive
/// the conversion, and for a result that is not dense (R5).
fn into_modal(reduced: &Reduced) -> hankel_lti::Result<Option<(Reduced, f64)>> {
    if !matches!(reduced.system.a(), StateMatrix::Dense(_)) {
        return Ok(None);
    }
    match to_modal(&reduced.system) {
        Ok(modal) => {
            let projection = reduced.projection.as_ref().map(|Projection { left, right }| Projection {
                left: modal.transformation * left,
                right: right * modal.inverse,
            });
            Ok(Some((Reduced { system: modal.system, projection, ..reduced.clone() }, modal.condition)))
        }
        Err(LtiError::Conversion { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}
