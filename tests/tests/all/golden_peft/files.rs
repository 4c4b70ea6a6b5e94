//! Adapter directories that PEFT wrote: read, written back, and merged into the weights they belong to.

use super::golden;
use hankel_core::{DType, Tensor};
use hankel_models::DecoderConfig;
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset, Placement};
use hankel_models::{AdapterConfig, AdapterSet};
use hankel_tests::golden::Golden;
use proptest::prelude::*;
use safetensors::SafeTensors;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Directories of adapters, with the golden case beside those that have one.
const ADAPTERS: [(&str, Option<&str>); 10] = [
    ("lora_qv/adapter", Some("lora_qv/io")),
    ("lora_all/adapter", Some("lora_all/io")),
    ("rslora/adapter", Some("rslora/io")),
    ("dora_qv/adapter", Some("dora_qv/io")),
    ("adalora/adapter", Some("adalora/io")),
    ("ia3/adapter", Some("ia3/io")),
    ("train_lora/trained", None),
    ("train_lora_sched/trained", None),
    ("train_dora/trained", None),
    ("train_adalora/trained", None),
];

/// The sites of `mistral/window`.
fn placement() -> Placement {
    let sizes = DecoderConfig {
        layers: 3,
        d_model: 64,
        heads: 4,
        kv_heads: 1,
        head_dim: 16,
        d_ff: 160,
        ..DecoderConfig::mistral_7b()
    };
    sizes.placement()
}

fn json(path: &Path) -> Map<String, Value> {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Every tensor's type, shape and bytes.
fn tensors(path: &Path) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let entry = |(name, view): (String, safetensors::tensor::TensorView)| {
        (name, (format!("{:?}", view.dtype()), view.shape().to_vec(), view.data().to_vec()))
    };
    file.tensors().into_iter().map(entry).collect()
}

/// A list of names without its order, which PEFT's sets do not keep.
fn unordered(value: &Value) -> Value {
    let Some(list) = value.as_array().filter(|list| list.iter().all(Value::is_string)) else { return value.clone() };
    let mut list = list.clone();
    list.sort_by_key(ToString::to_string);
    Value::Array(list)
}

#[test]
fn directories_survive_reading_and_writing() {
    for (name, _) in ADAPTERS {
        let directory = golden("peft").join(name);
        let set = AdapterSet::load(&directory, &placement(), 32).unwrap();
        let written = tempfile::tempdir().unwrap();
        let path = written.path().join("adapter");
        let theirs = json(&directory.join("adapter_config.json"));
        set.save(&path, theirs["base_model_name_or_path"].as_str()).unwrap();
        let ours = json(&path.join("adapter_config.json"));
        for (key, value) in &ours {
            let expected = theirs.get(key).unwrap_or_else(|| panic!("{name}: PEFT has no {key}"));
            // A number written as 8 or 8.0 is the same to Python.
            let same = match (value.as_f64(), expected.as_f64()) {
                (Some(x), Some(y)) => x == y,
                _ => unordered(value) == unordered(expected),
            };
            let empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
            assert!(same || (empty(value) && empty(expected)), "{name}: {key} is {value}, PEFT has {expected}");
        }
        let file = "adapter_model.safetensors";
        assert_eq!(tensors(&path.join(file)), tensors(&directory.join(file)), "{name}");
        assert_eq!(AdapterSet::load(&path, &placement(), 32).unwrap().config(), set.config(), "{name}");
    }
}

#[test]
fn merged_weights() {
    let bytes = std::fs::read(golden("mistral/window/hf/model.safetensors")).unwrap();
    let weights = SafeTensors::deserialize(&bytes).unwrap();
    for (name, case) in ADAPTERS {
        let Some(case) = case else { continue };
        let golden_case = Golden::read(&format!("peft/{case}"));
        let set = AdapterSet::load(&golden("peft").join(name), &placement(), 32).unwrap();
        let mut checked = 0;
        for adapted in set.merged_names() {
            let key = format!("merged.{adapted}");
            if !golden_case.has(&key) {
                continue;
            }
            let view = weights.tensor(&adapted).unwrap();
            let values = view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            let weight = Tensor::from_vec(values, view.shape()).unwrap();
            for dtype in [DType::F32, DType::F64] {
                let (merged, report) = set.merge_tensor(&adapted, &weight, dtype).unwrap().unwrap();
                golden_case.check(&key, DType::F32, &merged.to_f64_vec());
                assert!(report.update > 0.01 && report.drift < 1e-7, "{name}: {report:?}");
            }
            checked += 1;
        }
        assert!(checked > 0, "{name}: no merged weight among the golden tensors");
    }
}

#[test]
fn ranks_of_a_pruned_adapter() {
    let directory = golden("peft/train_adalora/trained");
    let set = AdapterSet::load(&directory, &placement(), 32).unwrap();
    let ranks: Vec<usize> = set.linears().filter_map(|(_, adapter)| adapter.rank()).collect();
    assert_eq!(ranks, [5, 3, 4, 3, 1, 2]);
}

#[test]
fn a_backbone_of_other_shapes_is_refused() {
    let load = |change: &dyn Fn(&mut Placement)| {
        let mut other = placement();
        change(&mut other);
        AdapterSet::load(&golden("peft/lora_qv/adapter"), &other, 32).map(|_| ()).unwrap_err().to_string()
    };
    let message = load(&|p| p.linear[2].outputs = 64);
    assert!(message.contains("v_proj.lora_B.weight has shape [16, 4], expected [64, 4]"), "{message}");
    let message = load(&|p| p.layers = 2);
    assert!(message.contains("model.layers.2.") && message.contains("does not belong"), "{message}");
    let message = load(&|p| p.layers = 4);
    assert!(message.contains("model.layers.3.") && message.contains("is missing"), "{message}");
}

proptest! {
    #![proptest_config(hankel_tests::cases(300))]
    /// Whatever is done to the bytes of an adapter's files, reading them ends with an adapter or an error.
    #[test]
    fn damaged_bytes_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
                                 cut in prop::option::of(any::<prop::sample::Index>()),
                                 which in 0..ADAPTERS.len() + 1, settings in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        if let Some((name, _)) = ADAPTERS.get(which) {
            for file in ["adapter_config.json", "adapter_model.safetensors"] {
                std::fs::copy(golden("peft").join(name).join(file), folder.path().join(file)).unwrap();
            }
        } else {
            let config = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Released, 3, 64, 32));
            AdapterSet::new(&config, &placement(), 0).unwrap().save(folder.path(), None).unwrap();
        }
        let path = folder.path().join(if settings { "adapter_config.json" } else { "adapter_model.safetensors" });
        let mut bytes = std::fs::read(&path).unwrap();
        // The headers are where damage is interesting.
        let reach = bytes.len().min(4000);
        for (index, byte) in edits {
            bytes[index.index(reach)] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&path, bytes).unwrap();
        let _ = AdapterSet::load(folder.path(), &placement(), 32);
    }
}

/// The settings alone decide how much memory is asked for: they are held against the file first.
#[test]
fn a_rank_that_the_file_does_not_have_takes_no_memory() {
    for (name, key) in [("lora_qv/adapter", "r"), ("dora_qv/adapter", "r"), ("adalora/adapter", "init_r")] {
        let folder = tempfile::tempdir().unwrap();
        let from = golden("peft").join(name);
        let file = "adapter_model.safetensors";
        std::fs::copy(from.join(file), folder.path().join(file)).unwrap();
        let mut config = json(&from.join("adapter_config.json"));
        config.insert(key.to_owned(), (1 << 20).into());
        config.insert("rank_pattern".to_owned(), Value::Null);
        std::fs::write(folder.path().join("adapter_config.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        let mut wide = placement();
        wide.linear.iter_mut().for_each(|site| (site.inputs, site.outputs) = (1 << 24, 1 << 24));
        let message = AdapterSet::load(folder.path(), &wide, 32).err().unwrap().to_string();
        assert!(message.contains("lora_A") && message.contains("expected 1048576 rows"), "{name}: {message}");
    }
}

/// Settings that PEFT leaves in files, or does not look at, change nothing that a finished adapter computes.
#[test]
fn what_changes_nothing_is_read() {
    let name = "model.layers.1.self_attn.q_proj.weight";
    let weight = Tensor::from_vec((0..64 * 64).map(|i| (i as f32).sin()).collect(), [64, 64]).unwrap();
    let merged = |set: &AdapterSet| set.merge_tensor(name, &weight, DType::F32).unwrap().unwrap().0.to_f64_vec();
    let looking_ahead = r"^(?!.*mlp).*(?=\.self_attn)\.self_attn\.(q_proj|v_proj)$";
    for (adapter, changes) in [
        (
            "lora_qv/adapter",
            &[
                ("loftq_config", serde_json::json!({"loftq_bits": 2, "loftq_iter": 5})),
                ("corda_config", serde_json::json!({"corda_method": "ipm"})),
                ("bias", "all".into()),
                ("layers_pattern", "".into()),
                ("layers_pattern", "blocks".into()),
                ("target_modules", looking_ahead.into()),
            ][..],
        ),
        ("dora_qv/adapter", &[("loftq_config", serde_json::json!({"loftq_bits": 4, "loftq_iter": 1}))]),
        ("adalora/adapter", &[("total_step", Value::Null), ("tinit", 1_000_000.into()), ("target_r", 100.into())]),
    ] {
        let source = golden("peft").join(adapter);
        let expected = merged(&AdapterSet::load(&source, &placement(), 20).unwrap());
        for (key, value) in changes {
            let folder = tempfile::tempdir().unwrap();
            let weights = "adapter_model.safetensors";
            std::fs::copy(source.join(weights), folder.path().join(weights)).unwrap();
            let mut config = json(&source.join("adapter_config.json"));
            // As PEFT writes it since 0.10.
            config.insert("layer_replication".into(), Value::Null);
            config.insert((*key).into(), value.clone());
            std::fs::write(folder.path().join("adapter_config.json"), Value::Object(config).to_string()).unwrap();
            let found = AdapterSet::load(folder.path(), &placement(), 20);
            let found = found.unwrap_or_else(|error| panic!("{adapter}, {key} = {value}: {error}"));
            assert_eq!(merged(&found), expected, "{adapter}, {key} = {value}");
            std::fs::rename(folder.path().join(weights), folder.path().join("adapter_model.bin")).unwrap();
            let pickled = AdapterSet::load(folder.path(), &placement(), 20).err().unwrap().to_string();
            assert!(pickled.contains("adapter_model.bin, which may run code"), "{pickled}");
        }
    }
}
