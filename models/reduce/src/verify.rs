//! Recomputing what a certificate claims.

use super::analysis::{LayerAnalysis, analyse_layer, layer_system};
use super::certificate::{Certificate, CertificateTotal, LayerCertificate, total};
use super::options::{ReduceError, Result};
use super::weighting::{LayerWeights, weigh_layer};
use hankel_files::{HrmAdapterFile, HrmLayerFile};
use hankel_lti::certificate::{Claim, SystemCertificate};
use hankel_lti::{GramianSource, LinearSystem, Method};
use rayon::prelude::*;
use serde::Serialize;

/// What a verification found in one layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerVerification {
    /// `layer 3`.
    pub layer: String,
    /// Everything measured afresh.
    pub measured: SystemCertificate,
    /// False claims, in words; empty if all is well.
    pub problems: Vec<String>,
}

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    /// Whether there are no problems.
    pub passed: bool,
    /// Problems that concern no single layer.
    pub problems: Vec<String>,
    /// Sum over the layers, measured afresh.
    pub total: CertificateTotal,
    /// Layer by layer.
    pub layers: Vec<LayerVerification>,
}

impl Verification {
    /// Puts together what was found in the layers, and compares their sum with that of the certificate.
    pub fn new(layers: Vec<LayerVerification>, certificate: Option<&Certificate>) -> Self {
        let measured: Vec<LayerCertificate> =
            layers.iter().map(|l| LayerCertificate { layer: l.layer.clone(), facts: l.measured.clone() }).collect();
        let total = total(&measured);
        let norms: f64 = layers.iter().map(|l| l.measured.hinf_norm).sum();
        let mut problems = certificate.map_or_else(Vec::new, |c| total_problems(&c.total, &total, norms));
        if certificate.and_then(|c| c.task.as_ref()).is_some_and(|task| !task.follows_from(&measured)) {
            problems.push("the change of the loss is not the sum of sensitivities times errors".into());
        }
        if certificate.is_some_and(|certificate| certificate.excess().is_some()) {
            problems.push("the error may be larger than the bound that the orders are claimed to be chosen by".into());
        }
        let passed = problems.is_empty() && layers.iter().all(|l| l.problems.is_empty());
        Self { passed, problems, total, layers }
    }
}

/// Measures two adapters and compares what a certificate claims of them; [`SystemCertificate::contradictions`] says which claims
/// can be compared.
///
/// `weights` are those that the certificate is about. Without a certificate the reduced adapter is held to the bound of balanced truncation at its orders, and fails where there is
/// none.
///
/// # Errors
/// Adapters that do not belong together; a certificate with other layers.
pub fn verify(
    full: &HrmAdapterFile,
    reduced: &HrmAdapterFile,
    certificate: Option<&Certificate>,
    weights: &LayerWeights,
) -> Result<Verification> {
    check_pair(full, reduced)?;
    if let Some(certificate) = certificate {
        let claimed: Vec<&str> = certificate.layers.iter().map(|l| l.layer.as_str()).collect();
        let found: Vec<String> = full.layers.iter().map(HrmLayerFile::label).collect();
        if claimed != found {
            return Err(ReduceError::Mismatch(format!(
                "the certificate is about the layers {claimed:?}, the adapters have {found:?}"
            )));
        }
    }
    let layers: Vec<LayerVerification> = (0..full.layers.len())
        .into_par_iter()
        .map(|i| {
            let analysis = analyse_layer(full, &full.layers[i])?;
            let system = layer_system(reduced, &reduced.layers[i])?;
            let claim = certificate.map(|c| &c.layers[i].facts);
            let analysis = weigh_layer(analysis, claim.map_or(GramianSource::Analytic, |c| c.gramians), weights)?;
            verify_layer(&analysis, &system, reduced.layers[i].gate, claim)
                .map_err(|reason| ReduceError::Layer { label: analysis.label.clone(), reason })
        })
        .collect::<Result<_>>()?;
    Ok(Verification::new(layers, certificate))
}

/// As [`verify`] for one system, which was weighed if a weighted error is claimed.
///
/// # Errors
/// Systems with other inputs or outputs, and norms that do not converge.
pub fn verify_layer(
    full: &LayerAnalysis,
    reduced: &LinearSystem,
    reduced_gate: f64,
    claimed: Option<&SystemCertificate>,
) -> hankel_lti::Result<LayerVerification> {
    let (method, gramians) = claimed.map_or((Method::default(), GramianSource::Analytic), |c| (c.method, c.gramians));
    let (order, states) = (reduced.states(), full.system.states());
    // What keeps all states is bounded by 0, whatever the Gramians.
    let guaranteed = method.guarantees(gramians) || order == states;
    // Where none is claimed, as for slow poles that were kept apart, what the method guarantees elsewhere says nothing.
    let claims_none = claimed.is_some_and(|c| c.error_bound.is_none());
    let weighted = full.weighting.as_ref().and_then(|weighting| weighting.gramians.as_ref());
    let spectrum = weighted.map_or(&full.spectrum, |weighted| &weighted.spectrum);
    let bound = if guaranteed && !claims_none && order <= states {
        method.error_bound(&full.system, spectrum, order)?
    } else {
        None
    };
    let claim = Claim {
        method,
        gramians,
        gate: full.gate,
        bound,
        spectrum: &full.spectrum,
        factors: &full.factors,
        modal_condition: claimed.and_then(|c| c.modal_condition),
        dtype: claimed.map_or("f64".into(), |c| c.dtype.clone()),
        upper: claimed.filter(|c| c.proved).map(|c| c.hinf_error_upper),
        map: full.map(),
    };
    let mut measured = SystemCertificate::measure(&full.system, reduced, &claim)?;
    if let Some(missing) = full.image {
        measured = measured.unproved(missing);
    }
    if let Some(weighting) = &full.weighting {
        measured.weighted = Some(weighting.measure(full, reduced, bound.map(|_| method))?);
    }
    let mut problems = claimed.map_or_else(Vec::new, |c| c.contradictions(&measured));
    if reduced_gate != full.gate {
        problems.push(format!("the gate changed from {} to {reduced_gate}", full.gate));
    }
    if order > states {
        problems.push(format!("it has {order} states, the full system only {states}; are the two swapped?"));
    }
    if claimed.is_none() && measured.holds.is_none() {
        problems.push("there is neither a certificate nor a bound that it could be held to".into());
    }
    if measured.holds == Some(false) {
        problems.push(format!(
            "the H-infinity error, measured {:e} and at most {:e}, exceeds the bound {:e}",
            measured.hinf_error,
            measured.hinf_error_upper,
            measured.error_bound.unwrap_or(0.0)
        ));
    }
    if let Some(weighted) = measured.weighted.as_ref().filter(|weighted| weighted.holds == Some(false)) {
        problems.push(format!(
            "the measured weighted error {:e} exceeds its bound {:e}",
            weighted.hinf_error,
            weighted.error_bound.unwrap_or(0.0)
        ));
    }
    Ok(LayerVerification { layer: full.label.clone(), measured, problems })
}

/// `norms` is the sum of the layers' norms, which rounding is relative to.
fn total_problems(claimed: &CertificateTotal, measured: &CertificateTotal, norms: f64) -> Vec<String> {
    let mut problems = Vec::new();
    let differ = |a: f64, b: f64| (a - b).abs() > 1e-6 * b.abs() + 1e-9 * norms;
    if claimed.order != measured.order || claimed.states != measured.states {
        problems.push(format!(
            "the total is claimed to be {} of {} states, it is {} of {}",
            claimed.order, claimed.states, measured.order, measured.states
        ));
    }
    if claimed.error_bound.is_some_and(|a| measured.error_bound.is_none_or(|b| differ(a, b))) {
        problems.push("the total of the error bounds is not the sum of the layers'".into());
    }
    if claimed.holds == Some(true) && measured.holds != Some(true) {
        problems.push("the bounds of all layers are claimed to hold".into());
    }
    if differ(claimed.hinf_error, measured.hinf_error) {
        problems.push("the total of the H-infinity errors is not the sum of the layers'".into());
    }
    problems
}

fn check_pair(full: &HrmAdapterFile, reduced: &HrmAdapterFile) -> Result<()> {
    let keys = |a: &HrmAdapterFile| a.layers.iter().map(|l| (l.layer, l.site)).collect::<Vec<_>>();
    if keys(full) != keys(reduced) {
        return Err(ReduceError::Mismatch(format!(
            "the adapters have different layers: {:?} and {:?}",
            full.layers.iter().map(HrmLayerFile::label).collect::<Vec<_>>(),
            reduced.layers.iter().map(HrmLayerFile::label).collect::<Vec<_>>()
        )));
    }
    for (a, b) in full.layers.iter().zip(&reduced.layers) {
        if a.width != b.width {
            return Err(ReduceError::Mismatch(format!(
                "{} has width {} in the full adapter and {} in the reduced one",
                a.label(),
                a.width,
                b.width
            )));
        }
        if b.state_dim > a.state_dim {
            return Err(ReduceError::Mismatch(format!(
                "{} has {} states in the reduced adapter and only {} in the full one; are the two swapped?",
                a.label(),
                b.state_dim,
                a.state_dim
            )));
        }
    }
    let (a, b) = (&full.config, &reduced.config);
    if (a.input, a.discretization, a.site) != (b.input, b.discretization, b.site) {
        return Err(ReduceError::Mismatch(
            "the adapters differ in input, discretization or site: they are not reductions of each other".into(),
        ));
    }
    Ok(())
}
