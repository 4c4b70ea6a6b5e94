//! Whatever is done to the bytes of an adapter's files, reading them ends with an adapter or an error.

use hankel_core::{Random, Tensor};
use hankel_models::adapters::stream::Calibration;
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset, Lora, LoraConfig, Selective, StreamSite, selective};
use hankel_models::lti::OrderRule;
use hankel_models::lti::varying::Controllability;
use hankel_models::weights::HrmAdapterFile;
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder, DecoderConfig, SiteInput};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;

fn sizes() -> DecoderConfig {
    DecoderConfig {
        vocabulary: 16,
        d_model: 8,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        d_ff: 12,
        ..DecoderConfig::mistral_7b()
    }
}

/// One adapter of each kind, as it is written.
fn originals() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let model = Decoder::new(&sizes(), 0).unwrap();
        let hrm = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 3, 8, 16));
        for (name, config) in [("hrm", hrm), ("lora", AdapterConfig::linear::<Lora>(&LoraConfig::new(2)))] {
            let set = AdapterSet::new(&config, &model.placement(), 0).unwrap();
            set.save(&folder.path().join(name), Some("base")).unwrap();
        }
        // Truncated ones have projections of their own.
        let settings = selective::Settings { state_dim: 3, ..Default::default() };
        let config = AdapterConfig::stream::<Selective>(&settings).for_length(16);
        let set = AdapterSet::new(&config, &model.placement(), 0).unwrap();
        let mut calibration = Calibration::new(&set, Controllability::White).unwrap();
        let x = Random::new(0, "x", 0).normal_vec::<f32>(5 * 8, 1.0);
        let x = Tensor::from_vec(x, [1, 5, 8]).unwrap();
        let read = |layer| SiteInput { layer, site: StreamSite::Mlp, x: x.clone() };
        calibration.add(&[read(0), read(1)]).unwrap();
        let truncated = calibration.truncate(OrderRule::Order(2)).unwrap().adapters;
        truncated.save(&folder.path().join("stream"), None).unwrap();
        folder
    })
}

fn copy(from: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

fn read(folder: &Path) -> bool {
    let _ = HrmAdapterFile::load(folder);
    AdapterSet::load(folder, &sizes().placement(), 16).is_ok()
}

#[test]
fn undamaged_adapters_are_read() {
    for name in ["hrm", "lora", "stream"] {
        assert!(read(&originals().path().join(name)), "{name}");
    }
}

/// What a configuration speaks of and the weights lack is told: an adapter of a site, or sizes beyond what the file holds.
#[test]
fn weights_that_are_not_there_are_named() {
    for (name, from, to, expected) in [
        ("hrm", "\"site\": \"mlp\"", "\"site\": \"both\"", "layer 0 (attention) is missing"),
        (
            "stream",
            "\"state_dim\": 3",
            "\"state_dim\": 300000",
            "state_dim = 300000, but adapter_model.safetensors holds",
        ),
    ] {
        let folder = copy(&originals().path().join(name));
        let path = folder.path().join("adapter_config.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).unwrap();
        let message = AdapterSet::load(folder.path(), &sizes().placement(), 16).err().unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// A hold of real decay rates has positive poles: programs would read other modes under one as different systems.
#[test]
fn modes_that_go_with_no_hold_are_refused() {
    let folder = copy(&originals().path().join("hrm"));
    let path = folder.path().join("adapter_config.json");
    let mut config: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["mode"] = "signed".into();
    fs::write(&path, config.to_string()).unwrap();
    assert!(AdapterSet::load(folder.path(), &sizes().placement(), 16).is_ok());
    config["discretization"] = "zoh".into();
    fs::write(&path, config.to_string()).unwrap();
    let message = AdapterSet::load(folder.path(), &sizes().placement(), 16).err().unwrap().to_string();
    assert!(message.contains("goes with the discretization \"free\" only"), "{message}");
}

proptest! {
    #![proptest_config(hankel_tests::cases(300))]
    #[test]
    fn damaged_bytes_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
        kind in prop::sample::select(vec!["hrm", "lora", "stream"]),
        file in prop::sample::select(vec!["adapter_config.json", "adapter_model.safetensors"]),
    ) {
        let folder = copy(&originals().path().join(kind));
        let path = folder.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        for (index, byte) in edits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).unwrap();
        read(folder.path());
    }

    /// Numbers of a configuration replaced by others, the file well formed as before.
    #[test]
    fn strange_numbers_never_panic(
        kind in prop::sample::select(vec!["hrm", "lora"]),
        which in any::<prop::sample::Index>(),
        value in prop_oneof![
            Just("-1"), Just("0"), Just("1e308"), Just("18446744073709551615"), Just("null"), Just("\"x\""), Just("[]"),
            Just("{}"), Just("0.5"), Just("true"), Just("4294967296"),
        ],
    ) {
        let folder = copy(&originals().path().join(kind));
        let path = folder.path().join("adapter_config.json");
        let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let keys: Vec<String> = json.as_object().unwrap().keys().cloned().collect();
        json[which.get(&keys)] = serde_json::from_str(value).unwrap();
        fs::write(&path, json.to_string()).unwrap();
        read(folder.path());
    }
}
