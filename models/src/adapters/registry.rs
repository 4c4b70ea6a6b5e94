//! The kinds that configurations can name: a line for each.

use super::adalora::AdaLora;
use super::delta::Delta;
use super::dora::Dora;
use super::hankel_shared::HankelShared;
use super::householder::Householder;
use super::hrm::Hrm;
use super::ia3::Ia3;
use super::kind::{Context, Kind};
use super::linear::{LinearEntry, LinearKind};
use super::lora::Lora;
use super::rotation::Rotation;
use super::selective::Selective;
use super::state_offset::StateOffset;
use super::stream::{SiteSettings, StreamEntry, StreamKind};
use super::{Placement, StreamSite};
use crate::settings::{self, Key, Table, nearest};
use hankel_core::{Error, Result};
use std::sync::{LazyLock, PoisonError, RwLock};

static KINDS: LazyLock<RwLock<Vec<Kind>>> = LazyLock::new(|| {
    RwLock::new(vec![
        StreamEntry::<Hrm>::kind(),
        LinearEntry::<Lora>::kind(),
        LinearEntry::<Dora>::kind(),
        LinearEntry::<AdaLora>::kind(),
        LinearEntry::<Ia3>::kind(),
        StreamEntry::<Selective>::kind(),
        StreamEntry::<Rotation>::kind(),
        StreamEntry::<Householder>::kind(),
        StreamEntry::<Delta>::kind(),
        StreamEntry::<HankelShared>::kind(),
        StreamEntry::<StateOffset>::kind(),
    ])
});

/// Kinds that there were, and what to write instead.
const RETIRED: &[(&str, &str)] = &[(
    "complex",
    "`kind = \"hrm\"` has these poles: write `mode = \"complex\"` and `state_dim`, which is two states for each of `pairs`",
)];

/// Keys of `[[adapter]]` that every kind has: its settings must have other names.
pub const COMMON_KEYS: &[&str] =
    &["kind", "name", "path", "budget", "truncate", "reduce", "hsv_regularization", "probe", "exactness", "train"];
/// Words of the trainer: a kind must have another name.
const RESERVED_KINDS: &[&str] = &["full", "none"];

/// Makes the stream adapter `K` a value of `adapter.kind`, for this process. Registering a type again changes nothing.
///
/// # Errors
/// When the name is that of another kind or no plain word, a setting has the name of one that every adapter has, or `SIZE`, `OUTPUT_STD`
/// or `REQUIRED` name none of the settings.
pub fn register<K: StreamKind>() -> Result<()> {
    let named = K::SIZE.iter().chain(&K::OUTPUT_STD).chain(K::REQUIRED);
    let defaults = settings::write(&K::defaults(&Table::new(), &anywhere()));
    add(StreamEntry::<K>::kind(), named, &K::keys(), &defaults.unwrap_or_default(), &SiteSettings::keys())
}

/// As [`register`] for an adapter of projections.
///
/// # Errors
/// As [`register`].
pub fn register_linear<K: LinearKind>() -> Result<()> {
    let named = K::SIZE.iter().chain(K::REQUIRED);
    let defaults = settings::write(&K::defaults(&Table::new(), &anywhere()));
    add(LinearEntry::<K>::kind(), named, &K::keys(), &defaults.unwrap_or_default(), &[])
}

fn anywhere() -> Context<'static> {
    static PLACEMENT: LazyLock<Placement> =
        LazyLock::new(|| Placement { layers: 1, d_model: 2, linear: Vec::new(), stream: vec![StreamSite::Mlp] });
    Context { placement: &PLACEMENT, length: 2, steps: None, pretrained: false }
}

/// Adds a kind with these keys and defaults; `named` are settings that it names, `common` the keys that all like it have.
fn add<'a>(
    new: Kind,
    mut named: impl Iterator<Item = &'a &'static str>,
    keys: &[Key],
    defaults: &Table,
    common: &[Key],
) -> Result<()> {
    let name = new.name();
    let refuse = |problem: String| Err(Error::invalid("register", format!("kind {name:?}: {problem}")));
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return refuse("a name is made of letters, digits and `-`".to_owned());
    }
    // A setting without documentation is known by its default.
    let is_known = |name: &str| defaults.contains_key(name) || keys.iter().any(|key| key.name == name);
    if let Some(unknown) = named.find(|name| !is_known(name)) {
        return refuse(format!("{unknown:?}, which `SIZE`, `OUTPUT_STD` or `REQUIRED` names, is none of its settings"));
    }
    let is_taken = |key: &str| COMMON_KEYS.contains(&key) || common.iter().any(|taken| taken.name == key);
    if let Some(key) = keys.iter().find(|key| is_taken(&key.name)) {
        return refuse(format!("every adapter has a setting {:?}: give its own another name", key.name));
    }
    let mut kinds = KINDS.write().unwrap_or_else(PoisonError::into_inner);
    match kinds.iter().find(|kind| kind.name() == name) {
        Some(kind) if *kind == new => Ok(()),
        Some(_) => refuse("another type has this name".to_owned()),
        None if RESERVED_KINDS.contains(&name) => refuse("another adapter has this name".to_owned()),
        None => {
            kinds.push(new);
            Ok(())
        }
    }
}

/// All kinds, in the order of their registration.
pub fn kinds() -> Vec<Kind> {
    KINDS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The kind of this name.
pub fn kind(name: &str) -> Option<Kind> {
    kinds().into_iter().find(|kind| kind.name() == name)
}

/// What to write instead of a kind that there was once.
pub fn replacement(name: &str) -> Option<&'static str> {
    RETIRED.iter().find(|(retired, _)| *retired == name).map(|(_, replacement)| *replacement)
}

/// What to say about a kind that is not there.
pub(super) fn unknown(name: &str) -> String {
    if let Some(replacement) = replacement(name) {
        return format!("the adapter kind {name:?} was removed: {replacement}");
    }
    let all = kinds();
    let names: Vec<&str> = all.iter().map(|kind| kind.name()).collect();
    let hint =
        nearest(name, names.iter().copied()).map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    format!("the adapter kind {name:?} is not registered; there are {}{hint}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::linear::peft::Fields;
    use crate::adapters::linear::{LinearAdapter, LinearContext, WeightChange};
    use crate::adapters::placement::LinearSite;
    use crate::adapters::selective;
    use crate::adapters::stream::{Memory, SiteContext, StreamAdapter};
    use crate::adapters::{AdapterConfig, AdapterSet};
    use crate::linear::Linear;
    use crate::parameter::Parameter;
    use crate::pass::Pass;
    use crate::settings::SettingsError;
    use crate::weights;
    use hankel_core::Tensor;
    use serde::{Deserialize, Serialize};
    use serde_json::{Map, Value};

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
        ($number:literal, $name:literal, $settings:ty $(, $size:literal)?) => {
            impl StreamKind for Named<$number> {
                const KIND: &'static str = $name;
                $(const SIZE: Option<&'static str> = Some($size);)?
                type Settings = $settings;
                fn new(_: &$settings, _: &SiteContext<'_>) -> Result<Self> {
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
    kind!(5, "mistyped", Map<String, Value>, "szie");

    /// A budget could not be solved for: its size would be set, and read by nobody.
    struct Projection;

    impl LinearAdapter for Projection {
        fn path(&self) -> &'static str {
            "projection"
        }
        fn parameters(&self) -> Vec<Parameter> {
            Vec::new()
        }
        fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, _: &Pass) -> Result<Tensor> {
            layer.plain(base, x)
        }
        fn weight_change(&self) -> Result<WeightChange> {
            Err(Error::invalid("projection", "it changes nothing"))
        }
    }

    impl LinearKind for Projection {
        const KIND: &'static str = "projection";
        const SIZE: Option<&'static str> = Some("rnak");
        const PEFT_TYPE: &'static str = "PROJECTION";
        type Settings = Table;
        fn keys() -> Vec<Key> {
            vec![Key::new("rank", "", "Rank of the update.")]
        }
        fn defaults(given: &Table, _: &Context<'_>) -> Table {
            given.clone()
        }
        fn targets(_: &Table) -> &[String] {
            &[]
        }
        fn check(_: &Table) -> std::result::Result<(), SettingsError> {
            Ok(())
        }
        fn new(_: &Table, _: &LinearContext<'_>) -> Result<Self> {
            Ok(Projection)
        }
        fn count(_: &Table, _: usize, _: &LinearSite) -> usize {
            0
        }
        fn describe(_: &Table) -> String {
            String::new()
        }
        fn write_peft(settings: &Table) -> Table {
            settings.clone()
        }
        fn read_peft(_: &Fields<'_>) -> weights::Result<Table> {
            Ok(Table::new())
        }
    }

    fn placement() -> Placement {
        Placement { layers: 1, d_model: 4, linear: Vec::new(), stream: vec![StreamSite::Mlp] }
    }

    #[test]
    fn names_are_taken_once() {
        assert!(kind("one-of-its-kind").is_none());
        let message = unknown("selectve");
        assert!(
            message.contains("not registered; there are hrm, lora") && message.contains("\"selective\"?"),
            "{message}"
        );
        register::<Named<0>>().unwrap();
        register::<Named<0>>().unwrap();
        let config = AdapterConfig::stream::<Named<0>>(&Map::new());
        assert_eq!(AdapterSet::new(&config, &placement(), 0).unwrap().trainable_count(), 1);
        let refused = |result: Result<()>, expected: &str| {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        refused(register::<Named<1>>(), "another type has this name");
        refused(register::<Named<2>>(), "another type has this name");
        refused(register::<Named<3>>(), "letters, digits and `-`");
        refused(register::<Named<4>>(), "every adapter has a setting \"gate_init\"");
        let misspelt =
            |name: &str| format!("{name:?}, which `SIZE`, `OUTPUT_STD` or `REQUIRED` names, is none of its settings");
        refused(register::<Named<5>>(), &misspelt("szie"));
        refused(register_linear::<Projection>(), &misspelt("rnak"));
    }

    /// Documentation and configuration come from the same struct: its keys are those that it is written with.
    #[test]
    fn every_key_is_documented() {
        let placement = crate::TinyGptConfig::default().placement();
        let context = Context { placement: &placement, length: 16, steps: Some(100), pretrained: false };
        for kind in kinds().into_iter().filter(|kind| !kind.about().is_empty()) {
            let config = kind.configure(&Table::new(), &context).unwrap();
            for Key { name, default, meaning } in kind.keys() {
                assert!(config.settings().contains_key(&name) && !meaning.is_empty(), "{kind:?}: {name}");
                // What stands there as a value is the value; of several, the first is that of a backbone drawn at random.
                let written = default.split(';').next().unwrap_or_default().trim_matches('`');
                // `auto` is resolved.
                if let Ok(written) = serde_json::from_str::<Value>(written)
                    && written != "auto"
                {
                    let own = &config.settings()[&name];
                    let is_same = *own == written || own.is_number() && own.as_f64() == written.as_f64();
                    assert!(is_same, "{kind:?}: {name} is {own}, and {written} in the documentation");
                }
            }
            assert!(config.parameter_count(&placement).unwrap() > 0 && !config.describe().is_empty());
        }
    }

    #[test]
    fn sizes_beyond_reason_are_refused() {
        for (key, value) in [("state_dim", u64::MAX), ("selection_rank", u64::MAX), ("selection_rank", 1 << 62)] {
            let config = AdapterConfig::stream::<Selective>(&selective::Settings::default()).for_length(9);
            assert!(AdapterSet::new(&config.with(key, value), &placement(), 0).is_err(), "{key} = {value}");
        }
    }
}
