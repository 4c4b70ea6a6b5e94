//! Rates that trainings before a study chose: the tables of pages, and the files that they are set in.

use super::{page, root, says};
use crate::claims::convergence::{is_level, still_to_fall};
use crate::{Cell, read_results};
use hankel_trainer::results::AdapterResult;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

/// A row at a rate, and its validation loss less that of the row without an adapter, by table.
fn runs<'a>(cells: &'a [Cell], name: &str, rate: &str) -> Vec<(&'a AdapterResult, f64)> {
    let at_rate = cells.iter().filter(|cell| cell.id.axis("lr") == Some(rate));
    let runs: Vec<_> = at_rate
        .map(|cell| {
            let row = |name: &str| cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == name).unwrap();
            (row(name), loss(row("none")) - loss(row(name)))
        })
        .collect();
    assert_eq!(runs.len(), 2, "{name} at {rate}");
    runs
}

fn loss(row: &AdapterResult) -> f64 {
    row.validation.get("loss").unwrap()
}

/// Every row of `dfa` at scale `paper` has the rate of its least validation loss after 2,000 steps, the mean over two tables; and 8,000
/// steps, since no adapter's loss is level by then.
#[test]
fn rates_of_dfa_are_their_result() {
    const RATES: [&str; 2] = ["0.01", "0.03"];
    let page = page("sweeps.md");
    let mut cells = read_results(&root().join("docs/results/rates")).unwrap();
    cells.retain(|cell| cell.id.scale.as_deref() == Some("rates-2000"));
    let file = fs::read_to_string(root().join("train/experiments/paper/dfa.toml")).unwrap();
    let file: toml::Table = file.parse().unwrap();
    let scales = ["paper", "paper-seeds"].map(|scale| file["sweep"]["scales"][scale].as_table().unwrap());
    for row in ["none", "hrm", "lora", "adalora", "dora", "lora-mlp"] {
        let [low, high] = RATES.map(|rate| {
            let runs = runs(&cells, row, rate);
            f64::midpoint(loss(runs[0].0), loss(runs[1].0))
        });
        let best = if low < high { RATES[0] } else { RATES[1] };
        says(&page, &format!("| `{row}` | {low:.4} | {high:.4} | {best} |"));
        for scale in scales {
            if scale["only"].as_array().unwrap().iter().any(|name| name.as_str() == Some(row)) {
                let rate = scale[&format!("adapter.{row}.train.lr")].as_float().unwrap();
                assert_eq!(rate.to_string(), best, "{row}");
            }
        }
        if row != "none" {
            let (mut to_fall, mut gained) = (0.0, 0.0);
            for (row, gain) in runs(&cells, row, best) {
                let training = row.training.as_ref().unwrap();
                to_fall += still_to_fall(&training.curve, training.steps).unwrap().max(0.0);
                gained += gain;
            }
            assert!(!is_level(to_fall, gained), "{row}: {to_fall} of {gained}");
        }
    }
    let mut of_bf16 = read_results(&root().join("docs/results/rates")).unwrap();
    of_bf16.retain(|cell| cell.id.scale.as_deref() == Some("rates-bf16"));
    let [hrm, lora] = ["hrm", "lora"].map(|name| {
        let row = |cell: &Cell| loss(cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == name).unwrap());
        let [first, second] = &of_bf16[..] else { panic!("two tables") };
        let in_f32 = runs(&cells, name, "0.01");
        let (bf16, f32) = (f64::midpoint(row(first), row(second)), f64::midpoint(loss(in_f32[0].0), loss(in_f32[1].0)));
        assert!((bf16 - f32).abs() < 0.05, "{name}: {bf16} {f32}");
        bf16
    });
    // Of the table whose cells in f32, too, had a core of their own.
    for name in ["hrm", "lora"] {
        let token = |cell: &Cell| {
            let rows = &cell.result.as_ref().unwrap().rows;
            let training = rows.iter().find(|row| row.name == name).unwrap().training.as_ref().unwrap();
            training.seconds / training.tokens as f64
        };
        let of_table = |cell: &&Cell| cell.id.axis("seed") == Some("901");
        let in_f32 = cells.iter().filter(of_table).find(|cell| cell.id.axis("lr") == Some("0.01")).unwrap();
        let share = token(of_bf16.iter().find(of_table).unwrap()) / token(in_f32);
        assert!(page.contains("adapters take about 0.7 of it") && (share - 0.7).abs() < 0.05, "{name}: {share}");
    }
    assert!(page.contains(&format!("With products of bf16 HRM ends at {hrm:.4} and LoRA at {lora:.4} ")));
    for scale in scales {
        assert_eq!(scale["train.steps"].as_integer(), Some(8000));
        assert_eq!(scale["precision"].as_str(), Some("bf16"));
    }
}

/// Every row of `modes` at scale `paper` has the rate of its least validation loss in `paper-rates`, of one seed that `paper` does not have.
#[test]
fn rates_of_modes_are_their_result() {
    let mut cells = read_results(&root().join("docs/results/rates")).unwrap();
    cells.retain(|cell| cell.id.experiment == "modes");
    assert_eq!(cells.len(), 3);
    let file = fs::read_to_string(root().join("train/experiments/paper/modes.toml")).unwrap();
    let file: toml::Table = file.parse().unwrap();
    let scale = file["sweep"]["scales"]["paper"].as_table().unwrap();
    for name in ["none", "positive", "signed", "complex", "selective", "selective-signed"] {
        let of = |cell: &&Cell| loss(cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == name).unwrap());
        let best = cells.iter().min_by(|a, b| of(a).total_cmp(&of(b))).unwrap();
        let rate = scale[&format!("adapter.{name}.train.lr")].as_float().unwrap();
        assert_eq!(best.id.axis("lr"), Some(&rate.to_string()[..]), "{name}");
    }
}

/// Every row of text and music at scale `paper` has the rate of its least validation loss in `paper-rates`, of one seed that `paper` does not have.
#[test]
fn rates_of_text_and_music_are_their_result() {
    const RATES: [&str; 3] = ["0.001", "0.003", "0.01"];
    let page = page("sweeps.md");
    let cells = read_results(&root().join("docs/results/rates")).unwrap();
    let at = |study: &str, name: &str, rate: &str| {
        let is_it = |cell: &&Cell| cell.id.experiment == study && cell.id.axis("lr") == Some(rate);
        let cell = cells.iter().find(is_it).unwrap();
        loss(cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == name).unwrap())
    };
    let studies = ["enwik8_pretrained", "maestro_pretrained"];
    let [text, music] = studies.map(|study| at(study, "none", "0.01"));
    assert!(page.contains(&format!("without an adapter {text:.4} and {music:.4})")));
    let scales = studies.map(|study| {
        let file = fs::read_to_string(root().join(format!("train/experiments/paper/{study}.toml"))).unwrap();
        file.parse::<toml::Table>().unwrap()["sweep"]["scales"]["paper"].as_table().unwrap().clone()
    });
    let mut below_the_end = 0;
    for name in ["hrm", "lora", "hrm-identity", "hrm-norm", "hrm-short-memory", "adalora", "dora", "lora-mlp"] {
        let mut line = format!("| `{name}` |");
        for (study, scale) in studies.iter().zip(&scales) {
            let losses = RATES.map(|rate| at(study, name, rate));
            let best = (0..3).min_by(|&a, &b| losses[a].total_cmp(&losses[b])).unwrap();
            let [low, middle, high] = losses;
            let _ = write!(line, " {low:.4} | {middle:.4} | {high:.4} | {} |", RATES[best]);
            assert_eq!(scale[&format!("adapter.{name}.train.lr")].as_float().unwrap().to_string(), RATES[best]);
            below_the_end += usize::from(best < 2);
        }
        says(&page, &line);
    }
    assert_eq!(below_the_end, 1, "all rows but one are best at the highest rate");
}

/// Every row of `entities` at scale `full` has the rate of its least validation loss in the pilot, of one seed.
#[test]
fn rates_of_entities_are_their_result() {
    const RATES: [&str; 3] = ["0.0003", "0.001", "0.003"];
    let page = page("language.md");
    let mut cells = read_results(&root().join("docs/results/rates")).unwrap();
    cells.retain(|cell| cell.id.experiment == "entities");
    let file = fs::read_to_string(root().join("train/experiments/language/entities.toml")).unwrap();
    let file: toml::Table = file.parse().unwrap();
    let full = file["sweep"]["scales"]["full"].as_table().unwrap();
    let at = |row: &str, rate: &str| {
        let cell = cells.iter().find(|cell| cell.id.axis("lr") == Some(rate)).unwrap();
        loss(cell.result.as_ref().unwrap().rows.iter().find(|found| found.name == row).unwrap())
    };
    assert!(page.contains(&format!("Without an adapter the loss is {:.4}", at("none", RATES[0]))));
    for adapter in file["adapter"].as_array().unwrap() {
        let name = adapter.get("name").unwrap_or(&adapter["kind"]).as_str().unwrap();
        if name == "none" {
            continue;
        }
        let losses = RATES.map(|rate| at(name, rate));
        let best = (0..3).min_by(|&a, &b| losses[a].total_cmp(&losses[b])).unwrap();
        let [low, middle, high] = losses;
        says(&page, &format!("| `{name}` | {low:.4} | {middle:.4} | {high:.4} | {} |", RATES[best]));
        assert_eq!(full[&format!("adapter.{name}.train.lr")].as_float().unwrap().to_string(), RATES[best], "{name}");
    }
}

/// Every row of an experiment of language at a scale has the rate of its least validation loss in the pilot, of one seed.
fn rates_are_those_of_the_pilot(experiment: &str, scale: &str, names: &[&str]) {
    const RATES: [&str; 3] = ["0.0003", "0.001", "0.003"];
    let mut cells = read_results(&root().join("docs/results/language")).unwrap();
    let pilot = format!("{scale}-pilot");
    cells.retain(|cell| cell.id.experiment == experiment && cell.id.scale.as_deref() == Some(&pilot));
    let file = fs::read_to_string(root().join(format!("train/experiments/language/{experiment}.toml"))).unwrap();
    let file: toml::Table = file.parse().unwrap();
    let planned = file["sweep"]["scales"][scale].as_table().unwrap();
    for name in names {
        let at = |rate: &&str| {
            let cell = cells.iter().find(|cell| cell.id.axis("lr") == Some(rate)).unwrap();
            loss(cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == *name).unwrap())
        };
        let best = RATES.into_iter().min_by(|a, b| at(a).total_cmp(&at(b))).unwrap();
        assert_eq!(planned[&format!("adapter.{name}.train.lr")].as_float().unwrap().to_string(), best, "{name}");
    }
}

#[test]
fn rates_of_qmsum_are_their_result() {
    rates_are_those_of_the_pilot("documents", "qmsum", &["hrm", "lora", "lora-mlp"]);
    assert!(page("language.md").contains("0.001 for HRM, 0.003 for LoRA and for LoRA on the MLP."));
    rates_are_those_of_the_pilot("documents", "qmsum-rivals", &["dora", "adalora"]);
    assert!(page("language.md").contains("0.003 for both."));
    // QuALITY has no pilot of its own.
    let file = fs::read_to_string(root().join("train/experiments/language/documents.toml")).unwrap();
    let file: toml::Table = file.parse().unwrap();
    let rates = |scale: &str| -> BTreeMap<String, f64> {
        let keys = file["sweep"]["scales"][scale].as_table().unwrap().iter();
        keys.filter(|(key, _)| key.ends_with(".train.lr"))
            .map(|(key, rate)| (key.clone(), rate.as_float().unwrap()))
            .collect()
    };
    let mut of_qmsum = rates("qmsum");
    of_qmsum.extend(rates("qmsum-rivals"));
    assert_eq!((rates("quality"), of_qmsum.len()), (of_qmsum, 5));
}

#[test]
fn rates_of_turns_on_smollm2_are_their_result() {
    rates_are_those_of_the_pilot("turns", "smollm2", &["hrm", "delta", "lora"]);
    assert!(page("language.md").contains("0.003 for HRM, the delta rule and LoRA."));
}

/// Every row of `words` at scale `smollm2-s3` has the better of two rates of the pilot, and its steps: householder-2 is right in 0.99 of the
/// words of the validation at one of them.
#[test]
fn rates_of_words_on_smollm2_are_their_result() {
    const RATES: [&str; 2] = ["0.001", "0.003"];
    let (page, sweeps) = (page("state.md"), page("sweeps.md"));
    let mut cells = read_results(&root().join("docs/results/rates")).unwrap();
    cells.retain(|cell| cell.id.experiment == "words");
    let file = fs::read_to_string(root().join("train/experiments/state/words.toml")).unwrap();
    let file: toml::Table = file.parse().unwrap();
    let scale = file["sweep"]["scales"]["smollm2-s3"].as_table().unwrap();
    let at = |row: &str, rate: &str| {
        let cell = cells.iter().find(|cell| cell.id.axis("lr") == Some(rate)).unwrap();
        cell.result.as_ref().unwrap().rows.iter().find(|found| found.name == row).unwrap().clone()
    };
    for name in ["lora-all", "hrm-signed", "householder-2"] {
        let [low, high] = RATES.map(|rate| at(name, rate));
        let best = RATES[usize::from(loss(&high) < loss(&low))];
        let accuracy = |row: &AdapterResult| row.validation.get("accuracy").unwrap();
        let figures = format!("{:.4}, {:.3} | {:.4}, {:.3}", loss(&low), accuracy(&low), loss(&high), accuracy(&high));
        says(&page, &format!("| {name} | {figures} | {best} |"));
        assert_eq!(scale[&format!("adapter.{name}.train.lr")].as_float().unwrap().to_string(), best, "{name}");
    }
    let right = RATES.map(|rate| at("householder-2", rate).validation.get("accuracy").unwrap());
    assert!(right.iter().any(|&share| share >= 0.99) && !scale.contains_key("train.steps"), "{right:?}");
    assert_eq!(file["train"]["steps"].as_integer(), Some(1000));
    let rows: Vec<&AdapterResult> = cells.iter().flat_map(|cell| &cell.result.as_ref().unwrap().rows).collect();
    let minutes = rows.iter().map(|row| row.training.as_ref().unwrap().seconds / 60.0).sum::<f64>() / rows.len() as f64;
    let sentence = format!("A row takes {minutes:.0} minutes of one core");
    assert!(sweeps.contains(&sentence), "{sentence}");
}

/// HRM and LoRA are level after 8,000 steps, HRM not after 4,000, on average over the two tables of steps.toml.
#[test]
fn steps_until_dfa_is_level_are_their_result() {
    let page = page("sweeps.md");
    assert!(page.contains("trains for 8,000 steps, after which the loss is level at a rate of 3e-3 in f32"));
    let cells = read_results(&root().join("docs/results/steps")).unwrap();
    let is_level_after = |steps: &str, name: &str| {
        let of_it = cells.iter().filter(|cell| cell.id.scale.is_none() && cell.id.axis("steps") == Some(steps));
        let (mut to_fall, mut gained, mut tables) = (0.0, 0.0, 0);
        for cell in of_it {
            let row = |name: &str| cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == name).unwrap();
            let training = row(name).training.as_ref().unwrap();
            to_fall += still_to_fall(&training.curve, training.steps).unwrap().max(0.0);
            gained += loss(row("none")) - loss(row(name));
            tables += 1;
        }
        assert_eq!(tables, 2, "{steps} {name}");
        is_level(to_fall, gained)
    };
    assert!(is_level_after("8000", "hrm") && is_level_after("8000", "lora") && !is_level_after("4000", "hrm"));
}

/// How long a study on SmolLM2 took, and the rates that were best for `dfa` after 600 steps.
#[test]
fn hours_and_first_rates_are_their_results() {
    let page = page("sweeps.md");
    let s3 = read_results(&root().join("docs/results/state")).unwrap();
    let s3 = s3.iter().filter(|cell| cell.id.scale.as_deref() == Some("smollm2-s3"));
    let hours: f64 = s3.map(|cell| cell.result.as_ref().unwrap().wall_time_seconds / 3600.0).sum();
    let said = format!("all of it about {hours:.0} hours");
    assert!(page.contains(&said), "{said}");
    let cells = read_results(&root().join("docs/results/rates")).unwrap();
    let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.id.scale.as_deref() == Some("rates")).collect();
    let at = |name: &str, rate: &str| -> f64 {
        let of_it = cells.iter().filter(|cell| cell.id.axis("lr") == Some(rate));
        of_it.map(|cell| loss(cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == name).unwrap())).sum()
    };
    for row in ["none", "hrm", "lora", "adalora", "dora", "lora-mlp"] {
        let best =
            ["0.001", "0.003", "0.01", "0.03"].into_iter().min_by(|a, b| at(row, a).total_cmp(&at(row, b))).unwrap();
        assert!(["0.01", "0.03"].contains(&best), "{row}: {best}");
    }
    assert!(page.contains("the best were 0.01 and 0.03"));
}
