//! What `train eval` records along real sequences, and what a run measures of an adapter.

use super::commands::json;
use crate::common::Finished;
use crate::common::Place;
use crate::common::TINY;
use hankel_models::lti::norms::FrequencyResponse;
use hankel_models::lti::norms::hinf_norm;
use hankel_models::reduce::hrm::linear_system;
use hankel_models::weights::AdapterBytes;
use hankel_models::weights::HrmAdapterFile;
use hankel_models::weights::HrmLayerFile;
use hankel_models::weights::Sensitivities;
use hankel_models::weights::WeightSet;
use hankel_models::weights::system_file::StoredSystem;
use std::fs;

#[test]
fn a_trained_adapter_is_probed_and_measured() {
    let place = Place::new();
    let asked = "truncate = { total = 3 }\nprobe = [{ gate = 0.0 }, { gate = 0.5 }, { gate = 1e38 }]\nexactness = { sequences = 3 }";
    let finished = place.fit(&TINY.replace("truncate = { order = 2 }", asked), "run", &[]);
    assert!(!finished.stderr.contains("lacks the adapters"), "probes are not saved: {}", finished.stderr);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names[..4], ["hrm", "hrm-total-3", "hrm-gate-0", "hrm-gate-0.5"]);
    // What is too large to compute with leaves figures that are not numbers, and a run that can be read.
    assert_eq!(rows[4]["validation"]["metrics"]["loss"], serde_json::Value::Null);
    for again in [&["fit", "--out", "run", "--resume"][..], &["report", "run"], &["export", "run", "--csv"]] {
        let finished = place.run(again);
        assert_eq!(finished.code, Some(0), "{again:?}: {}", finished.stderr);
    }
    let layer = |row: usize, key: &str| rows[row]["layers"][0][key].as_f64().unwrap();
    let orders = rows[1]["layers"].as_array().unwrap().iter().map(|layer| layer["order"].as_u64().unwrap());
    assert_eq!(orders.sum::<u64>(), 3);
    assert_eq!((&rows[3]["probed_from"], &rows[3]["probe"]), (&"hrm".into(), &"gate = 0.5".into()));
    assert_eq!((layer(3, "gate"), layer(2, "contribution")), (0.5, 0.0));
    // Nothing before the first adapter depends on its gate, so what it adds is proportional to it.
    let ratio = layer(3, "contribution") / layer(0, "contribution") * layer(0, "gate").abs();
    assert!(layer(0, "contribution") > 0.0 && (ratio - 0.5).abs() < 1e-6, "{ratio}");
    assert!(rows[0]["validation"]["metrics"]["loss"] != rows[3]["validation"]["metrics"]["loss"]);
    for layer in rows[0]["layers"].as_array().unwrap() {
        let exactness = &layer["exactness"];
        assert_eq!((&exactness["sequences"], &exactness["length"]), (&3.into(), &12.into()));
        for path in ["sequential", "chunked", "fft"] {
            let relative = exactness[path]["relative"].as_f64().unwrap();
            assert!(relative > 0.0 && relative < 1e-5, "{path}: {relative}");
        }
    }
    // The trained gates are still what they were.
    assert_eq!(
        place.run(&["eval", "run", "--adapter", "hrm", "--expect", "loss<=hrm+0", "--expect", "loss>=hrm-0"]).code,
        Some(0)
    );
}

#[test]
fn states_are_recorded_on_real_sequences() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let record = |adapter: &str, file: &str| {
        let more = ["--sequences", "5", "--record-states", file];
        place.run(&[&["eval", "run", "--adapter", adapter][..], &more].concat())
    };
    let finished = record("hrm", "states.safetensors");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("2 layers along 5 sequences of 12 steps"), "{}", finished.stderr);
    let states = hankel_models::weights::recorded_states(&place.path("states.safetensors")).unwrap();
    let shapes: Vec<_> = states.iter().map(|(label, s)| (label.as_str(), s.states.nrows(), s.states.ncols())).collect();
    assert_eq!(shapes, [("layer 0", 60, 4), ("layer 1", 60, 4)]);
    assert!(states.values().all(|s| s.steps == 12 && s.states.norm_l2() > 0.0));
    record("none", "none.safetensors").refused(&["none", "only those of an HRM are"]);
    record("hrm", "states.safetensors").refused(&["states.safetensors", "exists already"]);
    let both = ["--record-states", "none.safetensors", "--record-inputs", "none.safetensors"];
    place.run(&[&["eval", "run", "--adapter", "hrm"][..], &both].concat()).refused(&["name the same file"]);
    assert!(!place.path("none.safetensors").exists());
}

#[test]
fn weights_are_fitted_to_what_an_adapter_reads() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let record = |adapter: &str, file: &str, sequences: &str| {
        let more = ["--sequences", sequences, "--record-inputs", file];
        place.run(&[&["eval", "run", "--adapter", adapter][..], &more].concat())
    };
    let finished = record("hrm", "weights.safetensors", "20");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("layer 1: autoregression of order"), "{}", finished.stderr);
    let weights = place.path("weights.safetensors");
    let (weights, _) = WeightSet::read(&weights, StoredSystem::system).unwrap();
    let adapter = HrmAdapterFile::load(&place.path("run/adapters/hrm")).unwrap();
    for layer in &adapter.layers {
        let weight = weights.of(&layer.label()).unwrap();
        // The mean has an input of its own.
        assert_eq!((weight.outputs(), weight.inputs()), (layer.width, layer.state_dim + 1));
        assert!(weight.spectral_radius() < 1.0);
    }
    record("none", "none.safetensors", "20").refused(&["none", "no inputs to record"]);
    record("hrm", "weights.safetensors", "20").refused(&["weights.safetensors", "exists already"]);
    record("hrm", "few.safetensors", "3").refused(&["3 sequences are too few"]);
    assert!(!place.path("none.safetensors").exists() && !place.path("few.safetensors").exists());
}

/// The sensitivities bound what a change of the adapter does to the loss, to first order.
#[test]
fn sensitivities_bound_the_change_of_the_loss() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let record = |adapter: &str, file: &str| {
        let more = ["--sequences", "16", "--record-gradients", file];
        place.run(&[&["eval", "run", "--json", "--adapter", adapter][..], &more].concat())
    };
    let finished = record("hrm", "run/gradients.json");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("sensitivities of 2 layers on 16 sequences"), "{}", finished.stderr);
    let loss = |finished: &Finished| {
        json(&finished.stdout)[0]["scores"]["metrics"]["loss"].as_f64().expect("the loss is among the metrics")
    };
    let (sensitivities, _) = Sensitivities::read(&place.path("run")).unwrap();
    assert!((sensitivities.loss / loss(&finished) - 1.0).abs() < 1e-5, "{}", sensitivities.loss);
    let folder = place.path("run/adapters/hrm");
    let adapter = HrmAdapterFile::load(&folder).unwrap();
    assert_eq!(sensitivities.adapter, AdapterBytes::read(&folder).unwrap().hashes().weights);
    // A gate that is a little wider changes every layer's transfer function by a share of its norm.
    let share = 1e-3;
    let mut changed = adapter.clone();
    for layer in &mut changed.layers {
        layer.gate *= 1.0 + share;
    }
    changed.save(&place.path("changed")).unwrap();
    fs::copy(folder.join("trained_backbone.safetensors"), place.path("changed/trained_backbone.safetensors")).unwrap();
    let norm = |layer: &HrmLayerFile| {
        let system = linear_system(layer, adapter.config.discretization).unwrap();
        hinf_norm(&FrequencyResponse::new(&system)).unwrap().0.value * layer.gate.abs()
    };
    let bound: f64 = adapter.layers.iter().map(|l| sensitivities.of(&l.label()).unwrap() * share * norm(l)).sum();
    let after = place.run(&["eval", "run", "--json", "--adapter", "changed", "--sequences", "16"]);
    let change = (loss(&after) - loss(&finished)).abs();
    assert!(change > 0.0 && change <= 1.1 * bound, "{change} {bound}");
    record("none", "none.json").refused(&["none", "no gradients to record"]);
    record("hrm", "run/gradients.json").refused(&["gradients.json", "exists already"]);
    record("hrm", "gradients.txt").refused(&["gradients.txt", "new file ending in .json"]);
    assert!(!place.path("none.json").exists());
}
