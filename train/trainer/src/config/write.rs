//! From [`Config`] to TOML, every default written out.

use super::{AdapterConfig, BackboneConfig, Config};
use serde::Serialize;
use toml::{Table, Value};

/// The configuration as the text of a file.
pub fn config(config: &Config) -> String {
    let mut root = Table::new();
    root.insert("name".into(), config.name.clone().into());
    root.insert("seed".into(), (config.seed as i64).into());
    root.insert("device".into(), config.device.clone().into());
    if let Some(memory) = config.gpu_memory {
        root.insert("gpu_memory".into(), memory.into());
    }
    root.insert("precision".into(), value(&config.precision));
    root.insert("task".into(), tagged(config.task.kind(), config.task.to_table()).into());
    root.insert("backbone".into(), backbone(&config.backbone).into());
    if let Some(pretrain) = &config.pretrain {
        let mut table = fields(&pretrain.train);
        if let Some(own) = &pretrain.task {
            table.insert("task".into(), tagged(own.kind(), own.to_table()).into());
        }
        root.insert("pretrain".into(), table.into());
    }
    if let Some(task) = &config.forgetting {
        root.insert("forgetting".into(), tagged(task.kind(), task.to_table()).into());
    }
    root.insert("train".into(), fields(&config.train).into());
    root.insert("adapter".into(), config.adapter.iter().map(adapter).collect::<Vec<_>>().into());
    root.to_string()
}

fn backbone(backbone: &BackboneConfig) -> Table {
    match backbone {
        BackboneConfig::TinyGpt(c) => tagged(backbone.kind(), c.to_table()),
        BackboneConfig::Decoder(c) => tagged(backbone.kind(), fields(c)),
    }
}

fn adapter(adapter: &AdapterConfig) -> Table {
    let mut table = Table::new();
    table.insert("kind".into(), adapter.method.kind().into());
    table.insert("name".into(), adapter.name.clone().into());
    if let Some(path) = &adapter.path {
        table.insert("path".into(), value(path));
    }
    if let Some(method) = adapter.method.adapter() {
        if let Some(budget) = method.budget {
            table.insert("budget".into(), value(&budget));
        }
        table.extend(method.settings.iter().map(|(key, setting)| (key.clone(), value(setting))));
    }
    one_or_many(&mut table, "truncate", &adapter.truncate);
    one_or_many(&mut table, "probe", &adapter.probe);
    if let Some(exactness) = &adapter.exactness {
        table.insert("exactness".into(), fields(exactness).into());
    }
    if let Some(reduce) = &adapter.reduce {
        table.insert("reduce".into(), fields(reduce).into());
    }
    if adapter.method.has_gate() {
        table.insert("hsv_regularization".into(), adapter.hsv_regularization.into());
    }
    if let Some(train) = &adapter.train {
        table.insert("train".into(), fields(train).into());
    }
    table
}

fn one_or_many<T: Serialize>(table: &mut Table, key: &str, settings: &[T]) {
    let value: Value = match settings {
        [] => return,
        [one] => fields(one).into(),
        many => many.iter().map(fields).collect::<Vec<_>>().into(),
    };
    table.insert(key.into(), value);
}

fn tagged(kind: &str, settings: Table) -> Table {
    let mut table = Table::new();
    table.insert("kind".into(), kind.into());
    table.extend(settings);
    table
}

fn fields<T: Serialize>(settings: &T) -> Table {
    Table::try_from(settings).expect("settings are structs of TOML values")
}

fn value<T: Serialize>(setting: &T) -> Value {
    Value::try_from(setting).expect("settings are TOML values")
}

/// The first place in which two resolved configurations differ, as each has it: `[train] lr = 0.1` and `[train] lr = 0.2`.
pub fn first_difference(one: &str, other: &str) -> Option<(String, String)> {
    let mut section = String::new();
    for (one, other) in one.lines().zip(other.lines()) {
        if one != other {
            return Some((format!("{section}{one}"), format!("{section}{other}")));
        }
        if one.starts_with('[') {
            section = format!("{one} ");
        }
    }
    // One goes on where the other ends.
    let end = one.lines().count().min(other.lines().count());
    let more = |text: &str| {
        let rest: Vec<&str> = text.lines().skip(end).filter(|line| !line.is_empty()).take(3).collect();
        if rest.is_empty() { "nothing more".to_owned() } else { rest.join(" ") }
    };
    (one != other).then(|| (more(one), more(other)))
}
