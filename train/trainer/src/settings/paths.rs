//! One path or several.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

/// Files: a string, or an array of strings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths(pub Vec<PathBuf>);

impl JsonSchema for Paths {
    fn schema_name() -> Cow<'static, str> {
        "Paths".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
    }
}

impl Serialize for Paths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [path] => path.serialize(serializer),
            paths => paths.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Paths;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path or an array of paths")
            }
            fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<Paths, E> {
                Ok(Paths(vec![path.into()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Paths, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = items.next_element()? {
                    paths.push(path);
                }
                Ok(Paths(paths))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}
