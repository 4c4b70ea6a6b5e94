//! Reduction of one layer.

use super::analysis::LayerAnalysis;
use super::options::{Gramians, ReduceError, Result};
use faer::{Mat, MatRef};
use hankel_lti::certificate::{Claim, SystemCertificate};
use hankel_lti::modal::to_modal;
use hankel_lti::weighted::Emphasis;
use hankel_lti::{
    Bound, GramianFactors, HankelSpectrum, LinearSystem, LtiError, Method, Projection, Reduced, StateMatrix, methods,
    reduce,
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
    /// Whether method h2 found nothing better than balanced truncation, which this is then.
    pub unimproved: bool,
}

/// How a reduced system is stored: what it becomes there, which is what a certificate is about, and what holds it.
pub(crate) type Store<'a, T> = &'a dyn Fn(&Reduced) -> Result<(LinearSystem, T)>;

/// What a reduced system is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purpose {
    /// Whether it may have a direct term D, which the recurrence of an adapter has no place for.
    pub direct_term: bool,
    /// Whether B and C are stored in f32, as they are run, where the bound holds after their rounding. Poles are stored in f64.
    pub single: bool,
}

/// Reduces one system to a given order and certifies the result; the state matrix comes out in the least general form that
/// carries the transfer function (R5).
///
/// # Errors
/// A system that cannot be reduced to this order by this method, by name.
pub fn reduce_system(
    layer: &LayerAnalysis,
    method: Method,
    order: usize,
    gramians: &Gramians,
    purpose: Purpose,
) -> Result<LayerReduction> {
    let as_it_is = |reduced: &Reduced| Ok((reduced.system.clone(), ()));
    Ok(reduce_and_store(layer, method, order, gramians, purpose, &as_it_is)?.0)
}

/// As [`reduce_system`], of a system that storing may change.
pub(crate) fn reduce_and_store<T>(
    layer: &LayerAnalysis,
    method: Method,
    order: usize,
    gramians: &Gramians,
    purpose: Purpose,
    store: Store<'_, T>,
) -> Result<(LayerReduction, T)> {
    let inner = || -> Result<(LayerReduction, T)> {
        let reduced = reduce_to(layer, method, order, gramians, purpose)?;
        let unimproved = is_balanced_truncation(layer, method, gramians, purpose, &reduced)?;
        let (reduction, stored) = certify(layer, method, gramians, purpose, reduced, store)?;
        Ok((LayerReduction { unimproved, ..reduction }, stored))
    };
    inner().map_err(|error| match error {
        ReduceError::System(reason) => ReduceError::Layer { label: layer.label.clone(), reason },
        other => other,
    })
}

/// As [`reduce_system`], without the measurements of the certificate.
///
/// # Errors
/// Those of [`reduce_system`].
pub fn reduce_uncertified(
    layer: &LayerAnalysis,
    method: Method,
    order: usize,
    gramians: &Gramians,
    purpose: Purpose,
) -> Result<Reduced> {
    let inner = || -> hankel_lti::Result<Reduced> {
        let reduced = reduce_to(layer, method, order, gramians, purpose)?;
        let modal = if order < layer.system.states() { into_modal(&reduced)? } else { None };
        let chosen = modal.map_or(reduced, |(modal, _)| modal);
        Ok(if purpose.single && chosen.kept.is_none() { in_single(&chosen)? } else { chosen })
    };
    inner().map_err(|reason| ReduceError::Layer { label: layer.label.clone(), reason })
}

fn reduce_to(
    layer: &LayerAnalysis,
    method: Method,
    order: usize,
    gramians: &Gramians,
    purpose: Purpose,
) -> hankel_lti::Result<Reduced> {
    let system = &layer.system;
    if method.has_direct_term() && !purpose.direct_term {
        return Err(LtiError::Unsupported(format!(
            "method {} makes a direct term D, which the recurrence of an adapter has no place for; use bt or bfsr",
            method.name()
        )));
    }
    method.check_gramians(gramians.source())?;
    let states = system.states();
    if order == states {
        // Nothing is discarded: the system stays as it is, exactly.
        let identity = Mat::identity(states, states);
        let kept = Some((0..states).collect());
        let bound = method.error_bound(system, &layer.spectrum, order)?;
        let projection = Some(Projection { left: identity.clone(), right: identity });
        return Ok(Reduced { system: system.clone(), projection, bound, kept });
    }
    let spectrum = match gramians {
        Gramians::Analytic => None,
        Gramians::TimeLimited(steps) => Some(HankelSpectrum::new(&GramianFactors::time_limited(system, *steps)?)?),
        Gramians::Empirical(recorded) => {
            let of_layer = recorded
                .get(&layer.label)
                .ok_or_else(|| LtiError::Unsupported("the file of recorded states has none of this layer".into()))?;
            let factors = GramianFactors::empirical(system, of_layer.states.as_ref(), of_layer.steps)?;
            Some(HankelSpectrum::new(&factors)?)
        }
        Gramians::Weighted | Gramians::Enns | Gramians::FrequencyLimited(_) => {
            let gramians = layer.weighting.as_ref().and_then(|weighting| weighting.gramians.as_ref());
            let gramians = gramians.ok_or_else(|| LtiError::Unsupported("the layer was not weighed".into()))?;
            Some(gramians.spectrum.clone())
        }
    };
    if let (true, Some(weighting)) = (method == methods::h2::METHOD, layer.weighting.as_ref())
        && let (Some(weighted), Emphasis::Weights(weights)) = (&weighting.gramians, &weighting.emphasis)
    {
        if layer.continuous.is_some() {
            return Err(LtiError::Unsupported(
                "the bilinear map does not keep H2 norms under weights, so that method h2 cannot lower them in continuous \
                 time: use another method, or analytic Gramians (bt reduce --gramians analytic), with which weights only measure"
                    .into(),
            ));
        }
        return methods::weighted_h2::reduce_weighted(system, &layer.spectrum, weighted, weights, order);
    }
    if let Some(continuous) = layer.continuous.as_ref().filter(|_| method == methods::h2::METHOD) {
        return methods::h2::reduce_continuous(system, continuous, &layer.spectrum, order);
    }
    // Orders are chosen by the analytic values, of which more may be above rounding. Modes are ranked without values.
    let order = match &spectrum {
        Some(spectrum) if method.bound() != Bound::Modes => order.min(spectrum.rank()),
        _ => order,
    };
    reduce(system, spectrum.as_ref().unwrap_or(&layer.spectrum), method, order)
}

/// Whether method h2 returned what it started from, and something was reduced.
fn is_balanced_truncation(
    layer: &LayerAnalysis,
    method: Method,
    gramians: &Gramians,
    purpose: Purpose,
    reduced: &Reduced,
) -> hankel_lti::Result<bool> {
    let order = reduced.system.states();
    if method != methods::h2::METHOD || order == 0 || order == layer.system.states() {
        return Ok(false);
    }
    let start = reduce_to(layer, methods::bt::METHOD, order, gramians, purpose)?;
    let bases = |reduced: &Reduced| reduced.projection.clone().map(|Projection { left, right }| (left, right));
    Ok(bases(&start).is_some_and(|start| bases(reduced) == Some(start)))
}

/// Certifies a reduction in the first of these forms that theory's bound holds for: modal form with B and C in f32, modal form in f64, as
/// it is with B and C in f32, as it is in f64. If it holds for none, what rounding A costs is added to the bound, and the first form in
/// f64 that this holds for is taken, or the first of all in f64.
fn certify<T>(
    layer: &LayerAnalysis,
    method: Method,
    gramians: &Gramians,
    purpose: Purpose,
    reduced: Reduced,
    store: Store<'_, T>,
) -> Result<(LayerReduction, T)> {
    let full = &layer.system;
    let measure = |reduced: Reduced, modal_condition: Option<f64>, dtype: &str| -> Result<(LayerReduction, T)> {
        let (system, stored) = store(&reduced)?;
        let claim = Claim {
            method,
            gramians: gramians.source(),
            gate: layer.gate,
            bound: reduced.bound,
            spectrum: &layer.spectrum,
            factors: &layer.factors,
            modal_condition,
            dtype: dtype.into(),
            upper: None,
            map: layer.map(),
        };
        let mut certificate = SystemCertificate::measure(full, &system, &claim)?;
        if let Some(missing) = layer.image {
            certificate = certificate.unproved(missing);
        }
        if let Some(weighting) = &layer.weighting {
            certificate.weighted = Some(weighting.measure(layer, &system, reduced.bound.map(|_| method))?);
        }
        let Reduced { projection, kept, .. } = reduced;
        Ok((LayerReduction { certificate, system, projection, kept, unimproved: false }, stored))
    };
    let mut forms = Vec::new();
    if reduced.system.states() < full.states() {
        forms.extend(into_modal(&reduced)?.map(|(modal, condition)| (modal, Some(condition))));
    }
    forms.push((reduced, None));
    let holds = |made: &(LayerReduction, T)| !made.0.certificate.is_broken();
    let by_theory = |made: &(LayerReduction, T)| holds(made) && made.0.certificate.rounding == 0.0;
    let mut next_best = None;
    for (reduced, condition) in forms {
        if purpose.single && reduced.kept.is_none() {
            let single = measure(in_single(&reduced)?, condition, "f32")?;
            if by_theory(&single) {
                return Ok(single);
            }
        }
        let exact = measure(reduced, condition, "f64")?;
        if by_theory(&exact) {
            return Ok(exact);
        }
        if next_best.as_ref().is_none_or(|best| !holds(best) && holds(&exact)) {
            next_best = Some(exact);
        }
    }
    next_best.ok_or_else(|| LtiError::Unsupported("there is nothing to certify".into()).into())
}

/// The system with B and C rounded to f32; A, whose poles near the circle would move by as much as they are away from it, as it is.
fn in_single(reduced: &Reduced) -> hankel_lti::Result<Reduced> {
    let round = |m: MatRef<'_, f64>| Mat::from_fn(m.nrows(), m.ncols(), |i, j| f64::from(m[(i, j)] as f32));
    let system = &reduced.system;
    let (b, c) = (round(system.b()), round(system.c()));
    // Numbers beyond f32 stay as they are.
    if !(b.norm_max().is_finite() && c.norm_max().is_finite()) {
        return Ok(reduced.clone());
    }
    let system = system.with_realization(system.a().clone(), b, c)?;
    Ok(Reduced { system, ..reduced.clone() })
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
