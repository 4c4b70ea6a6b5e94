//! A TOML document in which every key and value remembers where it was written, and `--set` on top of it.

use super::error::{ConfigError, Origin, alternatives, nearest};
use std::borrow::Cow;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// A value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The value.
    pub value: Value,
    /// Where it was written.
    pub origin: Origin,
}

/// A TOML value. Tables keep the order of the file.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// A string.
    String(String),
    /// A whole number.
    Integer(i64),
    /// A number with a point or an exponent.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// `[a, b]`, or the tables `[[a]]`.
    Array(Vec<Node>),
    /// A table.
    Table(Table),
}

/// Keys and values of a table, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table(pub Vec<Entry>);

/// A key of a table, where it was written, and its value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The key.
    pub key: String,
    /// Where the key was written.
    pub origin: Origin,
    /// The value.
    pub node: Node,
}

impl Table {
    /// The value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// Sets `key`, in its place if it is there, at the end otherwise.
    pub(crate) fn set(&mut self, key: &str, origin: Origin, node: Node) {
        match self.0.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => (entry.node, entry.origin) = (node, origin),
            None => self.0.push(Entry { key: key.to_owned(), origin, node }),
        }
    }

    /// Removes `key` and gives its entry.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Entry> {
        let index = self.0.iter().position(|entry| entry.key == key)?;
        Some(self.0.remove(index))
    }

    /// This table with the entries of `over` replacing its own; nested tables are merged in the same way.
    pub(crate) fn merged_with(&self, over: &Table) -> Table {
        let mut merged = self.clone();
        for entry in &over.0 {
            let node = match (merged.get(&entry.key).map(|node| &node.value), &entry.node.value) {
                (Some(Value::Table(base)), Value::Table(over)) => {
                    Node { value: Value::Table(base.merged_with(over)), origin: entry.node.origin.clone() }
                }
                _ => entry.node.clone(),
            };
            merged.set(&entry.key, entry.origin.clone(), node);
        }
        merged
    }
}

impl Node {
    /// The table, or an error that names the key.
    pub(crate) fn as_table(&self, path: &str) -> Result<&Table, ConfigError> {
        match &self.value {
            Value::Table(table) => Ok(table),
            _ => Err(ConfigError::new(
                Some(self.origin.clone()),
                format!("`{path}` must be a table, found {}", self.describe()),
            )),
        }
    }

    /// The value in words: `the string "x"`, `the number 3`, `a table`.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::String(text) => format!("the string {text:?}"),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number:?}"),
            Value::Boolean(value) => format!("`{value}`"),
            Value::Array(_) => "an array".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }

    /// How an element of an array of tables is addressed: its `name`, or its `kind`, or else its number.
    pub(crate) fn label(&self, index: usize) -> String {
        let text = |key| match &self.value {
            Value::Table(table) => match &table.get(key)?.value {
                Value::String(text) => Some(text.clone()),
                _ => None,
            },
            _ => None,
        };
        text("name").or_else(|| text("kind")).unwrap_or_else(|| index.to_string())
    }

    /// Where `path` (dotted, as in `--set`) was written: the deepest part of it that was written at all.
    pub(crate) fn origin_of(&self, path: &str) -> Option<Origin> {
        let mut node = self;
        let mut found = None;
        for segment in path.split('.') {
            let next = match &node.value {
                Value::Table(table) => table.get(segment),
                Value::Array(items) => {
                    segment.parse::<usize>().ok().and_then(|index| items.get(index)).or_else(|| {
                        items.iter().enumerate().find(|(i, item)| item.label(*i) == segment).map(|(_, n)| n)
                    })
                }
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
            found = Some(node.origin.clone());
        }
        found
    }
}

/// Parses the text of a configuration file; `file` is the name used in messages.
pub(crate) fn parse(text: &str, file: &str) -> Result<Node, ConfigError> {
    let file: Arc<str> = file.into();
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
    let place = |offset: usize| Origin::Line(file.clone(), starts.partition_point(|&start| start <= offset));
    let document = DeTable::parse(text).map_err(|error| {
        let origin = error.span().map_or_else(|| place(0), |span| place(span.start));
        let place = error.span().and_then(|span| text.get(span)).unwrap_or_default();
        let twice = match error.message().trim() {
            "duplicate key" if place == "adapter" => " `adapter`: adapters are written [[adapter]]".to_owned(),
            "duplicate key" => format!(" `{place}`"),
            _ => String::new(),
        };
        ConfigError::new(Some(origin), format!("not valid TOML: {}{twice}", error.message().trim()))
    })?;
    table(document.get_ref(), &place).map(|value| Node { value, origin: place(0) })
}

fn table(source: &DeTable<'_>, place: &dyn Fn(usize) -> Origin) -> Result<Value, ConfigError> {
    let mut entries = Vec::with_capacity(source.len());
    for (key, value) in source {
        let origin = place(key.span().start);
        let node = node(key.get_ref(), value.get_ref(), place(value.span().start), place)?;
        entries.push(Entry { key: key.get_ref().to_string(), origin, node });
    }
    Ok(Value::Table(Table(entries)))
}

/// The value of `key`.
fn node(key: &str, source: &DeValue<'_>, origin: Origin, place: &dyn Fn(usize) -> Origin) -> Result<Node, ConfigError> {
    let refuse = |what: String| ConfigError::new(Some(origin.clone()), format!("`{key}` {what}"));
    let value = match source {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Integer)
            .map_err(|_| refuse(format!("is {number}, which is too large for an integer")))?,
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map(Value::Float)
            .map_err(|_| refuse(format!("is {}, which is not a number", number.as_str())))?,
        DeValue::Datetime(date) => return Err(refuse(format!("is a date ({date}), which no key takes"))),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| node(key, item.get_ref(), place(item.span().start), place))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(entries) => table(entries, place)?,
    };
    Ok(Node { value, origin })
}

/// The path and the value of a `--set key=value`. The value is TOML; what is not TOML is taken as a string.
pub(crate) fn assignment(text: &str) -> Result<(&str, Node), ConfigError> {
    let origin = Origin::Override(text.into());
    let Some((path, value)) = text.split_once('=') else {
        return Err(ConfigError::new(Some(origin), "expected key=value"));
    };
    Ok((path.trim(), override_value(path.trim(), value.trim(), &origin)?))
}

/// Sets `path` to a text unless it is given.
pub(crate) fn set_default(root: &mut Node, path: &str, text: &str) -> Result<(), ConfigError> {
    let given = path.split('.').try_fold(&*root, |node, key| match &node.value {
        Value::Table(table) => table.get(key),
        _ => None,
    });
    if given.is_some() {
        return Ok(());
    }
    let node = Node { value: Value::String(text.to_owned()), origin: root.origin.clone() };
    assign(root, path, node)
}

/// Applies one `--set key=value`, see [`assign`]. Steps take the place of passes over the data, and these of steps.
pub(crate) fn set(root: &mut Node, text: &str) -> Result<(), ConfigError> {
    let (path, value) = assignment(text)?;
    let origin = value.origin.clone();
    assign(root, path, value)?;
    let segments: Vec<&str> = path.split('.').map(str::trim).collect();
    let other = match segments[..] {
        [.., "train", "steps"] => "epochs",
        [.., "train", "epochs"] => "steps",
        _ => return Ok(()),
    };
    let parents = &segments[..segments.len() - 1];
    let mut target = root;
    for (depth, segment) in parents.iter().enumerate() {
        target = descend(target, segment, &parents[..depth], &origin)?;
    }
    if let Value::Table(entries) = &mut target.value {
        entries.remove(other);
    }
    Ok(())
}

/// Parts of a dotted path, at most: trees are walked by recursion.
const DEEPEST: usize = 32;

/// Puts `value` at a dotted path; an element of an array of tables (`adapter`) is addressed by its name, its kind or its
/// number.
pub(crate) fn assign(root: &mut Node, path: &str, value: Node) -> Result<(), ConfigError> {
    let origin = value.origin.clone();
    let refuse = |message: String| ConfigError::new(Some(origin.clone()), message);
    let segments: Vec<&str> = path.split('.').map(str::trim).collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        return Err(refuse("expected key=value with a dotted path as key, for example train.lr=1e-3".to_owned()));
    }
    if segments.len() > DEEPEST {
        return Err(refuse(format!("a key of {} parts: no setting is deeper than {DEEPEST}", segments.len())));
    }
    let (last, parents) = segments.split_last().expect("split gives at least one segment");
    let mut target = root;
    for (depth, segment) in parents.iter().enumerate() {
        target = descend(target, segment, &segments[..depth], &origin)?;
    }
    match &mut target.value {
        Value::Table(entries) => {
            entries.set(last, origin.clone(), value);
            Ok(())
        }
        Value::Array(_) => {
            *descend(target, last, parents, &origin)? = value;
            Ok(())
        }
        _ => Err(refuse(format!("`{}` is not a table", parents.join(".")))),
    }
}

fn override_value(path: &str, text: &str, origin: &Origin) -> Result<Node, ConfigError> {
    match DeValue::parse(text) {
        Ok(parsed) => node(path, parsed.get_ref(), origin.clone(), &|_| origin.clone()),
        Err(_) => Ok(Node { value: Value::String(text.to_owned()), origin: origin.clone() }),
    }
}

fn descend<'a>(
    node: &'a mut Node,
    segment: &str,
    above: &[&str],
    origin: &Origin,
) -> Result<&'a mut Node, ConfigError> {
    let refuse = |message: String| ConfigError::new(Some(origin.clone()), message);
    match &mut node.value {
        Value::Table(entries) => {
            if entries.get(segment).is_none() {
                let empty = Node { value: Value::Table(Table::default()), origin: origin.clone() };
                entries.set(segment, origin.clone(), empty);
            }
            let entry = entries.0.iter_mut().find(|entry| entry.key == segment);
            Ok(&mut entry.expect("it was found or made above").node)
        }
        Value::Array(items) => {
            let labels: Vec<String> = items.iter().enumerate().map(|(i, item)| item.label(i)).collect();
            let by_label = labels.iter().position(|label| label == segment);
            let index = by_label.or_else(|| segment.parse().ok().filter(|&index: &usize| index < items.len()));
            if let Some(index) = index {
                return Ok(&mut items[index]);
            }
            let array = above.join(".");
            let names: Vec<&str> = labels.iter().map(String::as_str).collect();
            let hint = nearest(segment, names.iter().copied())
                .map_or(Cow::Borrowed(""), |name| Cow::Owned(format!(" (did you mean `{array}.{name}`?)")));
            Err(refuse(format!("`{array}` has no element `{segment}`{hint}; it has {}", alternatives(&names))))
        }
        _ => Err(refuse(format!("`{}` is not a table", above.join(".")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"x\"\n[train]\nlr = 1e-3\n\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 32\n[[adapter]]\nkind = \"lora\"\nname = \"small\"\n";

    fn get<'a>(node: &'a Node, path: &str) -> &'a Node {
        path.split('.').fold(node, |node, key| match &node.value {
            Value::Table(table) => table.get(key).unwrap(),
            Value::Array(items) => &items[key.parse::<usize>().unwrap()],
            _ => panic!("{key}"),
        })
    }

    #[test]
    fn values_know_their_lines() {
        let root = parse(TEXT, "c.toml").unwrap();
        assert_eq!(get(&root, "train.lr").origin.to_string(), "c.toml:3");
        assert_eq!(get(&root, "adapter.0.state_dim").origin.to_string(), "c.toml:7");
        assert_eq!(root.origin_of("adapter.small.name").unwrap().to_string(), "c.toml:10");
        assert_eq!(root.origin_of("train.nothing").unwrap().to_string(), "c.toml:2");
        assert_eq!(root.origin_of("nothing"), None);
    }

    #[test]
    fn syntax_errors_have_a_line() {
        let error = parse("a = 1\nb = = 2\n", "c.toml").unwrap_err().to_string();
        assert!(error.starts_with("c.toml:2: not valid TOML"), "{error}");
        let error = parse("a = 1\na = 2\n", "c.toml").unwrap_err().to_string();
        assert_eq!(error, "c.toml:2: not valid TOML: duplicate key `a`");
        let error = parse("[adapter]\na = 1\n[adapter]\na = 2\n", "c.toml").unwrap_err().to_string();
        assert!(error.ends_with("duplicate key `adapter`: adapters are written [[adapter]]"), "{error}");
        let error = parse("[a]\nb = [1, 18446744073709551615]\n", "c.toml").unwrap_err().to_string();
        assert_eq!(error, "c.toml:2: `b` is 18446744073709551615, which is too large for an integer");
        let error = parse("b = 2026-01-01\n", "c.toml").unwrap_err().to_string();
        assert_eq!(error, "c.toml:1: `b` is a date (2026-01-01), which no key takes");
    }

    #[test]
    fn overrides_reach_every_place() {
        let mut root = parse(TEXT, "c.toml").unwrap();
        for assignment in [
            "train.lr=5e-4",
            "adapter.hrm.state_dim=16",
            "adapter.1.rank = 8",
            "new.key=bare words",
            "flag=true",
            "list=[1, 2]",
        ] {
            set(&mut root, assignment).unwrap();
        }
        assert!(matches!(get(&root, "train.lr").value, Value::Float(x) if x == 5e-4));
        assert!(matches!(get(&root, "adapter.0.state_dim").value, Value::Integer(16)));
        assert!(matches!(get(&root, "adapter.1.rank").value, Value::Integer(8)));
        assert!(matches!(&get(&root, "new.key").value, Value::String(text) if text == "bare words"));
        assert!(matches!(get(&root, "flag").value, Value::Boolean(true)));
        assert!(matches!(&get(&root, "list").value, Value::Array(items) if items.len() == 2));
    }

    #[test]
    fn overrides_that_reach_nothing() {
        let mut root = parse(TEXT, "c.toml").unwrap();
        let message = |root: &mut Node, text| set(root, text).unwrap_err().to_string();
        assert_eq!(
            message(&mut root, "adapter.hmr.state_dim=1"),
            "--set adapter.hmr.state_dim=1: `adapter` has no element `hmr` (did you mean `adapter.hrm`?); it has `hrm` or `small`"
        );
        assert!(message(&mut root, "train.lr.x=1").contains("`train.lr` is not a table"));
        assert!(message(&mut root, "train").contains("expected key=value"));
        assert!(message(&mut root, "train..lr=1").contains("dotted path"));
    }
}
