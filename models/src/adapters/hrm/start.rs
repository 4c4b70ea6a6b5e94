//! `init = "empirical-bt"` (R8): an adapter begins as the balanced truncation of a larger one that is drawn, by Gramians from data.
//!
//! ```text
//! Wc = 1/(N T) sum s s^T     states s of the larger adapter along N training sequences of T tokens
//! Wo = sum_k (A^T)^k C^T C A^k
//! ```
//!
//! Of the directions that could be remembered those stay that the data fill and the output reads. The result is a reduced adapter, in
//! modal form, with a row of B and a column of C of one size for every mode; it is stable, since `Wo` is exact
//! ([`GramianFactors::recorded`]).

use super::HrmConfig;
use crate::adapters::{AdapterConfig, AdapterSet, Placement, StreamSite, TruncationError};
use crate::lti::empirical::EmpiricalFactor;
use crate::lti::modal::to_modal;
use crate::lti::{self, GramianFactors, HankelSpectrum, LtiError, Method, reduce};
use crate::pass::Trajectory;
use crate::reduce::hrm::linear_system;
use crate::reduce::{ReduceError, reduced_layer};
use crate::weights::{Discretization, HrmLayerFile};
use faer::{Mat, MatRef};
use hankel_core::{Device, Error};
use std::collections::BTreeMap;

/// The larger adapters, and what data have done to their states.
pub struct EmpiricalStart {
    larger: AdapterSet,
    config: AdapterConfig,
    sums: BTreeMap<(usize, StreamSite), (EmpiricalFactor, usize)>,
}

impl AdapterSet {
    /// Whether these adapters are to begin as a truncation of larger ones, by data: as they are made they are only drawn.
    pub fn begins_from_data(&self) -> bool {
        self.config().is_some_and(|config| config.kind().0.begins_from(config.settings()).is_some())
    }

    /// The larger adapters that these begin as a truncation of, if they do.
    ///
    /// # Errors
    /// When the larger ones cannot be made.
    pub fn empirical_start(&self, placement: &Placement, seed: u64) -> hankel_core::Result<Option<EmpiricalStart>> {
        let Some(config) = self.config() else { return Ok(None) };
        let Some(settings) = config.kind().0.begins_from(config.settings()) else { return Ok(None) };
        let larger = AdapterConfig::from_table(config.kind(), settings, config.length());
        let larger = AdapterSet::new(&larger, placement, seed)?;
        Ok(Some(EmpiricalStart { larger, config: config.clone(), sums: BTreeMap::new() }))
    }
}

impl EmpiricalStart {
    /// The larger adapters, to be run on training sequences.
    pub fn adapters(&self) -> &AdapterSet {
        &self.larger
    }

    /// Adds states that they came to, as [`Pass::trajectories`](crate::Pass::trajectories) records them.
    ///
    /// # Errors
    /// States that are not finite, or of another size.
    pub fn add(&mut self, trajectories: &[Trajectory]) -> Result<(), TruncationError> {
        for Trajectory { layer, site, states } in trajectories {
            let d = states.shape().last();
            let rows = states.shape().rows();
            let values = states.to_device(Device::Cpu)?.to_f64_vec();
            let (sum, count) = self.sums.entry((*layer, *site)).or_insert_with(|| (EmpiricalFactor::new(d), 0));
            let added = sum.add(MatRef::from_row_major_slice(&values, rows, d));
            added.map_err(|reason| ReduceError::Layer { label: label(*layer, *site), reason })?;
            *count += rows;
        }
        Ok(())
    }

    /// The adapters as they begin, of the element type and on the device of the larger ones. A layer whose states the data fill in
    /// fewer directions has as many states as there are.
    ///
    /// # Errors
    /// A layer without recorded states, or one that cannot be reduced.
    pub fn finish(mut self, placement: &Placement) -> Result<AdapterSet, TruncationError> {
        let unreadable = |error: crate::settings::SettingsError| Error::invalid("hrm", error.to_string());
        let own: HrmConfig = self.config.read().map_err(unreadable)?;
        let mut file = self.larger.to_hrm_file(None).map_err(ReduceError::Mismatch)?;
        for layer in &mut file.layers {
            let label = label(layer.layer, layer.site);
            let of_layer = |reason| ReduceError::Layer { label, reason };
            let (sum, count) = self.sums.remove(&(layer.layer, layer.site)).unwrap_or((EmpiricalFactor::new(0), 0));
            let factor = sum.finish(count);
            let small = factor.and_then(|lc| truncated(layer, file.config.discretization, lc, own.state_dim));
            *layer = small.map_err(of_layer)?;
            if own.c_std == 0.0 {
                layer.c.fill(0.0);
            }
        }
        let mut set = AdapterSet::of_hrm_file(&file, placement, self.config.length()).map_err(ReduceError::Mismatch)?;
        set.config = Some(self.config);
        if let Some(parameter) = self.larger.parameters().first() {
            set.to_dtype(parameter.tensor().dtype())?;
        }
        set.to_device(self.larger.device())?;
        Ok(set)
    }
}

fn label(layer: usize, site: StreamSite) -> String {
    crate::weights::hrm_file::layer_label(layer, site)
}

fn truncated(
    layer: &HrmLayerFile,
    discretization: Discretization,
    lc: Mat<f64>,
    states: usize,
) -> lti::Result<HrmLayerFile> {
    let system = linear_system(layer, discretization)?;
    let spectrum = HankelSpectrum::new(&GramianFactors::recorded(&system, lc)?)?;
    let small = reduce(&system, &spectrum, Method::default(), states.min(spectrum.rank()))?.system;
    // A dense matrix would not be trained.
    let small = match to_modal(&small) {
        Ok(modal) => modal.system,
        Err(LtiError::Conversion { .. }) => small,
        Err(other) => return Err(other),
    };
    Ok(reduced_layer(layer, &small, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{Hrm, HrmInit, HrmMode, HrmPreset, StreamInputs};
    use crate::pass::Pass;
    use hankel_core::{DType, Random, Tensor};

    const WIDTH: usize = 6;

    fn placement() -> Placement {
        Placement { layers: 1, d_model: WIDTH, linear: Vec::new(), stream: vec![StreamSite::Mlp] }
    }

    /// Adapters of 4 states that begin as a truncation of those of `init_states`, in doubles.
    fn start(change: impl Fn(&mut HrmConfig)) -> EmpiricalStart {
        let mut config = HrmConfig::new(HrmPreset::Paper, 4, WIDTH, 40);
        (config.init, config.init_states) = (HrmInit::EmpiricalBt, 8);
        change(&mut config);
        let set = AdapterSet::new(&AdapterConfig::stream::<Hrm>(&config), &placement(), 1).unwrap();
        assert!(set.begins_from_data());
        let start = set.empirical_start(&placement(), 1).unwrap().unwrap();
        start.adapters().to_dtype(DType::F64).unwrap();
        start
    }

    /// Sequences [5, 40, WIDTH] whose entries beyond `columns` are 0.
    fn sequences(name: &str, columns: usize) -> Tensor {
        let random = Random::new(3, name, 0);
        let value = |i: usize| if i % WIDTH < columns { random.normal(i as u64) } else { 0.0 };
        Tensor::from_vec((0..5 * 40 * WIDTH).map(value).collect(), [5, 40, WIDTH]).unwrap()
    }

    /// What the adapters add to `x`, and the states on the way.
    fn run(set: &AdapterSet, x: &Tensor) -> (Vec<f64>, Vec<Trajectory>) {
        let stream = set.layer(0).stream(StreamSite::Mlp).unwrap();
        let mut trajectories = Vec::new();
        let mut pass = Pass { trajectories: Some(&mut trajectories), ..Pass::evaluation() };
        let zero = x.full_like(x.shape().clone(), 0.0).unwrap();
        let inputs = StreamInputs { residual: x, norm: &zero, sublayer: None };
        let out = stream.forward(0, inputs, &mut pass).unwrap().to_f64_vec();
        (out.iter().zip(x.to_f64_vec()).map(|(out, h)| out - h).collect(), trajectories)
    }

    fn distance(a: &[f64], b: &[f64]) -> f64 {
        let size = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        size(&mut a.iter().zip(b).map(|(a, b)| a - b)) / size(&mut b.iter().copied())
    }

    #[test]
    fn with_all_states_it_is_the_larger_adapter_in_other_coordinates() {
        for mode in [HrmMode::Positive, HrmMode::Signed, HrmMode::Complex] {
            let mut start = start(|config| (config.mode, config.state_dim) = (mode, 8));
            let full = start.adapters().clone();
            start.add(&run(&full, &sequences("calibration", WIDTH)).1).unwrap();
            let small = start.finish(&placement()).unwrap();
            assert_eq!(small.streams().next().unwrap().1.state_dim(), 8);
            assert!(small.parameters().iter().all(crate::parameter::Parameter::is_trainable), "{mode:?}");
            let x = sequences("other", WIDTH);
            let off = distance(&run(&small, &x).0, &run(&full, &x).0);
            assert!(off < 1e-7, "{mode:?}: {off}");
        }
    }

    /// Four of eight states read what is 0 in the data. Balanced truncation by the analytic Gramians knows nothing of that.
    #[test]
    fn what_the_data_fill_stays() {
        let mut start = start(|_| ());
        let full = start.adapters().clone();
        let b = full.parameters().into_iter().find(|parameter| parameter.name().ends_with("hrm.b")).unwrap();
        let values = b.tensor().to_f64_vec();
        // Rows 0, 2 ... read columns 0 to 2, the others columns 3 to 5, which they read ten times as loudly.
        let kept = |i: usize| match ((i / WIDTH).is_multiple_of(2), i % WIDTH < 3) {
            (true, true) => values[i],
            (false, false) => 10.0 * values[i],
            _ => 0.0,
        };
        b.set(&Tensor::from_vec((0..values.len()).map(kept).collect(), b.tensor().shape().clone()).unwrap()).unwrap();
        start.add(&run(&full, &sequences("calibration", 3)).1).unwrap();
        let small = start.finish(&placement()).unwrap();
        let (of_the_kind, of_another) = (sequences("other", 3), sequences("other", WIDTH));
        let off = |set: &AdapterSet, x: &Tensor| distance(&run(set, x).0, &run(&full, x).0);
        assert!(off(&small, &of_the_kind) < 1e-7, "{}", off(&small, &of_the_kind));
        assert!(off(&small, &of_another) > 0.5, "{}", off(&small, &of_another));
        let orders = crate::reduce::OrderChoice::PerLayer(lti::OrderRule::Order(4));
        let options = crate::reduce::ReduceOptions { orders, ..crate::reduce::ReduceOptions::default() };
        let blind = full.truncate(&options, &placement(), 40, None).unwrap().adapters;
        assert!(off(&blind, &of_the_kind) > 0.5, "{}", off(&blind, &of_the_kind));
    }

    #[test]
    fn it_can_begin_as_the_identity_and_as_singles() {
        let mut start = start(|config| config.c_std = 0.0);
        start.adapters().to_dtype(DType::F32).unwrap();
        let full = start.adapters().clone();
        let x = sequences("calibration", WIDTH).to_dtype(DType::F32).unwrap();
        start.add(&run(&full, &x).1).unwrap();
        let small = start.finish(&placement()).unwrap();
        assert!(run(&small, &x).0.iter().all(|added| *added == 0.0));
        let stream = small.layer(0).stream(StreamSite::Mlp).unwrap();
        assert!(small.parameters().iter().all(|parameter| parameter.tensor().dtype() == DType::F32));
        let poles = stream.adapter().poles();
        assert_eq!(poles.iter().map(|mode| mode.states()).sum::<usize>(), 4);
        assert!(poles.iter().all(|pole| (0.0..1.0).contains(&pole.polar().0)), "{poles:?}");
        let b = stream.downcast_ref::<Hrm>().unwrap().b.tensor().to_f64_vec();
        assert!(b.iter().all(|value| value.is_finite()) && b.iter().any(|value| *value != 0.0));
        assert!(small.config().unwrap().describe().contains("empirical-bt of 8 states"));
    }

    #[test]
    fn what_cannot_begin_so_is_refused() {
        let refused = |change: &dyn Fn(&mut HrmConfig)| {
            let mut config = HrmConfig { init: HrmInit::EmpiricalBt, ..HrmConfig::new(HrmPreset::Paper, 4, WIDTH, 40) };
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(refused(&|config| config.init_states = 3).contains("at least `state_dim` = 4"));
        assert!(refused(&|config| config.b_std = 0.0).contains("`b_std = 0`"));
        let error = start(|_| ()).finish(&placement()).err().unwrap().to_string();
        assert!(error.contains("layer 0") && error.contains("no recorded states"), "{error}");
        let plain = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 4, WIDTH, 40));
        let plain = AdapterSet::new(&plain, &placement(), 1).unwrap();
        assert!(!plain.begins_from_data() && plain.empirical_start(&placement(), 1).unwrap().is_none());
    }
}
