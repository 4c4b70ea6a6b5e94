//! Runs of one name, told apart by their directories and by what differs in their configurations.

use super::run::Run;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::{Table, Value};

/// Settings that a name shows.
const SHOWN: usize = 3;

/// Adds to the names of runs that have the same one where they are and what differs between them.
pub fn tell_apart(runs: &mut [(&mut Run, &Path)]) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, (run, _)) in runs.iter().enumerate() {
        groups.entry(run.name.clone()).or_default().push(index);
    }
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let settings: Vec<BTreeMap<String, String>> =
            group.iter().map(|&index| settings(runs[index].0.config.as_deref())).collect();
        let keys: BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
        let differs = |key: &&&String| settings.iter().any(|one| one.get(**key) != settings[0].get(**key));
        let changed: Vec<&String> = keys.iter().filter(differs).copied().collect();
        for (&index, own) in group.iter().zip(&settings) {
            let (run, directory) = &mut runs[index];
            let mut shown: Vec<String> = changed
                .iter()
                .take(SHOWN)
                .map(|key| format!("{key} = {}", own.get(*key).map_or("–", String::as_str)))
                .collect();
            if changed.len() > SHOWN {
                shown.push("...".to_owned());
            }
            let shown = if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) };
            run.name = format!("{} ({}{shown})", run.name, directory.display());
        }
    }
}

/// Dotted keys and values of a configuration; adapters by their names.
fn settings(config: Option<&str>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    if let Some(Ok(table)) = config.map(str::parse::<Table>) {
        collect("", &Value::Table(table), &mut all);
    }
    all.remove("name");
    all
}

fn collect(path: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    let inside = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Table(table) => table.iter().for_each(|(key, value)| collect(&inside(key), value, all)),
        Value::Array(items) if items.iter().any(Value::is_table) => {
            for (index, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str).map_or_else(|| index.to_string(), str::to_owned);
                collect(&inside(&name), item, all);
            }
        }
        other => {
            all.insert(path.to_owned(), other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_name_say_where_they_are_and_what_differs() {
        let run = |name: &str, config: &str| Run { name: name.into(), config: Some(config.into()), ..Run::default() };
        let text = "name = \"x\"\nseed = 0\n[train]\nlr = 0.001\n[[adapter]]\nname = \"lora\"\nrank = 4\n";
        let mut runs = [
            run("x", text),
            run("x", &text.replace("rank = 4", "rank = 8").replace("seed = 0", "seed = 1")),
            run("y", text),
        ];
        let directories = ["runs/x", "runs/x-2", "runs/y"];
        tell_apart(&mut runs.iter_mut().zip(directories.map(Path::new)).collect::<Vec<_>>());
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(
            names,
            ["x (runs/x: adapter.lora.rank = 4, seed = 0)", "x (runs/x-2: adapter.lora.rank = 8, seed = 1)", "y"]
        );
    }
}
