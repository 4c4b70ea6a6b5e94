//! LoRA-FA (Zhang et al., 2023) as a linear kind made outside of `hankel-models`: `y = W x + B A x`, `A` random and frozen, `B`
//! trained from 0. It is here to show what a kind of projections takes: this file and the line that registers it. The tests of
//! `adapters.rs` hold it to what every kind is held to.

use hankel_core::{Result, Tensor};
use hankel_models::adapters::linear::peft::Fields;
use hankel_models::adapters::linear::{LinearAdapter, LinearContext, LinearKind, WeightChange};
use hankel_models::adapters::{Context, LinearSite, kind, register_linear};
use hankel_models::linear::Linear;
use hankel_models::settings::{Key, SettingsError, Table};
use hankel_models::{AdapterSet, Backbone, Parameter, Pass, Role, TinyGpt, TinyGptConfig, weights};
use hankel_ops::{Gate, add_linear, linear};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub rank: usize,
    pub targets: Vec<String>,
}

pub struct LoraFa {
    path: String,
    a: Parameter,
    b: Parameter,
}

impl LinearKind for LoraFa {
    const KIND: &'static str = "lora-fa";
    const ABOUT: &'static str = "LoRA whose A is frozen (Zhang et al., 2023).";
    const SIZE: Option<&'static str> = Some("rank");
    const REQUIRED: &'static [&'static str] = &["rank"];
    const PEFT_TYPE: &'static str = "LORA_FA";
    type Settings = Settings;

    fn keys() -> Vec<Key> {
        vec![
            Key::new("rank", "", "Rank of the update."),
            Key::new("targets", "`[\"q_proj\"]`", "Projections that get one."),
        ]
    }

    fn defaults(given: &Table, _: &Context<'_>) -> Settings {
        let rank = given.get("rank").and_then(Value::as_u64).unwrap_or(1) as usize;
        Settings { rank, targets: vec!["q_proj".to_owned()] }
    }

    fn targets(settings: &Settings) -> &[String] {
        &settings.targets
    }

    fn check(settings: &Settings) -> std::result::Result<(), SettingsError> {
        SettingsError::unless(settings.rank >= 1, "rank", || "must be at least 1".to_owned())
    }

    fn new(settings: &Settings, context: &LinearContext<'_>) -> Result<Self> {
        let [rank, inputs, outputs] = [settings.rank, context.site.inputs, context.site.outputs];
        let random = context.random("lora_A");
        let bound = 1.0 / (inputs as f64).sqrt();
        let a = (0..(rank * inputs) as u64).map(|i| (bound * random.normal(i)) as f32).collect();
        let a = context.parameter("lora_A.weight", Role::Matrix, &Tensor::from_vec(a, [rank, inputs])?)?;
        a.set_trainable(false)?;
        let b = context.parameter("lora_B.weight", Role::Matrix, &Tensor::zeros::<f32>([outputs, rank]))?;
        Ok(LoraFa { path: context.path().to_owned(), a, b })
    }

    fn count(settings: &Settings, _: usize, site: &LinearSite) -> usize {
        settings.rank * site.outputs
    }

    fn describe(settings: &Settings) -> String {
        format!("r = {}", settings.rank)
    }

    fn write_peft(settings: &Settings) -> Table {
        [("r".to_owned(), json!(settings.rank))].into_iter().collect()
    }

    fn read_peft(fields: &Fields<'_>) -> weights::Result<Settings> {
        fields.refuse_others(&["r"])?;
        Ok(Settings { rank: fields.positive("r")?, targets: fields.targets()? })
    }
}

impl LinearAdapter for LoraFa {
    fn path(&self) -> &str {
        &self.path
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![self.a.clone(), self.b.clone()]
    }

    fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, _: &Pass) -> Result<Tensor> {
        let low = linear(x, &self.a.tensor(), None)?;
        add_linear(&layer.plain(base, x)?, &low, &self.b.tensor(), None, Gate::Fixed(1.0))
    }

    fn weight_change(&self) -> Result<WeightChange> {
        Ok(WeightChange::low_rank(1.0, &self.a.tensor(), &self.b.tensor()))
    }
}

/// A configuration's table to an adapter of a parameter budget, to its directory, and back.
#[test]
fn a_line_makes_it_a_kind_among_the_others() {
    register_linear::<LoraFa>().unwrap();
    let model =
        TinyGpt::new(&TinyGptConfig { layers: 2, d_model: 12, heads: 3, ..TinyGptConfig::default() }, 1).unwrap();
    let placement = model.placement();
    let context = Context { placement: &placement, length: 8, steps: None, pretrained: false };
    let given: Table = [("rank".to_owned(), json!(1))].into_iter().collect();
    let config = kind("lora-fa").unwrap().configure(&given, &context).unwrap();
    let budget = config.solve_budget(&placement, 2 * 12 * 5).unwrap();
    assert_eq!((budget.key, budget.size, budget.parameters), ("rank", 5, 120));

    let adapters = AdapterSet::new(&budget.config, &placement, 0).unwrap();
    let trainable = |set: &AdapterSet| -> usize {
        set.parameters().iter().filter(|parameter| parameter.is_trainable()).map(Parameter::elements).sum()
    };
    assert_eq!(trainable(&adapters), 120);
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("adapter");
    adapters.save(&directory, None).unwrap();
    let loaded = AdapterSet::load(&directory, &placement, 8).unwrap();
    assert_eq!(loaded.config().unwrap().settings(), adapters.config().unwrap().settings());
    assert_eq!(trainable(&loaded), 120);
    for (saved, read) in adapters.parameters().iter().zip(loaded.parameters()) {
        assert_eq!((saved.name(), saved.tensor().to_f64_vec()), (read.name(), read.tensor().to_f64_vec()));
    }
}
