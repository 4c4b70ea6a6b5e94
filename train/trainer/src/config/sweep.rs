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

mod settings;
#[cfg(test)]
mod tests;

use super::{Config, names_precision, problem_of_name, read, relocate};
use crate::settings::de::read_value;
use crate::settings::error::{ConfigError, alternatives, nearest};
use crate::settings::tree::{self, Node, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Fingerprints of what it is run with, the axes apart, by sections, adapters (`adapter.hrm`) and labels of axes (`tier=1`): cells that
    /// have a part of the same name and another fingerprint do not repeat each other.
    pub settings: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Axis {
    name: String,
    values: Vec<Choice>,
    /// All keys that its values set, those too that `--set` has left out.
    keys: BTreeSet<String>,
}

/// Most cells of a grid, which are all checked before the first one is run.
const MOST_CELLS: usize = 100_000;
/// Most bytes of a directory's name.
const LONGEST_NAME: usize = 255;

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
                if axes.iter().all(|axis| spelled(&base, &axis.name) != spelled(&base, &entry.key)) {
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
                if let Some(other) = axes[..index].iter().find(|other| other.sets(&base, &spelled(&base, path))) {
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
            if slug.len() > LONGEST_NAME {
                let problem = format!(
                    "{}: the directory of a cell would have a name of {} bytes, of {LONGEST_NAME} that it can have: give the values of \
                     an axis short labels; it is {slug}",
                    self.file,
                    slug.len()
                );
                return Err(ConfigError::new(None, problem));
            }
            let mut root = self.base.clone();
            for (path, value) in choice.iter().flat_map(|choice| &choice.settings) {
                tree::assign(&mut root, path, value.clone())?;
            }
            if let Some((path, names)) = &self.only {
                keep_only(&mut root, path, names)?;
            }
            let settings = settings::fingerprints(&root, &self.axes, &axes, &choice);
            let name = Node { value: Value::String(format!("{}_{slug}", self.name)), origin: root.origin.clone() };
            tree::assign(&mut root, "name", name)?;
            let asks_for_precision = names_precision(&root)?;
            let file = Path::new(&self.file);
            let missing = relocate::missing(&root, file);
            relocate::relocate(&mut root, &|path| relocate::find(path, file));
            match Config::resolved(&root, file) {
                Err(error) if !error.of_files => Err(error),
                resolved => {
                    let config = resolved.map(|(config, _)| config);
                    Ok(Cell { slug, axes, asks_for_precision, config, missing, settings })
                }
            }
        };
        choices.into_iter().map(cell).collect()
    }
}

/// A path in one spelling: without spaces, and with adapters by their names where they stand by their numbers.
fn spelled(base: &Node, path: &str) -> String {
    let mut segments: Vec<String> = path.split('.').map(|segment| segment.trim().to_owned()).collect();
    let adapters = base.as_table("").ok().and_then(|root| root.get("adapter")).map(|node| &node.value);
    if let ([first, own, ..], Some(Value::Array(adapters))) = (&mut segments[..], adapters)
        && first == "adapter"
    {
        let mut labels = adapters.iter().enumerate().map(|(index, adapter)| adapter.label(index));
        let number = own.parse().ok().filter(|_| !labels.clone().any(|label| label == *own));
        if let Some(label) = number.and_then(|number| labels.nth(number)) {
            *own = label;
        }
    }
    segments.join(".")
}

/// Sets `path` in the configuration, or the values of the axis of this name.
fn apply(base: &mut Node, axes: &mut [Axis], path: &str, value: &Node) -> Result<(), ConfigError> {
    let key = spelled(base, path);
    if let Some(axis) = axes.iter_mut().find(|axis| spelled(base, &axis.name) == key) {
        return axis.replace(value);
    }
    if let Some(axis) = axes.iter().find(|axis| axis.sets(base, &key)) {
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
    /// Whether one of its values sets `key`, as [`spelled`] in `base`.
    fn sets(&self, base: &Node, key: &str) -> bool {
        self.values.iter().any(|value| value.settings.iter().any(|(own, _)| spelled(base, own) == key))
    }

    fn read(name: &str, node: &Node) -> Result<Self, ConfigError> {
        let values = items(name, node)?.iter().map(|item| Choice::read(name, item)).collect::<Result<Vec<_>, _>>()?;
        Ok(Axis { name: name.to_owned(), keys: keys_of(&values), values })
    }

    /// Takes `node`'s values, or those of its own that have the labels in `node`.
    fn replace(&mut self, node: &Node) -> Result<(), ConfigError> {
        let has_tables = self.values.iter().any(|value| value.settings.iter().any(|(path, _)| *path != self.name));
        let single = [node.clone()];
        let wanted = if let Value::Array(_) = node.value { items(&self.name, node)? } else { &single };
        if !has_tables || wanted.iter().any(|item| matches!(item.value, Value::Table(_))) {
            self.values = wanted.iter().map(|item| Choice::read(&self.name, item)).collect::<Result<_, _>>()?;
            self.keys.extend(keys_of(&self.values));
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

/// The keys that values set.
fn keys_of(values: &[Choice]) -> BTreeSet<String> {
    values.iter().flat_map(|value| &value.settings).map(|(path, _)| path.clone()).collect()
}

fn items<'a>(axis: &str, node: &'a Node) -> Result<&'a [Node], ConfigError> {
    match &node.value {
        Value::Array(items) if !items.is_empty() => Ok(items),
        _ => {
            let quotes =
                if let Value::Table(_) = node.value { " (a dotted key is written in quotes here)" } else { "" };
            let is_empty = matches!(&node.value, Value::Array(items) if items.is_empty());
            let found = if is_empty { "an empty array".into() } else { node.describe() };
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
