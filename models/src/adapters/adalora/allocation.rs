//! Who keeps which rank (section 3.2 of the paper): after each step every singular triplet gets a score, and those with the
//! lowest lose their singular value.
//!
//! For each element `w` with gradient `g`: `I = |w g|`, `J <- beta1 J + (1 - beta1) I` (its sensitivity),
//! `U <- beta2 U + (1 - beta2) |I - J|` (its uncertainty), score `J U`. A triplet's score is that of its singular value plus
//! the means over its two singular vectors. A value that was set to 0 goes on being trained, and may come back with the next
//! allocation, until the last.

use super::schedule::Phase;
use super::{AdaLora, AdaLoraConfig};
use crate::adapters::linear::{Allocation, LinearAdapter, SharedTraining};
use crate::parameter::Parameter;
use crate::settings::Table;
use crate::weights::arrays::{Array, NamedArrays};
use hankel_core::{DType, Device, Error, Float, Gradients, Result, Tensor};
use hankel_ops::{add, scale};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Scores and masks of all projections.
pub(super) struct Allocator {
    config: AdaLoraConfig,
    adapters: Vec<Arc<AdaLora>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sensitivity and uncertainty by parameter, of its shape.
    scores: BTreeMap<String, [Tensor; 2]>,
    /// By projection, which of the `init_rank` triplets are kept; empty before the first allocation.
    kept: BTreeMap<String, Vec<bool>>,
    /// The tensors hold the kept triplets only, as files do: the ranks do not change any more.
    pruned: bool,
}

const SENSITIVITY: &str = "sensitivity";
const UNCERTAINTY: &str = "uncertainty";
const KEPT: &str = "kept";

impl Allocator {
    /// The ranks of an adapter with a rank pattern, from a file, are final.
    pub fn new(config: &AdaLoraConfig, adapters: Vec<Arc<AdaLora>>) -> Self {
        let (kept, pruned) = (config.rank_pattern.clone(), !config.rank_pattern.is_empty());
        Allocator { config: config.clone(), adapters, state: Mutex::new(State { kept, pruned, ..State::default() }) }
    }

    /// The sums of all ranks, as the training begins and as it ends.
    fn budgets(&self) -> (usize, usize) {
        let projections = self.adapters.len();
        (self.config.init_rank * projections, self.config.target_rank * projections)
    }

    /// The ranks as they are, by projection.
    fn ranks(&self) -> Vec<(String, usize)> {
        self.adapters.iter().map(|adapter| (adapter.path().to_owned(), adapter.kept_rank())).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedTraining for Allocator {
    /// The mean of the orthogonality penalties.
    fn penalty(&self) -> Result<Option<Tensor>> {
        if self.config.orth_reg_weight == 0.0 {
            return Ok(None);
        }
        let mut sum: Option<Tensor> = None;
        let mut terms = 0;
        for term in self.adapters.iter().map(|adapter| adapter.penalties()) {
            for term in term? {
                terms += 1;
                sum = Some(sum.map_or(Ok(term.clone()), |sum| add(&sum, &term))?);
            }
        }
        sum.map(|sum| scale(&sum, self.config.orth_reg_weight / f64::from(terms))).transpose()
    }

    fn allocates(&self) -> bool {
        true
    }

    fn step(&self, step: usize, gradients: &Gradients, factor: f64) -> Result<Option<Allocation>> {
        let (config, adapters) = (&self.config, &self.adapters);
        let mut state = self.state();
        let (initial, target) = self.budgets();
        let budget = config.schedule.budget(step, initial, target);
        let mut changed = false;
        match config.schedule.phase(step) {
            _ if state.pruned => {}
            Phase::Reduce { allocate } => {
                for parameter in adapters.iter().flat_map(|adapter| adapter.parameters()) {
                    state.score(config, &parameter, gradients, factor)?;
                }
                if allocate {
                    state.allocate(adapters, initial - budget)?;
                    changed = true;
                }
            }
            Phase::Fix => {
                state.allocate(adapters, initial - budget)?;
                state.scores.clear();
                changed = true;
            }
            Phase::Keep => state.mask(adapters)?,
        }
        Ok(Some(Allocation { budget, ranks: self.ranks(), changed }))
    }

    /// A training may end between two allocations, after which what was pruned has come back, and a file would leave it out.
    fn end(&self) -> Result<Option<Allocation>> {
        let mut state = self.state();
        if state.pruned {
            return Ok(None);
        }
        // The last allocation takes the scores away, and without a step there are none.
        if state.scores.is_empty() {
            return state.mask(&self.adapters).map(|()| None);
        }
        let (initial, target) = self.budgets();
        state.allocate(&self.adapters, initial - target)?;
        state.scores.clear();
        Ok(Some(Allocation { budget: target, ranks: self.ranks(), changed: true }))
    }

    fn save(&self) -> Result<BTreeMap<String, Tensor>> {
        let state = self.state();
        let mut all = BTreeMap::new();
        for (name, [sensitivity, uncertainty]) in &state.scores {
            all.insert(format!("{name}.{SENSITIVITY}"), sensitivity.clone());
            all.insert(format!("{name}.{UNCERTAINTY}"), uncertainty.clone());
        }
        for (path, kept) in &state.kept {
            let mask = kept.iter().map(|&kept| f32::from(u8::from(kept))).collect();
            all.insert(format!("{path}.{KEPT}"), Tensor::from_vec(mask, [kept.len()])?);
        }
        Ok(all)
    }

    fn restore(&self, saved: &BTreeMap<String, Tensor>) -> Result<()> {
        let adapters = &self.adapters;
        let fail = |problem: String| Error::invalid("adalora", problem);
        let mut state = self.state();
        let (mut scores, mut kept, mut used) = (BTreeMap::new(), BTreeMap::new(), 0);
        for adapter in adapters {
            for parameter in adapter.parameters() {
                let name = |what: &str| format!("{}.{what}", parameter.name());
                let (first, second) = (saved.get(&name(SENSITIVITY)), saved.get(&name(UNCERTAINTY)));
                if first.is_none() && second.is_none() {
                    continue;
                }
                let [Some(first), Some(second)] = [first, second] else {
                    return Err(fail(format!("the saved state has only one of the scores of {}", parameter.name())));
                };
                let value = parameter.tensor();
                if first.shape() != value.shape() || second.shape() != value.shape() {
                    return Err(fail(format!("the saved scores of {} have another shape", parameter.name())));
                }
                let scored = [first.to_dtype(value.dtype())?, second.to_dtype(value.dtype())?];
                scores.insert(parameter.name().to_owned(), scored);
                used += 2;
            }
            if let Some(mask) = saved.get(&format!("{}.{KEPT}", adapter.path())) {
                if !state.pruned && mask.elements() != adapter.factors()[1].elements() {
                    return Err(fail(format!("the saved mask of {} has another rank", adapter.path())));
                }
                kept.insert(adapter.path().to_owned(), mask.to_f64_vec().iter().map(|&x| x != 0.0).collect());
                used += 1;
            }
        }
        if used != saved.len() {
            return Err(fail("the saved state is that of other projections".to_owned()));
        }
        for (what, count, all) in [("scores", scores.len(), 3 * adapters.len()), ("masks", kept.len(), adapters.len())]
        {
            if count != 0 && count != all {
                return Err(fail(format!("the saved state has {what} of {count} of {all}")));
            }
        }
        (state.scores, state.kept) = (scores, kept);
        Ok(())
    }

    /// What is kept of each projection, and the tensors without the rest.
    fn finish(&self, fields: &mut Table, arrays: &mut NamedArrays) {
        let state = self.state();
        let pattern: Table = state.kept.iter().map(|(path, kept)| (format!("{path}.lora_E"), json!(kept))).collect();
        if !pattern.is_empty() {
            fields.insert("rank_pattern".into(), Value::Object(pattern));
        }
        if !state.pruned {
            state.kept.iter().for_each(|(path, kept)| prune(arrays, path, kept));
        }
    }
}

/// Leaves out the triplets of the projection at `path` that are not kept.
fn prune(arrays: &mut NamedArrays, path: &str, kept: &[bool]) {
    let count = kept.iter().filter(|kept| **kept).count();
    for (factor, rows) in [("lora_A", true), ("lora_E", true), ("lora_B", false)] {
        let Some(array) = arrays.get_mut(&format!("{path}.{factor}")) else { continue };
        let width = array.shape[1];
        let stays = |index: usize| kept[if rows { index / width.max(1) } else { index % width.max(1) }];
        let data = array.data.iter().enumerate().filter(|(i, _)| stays(*i)).map(|(_, &x)| x).collect();
        let shape = if rows { vec![count, width] } else { vec![array.shape[0], count] };
        *array = Array::new(shape, data, array.precision);
    }
}

impl State {
    fn score(
        &mut self,
        config: &AdaLoraConfig,
        parameter: &Parameter,
        gradients: &Gradients,
        factor: f64,
    ) -> Result<()> {
        let value = parameter.tensor();
        let gradient = gradients.get(&value).ok_or_else(|| {
            let problem =
                format!("no gradient of {}: allocate with those of the step's backward pass", parameter.name());
            Error::invalid("adalora", problem)
        })?;
        // The scores are kept in main memory, whatever the device: a few matrices of low rank, once in a step.
        let (value, gradient) = (value.to_device(Device::Cpu)?, gradient.to_device(Device::Cpu)?);
        if !self.scores.contains_key(parameter.name()) {
            let zeros = || Tensor::zeros_of(value.dtype(), value.shape());
            self.scores.insert(parameter.name().to_owned(), [zeros()?, zeros()?]);
        }
        let Some(scores) = self.scores.get_mut(parameter.name()) else { return Ok(()) };
        match value.dtype() {
            DType::F32 => update::<f32>(scores, &value, &gradient, factor, config),
            _ => update::<f64>(scores, &value, &gradient, factor, config),
        }
    }

    /// Keeps all triplets but the `lose` with the lowest scores; ties are lost together.
    fn allocate(&mut self, adapters: &[Arc<AdaLora>], lose: usize) -> Result<()> {
        let mut by_path: Vec<(&Arc<AdaLora>, Vec<f64>)> = Vec::new();
        for adapter in adapters {
            let [q, e, p] = [&adapter.q, &adapter.e, &adapter.p].map(|factor| self.product(factor));
            let (q, e, p) = (q?, e?, p?);
            let (rank, inputs) = (e.len(), q.len() / e.len().max(1));
            let outputs = p.len() / rank.max(1);
            let score = |k: usize| {
                let right = q[k * inputs..(k + 1) * inputs].iter().sum::<f64>() / inputs as f64;
                let left = (0..outputs).map(|i| p[i * rank + k]).sum::<f64>() / outputs as f64;
                e[k] + right + left
            };
            by_path.push((adapter, (0..rank).map(score).collect()));
        }
        let mut all: Vec<f64> = by_path.iter().flat_map(|(_, scores)| scores.clone()).collect();
        all.sort_by(f64::total_cmp);
        let threshold = if lose == 0 { f64::NEG_INFINITY } else { all[lose - 1] };
        let masks = by_path.iter().map(|(adapter, scores)| {
            (adapter.path().to_owned(), scores.iter().map(|&score| score > threshold).collect())
        });
        self.kept = masks.collect();
        self.mask(adapters)
    }

    /// The product of sensitivity and uncertainty, element by element.
    fn product(&self, parameter: &Parameter) -> Result<Vec<f64>> {
        let missing = || Error::invalid("adalora", format!("{} has no score yet", parameter.name()));
        let [sensitivity, uncertainty] = self.scores.get(parameter.name()).ok_or_else(missing)?;
        Ok(sensitivity.to_f64_vec().iter().zip(uncertainty.to_f64_vec()).map(|(s, u)| s * u).collect())
    }

    /// Sets the singular values that are not kept to 0.
    fn mask(&self, adapters: &[Arc<AdaLora>]) -> Result<()> {
        fn clear<T: Float>(value: &mut Tensor, kept: &[bool]) -> Result<()> {
            let lost = value.data_mut::<T>()?.iter_mut().zip(kept).filter(|(_, kept)| !**kept);
            lost.for_each(|(e, _)| *e = T::zero());
            Ok(())
        }
        for adapter in adapters {
            let Some(kept) = self.kept.get(adapter.path()) else { continue };
            let mut value = adapter.e.tensor().to_device(Device::Cpu)?;
            match value.dtype() {
                DType::F32 => clear::<f32>(&mut value, kept)?,
                _ => clear::<f64>(&mut value, kept)?,
            }
            adapter.e.set(&value)?;
        }
        Ok(())
    }
}

fn update<T: Float>(
    [sensitivity, uncertainty]: &mut [Tensor; 2],
    value: &Tensor,
    gradient: &Tensor,
    factor: f64,
    config: &AdaLoraConfig,
) -> Result<()> {
    let (w, g) = (value.data::<T>()?, gradient.data::<T>()?);
    let factor = T::of(factor);
    let [(keep1, add1), (keep2, add2)] = [config.beta1, config.beta2].map(|beta| (T::of(beta), T::of(1.0 - beta)));
    let (s, u) = (sensitivity.data_mut::<T>()?, uncertainty.data_mut::<T>()?);
    for (((s, u), &w), &g) in s.iter_mut().zip(u).zip(w).zip(g) {
        let importance = (w * g * factor).abs();
        *s = keep1 * *s + add1 * importance;
        *u = keep2 * *u + add2 * (importance - *s).abs();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::placement::LinearSite;
    use crate::adapters::{AdapterConfig, AdapterSet, Placement, Schedule};
    use hankel_core::Random;

    /// Two projections in each of two layers, of rank 4 at first and of 2 at the end, allocated after steps 3 and 6 of 8.
    fn fresh() -> (AdapterSet, Placement) {
        let site = |name: &str| LinearSite::new(name, "self_attn", [6, 5]);
        let linear = ["q_proj", "v_proj"].map(site).into();
        let placement = Placement { layers: 2, d_model: 6, linear, stream: Vec::new() };
        let schedule = Schedule { tinit: 0, tfinal: 0, delta_t: 3, total_steps: 8 };
        let config = AdapterConfig::linear::<AdaLora>(&AdaLoraConfig { schedule, ..AdaLoraConfig::new(4, 2, 8) });
        (AdapterSet::new(&config, &placement, 0).unwrap(), placement)
    }

    /// A made-up step: everything has a gradient, and everything moves.
    fn advance(set: &AdapterSet, step: usize) {
        let noise = |name: &str, i: usize, parameter: &Parameter| {
            Random::new(9, name, (100 * step + i) as u64).normal_vec::<f32>(parameter.elements(), 0.1)
        };
        let mut gradients = Gradients::default();
        for (i, parameter) in set.parameters().iter().enumerate() {
            let value = parameter.tensor();
            let seed = Tensor::from_vec(noise("gradient", i, parameter), value.shape()).unwrap();
            gradients.accumulate(scale(&value, 1.0).unwrap().backward_with(seed).unwrap()).unwrap();
        }
        for (i, parameter) in set.parameters().iter().enumerate() {
            let moves = noise("move", i, parameter);
            parameter.update(|value| {
                value.data_mut::<f32>().unwrap().iter_mut().zip(&moves).for_each(|(value, by)| *value += by);
            });
        }
        set.allocate(step, &gradients, 1.0).unwrap();
    }

    /// What is added to every weight.
    fn updates(set: &AdapterSet) -> Vec<Vec<f64>> {
        let zero = Tensor::zeros::<f32>([5, 6]);
        let update = |name: &String| set.merge_tensor(name, &zero, DType::F64).unwrap().unwrap().0.to_f64_vec();
        set.merged_names().iter().map(update).collect()
    }

    #[test]
    fn a_training_that_ends_between_two_allocations_saves_what_it_computes() {
        for steps in [5, 8] {
            let (set, placement) = fresh();
            (0..steps).for_each(|step| advance(&set, step));
            let rank = |set: &AdapterSet| set.linears().filter_map(|(_, adapter)| adapter.rank()).sum::<usize>();
            assert_eq!(rank(&set), 4 * 4, "{steps} steps: what was pruned has come back");
            let allocation = set.end_training().unwrap().unwrap();
            let ranks: usize = allocation.ranks.iter().map(|(_, rank)| rank).sum();
            assert_eq!((allocation.budget, ranks, rank(&set)), (2 * 4, 2 * 4, 2 * 4), "{steps} steps");
            assert!(set.end_training().unwrap().is_none());
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("adapter");
            set.save(&path, None).unwrap();
            let loaded = AdapterSet::load(&path, &placement, 9).unwrap();
            for (computed, saved) in updates(&set).iter().zip(updates(&loaded)) {
                assert!(computed.iter().zip(saved).all(|(a, b)| (a - b).abs() < 1e-9), "{steps} steps");
            }
        }
    }

    #[test]
    fn a_training_that_ends_where_ranks_stay_ends_as_it_is() {
        let (set, _) = fresh();
        assert!(set.end_training().unwrap().is_none(), "nothing was trained");
        // One step more than the schedule has is the last allocation.
        (0..9).for_each(|step| advance(&set, step));
        let before = updates(&set);
        assert!(set.end_training().unwrap().is_none());
        assert_eq!(before, updates(&set));
    }
}
