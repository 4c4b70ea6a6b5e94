//! The studies on language models, as small as can be: each runs from its file, with every row and figure that its table needs.

use crate::common::{Finished, Place};
use std::fs;
use std::path::Path;

fn smoke(place: &Place, file: &str) -> Vec<serde_json::Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = place.path("runs").display().to_string();
    let arguments = ["sweep", file, "--set", "scale=smoke", "--out", &out];
    // Paths in the files are those of the repository.
    let finished = Finished::new(&place.command(&arguments).current_dir(&root).output().unwrap());
    assert_eq!(finished.code, Some(0), "{file}: {}", finished.stderr);
    let name = Path::new(file).file_stem().unwrap().to_str().unwrap();
    let cells = fs::read_dir(place.path(&format!("runs/{name}-smoke"))).unwrap();
    let results = cells.map(|cell| cell.unwrap().path().join("result.json")).filter(|path| path.is_file());
    results.map(|path| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()).collect()
}

#[test]
fn the_language_studies_run() {
    let place = Place::new();
    for (file, cells, all) in [
        (
            "train/experiments/language/entities.toml",
            1,
            &["none", "hrm", "lora", "dora", "adalora", "lora-mlp", "householder-2"][..],
        ),
        ("train/experiments/language/documents.toml", 2, &["none", "hrm", "lora", "dora", "adalora", "lora-mlp"]),
        ("train/experiments/language/turns.toml", 2, &["none", "hrm", "delta", "lora"]),
    ] {
        let results = smoke(&place, file);
        assert_eq!(results.len(), cells, "{file}");
        for result in results {
            let rows = result["rows"].as_array().unwrap();
            for name in all {
                let row = rows.iter().find(|row| row["name"] == *name).unwrap_or_else(|| panic!("{file}: no {name}"));
                let forgotten = row["validation"]["metrics"]["forgetting"].as_f64().unwrap();
                assert!(forgotten.is_finite(), "{file} {name}");
                assert_eq!(forgotten == 0.0, *name == "none", "{file} {name}: {forgotten}");
                let tested = row["test"]["metrics"]["loss"].as_f64().is_some();
                assert!(tested || file.contains("documents"), "{file} {name} is not tested on longer texts");
            }
            assert!(
                result["data"].as_array().unwrap().iter().any(|data| data["path"].as_str().unwrap().contains("README")),
                "{result}"
            );
        }
    }
}

#[test]
fn what_is_forgotten_is_of_the_same_vocabulary() {
    let place = Place::new();
    let config = crate::common::TINY.to_owned() + "[forgetting]\nkind = \"dfa\"\nstates = 9\n";
    place.write("config.toml", config);
    place.run(&["fit", "config.toml", "--out", "run"]).refused(&["`forgetting` has a vocabulary of 11", "one of 6"]);
}
