//! `train score`.

use crate::common::Place;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn scores_of_a_file() {
    let place = Place::new();
    let good = "{\"prediction\": \"the cat sat\", \"references\": [\"the cat\", \"a dog\"]}";
    place.write("p.jsonl", format!("{good}\nno json\n{{\"prediction\": \"x\"}}\n{{\"prediction\": 3, \"reference\": \"y\"}}\n{{\"prediction\": \"a dog\", \"reference\": \"a dog\"}}\n"));
    let finished = place.run(&["score", "--task", "narrativeqa", "p.jsonl", "--json"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = json(&finished.stdout);
    assert_eq!((&found["predictions"], &found["left_out"]), (&Value::from(2), &Value::from(3)));
    // "cat sat" against "cat": precision 1/2, recall 1; and an exact answer.
    assert!((found["scores"]["token_f1"].as_f64().unwrap() - 5.0 / 6.0).abs() < 1e-12, "{found}");
    assert_eq!(found["scores"]["exact_match"], 0.5);
    for part in [
        "p.jsonl:2: the line is not valid JSON",
        "p.jsonl:3: has no `references`",
        "p.jsonl:4: `prediction` is a number",
    ] {
        assert!(finished.stderr.contains(part), "{part} in {}", finished.stderr);
    }
    // Answers of several adapters in one file are scored apart.
    let line = |adapter: &str, text: &str| {
        format!("{{\"adapter\": {adapter:?}, \"prediction\": {text:?}, \"references\": [\"a dog\"]}}\n")
    };
    place.write("two.jsonl", line("hrm", "dog") + &line("lora", "cat") + &line("hrm", "dog"));
    let found = json(&place.run(&["score", "--task", "narrativeqa", "two.jsonl", "--json"]).stdout);
    let exact = |index: usize| &found["adapters"][index]["scores"]["exact_match"];
    assert_eq!((exact(0), exact(1)), (&Value::from(1.0), &Value::from(0.0)), "{found}");
    assert_eq!((&found["adapters"][0]["adapter"], &found["adapters"][0]["predictions"]), (&"hrm".into(), &2.into()));
    let shown = place.run(&["score", "--task", "narrativeqa", "two.jsonl"]).stdout;
    assert!(shown.contains("2 predictions of hrm in two.jsonl") && shown.contains("1 predictions of lora"), "{shown}");
    // A byte order mark costs no answer.
    let marked = format!("\u{feff}{}", line("hrm", "dog") + &line("hrm", "cat"));
    place.write("marked.jsonl", marked);
    let found = json(&place.run(&["score", "--task", "narrativeqa", "marked.jsonl", "--json"]).stdout);
    assert_eq!((&found["predictions"], &found["left_out"]), (&2.into(), &0.into()), "{found}");
    let one = place.run(&["score", "--task", "qmsum", "p.jsonl", "--metrics", "rouge1"]);
    assert!(one.stdout.contains("rouge1") && !one.stdout.contains("rouge_l"), "{}", one.stdout);
    place.write("empty.jsonl", "");
    place.run(&["score", "--task", "qmsum", "empty.jsonl"]).refused(&["empty.jsonl: nothing to score"]);
    place.run(&["score", "--task", "qmsum", "nowhere"]).refused(&["cannot read nowhere"]);
    place.run(&["score", "--task", "qmsum", "p.jsonl", "--metrics", "rouge3"]).refused(&["rouge3"]);
    place.run(&["score", "--task", "longbench", "p.jsonl"]).refused(&["has no `dataset`"]);
}
