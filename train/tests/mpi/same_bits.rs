//! The number of processes changes no bit.

use super::{finish, on, same, with_run_alone};
use serde_json::Value;
use std::fs;

#[test]
fn any_number_of_processes_ends_with_the_same_bits() {
    let place = with_run_alone(20);
    for processes in [2, 3, 4] {
        let out = format!("on-{processes}");
        let finished = finish(on(&place, processes, &["fit", "config.toml", "--out", &out]));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        same(&place, "alone", &out);
        // Process 0 speaks, and the others do not.
        assert_eq!(finished.stderr.matches("run directory:").count(), 1, "{}", finished.stderr);
        assert!(finished.stderr.contains(&format!("tokens/s on {processes} processes")), "{}", finished.stderr);
        let metrics = fs::read_to_string(place.path(&out).join("metrics.jsonl")).unwrap();
        let steps = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        for step in steps.filter(|event| event["event"] == "step") {
            let moved = &step["communication"];
            assert_eq!(moved["processes"], processes);
            assert!(moved["bytes"].as_f64().unwrap() > 0.0 && moved["seconds"].as_f64().unwrap() > 0.0, "{step}");
        }
    }
    // An evaluation that is shared out gives the same scores, and is written once.
    let arguments = ["eval", "alone", "--split", "test", "--json"];
    let alone = place.run(&arguments);
    let shared = finish(on(&place, 3, &arguments));
    assert_eq!((shared.code, &shared.stdout), (Some(0), &alone.stdout), "{}", shared.stderr);
    // The launcher with one process is one process.
    let one = finish(on(&place, 1, &["eval", "alone", "--split", "test", "--json"]));
    assert_eq!(one.stdout, alone.stdout, "{}", one.stderr);
}

/// More processes than micro-batches: some have nothing to do, which is said.
#[test]
fn idle_processes_change_nothing() {
    let place = super::Place::new();
    let set = ["--set", "train.accumulation=2", "--set", "train.steps=10"];
    place.fit(super::CONFIG, "alone", &set);
    let arguments = [&["fit", "config.toml", "--out", "shared"][..], &set].concat();
    let finished = finish(on(&place, 3, &arguments));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("1 of the processes have nothing to do"), "{}", finished.stderr);
    same(&place, "alone", "shared");
}
