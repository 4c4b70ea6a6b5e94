//! docs/configuration.md names every key, and every value of those that have a fixed set of them.

use super::*;
use crate::settings::documented::{assert_documented, keys, values};
use hankel_models::adapters::stream::SiteSettings;
use hankel_models::adapters::{
    COMMON_KEYS, Discretization, HrmMode, HrmPreset, Kind, RateInit, Sites, StreamInput, StreamSite, kinds,
};
use hankel_models::linear::NormKind;
use hankel_models::lti::Method;
use hankel_models::settings::Key;
use hankel_models::tiny_gpt::Init;

/// The tables of docs/configuration.md that the kinds themselves declare.
fn adapter_keys() -> String {
    let table = |title: &str, keys: &[Key]| {
        let row = |key: &Key| format!("| `{}` | {} | {} |\n", key.name, key.default, key.meaning);
        format!("{title}\n\n| key | default | |\n| --- | --- | --- |\n{}\n", keys.iter().map(row).collect::<String>())
    };
    let sites = SiteSettings::keys();
    let own = |kind: Kind| -> Vec<Key> {
        kind.keys().into_iter().filter(|key| kind.sites() == Sites::Linear || !sites.contains(key)).collect()
    };
    let on_the_stream = kinds().into_iter().filter(|kind| kind.sites() == Sites::Stream);
    let names: Vec<String> = on_the_stream.map(|kind| format!("`{}`", kind.name())).collect();
    let mut text = table(&format!("Every kind on the stream ({}):", names.join(", ")), &sites);
    for kind in kinds() {
        if !own(kind).is_empty() {
            text += &table(&format!("`kind = \"{}\"`. {}", kind.name(), kind.about()), &own(kind));
        }
    }
    text
}

/// `HANKEL_UPDATE_DOCS=1 cargo test -p hankel-trainer adapter_keys` writes them.
#[test]
fn adapter_keys_are_those_of_the_kinds() {
    const BEGIN: &str = "<!-- keys of adapters: written by the test adapter_keys_are_those_of_the_kinds -->\n";
    const END: &str = "<!-- end of keys of adapters -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the tables begin");
    let (tables, behind) = rest.split_once(END).expect("where the tables end");
    let wanted = format!("\n{}", adapter_keys());
    if std::env::var_os("HANKEL_UPDATE_DOCS").is_some() {
        std::fs::write(path, [before, BEGIN, &wanted, END, behind].concat()).unwrap();
    } else {
        assert_eq!(tables, wanted, "docs/configuration.md is out of date: set HANKEL_UPDATE_DOCS=1 and run this test");
    }
}

#[test]
fn every_key_and_every_value_is_in_the_documentation() {
    let mut wanted = [
        keys::<TrainConfig>(),
        keys::<TinyGptConfig>(),
        TinyGptConfig::model_keys().into_iter().map(str::to_owned).collect(),
        keys::<DecoderConfig>(),
        keys::<TruncateConfig>(),
        keys::<Timing>(),
        keys::<ProbeConfig>(),
        keys::<ExactnessConfig>(),
    ]
    .concat();
    assert!(wanted.contains(&"warmup_ratio".to_owned()) && wanted.contains(&"gate".to_owned()), "{wanted:?}");
    wanted.extend(COMMON_KEYS.iter().chain(read::TOP_LEVEL).map(|&key| key.to_owned()));
    wanted.extend(kinds().into_iter().flat_map(Kind::keys).map(|key| key.name));
    let values = [
        values::<Precision>(),
        values::<NormKind>(),
        values::<Init>(),
        values::<Quantize>(),
        values::<KeptInputs>(),
        values::<Schedule>(),
        values::<Keep>(),
        values::<HrmPreset>(),
        values::<HrmMode>(),
        values::<StreamInput>(),
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
