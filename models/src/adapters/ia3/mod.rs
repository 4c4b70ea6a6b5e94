//! IA3 (Liu et al., 2022): learned scales, and nothing else.
//!
//! ```text
//! keys, values     y = l * (W x + b)      l [out]
//! feed-forward     y = W (l * x) + b      l [in]
//! ```
//!
//! The scales start at 1, so the model starts unchanged. In files `l` is `[out, 1]` or `[1, in]`, as PEFT has it.

use super::kind::Context;
use super::linear::peft::Fields;
use super::linear::{LinearAdapter, LinearContext, LinearKind, WeightChange, add_base};
use super::placement::{LinearSite, matches};
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use crate::settings::{Key, SettingsError, Table, one_or_many, settings};
use crate::weights;
use hankel_core::{Result, Tensor};
use hankel_ops::scale_columns;
use serde_json::json;

settings! {
    /// Settings of IA3.
    pub struct Ia3Config {
        /// Projections that get scales.
        #[serde(deserialize_with = "one_or_many")]
        pub targets: Vec<String> = r#"`["k_proj", "v_proj", "down_proj"]`"#,
        /// Those among them whose input is scaled instead of their output.
        #[serde(deserialize_with = "one_or_many")]
        pub feedforward: Vec<String> = r#"`["down_proj"]`"#,
    }
}

impl Default for Ia3Config {
    /// Keys, values and the input of the MLP's last projection.
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Ia3Config { targets: names(&["k_proj", "v_proj", "down_proj"]), feedforward: names(&["down_proj"]) }
    }
}

impl Ia3Config {
    /// Whether the input of the projection at `path` is scaled.
    pub fn scales_input(&self, path: &str) -> bool {
        self.feedforward.iter().any(|target| matches(target, path))
    }
}

/// The scales of one projection.
pub struct Ia3 {
    path: String,
    scales: Parameter,
    feedforward: bool,
}

impl LinearKind for Ia3 {
    const KIND: &'static str = "ia3";
    const ABOUT: &'static str = "Learned scales of keys, values and the MLP's inner activations (Liu et al., 2022).";
    const PEFT_TYPE: &'static str = "IA3";
    type Settings = Ia3Config;

    fn keys() -> Vec<Key> {
        Ia3Config::keys()
    }

    fn defaults(_: &Table, context: &Context<'_>) -> Ia3Config {
        let usual = |names: &[&str]| context.placement.usual(names);
        Ia3Config { targets: usual(&["k_proj", "v_proj", "down_proj"]), feedforward: usual(&["down_proj"]) }
    }

    fn targets(settings: &Ia3Config) -> &[String] {
        &settings.targets
    }

    fn check(settings: &Ia3Config) -> std::result::Result<(), SettingsError> {
        let is_target =
            |name: &str| settings.targets.iter().any(|target| matches(target, name) || matches(name, target));
        let other = settings.feedforward.iter().find(|name| !is_target(name));
        SettingsError::unless(other.is_none(), "feedforward", || {
            format!("names {:?}, which is not among `targets`", other.map_or("", String::as_str))
        })
    }

    fn new(settings: &Ia3Config, context: &LinearContext<'_>) -> Result<Self> {
        let feedforward = settings.scales_input(context.path());
        let shape = if feedforward { [1, context.site.inputs] } else { [context.site.outputs, 1] };
        let scales = context.parameter("ia3_l", Role::Vector, &Tensor::full(shape, 1.0_f32))?;
        Ok(Ia3 { path: context.path().to_owned(), scales, feedforward })
    }

    fn count(settings: &Ia3Config, layer: usize, site: &LinearSite) -> usize {
        if settings.scales_input(&site.path(layer)) { site.inputs } else { site.outputs }
    }

    fn describe(settings: &Ia3Config) -> String {
        settings.targets.join(" + ")
    }

    fn write_peft(settings: &Ia3Config) -> Table {
        let fields = [("feedforward_modules", json!(settings.feedforward)), ("init_ia3_weights", json!(true))];
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn read_peft(fields: &Fields<'_>) -> weights::Result<Ia3Config> {
        fields.refuse_others(&[])?;
        Ok(Ia3Config { feedforward: fields.feedforward()?, targets: fields.targets()? })
    }
}

impl LinearAdapter for Ia3 {
    fn path(&self) -> &str {
        &self.path
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![self.scales.clone()]
    }

    fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, _: &Pass) -> Result<Tensor> {
        let scales = self.scales.tensor().reshape([self.scales.elements()])?;
        if self.feedforward {
            layer.plain(base, &scale_columns(x, &scales, None)?)
        } else {
            add_base(base, &scale_columns(&layer.plain(None, x)?, &scales, None)?)
        }
    }

    fn weight_change(&self) -> Result<WeightChange> {
        let scales = Some(self.scales.tensor().to_f64_vec());
        Ok(if self.feedforward {
            WeightChange { columns: scales, ..WeightChange::default() }
        } else {
            WeightChange { rows: scales, ..WeightChange::default() }
        })
    }
}
