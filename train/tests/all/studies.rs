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

/// Rows that were run by themselves, in any order and on several machines, make the cell that one run makes.
#[test]
fn rows_by_themselves_are_those_of_the_cell() {
    let place = Place::new();
    let rows = "[[adapter]]\nkind = \"none\"\n[[adapter]]\nkind = \"lora\"\nrank = 2\n";
    let experiment = crate::common::TINY.replace("seed = 3\n", "") + rows + "[sweep.grid]\nseed = [3]\n";
    place.write("grid.toml", experiment);
    let run = |arguments: &[&str]| {
        let finished = place.run(&[&["sweep", "grid.toml"], arguments].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished.stdout
    };
    let figures = |directory: &str, runs: &[&str]| {
        let page = format!("{directory}.html");
        let finished = place.run(&[&["report", "--results", directory, "-o", &page], runs].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let lines = fs::read_to_string(place.path(directory).join("tiny.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), 1);
        let cell: serde_json::Value = serde_json::from_str(&lines).unwrap();
        let mut rows = cell["result"]["rows"].as_array().unwrap().clone();
        for row in &mut rows {
            if let Some(training) = row["training"].as_object_mut() {
                training.remove("seconds");
            }
        }
        (rows, cell["planned_rows"].clone())
    };
    assert!(run(&[]).contains("1 of 1 cells done"));
    let whole = figures("whole", &["runs/tiny"]);
    assert!(whole.0.len() > 3 && whole.1.is_null(), "with what is truncated: {}", whole.0.len());

    let listed = run(&["--by-row", "--list", "--out", "rows"]);
    let names = ["hrm", "none", "lora"];
    for (line, name) in listed.lines().zip(names) {
        assert!(line.contains("open") && line.ends_with(&format!("tiny/seed-3/{name}")), "{line}");
    }
    assert!(run(&["--by-row", "--out", "rows", "--task-index", "2"]).contains("1 of 1 rows done"));
    let (rows, planned) = figures("parts", &["rows"]);
    assert!(rows.len() == 1 && rows[0]["name"] == "lora" && planned == serde_json::json!(names), "{planned}");
    place.run(&["audit", "parts", "-o", "audit.md"]).refused(&["parts holds only incomplete cells, 1 of them"]);
    place.run(&["sweep", "grid.toml", "--out", "rows"]).refused(&["was begun row by row: go on with --by-row"]);
    place.run(&["sweep", "grid.toml", "--by-row"]).refused(&["was begun as one run: leave out --by-row"]);
    place.run(&["sweep", "grid.toml", "--by-row", "--task-index", "3"]).refused(&["there are 3 rows"]);

    // The others, on another machine: the file of results puts them together, and so do the directories.
    for index in ["0", "1"] {
        run(&["--by-row", "--out", "others", "--task-index", index]);
    }
    assert_eq!(figures("parts", &["others"]), whole);
    assert_eq!(figures("together", &["rows", "others"]), whole);
    assert_eq!(figures("beside", &["runs/tiny", "rows"]), whole, "a row that the whole has");
    assert!(run(&["--by-row", "--out", "rows"]).contains("3 of 3 rows done"));
    assert_eq!(figures("one", &["rows"]), whole);

    // An adapter that comes later is a row more, and one that goes leaves the cell whole.
    let text = fs::read_to_string(place.path("grid.toml")).unwrap();
    place.write("grid.toml", text.replace("[sweep.grid]", "[[adapter]]\nkind = \"dora\"\nrank = 2\n[sweep.grid]"));
    assert!(run(&["--by-row", "--out", "rows", "--task-index", "1"]).contains("1 of 1 rows done"));
    let (rows, planned) = figures("more", &["rows"]);
    assert!(rows.len() == whole.0.len() && planned.as_array().unwrap().len() == 4, "{planned}");
    assert!(run(&["--by-row", "--out", "rows"]).contains("4 of 4 rows done"));
    let (rows, planned) = figures("more", &["rows"]);
    assert!(rows.last().unwrap()["name"] == "dora" && planned.is_null(), "{planned}");
    place.write("grid.toml", text);
    fs::remove_dir_all(place.path("rows/tiny/seed-3/dora")).unwrap();
    assert!(run(&["--by-row", "--out", "rows"]).contains("3 of 3 rows done"));
    assert_eq!(figures("fewer", &["rows"]), whole);
}

/// Cells of other settings, of seeds beside those of the grid or from before an edit, are no repetitions.
#[test]
fn settings_that_change_within_a_sweep_are_refused() {
    let place = Place::new();
    let pretrain = "[pretrain]\nsteps = 20\nlr = 5e-3\n\n[train]\n";
    let text =
        crate::common::TINY.replace("[train]\n", pretrain).replace("seed = 3\n", "") + "[sweep.grid]\nseed = [3, 4]\n";
    place.write("grid.toml", &text);
    let first = place.run(&["sweep", "grid.toml", "--task-index", "0"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let beside = ["sweep", "grid.toml", "--set", "seed=[5]", "--set", "train.lr=2e-2"];
    place.run(&beside).refused(&["seed-3 is of the same experiment", "other settings in `train`", "another --out"]);
    let edited = text.replace("lr = 5e-3", "lr = 6e-3");
    place.write("grid.toml", edited);
    let job = ["sweep", "grid.toml", "--task-index", "1"];
    place.run(&job).refused(&["seed-3 is of the same experiment", "other settings in `pretrain`"]);
    let list = place.run(&["sweep", "grid.toml", "--list"]);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    let lines: Vec<&str> = list.stdout.lines().collect();
    assert!(lines[0].contains("  other  ") && lines[0].contains("was run with another configuration"), "{lines:?}");
    assert!(lines[1].contains("  open  ") && list.stderr.contains("note: "), "{lines:?} {}", list.stderr);
    // What an earlier version began is not compared; its backbone is its own all the same.
    let file = place.path("runs/tiny/seed-3/cell.json");
    let mut cell: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(cell.as_object_mut().unwrap().remove("settings").is_some());
    fs::write(&file, cell.to_string()).unwrap();
    let job = place.run(&job);
    assert_eq!(job.code, Some(0), "{}", job.stderr);
    assert!(!job.stderr.contains("of its pretraining are those of"), "{}", job.stderr);
}
