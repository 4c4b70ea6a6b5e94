//! Truncation of attached adapters.

use super::Hrm;
use crate::adapters::{AdapterSet, Placement};
use crate::reduce::{AdapterReduction, ReduceError, ReduceOptions, reduce_adapter};
use crate::weights::HrmAdapterFile;
use hankel_core::Error;

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
    /// When there are no adapters, they are not of kind `hrm`, or a layer cannot be reduced as asked for.
    pub fn truncate(
        &self,
        options: &ReduceOptions,
        placement: &Placement,
        steps: usize,
        base_model: Option<&str>,
    ) -> Result<Truncated, TruncationError> {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{AdapterConfig, Hrm, HrmConfig, HrmMode, HrmPreset, StreamInputs, StreamSite};
    use crate::lti::OrderRule;
    use crate::pass::Pass;
    use crate::reduce::OrderChoice;
    use crate::weights::HrmDynamics;
    use hankel_core::{DType, Random, Tensor};

    const WIDTH: usize = 5;

    fn noise(name: &str, shape: &[usize]) -> Tensor {
        let random = Random::new(3, name, 0);
        let count = shape.iter().product::<usize>();
        Tensor::from_vec((0..count).map(|i| random.uniform(i as u64) - 0.5).collect(), shape).unwrap()
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
}
