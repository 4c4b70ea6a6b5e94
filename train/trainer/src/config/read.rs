//! From the tree to [`Config`]: tables whose keys depend on their `kind`, and tables that inherit from others.

use super::backbone;
use super::method::{self, AdapterMethod, AdapterSettings};
use super::truncation::{ReduceConfig, Timing, TruncateConfig};
use super::{AdapterConfig, BackboneConfig, Config, Precision, PretrainConfig};
use crate::parallel::of_this_process;
use crate::settings::de::{read, read_value, unknown_key, variants};
use crate::settings::error::{ConfigError, alternatives, nearest};
use crate::settings::tree::{Entry, Node, Table, Value};
use crate::tasks::TaskConfig;
use hankel_core::Device;
use hankel_models::TinyGptConfig;
use hankel_models::adapters::{self, Context, Kind};
use hankel_models::settings::{self, wrong_variant};
use std::path::Path;

pub const TOP_LEVEL: &[&str] = &[
    "name",
    "seed",
    "device",
    "gpu_memory",
    "precision",
    "task",
    "backbone",
    "pretrain",
    "forgetting",
    "train",
    "adapter",
];

/// Reads the whole configuration; the run is named after `file` unless it names itself.
pub fn config(root: &Node, file: &Path) -> Result<Config, ConfigError> {
    let table = root.as_table("")?;
    if let Some(entry) = table.0.iter().find(|entry| entry.key == "sweep") {
        let message = "[sweep] describes several runs: use `train sweep`";
        return Err(ConfigError::new(Some(entry.origin.clone()), message));
    }
    if let Some(entry) = table.0.iter().find(|entry| !TOP_LEVEL.contains(&entry.key.as_str())) {
        return Err(unknown_key(&entry.key, &entry.origin, TOP_LEVEL));
    }
    let empty = Node { value: Value::Table(Table::default()), origin: root.origin.clone() };
    let task_node = table
        .get("task")
        .ok_or_else(|| ConfigError::new(None, "`task` is missing: write a [task] table").in_file(file))?;
    let train_node = table.get("train").unwrap_or(&empty);
    // Before the sections that inherit from it, so that its errors are reported under its own name.
    let train = read(train_node.as_table("train")?, &train_node.origin, "train", &[])?;
    let device: String = value(table, "device", "cpu".to_owned())?;
    // A device that cannot be opened is refused where it is used.
    let of_device =
        |which: fn(Device) -> Precision| Device::open(&of_this_process(&device)).map_or(Precision::F32, which);
    let precision = match table.get("precision") {
        Some(_) if precision_is_auto(table) => of_device(Precision::fastest),
        Some(node) => precision(node)?,
        None => of_device(Precision::suited),
    };
    Ok(Config {
        name: name(root, file)?,
        seed: value(table, "seed", 0)?,
        device,
        gpu_memory: table.get("gpu_memory").map(|node| read_value(node, "gpu_memory")).transpose()?,
        precision,
        task: task(task_node, "task")?,
        backbone: backbone(table.get("backbone").unwrap_or(&empty))?,
        pretrain: table.get("pretrain").map(|node| pretrain(node, train_node, task_node)).transpose()?,
        forgetting: table.get("forgetting").map(|node| task(node, "forgetting")).transpose()?,
        train,
        adapter: table.get("adapter").map_or(Ok(Vec::new()), |node| adapters(node, train_node))?,
    })
}

/// Whether the precision is left to the device.
pub fn precision_is_auto(table: &Table) -> bool {
    table.get("precision").is_some_and(|node| matches!(&node.value, Value::String(name) if name == "auto"))
}

/// A precision by its name.
fn precision(node: &Node) -> Result<Precision, ConfigError> {
    let names = [variants::<Precision>(), &["auto"]].concat();
    match &node.value {
        Value::String(name) if !names.contains(&name.as_str()) => {
            Err(ConfigError::new(Some(node.origin.clone()), format!("`precision` {}", wrong_variant(name, &names))))
        }
        _ => read_value(node, "precision"),
    }
}

/// The name that the configuration gives itself, or that of `file`.
pub fn name(root: &Node, file: &Path) -> Result<String, ConfigError> {
    let named = file.file_stem().map_or_else(|| "run".to_owned(), |stem| stem.to_string_lossy().into_owned());
    value(root.as_table("")?, "name", named)
}

fn value<T: serde::de::DeserializeOwned>(table: &Table, key: &str, default: T) -> Result<T, ConfigError> {
    table.get(key).map_or(Ok(default), |node| read_value(node, key))
}

/// The `kind` of a table, which must be one of `kinds`.
fn kind<'a>(node: &Node, path: &str, kinds: &[&'a str], default: Option<&'a str>) -> Result<&'a str, ConfigError> {
    let choices = alternatives(kinds);
    let Some(found) = node.as_table(path)?.get("kind") else {
        return default.ok_or_else(|| {
            ConfigError::new(Some(node.origin.clone()), format!("`{path}.kind` is missing: it is {choices}"))
        });
    };
    let refuse = |what: String| ConfigError::new(Some(found.origin.clone()), what);
    let Value::String(name) = &found.value else {
        return Err(refuse(format!("`{path}.kind` must be {choices}, found {}", found.describe())));
    };
    kinds.iter().find(|kind| *kind == name).copied().ok_or_else(|| {
        let hint = nearest(name, kinds.iter().copied());
        let hint = hint.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        refuse(format!("`{path}.kind` must be {choices}, found {name:?}{hint}"))
    })
}

fn task(node: &Node, path: &str) -> Result<TaskConfig, ConfigError> {
    TaskConfig::read(kind(node, path, &TaskConfig::kinds(), None)?, node, path)
}

fn backbone(node: &Node) -> Result<BackboneConfig, ConfigError> {
    let table = node.as_table("backbone")?;
    let kind = kind(node, "backbone", backbone::KINDS, Some("tiny_gpt")).map_err(|error| match table.get("kind") {
        Some(Node { value: Value::String(_), .. }) => ConfigError {
            message: format!("{}; models of every family in docs/models.md are `decoder`", error.message),
            ..error
        },
        _ => error,
    })?;
    Ok(match kind {
        "decoder" | "mistral" | "llama" => BackboneConfig::Decoder(read(table, &node.origin, "backbone", &["kind"])?),
        _ => BackboneConfig::TinyGpt(backbone::TinyGptConfig::read(table, &node.origin)?),
    })
}

/// `base` with the entries of `over` replacing its own. The keys of `base` for the length of the training are dropped if `over` has one of
/// them or `always` names one, and so are those for the warm-up.
fn inherited(base: &Table, over: &Table, always: &[&str]) -> Table {
    let mut base = base.clone();
    for group in [["steps", "epochs"], ["warmup_steps", "warmup_ratio"]] {
        if group.iter().any(|key| over.get(key).is_some() || always.contains(key)) {
            for key in group {
                base.remove(key);
            }
        }
    }
    base.merged_with(over)
}

fn pretrain(node: &Node, train: &Node, main_task: &Node) -> Result<PretrainConfig, ConfigError> {
    let own = node.as_table("pretrain")?;
    // Intervals in steps belong to the length they were written for.
    let mut base = train.as_table("train")?.clone();
    for key in ["log_every", "eval_every", "checkpoint_every", "warmup_steps"] {
        base.remove(key);
    }
    let table = inherited(&base, own, &["steps"]);
    let task_node = match own.get("task") {
        Some(over) => {
            let merged = merge_same_kind(main_task.as_table("task")?, over.as_table("pretrain.task")?);
            Some(Node { value: Value::Table(merged), origin: over.origin.clone() })
        }
        None => None,
    };
    Ok(PretrainConfig {
        task: task_node.map(|node| task(&node, "pretrain.task")).transpose()?,
        train: read(&table, &node.origin, "pretrain", &["task"])?,
    })
}

/// `[pretrain.task]` inherits from `[task]` unless it is of another kind.
fn merge_same_kind(base: &Table, over: &Table) -> Table {
    let name = |table: &Table| match &table.get("kind")?.value {
        Value::String(name) => Some(name.clone()),
        _ => None,
    };
    if over.get("kind").is_some() && name(over) != name(base) { over.clone() } else { base.merged_with(over) }
}

fn adapters(node: &Node, train: &Node) -> Result<Vec<AdapterConfig>, ConfigError> {
    let Value::Array(items) = &node.value else {
        let message = format!("`adapter` must be an array of tables ([[adapter]]), found {}", node.describe());
        return Err(ConfigError::new(Some(node.origin.clone()), message));
    };
    let read_one = |(index, item): (usize, &Node)| adapter(item, &format!("adapter.{}", item.label(index)), train);
    items.iter().enumerate().map(read_one).collect()
}

fn adapter(node: &Node, path: &str, train: &Node) -> Result<AdapterConfig, ConfigError> {
    let table = node.as_table(path)?;
    refuse_retired(table, path)?;
    let kind = kind(node, path, &method::names(), None)?;
    let inside = |key: &str| format!("{path}.{key}");
    let method = if let Some(kind) = adapters::kind(kind) {
        AdapterMethod::Adapter(settings_of(table, path, kind)?)
    } else {
        let unknown = table.0.iter().find(|entry| !adapters::COMMON_KEYS.contains(&entry.key.as_str()));
        if let Some(Entry { key, origin, .. }) = unknown {
            return Err(unknown_key(&inside(key), origin, adapters::COMMON_KEYS));
        }
        if let Some(budget) = table.get("budget") {
            let message = format!("`{}` is not for `kind = {kind:?}`, which has no size", inside("budget"));
            return Err(ConfigError::new(Some(budget.origin.clone()), message));
        }
        if kind == method::FULL { AdapterMethod::Full } else { AdapterMethod::None }
    };
    let own_training = |over: &Node| {
        let merged = inherited(train.as_table("train")?, over.as_table(&inside("train"))?, &[]);
        read(&merged, &over.origin, &inside("train"), &[])
    };
    Ok(AdapterConfig {
        name: table.get("name").map_or_else(|| Ok(kind.to_owned()), |name| read_value(name, &inside("name")))?,
        path: table.get("path").map(|node| read_value(node, &inside("path"))).transpose()?,
        truncate: one_or_many(table, "truncate", path)?,
        reduce: table.get("reduce").map(|node| reduce(node, &inside("reduce"))).transpose()?,
        hsv_regularization: table
            .get("hsv_regularization")
            .map_or(Ok(0.0), |node| read_value(node, &inside("hsv_regularization")))?,
        probe: one_or_many(table, "probe", path)?,
        exactness: table.get("exactness").map(|node| read_value(node, &inside("exactness"))).transpose()?,
        train: table.get("train").map(own_training).transpose()?,
        method,
    })
}

/// Says what to write instead of a kind that there was once.
fn refuse_retired(table: &Table, path: &str) -> Result<(), ConfigError> {
    let Some(Node { value: Value::String(name), origin }) = table.get("kind") else { return Ok(()) };
    adapters::replacement(name).map_or(Ok(()), |replacement| {
        Err(ConfigError::new(Some(origin.clone()), format!("`{path}.kind`: {name:?} was removed: {replacement}")))
    })
}

/// The kind's own settings, every value checked for its type.
fn settings_of(table: &Table, path: &str, kind: Kind) -> Result<AdapterSettings, ConfigError> {
    let own = kind.keys();
    let mut known: Vec<&str> = own.iter().map(|key| key.name.as_str()).collect();
    known.extend(adapters::COMMON_KEYS);
    // Types do not depend on the backbone.
    let placement = TinyGptConfig::default().placement();
    let context = Context { placement: &placement, length: 2, steps: None, pretrained: false };
    let mut given = settings::Table::new();
    for Entry { key, origin, node } in &table.0 {
        let inside = format!("{path}.{key}");
        if !known.contains(&key.as_str()) {
            return Err(unknown_key(&inside, origin, &known));
        }
        if adapters::COMMON_KEYS.contains(&key.as_str()) {
            continue;
        }
        let refuse = |key: &str, problem: String| {
            ConfigError::new(Some(node.origin.clone()), format!("`{path}.{key}` {problem}"))
        };
        if matches!(node.value, Value::Float(number) if !number.is_finite()) {
            return Err(refuse(key, format!("must be finite, found {}", node.describe())));
        }
        let value = settings::Table::from_iter([(key.clone(), read_value(node, &inside)?)]);
        kind.check_types(&value, &context).map_err(|error| refuse(&error.key, error.problem))?;
        given.extend(value);
    }
    let budget = table.get("budget").map(|node| read_value(node, &format!("{path}.budget"))).transpose()?;
    Ok(AdapterSettings { kind, budget, settings: given })
}

/// A rule of truncation, and when.
fn reduce(node: &Node, path: &str) -> Result<ReduceConfig, ConfigError> {
    const TIMING: &[&str] = &["after_epoch", "warmup_steps"];
    const RULE: &[&str] = &["epsilon", "order", "energy", "bound", "total", "method"];
    let table = node.as_table(path)?;
    let timing: Timing = read(table, &node.origin, path, RULE)?;
    let rule: TruncateConfig = read(table, &node.origin, path, TIMING)?;
    Ok(ReduceConfig { timing, rule })
}

/// One table, or an array of them; none when the key is not there.
fn one_or_many<T: serde::de::DeserializeOwned>(table: &Table, key: &str, path: &str) -> Result<Vec<T>, ConfigError> {
    let path = format!("{path}.{key}");
    table.get(key).map_or(Ok(Vec::new()), |node| match node.value {
        Value::Array(_) => read_value(node, &path),
        _ => read_value(node, &path).map(|one| vec![one]),
    })
}
