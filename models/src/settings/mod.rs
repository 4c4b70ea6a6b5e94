//! Settings of adapters: declared once, with their documentation, and read with errors that name the key.

mod read;
mod words;

pub use read::read;
pub use words::{alternatives, nearest, wrong_type, wrong_variant};

use serde::de::{self, Deserializer, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::marker::PhantomData;

/// Settings by key, as a configuration gives them.
pub type Table = Map<String, Value>;

/// A key of a configuration: its row in the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// Its default, as the documentation has it; empty where there is none.
    pub default: String,
    /// What it does.
    pub meaning: String,
}

impl Key {
    /// A row, `meaning` as a doc comment gives it.
    pub fn new(name: &str, default: &str, meaning: &str) -> Self {
        Key { name: name.to_owned(), default: default.to_owned(), meaning: meaning.trim().to_owned() }
    }
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct SettingsError {
    /// Its key, with a path behind it where it is inside an array or a table.
    pub key: String,
    /// What is wrong, to be read behind the key: "must be above 0, found -1".
    pub problem: String,
}

impl SettingsError {
    /// A problem with `key`.
    pub fn new(key: &str, problem: impl Into<String>) -> Self {
        SettingsError { key: key.to_owned(), problem: problem.into() }
    }

    /// `Ok` if `condition` holds.
    ///
    /// # Errors
    /// The problem with `key` otherwise.
    pub fn unless(condition: bool, key: &str, problem: impl FnOnce() -> String) -> Result<(), Self> {
        if condition { Ok(()) } else { Err(Self::new(key, problem())) }
    }
}

/// Declares a struct of settings whose doc comments are also its rows in the documentation: behind each field stands its
/// default as the documentation says it. A field without one is not a key of configurations.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)+)])?
                pub $field:ident: $type:ty $(= $default:literal)?
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)+)])?
                pub $field: $type,
            )+
        }

        impl $name {
            /// The keys of configurations with their documentation.
            pub fn keys() -> Vec<$crate::settings::Key> {
                let all: &[(&str, &[&str], &str)] =
                    &[$((stringify!($field), &[$($default)?], concat!($($doc),+))),+];
                let declared = all.iter().filter_map(|(name, default, meaning)| {
                    default.first().map(|default| $crate::settings::Key::new(name, default, meaning))
                });
                declared.collect()
            }
        }
    };
}
pub(crate) use settings;

/// The settings as a table.
///
/// # Errors
/// When they are not a struct with named fields.
pub fn write<S: Serialize>(settings: &S) -> Result<Table, SettingsError> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(table)) => Ok(table),
        Ok(_) => Err(SettingsError::new("settings", "must be a struct with named fields")),
        Err(error) => Err(SettingsError::new("settings", format!("cannot be written: {error}"))),
    }
}

/// A value alone or an array of them.
///
/// # Errors
/// When it is neither.
pub fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a name or an array of names")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Vec<T>, E> {
            T::deserialize(name.into_deserializer()).map(|one| vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                all.push(item);
            }
            Ok(all)
        }
    }

    from.deserialize_any(OneOrMany(PhantomData))
}
