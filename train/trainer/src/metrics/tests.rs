//! Every figure of the golden file, to 1e-9, and every stem.

use proptest::prelude::*;
use serde_json::Value;

use super::{PrecisionRecall, TextMetric, UnknownMetric, answers, longbench, porter, rouge};

fn golden(name: &str) -> String {
    let path = format!("{}/../../tests/golden/metrics/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn metrics() -> Value {
    serde_json::from_str(&golden("metrics.json")).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn close(got: f64, expected: &Value, what: &str) {
    let expected = expected.as_f64().unwrap_or_else(|| panic!("{what}: no number"));
    assert!((got - expected).abs() <= 1e-9, "{what}: {got} instead of {expected}");
}

fn all_close(got: PrecisionRecall, expected: &Value, what: &str) {
    close(got.precision, &expected["p"], &format!("precision, {what}"));
    close(got.recall, &expected["r"], &format!("recall, {what}"));
    close(got.f1, &expected["f"], &format!("F1, {what}"));
}

#[test]
fn pairs_agree_with_the_packages() {
    let golden = metrics();
    let pairs = golden["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 34);
    for pair in pairs {
        let (prediction, reference) = (text(pair, "prediction"), text(pair, "reference"));
        for (key, stemming) in [("rouge_score", false), ("rouge_score_stem", true)] {
            let (p, r) = (rouge::tokens(prediction, stemming), rouge::tokens(reference, stemming));
            let what = format!("{key} of {prediction:?}");
            all_close(rouge::rouge_n(&p, &r, 1), &pair[key]["rouge1"], &format!("rouge1 {what}"));
            all_close(rouge::rouge_n(&p, &r, 2), &pair[key]["rouge2"], &format!("rouge2 {what}"));
            all_close(rouge::rouge_l(&p, &r), &pair[key]["rougeL"], &format!("rougeL {what}"));
            let sum = rouge::rouge_l_sum(prediction, reference, stemming);
            all_close(sum, &pair[key]["rougeLsum"], &format!("rougeLsum {what}"));
        }
        let package = [("rouge-l", longbench::rouge_l(prediction, reference))];
        for (key, got) in package {
            match (got, &pair["rouge_pkg"]) {
                (None, expected) => assert!(expected.is_null(), "{prediction:?}"),
                (Some(got), expected) => all_close(got, &expected[key], &format!("{key} of {prediction:?}")),
            }
        }
        let one = [reference];
        close(TextMetric::LongBenchRougeL.score(prediction, &one), &pair["longbench_rouge"], prediction);
        close(answers::token_f1(prediction, reference), &pair["qa_f1"], prediction);
        assert_eq!(answers::normalize(prediction), text(pair, "normalised_prediction"));
        assert_eq!(answers::normalize(reference), text(pair, "normalised_reference"));
        assert_eq!(Value::from(answers::exact_match(prediction, reference)), pair["exact_match_normalised"]);
    }
}

#[test]
fn means_over_the_pairs_agree() {
    let golden = metrics();
    let pairs = golden["pairs"].as_array().unwrap();
    let mean = |metric: TextMetric| {
        let score = |pair: &Value| metric.score(text(pair, "prediction"), &[text(pair, "reference")]);
        pairs.iter().map(score).sum::<f64>() / pairs.len() as f64
    };
    let aggregate = &golden["aggregate"];
    let by_name = [
        (TextMetric::Rouge1, TextMetric::Rouge1Stemmed, "rouge1"),
        (TextMetric::Rouge2, TextMetric::Rouge2Stemmed, "rouge2"),
        (TextMetric::RougeL, TextMetric::RougeLStemmed, "rougeL"),
        (TextMetric::RougeLSum, TextMetric::RougeLSumStemmed, "rougeLsum"),
    ];
    for (plain, stemmed, key) in by_name {
        close(mean(plain), &aggregate["rouge_score"][key], key);
        close(mean(stemmed), &aggregate["rouge_score_stem"][key], key);
    }
    close(mean(TextMetric::ExactMatch), &aggregate["exact_match_normalised"], "exact match");
    let percent = |value: f64| (value * 1e4).round() / 100.0;
    close(percent(mean(TextMetric::LongBenchRougeL)), &aggregate["longbench_rouge_percent"], "LongBench");
    close(percent(mean(TextMetric::TokenF1)), &aggregate["qa_f1_percent"], "F1");
}

#[test]
fn several_references_give_the_best() {
    for case in metrics()["multi_reference"].as_array().unwrap() {
        let prediction = text(case, "prediction");
        let references: Vec<&str> =
            case["references"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect();
        close(TextMetric::TokenF1.score(prediction, &references), &case["qa_f1_max"], prediction);
        close(TextMetric::LongBenchRougeL.score(prediction, &references), &case["longbench_rouge_max"], prediction);
    }
    assert_eq!(TextMetric::Rouge1.score::<&str>("text", &[]), 0.0);
}

#[test]
fn stems_agree_with_nltk() {
    let golden = golden("porter.tsv");
    let mut words = 0;
    for line in golden.lines() {
        let (word, stem) = line.split_once('\t').unwrap();
        assert_eq!(porter::stem(word), stem, "{word}");
        words += 1;
    }
    assert!(words > 10_000, "{words} words");
}

#[test]
fn released_metrics_are_recalls() {
    let (prediction, reference) = ("the cat sat on the mat and then slept all day", "the cat sat");
    assert_eq!(TextMetric::ReleasedRouge1Recall.score(prediction, &[reference]), 1.0);
    assert_eq!(TextMetric::ReleasedRouge2Recall.score(prediction, &[reference]), 1.0);
    assert!((TextMetric::Rouge1.score(prediction, &[reference]) - 6.0 / 14.0).abs() < 1e-12);
}

#[test]
fn names_come_back() {
    for metric in TextMetric::ALL {
        assert_eq!(metric.name().parse(), Ok(metric));
    }
    let error: UnknownMetric = "rouge3".parse::<TextMetric>().unwrap_err();
    assert!(error.to_string().contains("rouge3") && error.to_string().contains("rouge_l_sum"), "{error}");
}

proptest! {
    #[test]
    fn any_texts_have_figures_between_zero_and_one(a in "\\PC{0,60}|([a-e]{1,2}[ .\n]){0,30}", b in "([a-e]{1,2}[ .\n]){0,30}") {
        for metric in TextMetric::ALL {
            let score = metric.score(&a, &[&b]);
            prop_assert!((0.0..=1.0).contains(&score), "{metric}: {score}");
            let same = metric.score(&b, &[&b]);
            let empty = b.split(|c: char| !c.is_alphanumeric()).all(str::is_empty);
            // Pairs need two words, and articles alone are nothing.
            if !empty && matches!(metric, TextMetric::Rouge1 | TextMetric::RougeL | TextMetric::RougeLSum | TextMetric::Rouge1Stemmed) {
                prop_assert_eq!(same, 1.0, "{}", metric);
            }
        }
    }

    #[test]
    fn stemming_never_panics_nor_lengthens_by_more_than_an_e(word in "[a-z0-9]{0,20}|\\PC{0,8}") {
        prop_assert!(porter::stem(&word).len() <= word.len() + 1);
    }
}
