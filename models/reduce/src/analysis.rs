//! Systems, Gramians and Hankel singular values of the layers, and the orders that follow.

use super::hrm::linear_system;
use super::options::{Gramians, OrderChoice, ReduceError, ReduceOptions, Result};
use super::weighting::Weighting;
use faer::{Mat, MatRef};
use hankel_files::{HrmAdapterFile, HrmLayerFile, Sensitivities};
use hankel_lti::continuous::{Bilinear, Continuous};
use hankel_lti::order::{allocate_budget, allocate_total_bound};
use hankel_lti::{Bound, GramianFactors, HankelSpectrum, LinearSystem, LtiError, Method, OrderRule};
use rayon::prelude::*;

/// A layer's system with everything a reduction starts from.
#[derive(Debug, Clone)]
pub struct LayerAnalysis {
    /// `layer 3`.
    pub label: String,
    /// The system without the gate.
    pub system: LinearSystem,
    /// The gate.
    pub gate: f64,
    /// States whose sign is not the one of the file.
    pub turned: Vec<usize>,
    /// Gramian factors (analytic).
    pub factors: GramianFactors,
    /// Hankel singular values (of the ungated system, from the analytic Gramians).
    pub spectrum: HankelSpectrum,
    /// What its error is weighted by, if anything ([`weigh`](crate::weigh)).
    pub weighting: Option<Weighting>,
    /// The matrices that the system is the image of, in continuous time.
    pub continuous: Option<Continuous>,
    /// Why a proof about `system` does not hold for the stored matrices; `None` where it does.
    pub image: Option<&'static str>,
}

/// Residual of a Gramian, relative to its equation, from which on values by it would be off by their own size.
const LOST: f64 = 1e-6;

/// What to say of gains beyond the range of doubles.
pub(super) fn overflow(b: MatRef<'_, f64>, c: MatRef<'_, f64>) -> LtiError {
    LtiError::Unsupported(format!(
        "its gains overflow double precision: B has entries up to {:e}, C up to {:e}; divide B or C by a number, by which the errors \
         of the reduced system are then smaller",
        b.norm_max(),
        c.norm_max()
    ))
}

/// What to say of gains of which doubles have no number.
fn underflow(b: MatRef<'_, f64>, c: MatRef<'_, f64>) -> LtiError {
    LtiError::Unsupported(format!(
        "its gains underflow double precision: B has entries up to {:e}, C up to {:e}; multiply B or C by a number, by which the errors \
         of the reduced system are then larger",
        b.norm_max(),
        c.norm_max()
    ))
}

impl LayerAnalysis {
    /// Analyses a system, which may have no states.
    ///
    /// # Errors
    /// Gramians or singular values that cannot be computed; gains that underflow.
    pub fn new(label: impl Into<String>, system: LinearSystem, gate: f64) -> Result<Self> {
        let label = label.into();
        let of_layer = |reason| ReduceError::Layer { label: label.clone(), reason };
        let factors = match system.states() {
            0 => GramianFactors::without_equation(Mat::zeros(0, 0), Mat::zeros(0, 0), 1.0),
            _ => GramianFactors::analytic(&system).map_err(of_layer)?,
        };
        let residual = factors.residual_c.into_iter().chain(factors.residual_o).fold(0.0, f64::max);
        if residual.is_nan() || residual > LOST {
            return Err(of_layer(LtiError::Unsupported(format!(
                "its Gramians are lost in rounding, their equations are off by {residual:.0e}: A is too far from normal; store it as a \
                 diagonal, as 2x2 blocks, or as a cascade of second-order sections"
            ))));
        }
        let spectrum = HankelSpectrum::new(&factors).map_err(|error| match error {
            LtiError::Underflow => of_layer(underflow(system.b(), system.c())),
            other => of_layer(other),
        })?;
        if spectrum.values().iter().any(|value| !value.is_finite()) {
            return Err(of_layer(overflow(system.b(), system.c())));
        }
        Ok(Self {
            label,
            system,
            gate,
            turned: Vec::new(),
            factors,
            spectrum,
            weighting: None,
            continuous: None,
            image: None,
        })
    }

    /// The controllability and the observability Gramian of the gated system, in the states of the file.
    pub fn gramians(&self) -> [Mat<f64>; 2] {
        let sign = |i: usize| if self.turned.contains(&i) { -1.0 } else { 1.0 };
        let of = |gramian: &Mat<f64>, factor: f64| {
            Mat::from_fn(gramian.nrows(), gramian.ncols(), |i, j| factor * sign(i) * sign(j) * gramian[(i, j)])
        };
        let (mut wc, mut wo) = (self.factors.controllability(), self.factors.observability());
        if let Some(own) = self.system.stored() {
            (wc, wo) = (own.controllability(&wc), own.observability(&wo));
        }
        [of(&wc, 1.0), of(&wo, self.gate * self.gate)]
    }

    /// Hankel singular values of the gated system (R6), descending.
    pub fn hankel_singular_values(&self) -> Vec<f64> {
        self.spectrum.values().iter().map(|s| self.gate.abs() * s).collect()
    }

    /// The map of a system in continuous time to `system`.
    pub fn map(&self) -> Option<Bilinear> {
        self.continuous.as_ref().map(|continuous| continuous.map)
    }

    /// Numerical rank; 0 behind a closed gate.
    pub fn rank(&self) -> usize {
        if self.gate == 0.0 { 0 } else { self.spectrum.rank() }
    }

    /// How much the direction of the state that B drives most has to do with the state of the largest Hankel singular value: the square of
    /// the cosine between the first left singular vector of B and that state, in the coordinates of the system. 1 where truncation by the
    /// singular vectors of B would keep the same state first, `1/d` on average for a direction that knows nothing of it. `None` where no
    /// Hankel singular value is above rounding.
    ///
    /// # Errors
    /// A decomposition that does not converge.
    pub fn input_alignment(&self) -> Result<Option<f64>> {
        if self.spectrum.rank() == 0 {
            return Ok(None);
        }
        let of_layer = |reason| ReduceError::Layer { label: self.label.clone(), reason };
        let (_, state) = self.spectrum.directions(1);
        let decomposed = self.system.b().thin_svd();
        let decomposed =
            decomposed.map_err(|_| of_layer(LtiError::NoConvergence("the singular value decomposition")))?;
        let driven = decomposed.U();
        let (mut product, mut size) = (0.0, 0.0);
        for i in 0..self.system.states() {
            product += driven[(i, 0)] * state[(i, 0)];
            size += state[(i, 0)] * state[(i, 0)];
        }
        Ok(Some(product * product / size).filter(|share: &f64| share.is_finite()))
    }

    /// The values that orders are chosen by: those of the weighted Gramians, if the reduction is based on them.
    fn deciding(&self, method: Method) -> &HankelSpectrum {
        let weighting = self.weighting.as_ref().filter(|_| method.takes_weights());
        let weighted = weighting.and_then(|weighting| weighting.gramians.as_ref());
        weighted.map_or(&self.spectrum, |weighted| &weighted.spectrum)
    }
}

/// Systems, Gramians and Hankel singular values of all layers, in parallel.
///
/// A layer that was reduced to no states at all is an empty system, not an error, as long as the adapter has states.
///
/// # Errors
/// A layer that cannot be analysed, by name; an adapter without states.
pub fn analyse(adapter: &HrmAdapterFile) -> Result<Vec<LayerAnalysis>> {
    if adapter.config.state_dim == 0 {
        return Err(LtiError::NoStates.into());
    }
    adapter.layers.par_iter().map(|layer| analyse_layer(adapter, layer)).collect()
}

pub(super) fn layer_system(adapter: &HrmAdapterFile, layer: &HrmLayerFile) -> Result<LinearSystem> {
    linear_system(layer, adapter.config.discretization)
        .map_err(|reason| ReduceError::Layer { label: layer.label(), reason })
}

pub(super) fn analyse_layer(adapter: &HrmAdapterFile, layer: &HrmLayerFile) -> Result<LayerAnalysis> {
    LayerAnalysis::new(layer.label(), layer_system(adapter, layer)?, layer.gate)
}

/// Values times what they can cost the task: the sum of `sensitivity 2 (sigma_{r+1} + ...)` bounds the change of the loss to first order.
fn scale_by_sensitivity(
    layers: &[LayerAnalysis],
    options: &ReduceOptions,
    spectra: &mut [Vec<f64>],
    sensitivities: &Sensitivities,
    file: &str,
) -> Result<()> {
    let refuse = |reason: String| Err(LtiError::Unsupported(reason).into());
    if matches!(options.orders, OrderChoice::PerLayer(_)) {
        return refuse("a task shares states out over the layers: give a budget or a total bound with it".into());
    }
    if options.gramians != Gramians::Analytic {
        return refuse("what errors cost a task is known for analytic Gramians only".into());
    }
    for (layer, values) in layers.iter().zip(spectra) {
        let Some(sensitivity) = sensitivities.of(&layer.label) else {
            return Err(ReduceError::Mismatch(format!("{file} knows nothing of {}", layer.label)));
        };
        values.iter_mut().for_each(|value| *value *= sensitivity);
    }
    Ok(())
}

/// Orders for all layers.
///
/// # Errors
/// Parameters out of range; a bound asked of a method without one, or of a layer whose Gramians are not those of its poles.
pub fn choose_orders(layers: &[LayerAnalysis], options: &ReduceOptions) -> Result<Vec<usize>> {
    let method = options.method;
    let no_guarantee = !method.guarantees(options.gramians.source());
    let asks_for_bound =
        matches!(options.orders, OrderChoice::TotalBound(_) | OrderChoice::PerLayer(OrderRule::Bound(_)));
    if no_guarantee && asks_for_bound {
        return Err(LtiError::Unsupported(format!(
            "no error bound is known for method {} with {}; choose the order by another rule",
            method.name(),
            match options.gramians {
                Gramians::Analytic => "any Gramians",
                Gramians::TimeLimited(_) => "time-limited Gramians",
                Gramians::Empirical(_) => "empirical Gramians",
                Gramians::Enns => "Enns' Gramians",
                Gramians::Weighted => "weighted Gramians",
                Gramians::FrequencyLimited(_) => "frequency-limited Gramians",
            }
        ))
        .into());
    }
    // What modes contribute is known from their true poles; Hankel singular values are not.
    let clamped = layers.iter().find(|l| l.factors.clamped_poles > 0);
    if let (true, Some(layer)) = (asks_for_bound && method.bound() == Bound::HankelSingularValues, clamped) {
        let reason = LtiError::Unsupported(format!(
            "{} of its poles have a memory above 1e6 steps and are taken for faster ones in its Gramians, so that no error \
             bound is known; choose the order by another rule, or truncate by modes",
            layer.factors.clamped_poles
        ));
        return Err(ReduceError::Layer { label: layer.label.clone(), reason });
    }
    // No singular value is asked then.
    let by_modes = method.bound() == Bound::Modes
        && matches!(options.orders, OrderChoice::PerLayer(OrderRule::Order(_) | OrderRule::Bound(_)));
    // Nothing to go by: an order of 0 would be no answer.
    let undecided = |l: &LayerAnalysis| {
        l.gate != 0.0 && l.deciding(method).rank() == 0 && l.deciding(method).values().iter().any(|s| *s > 0.0)
    };
    if let Some(layer) = layers.iter().find(|l| !by_modes && undecided(l)) {
        let reason = LtiError::Unsupported(
            "none of its Hankel singular values is above the rounding of its Gramians, as where a pole is too close to the unit \
             circle for a dense A"
                .into(),
        );
        return Err(ReduceError::Layer { label: layer.label.clone(), reason });
    }
    let gated = |l: &LayerAnalysis| l.deciding(method).values().iter().map(|s| l.gate.abs() * s).collect();
    let mut spectra: Vec<Vec<f64>> = layers.iter().map(gated).collect();
    if let Some((sensitivities, file)) = &options.task {
        scale_by_sensitivity(layers, options, &mut spectra, sensitivities, &file.file)?;
    }
    let rank = |l: &LayerAnalysis| {
        if l.gate == 0.0 {
            0
        } else if by_modes {
            l.system.states()
        } else {
            l.deciding(method).rank()
        }
    };
    let ranks: Vec<usize> = layers.iter().map(rank).collect();
    let most = layers.iter().map(|layer| layer.system.states()).max().unwrap_or(0);
    match options.orders {
        OrderChoice::Budget(budget) => Ok(allocate_budget(&spectra, &ranks, budget)),
        OrderChoice::TotalBound(_) if method.bound() == Bound::Modes => Err(LtiError::Unsupported(
            "a total bound is allocated by Hankel singular values, which do not bound modal truncation; \
             use --bound per layer"
                .into(),
        )
        .into()),
        OrderChoice::TotalBound(tolerance) => Ok(allocate_total_bound(&spectra, &ranks, tolerance)?),
        OrderChoice::PerLayer(rule) => layers
            .iter()
            .zip(&spectra)
            .zip(&ranks)
            .map(|((layer, sigma), &rank)| {
                let of_layer = |reason| ReduceError::Layer { label: layer.label.clone(), reason };
                let of_modes = if asks_for_bound { method.bounds_by_modes(&layer.system) } else { Ok(None) };
                let of_modes = of_modes.map_err(of_layer)?;
                let bound = |order: usize| {
                    let weighted = layer.weighting.as_ref().and_then(|weighting| weighting.bound(method, order));
                    let of_values = || method.error_bound(&layer.system, layer.deciding(method), order).ok().flatten();
                    let bound = match &of_modes {
                        Some(bounds) => bounds.get(order).copied(),
                        None => weighted.or_else(of_values),
                    };
                    bound.map_or(f64::INFINITY, |b| b * layer.gate.abs())
                };
                // Layers that were reduced before may have fewer states than others.
                let rule = match rule {
                    OrderRule::Order(order) if order <= most => OrderRule::Order(order.min(sigma.len())),
                    other => other,
                };
                rule.choose(sigma, rank, bound).map_err(of_layer)
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Purpose, reduce_uncertified};
    use hankel_lti::{Method, StateMatrix};

    fn alignment(poles: Vec<f64>, b: &[f64], c: &[f64]) -> f64 {
        let d = poles.len();
        let (b, c) = (Mat::from_fn(d, d, |i, j| if i == j { b[i] } else { 0.0 }), Mat::from_fn(1, d, |_, j| c[j]));
        let system = LinearSystem::new(StateMatrix::Diagonal(poles), b, c, None).unwrap();
        LayerAnalysis::new("layer 0", system, 1.0).unwrap().input_alignment().unwrap().unwrap()
    }

    /// Two equal poles with the gain 2 each, of which one Hankel singular value is above rounding.
    fn twins(gate: f64) -> LayerAnalysis {
        let a = StateMatrix::Diagonal(vec![0.5, 0.5]);
        let system = LinearSystem::new(a, Mat::ones(2, 1), Mat::ones(1, 2), None).unwrap();
        LayerAnalysis::new("layer 0", system, gate).unwrap()
    }

    #[test]
    fn modes_are_kept_beyond_the_rank() {
        assert_eq!((twins(1.0).rank(), twins(1.0).system.states()), (1, 2));
        let order = |name: &str, rule: OrderRule, gate: f64| {
            let (method, orders) = (Method::named(name).unwrap(), OrderChoice::PerLayer(rule));
            choose_orders(&[twins(gate)], &ReduceOptions { method, orders, ..ReduceOptions::default() }).unwrap()[0]
        };
        for name in ["modal", "energy"] {
            assert_eq!(order(name, OrderRule::Order(2), 1.0), 2);
            assert_eq!(order(name, OrderRule::Bound(0.0), 1.0), 2);
            assert_eq!(order(name, OrderRule::Bound(2.1), 1.0), 1);
            assert_eq!(order(name, OrderRule::Bound(2.1), 0.5), 0);
            // These read values.
            assert_eq!(order(name, OrderRule::Epsilon(0.0), 1.0), 1);
            assert_eq!(order(name, OrderRule::Energy(1.0), 1.0), 1);
            assert_eq!(order(name, OrderRule::Order(2), 0.0), 0);
        }
        assert_eq!(order("bt", OrderRule::Order(2), 1.0), 1);
    }

    /// A layer that was reduced before keeps what it has.
    #[test]
    fn an_order_is_at_most_what_a_layer_has() {
        let layer = |states: usize| {
            let a = StateMatrix::Diagonal((0..states).map(|i| 0.9 - 0.2 * i as f64).collect());
            let system = LinearSystem::new(a, Mat::ones(states, 1), Mat::ones(1, states), None).unwrap();
            LayerAnalysis::new("layer 0", system, 1.0).unwrap()
        };
        let orders = |order: usize| {
            let orders = OrderChoice::PerLayer(OrderRule::Order(order));
            choose_orders(&[layer(2), layer(4)], &ReduceOptions { orders, ..ReduceOptions::default() })
        };
        assert_eq!(orders(3).unwrap(), [2, 3]);
        assert!(orders(5).unwrap_err().to_string().contains("layer 0"));
    }

    /// After one step one direction is filled; modes are kept without asking.
    #[test]
    fn modes_are_kept_beyond_the_rank_of_other_gramians() {
        let a = StateMatrix::Diagonal(vec![0.9, 0.5, -0.3]);
        let system = LinearSystem::new(a, Mat::ones(3, 1), Mat::ones(1, 3), None).unwrap();
        let layer = LayerAnalysis::new("layer 0", system, 1.0).unwrap();
        for (name, states) in [("modal", 2), ("bt", 1)] {
            let (method, purpose) = (Method::named(name).unwrap(), Purpose::default());
            let reduced = reduce_uncertified(&layer, method, 2, &Gramians::TimeLimited(1), purpose).unwrap();
            assert_eq!(reduced.system.states(), states, "{name}");
        }
    }

    #[test]
    fn gains_below_the_range_of_doubles_are_told() {
        let (b, c) = (Mat::from_fn(1, 1, |_, _| 1e-165), Mat::from_fn(1, 1, |_, _| -1e-170));
        let system = LinearSystem::new(StateMatrix::Diagonal(vec![0.5]), b, c, None).unwrap();
        let refused = LayerAnalysis::new("layer 0", system, 1.0).unwrap_err().to_string();
        assert!(refused.starts_with("layer 0: its gains underflow double precision"), "{refused}");
        assert!(refused.contains("B has entries up to 1e-165, C up to 1e-170"), "{refused}");
    }

    #[test]
    fn the_state_that_is_driven_most_need_not_be_the_dominant_one() {
        // State 0 is driven three times as much; the output reads one of them.
        assert!(alignment(vec![0.5, 0.4], &[3.0, 1.0], &[1.0, 1e-9]) > 1.0 - 1e-6);
        assert!(alignment(vec![0.5, 0.4], &[3.0, 1.0], &[1e-9, 1.0]) < 1e-6);
        // In between: the dominant state lies between both.
        let between = alignment(vec![0.5, 0.5], &[3.0, 1.0], &[1.0, 1.0]);
        // Equal poles: Wc = diag(9, 1) / 0.75, the read direction (1, 1), so that the state is Wc (1, 1) = (9, 1).
        assert!((between - 81.0 / 82.0).abs() < 1e-9, "{between}");
    }
}
