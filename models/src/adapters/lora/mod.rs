//! Low-rank adaptation (Hu et al., 2021): `y = W x + s B A drop(x)`, `s = lora_alpha / rank`; with rsLoRA
//! (Kalajdzievski, 2023) `s = lora_alpha / sqrt(rank)`, so that the update keeps its size as the rank grows.
//!
//! `A` `[rank, in]`, `B` `[out, rank]`. `B` starts at zero, so the model starts unchanged; `A` is uniform in
//! `+- 1/sqrt(in)`, as PEFT draws it. The update is added in the pass that reads the projection's output.

use super::kind::Context;
use super::linear::low_rank::{check_rank, check_rank_of, check_scale_and_dropout, default_targets, dropped};
use super::linear::peft::{Fields, number};
use super::linear::{LinearAdapter, LinearContext, LinearKind, WeightChange};
use super::placement::LinearSite;
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use crate::settings::{Key, SettingsError, Table, one_or_many, settings};
use crate::weights;
use crate::weights::arrays::NamedArrays;
use hankel_core::{Result, Tensor};
use hankel_ops::{Gate, add_linear, linear};
use serde_json::{Value, json};

settings! {
    /// Settings of LoRA, rsLoRA and DoRA.
    pub struct LoraConfig {
        /// Rank r of the update.
        pub rank: usize = "",
        /// Scale of the update, divided by the rank.
        pub lora_alpha: f64 = "the rank, a scale of 1",
        /// Probability of dropout on the input of the update, while training.
        pub dropout: f64 = "0",
        /// Projections that get an update.
        #[serde(deserialize_with = "one_or_many")]
        pub targets: Vec<String> = r#"`["q_proj", "v_proj"]`"#,
        /// Divide the scale by the root of the rank instead (rsLoRA).
        pub rslora: bool = "false",
        /// Learning rate of B, and of DoRA's magnitudes, over that of A (LoRA+; Hayou et al., 2024, advise about 16).
        pub lora_plus_ratio: f64 = "1",
    }
}

impl LoraConfig {
    /// Rank `rank` on the query and value projections with a scale of 1.
    pub fn new(rank: usize) -> Self {
        LoraConfig {
            rank,
            lora_alpha: rank as f64,
            dropout: 0.0,
            targets: default_targets(),
            rslora: false,
            lora_plus_ratio: 1.0,
        }
    }

    /// Defaults for a rank that is `given`, or not yet known.
    pub(crate) fn defaults(given: &Table) -> Self {
        Self::new(given.get("rank").and_then(Value::as_u64).and_then(|rank| usize::try_from(rank).ok()).unwrap_or(1))
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.lora_alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    pub(crate) fn check(&self) -> std::result::Result<(), SettingsError> {
        check_rank("rank", self.rank)?;
        check_scale_and_dropout(self.lora_alpha, self.dropout)?;
        let ratio = self.lora_plus_ratio;
        SettingsError::unless(ratio > 0.0 && ratio.is_finite(), "lora_plus_ratio", || {
            format!("must be above 0, found {ratio}; 1 trains A and B with the same learning rate")
        })
    }

    /// The settings in a few words.
    pub(crate) fn describe(&self) -> String {
        format!("r = {}, {}", self.rank, self.targets.join(" + "))
    }

    /// As PEFT has them; `dora` for its extension.
    pub(crate) fn write_peft(&self, dora: bool) -> Table {
        let mut fields = low_rank_fields(self.rank, self.lora_alpha, self.dropout);
        fields.insert("use_dora".into(), json!(dora));
        fields.insert("use_rslora".into(), json!(self.rslora));
        fields
    }

    pub(crate) fn read_peft(fields: &Fields<'_>) -> weights::Result<Self> {
        const KNOWN: &[&str] =
            &["r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "init_lora_weights", "bias"];
        fields.refuse_others(KNOWN)?;
        fields.check_bias_and_initialization()?;
        Ok(LoraConfig {
            lora_alpha: fields.number("lora_alpha")?,
            dropout: fields.number("lora_dropout")?,
            targets: fields.targets()?,
            rank: fields.positive("r")?,
            rslora: fields.flag("use_rslora")?,
            lora_plus_ratio: 1.0,
        })
    }
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

    fn defaults(given: &Table, _: &Context<'_>) -> LoraConfig {
        LoraConfig::defaults(given)
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
        check_rank_of(arrays, settings.rank)
    }
}

impl LinearAdapter for Lora {
    fn path(&self) -> &str {
        &self.path
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![self.a.clone(), self.b.clone()]
    }

    fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = layer.plain(base, x)?;
        self.add_onto(&y, self.dropped(x, pass)?.as_ref().unwrap_or(x))
    }

    fn weight_change(&self) -> Result<WeightChange> {
        Ok(WeightChange::low_rank(self.scale, &self.a.tensor(), &self.b.tensor()))
    }

    fn rank(&self) -> Option<usize> {
        Some(self.a.tensor().shape()[0])
    }

    fn saved_per_token(&self) -> usize {
        self.a.tensor().shape()[0]
    }
}

impl Lora {
    /// `y + s B A x`.
    pub(super) fn add_onto(&self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        add_linear(y, &linear(x, &self.a.tensor(), None)?, &self.b.tensor(), None, Gate::Fixed(self.scale))
    }

    pub(super) fn dropped(&self, x: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        dropped(x, self.dropout, &self.path, pass)
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// `A` `[rank, in]` and `B` `[out, rank]`.
    pub fn factors(&self) -> [Tensor; 2] {
        [self.a.tensor(), self.b.tensor()]
    }
}
