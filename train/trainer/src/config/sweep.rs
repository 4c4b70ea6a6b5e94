//! Experiments: a configuration with a `[sweep]` table, which stands for one configuration per cell of a grid.
//!
//! ```toml
//! [sweep]
//! scale = "small"                      # unless --set scale=... says otherwise
//! [sweep.grid]
//! "task.length" = [64, 128, 256, 512]  # a key of the configuration and its values
//! seed = [0, 1, 2]
//! tier = [                             # or any name, and the keys that change together
//!     { label = "1", "adapter.lora.rank" = 8, "adapter.hrm.state_dim" = 16 },
//!     { label = "2", "adapter.lora.rank" = 16, "adapter.hrm.state_dim" = 32 },
//! ]
//! [sweep.scales.small]                 # an axis of the grid and other values for it, or a key and its value
//! "task.length" = [64, 128]
//! "train.steps" = 300
//! only = ["hrm"]                       # the scale leaves out all other adapters
//! [sweep.scales.small.grid]            # axes that this scale alone has
//! "train.lr" = [1e-3, 3e-3]
//! ```
//!
//! What is set last stands: the file, the scale, `--set`, the cell. `--set` replaces the values of an axis, and chooses among
//! the labels of one with tables.
//!
//! A `[plan]` beside it says, before there are results, what is asked and how it is decided ([`PlanText`]).

use super::{Config, problem_of_name, read, relocate};
use crate::settings::de::read_value;
use crate::settings::error::{ConfigError, alternatives, nearest};
use crate::settings::tree::{self, Node, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name, and that of its directory without the scale.
    pub name: String,
    /// The scale that was chosen, if it has any.
    pub scale: Option<String>,
    /// What was decided before the results, if the file says so.
    pub plan: Option<PlanText>,
    /// The scales that the file has.
    pub scales: Vec<String>,
    /// Whether the file has a `[sweep]` table.
    pub is_sweep: bool,
    file: String,
    base: Node,
    axes: Vec<Axis>,
    /// Names of the adapters that the scale has, and the key that says so; otherwise it has all.
    only: Option<(String, Node)>,
}

/// `[plan]`: what is asked of an experiment and how it is decided, in words for readers. The numbers of runs are those of the grid.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanText {
    /// What is expected, one sentence each.
    pub hypotheses: Vec<String>,
    /// What is repeated: tables, seeds, documents.
    pub units: String,
    /// What guards against other explanations.
    pub controls: String,
    /// How it is decided.
    pub test: String,
    /// When no more is run.
    pub stopping: String,
    /// Why so many runs.
    pub power: String,
}

/// One configuration of an experiment.
#[derive(Debug)]
pub struct Cell {
    /// Name of its directory: `length-64_seed-0`.
    pub slug: String,
    /// The axes by their short names, and what this cell has of each: `("length", "64")`.
    pub axes: Vec<(String, String)>,
    /// Whether `precision` is given, instead of the device's default.
    pub asks_for_precision: bool,
    /// The resolved configuration, or which of the files that it names cannot be used: those of another cell may be there.
    pub config: Result<Config, ConfigError>,
    /// Data that it is run on and that are nowhere.
    pub missing: Option<ConfigError>,
}

#[derive(Debug)]
struct Axis {
    name: String,
    values: Vec<Choice>,
}

/// Most cells of a grid, which are all checked before the first one is run.
const MOST_CELLS: usize = 100_000;

/// A value of an axis: what it sets.
#[derive(Debug, Clone)]
struct Choice {
    label: String,
    settings: Vec<(String, Node)>,
}

impl Experiment {
    /// Reads an experiment from the text of a file, called `file` in messages, with the `key=value` in `overrides` on top.
    ///
    /// # Errors
    /// The first problem of the `[sweep]` table, with its place. The cells are checked by [`Experiment::cells`].
    pub fn load(text: &str, file: &str, overrides: &[String]) -> Result<Self, ConfigError> {
        let mut base = tree::parse(text, file)?;
        let Value::Table(root) = &mut base.value else { unreachable!("a document is a table") };
        let sweep = root.remove("sweep").map(|entry| entry.node);
        let plan = root.remove("plan").map(|entry| read_value(&entry.node, "plan")).transpose()?;
        let empty = tree::Table::default();
        let is_sweep = sweep.is_some();
        let sweep = sweep.as_ref().map_or(Ok(&empty), |node| node.as_table("sweep"))?;
        if let Some(entry) = sweep.0.iter().find(|entry| !["scale", "grid", "scales"].contains(&entry.key.as_str())) {
            return Err(crate::settings::de::unknown_key(
                &format!("sweep.{}", entry.key),
                &entry.origin,
                &["scale", "grid", "scales"],
            ));
        }
        let table = |key: &str| sweep.get(key).map_or(Ok(&empty), |node| node.as_table(&format!("sweep.{key}")));
        let mut axes: Vec<Axis> =
            table("grid")?.0.iter().map(|entry| Axis::read(&entry.key, &entry.node)).collect::<Result<_, _>>()?;

        let (chosen, overrides): (Vec<&String>, Vec<&String>) =
            overrides.iter().partition(|text| text.split('=').next().is_some_and(|key| key.trim() == "scale"));
        let mut scale = sweep.get("scale").map(|node| (text_of(node), node.origin.clone()));
        for assignment in chosen {
            let (_, value) = tree::assignment(assignment)?;
            scale = Some((text_of(&value), value.origin));
        }
        let scales = table("scales")?;
        for scale in &scales.0 {
            if let Some(problem) = problem_of_name(&scale.key) {
                let problem = format!("the name of a scale {problem}");
                return Err(ConfigError::new(Some(scale.origin.clone()), problem));
            }
        }
        let names = scales.0.iter().map(|entry| entry.key.clone()).collect();
        let mut only = None;
        if let Some((name, origin)) = &scale {
            let names: Vec<&str> = scales.0.iter().map(|entry| entry.key.as_str()).collect();
            let settings = scales.get(name).ok_or_else(|| {
                let hint = nearest(name, names.iter().copied());
                let hint = hint.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let known = alternatives(&names);
                ConfigError::new(Some(origin.clone()), format!("{file} has no scale `{name}`; it has {known}{hint}"))
            })?;
            for entry in &settings.as_table(&format!("sweep.scales.{name}"))?.0 {
                if entry.key == "grid" {
                    // Axes that this scale alone has.
                    for axis in &entry.node.as_table(&format!("sweep.scales.{name}.grid"))?.0 {
                        if axes.iter().any(|own| own.name == axis.key) {
                            let problem = format!(
                                "the axis `{0}` is in the grid of every scale: set `\"{0}\" = [...]` in `sweep.scales.{name}`",
                                axis.key
                            );
                            return Err(ConfigError::new(Some(axis.origin.clone()), problem));
                        }
                        axes.push(Axis::read(&axis.key, &axis.node)?);
                    }
                    continue;
                }
                if entry.key == "only" {
                    only = Some((format!("sweep.scales.{name}.only"), entry.node.clone()));
                    continue;
                }
                if axes.iter().all(|axis| axis.name != entry.key) {
                    no_whole_section(&base, &entry.key, &entry.node)?;
                }
                apply(&mut base, &mut axes, &entry.key, &entry.node)?;
            }
        }
        for assignment in overrides {
            let (path, value) = tree::assignment(assignment)?;
            apply(&mut base, &mut axes, path, &value)?;
        }
        // Statistics over cells are of figures that were not chosen on the split they are measured on.
        tree::set_default(&mut base, "train.keep", "last")?;
        for (index, axis) in axes.iter().enumerate() {
            for (path, value) in axis.values.iter().flat_map(|value| &value.settings) {
                no_whole_section(&base, path, value)?;
                if let Some(other) = axes[..index].iter().find(|other| other.sets(path)) {
                    let problem =
                        format!("`{path}` is set by two axes of the grid, `{}` and `{}`", other.name, axis.name);
                    return Err(ConfigError::new(Some(value.origin.clone()), problem));
                }
            }
        }
        let named = read::name(&base, Path::new(file))?;
        if let Some(problem) = problem_of_name(&named) {
            return Err(ConfigError::new(base.origin_of("name"), format!("`name` {problem}")));
        }
        Ok(Experiment {
            name: named,
            scale: scale.map(|(name, _)| name),
            plan,
            scales: names,
            is_sweep,
            file: file.to_owned(),
            base,
            axes,
            only,
        })
    }

    /// Name of the experiment's directory: its own and that of its scale.
    pub fn directory_name(&self) -> String {
        self.scale.as_ref().map_or_else(|| self.name.clone(), |scale| format!("{}-{scale}", self.name))
    }

    /// The number of cells, known before any of them is resolved.
    pub fn size(&self) -> usize {
        self.axes.iter().fold(1, |cells, axis| cells.saturating_mul(axis.values.len()))
    }

    /// The cells, the last axis changing fastest, every one checked and, if its files are there, resolved. Without a grid there is one.
    ///
    /// # Errors
    /// The first problem of the first cell that has one, with its place and key; two cells of one name; more cells than
    /// anybody runs.
    pub fn cells(&self) -> Result<Vec<Cell>, ConfigError> {
        if self.size() > MOST_CELLS {
            let axes: Vec<String> =
                self.axes.iter().map(|axis| format!("{} of `{}`", axis.values.len(), axis.name)).collect();
            let problem = format!(
                "{}: the grid has more than {MOST_CELLS} cells ({}): take fewer values",
                self.file,
                axes.join(", ")
            );
            return Err(ConfigError::new(None, problem));
        }
        let mut choices: Vec<Vec<&Choice>> = vec![Vec::new()];
        for axis in &self.axes {
            let with =
                |cell: &Vec<_>| axis.values.iter().map(|value| [cell, &[value][..]].concat()).collect::<Vec<_>>();
            choices = choices.iter().flat_map(with).collect();
        }
        let names = short_names(&self.axes);
        let mut seen = BTreeSet::new();
        let cell = |choice: Vec<&Choice>| {
            let axes: Vec<(String, String)> =
                names.iter().zip(&choice).map(|(name, value)| (name.clone(), value.label.clone())).collect();
            let parts: Vec<String> = axes.iter().map(|(name, label)| format!("{name}-{}", plain(label))).collect();
            let slug = if parts.is_empty() { "run".to_owned() } else { parts.join("_") };
            if !seen.insert(slug.clone()) {
                let problem = format!("{}: two cells are called {slug}: give the values of an axis labels", self.file);
                return Err(ConfigError::new(None, problem));
            }
            let mut root = self.base.clone();
            for (path, value) in choice.iter().flat_map(|choice| &choice.settings) {
                tree::assign(&mut root, path, value.clone())?;
            }
            if let Some((path, names)) = &self.only {
                keep_only(&mut root, path, names)?;
            }
            let name = Node { value: Value::String(format!("{}_{slug}", self.name)), origin: root.origin.clone() };
            tree::assign(&mut root, "name", name)?;
            let asks_for_precision = root.as_table("")?.get("precision").is_some();
            let file = Path::new(&self.file);
            let missing = relocate::missing(&root, file);
            relocate::relocate(&mut root, &|path| relocate::find(path, file));
            match Config::resolved(&root, file) {
                Err(error) if !error.of_files => Err(error),
                resolved => {
                    let config = resolved.map(|(config, _)| config);
                    Ok(Cell { slug, axes, asks_for_precision, config, missing })
                }
            }
        };
        choices.into_iter().map(cell).collect()
    }
}

/// Sets `path` in the configuration, or the values of the axis of this name.
fn apply(base: &mut Node, axes: &mut [Axis], path: &str, value: &Node) -> Result<(), ConfigError> {
    if let Some(axis) = axes.iter_mut().find(|axis| axis.name == path) {
        return axis.replace(value);
    }
    if let Some(axis) = axes.iter().find(|axis| axis.sets(path)) {
        let problem = format!("`{path}` is set by the axis `{}` of the grid: choose among its labels", axis.name);
        return Err(ConfigError::new(Some(value.origin.clone()), problem));
    }
    tree::assign(base, path, value.clone())
}

/// Leaves out the adapters that are not among `names`, which stand at `path`.
fn keep_only(base: &mut Node, path: &str, names: &Node) -> Result<(), ConfigError> {
    let refuse = |problem: String| ConfigError::new(Some(names.origin.clone()), format!("`{path}` {problem}"));
    let only: Vec<String> = read_value(names, path)?;
    if only.is_empty() {
        return Err(refuse("is empty: name an adapter, or leave it out".to_owned()));
    }
    let Value::Table(root) = &mut base.value else { unreachable!("a document is a table") };
    let adapters = root.0.iter_mut().find(|entry| entry.key == "adapter").map(|entry| &mut entry.node.value);
    let Some(Value::Array(adapters)) = adapters else { return Ok(()) };
    let labels: Vec<String> = adapters.iter().enumerate().map(|(index, adapter)| adapter.label(index)).collect();
    if let Some(unknown) = only.iter().find(|name| !labels.contains(name)) {
        let known: Vec<&str> = labels.iter().map(String::as_str).collect();
        return Err(refuse(format!("names `{unknown}`, which is no adapter here: they are {}", alternatives(&known))));
    }
    let mut labels = labels.iter();
    adapters.retain(|_| labels.next().is_some_and(|label| only.contains(label)));
    Ok(())
}

/// Refuses a table in place of a section of the configuration, which an unquoted `train.steps = 300` is: all other keys of the
/// section would be lost.
fn no_whole_section(base: &Node, path: &str, node: &Node) -> Result<(), ConfigError> {
    let Value::Table(table) = &node.value else { return Ok(()) };
    let is_section =
        base.as_table("")?.get(path).is_some_and(|own| matches!(own.value, Value::Table(_) | Value::Array(_)));
    if !is_section {
        return Ok(());
    }
    let key = table.0.first().map_or("KEY", |entry| entry.key.as_str());
    let problem = format!(
        "a table here would replace all of `{path}`: set its keys one by one, \"{path}.{key}\" = ... (a dotted key is written \
         in quotes here)"
    );
    Err(ConfigError::new(Some(node.origin.clone()), problem))
}

impl Axis {
    /// Whether one of its values sets the key at `path`.
    fn sets(&self, path: &str) -> bool {
        self.values.iter().any(|value| value.settings.iter().any(|(own, _)| own == path))
    }

    fn read(name: &str, node: &Node) -> Result<Self, ConfigError> {
        let values = items(name, node)?.iter().map(|item| Choice::read(name, item)).collect::<Result<_, _>>()?;
        Ok(Axis { name: name.to_owned(), values })
    }

    /// Takes `node`'s values, or those of its own that have the labels in `node`.
    fn replace(&mut self, node: &Node) -> Result<(), ConfigError> {
        let has_tables = self.values.iter().any(|value| value.settings.iter().any(|(path, _)| *path != self.name));
        let single = [node.clone()];
        let wanted = if let Value::Array(_) = node.value { items(&self.name, node)? } else { &single };
        if !has_tables || wanted.iter().any(|item| matches!(item.value, Value::Table(_))) {
            self.values = wanted.iter().map(|item| Choice::read(&self.name, item)).collect::<Result<_, _>>()?;
            return Ok(());
        }
        let choose = |item: &Node| {
            let label = text_of(item);
            self.values.iter().find(|value| value.label == label).cloned().ok_or_else(|| {
                let labels: Vec<&str> = self.values.iter().map(|value| value.label.as_str()).collect();
                let problem = format!("the axis `{}` has no `{label}`; it has {}", self.name, alternatives(&labels));
                ConfigError::new(Some(item.origin.clone()), problem)
            })
        };
        self.values = wanted.iter().map(choose).collect::<Result<_, _>>()?;
        Ok(())
    }
}

impl Choice {
    fn read(axis: &str, node: &Node) -> Result<Self, ConfigError> {
        let Value::Table(table) = &node.value else {
            return Ok(Choice { label: text_of(node), settings: vec![(axis.to_owned(), node.clone())] });
        };
        let label = table.get("label").map(text_of).ok_or_else(|| {
            let problem = format!("a table among the values of the axis `{axis}` needs a `label`");
            ConfigError::new(Some(node.origin.clone()), problem)
        })?;
        let settings = table.0.iter().filter(|entry| entry.key != "label");
        Ok(Choice { label, settings: settings.map(|entry| (entry.key.clone(), entry.node.clone())).collect() })
    }
}

fn items<'a>(axis: &str, node: &'a Node) -> Result<&'a [Node], ConfigError> {
    match &node.value {
        Value::Array(items) if !items.is_empty() => Ok(items),
        _ => {
            let quotes =
                if let Value::Table(_) = node.value { " (a dotted key is written in quotes here)" } else { "" };
            let found = node.describe();
            let problem = format!("the axis `{axis}` must be an array of at least one value, found {found}{quotes}");
            Err(ConfigError::new(Some(node.origin.clone()), problem))
        }
    }
}

/// A value in a name.
fn text_of(node: &Node) -> String {
    match &node.value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(value) => value.to_string(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join("-"),
        Value::Table(table) => {
            table.0.iter().map(|entry| format!("{}-{}", entry.key, text_of(&entry.node))).collect::<Vec<_>>().join("-")
        }
    }
}

/// Letters, digits, `.` and `-`.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() || c == '.' || c == '-' { c } else { '-' }).collect()
}

/// The last parts of the axes' names, or the whole ones where those are the same.
fn short_names(axes: &[Axis]) -> Vec<String> {
    let last = |axis: &Axis| axis.name.rsplit('.').next().map(plain).unwrap_or_default();
    let unique = |axis: &&Axis| axes.iter().filter(|other| last(other) == last(axis)).count() == 1;
    axes.iter().map(|axis| if unique(&axis) { last(axis) } else { plain(&axis.name) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[sweep]
scale = "small"
[sweep.grid]
"task.length" = [64, 128]
tier = [
    { label = "1", "adapter.lora.rank" = 8, "adapter.hrm.state_dim" = 16 },
    { label = "2", "adapter.lora.rank" = 16, "adapter.hrm.state_dim" = 32 },
]
seed = [0, 1, 2]
[sweep.scales.small]
"train.steps" = 30
[sweep.scales.smoke]
"train.steps" = 2
seed = [0]
tier = ["1"]

[task]
kind = "dfa"
[[adapter]]
kind = "hrm"
[[adapter]]
kind = "lora"
"#;

    fn cells(overrides: &[&str]) -> Result<Vec<Cell>, String> {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let experiment = Experiment::load(TEXT, "dir/grid.toml", &overrides).map_err(|e| e.to_string())?;
        experiment.cells().map_err(|e| e.to_string())
    }

    #[test]
    fn more_cells_than_anybody_runs_are_refused() {
        let values = ["0,"].repeat(1000).concat();
        let axes: Vec<String> = (0..12).map(|axis| format!("x{axis} = [{values}]")).collect();
        let experiment = Experiment::load(&format!("[sweep.grid]\n{}", axes.join("\n")), "grid.toml", &[]).unwrap();
        assert_eq!(experiment.size(), usize::MAX);
        let message = experiment.cells().unwrap_err().to_string();
        assert!(message.starts_with("grid.toml: the grid has more than 100000 cells (1000 of `x0`, "), "{message}");
    }

    #[test]
    fn every_combination_is_a_cell() {
        let all = cells(&[]).unwrap();
        assert_eq!(all.len(), 12);
        assert_eq!(all[0].slug, "length-64_tier-1_seed-0");
        assert_eq!(all[1].slug, "length-64_tier-1_seed-1");
        let axes: Vec<(&str, &str)> = all[1].axes.iter().map(|(name, label)| (name.as_str(), label.as_str())).collect();
        assert_eq!(axes, [("length", "64"), ("tier", "1"), ("seed", "1")]);
        assert_eq!(all[11].slug, "length-128_tier-2_seed-2");
        let last = all[11].config.as_ref().unwrap();
        assert_eq!((last.name.as_str(), last.seed, last.train.steps), ("grid_length-128_tier-2_seed-2", 2, Some(30)));
        assert!(last.to_toml().contains("state_dim = 32"));
        let smoke = cells(&["scale=smoke", "task.length=32"]).unwrap();
        assert_eq!(smoke.iter().map(|cell| cell.slug.as_str()).collect::<Vec<_>>(), ["length-32_tier-1_seed-0"]);
        assert_eq!(smoke[0].config.as_ref().unwrap().train.steps, Some(2));
        assert_eq!(cells(&["tier=2", "seed=[7, 8]"]).unwrap()[1].slug, "length-64_tier-2_seed-8");
    }

    #[test]
    fn a_scale_can_have_axes_of_its_own() {
        let more = format!(
            "{TEXT}\n[sweep.scales.rates]\nseed = [5]\n[sweep.scales.rates.grid]\n\"train.lr\" = [1e-3, 1e-2]\n"
        );
        let cells = |scale: &str, overrides: &[&str]| {
            let overrides: Vec<String> =
                overrides.iter().map(|text| (*text).to_owned()).chain([format!("scale={scale}")]).collect();
            Experiment::load(&more, "grid.toml", &overrides).unwrap().cells().unwrap()
        };
        let rates = cells("rates", &["tier=2", "task.length=[64]"]);
        assert_eq!(
            rates.iter().map(|cell| cell.slug.as_str()).collect::<Vec<_>>(),
            ["length-64_tier-2_seed-5_lr-0.001", "length-64_tier-2_seed-5_lr-0.01"]
        );
        assert_eq!(rates[1].config.as_ref().unwrap().train.lr, 1e-2);
        assert!(cells("small", &[]).iter().all(|cell| cell.axes.iter().all(|(axis, _)| axis != "lr")));
        let twice = more.replace("\"train.lr\" = [1e-3, 1e-2]", "seed = [1]");
        let message = Experiment::load(&twice, "grid.toml", &["scale=rates".to_owned()]).unwrap_err().to_string();
        assert!(message.contains("the axis `seed` is in the grid of every scale"), "{message}");
    }

    #[test]
    fn a_scale_can_leave_out_adapters() {
        let with = |only: &str| {
            let text = TEXT.replace("[sweep.scales.smoke]", &format!("[sweep.scales.smoke]\nonly = {only}"));
            let names = |scale: &str| {
                let cells = Experiment::load(&text, "grid.toml", &[format!("scale={scale}")])?.cells()?;
                let adapters = &cells[0].config.as_ref().unwrap().adapter;
                Ok(adapters.iter().map(|adapter| adapter.name.clone()).collect::<Vec<_>>().join(","))
            };
            (names("smoke").map_err(|error: ConfigError| error.to_string()), names("small").unwrap())
        };
        assert_eq!(with("[\"lora\"]"), (Ok("lora".to_owned()), "hrm,lora".to_owned()));
        for (only, expected) in [
            ("[]", "grid.toml:14: `sweep.scales.smoke.only` is empty"),
            (
                "[\"lara\"]",
                "grid.toml:14: `sweep.scales.smoke.only` names `lara`, which is no adapter here: they are `hrm` or `lora`",
            ),
            ("3", "grid.toml:14: `sweep.scales.smoke.only` must be"),
        ] {
            let message = with(only).0.unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_plan_is_read_and_complete() {
        let keys = ["units", "controls", "test", "stopping", "power"];
        let words = keys.map(|key| format!("{key} = \"words\"\n")).concat();
        let with = |plan: &str| Experiment::load(&format!("{TEXT}\n[plan]\n{plan}"), "grid.toml", &[]);
        let plan = with(&format!("hypotheses = [\"a\", \"b\"]\n{words}")).unwrap().plan.unwrap();
        assert_eq!((plan.hypotheses.len(), plan.units.as_str()), (2, "words"));
        assert_eq!(Experiment::load(TEXT, "grid.toml", &[]).unwrap().plan, None);
        let message = with(&words).unwrap_err().to_string();
        assert!(message.contains("plan.hypotheses"), "{message}");
        let message = with(&format!("hypotheses = []\nstop = 1\n{words}")).unwrap_err().to_string();
        assert!(message.contains("unknown key `plan.stop`"), "{message}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (overrides, expected) in [
            (&["scale=smal"][..], "--set scale=smal: dir/grid.toml has no scale `smal`; it has `small` or `smoke`"),
            (&["tier=3"], "--set tier=3: the axis `tier` has no `3`; it has `1` or `2`"),
            (&["adapter.lora.rank=4"], "`adapter.lora.rank` is set by the axis `tier` of the grid"),
            (&["seed=[]"], "--set seed=[]: the axis `seed` must be an array of at least one value"),
            (&["task.length=[0]"], "--set task.length=[0]: `task.length` must be"),
            (&["seed=[1, 1]"], "two cells are called length-64_tier-1_seed-1"),
            (&["train.lrr=1"], "unknown key `train.lrr`"),
        ] {
            let message = cells(overrides).unwrap_err();
            assert!(message.contains(expected), "{overrides:?}: {message}");
        }
        let wrong = TEXT.replace("[sweep.grid]", "[sweep.gird]");
        let message = Experiment::load(&wrong, "grid.toml", &[]).unwrap_err().to_string();
        assert!(message.contains("grid.toml:4: unknown key `sweep.gird`; did you mean `grid`?"), "{message}");
        for (replaced, by, expected) in [
            ("\"train.steps\" = 30", "train.steps = 30", "grid.toml:12: a table here would replace all of `train`"),
            (
                "\"adapter.lora.rank\" = 8",
                "adapter.lora.rank = 8",
                "grid.toml:7: a table here would replace all of `adapter`",
            ),
            (
                "seed = [0, 1, 2]",
                "\"adapter.lora.rank\" = [4]",
                "`adapter.lora.rank` is set by two axes of the grid, `tier`",
            ),
            ("scales.smoke", "scales.\"a/b\"", "grid.toml:13: the name of a scale must be made of letters"),
            ("[sweep]", "name = \"..\"\n[sweep]", "grid.toml:2: `name` must be made of letters"),
        ] {
            let wrong = TEXT.replacen(replaced, by, 1).replace("kind = \"dfa\"", "kind = \"dfa\"\n[train]\nlr = 1.0");
            let message = Experiment::load(&wrong, "grid.toml", &[]).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        // The table of a key that takes one is quoted, and stays.
        let rule = "\"task.max_window\" = { symbols = 2, accuracy = 0.9 }";
        Experiment::load(&TEXT.replace("\"train.steps\" = 30", rule), "grid.toml", &[]).unwrap();
        let message = Config::load(TEXT, "grid.toml", &[]).unwrap_err().to_string();
        assert!(message.contains("train sweep"), "{message}");
    }

    #[test]
    fn the_example_of_the_documentation() {
        let page = include_str!("../../../../docs/sweeps.md");
        let text = page.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let cells = |scale: &str| Experiment::load(text, "length.toml", &[format!("scale={scale}")]).unwrap().cells();
        assert_eq!((cells("small").unwrap().len(), cells("full").unwrap().len()), (12, 24));
    }

    #[test]
    fn a_configuration_without_a_grid_is_one_cell() {
        let text = "[task]\nkind = \"dfa\"\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\n";
        let experiment = Experiment::load(text, "plain.toml", &[]).unwrap();
        assert_eq!((experiment.directory_name(), experiment.cells().unwrap().len()), ("plain".to_owned(), 1));
    }
}
