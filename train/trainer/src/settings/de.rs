//! From a tree to typed settings: a serde deserializer whose errors know the key and the line.

use super::error::{ConfigError, Origin, nearest};
use super::foreign::{self, Own};
use super::tree::{Entry, Node, Table, Value};
use hankel_models::settings::{wrong_type, wrong_variant};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use std::fmt::{self, Display};

/// Reads `T` from a table, leaving out the keys in `skip`, which are read elsewhere (they count as known).
pub(crate) fn read<T: de::DeserializeOwned>(
    table: &Table,
    origin: &Origin,
    path: &str,
    skip: &[&'static str],
) -> Result<T, ConfigError> {
    let access = Map { entries: table.0.iter(), value: None, path: path.to_owned(), skip };
    T::deserialize(de::value::MapAccessDeserializer::new(access))
        .map_err(|error| error.located(path, origin).into_config())
}

/// Reads `T` from one value.
pub(crate) fn read_value<T: de::DeserializeOwned>(node: &Node, path: &str) -> Result<T, ConfigError> {
    let reader = Reader { node, path: path.to_owned() };
    T::deserialize(reader).map_err(|error| error.located(path, &node.origin).into_config())
}

/// The keys of `T`'s table.
pub(crate) fn keys<T: de::DeserializeOwned>() -> Vec<&'static str> {
    let unknown = de::value::MapDeserializer::<_, Failure>::new([("", ())].into_iter());
    match T::deserialize(unknown).map_err(|failure| failure.what) {
        Err(What::UnknownKey { known, .. }) => known,
        _ => Vec::new(),
    }
}

/// The values of `T`, which has a fixed set of names.
pub(crate) fn variants<T: de::DeserializeOwned>() -> &'static [&'static str] {
    let unknown: de::value::StrDeserializer<'_, Failure> = "".into_deserializer();
    match T::deserialize(unknown).map_err(|failure| failure.what) {
        Err(What::UnknownVariant { known, .. }) => known,
        _ => &[],
    }
}

/// An error for a key that is not among `known`.
pub(crate) fn unknown_key(path: &str, origin: &Origin, known: &[&str]) -> ConfigError {
    let key = path.rsplit('.').next().unwrap_or(path);
    let advice = match foreign::own(key) {
        Some(Own::Key(_, own)) if known.contains(own) => format!("did you mean `{own}`?"),
        Some(Own::Key(place, own)) => format!("it is called `{own}` here, a key of {place}"),
        Some(Own::Instead(advice)) => (*advice).to_owned(),
        None => match foreign::place(path).filter(|_| !known.contains(&key)) {
            Some(place) => format!("it is a key of {place}"),
            None => similar(key, known),
        },
    };
    ConfigError::new(Some(origin.clone()), format!("unknown key `{path}`; {advice}"))
}

fn similar(key: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys here are {}", known.join(", ")),
    }
}

/// An error on its way up to the place that knows its key.
#[derive(Debug)]
struct Failure {
    what: What,
    place: Option<(String, Origin)>,
}

#[derive(Debug)]
enum What {
    UnknownKey { key: String, known: Vec<&'static str> },
    MissingKey(&'static str),
    UnknownVariant { variant: String, known: &'static [&'static str] },
    Value(String),
}

impl Failure {
    fn located(mut self, path: &str, origin: &Origin) -> Self {
        self.place.get_or_insert_with(|| (path.to_owned(), origin.clone()));
        self
    }

    fn into_config(self) -> ConfigError {
        let (path, origin) = self.place.map_or((String::new(), None), |(path, origin)| (path, Some(origin)));
        match self.what {
            What::UnknownKey { key, known } => {
                let path = if path.is_empty() { key } else { path };
                match origin {
                    Some(origin) => unknown_key(&path, &origin, &known),
                    None => ConfigError::new(None, format!("unknown key `{path}`")),
                }
            }
            What::MissingKey(key) => ConfigError::new(origin, format!("`{}` is missing", join(&path, key))),
            What::UnknownVariant { variant, known } => {
                ConfigError::new(origin, format!("`{path}` {}", wrong_variant(&variant, known)))
            }
            What::Value(message) => ConfigError::new(origin, format!("`{path}` {message}")),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.what)
    }
}
impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: Display>(message: T) -> Self {
        Failure { what: What::Value(message.to_string()), place: None }
    }
    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(wrong_type(&unexpected, expected))
    }
    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }
    fn invalid_length(len: usize, expected: &dyn de::Expected) -> Self {
        Self::custom(format!("must be {expected}, found {len} elements"))
    }
    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Failure { what: What::UnknownVariant { variant: variant.to_owned(), known: expected }, place: None }
    }
    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Failure { what: What::UnknownKey { key: key.to_owned(), known: known.to_vec() }, place: None }
    }
    fn missing_field(key: &'static str) -> Self {
        Failure { what: What::MissingKey(key), place: None }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

struct Reader<'a> {
    node: &'a Node,
    path: String,
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match &self.node.value {
            Value::String(text) => visitor.visit_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(value) => visitor.visit_bool(*value),
            Value::Array(items) => {
                let mut read = Seq { items: items.iter().enumerate(), path: self.path };
                let value = visitor.visit_seq(&mut read)?;
                // An array of a fixed length stops reading there.
                let left = read.items.len();
                if left > 0 {
                    let problem = format!("has {} elements, expected {}", items.len(), items.len() - left);
                    return Err(de::Error::custom(problem));
                }
                Ok(value)
            }
            Value::Table(table) => {
                visitor.visit_map(Map { entries: table.0.iter(), value: None, path: self.path, skip: &[] })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    /// What was typed after `--set name=` is text if text is wanted, also when it looks like a number.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let scalar = !matches!(self.node.value, Value::String(_) | Value::Array(_) | Value::Table(_));
        match (&self.node.origin, scalar) {
            (Origin::Override(assignment), true) if !assignment.contains(['[', '{']) => {
                visitor.visit_str(assignment.split_once('=').map_or("", |(_, text)| text.trim()))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match &self.node.value {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => Err(de::Error::custom(format!("must be a string, found {}", self.node.describe()))),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Seq<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    path: String,
}

impl<'de> SeqAccess<'de> for Seq<'de> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        let Some((index, node)) = self.items.next() else { return Ok(None) };
        let path = join(&self.path, &node.label(index));
        let value = seed.deserialize(Reader { node, path: path.clone() });
        value.map(Some).map_err(|error| error.located(&path, &node.origin))
    }
}

struct Map<'a> {
    entries: std::slice::Iter<'a, Entry>,
    value: Option<&'a Entry>,
    path: String,
    skip: &'a [&'static str],
}

impl<'de> MapAccess<'de> for Map<'de> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        let skip = self.skip;
        let Some(entry) = self.entries.find(|entry| !skip.contains(&entry.key.as_str())) else { return Ok(None) };
        self.value = Some(entry);
        let key: de::value::StrDeserializer<'_, Failure> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|mut error| {
            if let What::UnknownKey { known, .. } = &mut error.what {
                known.extend(skip);
            }
            error.located(&join(&self.path, &entry.key), &entry.origin)
        })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        let entry = self.value.take().ok_or_else(|| <Failure as de::Error>::custom("is read out of order"))?;
        let path = join(&self.path, &entry.key);
        seed.deserialize(Reader { node: &entry.node, path: path.clone() })
            .map_err(|error| error.located(&path, &entry.node.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{parse, set};
    use super::*;
    use serde::Deserialize;
    use std::path::PathBuf;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        count: Option<usize>,
        rate: Option<f64>,
        path: Option<PathBuf>,
        mode: Option<Mode>,
        pair: Option<[f64; 2]>,
        inner: Option<Inner>,
        list: Option<Vec<usize>>,
        flag: Option<bool>,
    }
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        depth: usize,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "kebab-case")]
    enum Mode {
        Sequential,
        Fft,
    }

    fn sample(text: &str, overrides: &[&str]) -> Result<Sample, String> {
        let mut root = parse(text, "c.toml").unwrap();
        for assignment in overrides {
            set(&mut root, assignment).unwrap();
        }
        read(root.as_table("").unwrap(), &root.origin, "", &["known_elsewhere"]).map_err(|error| error.to_string())
    }

    #[test]
    fn values_arrive() {
        let text = "count = 3\nrate = 1\nmode = \"fft\"\npair = [1, 2.5]\nlist = [4, 5]\nflag = true\nknown_elsewhere = 1\ninner = { depth = 2 }";
        let sample = sample(text, &["path=2024"]).unwrap();
        assert_eq!((sample.count, sample.rate, sample.mode), (Some(3), Some(1.0), Some(Mode::Fft)));
        assert_eq!((sample.pair, sample.list, sample.flag), (Some([1.0, 2.5]), Some(vec![4, 5]), Some(true)));
        assert_eq!((sample.path, sample.inner.unwrap().depth), (Some("2024".into()), 2));
    }

    #[test]
    fn errors_name_key_line_and_remedy() {
        for (text, overrides, expected) in [
            ("\ncuont = 3", &[][..], "c.toml:2: unknown key `cuont`; did you mean `count`?"),
            ("known_elsewher = 3", &[], "c.toml:1: unknown key `known_elsewher`; did you mean `known_elsewhere`?"),
            (
                "\n\ncount = \"a\"",
                &[],
                "c.toml:3: `count` must be a whole number of at least 0, found the string \"a\"",
            ),
            ("count = -1", &[], "c.toml:1: `count` must be a whole number of at least 0, found the number -1"),
            ("count = 1.5", &[], "c.toml:1: `count` must be a whole number of at least 0, found the number 1.5"),
            ("rate = true", &[], "c.toml:1: `rate` must be a number, found `true`"),
            ("flag = 1", &[], "c.toml:1: `flag` must be true or false, found the number 1"),
            (
                "mode = \"ftt\"",
                &[],
                "c.toml:1: `mode` must be `sequential` or `fft`, found \"ftt\"; did you mean `fft`?",
            ),
            (
                "list = [1,\n \"b\"]",
                &[],
                "c.toml:2: `list.1` must be a whole number of at least 0, found the string \"b\"",
            ),
            ("pair = [1]", &[], "c.toml:1: `pair` must be an array of length 2, found 1 elements"),
            ("pair = [1, 2, 3]", &[], "c.toml:1: `pair` has 3 elements, expected 2"),
            ("[inner]\n[inner.x]", &[], "c.toml:2: unknown key `inner.x`; the keys here are depth"),
            ("\n[inner]", &[], "c.toml:2: `inner.depth` is missing"),
            ("inner = 1", &[], "c.toml:1: `inner` must be a table, found the number 1"),
            (
                "count = 1",
                &["count=x"],
                "--set count=x: `count` must be a whole number of at least 0, found the string \"x\"",
            ),
        ] {
            assert_eq!(sample(text, overrides).unwrap_err(), expected);
        }
    }
}
