//! docs/configuration.md names every key, and every value of those that have a fixed set of them.

use super::*;
use crate::settings::documented::{assert_documented, keys, values};
use hankel_models::adapters::{Discretization, HrmInput, HrmMode, Kind, Preset, RateInit, StreamSite, kinds};
use hankel_models::linear::NormKind;
use hankel_models::lti::Method;
use hankel_models::tiny_gpt::Init;

#[test]
fn every_key_and_every_value_is_in_the_documentation() {
    let mut wanted = [
        keys::<TrainConfig>(),
        keys::<TinyGptConfig>(),
        keys::<DecoderConfig>(),
        keys::<TruncateConfig>(),
        keys::<Timing>(),
        keys::<ProbeConfig>(),
        keys::<ExactnessConfig>(),
    ]
    .concat();
    assert!(wanted.contains(&"warmup_ratio".to_owned()) && wanted.contains(&"gate".to_owned()), "{wanted:?}");
    wanted.extend(adapter::COMMON_KEYS.iter().chain(read::TOP_LEVEL).map(|&key| key.to_owned()));
    wanted.extend(kinds().into_iter().flat_map(Kind::keys).map(|key| key.name));
    let values = [
        values::<Precision>(),
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
        values::<Method>(),
    ]
    .concat();
    let kinds = [backbone::KINDS, &method::names()[..]].concat();
    let kinds = kinds.into_iter().map(str::to_owned).collect();
    assert_documented(&[wanted], &[values, kinds]);
}
