//! What becomes of a run, and of a sweep, in which an adapter comes to values that are not finite.

use crate::common::{Place, TINY, stop_at};
use serde_json::Value;
use std::fs;

/// An HRM that learns, a LoRA that cannot, no adapter, and another LoRA.
fn configuration() -> String {
    let broken = "[[adapter]]\nkind = \"lora\"\nrank = 2\ntrain = { lr = 1e30, warmup_steps = 0 }\n";
    let others =
        "[[adapter]]\nkind = \"none\"\n[[adapter]]\nname = \"last\"\nkind = \"lora\"\nrank = 2\ntrain.steps = 40\n";
    TINY.replace("steps = 12", "steps = 12\ncheckpoint_every = 4") + broken + others
}

fn result(place: &Place, run: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(place.path(run).join("result.json")).unwrap()).unwrap()
}

fn names(rows: &Value) -> Vec<&str> {
    rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

#[test]
fn a_run_goes_on_without_an_adapter_that_diverges() {
    let place = Place::new();
    place.write("config.toml", configuration());
    let fit = ["fit", "config.toml", "--out", "run"];
    let finished = place.run(&fit);
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    for told in [
        "warning: `lora` stopped at step",
        "It has no row, the others have theirs",
        "error: `lora` diverged: it has no row",
    ] {
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
    assert!(!finished.stderr.contains("lacks the adapters"), "{}", finished.stderr);
    assert!(finished.stdout.contains("lora has no row: `lora` stopped at step"), "{}", finished.stdout);
    let found = result(&place, "run");
    assert_eq!(names(&found["rows"]), ["hrm", "hrm-order-2", "none", "last"]);
    assert_eq!(names(&found["diverged"]), ["lora"]);
    let page = fs::read_to_string(place.path("run/report.html")).unwrap();
    assert!(page.contains("lora has no row") && !page.contains("It stopped after"), "{page}");
    // It is over, and stays what it is.
    let before = place.snapshot("run/result.json");
    let again = place.run(&["fit", "--out", "run", "--resume"]);
    assert_eq!((again.code, place.snapshot("run/result.json") == before), (Some(1), true), "{}", again.stderr);
    // The rows that are there are those of a run without it.
    let alone = place.run(&["fit", "config.toml", "--out", "others", "--only", "hrm,none,last"]);
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    let scores = |found: &Value| -> Vec<Value> {
        found["rows"].as_array().unwrap().iter().map(|row| row["validation"].clone()).collect()
    };
    assert_eq!(scores(&result(&place, "others")), scores(&found));
    // Beside another run the sentence says of which it is; the adapter is asked for in vain, and that says why.
    let finished = place.run(&["report", "run", "others", "-o", "both/report.html"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let page = fs::read_to_string(place.path("both/report.html")).unwrap();
    assert!(page.contains(": lora has no row"), "{page}");
    place.run(&["eval", "run", "--adapter", "lora"]).refused(&["`lora` of run was not kept", "stopped at step"]);
}

#[cfg(unix)]
#[test]
fn a_resumed_run_knows_what_has_diverged() {
    let place = Place::new();
    place.write("config.toml", configuration());
    let killed = stop_at(&place, &["fit", "config.toml", "--out", "run"], "run", "last-step-000004", "-KILL");
    assert_eq!(killed.code, None, "killed");
    let resumed = place.run(&["fit", "--out", "run", "--resume"]);
    assert_eq!(resumed.code, Some(1), "{}", resumed.stderr);
    let found = result(&place, "run");
    assert_eq!((names(&found["rows"]).len(), names(&found["diverged"])), (4, vec!["lora"]));
}

/// What the last step leaves is too large to compute with: the evaluation at the end shows it.
#[test]
fn nothing_is_left_of_an_adapter_that_evaluates_to_nan() {
    let place = Place::new();
    let last = "train = { lr = 1e30, warmup_steps = 0, clip = 0, steps = 1 }";
    let text = configuration().replace("train = { lr = 1e30, warmup_steps = 0 }", last);
    assert!(text.contains(last));
    place.write("config.toml", text);
    let finished = place.run(&["fit", "config.toml", "--out", "run"]);
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("`lora` stopped at step 1: the loss on the validation split is"),
        "{}",
        finished.stderr
    );
    assert!(place.path("run/adapters/hrm").is_dir() && !place.path("run/adapters/lora").exists());
    assert_eq!(names(&result(&place, "run")["rows"]), ["hrm", "hrm-order-2", "none", "last"]);
}

/// Where nothing else is left the run has no result.
#[test]
fn a_run_in_which_all_diverge_has_no_result() {
    let place = Place::new();
    place.write("config.toml", configuration());
    let set = ["--set", "adapter.hrm.train.lr=1e30", "--set", "adapter.hrm.train.warmup_steps=0"];
    let finished = place.run(&[&["fit", "config.toml", "--out", "run", "--only", "hrm,lora"][..], &set].concat());
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("warning: `hrm` stopped at step"), "{}", finished.stderr);
    assert!(finished.stderr.contains("error: `lora` stopped at step"), "{}", finished.stderr);
    assert!(!place.path("run/result.json").exists());
}

/// With and without a run of its own for every row.
#[test]
fn a_row_that_diverges_leaves_its_cell_the_others() {
    for by_row in [&["--by-row"][..], &[]] {
        let place = Place::new();
        place.write("grid.toml", configuration().replace("seed = 3\n", "") + "[sweep.grid]\nseed = [3, 4]\n");
        let sweep = [&["sweep", "grid.toml"], by_row].concat();
        let told = if by_row.is_empty() { "0 of 2 cells done, 2 diverged" } else { "6 of 8 rows done, 2 diverged" };
        for _ in 0..2 {
            let finished = place.run(&sweep);
            assert!(finished.code == Some(0) && finished.stdout.contains(told), "{finished:?}");
        }
        let finished = place.run(&["report", "--results", "results", "-o", "page.html", "runs"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let page = fs::read_to_string(place.path("page.html")).unwrap();
        assert!(page.contains("2 came to values that are not finite"), "{page}");
        let lines = fs::read_to_string(place.path("results/tiny.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), 2);
        for line in lines.lines() {
            let cell: Value = serde_json::from_str(line).unwrap();
            assert!(cell["planned_rows"].is_null() && cell["diverged"].is_null(), "{line}");
            assert!(cell["diverged_rows"]["lora"].as_str().unwrap().contains("`lora` stopped at step"), "{line}");
            assert!(cell["result"]["diverged"].is_null(), "{line}");
            assert_eq!(names(&cell["result"]["rows"]), ["hrm", "hrm-order-2", "none", "last"]);
        }
    }
}

/// A result that is lost is written again from the checkpoint, and what an earlier version left at the first divergence goes on.
#[test]
fn a_cell_with_a_diverged_row_is_repaired() {
    let place = Place::new();
    place.write("grid.toml", configuration().replace("seed = 3\n", "") + "[sweep.grid]\nseed = [3]\n");
    let sweep = ["sweep", "grid.toml"];
    place.run(&sweep);
    let (file, failed) = (place.path("runs/tiny/seed-3/result.json"), place.path("runs/tiny/seed-3/failed.json"));
    let whole = result(&place, "runs/tiny/seed-3");
    let left = r#"{"error": "`lora` stopped at step 2", "diverged": ["lora", 2]}"#;
    for damage in ["cut off", "removed", "of an earlier version"] {
        match damage {
            "cut off" => fs::write(&file, "{\"rows\": [").unwrap(),
            _ => fs::remove_file(&file).unwrap(),
        }
        if damage == "of an earlier version" {
            fs::write(&failed, left).unwrap();
        }
        let finished = place.run(&sweep);
        assert!(
            finished.code == Some(0) && finished.stdout.contains("0 of 1 cells done, 1 diverged"),
            "{damage}: {finished:?}"
        );
        let found = result(&place, "runs/tiny/seed-3");
        assert_eq!((&found["rows"], &found["diverged"]), (&whole["rows"], &whole["diverged"]));
        assert!(!failed.exists());
    }
}
