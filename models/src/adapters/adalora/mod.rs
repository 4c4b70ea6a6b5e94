//! AdaLoRA (Zhang et al., 2023): a low-rank update in the form of a singular value decomposition, whose rank is shared out
//! among the projections while training.
//!
//! ```text
//! y = W x + s P (E * (Q drop(x))),    s = lora_alpha / (init_rank + 1e-5)
//! loss + orth_reg_weight * mean of || Q Q^T - I ||_F and || P^T P - I ||_F over all projections
//! ```
//!
//! `Q` `[rank, in]` (`lora_A` in files), `E` `[rank, 1]` (`lora_E`), `P` `[out, rank]` (`lora_B`). `E` starts at zero, `P` and `Q`
//! normal with standard deviation 0.02. The scale keeps `init_rank` whatever is pruned later, as in PEFT.

mod allocation;
mod schedule;

pub use schedule::Schedule;

use super::kind::Context;
use super::linear::low_rank::{TARGETS, check_fraction, check_rank, check_rank_of, check_scale_and_dropout, dropped};
use super::linear::peft::{Fields, PREFIX};
use super::linear::{LinearAdapter, LinearContext, LinearKind, SharedTraining, WeightChange};
use super::lora::low_rank_fields;
use super::placement::LinearSite;
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use crate::settings::{Key, SettingsError, Table, one_or_many, settings};
use crate::weights;
use crate::weights::arrays::NamedArrays;
use allocation::Allocator;
use hankel_core::{Error, Result, Tensor};
use hankel_ops::{Gate, Side, add_linear, linear, orthogonality, scale_columns};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Added to the rank that the scale is divided by.
const EPS: f64 = 1e-5;
/// Standard deviation of the initial singular vectors.
const STD: f64 = 0.02;

/// Which of the `init_rank` triplets of each projection are kept, by path.
type RankPattern = BTreeMap<String, Vec<bool>>;

settings! {
    /// Settings of AdaLoRA.
    pub struct AdaLoraConfig {
        /// Rank of every projection at the start.
        pub init_rank: usize = "1.5 `target_rank`",
        /// Mean rank at the end.
        pub target_rank: usize = "two thirds of `init_rank`",
        /// Scale of the update, divided by `init_rank`.
        pub lora_alpha: f64 = "`init_rank`, a scale of 1",
        /// Probability of dropout on the input of the update, while training.
        pub dropout: f64 = "0",
        /// Projections that get an update.
        #[serde(deserialize_with = "one_or_many")]
        pub targets: Vec<String> = r#"`["q_proj", "v_proj"]`"#,
        /// When the rank is reduced.
        #[serde(flatten)]
        pub schedule: Schedule,
        /// Decay of the running mean of the sensitivities.
        pub beta1: f64 = "0.85",
        /// Decay of the running mean of their deviations.
        pub beta2: f64 = "0.85",
        /// Weight of the orthogonality penalty.
        pub orth_reg_weight: f64 = "0.5",
        /// What a pruned adapter from a file has kept of each projection; empty for one that can be trained from the start.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub rank_pattern: BTreeMap<String, Vec<bool>>
    }
}

impl AdaLoraConfig {
    /// From rank `init_rank` to `target_rank` on the query and value projections in `total_steps` optimizer steps, with a
    /// scale of 1, a tenth of the steps before the reduction and a third after it.
    pub fn new(init_rank: usize, target_rank: usize, total_steps: usize) -> Self {
        AdaLoraConfig {
            init_rank,
            target_rank,
            lora_alpha: init_rank as f64,
            dropout: 0.0,
            targets: TARGETS.map(str::to_owned).into(),
            schedule: Schedule { tinit: total_steps / 10, tfinal: total_steps / 3, delta_t: 10, total_steps },
            beta1: 0.85,
            beta2: 0.85,
            orth_reg_weight: 0.5,
            rank_pattern: RankPattern::new(),
        }
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        self.lora_alpha / (self.init_rank as f64 + EPS)
    }

    /// The number of triplets at `path`.
    fn rank_at(&self, path: &str) -> usize {
        let kept = |kept: &Vec<bool>| kept.iter().filter(|kept| **kept).count();
        self.rank_pattern.get(path).map_or(self.init_rank, kept)
    }
}

/// The update of one projection. Cloning shares the parameters.
#[derive(Clone)]
pub struct AdaLora {
    path: String,
    scale: f64,
    dropout: f64,
    q: Parameter,
    e: Parameter,
    p: Parameter,
}

impl LinearKind for AdaLora {
    const KIND: &'static str = "adalora";
    const ABOUT: &'static str =
        "Low-rank updates whose ranks are shared out among the projections while training (Zhang et al., 2023).";
    const SIZE: Option<&'static str> = Some("init_rank");
    const REQUIRED: &'static [&'static str] = &["target_rank", "init_rank"];
    const PEFT_TYPE: &'static str = "ADALORA";
    type Settings = AdaLoraConfig;

    fn keys() -> Vec<Key> {
        [AdaLoraConfig::keys(), Schedule::keys()].concat()
    }

    fn defaults(given: &Table, context: &Context<'_>) -> AdaLoraConfig {
        let rank = |key: &str| given.get(key).and_then(Value::as_u64).and_then(|rank| usize::try_from(rank).ok());
        let target = rank("target_rank");
        let initial =
            rank("init_rank").unwrap_or_else(|| target.map_or(1, |target| target.saturating_mul(3).div_ceil(2)));
        let target = target.unwrap_or_else(|| initial.saturating_mul(2).div_ceil(3)).min(initial);
        let targets = context.placement.usual(&TARGETS);
        AdaLoraConfig { targets, ..AdaLoraConfig::new(initial, target, context.steps.unwrap_or(0) as usize) }
    }

    fn targets(settings: &AdaLoraConfig) -> &[String] {
        &settings.targets
    }

    fn check(settings: &AdaLoraConfig) -> std::result::Result<(), SettingsError> {
        let AdaLoraConfig { init_rank, target_rank, orth_reg_weight, .. } = *settings;
        check_rank("init_rank", init_rank)?;
        check_rank("target_rank", target_rank)?;
        SettingsError::unless(target_rank <= init_rank, "target_rank", || {
            format!("is {target_rank}, above init_rank = {init_rank}")
        })?;
        check_scale_and_dropout(settings.lora_alpha, settings.dropout)?;
        // PEFT takes the rank in place of such a value, here alone.
        SettingsError::unless(settings.lora_alpha > 0.0, "lora_alpha", || {
            format!("must be above 0 for AdaLoRA, found {}", settings.lora_alpha)
        })?;
        check_fraction("beta1", settings.beta1)?;
        check_fraction("beta2", settings.beta2)?;
        SettingsError::unless(settings.schedule.delta_t >= 1, "delta_t", || "must be at least 1, found 0".to_owned())?;
        SettingsError::unless(orth_reg_weight >= 0.0 && orth_reg_weight.is_finite(), "orth_reg_weight", || {
            format!("must be finite and at least 0, found {orth_reg_weight}")
        })
    }

    fn new(settings: &AdaLoraConfig, context: &LinearContext<'_>) -> Result<Self> {
        settings.schedule.check().map_err(|problem| Error::invalid("adalora", problem))?;
        let (path, site) = (context.path(), context.site);
        let rank = settings.rank_at(path);
        let vectors = |name: &str, shape: [usize; 2]| {
            let values = context.random(name).normal_vec::<f32>(shape[0] * shape[1], STD);
            context.parameter(name, Role::Matrix, &Tensor::from_vec(values, shape)?)
        };
        Ok(AdaLora {
            q: vectors("lora_A", [rank, site.inputs])?,
            e: context.parameter("lora_E", Role::Vector, &Tensor::zeros::<f32>([rank, 1]))?,
            p: vectors("lora_B", [site.outputs, rank])?,
            scale: settings.scale(),
            dropout: settings.dropout,
            path: path.to_owned(),
        })
    }

    fn count(settings: &AdaLoraConfig, layer: usize, site: &LinearSite) -> usize {
        settings.rank_at(&site.path(layer)) * (site.inputs + site.outputs + 1)
    }

    fn describe(settings: &AdaLoraConfig) -> String {
        let AdaLoraConfig { init_rank, target_rank, targets, .. } = settings;
        format!("r = {init_rank}, mean {target_rank} at the end, {}", targets.join(" + "))
    }

    fn write_peft(settings: &AdaLoraConfig) -> Table {
        let schedule = settings.schedule.in_files();
        // PEFT ignores r here and warns unless it is its default.
        let mut fields = low_rank_fields(8, settings.lora_alpha, settings.dropout);
        let own = [
            ("rank_pattern", Value::Null),
            ("init_r", json!(settings.init_rank)),
            ("target_r", json!(settings.target_rank)),
            ("tinit", json!(schedule.tinit)),
            ("tfinal", json!(schedule.tfinal)),
            ("deltaT", json!(schedule.delta_t)),
            ("total_step", json!(schedule.total_steps)),
            ("beta1", json!(settings.beta1)),
            ("beta2", json!(settings.beta2)),
            ("orth_reg_weight", json!(settings.orth_reg_weight)),
        ];
        fields.extend(own.into_iter().map(|(key, value)| (key.to_owned(), value)));
        fields
    }

    fn read_peft(fields: &Fields<'_>) -> weights::Result<AdaLoraConfig> {
        const KNOWN: &[&str] = &[
            "r",
            "lora_alpha",
            "lora_dropout",
            "init_lora_weights",
            "bias",
            "rank_pattern",
            "init_r",
            "target_r",
            "tinit",
            "tfinal",
            "deltaT",
            "beta1",
            "beta2",
            "orth_reg_weight",
            "total_step",
        ];
        fields.refuse_others(KNOWN)?;
        fields.check_bias_and_initialization()?;
        let init_rank = fields.positive("init_r")?;
        // PEFT before 0.15 did not check `total_step` or the schedule, and never checks the ranks. A finished adapter computes the same.
        let total_steps =
            if fields.get("total_step").is_none_or(Value::is_null) { 0 } else { fields.positive("total_step")? };
        let (tinit, tfinal, delta_t) =
            (fields.integer("tinit")?, fields.integer("tfinal")?, fields.positive("deltaT")?);
        let schedule = Schedule { tinit, tfinal, delta_t, total_steps };
        let is_usable = schedule.check().is_ok() && schedule != schedule.of_no_steps();
        let schedule = if is_usable { schedule } else { Schedule { total_steps: 0, ..schedule } };
        let settings = AdaLoraConfig {
            init_rank,
            target_rank: fields.positive("target_r")?.min(init_rank),
            lora_alpha: fields.number("lora_alpha")?,
            dropout: fields.number_or("lora_dropout", 0.0)?,
            targets: fields.targets()?,
            schedule,
            beta1: fields.number("beta1")?,
            beta2: fields.number("beta2")?,
            orth_reg_weight: fields.number("orth_reg_weight")?,
            rank_pattern: rank_pattern(fields, init_rank)?,
        };
        if !settings.rank_pattern.is_empty() {
            let adapted = fields.paths(&settings.targets)?;
            let (named, same) = (settings.rank_pattern.len(), |path| settings.rank_pattern.contains_key(path));
            if adapted.len() != named || !adapted.iter().all(same) {
                return Err(fields.fail("rank_pattern does not name the projections of target_modules"));
            }
        }
        Ok(settings)
    }

    fn check_arrays(settings: &AdaLoraConfig, arrays: &NamedArrays) -> std::result::Result<(), String> {
        if settings.rank_pattern.is_empty() { check_rank_of(arrays, settings.init_rank) } else { Ok(()) }
    }

    fn open(_: &AdaLoraConfig, context: &Context<'_>) -> &'static [&'static str] {
        if context.steps.is_none() { &["tinit", "tfinal"] } else { &[] }
    }

    fn fit_size(settings: &mut AdaLoraConfig) {
        settings.target_rank = settings.target_rank.min(settings.init_rank);
    }

    fn training(settings: &AdaLoraConfig, adapters: Vec<Arc<Self>>) -> Option<Arc<dyn SharedTraining>> {
        Some(Arc::new(Allocator::new(settings, adapters)))
    }
}

/// The kept triplets that a file names, by path.
fn rank_pattern(fields: &Fields<'_>, init_rank: usize) -> weights::Result<RankPattern> {
    let pattern = match fields.get("rank_pattern") {
        None | Some(Value::Null) => return Ok(RankPattern::new()),
        Some(Value::Object(pattern)) => pattern,
        Some(_) => return Err(fields.fail("rank_pattern is not an object")),
    };
    let mut all = RankPattern::new();
    for (key, value) in pattern {
        let name = key.strip_prefix(PREFIX).unwrap_or(key);
        let path = name.strip_suffix(".default").unwrap_or(name).strip_suffix(".lora_E");
        let path = path.ok_or_else(|| fields.fail(format!("rank_pattern names {key}, which is not a lora_E")))?;
        let kept: Option<Vec<bool>> = value.as_array().and_then(|list| list.iter().map(Value::as_bool).collect());
        match kept {
            Some(kept) if kept.len() == init_rank => all.insert(path.to_owned(), kept),
            _ => return Err(fields.fail(format!("rank_pattern of {key} is not a list of {init_rank} truth values"))),
        };
    }
    Ok(all)
}

impl LinearAdapter for AdaLora {
    fn path(&self) -> &str {
        &self.path
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![self.q.clone(), self.e.clone(), self.p.clone()]
    }

    fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = layer.plain(base, x)?;
        let e = self.e.tensor();
        if e.elements() == 0 {
            return Ok(y);
        }
        let dropped = dropped(x, self.dropout, &self.path, pass)?;
        let low = linear(dropped.as_ref().unwrap_or(x), &self.q.tensor(), None)?;
        let low = scale_columns(&low, &e.reshape([e.elements()])?, None)?;
        add_linear(&y, &low, &self.p.tensor(), None, Gate::Fixed(self.scale))
    }

    fn weight_change(&self) -> Result<WeightChange> {
        let [q, e, p] = self.factors();
        let (inputs, e) = (q.shape()[1].max(1), e.to_f64_vec());
        let rows: Vec<f64> =
            q.to_f64_vec().chunks(inputs).zip(&e).flat_map(|(q, e)| q.iter().map(move |q| q * e)).collect();
        Ok(WeightChange::low_rank(self.scale, &Tensor::from_vec(rows, q.shape())?, &p))
    }

    /// Number of singular values that are not 0.
    fn rank(&self) -> Option<usize> {
        Some(self.kept_rank())
    }

    fn saved_per_token(&self) -> usize {
        self.q.tensor().shape()[0]
    }
}

impl AdaLora {
    /// The two terms of the penalty: how far `Q` and `P` are from orthonormal.
    fn penalties(&self) -> Result<[Tensor; 2]> {
        Ok([orthogonality(&self.q.tensor(), Side::Rows)?, orthogonality(&self.p.tensor(), Side::Columns)?])
    }

    fn kept_rank(&self) -> usize {
        self.e.tensor().to_f64_vec().iter().filter(|e| **e != 0.0).count()
    }

    /// `Q` `[rank, in]`, `E` `[rank, 1]` and `P` `[out, rank]`.
    pub fn factors(&self) -> [Tensor; 3] {
        [self.q.tensor(), self.e.tensor(), self.p.tensor()]
    }
}
