//! `HANKEL_TRACE` and `train trace`.

use crate::common::{Finished, Place, TINY};
use std::fs;

#[test]
fn a_training_is_traced_and_summed_up() {
    let place = Place::new();
    place.write("config.toml", TINY);
    let traced = |out: &str| {
        let mut command = place.command(&["fit", "config.toml", "--out", out]);
        Finished::new(&command.env("HANKEL_TRACE", "trace.json").output().unwrap())
    };
    let finished = traced("run");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);

    let told = place.run(&["trace", "trace.json", "--json"]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let facts: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let steps = &facts["phases"]["step"];
    assert_eq!(steps["calls"], 12);
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    // Two batches of 4 sequences of 12 tokens a step, two layers with q, k, v, o, up and down, forwards and for the inputs.
    let of_layers = 2.0 * f64::from(4 * 16 * 16 + 2 * 16 * 64);
    let projections = 12.0 * 2.0 * 48.0 * 2.0 * of_layers;
    assert!(number(&facts["kernels"]["linear.project"]["operations"]) >= projections, "{facts}");
    let cores: Vec<f64> = ["1", "16", "64"].map(|cores| number(&steps["cores"][cores])).to_vec();
    assert!(cores[0] >= cores[1] && cores[1] >= cores[2] && cores[2] > 0.0, "{cores:?}");
    // One core takes what all threads took.
    assert!((number(&steps["processor_seconds"]) / cores[0] - 1.0).abs() < 1e-2, "{facts}");
    let parts: f64 = facts["kernels"].as_object().unwrap().values().map(|kernel| number(&kernel["cores"]["1"])).sum();
    assert!(parts <= cores[0] * 1.001, "{parts} {cores:?}");

    let table = place.run(&["trace", "trace.json"]).stdout;
    for part in
        ["attention.backward", "linear.project", "optimizer.adamw", "times the speed of one core", "between kernels"]
    {
        assert!(table.contains(part), "{part} in {table}");
    }
    // What is there is not written over, and no run is begun.
    let before = fs::read(place.path("trace.json")).unwrap();
    traced("again").refused(&["HANKEL_TRACE=trace.json: a new file cannot be made there"]);
    assert!(!place.path("again").exists() && fs::read(place.path("trace.json")).unwrap() == before);
}

#[test]
fn what_is_not_a_trace_is_refused() {
    let place = Place::new();
    place.write("empty.json", "[\n");
    place.write("other.json", "{}\n");
    place.write("broken.json", "[\n{\"name\":\"a\"},\n");
    place.write("cut.json", "[\n{\"name\":\"a\"");
    place.run(&["trace", "none.json"]).refused(&["cannot read none.json"]);
    place.run(&["trace", "empty.json"]).refused(&["empty.json has no events"]);
    place.run(&["trace", "cut.json"]).refused(&["cut.json has no events"]);
    place.run(&["trace", "other.json"]).refused(&["other.json is not a trace: its first line is not `[`"]);
    place.run(&["trace", "broken.json"]).refused(&["broken.json:2 is not an event"]);
}
