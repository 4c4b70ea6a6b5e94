//! Low-rank adaptation (Hu et al., 2021): `y = W x + s B A drop(x)`, `s = lora_alpha / rank`; with rsLoRA
//! (Kalajdzievski, 2023) `s = lora_alpha / sqrt(rank)`, so that the update keeps its size as the rank grows.
//!
//! `A` `[rank, in]`, `B` `[out, rank]`. `B` starts at zero, so the model starts unchanged; `A` is uniform in
//! `+- 1/sqrt(in)`, as PEFT draws it. The update is added in the pass that reads the projection's output.
//!
//! Other starts ([`LoraInit`]), with `W = U S V^T`:
//!
//! ```text
//! PiSSA   B0 = U_r sqrt(S_r / s), A0 = sqrt(S_r / s) V_r^T      y = W x + s (B A - B0 A0) x
//! LoftQ   the same of W - Q(W)                                  y = Q(W) x + s B A x
//! ```
//!
//! PiSSA (Meng et al., 2024) trains the principal part of the weight. Its authors take that part out of the frozen weight; here the
//! weight, which other adapters share, stays as it is, and the initial factors are subtracted: `[B, -B0] [A; A0]`, an update of rank
//! `2 r`. It computes the same, and files hold it as a LoRA of that rank, as PEFT converts its own. LoftQ (Li et al., 2023) makes up for
//! what quantising the weight lost, in one round or more: `loftq.rs`.

mod loftq;
mod principal;
mod start;

use super::kind::Context;
use super::linear::low_rank::{TARGETS, check_rank, check_rank_of, check_scale_and_dropout, dropped};
use super::linear::peft::{Fields, number};
use super::linear::{LinearAdapter, LinearContext, LinearKind, SharedTraining, StoredWeight, WeightChange};
use super::placement::{LinearSite, Placement};
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use crate::settings::{Key, SettingsError, Table, one_or_many, settings};
use crate::weights;
use crate::weights::arrays::NamedArrays;
use hankel_core::{Error, Random, Result, Tensor};
use hankel_ops::{Gate, add_linear, concat_time, linear};
use loftq::Rounds;
use principal::principal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use start::Starts;
use std::sync::Arc;

/// Where `A` and `B` begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoraInit {
    /// `B = 0`, `A` random.
    #[default]
    Zero,
    /// The part of the weight with the largest singular values.
    Pissa,
    /// The same part of what quantising the weight lost.
    Loftq,
}

settings! {
    /// Settings of LoRA, rsLoRA and DoRA.
    pub struct LoraConfig {
        /// Rank r of the update.
        pub rank: usize = "",
        /// Scale of the update, divided by the rank.
        pub lora_alpha: f64 = "the rank, so that the scale is 1 (with `rslora`, the root of the rank)",
        /// Probability of dropout on the input of the update, while training.
        pub dropout: f64 = "0",
        /// Projections that get an update.
        #[serde(deserialize_with = "one_or_many")]
        pub targets: Vec<String> = r#"`["q_proj", "v_proj"]`"#,
        /// Divide the scale by the root of the rank instead (rsLoRA).
        pub rslora: bool = "false",
        /// Learning rate of B, and of DoRA's magnitudes, over that of A (LoRA+; Hayou et al., 2024, advise about 16).
        pub lora_plus_ratio: f64 = "1",
        /// Where A and B begin: `"zero"` (B = 0), `"pissa"` (principal part of the weight), `"loftq"` (principal part of the quantisation error of `quantize`).
        pub init: LoraInit = r#"`"zero"`"#,
        /// Rounds of LoftQ: with more than one, each projection gets a quantised weight of its own.
        pub loftq_iter: usize = "1",
    }
}

impl LoraConfig {
    /// Rank `rank` on the query and value projections with a scale of 1.
    pub fn new(rank: usize) -> Self {
        LoraConfig {
            rank,
            lora_alpha: rank as f64,
            dropout: 0.0,
            targets: TARGETS.map(str::to_owned).into(),
            rslora: false,
            lora_plus_ratio: 1.0,
            init: LoraInit::Zero,
            loftq_iter: 1,
        }
    }

    /// Defaults for a rank that is `given`, or not yet known.
    pub(crate) fn defaults(given: &Table, placement: &Placement) -> Self {
        let rank = given.get("rank").and_then(Value::as_u64).and_then(|rank| usize::try_from(rank).ok()).unwrap_or(1);
        LoraConfig { targets: placement.usual(&TARGETS), ..Self::new(rank) }
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.lora_alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    pub(crate) fn check(&self) -> std::result::Result<(), SettingsError> {
        check_rank("rank", self.rank)?;
        check_scale_and_dropout(self.lora_alpha, self.dropout)?;
        SettingsError::unless(self.init == LoraInit::Zero || self.lora_alpha != 0.0, "lora_alpha", || {
            "must not be 0 with `init = \"pissa\"` or `\"loftq\"`, whose factors are divided by the scale".to_owned()
        })?;
        let ratio = self.lora_plus_ratio;
        SettingsError::unless(ratio > 0.0 && ratio.is_finite(), "lora_plus_ratio", || {
            format!("must be above 0, found {ratio}; 1 trains A and B with the same learning rate")
        })?;
        let rounds = self.loftq_iter;
        SettingsError::unless((1..=1000).contains(&rounds), "loftq_iter", || {
            format!("must be 1 to 1000, found {rounds}")
        })?;
        SettingsError::unless(rounds == 1 || self.init == LoraInit::Loftq, "loftq_iter", || {
            "is for `init = \"loftq\"`: set that, too".to_owned()
        })
    }

    /// The settings in a few words.
    pub(crate) fn describe(&self) -> String {
        let start = match self.init {
            LoraInit::Zero => String::new(),
            LoraInit::Pissa => ", PiSSA".to_owned(),
            LoraInit::Loftq if self.loftq_iter == 1 => ", LoftQ".to_owned(),
            LoraInit::Loftq => format!(", LoftQ in {} rounds", self.loftq_iter),
        };
        format!("r = {}, {}{start}", self.rank, self.targets.join(" + "))
    }

    /// As PEFT has them; `dora` for its extension.
    pub(crate) fn write_peft(&self, dora: bool) -> Table {
        let mut fields = low_rank_fields(self.rank, self.lora_alpha, self.dropout);
        fields.insert("use_dora".into(), json!(dora));
        fields.insert("use_rslora".into(), json!(self.rslora));
        if self.init == LoraInit::Loftq {
            // PEFT ignores it for an adapter that is read; here it says that the weights must be quantised, and how.
            let config = json!({ "loftq_bits": 4, "loftq_iter": self.loftq_iter, OWN_LOFTQ: true });
            fields.insert("loftq_config".into(), config);
        }
        fields
    }

    pub(crate) fn read_peft(fields: &Fields<'_>) -> weights::Result<Self> {
        const KNOWN: &[&str] =
            &["r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "init_lora_weights", "loftq_config", "bias"];
        fields.refuse_others(KNOWN)?;
        fields.check_bias_and_initialization()?;
        let is_own = |config: &&Table| config.contains_key(OWN_LOFTQ) || is_of_earlier_version(fields, config);
        let loftq = fields.get("loftq_config").and_then(Value::as_object).filter(is_own);
        let rounds = loftq.and_then(|config| config.get("loftq_iter")).map_or(Some(1), Value::as_u64);
        Ok(LoraConfig {
            lora_alpha: fields.number("lora_alpha")?,
            dropout: fields.number_or("lora_dropout", 0.0)?,
            targets: fields.targets()?,
            rank: fields.positive("r")?,
            rslora: fields.flag("use_rslora")?,
            lora_plus_ratio: 1.0,
            init: if loftq.is_some() { LoraInit::Loftq } else { LoraInit::Zero },
            loftq_iter: rounds
                .and_then(|rounds| usize::try_from(rounds).ok())
                .ok_or_else(|| fields.fail("loftq_iter of loftq_config is not a whole number"))?,
        })
    }
}

/// What marks a `loftq_config` as written here. PEFT leaves one behind in adapters that are plain LoRA: what it quantised is in the weights
/// that it was trained on.
const OWN_LOFTQ: &str = "of_stored_weights";

/// Earlier versions had no mark, and always `use_dora`; PEFT writes that since 0.9, and `layer_replication` since 0.10.
fn is_of_earlier_version(fields: &Fields<'_>, config: &Table) -> bool {
    !config.is_empty()
        && fields.get("use_dora") == Some(&Value::Bool(false))
        && fields.get("layer_replication").is_none()
}

/// The fields that PEFT's configurations of low rank have in common.
pub(crate) fn low_rank_fields(rank: usize, alpha: f64, dropout: f64) -> Table {
    let Value::Object(fields) = json!({
        "r": rank,
        "lora_alpha": number(alpha),
        "lora_dropout": dropout,
        "bias": "none",
        "init_lora_weights": true,
        "layers_pattern": null,
        "layers_to_transform": null,
        "alpha_pattern": {},
        "rank_pattern": {},
        "megatron_config": null,
        "megatron_core": "megatron.core",
        "loftq_config": {},
        "use_dora": false,
        "use_rslora": false,
    }) else {
        return Table::new();
    };
    fields
}

/// The low-rank update of one projection. Cloning shares the parameters.
#[derive(Clone)]
pub struct Lora {
    path: String,
    scale: f64,
    dropout: f64,
    a: Parameter,
    b: Parameter,
    init: LoraInit,
    random: Random,
    /// PiSSA: `A0` and `-B0`, frozen. Not among the factors of a file, which are of twice the rank.
    start: Option<[Parameter; 2]>,
    /// LoftQ of several rounds: the quantised weight, and what it was made with.
    own: Option<loftq::Own>,
    rounds: usize,
}

impl LinearKind for Lora {
    const KIND: &'static str = "lora";
    const ABOUT: &'static str = "Low-rank updates of projections (Hu et al., 2021), and rsLoRA.";
    const SIZE: Option<&'static str> = Some("rank");
    const REQUIRED: &'static [&'static str] = &["rank"];
    const PEFT_TYPE: &'static str = "LORA";
    type Settings = LoraConfig;

    fn keys() -> Vec<Key> {
        LoraConfig::keys()
    }

    fn defaults(given: &Table, context: &Context<'_>) -> LoraConfig {
        LoraConfig::defaults(given, context.placement)
    }

    fn targets(settings: &LoraConfig) -> &[String] {
        &settings.targets
    }

    fn check(settings: &LoraConfig) -> std::result::Result<(), SettingsError> {
        settings.check()
    }

    fn new(settings: &LoraConfig, context: &LinearContext<'_>) -> Result<Self> {
        let (rank, site) = (settings.rank, context.site);
        let bound = 1.0 / (site.inputs as f64).sqrt();
        let random = context.random("lora_A");
        let a = (0..(rank * site.inputs) as u64).map(|i| (bound * (2.0 * random.uniform(i) - 1.0)) as f32);
        let a = Tensor::from_vec(a.collect(), [rank, site.inputs])?;
        let b = Tensor::zeros::<f32>([site.outputs, rank]);
        Ok(Lora {
            path: context.path().to_owned(),
            scale: settings.scale(),
            dropout: settings.dropout,
            a: context.parameter("lora_A.weight", Role::Matrix, &a)?,
            b: context.parameter("lora_B.weight", Role::Matrix, &b)?.with_rate(settings.lora_plus_ratio),
            init: settings.init,
            random: context.random("principal"),
            start: (settings.init == LoraInit::Pissa).then(|| start::parameters(context, rank)),
            own: loftq::Own::new(settings, context),
            rounds: settings.loftq_iter,
        })
    }

    fn count(settings: &LoraConfig, _: usize, site: &LinearSite) -> usize {
        settings.rank * (site.inputs + site.outputs)
    }

    fn describe(settings: &LoraConfig) -> String {
        settings.describe()
    }

    fn write_peft(settings: &LoraConfig) -> Table {
        settings.write_peft(false)
    }

    fn read_peft(fields: &Fields<'_>) -> weights::Result<LoraConfig> {
        LoraConfig::read_peft(fields)
    }

    fn owns(file: &Table) -> bool {
        file.get("use_dora") != Some(&Value::Bool(true))
    }

    fn check_arrays(settings: &LoraConfig, arrays: &NamedArrays) -> std::result::Result<(), String> {
        check_rank_of(arrays, settings.rank)?;
        let rounds = settings.loftq_iter;
        if rounds == 1 || arrays.keys().any(|name| name.contains(".loftq_A")) {
            return Ok(());
        }
        Err(format!(
            "it was made by {rounds} rounds of LoftQ (loftq_config), and has no tensor loftq_A: the weights that it was trained on \
             cannot be made again from the model's: take what it was merged into"
        ))
    }

    fn training(settings: &LoraConfig, adapters: Vec<Arc<Self>>) -> Option<Arc<dyn SharedTraining>> {
        match settings.init {
            LoraInit::Pissa => Some(Arc::new(Starts::new(settings, adapters))),
            LoraInit::Loftq if settings.loftq_iter > 1 => Some(Arc::new(Rounds(adapters))),
            _ => None,
        }
    }
}

impl LinearAdapter for Lora {
    fn path(&self) -> &str {
        &self.path
    }

    fn parameters(&self) -> Vec<Parameter> {
        let own = self.own.iter().flat_map(loftq::Own::parameters);
        [&self.a, &self.b].into_iter().chain(self.start.iter().flatten()).chain(own).cloned().collect()
    }

    fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = match &self.own {
            None => layer.plain(base, x)?,
            Some(own) => layer.with_weight(&own.weight(x.device())?).plain(base, x)?,
        };
        self.add_onto(&y, self.dropped(x, pass)?.as_ref().unwrap_or(x))
    }

    fn weight_change(&self) -> Result<WeightChange> {
        let [a, b] = self.factors()?;
        let change = WeightChange::low_rank(self.scale, &a, &b);
        let taken = self.own.as_ref().map(|own| own.taken(self.scale));
        Ok(WeightChange { of_nf4: self.init == LoraInit::Loftq, taken, ..change })
    }

    fn rank(&self) -> Option<usize> {
        Some(self.a.tensor().shape()[0])
    }

    fn saved_per_token(&self) -> usize {
        let rank = self.a.tensor().shape()[0];
        if self.start.is_some() { 2 * rank } else { rank }
    }

    fn needs_weight(&self) -> bool {
        self.init != LoraInit::Zero
    }

    fn needs_nf4(&self) -> bool {
        self.init == LoraInit::Loftq
    }

    fn held_bytes(&self) -> usize {
        self.own.as_ref().map_or(0, loftq::Own::bytes)
    }

    /// Sets the factors to the principal part of the weight, or of what it lost by quantising.
    fn start_at(&self, weight: &Tensor, stored: &StoredWeight<'_>) -> Result<()> {
        if self.init == LoraInit::Loftq {
            return self.start_loftq(stored()?, self.rounds);
        }
        let &[outputs, inputs] = &weight.shape()[..] else {
            return Err(Error::shape("lora", format!("{} has shape {}", self.path, weight.shape())));
        };
        let rank = self.a.tensor().shape()[0];
        let [a, b] = principal((&start::decoded(weight)?, outputs, inputs), rank, self.scale, self.random)?;
        self.a.set(&a)?;
        self.b.set(&b)?;
        self.start.as_ref().map_or(Ok(()), |start| start::set(start, &a, &b))
    }

    fn complete(&self, stored: &StoredWeight<'_>) -> Result<()> {
        self.own.as_ref().map_or(Ok(()), |own| own.complete(&self.path, self.scale, stored))
    }
}

impl Lora {
    /// `y + s B A x`.
    pub(super) fn add_onto(&self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        let [a, b] = self.factors()?;
        add_linear(y, &linear(x, &a, None)?, &b, None, Gate::Fixed(self.scale))
    }

    pub(super) fn dropped(&self, x: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        dropped(x, self.dropout, &self.path, pass)
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// `A` `[rank, in]` and `B` `[out, rank]` of the update; of twice the rank for PiSSA: `[A; A0]` and `[B, -B0]`.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn factors(&self) -> Result<[Tensor; 2]> {
        let (a, b) = (self.a.tensor(), self.b.tensor());
        let Some([a0, b0]) = &self.start else { return Ok([a, b]) };
        let (rank, inputs, outputs) = (a.shape()[0], a.shape()[1], b.shape()[0]);
        let [rows, columns] = [[1, rank, inputs], [outputs, rank, 1]];
        let a = concat_time(&[&a.reshape(rows)?, &a0.tensor().reshape(rows)?])?.reshape([2 * rank, inputs])?;
        let b = concat_time(&[&b.reshape(columns)?, &b0.tensor().reshape(columns)?])?.reshape([outputs, 2 * rank])?;
        Ok([a, b])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_of_0_is_for_the_plain_start() {
        for init in [LoraInit::Zero, LoraInit::Pissa, LoraInit::Loftq] {
            let settings = LoraConfig { lora_alpha: 0.0, init, ..LoraConfig::new(2) };
            let refused = settings.check().err().map(|error| error.key);
            assert_eq!(refused.as_deref(), (init != LoraInit::Zero).then_some("lora_alpha"), "{init:?}");
        }
    }
}
