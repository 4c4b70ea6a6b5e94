//! The JSON schema of configurations (draft 2020-12): from the types that they are read into, with their documentation and
//! defaults, and from the keys that the kinds of adapters declare. Editors complete and check TOML with it.
//!
//! Nothing but the `kind` of an adapter is required, since `--set` and the grid of a sweep may give what a file leaves out.

use super::probe::{ExactnessConfig, ProbeConfig};
use super::truncation::{Timing, TruncateConfig};
use super::{AdapterConfig, Config, DecoderConfig, PlanText, Precision, TinyGptConfig, TrainConfig, backbone, method};
use crate::settings::schema::{Object, properties, table};
use crate::tasks::TaskConfig;
use hankel_models::TinyGptConfig as TinyGptSettings;
use hankel_models::adapters::{Context, Kind, kind};
use hankel_models::settings::Key;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The schema of a configuration file, also of one with a `[sweep]`.
pub fn schema() -> Value {
    let mut root = table::<Config>();
    root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".into(), json!("Configuration of `train fit` and `train sweep`"));
    let properties = properties(&mut root);
    let described = |properties: &mut Object, key: &str, value: Value| {
        let entry = properties.entry(key).or_insert_with(|| json!({}));
        let about = entry.get("description").cloned();
        *entry = value;
        if let Some(about) = about {
            entry["description"] = about;
        }
    };
    // The grid of a sweep may give the kind.
    let tasks: Vec<Value> = tasks().into_iter().map(|(kinds, task)| tagged(task, &kinds, false)).collect();
    let mut pretrain = table::<TrainConfig>();
    self::properties(&mut pretrain).insert(
        "task".into(),
        json!({
            "description": "Another task of the same vocabulary; keys left out are those of [task].",
            "anyOf": tasks,
        }),
    );
    described(properties, "task", json!({ "anyOf": tasks }));
    described(properties, "forgetting", json!({ "anyOf": tasks }));
    let (tiny, decoders) = backbone::KINDS.split_at(1);
    let backbones = [tagged(tiny_gpt(), tiny, false), tagged(table::<DecoderConfig>(), decoders, true)];
    described(properties, "backbone", json!({ "oneOf": backbones }));
    described(properties, "pretrain", pretrain.into());
    described(properties, "train", json!({ "$ref": "#/$defs/train" }));
    let adapters: Vec<Value> = method::names().into_iter().map(adapter).collect();
    described(properties, "adapter", json!({ "type": "array", "items": { "type": "object", "oneOf": adapters } }));
    properties.insert("sweep".into(), json!({
        "description": "A grid of configurations, for `train sweep`.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "scale": { "type": "string", "description": "The scale that is taken unless --set scale=... says otherwise." },
            "grid": { "type": "object", "description": "Keys, or names of axes, and their values.", "additionalProperties": { "type": "array" } },
            "scales": { "type": "object", "description": "Keys or axes that a scale changes, by its name; `only`: names of the adapters that it has.", "additionalProperties": { "type": "object" } },
        },
    }));
    let mut plan = table::<PlanText>();
    plan.insert("description".into(), json!("What was decided before the results of a sweep, in words."));
    properties.insert("plan".into(), plan.into());
    let mut reduce = table::<Timing>();
    self::properties(&mut reduce).extend(std::mem::take(self::properties(&mut table::<TruncateConfig>())));
    root.insert(
        "$defs".into(),
        json!({
            "train": table::<TrainConfig>(),
            "truncate": table::<TruncateConfig>(),
            "reduce": reduce,
            "probe": table::<ProbeConfig>(),
            "exactness": table::<ExactnessConfig>(),
        }),
    );
    root.into()
}

/// Something that [`schema`] puts in place.
pub fn elsewhere(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}

/// A precision, or the word that leaves it to the device.
pub fn precision(generator: &mut SchemaGenerator) -> Schema {
    let named = generator.subschema_for::<Precision>();
    json_schema!({ "anyOf": [named, { "const": "auto", "description": "The fastest that the device has." }] })
}

/// `[backbone]` of a `TinyGPT`: what the model's settings default to depends on its files.
fn tiny_gpt() -> Object {
    let (mut own, mut model) = (table::<TinyGptConfig>(), table::<TinyGptSettings>());
    for key in TinyGptConfig::model_keys() {
        if let Some(Value::Object(mut setting)) = properties(&mut model).remove(key) {
            setting.remove("default");
            properties(&mut own).insert(key.to_owned(), setting.into());
        }
    }
    own
}

/// The schema of a table of one of `kinds`.
fn tagged(mut table: Object, kinds: &[&str], required: bool) -> Value {
    properties(&mut table).insert("kind".into(), json!({ "enum": kinds }));
    table.insert("type".into(), json!("object"));
    if required {
        table.insert("required".into(), json!(["kind"]));
    }
    table.into()
}

/// The kinds of tasks that have the same keys, and their table.
fn tasks() -> Vec<(Vec<&'static str>, Object)> {
    TaskConfig::schemas(|task, common| {
        let mut table = table_of(task);
        if let Some(common) = common {
            properties(&mut table).extend(std::mem::take(properties(&mut table_of(common))));
        }
        table
    })
}

fn table_of(make: fn() -> Value) -> Object {
    match make() {
        Value::Object(table) => table,
        _ => Object::new(),
    }
}

/// One `[[adapter]]` of a kind.
fn adapter(name: &'static str) -> Value {
    let mut table = table::<AdapterConfig>();
    let own = properties(&mut table);
    let put = |own: &mut Object, key: &str, schema: Value| {
        let about = own.get(key).and_then(|entry| entry.get("description")).cloned();
        own.insert(key.to_owned(), schema);
        if let Some(about) = about {
            own[key]["description"] = about;
        }
    };
    for key in ["train", "reduce", "exactness"] {
        put(own, key, json!({ "$ref": format!("#/$defs/{key}") }));
    }
    for key in ["truncate", "probe"] {
        let one = json!({ "$ref": format!("#/$defs/{key}") });
        put(own, key, json!({ "anyOf": [one, { "type": "array", "items": one }] }));
    }
    if let Some(kind) = kind(name) {
        for key in kind.keys() {
            own.insert(key.name.clone(), setting(kind, &key));
        }
        if let Some(size) = kind.size() {
            let about = format!("Number of parameters, for which `{size}` is solved.");
            own.insert("budget".into(), json!({ "type": "integer", "minimum": 0, "description": about }));
        }
        table.insert("description".into(), kind.about().into());
    }
    tagged(table, &[name], true)
}

/// The schema of a setting of an adapter: what its kind takes is tried.
fn setting(kind: Kind, key: &Key) -> Value {
    let placement = TinyGptSettings::default().placement();
    let context = Context { placement: &placement, length: 2, steps: None, pretrained: false };
    let refused = |value: Value| {
        kind.check_types(&Object::from_iter([(key.name.clone(), value)]), &context).err().map(|error| error.problem)
    };
    let takes = |value: Value| refused(value).is_none();
    let text = |problem: Option<String>| match problem {
        None => Some(json!({ "type": "string" })),
        Some(problem) => problem.starts_with("must be `").then(|| {
            let known = problem.split(", found").next().unwrap_or_default();
            json!({ "enum": known.split('`').skip(1).step_by(2).collect::<Vec<_>>() })
        }),
    };
    let mut choices = Vec::new();
    if takes(json!(true)) {
        choices.push(json!({ "type": "boolean" }));
    }
    if takes(json!(0.5)) {
        choices.push(json!({ "type": "number" }));
    } else if takes(json!(1)) {
        choices.push(json!({ "type": "integer", "minimum": 0 }));
    }
    choices.extend(text(refused(json!("?"))).filter(|_| !takes(json!(true))));
    if takes(json!([])) {
        choices.push(json!({ "type": "array", "items": text(refused(json!(["?"]))) }));
    }
    let mut schema = match &mut choices[..] {
        [only] => std::mem::take(only),
        _ => json!({ "anyOf": choices }),
    };
    let default = if key.default.is_empty() { String::new() } else { format!(" Default: {}.", key.default) };
    schema["description"] = format!("{}{default}", key.meaning).into();
    // Defaults that are one value whatever the model, written as TOML.
    let written = key.default.trim_matches('`');
    if let Ok(document) = toml::from_str::<toml::Table>(&format!("value = {written}"))
        && let Ok(value) = serde_json::to_value(&document["value"])
    {
        schema["default"] = value;
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::assert_documented;
    use hankel_models::adapters::kinds;
    use std::collections::BTreeSet;

    /// The names of all properties in a schema.
    fn all_keys(schema: &Value, keys: &mut BTreeSet<String>) {
        match schema {
            Value::Array(items) => items.iter().for_each(|item| all_keys(item, keys)),
            Value::Object(object) => {
                if let Some(Value::Object(properties)) = object.get("properties") {
                    keys.extend(properties.keys().cloned());
                }
                object.values().for_each(|value| all_keys(value, keys));
            }
            _ => {}
        }
    }

    #[test]
    fn the_schema_and_the_documentation_have_the_same_keys() {
        let mut keys = BTreeSet::new();
        all_keys(&schema(), &mut keys);
        // Those of `[sweep]` and `[plan]` are in docs/sweeps.md; those of `max_window` and `roles` in the rows of these.
        let of_plans = crate::settings::documented::keys::<PlanText>();
        let of_sweeps: Vec<&str> =
            ["scale", "grid", "scales", "plan"].into_iter().chain(of_plans.iter().map(String::as_str)).collect();
        let wanted = keys.iter().filter(|key| !of_sweeps.contains(&key.as_str())).cloned().collect();
        assert_documented(&[wanted], &[]);
        let page = include_str!("../../../../docs/configuration.md");
        let mut rows = 0;
        for line in page.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = line.split('|').collect();
            // In the table of tasks the first column is the kind.
            let cell = if page.contains("| `kind` | further keys |") && cells.len() == 6 { cells[2] } else { cells[1] };
            for key in
                cell.split('`').skip(1).step_by(2).filter(|key| !key.starts_with('"') && !key.contains(['=', ' ']))
            {
                assert!(keys.contains(key), "the schema has no `{key}`, which docs/configuration.md has: {line}");
                rows += 1;
            }
        }
        assert!(rows > 100, "{rows} keys were found in the tables");
    }

    #[test]
    fn kinds_have_their_own_keys_with_types_and_defaults() {
        let schema = schema();
        let adapters = schema["properties"]["adapter"]["items"]["oneOf"].as_array().unwrap();
        assert_eq!(adapters.len(), kinds().len() + 2);
        let of = |kind: &str| {
            adapters.iter().find(|adapter| adapter["properties"]["kind"]["enum"] == json!([kind])).unwrap()
        };
        let hrm = &of("hrm")["properties"];
        assert_eq!(hrm["state_dim"]["type"], "integer");
        assert_eq!(hrm["mode"]["enum"], json!(["positive", "signed", "complex"]));
        assert_eq!((&hrm["a_min"]["type"], &hrm["a_min"]["default"]), (&json!("number"), &json!(0.5)));
        assert_eq!(hrm["train_gate"]["default"], true);
        let sites = hrm["sites"]["anyOf"].as_array().unwrap();
        assert!(sites.iter().any(|choice| choice["items"]["enum"] == json!(["attention", "mlp"])), "{sites:?}");
        assert!(of("lora")["properties"].get("state_dim").is_none() && of("full")["properties"].get("rank").is_none());
        let train = &schema["$defs"]["train"]["properties"];
        assert_eq!(
            (&train["lr"]["default"], &train["lr"]["description"]),
            (&json!(3e-3), &json!("Peak learning rate."))
        );
        let names = |key: &str| -> Vec<&str> {
            train[key]["oneOf"].as_array().unwrap().iter().map(|choice| choice["const"].as_str().unwrap()).collect()
        };
        assert_eq!((names("schedule"), names("keep")), (vec!["cosine", "linear", "constant"], vec!["best", "last"]));
        let text = schema.to_string();
        assert!(!text.contains("null"), "TOML has no null");
        assert_eq!(schema["additionalProperties"], false);
    }
}
