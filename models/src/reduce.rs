//! Reduction of whole HRM adapters: one linear system per layer, orders chosen per layer or across layers, a certificate.

use crate::lti::certificate::{Claim, SystemCertificate};
use crate::lti::modal::to_modal;
use crate::lti::order::{allocate_budget, allocate_total_bound};
use crate::lti::truncation::{error_bound, reduce};
use crate::lti::{
    GramianFactors, GramianSource, HankelSpectrum, LinearSystem, LtiError, Method, OrderRule, Reduced, StateMatrix,
};
use crate::weights::{AdapterHashes, HrmAdapterFile, HrmDynamics, HrmLayerFile};
use faer::{Mat, MatRef};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// What can go wrong with the reduction of an adapter.
#[derive(Debug, Error)]
pub enum ReduceError {
    /// A failure in one layer.
    #[error("{label}: {source}")]
    Layer {
        /// `layer 3`.
        label: String,
        /// What happened there.
        source: LtiError,
    },
    /// A failure that concerns no single layer.
    #[error(transparent)]
    System(#[from] LtiError),
    /// Two adapters, or an adapter and a file, that do not belong together.
    #[error("{0}")]
    Mismatch(String),
}

/// Result of this module.
pub type Result<T> = std::result::Result<T, ReduceError>;

/// How the orders of all layers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderChoice {
    /// The same rule in every layer on its own.
    PerLayer(OrderRule),
    /// So many states over all layers, placed so that the sum of the bounds is least.
    Budget(usize),
    /// The fewest states over all layers for which the sum of the bounds is at most this.
    TotalBound(f64),
}

impl Default for OrderChoice {
    fn default() -> Self {
        Self::PerLayer(OrderRule::default())
    }
}

/// Recorded states of a layer, for empirical Gramians.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedStates {
    /// [N T, d].
    pub states: Mat<f64>,
    /// Length T of each sequence.
    pub steps: usize,
}

/// Gramians to use for the reduction of every layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Gramians {
    /// The infinite-horizon ones.
    #[default]
    Analytic,
    /// Those of so many steps.
    TimeLimited(usize),
    /// From recorded states, by the label of the layer (`layer 3`).
    Empirical(BTreeMap<String, RecordedStates>),
}

impl Gramians {
    fn source(&self) -> GramianSource {
        match self {
            Self::Analytic => GramianSource::Analytic,
            Self::TimeLimited(steps) => GramianSource::TimeLimited(*steps),
            Self::Empirical(_) => GramianSource::Empirical,
        }
    }
}

/// Settings of a reduction.
#[derive(Debug, Clone, Default)]
pub struct ReduceOptions {
    /// How the smaller systems are made.
    pub method: Method,
    /// How large they are.
    pub orders: OrderChoice,
    /// From which Gramians.
    pub gramians: Gramians,
}

/// A layer's system with everything a reduction starts from.
#[derive(Debug, Clone)]
pub struct LayerAnalysis {
    /// `layer 3`.
    pub label: String,
    /// The system without the gate.
    pub system: LinearSystem,
    /// The gate.
    pub gate: f64,
    /// Gramian factors (analytic).
    pub factors: GramianFactors,
    /// Hankel singular values (of the ungated system, from the analytic Gramians).
    pub spectrum: HankelSpectrum,
}

impl LayerAnalysis {
    /// Analyses a system.
    pub fn new(label: impl Into<String>, system: LinearSystem, gate: f64) -> Result<Self> {
        let label = label.into();
        let of_layer = |source| ReduceError::Layer { label: label.clone(), source };
        if system.states() == 0 {
            return Err(of_layer(LtiError::NoStates));
        }
        let factors = GramianFactors::analytic(&system).map_err(of_layer)?;
        let spectrum = HankelSpectrum::new(&factors).map_err(of_layer)?;
        Ok(Self { label, system, gate, factors, spectrum })
    }

    /// Hankel singular values of the gated system (R6), descending.
    pub fn hankel_singular_values(&self) -> Vec<f64> {
        self.spectrum.values().iter().map(|s| self.gate.abs() * s).collect()
    }

    /// Numerical rank; 0 behind a closed gate.
    pub fn rank(&self) -> usize {
        if self.gate == 0.0 { 0 } else { self.spectrum.rank() }
    }
}

/// Systems, Gramians and Hankel singular values of all layers, in parallel.
///
/// A layer that was reduced to no states at all is an empty system, not an error, as long as the adapter has states.
pub fn analyse(adapter: &HrmAdapterFile) -> Result<Vec<LayerAnalysis>> {
    if adapter.config.state_dim == 0 {
        return Err(LtiError::NoStates.into());
    }
    adapter.layers.par_iter().map(|layer| analyse_layer(adapter, layer)).collect()
}

fn layer_system(adapter: &HrmAdapterFile, layer: &HrmLayerFile) -> Result<LinearSystem> {
    layer.system(adapter.config.discretization).map_err(|source| ReduceError::Layer { label: layer.label(), source })
}

fn analyse_layer(adapter: &HrmAdapterFile, layer: &HrmLayerFile) -> Result<LayerAnalysis> {
    let system = layer_system(adapter, layer)?;
    if system.states() > 0 {
        return LayerAnalysis::new(layer.label(), system, layer.gate);
    }
    let factors = GramianFactors::without_equation(Mat::zeros(0, 0), Mat::zeros(0, 0), 1.0);
    let spectrum = HankelSpectrum::new(&factors)?;
    Ok(LayerAnalysis { label: layer.label(), system, gate: layer.gate, factors, spectrum })
}

/// Orders for all layers.
///
/// # Errors
/// Parameters out of range; a bound asked of a method without one.
pub fn choose_orders(layers: &[LayerAnalysis], options: &ReduceOptions) -> Result<Vec<usize>> {
    let no_guarantee = options.gramians.source() != GramianSource::Analytic || options.method == Method::Svd;
    let asks_for_bound =
        matches!(options.orders, OrderChoice::TotalBound(_) | OrderChoice::PerLayer(OrderRule::Bound(_)));
    if no_guarantee && asks_for_bound {
        return Err(LtiError::Unsupported(format!(
            "no error bound is known for method {} with {}; choose the order by another rule",
            options.method.name(),
            match options.gramians {
                Gramians::Analytic => "any Gramians",
                Gramians::TimeLimited(_) => "time-limited Gramians",
                Gramians::Empirical(_) => "empirical Gramians",
            }
        ))
        .into());
    }
    let spectra: Vec<Vec<f64>> = layers.iter().map(LayerAnalysis::hankel_singular_values).collect();
    let ranks = layers.iter().map(LayerAnalysis::rank);
    let clip = |orders: Vec<usize>| orders.into_iter().zip(ranks).map(|(order, rank)| order.min(rank)).collect();
    match options.orders {
        OrderChoice::Budget(budget) => Ok(clip(allocate_budget(&spectra, budget))),
        OrderChoice::TotalBound(_) if options.method == Method::Modal => Err(LtiError::Unsupported(
            "a total bound is allocated by Hankel singular values, which do not bound modal truncation; \
             use --bound per layer"
                .into(),
        )
        .into()),
        OrderChoice::TotalBound(tolerance) => Ok(clip(allocate_total_bound(&spectra, tolerance)?)),
        OrderChoice::PerLayer(rule) => layers
            .iter()
            .zip(&spectra)
            .map(|(layer, sigma)| {
                let bound = |order| {
                    let bound = error_bound(&layer.system, &layer.spectrum, options.method, order);
                    bound.ok().flatten().map_or(f64::INFINITY, |b| b * layer.gate.abs())
                };
                rule.choose(sigma, layer.rank(), bound)
                    .map_err(|source| ReduceError::Layer { label: layer.label.clone(), source })
            })
            .collect(),
    }
}

/// A reduced layer with its certificate and the change of state that led to it.
#[derive(Debug, Clone)]
pub struct LayerReduction {
    /// What theory and measurement say.
    pub certificate: SystemCertificate,
    /// The reduced system as it is stored, without the gate.
    pub system: LinearSystem,
    /// Reduced state from full state, [r, d]: `B_r = L B`.
    pub left: Mat<f64>,
    /// Full state from reduced state, [d, r]: `C_r = C R`.
    pub right: Mat<f64>,
    /// The states kept unchanged, where that is all that happened.
    pub kept: Option<Vec<usize>>,
}

impl LayerReduction {
    /// Carries a gradient-like quantity (Adam's first moment) of B [d, D] and C [D, d] over to the reduced coordinates: with
    /// `B = R B_r` and `C = C_r L` near the kept subspace, the chain rule gives `R^T dB` and `dC L^T`.
    pub fn carry_gradients(&self, d_b: MatRef<'_, f64>, d_c: MatRef<'_, f64>) -> (Mat<f64>, Mat<f64>) {
        (self.right.transpose() * d_b, d_c * self.left.transpose())
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
        .map_err(|source| ReduceError::Layer { label: layer.label.clone(), source })
}

fn reduce_inner(
    layer: &LayerAnalysis,
    method: Method,
    order: usize,
    gramians: &Gramians,
    allow_direct_term: bool,
) -> crate::lti::Result<LayerReduction> {
    let system = &layer.system;
    if method == Method::Spa && !allow_direct_term {
        return Err(LtiError::Unsupported(
            "method spa makes a direct term D, which the recurrence of an adapter has no place for; use bt or bfsr"
                .into(),
        ));
    }
    let states = system.states();
    let (reduced, condition) = if order == states {
        // Nothing is discarded: the system stays as it is, exactly.
        let identity = Mat::identity(states, states);
        let kept = Some((0..states).collect());
        let bound = error_bound(system, &layer.spectrum, method, order)?;
        (Reduced { system: system.clone(), left: identity.clone(), right: identity, bound, kept }, None)
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
        let mut reduced = reduce(system, spectrum.as_ref().unwrap_or(&layer.spectrum), method, order)?;
        if spectrum.is_some() && method != Method::Modal {
            reduced.bound = None;
        }
        into_modal(reduced)?
    };
    let claim = Claim {
        method,
        gramians: gramians.source(),
        gate: layer.gate,
        bound: reduced.bound,
        spectrum: &layer.spectrum,
        factors: &layer.factors,
        modal_condition: condition,
        dtype: "f64".into(),
    };
    let certificate = SystemCertificate::measure(system, &reduced.system, &claim)?;
    Ok(LayerReduction {
        certificate,
        system: reduced.system,
        left: reduced.left,
        right: reduced.right,
        kept: reduced.kept,
    })
}

/// Brings a dense result to modal form if its transfer function survives that, and keeps it dense otherwise (R5).
fn into_modal(reduced: Reduced) -> crate::lti::Result<(Reduced, Option<f64>)> {
    if !matches!(reduced.system.a(), StateMatrix::Dense(_)) {
        return Ok((reduced, None));
    }
    match to_modal(&reduced.system) {
        Ok(modal) => {
            let left = modal.transformation * &reduced.left;
            let right = &reduced.right * modal.inverse;
            Ok((Reduced { system: modal.system, left, right, ..reduced }, Some(modal.condition)))
        }
        Err(LtiError::Conversion { .. }) => Ok((reduced, None)),
        Err(other) => Err(other),
    }
}

/// A layer's certificate under its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerCertificate {
    /// `layer 3`.
    pub layer: String,
    /// The facts.
    #[serde(flatten)]
    pub facts: SystemCertificate,
}

/// Sums over the layers. They describe the adapter layer by layer; the network's output is a nonlinear function of them all,
/// for which a sum of bounds guarantees nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CertificateTotal {
    /// States before.
    pub states: usize,
    /// States after.
    pub order: usize,
    /// Sum of the layers' bounds; absent where a layer has none.
    pub error_bound: Option<f64>,
    /// Sum of the layers' measured errors.
    pub hinf_error: f64,
    /// Whether every layer's bound holds; absent where a layer has none.
    pub holds: Option<bool>,
}

/// Contents of `certificate.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Version of this format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// How the orders were chosen.
    pub orders: OrderChoice,
    /// What the numbers mean, for a reader of the file.
    pub note: String,
    /// Hashes of the full adapter's files.
    pub full: Option<AdapterHashes>,
    /// Hashes of the reduced adapter's files.
    pub reduced: Option<AdapterHashes>,
    /// Sum over the layers.
    pub total: CertificateTotal,
    /// Layer by layer.
    pub layers: Vec<LayerCertificate>,
}

/// File name of the certificate in a reduced adapter's directory.
pub const CERTIFICATE_FILE: &str = "certificate.json";

impl Certificate {
    /// Collects the layers' certificates.
    pub fn new(orders: OrderChoice, layers: Vec<LayerCertificate>) -> Self {
        Self {
            format: 1,
            version: env!("CARGO_PKG_VERSION").into(),
            orders,
            note: "Norms are H-infinity and H2 norms of the gated system of each layer; the total is a sum over the layers and \
                   no guarantee for the network's output."
                .into(),
            full: None,
            reduced: None,
            total: total(&layers),
            layers,
        }
    }
}

/// Sums the layers' certificates.
pub fn total(layers: &[LayerCertificate]) -> CertificateTotal {
    CertificateTotal {
        states: layers.iter().map(|l| l.facts.states).sum(),
        order: layers.iter().map(|l| l.facts.order).sum(),
        error_bound: layers.iter().map(|l| l.facts.error_bound).sum(),
        hinf_error: layers.iter().map(|l| l.facts.hinf_error).sum(),
        holds: layers.iter().map(|l| l.facts.holds).try_fold(true, |all, holds| holds.map(|h| h && all)),
    }
}

/// A reduced adapter.
#[derive(Debug, Clone)]
pub struct AdapterReduction {
    /// Ready to be saved.
    pub adapter: HrmAdapterFile,
    /// Its certificate; the hashes are of the adapters as they are saved, `full` is left to the caller.
    pub certificate: Certificate,
    /// The layers' systems and state transformations.
    pub layers: Vec<LayerReduction>,
}

/// Reduces every layer of an adapter, in parallel.
///
/// # Errors
/// The first layer that cannot be reduced, by name.
pub fn reduce_adapter(adapter: &HrmAdapterFile, options: &ReduceOptions) -> Result<AdapterReduction> {
    let analyses = analyse(adapter)?;
    let orders = choose_orders(&analyses, options)?;
    let layers: Vec<LayerReduction> = analyses
        .par_iter()
        .zip(&orders)
        .map(|(layer, &order)| reduce_system(layer, options.method, order, &options.gramians, false))
        .collect::<Result<_>>()?;
    let certificates = analyses
        .iter()
        .zip(&layers)
        .map(|(a, r)| LayerCertificate { layer: a.label.clone(), facts: r.certificate.clone() })
        .collect();
    let reduced = HrmAdapterFile {
        layers: adapter.layers.iter().zip(&layers).map(|(full, r)| reduced_layer(full, r)).collect(),
        ..adapter.clone()
    };
    let mut certificate = Certificate::new(options.orders, certificates);
    certificate.reduced = Some(reduced.to_bytes().hashes());
    Ok(AdapterReduction { adapter: reduced, certificate, layers })
}

fn row_major(m: MatRef<'_, f64>) -> Vec<f64> {
    (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect()
}

fn reduced_layer(full: &HrmLayerFile, reduction: &LayerReduction) -> HrmLayerFile {
    if let (Some(kept), HrmDynamics::Diagonal { log_a, log_dt }) = (&reduction.kept, &full.dynamics) {
        // Trained parameters are kept as they are, not their discretised values.
        let width = full.width;
        return HrmLayerFile {
            state_dim: kept.len(),
            b: kept.iter().flat_map(|&i| full.b[i * width..(i + 1) * width].iter().copied()).collect(),
            c: (0..width).flat_map(|row| kept.iter().map(move |&i| full.c[row * full.state_dim + i])).collect(),
            dynamics: HrmDynamics::Diagonal {
                log_a: kept.iter().map(|&i| log_a[i]).collect(),
                log_dt: kept.iter().map(|&i| log_dt[i]).collect(),
            },
            ..full.clone()
        };
    }
    let system = &reduction.system;
    HrmLayerFile {
        state_dim: system.states(),
        b: row_major(system.b()),
        c: row_major(system.c()),
        dynamics: match system.a().modes() {
            Some(modes) => HrmDynamics::Modal(modes),
            None => HrmDynamics::Dense(row_major(system.a().to_dense().as_ref())),
        },
        ..full.clone()
    }
}

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

/// Recomputes everything a certificate claims from the two adapters.
///
/// Without a certificate the reduced adapter is held to the bound of balanced truncation at its orders.
///
/// # Errors
/// Adapters that do not belong together; a certificate with other layers.
pub fn verify(
    full: &HrmAdapterFile,
    reduced: &HrmAdapterFile,
    certificate: Option<&Certificate>,
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
            verify_layer(&analysis, &system, reduced.layers[i].gate, claim)
                .map_err(|source| ReduceError::Layer { label: analysis.label.clone(), source })
        })
        .collect::<Result<_>>()?;
    let measured: Vec<LayerCertificate> =
        layers.iter().map(|l| LayerCertificate { layer: l.layer.clone(), facts: l.measured.clone() }).collect();
    let total = total(&measured);
    let problems = certificate.map_or_else(Vec::new, |c| total_problems(&c.total, &total));
    let passed = problems.is_empty() && layers.iter().all(|l| l.problems.is_empty());
    Ok(Verification { passed, problems, total, layers })
}

/// Recomputes the facts about one reduced system and compares them with what was claimed.
pub fn verify_layer(
    full: &LayerAnalysis,
    reduced: &LinearSystem,
    reduced_gate: f64,
    claimed: Option<&SystemCertificate>,
) -> crate::lti::Result<LayerVerification> {
    let (method, gramians) = claimed.map_or((Method::Bt, GramianSource::Analytic), |c| (c.method, c.gramians));
    let guaranteed = gramians == GramianSource::Analytic || method == Method::Modal;
    let bound = if guaranteed && reduced.states() <= full.system.states() {
        error_bound(&full.system, &full.spectrum, method, reduced.states())?
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
    };
    let measured = SystemCertificate::measure(&full.system, reduced, &claim)?;
    let mut problems = claimed.map_or_else(Vec::new, |c| c.contradictions(&measured));
    if reduced_gate != full.gate {
        problems.push(format!("the gate changed from {} to {reduced_gate}", full.gate));
    }
    if measured.holds == Some(false) {
        problems.push(format!(
            "the measured H-infinity error {:e} exceeds the bound {:e}",
            measured.hinf_error,
            measured.error_bound.unwrap_or(0.0)
        ));
    }
    Ok(LayerVerification { layer: full.label.clone(), measured, problems })
}

fn total_problems(claimed: &CertificateTotal, measured: &CertificateTotal) -> Vec<String> {
    let mut problems = Vec::new();
    let differ = |a: f64, b: f64| (a - b).abs() > 1e-6 * b.abs() + 1e-12;
    if claimed.order != measured.order || claimed.states != measured.states {
        problems.push(format!(
            "the total is claimed to be {} of {} states, it is {} of {}",
            claimed.order, claimed.states, measured.order, measured.states
        ));
    }
    if claimed.error_bound.zip(measured.error_bound).is_some_and(|(a, b)| differ(a, b)) {
        problems.push("the total of the error bounds is not the sum of the layers'".into());
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
