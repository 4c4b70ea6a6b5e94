//! docs/configuration.md names every key, and every value of those that have a fixed set of them.

use super::*;
use hankel_models::adapters::{Discretization, HrmInput, HrmMode, Preset, RateInit, StreamSite, stream};
use hankel_models::linear::NormKind;
use hankel_models::lti::Method;
use hankel_models::tiny_gpt::Init;
use serde::de::DeserializeOwned;
use serde::de::value::{Error, MapDeserializer, StrDeserializer};

/// What a message of serde's lists behind what it found: "unknown field `?`, expected `a` or `b`".
fn listed<T>(read: Result<T, Error>) -> Vec<String> {
    let message = read.err().expect("there is nothing called `?`").to_string();
    message.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

fn keys<T: DeserializeOwned>() -> Vec<String> {
    listed(T::deserialize(MapDeserializer::new([("?", 0)].into_iter())))
}

fn values<T: DeserializeOwned>() -> Vec<String> {
    listed(T::deserialize(StrDeserializer::new("?")))
}

#[test]
fn every_key_and_every_value_is_in_the_documentation() {
    let page = include_str!("../../../../docs/configuration.md");
    let mut wanted = [
        keys::<TrainConfig>(),
        keys::<TinyGptConfig>(),
        keys::<MistralConfig>(),
        keys::<DfaConfig>(),
        keys::<MaxWindow>(),
        keys::<ParityConfig>(),
        keys::<SelectiveCopyConfig>(),
        keys::<BytesConfig>(),
        keys::<MaestroConfig>(),
        keys::<TextConfig>(),
        keys::<Roles>(),
        keys::<HrmConfig>(),
        keys::<LoraConfig>(),
        keys::<AdaLoraConfig>(),
        keys::<Ia3Config>(),
        keys::<StreamSettings>(),
        keys::<TruncateConfig>(),
        keys::<ReduceConfig>(),
        keys::<ProbeConfig>(),
        keys::<ExactnessConfig>(),
    ]
    .concat();
    assert!(wanted.contains(&"warmup_ratio".to_owned()) && wanted.contains(&"gate".to_owned()), "{wanted:?}");
    wanted.extend(adapter::COMMON_KEYS.iter().chain(read::TOP_LEVEL).map(|&key| key.to_owned()));
    wanted.extend(stream::kinds().into_iter().filter_map(stream::kind).flat_map(|kind| kind.keys()));
    let in_code = |key: &str| {
        let mut code = page.split('`').skip(1).step_by(2);
        code.any(|code| code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == key))
    };
    for key in wanted {
        assert!(in_code(&key), "docs/configuration.md says nothing of the key `{key}`");
    }
    let values = [
        values::<Precision>(),
        values::<DfaVariant>(),
        values::<ParityVariant>(),
        values::<TableKind>(),
        values::<Truncation>(),
        values::<NormKind>(),
        values::<Init>(),
        values::<Quantize>(),
        values::<KeptInputs>(),
        values::<Schedule>(),
        values::<Preset>(),
        values::<HrmMode>(),
        values::<HrmInput>(),
        values::<StreamSite>(),
        values::<Discretization>(),
        values::<RateInit>(),
        values::<Scan>(),
        values::<Method>(),
    ]
    .concat();
    let kinds = [task::KINDS, backbone::KINDS, adapter::KINDS, &stream::kinds()[..]].concat();
    for value in values.iter().map(String::as_str).chain(kinds) {
        assert!(page.contains(&format!("\"{value}\"")), "docs/configuration.md says nothing of the value {value:?}");
    }
}
