//! The JSON schema of a settings type (draft 2020-12), as TOML has it.

use super::de::variants;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

pub(crate) type Object = Map<String, Value>;

/// The schema of a table, as TOML has it.
pub(crate) fn table<T: JsonSchema>() -> Object {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    plain(&mut schema);
    let Value::Object(mut table) = schema else { unreachable!("the schema of a struct is an object") };
    for key in ["$schema", "title"] {
        table.remove(key);
    }
    table.insert("additionalProperties".into(), false.into());
    table
}

/// The properties of a table's schema.
pub(crate) fn properties(table: &mut Object) -> &mut Object {
    let properties = table.entry("properties").or_insert_with(|| json!({}));
    properties.as_object_mut().expect("properties are an object")
}

/// TOML has no null, and every key may be given elsewhere.
fn plain(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Object(object) => {
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = &types[..] {
                    let only = only.clone();
                    object.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [only] = &mut choices[..] {
                    let only = std::mem::take(only);
                    object.remove("anyOf");
                    for (key, value) in only.as_object().into_iter().flatten() {
                        object.entry(key).or_insert_with(|| value.clone());
                    }
                }
            }
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            // `properties` and the like hold schemas by name, which may be any of these words.
            if object.get("type").is_none_or(|name| !name.is_object()) {
                object.retain(|key, value| match key.as_str() {
                    "format" => !value.is_string(),
                    "required" => !value.is_array(),
                    _ => true,
                });
            }
            object.values_mut().for_each(plain);
        }
        _ => {}
    }
}

/// A value that has a fixed set of names.
pub(crate) fn names<T: DeserializeOwned>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": variants::<T>() })
}

/// The schema of a settings type, as one value.
pub(crate) fn of<T: JsonSchema>() -> Value {
    table::<T>().into()
}
