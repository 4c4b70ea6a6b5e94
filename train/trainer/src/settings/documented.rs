//! Tests that docs/configuration.md names the keys and values of settings.

use serde::de::DeserializeOwned;
use serde::de::value::{Error, MapDeserializer, StrDeserializer};

/// What a message of serde's lists behind what it found: "unknown field `?`, expected `a` or `b`".
fn listed<T>(read: Result<T, Error>) -> Vec<String> {
    let message = read.err().expect("there is nothing called `?`").to_string();
    message.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

/// The keys of a table.
pub(crate) fn keys<T: DeserializeOwned>() -> Vec<String> {
    listed(T::deserialize(MapDeserializer::new([("?", 0)].into_iter())))
}

/// The values of a key that has a fixed set of them.
pub(crate) fn values<T: DeserializeOwned>() -> Vec<String> {
    listed(T::deserialize(StrDeserializer::new("?")))
}

/// Fails when docs/configuration.md does not name one of the keys or values.
#[track_caller]
pub(crate) fn assert_documented(keys: &[Vec<String>], values: &[Vec<String>]) {
    let page = include_str!("../../../../docs/configuration.md");
    let in_code = |key: &str| {
        let mut code = page.split('`').skip(1).step_by(2);
        code.any(|code| code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == key))
    };
    for key in keys.iter().flatten() {
        assert!(in_code(key), "docs/configuration.md does not name the key `{key}`");
    }
    for value in values.iter().flatten() {
        assert!(page.contains(&format!("\"{value}\"")), "docs/configuration.md does not name the value {value:?}");
    }
}
