//! Values of the metadata by key and kind.

use super::{Array, Gguf, Value};
use crate::weights::Result;

impl Gguf {
    fn of_kind<'a, T>(&'a self, key: &str, expected: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.metadata().get(key) else { return Ok(None) };
        match read(value) {
            Some(found) => Ok(Some(found)),
            None => Err(self.fail(format!("{key} is {}, expected {expected}", value.describe()))),
        }
    }

    /// The string at `key`, if the key is there.
    ///
    /// # Errors
    /// When it is of another kind, as with the others.
    pub fn string(&self, key: &str) -> Result<Option<&str>> {
        self.of_kind(key, "a string", |value| match value {
            Value::String(value) => Some(&value[..]),
            _ => None,
        })
    }

    /// The whole number at `key`, 0 or more.
    pub(super) fn size(&self, key: &str) -> Result<Option<usize>> {
        self.of_kind(key, "a whole number, 0 or more", |value| match value {
            Value::Integer(value) => usize::try_from(*value).ok(),
            _ => None,
        })
    }

    /// The number at `key`.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.of_kind(key, "a number", |value| match value {
            Value::Integer(value) => Some(*value as f64),
            Value::Float(value) => Some(*value),
            _ => None,
        })
    }

    /// The truth value at `key`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.of_kind(key, "true or false", |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    fn array<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Array) -> Option<T>,
    ) -> Result<Option<(usize, T)>> {
        self.of_kind(key, expected, |value| match value {
            Value::Array(array) => read(array).map(|elements| (array.len(), elements)),
            _ => None,
        })
    }

    /// The strings at `key`, and how many they are.
    pub(super) fn strings(&self, key: &str) -> Result<Option<(usize, impl Iterator<Item = &str> + use<'_>)>> {
        self.array(key, "an array of strings", |array| array.strings(self.file()))
    }

    /// The numbers at `key`, and how many they are.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<(usize, impl Iterator<Item = f64> + use<'_>)>> {
        self.array(key, "an array of numbers", |array| array.numbers(self.file()))
    }
}
