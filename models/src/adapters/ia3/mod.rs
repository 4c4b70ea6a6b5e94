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
use super::placement::{ALL_LINEAR, LinearSite, matches};
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
        /// Those of `targets` whose input is scaled instead of their output.
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

fn is_among(targets: &[String], name: &str) -> bool {
    targets.iter().any(|target| matches(target, name) || matches(name, target))
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

    fn defaults(given: &Table, context: &Context<'_>) -> Ia3Config {
        let usual = |names: &[&str]| context.placement.usual(names);
        let (targets, mut feedforward) = (usual(&["k_proj", "v_proj", "down_proj"]), usual(&["down_proj"]));
        // Of the targets that are asked for.
        if let Some(targets) = given.get("targets") {
            let targets: Vec<String> = one_or_many(targets).unwrap_or_default();
            feedforward.retain(|name| is_among(&targets, name));
        }
        Ia3Config { targets, feedforward }
    }

    fn targets(settings: &Ia3Config) -> &[String] {
        &settings.targets
    }

    fn check(settings: &Ia3Config) -> std::result::Result<(), SettingsError> {
        let other = settings.feedforward.iter().find(|name| !is_among(&settings.targets, name));
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

    /// PEFT asks for names in `feedforward_modules` that `target_modules` has, too, and takes `all-linear` for all projections in
    /// `target_modules` only. What it would refuse, or take for something else, is written as paths.
    fn fit_peft(settings: &Ia3Config, paths: &[&str], fields: &mut Table) {
        let Ia3Config { targets, feedforward } = settings;
        let has_all = |names: &[String]| names.iter().any(|name| name == ALL_LINEAR);
        let everywhere = has_all(targets);
        let are_among = everywhere || feedforward.iter().all(|name| targets.contains(name));
        if are_among && !has_all(feedforward) {
            return;
        }
        let scaled: Vec<&str> = paths.iter().copied().filter(|path| settings.scales_input(path)).collect();
        fields.insert("feedforward_modules".to_owned(), json!(scaled));
        if !everywhere {
            fields.insert("target_modules".to_owned(), json!(paths));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{AdapterConfig, AdapterSet, Placement};
    use serde_json::Value;

    fn placement() -> Placement {
        let site = |(name, module, sizes)| LinearSite::new(name, module, sizes);
        let linear = [("k_proj", "self_attn", [4, 2]), ("v_proj", "self_attn", [4, 2]), ("down_proj", "mlp", [6, 4])];
        Placement { layers: 2, d_model: 4, linear: linear.map(site).into(), stream: Vec::new() }
    }

    /// `target_modules` and `feedforward_modules` of what is saved, which reads back as what it was.
    fn saved(targets: &[&str], feedforward: &[&str]) -> [Value; 2] {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let config = Ia3Config { targets: names(targets), feedforward: names(feedforward) };
        Ia3::check(&config).unwrap();
        let set = AdapterSet::new(&AdapterConfig::linear::<Ia3>(&config), &placement(), 0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapter");
        set.save(&path, None).unwrap();
        let loaded = AdapterSet::load(&path, &placement(), 8).unwrap();
        let scaled = |set: &AdapterSet| -> Vec<(String, bool)> {
            let one = |(path, adapter): (&str, &dyn LinearAdapter)| {
                (path.to_owned(), adapter.downcast_ref::<Ia3>().unwrap().feedforward)
            };
            set.linears().map(one).collect()
        };
        assert_eq!(scaled(&loaded), scaled(&set), "{targets:?} {feedforward:?}");
        let file = std::fs::read(path.join("adapter_config.json")).unwrap();
        let mut file: Table = serde_json::from_slice(&file).unwrap();
        ["target_modules", "feedforward_modules"].map(|key| file.remove(key).unwrap())
    }

    /// PEFT refuses a list of `feedforward_modules` that is not among the list `target_modules`, name by name.
    #[test]
    fn peft_is_given_names_that_it_takes() {
        let is_taken = |[targets, feedforward]: &[Value; 2]| {
            let names = feedforward.as_array().unwrap();
            targets.as_array().is_none_or(|targets| names.iter().all(|name| targets.contains(name)))
        };
        let usual = ["k_proj", "v_proj", "down_proj"];
        assert_eq!(saved(&usual, &["down_proj"]), [json!(usual), json!(["down_proj"])]);
        assert_eq!(saved(&["all-linear"], &["down_proj"]), [json!("all-linear"), json!(["down_proj"])]);
        let down = ["model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"];
        for (targets, feedforward, scaled) in [
            (&usual[..], &["mlp.down_proj"][..], &down[..]),
            (&["k_proj", "mlp.down_proj"], &["down_proj"], &down),
            (&usual, &["layers.1.mlp.down_proj"], &down[1..]),
            (&["down_proj"], &["all-linear"], &down),
        ] {
            let found = saved(targets, feedforward);
            assert!(is_taken(&found), "{found:?}");
            assert_eq!(found[1], json!(scaled));
        }
        // To PEFT that is the name of a module among these.
        let [targets, feedforward] = saved(&["all-linear"], &["all-linear"]);
        assert_eq!((targets, feedforward.as_array().unwrap().len()), (json!("all-linear"), 6));
    }
}
