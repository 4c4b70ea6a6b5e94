//! Who keeps which rank (section 3.2 of the paper): after each step every singular triplet gets a score, and those with the
//! lowest lose their singular value.
//!
//! Each element has a [`Sensitivity`] with mean `J` and uncertainty `U`, its score is `J U`. A triplet's score is that of its singular value plus
//! the means over its two singular vectors. A value that was set to 0 goes on being trained, and may come back with the next
//! allocation, until the last.

use super::schedule::Phase;
use super::{AdaLora, AdaLoraConfig};
use crate::adapters::linear::{Allocation, LinearAdapter, SharedTraining};
use crate::parameter::Parameter;
use crate::settings::Table;
use crate::weights::arrays::{Array, NamedArrays};
use hankel_core::{Error, Gradients, ReadBack, Result, Tensor};
use hankel_ops::optimizer::Sensitivity;
use hankel_ops::{add, scale, scale_rows};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Scores and masks of all projections.
pub(super) struct Allocator {
    config: AdaLoraConfig,
    adapters: Vec<Arc<AdaLora>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Scores by parameter, on its device.
    scores: BTreeMap<String, Sensitivity>,
    /// By projection, which of the `init_rank` triplets are kept; empty before the first allocation.
    kept: BTreeMap<String, Vec<bool>>,
    /// The same as numbers on the device of the singular values, made when they are needed.
    masks: BTreeMap<String, Tensor>,
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

    /// The ranks as they are, by projection. All are asked for before any is waited for.
    fn ranks(&self) -> Result<Vec<(String, usize)>> {
        let all: Vec<ReadBack> =
            self.adapters.iter().map(|adapter| adapter.e.tensor().read_back()).collect::<Result<_>>()?;
        let rank = |(adapter, values): (&Arc<AdaLora>, ReadBack)| {
            Ok((adapter.path().to_owned(), values.wait()?.to_f64_vec().iter().filter(|e| **e != 0.0).count()))
        };
        self.adapters.iter().zip(all).map(rank).collect()
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
        let ranks = if changed { Some(self.ranks()?) } else { None };
        Ok(Some(Allocation { budget, ranks }))
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
        Ok(Some(Allocation { budget: target, ranks: Some(self.ranks()?) }))
    }

    fn save(&self) -> Result<BTreeMap<String, Tensor>> {
        let state = self.state();
        let mut all = BTreeMap::new();
        for (name, scores) in &state.scores {
            all.insert(format!("{name}.{SENSITIVITY}"), scores.mean.clone());
            all.insert(format!("{name}.{UNCERTAINTY}"), scores.uncertainty.clone());
        }
        for (path, kept) in &state.kept {
            all.insert(format!("{path}.{KEPT}"), Tensor::from_vec(ones_and_zeros(kept), [kept.len()])?);
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
                let there = |score: &Tensor| score.to_dtype(value.dtype())?.to_device(value.device());
                let scored = Sensitivity { mean: there(first)?, uncertainty: there(second)? };
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
        state.masks.clear();
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
        let scores = match self.scores.entry(parameter.name().to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(fresh) => fresh.insert(Sensitivity::new(&value)?),
        };
        scores.update(&value, gradient, factor, [config.beta1, config.beta2])
    }

    /// Keeps all triplets but the `lose` with the lowest scores; ties are lost together.
    fn allocate(&mut self, adapters: &[Arc<AdaLora>], lose: usize) -> Result<()> {
        let scores = self.products(adapters)?;
        let mut by_path: Vec<(&Arc<AdaLora>, Vec<f64>)> = Vec::new();
        for (adapter, [q, e, p]) in adapters.iter().zip(scores) {
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
        self.masks.clear();
        self.mask(adapters)
    }

    /// The products of mean and uncertainty of `Q`, `E` and `P`, element by element. All are asked for before any is waited for.
    fn products(&self, adapters: &[Arc<AdaLora>]) -> Result<Vec<[Vec<f64>; 3]>> {
        let ask = |parameter: &Parameter| {
            let missing = || Error::invalid("adalora", format!("{} has no score yet", parameter.name()));
            let scores = self.scores.get(parameter.name()).ok_or_else(missing)?;
            Ok([scores.mean.read_back()?, scores.uncertainty.read_back()?])
        };
        let all: Vec<[[ReadBack; 2]; 3]> = adapters
            .iter()
            .map(|adapter| Ok([ask(&adapter.q)?, ask(&adapter.e)?, ask(&adapter.p)?]))
            .collect::<Result<_>>()?;
        let product = |[mean, uncertainty]: [ReadBack; 2]| {
            let (mean, uncertainty) = (mean.wait()?.to_f64_vec(), uncertainty.wait()?.to_f64_vec());
            Ok(mean.iter().zip(uncertainty).map(|(j, u)| j * u).collect())
        };
        all.into_iter().map(|[q, e, p]| Ok([product(q)?, product(e)?, product(p)?])).collect()
    }

    /// Sets the singular values that are not kept to 0.
    fn mask(&mut self, adapters: &[Arc<AdaLora>]) -> Result<()> {
        for adapter in adapters {
            let Some(kept) = self.kept.get(adapter.path()) else { continue };
            let value = adapter.e.tensor().detach();
            let mask = match self.masks.entry(adapter.path().to_owned()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(fresh) => {
                    let mask = Tensor::from_vec(ones_and_zeros(kept), [kept.len()])?;
                    fresh.insert(mask.to_dtype(value.dtype())?.to_device(value.device())?)
                }
            };
            adapter.e.set(&scale_rows(&value, mask)?)?;
        }
        Ok(())
    }
}

fn ones_and_zeros(kept: &[bool]) -> Vec<f32> {
    kept.iter().map(|&kept| f32::from(u8::from(kept))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::placement::LinearSite;
    use crate::adapters::{AdapterConfig, AdapterSet, Placement, Schedule};
    use hankel_core::{DType, Random};

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
            let ranks: usize = allocation.ranks.unwrap().iter().map(|(_, rank)| rank).sum();
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
