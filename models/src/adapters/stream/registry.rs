//! The kinds that configurations can name.

use super::{Place, StreamAdapter, StreamKind};
use crate::adapters::kinds::{Complex, HankelShared, Selective, StateOffset};
use hankel_core::{Error, Result};
use serde_json::{Map, Value};
use std::any::TypeId;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// Kinds that are not stream adapters of this interface.
const OTHERS: &[&str] = &["hrm", "lora", "dora", "adalora", "ia3", "full", "none"];
/// Settings that every kind has, or every `[[adapter]]`: a kind's own must have other names.
const TAKEN: &[&str] = &[
    "kind",
    "name",
    "path",
    "truncate",
    "reduce",
    "hsv_regularization",
    "probe",
    "exactness",
    "train",
    "sites",
    "input",
    "gate_init",
    "train_gate",
    "budget",
];

/// A registered kind.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The value of `adapter.kind`.
    pub name: &'static str,
    /// The setting that a budget is solved for.
    pub size: Option<&'static str>,
    of: TypeId,
    settings: fn(&Map<String, Value>) -> std::result::Result<Map<String, Value>, SettingsError>,
    build: fn(&Map<String, Value>, &Place<'_>) -> Result<Arc<dyn StreamAdapter>>,
}

/// A setting that a kind does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct SettingsError {
    /// Its name.
    pub key: String,
    /// What is wrong.
    pub problem: String,
}

static KINDS: LazyLock<RwLock<Vec<Kind>>> = LazyLock::new(|| {
    RwLock::new(vec![
        Kind::of::<Selective>(),
        Kind::of::<Complex>(),
        Kind::of::<HankelShared>(),
        Kind::of::<StateOffset>(),
    ])
});

/// Makes `K` a value of `adapter.kind`, for this process. Registering a type again changes nothing.
///
/// # Errors
/// When the name is that of another kind or no plain word, or a setting has the name of one that every adapter has.
pub fn register<K: StreamKind>() -> Result<()> {
    let new = Kind::of::<K>();
    let refuse = |problem: String| Err(Error::invalid("register", format!("kind {:?}: {problem}", new.name)));
    if new.name.is_empty() || !new.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return refuse("a name is made of letters, digits and `-`".to_owned());
    }
    if let Some(key) = new.keys().iter().find(|key| TAKEN.contains(&key.as_str())) {
        return refuse(format!("every adapter has a setting {key:?}: give its own another name"));
    }
    let mut kinds = KINDS.write().unwrap_or_else(PoisonError::into_inner);
    match kinds.iter().find(|kind| kind.name == new.name) {
        Some(kind) if kind.of == new.of => Ok(()),
        Some(_) => refuse("another type has this name".to_owned()),
        None if OTHERS.contains(&new.name) => refuse("another adapter has this name".to_owned()),
        None => {
            kinds.push(new);
            Ok(())
        }
    }
}

/// Names of all registered kinds.
pub fn kinds() -> Vec<&'static str> {
    KINDS.read().unwrap_or_else(PoisonError::into_inner).iter().map(|kind| kind.name).collect()
}

/// The kind of this name.
pub fn kind(name: &str) -> Option<Kind> {
    KINDS.read().unwrap_or_else(PoisonError::into_inner).iter().find(|kind| kind.name == name).copied()
}

/// What to say about a kind that is not there.
pub(super) fn unknown(name: &str) -> String {
    format!("the adapter kind {name:?} is not registered; there are {}", kinds().join(", "))
}

impl Kind {
    fn of<K: StreamKind>() -> Self {
        Kind {
            name: K::KIND,
            size: K::SIZE,
            of: TypeId::of::<K>(),
            settings: settings::<K>,
            build: |given, place| {
                let all = settings::<K>(given).map_err(|e| Error::invalid(K::KIND, e.to_string()))?;
                let all = parse::<K>(all).map_err(|problem| Error::invalid(K::KIND, problem))?;
                Ok(Arc::new(K::new(&all, place)?))
            },
        }
    }

    /// Names of the kind's own settings.
    pub fn keys(&self) -> Vec<String> {
        (self.settings)(&Map::new()).map(|all| all.keys().cloned().collect()).unwrap_or_default()
    }

    /// The kind's own settings in full: those given, and defaults.
    ///
    /// # Errors
    /// When there is no such setting or it takes no such value.
    pub fn settings(&self, given: &Map<String, Value>) -> std::result::Result<Map<String, Value>, SettingsError> {
        (self.settings)(given)
    }

    pub(super) fn build(&self, given: &Map<String, Value>, place: &Place<'_>) -> Result<Arc<dyn StreamAdapter>> {
        (self.build)(given, place)
    }
}

fn parse<K: StreamKind>(all: Map<String, Value>) -> std::result::Result<K::Settings, String> {
    serde_json::from_value(Value::Object(all)).map_err(|e| e.to_string())
}

fn settings<K: StreamKind>(given: &Map<String, Value>) -> std::result::Result<Map<String, Value>, SettingsError> {
    let fail = |key: &str, problem: String| SettingsError { key: key.to_owned(), problem };
    let written = |settings: &K::Settings| match serde_json::to_value(settings) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(fail("settings", "are not a struct with named fields".to_owned())),
        Err(error) => Err(fail("settings", error.to_string())),
    };
    let defaults = written(&K::Settings::default())?;
    let mut all = defaults.clone();
    for (key, value) in given {
        if !defaults.contains_key(key) {
            let known: Vec<&str> = defaults.keys().map(String::as_str).collect();
            return Err(fail(key, format!("no such setting; there are {}", known.join(", "))));
        }
        // One at a time, so that the message names the culprit.
        let mut one = defaults.clone();
        one.insert(key.clone(), value.clone());
        parse::<K>(one).map_err(|problem| fail(key, problem))?;
        all.insert(key.clone(), value.clone());
    }
    let all = parse::<K>(all).map_err(|problem| fail("settings", problem))?;
    written(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::stream::Memory;
    use crate::adapters::{AdapterConfig, AdapterSet, Placement, StreamConfig, StreamSite};
    use crate::parameter::Parameter;
    use hankel_core::Tensor;
    use serde::{Deserialize, Serialize};

    struct Named<const I: usize>;

    #[derive(Default, Serialize, Deserialize)]
    struct Settings {
        gate_init: f64,
    }

    impl<const I: usize> StreamAdapter for Named<I> {
        fn parameters(&self) -> Vec<Parameter> {
            Vec::new()
        }
        fn forward(&self, x: &Tensor, _: Option<&Memory>) -> Result<(Tensor, Memory)> {
            Ok((x.clone(), Memory::new()))
        }
    }

    macro_rules! kind {
        ($number:literal, $name:literal, $settings:ty) => {
            impl StreamKind for Named<$number> {
                const KIND: &'static str = $name;
                type Settings = $settings;
                fn new(_: &$settings, _: &Place<'_>) -> Result<Self> {
                    Ok(Named)
                }
            }
        };
    }
    kind!(0, "one-of-its-kind", Map<String, Value>);
    kind!(1, "selective", Map<String, Value>);
    kind!(2, "lora", Map<String, Value>);
    kind!(3, "a.b", Map<String, Value>);
    kind!(4, "another", Settings);

    #[test]
    fn names_are_taken_once() {
        let placement = Placement { layers: 1, d_model: 4, linear: Vec::new(), stream: vec![StreamSite::Mlp] };
        let config = AdapterConfig::Stream(StreamConfig::new("one-of-its-kind", 9));
        let unknown = AdapterSet::new(&config, &placement, 0).err().unwrap().to_string();
        assert!(unknown.contains("\"one-of-its-kind\" is not registered; there are selective, complex"), "{unknown}");
        register::<Named<0>>().unwrap();
        register::<Named<0>>().unwrap();
        assert_eq!(AdapterSet::new(&config, &placement, 0).unwrap().trainable_count(), 1);
        let refused = |result: Result<()>, expected: &str| {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        refused(register::<Named<1>>(), "another type has this name");
        refused(register::<Named<2>>(), "another adapter has this name");
        refused(register::<Named<3>>(), "letters, digits and `-`");
        refused(register::<Named<4>>(), "every adapter has a setting \"gate_init\"");
    }

    #[test]
    fn sizes_beyond_reason_are_refused() {
        let placement = Placement { layers: 1, d_model: 4, linear: Vec::new(), stream: vec![StreamSite::Mlp] };
        for (key, value) in [("state_dim", u64::MAX), ("selection_rank", u64::MAX), ("selection_rank", 1 << 62)] {
            let config = AdapterConfig::Stream(StreamConfig::new("selective", 9).with(key, value));
            assert!(AdapterSet::new(&config, &placement, 0).is_err(), "{key} = {value}");
        }
    }
}
