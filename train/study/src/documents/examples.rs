//! Worked examples of pages, and what pages say of data, by results on record.

use super::{number, page, root, says};
use hankel_trainer::format::thousands;
use serde_json::Value;
use std::fs;

fn result(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(root().join("docs/results").join(name)).unwrap()).unwrap()
}

/// The file of results, its first line.
fn first_line(name: &str) -> Value {
    let text = fs::read_to_string(root().join("docs/results").join(name)).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

fn contains(page: &str, words: &str) {
    assert!(page.contains(words), "not on the page: {words}");
}

/// The table that the first example of data.md ends with.
#[test]
fn colours_are_their_result() {
    let page = page("data.md");
    let colours = result("colours.json");
    let rows = colours["rows"].as_array().unwrap();
    let without = number(&rows[0]["validation"]["metrics"]["exact_match"]);
    for row in rows {
        let name = row["name"].as_str().unwrap();
        let metric = |name: &str| number(&row["validation"]["metrics"][name]);
        let orders: Vec<u64> =
            row["layers"].as_array().into_iter().flatten().map(|layer| layer["order"].as_u64().unwrap()).collect();
        let time =
            row["training"]["seconds"].as_f64().map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.1} s"));
        let (to_none, states) = match name {
            "none" => ("–".to_owned(), String::new()),
            "hrm-epsilon-0.05" => {
                let all: Vec<String> = orders.iter().map(u64::to_string).collect();
                contains(&page, &format!("hrm-epsilon-0.05 has kept {} of 8 states.", all.join(", ")));
                (String::new(), format!("{} to {}", orders.iter().min().unwrap(), orders.iter().max().unwrap()))
            }
            _ => (String::new(), "8".to_owned()),
        };
        let to_none = if to_none.is_empty() { format!("{:+.4}", metric("exact_match") - without) } else { to_none };
        let parameters = thousands(row["parameters"]["adapter"].as_u64().unwrap());
        says(
            &page,
            &format!(
                "    {name:<16}  {parameters:>10}  {:.4}  {to_none:>7}  {:.4}  {:>8}  {states:>7}  {time:>5}",
                metric("exact_match"),
                metric("loss"),
                format!("{:.4}", metric("token_accuracy"))
            ),
        );
    }
}

/// What `bt reduce` prints in truncation.md, and what is said of it.
#[test]
fn the_reduction_of_the_page_is_its_certificate() {
    let page = page("truncation.md");
    let certificate = result("truncation-certificate.json");
    let mut shares = Vec::new();
    for layer in certificate["layers"].as_array().unwrap() {
        let of = |key: &str| number(&layer[key]);
        let name = layer["layer"].as_str().unwrap();
        assert_eq!(layer["holds"], true);
        for line in [
            format!(
                "    {name} {:>7} {:>5} {:>7.4} {:>7.4}  yes {:>12}",
                layer["states"].as_u64().unwrap(),
                layer["order"].as_u64().unwrap(),
                of("hinf_error"),
                of("error_bound"),
                format!("{:.5}", of("hinf_error") / of("hinf_norm"))
            ),
            format!(
                "    {name} {:>11.5} {:>9.5}  diagonal  {:.4}",
                of("lower_bound"),
                of("h2_error"),
                of("reduced_spectral_radius")
            ),
        ] {
            says(&page, &line);
        }
        shares.push(of("hinf_error") / of("error_bound"));
    }
    assert!(shares.iter().all(|share| (share - 1.0 / 3.0).abs() < 0.05), "a third of the bound: {shares:?}");
    let first = &certificate["layers"][0];
    let of = |key: &str| number(&first[key]);
    contains(
        &page,
        &format!(
            "could be closer than {:.3}; this one is {:.3} away, {:.1} % of the layer's H-infinity norm",
            of("lower_bound"),
            of("hinf_error"),
            100.0 * of("hinf_error") / of("hinf_norm")
        ),
    );
    contains(&page, &format!("the bound of theory is {:.3}.", of("error_bound")));
    let orders = result("truncation.json")["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == "regularized-epsilon-0.05")
        .unwrap()["layers"]
        .clone();
    assert!(orders.as_array().unwrap().iter().all(|layer| layer["order"] == 3), "three states: {orders}");
}

/// Which parts of the data the experiments used.
#[test]
fn parts_of_data_are_those_of_results() {
    let page = page("data.md");
    let of = |name: &str| first_line(name)["result"]["task"]["description"].as_str().unwrap().to_owned();
    let before = |text: &str, words: &str| -> u64 {
        let number = text.split(words).next().unwrap().rsplit([' ', '(']).next().unwrap();
        number.replace(',', "").parse().unwrap_or_else(|_| panic!("{words} in {text}"))
    };
    for file in ["enwik8-small.jsonl", "gates-paper.jsonl"] {
        let bytes = before(&of(file), " bytes;");
        contains(
            &page,
            &format!("use the first {} bytes of enwik8, {:.1} % of it", thousands(bytes), bytes as f64 / 1e6),
        );
    }
    let maestro = of("maestro-small.jsonl");
    let [train, validation, test] =
        [" train pieces", " validation pieces", " test pieces"].map(|words| before(&maestro, words));
    contains(
        &page,
        &format!(
            "were run on {} of the 1,282 performances: {train} to train, {validation} to validate, {test} to test.",
            train + validation + test
        ),
    );
    let ordered = fs::read_to_string(root().join("docs/results/ordering-paper.jsonl")).unwrap();
    assert!(ordered.contains(maestro.split(';').next().unwrap()));
    let composers = of("maestro_pretrained-paper.jsonl");
    let [train, validation, test] =
        [" train pieces", " validation pieces", " test pieces"].map(|words| before(&composers, words));
    let all = train + validation + test;
    contains(
        &page,
        &format!("the {all} pieces before him: {train} to train, {validation} to validate, {test} to test."),
    );
    let books = of("starts/tiny_gpt.jsonl");
    contains(&page, &format!("`data/books.txt` before, {} bytes of eight books", thousands(before(&books, " bytes;"))));
    let starts = of("starts/smollm2-seeds.jsonl");
    assert!(starts.contains("training: 400 windows, 6 documents") && starts.contains("test: 32 windows, 2 documents"));
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let contacts = result("contacts/result.json")["task"]["description"].as_str().unwrap().to_owned();
    contains(&contacts, "training: 432 examples");
    contains(&contacts, "validation: 48 examples");
    contains(&readme, "from 432 examples, in 60 steps");
    contains(&readme, "On 48 sentences held out");
}

/// Weights and estimates of a model of 7B parameters, in large-models.md and reliability.md.
#[test]
fn sizes_of_a_large_model_are_those_on_record() {
    let page = page("large-models.md");
    let lines = fs::read_to_string(root().join("docs/results/performance/h200.txt")).unwrap();
    let word = |line: &str, before: &str| -> f64 {
        let line = lines.lines().find(|found| found.contains(line)).unwrap();
        line.split(before).next().unwrap().rsplit(' ').next().unwrap().replace(',', "").parse().unwrap()
    };
    let whole = 2e-9 * word("backbone: decoder, 7,", " parameters");
    let (from, to) = (word("r7q: 224 matrices", " to "), word("r7q: 224 matrices", " GB in"));
    let quantised = whole - from + to;
    contains(&page, &format!("`quantize`, {whole:.1} GB of bf16 to {quantised:.1} GB"));
    contains(&page, &format!("maps the {:.2} GiB of weights", quantised * 1e9 / f64::from(1 << 30)));
    let large = result("performance/large-models.json");
    for step in large["steps"].as_array().unwrap().iter().filter(|step| step["length"] == 512) {
        let estimate = number(&large["estimates"]["512"][step["adapter"].as_str().unwrap()]);
        assert!((number(&step["own_bytes"]) / estimate - 1.0).abs() < 0.1, "within 10 %: {step}");
    }
}
