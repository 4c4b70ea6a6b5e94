//! Runs, adapters and checkpoints written by version 0.1 load and mean what they meant (`tests/golden/v0.1`).

use crate::common::Place;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/v0.1").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn close(name: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-5 * expected.abs(), "{name}: {found}, expected {expected}");
}

#[test]
fn adapters_of_every_kind_score_what_they_scored() {
    let place = Place::new();
    copy(&golden("run"), &place.path("run"));
    let finished = place.run(&["eval", "run", "--json"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let scores: Vec<Value> = serde_json::from_str(&finished.stdout).unwrap();
    let result = json(&place.path("run/result.json"));
    let mut compared = 0;
    for row in result["rows"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        let Some(found) = scores.iter().find(|found| found["adapter"] == name) else { continue };
        for metric in ["loss", "accuracy"] {
            let of = |scores: &Value| scores["metrics"][metric].as_f64().unwrap();
            close(name, of(&found["scores"]), of(&row["validation"]));
        }
        compared += 1;
    }
    // All rows but the probe, which is not saved.
    assert_eq!(compared, result["rows"].as_array().unwrap().len() - 1);
}

#[test]
fn resolved_configurations_stay_as_they_were_written() {
    for run in ["run", "stopped-in-hrm"] {
        let path = golden(run).join("config.toml");
        let written = fs::read_to_string(&path).unwrap();
        let finished = Place::new().run(&["fit", &path.display().to_string(), "--dry-run"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        for line in written.lines() {
            assert!(finished.stdout.lines().any(|other| other == line), "{run}: {line:?} in\n{}", finished.stdout);
        }
    }
}

/// The tensors of a file in `f64`, by name.
fn tensors(path: &Path) -> Vec<(String, Vec<f64>)> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    // That version kept reduced adapters in f64.
    let values = |view: &TensorView<'_>| -> Vec<f64> {
        match view.dtype() {
            Dtype::F64 => view.data().chunks(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect(),
            _ => view.data().chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()).into()).collect(),
        }
    };
    let mut all: Vec<_> = file.iter().map(|(name, view)| (name.to_owned(), values(&view))).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn stopped_runs_go_on_to_the_same_adapters() {
    for stopped in ["stopped-in-hrm", "stopped-in-adalora"] {
        let place = Place::new();
        copy(&golden(stopped), &place.path("run"));
        let finished = place.run(&["fit", "--out", "run", "--resume"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        for adapter in ["hrm", "selective", "adalora", "dora"] {
            let file = format!("{adapter}/adapter_model.safetensors");
            let [found, expected] =
                [place.path("run/adapters").join(&file), golden("whole").join(&file)].map(|path| tensors(&path));
            assert_eq!(found.len(), expected.len());
            // The kernels of another processor sum in another order.
            for ((name, found), (other, expected)) in found.iter().zip(&expected) {
                assert_eq!((name, found.len()), (other, expected.len()));
                let size = expected.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
                let error =
                    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).max_by(f64::total_cmp).unwrap_or(0.0);
                assert!(error <= 1e-3 * size, "{stopped} {name}: {error:e} of {size:e}");
            }
        }
    }
}
