//! Truncation of attached adapters, and what an optimizer knows of them carried across.

use super::Hrm;
use super::file::state_order;
use crate::adapters::{AdapterSet, Placement};
use crate::reduce::hrm::input_gains;
use crate::reduce::{AdapterReduction, LayerReduction, ReduceError, ReduceOptions, reduce_adapter};
use crate::weights::{Discretization, HrmAdapterFile, HrmDynamics, HrmLayerFile};
use faer::{Mat, MatRef};
use hankel_core::{Error, Result, Tensor};
use std::collections::BTreeMap;

/// What can go wrong with the truncation of attached adapters.
#[derive(Debug, thiserror::Error)]
pub enum TruncationError {
    /// Adapters that cannot be reduced.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
    /// An operator that failed.
    #[error(transparent)]
    Tensor(#[from] Error),
}

/// Truncated adapters beside what they came from.
pub struct Truncated {
    /// The adapters, of the same element type and on the same device as before, trainable.
    pub adapters: AdapterSet,
    /// The reduction with its certificate, hashes of the full adapter included.
    pub reduction: AdapterReduction,
    full: HrmAdapterFile,
}

impl AdapterSet {
    /// Whether all are HRM adapters, which are truncated with a certificate.
    pub fn is_reducible(&self) -> bool {
        let mut streams = self.streams().map(|(_, stream)| stream.downcast_ref::<Hrm>().is_some()).peekable();
        streams.peek().is_some() && streams.all(|is_hrm| is_hrm)
    }

    /// Truncates every layer. `base_model` and `steps` are those of [`AdapterSet::save`] and [`AdapterSet::load`].
    ///
    /// # Errors
    /// When these are not recurrent adapters, or a layer cannot be reduced as asked for.
    pub fn truncate(
        &self,
        options: &ReduceOptions,
        placement: &Placement,
        steps: usize,
        base_model: Option<&str>,
    ) -> std::result::Result<Truncated, TruncationError> {
        let full = self.to_hrm_file(base_model).map_err(ReduceError::Mismatch)?;
        let device = self.device();
        device.check()?;
        let mut reduction = reduce_adapter(&full, options)?;
        reduction.certificate.full = Some(full.to_bytes().hashes());
        let adapters = Self::of_hrm_file(&reduction.adapter, placement, steps).map_err(ReduceError::Mismatch)?;
        if let Some(parameter) = self.parameters().first() {
            adapters.to_dtype(parameter.tensor().dtype())?;
        }
        adapters.to_device(device)?;
        Ok(Truncated { adapters, reduction, full })
    }
}

impl Truncated {
    /// Orders of the layers before and after.
    pub fn orders(&self) -> (Vec<usize>, Vec<usize>) {
        let of = |file: &HrmAdapterFile| file.layers.iter().map(|layer| layer.state_dim).collect();
        (of(&self.full), of(&self.reduction.adapter))
    }

    /// What is linear in the gradient (Adam's first moment), by the names of the parameters, in the truncated coordinates;
    /// `moment` gives it for a parameter of the full adapters, with its shape.
    ///
    /// Gates keep theirs; B and C are carried by [`LayerReduction::carry_gradients`]; layers that lost nothing keep
    /// everything. Poles of the modal form have no counterpart among the trained ones and are left out, as are layers whose
    /// states were not real modes before.
    ///
    /// # Errors
    /// When a moment is not of its parameter's shape.
    pub fn carry(&self, moment: impl Fn(&str) -> Option<Tensor>) -> Result<BTreeMap<String, Tensor>> {
        let mut carried = BTreeMap::new();
        for ((full, layer), small) in
            self.full.layers.iter().zip(&self.reduction.layers).zip(&self.reduction.adapter.layers)
        {
            let name = |entry: &str| format!("model.layers.{}.{}.hrm.{entry}", full.layer, full.site.module());
            let unchanged: &[&str] = match (&full.dynamics, &small.dynamics) {
                (HrmDynamics::Diagonal { .. }, HrmDynamics::Diagonal { .. })
                | (HrmDynamics::Signed { .. }, HrmDynamics::Signed { .. })
                    if small.state_dim == full.state_dim =>
                {
                    &["gate", "b", "c", "log_a", "log_dt"]
                }
                _ => &["gate"],
            };
            for name in unchanged.iter().map(|entry| name(entry)) {
                if let Some(moment) = moment(&name) {
                    carried.insert(name, moment);
                }
            }
            let real = matches!(full.dynamics, HrmDynamics::Diagonal { .. } | HrmDynamics::Signed { .. });
            let projected = unchanged.len() == 1 && real;
            if let (true, Some(b), Some(c)) = (projected, moment(&name("b")), moment(&name("c"))) {
                let moments = project(full, small, layer, self.full.config.discretization, [&b, &c]);
                let Some((new_b, new_c)) = moments else { continue };
                let (d, width) = (small.state_dim, small.width);
                let like = |values, shape, moment: &Tensor| {
                    Tensor::from_vec(values, shape)?.to_dtype(moment.dtype())?.to_device(moment.device())
                };
                carried.insert(name("b"), like(new_b, [d, width], &b)?);
                carried.insert(name("c"), like(new_c, [width, d], &c)?);
            }
        }
        Ok(carried)
    }
}

/// Moments of B [d, D] and C [D, d] of a diagonal layer in the coordinates of the truncated one, row-major, with its states
/// in the order in which they are held in memory.
fn project(
    full: &HrmLayerFile,
    small: &HrmLayerFile,
    reduction: &LayerReduction,
    discretization: Discretization,
    [b, c]: [&Tensor; 2],
) -> Option<(Vec<f64>, Vec<f64>)> {
    let (d, width) = (full.state_dim, full.width);
    let (b, c) = (b.to_f64_vec(), c.to_f64_vec());
    let gains = input_gains(full, discretization);
    // Derivatives by the rows of the discretised matrix, which is what the reduction transforms.
    let d_b = Mat::from_fn(d, width, |i, j| b[i * width + j] / gains[i]);
    let (d_b, d_c) = reduction.carry_gradients(d_b.as_ref(), MatRef::from_row_major_slice(&c, width, d))?;
    let order = state_order(&small.dynamics, small.state_dim);
    // A reduction by dropping modes leaves a trained form, with gains of its own.
    let gains = input_gains(small, discretization);
    Some((
        order.iter().flat_map(|&i| (0..width).map(move |j| (i, j))).map(|(i, j)| d_b[(i, j)] * gains[i]).collect(),
        (0..width).flat_map(|row| order.iter().map(move |&i| (row, i))).map(|at| d_c[at]).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{AdapterConfig, Hrm, HrmConfig, HrmMode, HrmPreset, StreamInputs, StreamSite};
    use crate::lti::OrderRule;
    use crate::parameter::Parameter;
    use crate::pass::Pass;
    use crate::reduce::OrderChoice;
    use hankel_core::{DType, Gradients, Random};

    const WIDTH: usize = 5;

    fn noise(name: &str, shape: &[usize]) -> Tensor {
        let random = Random::new(3, name, 0);
        let count = shape.iter().product::<usize>();
        Tensor::from_vec((0..count).map(|i| random.uniform(i as u64) - 0.5).collect(), shape).unwrap()
    }

    /// Gradients of a fixed function of what the adapter puts out.
    fn gradients(set: &AdapterSet) -> Gradients {
        let x = noise("x", &[2, 9, WIDTH]);
        let inputs = StreamInputs { residual: &x, norm: &x, sublayer: None };
        let stream = set.layer(0).stream(StreamSite::Mlp).unwrap();
        let out = stream.forward(0, inputs, &mut Pass::evaluation()).unwrap();
        out.backward_with(noise("seed", &[2, 9, WIDTH])).unwrap()
    }

    fn find(set: &AdapterSet, name: &str) -> Option<Parameter> {
        set.parameters().into_iter().find(|parameter| parameter.name() == name)
    }

    /// Signed poles and complex pairs, with angles that training has moved beyond a half turn on both sides.
    #[test]
    fn every_mode_is_truncated_within_its_bound() {
        let placement = Placement { layers: 1, d_model: WIDTH, linear: Vec::new(), stream: vec![StreamSite::Mlp] };
        for mode in [HrmMode::Signed, HrmMode::Complex] {
            let config = HrmConfig { mode, ..HrmConfig::new(HrmPreset::Paper, 6, WIDTH, 9) };
            let set = AdapterSet::new(&AdapterConfig::stream::<Hrm>(&config), &placement, 1).unwrap();
            set.to_dtype(DType::F64).unwrap();
            for parameter in set.parameters().iter().filter(|parameter| parameter.name().ends_with("angle")) {
                parameter.set(&Tensor::from_vec(vec![-0.5, 4.0, 7.0], [3]).unwrap()).unwrap();
            }
            let output = |set: &AdapterSet| {
                let x = noise("x", &[1, 40, WIDTH]);
                let stream = set.layer(0).stream(StreamSite::Mlp).unwrap();
                let inputs = StreamInputs { residual: &x, norm: &x, sublayer: None };
                stream.forward(0, inputs, &mut Pass::evaluation()).unwrap().to_f64_vec()
            };
            let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            let full = output(&set);
            let with_order = |order: usize| {
                let orders = OrderChoice::PerLayer(OrderRule::Order(order));
                set.truncate(&ReduceOptions { orders, ..ReduceOptions::default() }, &placement, 9, None).unwrap()
            };
            // All states are the adapter itself, as it was trained: only the angles are told from others.
            let same = with_order(6);
            assert!(!matches!(same.reduction.adapter.layers[0].dynamics, HrmDynamics::Modal(_)), "{mode:?}");
            assert!(distance(&full, &output(&same.adapters)) < 1e-12, "{mode:?}");
            let truncated = with_order(3);
            let facts = &truncated.reduction.certificate.layers[0].facts;
            let bound = facts.error_bound.unwrap();
            assert!(facts.hinf_error > 0.0 && facts.hinf_error <= bound * (1.0 + 1e-6), "{mode:?}");
            let input = noise("x", &[1, 40, WIDTH]).to_f64_vec();
            let size = distance(&input, &vec![0.0; input.len()]);
            let error = distance(&full, &output(&truncated.adapters));
            assert!(error > 1e-9 && error <= facts.hinf_error * size * (1.0 + 1e-3), "{mode:?}: {error}");
        }
    }

    /// Where the discarded states do nothing, the carried gradient is the gradient of the truncated adapter.
    #[test]
    fn gradients_are_carried_exactly_when_nothing_is_lost() {
        let placement = Placement { layers: 1, d_model: WIDTH, linear: Vec::new(), stream: vec![StreamSite::Mlp] };
        let positive = [Discretization::Free, Discretization::Zoh].map(|d| (d, HrmMode::Positive));
        for (discretization, mode) in positive.into_iter().chain([(Discretization::Free, HrmMode::Signed)]) {
            let mut config = HrmConfig::new(HrmPreset::Paper, 4, WIDTH, 9);
            (config.discretization, config.mode) = (discretization, mode);
            let set = AdapterSet::new(&AdapterConfig::stream::<Hrm>(&config), &placement, 1).unwrap();
            set.to_dtype(DType::F64).unwrap();
            // States 2 and 3 repeat the pole and the input of states 0 and 1.
            for parameter in set.parameters() {
                let values = parameter.tensor().to_f64_vec();
                let copied = |i: usize| match parameter.name().rsplit('.').next() {
                    Some("b") => values[i % (2 * WIDTH)] * if i < 2 * WIDTH { 10.0 } else { 20.0 },
                    Some("log_a" | "log_dt") => values[i % 2],
                    Some("c") => values[i] * 10.0,
                    _ => values[i],
                };
                let new = Tensor::from_vec((0..values.len()).map(copied).collect(), parameter.tensor().shape().clone());
                parameter.set(&new.unwrap()).unwrap();
            }
            let orders = OrderChoice::PerLayer(OrderRule::Epsilon(1e-6));
            let options = ReduceOptions { orders, ..ReduceOptions::default() };
            let truncated = set.truncate(&options, &placement, 9, None).unwrap();
            assert_eq!(truncated.orders(), (vec![4], vec![2]));
            let (full, small) = (gradients(&set), gradients(&truncated.adapters));
            let carried = truncated.carry(|name| full.get(&find(&set, name)?.tensor()).cloned()).unwrap();
            assert_eq!(carried.len(), 3);
            for (name, moment) in carried {
                let expected = small.get(&find(&truncated.adapters, &name).unwrap().tensor()).unwrap();
                assert_eq!(moment.shape(), expected.shape());
                let size = expected.to_f64_vec().iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                for (a, b) in moment.to_f64_vec().iter().zip(expected.to_f64_vec()) {
                    assert!((a - b).abs() < 1e-9 * size, "{discretization:?} {name}: {a} {b}");
                }
            }
        }
    }
}
