//! From values to typed settings: a serde deserializer whose errors name the key and say what is wrong in plain words.

use super::words::{wrong_type, wrong_variant};
use super::{SettingsError, Table};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess};
use serde::de::{Unexpected, Visitor};
use serde_json::Value;
use std::fmt::Display;

/// Reads `T` from a table.
///
/// # Errors
/// Names the key and what is wrong with it.
pub fn read<T: DeserializeOwned>(table: &Table) -> Result<T, SettingsError> {
    T::deserialize(de::value::MapAccessDeserializer::new(Entries { entries: table.iter(), value: None }))
}

impl de::Error for SettingsError {
    fn custom<T: Display>(message: T) -> Self {
        SettingsError::new("", message.to_string())
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
        Self::custom(wrong_variant(variant, expected))
    }
    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        SettingsError::new(key, format!("is not a setting here; there are {}", known.join(", ")))
    }
    fn missing_field(key: &'static str) -> Self {
        SettingsError::new(key, "is missing".to_owned())
    }
}

impl SettingsError {
    /// The same error of something inside `key`.
    fn inside(mut self, key: &str) -> Self {
        self.key = if self.key.is_empty() { key.to_owned() } else { format!("{key}.{}", self.key) };
        self
    }
}

struct Reader<'a>(&'a Value);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = SettingsError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingsError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => visitor.visit_i64(number),
                (None, Some(number)) => visitor.visit_u64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Object(table) => visitor.visit_map(Entries { entries: table.iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingsError> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, SettingsError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SettingsError> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            other => Err(wrong_enum(other, variants)),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

fn wrong_enum(value: &Value, variants: &'static [&'static str]) -> SettingsError {
    let unexpected = match value {
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(number) => {
            number.as_i64().map_or(Unexpected::Float(number.as_f64().unwrap_or(0.0)), Unexpected::Signed)
        }
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
        _ => Unexpected::Other("nothing"),
    };
    <SettingsError as de::Error>::custom(wrong_type(&unexpected, &super::words::alternatives(variants).as_str()))
}

struct Items<'a>(std::iter::Enumerate<std::slice::Iter<'a, Value>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = SettingsError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, SettingsError> {
        let Some((index, value)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Reader(value)).map(Some).map_err(|error| error.inside(&index.to_string()))
    }
}

struct Entries<'a> {
    entries: serde_json::map::Iter<'a>,
    value: Option<(&'a String, &'a Value)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = SettingsError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SettingsError> {
        self.value = self.entries.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        let key: de::value::StrDeserializer<'_, SettingsError> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, SettingsError> {
        let (key, value) =
            self.value.take().ok_or_else(|| <SettingsError as de::Error>::custom("is read out of order"))?;
        seed.deserialize(Reader(value)).map_err(|error| error.inside(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only errors are looked at")]
    struct Sample {
        count: Option<usize>,
        rate: Option<f64>,
        mode: Option<Mode>,
        list: Option<Vec<usize>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Mode {
        Sequential,
        Fft,
    }

    #[test]
    fn errors_name_the_key_and_the_problem() {
        for (value, expected) in [
            (json!({ "count": -1 }), "count must be a whole number of at least 0, found the number -1"),
            (json!({ "count": "a" }), "count must be a whole number of at least 0, found the string \"a\""),
            (json!({ "rate": true }), "rate must be a number, found `true`"),
            (json!({ "mode": "ftt" }), "mode must be `sequential` or `fft`, found \"ftt\"; did you mean `fft`?"),
            (json!({ "mode": 1 }), "mode must be `sequential` or `fft`, found the number 1"),
            (json!({ "list": [1, "b"] }), "list.1 must be a whole number of at least 0, found the string \"b\""),
            (json!({ "other": 1 }), "other is not a setting here; there are count, rate, mode, list"),
        ] {
            let Value::Object(table) = value else { unreachable!("every case is a table") };
            assert_eq!(read::<Sample>(&table).unwrap_err().to_string(), expected);
        }
        let Value::Object(table) = json!({ "rate": 3, "mode": "fft", "list": null }) else { unreachable!() };
        let sample = read::<Sample>(&table).unwrap();
        assert!(sample.rate == Some(3.0) && matches!(sample.mode, Some(Mode::Fft)) && sample.list.is_none());
    }
}
