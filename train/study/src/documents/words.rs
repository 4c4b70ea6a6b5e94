//! Products of a group, in state.md.

use super::{number, page, root, says};
use hankel_trainer::format::thousands;
use serde_json::Value;
use statrs::distribution::{Beta, ContinuousCDF};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The tables of state.md: solved seeds, the tests of the plan, and accuracies by length.
#[test]
fn words_are_their_result() {
    let page = page("state.md");
    let of_small = [
        ("z2", "selective-signed", "selective"),
        ("z2", "selective-signed", "hrm-signed"),
        ("z2", "householder", "delta"),
        ("z3", "rotation", "selective-signed"),
        ("z3", "rotation", "hrm-complex"),
        ("z3", "rotation", "lora"),
        ("s3", "householder-2", "rotation"),
        ("s3", "householder-2", "householder"),
        ("s3", "householder-2", "delta"),
        ("s3", "householder-2", "lora"),
    ];
    words_of("small", &page, &["z2", "z3", "s3"], &of_small);
    words_of("long", &page, &["z2", "z3", "s3"], &of_small);
    let of_paper = ["a5", "s5"].map(|group| (group, "householder-2", "rotation"));
    words_of("paper", &page, &["a5", "s5"], &of_paper);
    let of_smollm2 = ["lora-all", "hrm-signed"].map(|row| ("s3", "householder-2", row));
    words_of("smollm2-s3", &page, &["s3"], &of_smollm2);
}

/// Seeds that a scale has of each group.
fn seeds_of(scale: &str) -> usize {
    if scale == "smollm2-s3" { 5 } else { 8 }
}

/// The tables of one scale, with the tests of `pairs`: group, the row that should solve more seeds, and the one that should solve fewer.
fn words_of(scale: &str, page: &str, groups: &[&str], pairs: &[(&str, &str, &str)]) {
    let path = root().join(format!("docs/results/state/words-{scale}.jsonl"));
    let cells = read(&path);
    let rows = cells[0]["result"]["rows"].as_array().unwrap();
    let seeds = seeds_of(scale);
    let accuracies = |group: &str, row: &str, length: u32| -> Vec<f64> {
        let of_group = cells.iter().filter(|cell| cell["axes"][0][1] == group);
        let values: Vec<f64> = of_group
            .map(|cell| {
                let row = cell["result"]["rows"].as_array().unwrap().iter().find(|found| found["name"] == row).unwrap();
                number(&row["test"]["metrics"][format!("accuracy_to_{length}")])
            })
            .collect();
        assert_eq!(values.len(), seeds, "{group} {row}");
        values
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let solved = |group: &str, row: &str| accuracies(group, row, 128).iter().filter(|value| **value > 0.99).count();
    for row in rows {
        let (name, parameters) = (row["name"].as_str().unwrap(), row["parameters"]["adapter"].as_u64().unwrap());
        let of_group =
            |group: &&str| format!("{} of {seeds}, {:.3}", solved(group, name), mean(&accuracies(group, name, 128)));
        let columns: Vec<String> = groups.iter().map(of_group).collect();
        says(page, &format!("| {name} | {} | {} |", thousands(parameters), columns.join(" | ")));
        for group in groups {
            let columns = [32, 64, 128, 256, 512].map(|length| {
                let values = accuracies(group, name, length);
                let [least, most] =
                    [values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(f64::MIN, f64::max)];
                format!("{:.3} ({least:.3} to {most:.3})", mean(&values))
            });
            says(page, &format!("| {} | {name} | {} |", group.to_uppercase(), columns.join(" | ")));
        }
    }
    // Fisher's exact test by factorials: the other implementation, table.py, has binomial coefficients.
    let factorial = |n: usize| (1..=n).map(|k| k as f64).product::<f64>();
    let of_table = |more: usize, fewer: usize| {
        let cells = [more, seeds - more, fewer, seeds - fewer].map(factorial);
        factorial(seeds).powi(2) * factorial(more + fewer) * factorial(2 * seeds - more - fewer)
            / (factorial(2 * seeds) * cells.iter().product::<f64>())
    };
    let counts: Vec<(usize, usize)> =
        pairs.iter().map(|(group, more, fewer)| (solved(group, more), solved(group, fewer))).collect();
    let probability = |(more, fewer): &(usize, usize)| {
        let total = more + fewer;
        (*more..=total.min(seeds)).filter(|k| total - k <= seeds).map(|k| of_table(k, total - k)).sum::<f64>()
    };
    let p: Vec<f64> = counts.iter().map(probability).collect();
    for (index, (group, more, fewer)) in pairs.iter().enumerate() {
        // Of those that are at most as large, the largest times how many are at least that large.
        let corrected = (0..p.len())
            .filter(|other| p[*other] <= p[index])
            .map(|other| p[other] * p.iter().filter(|least| **least >= p[other]).count() as f64)
            .fold(0.0, f64::max)
            .min(1.0);
        let (first, second) = counts[index];
        let group = group.to_uppercase();
        says(page, &format!("| {group} | {more} | {fewer} | {first} to {second} | {:.4} | {corrected:.4} |", p[index]));
    }
}

/// The validation losses of scales `long` and `smollm2-s3`, and the seeds that still learn: those whose loss, along the line through the last fifth of the
/// steps and the end, would fall by 2 % of that of guessing in as many steps again.
#[test]
fn losses_of_words_are_their_result() {
    let page = page("state.md");
    losses_of("long", &page, &[("z2", 2.0), ("z3", 3.0), ("s3", 6.0)]);
    losses_of("smollm2-s3", &page, &[("s3", 6.0)]);
}

/// The losses of one scale; groups with the number of their elements.
fn losses_of(scale: &str, page: &str, groups: &[(&str, f64)]) {
    let cells = read(&root().join(format!("docs/results/state/words-{scale}.jsonl")));
    let seeds = seeds_of(scale);
    let names = cells[0]["result"]["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap());
    for (group, order) in groups {
        let of_group: Vec<&Value> = cells.iter().filter(|cell| cell["axes"][0][1] == *group).collect();
        assert_eq!(of_group.len(), seeds);
        for name in names.clone() {
            let of_cell = |cell: &&'_ Value| {
                cell["result"]["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone()
            };
            let rows: Vec<Value> = of_group.iter().map(of_cell).collect();
            let losses: Vec<f64> = rows.iter().map(|row| number(&row["validation"]["metrics"]["loss"])).collect();
            let [least, most] = [f64::min, f64::max].map(|of| losses.iter().copied().reduce(of).unwrap());
            let mean = losses.iter().sum::<f64>() / seeds as f64;
            let still = rows.iter().filter(|row| row["training"].is_object() && still_learns(row, order.ln())).count();
            let still = if name == "none" { String::new() } else { format!("{still} of {seeds}") };
            let group = group.to_uppercase();
            says(page, &format!("| {group} | {name} | {mean:.3} ({least:.3} to {most:.3}) | {still} |"));
        }
    }
}

fn still_learns(row: &Value, guessing: f64) -> bool {
    let training = &row["training"];
    let steps = number(&training["steps"]);
    let points = training["curve"].as_array().unwrap().iter().map(|point| [number(&point[0]), number(&point[1])]);
    let points = points.chain([[steps, number(&row["validation"]["metrics"]["loss"])]]);
    let last: Vec<[f64; 2]> = points.filter(|[step, _]| *step >= 0.8 * steps).collect();
    assert!(last.len() > 1);
    let n = last.len() as f64;
    let [x, y, xx, xy] = last.iter().fold([0.0; 4], |[a, b, c, d], [x, y]| [a + x, b + y, c + x * x, d + x * y]);
    let slope = (n * xy - x * y) / (n * xx - x * x);
    -slope * 0.2 * steps >= 0.02 * guessing
}

/// The rates of scale `long`: the table of validation losses by which they were chosen, and the file that they are set in.
#[test]
fn rates_of_words_are_their_result() {
    const RATES: [&str; 3] = ["0.003", "0.01", "0.03"];
    let page = page("state.md");
    let file = fs::read_to_string(root().join("train/experiments/state/words.toml")).unwrap();
    let file: toml::Table = file.parse().unwrap();
    let of_long = file["sweep"]["scales"]["long"]["group"].as_array().unwrap();
    let mut losses: BTreeMap<(String, String), BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for cell in read(&root().join("docs/results/state/words-rates.jsonl")) {
        let axis = |name: &str| {
            let axes = cell["axes"].as_array().unwrap();
            axes.iter().find(|axis| axis[0] == name).unwrap()[1].as_str().unwrap().to_owned()
        };
        for row in cell["result"]["rows"].as_array().unwrap().iter().filter(|row| row["training"].is_object()) {
            let of_row = losses.entry((axis("group"), row["name"].as_str().unwrap().to_owned())).or_default();
            of_row
                .entry(axis("lr"))
                .or_default()
                .push(row["validation"]["metrics"]["loss"].as_f64().unwrap_or(f64::INFINITY));
        }
    }
    let rows = losses.len();
    let mut at_ends = [0; 2];
    for ((group, row), by_rate) in losses {
        let means = RATES.map(|rate| {
            assert_eq!(by_rate[rate].len(), 2, "{group} {row} {rate}");
            f64::midpoint(by_rate[rate][0], by_rate[rate][1])
        });
        let best = RATES[(0..3).min_by(|a, b| means[*a].total_cmp(&means[*b])).unwrap()];
        let [low, middle, high] = means;
        says(&page, &format!("| {} | {row} | {low:.4} | {middle:.4} | {high:.4} | {best} |", group.to_uppercase()));
        let set = of_long.iter().find(|entry| entry["label"].as_str() == Some(&group)).unwrap();
        let rate = set[&format!("adapter.{row}.train.lr")].as_float().unwrap();
        assert_eq!(rate.to_string(), best, "{group} {row}");
        at_ends[0] += usize::from(best == RATES[0]);
        at_ends[1] += usize::from(best == RATES[2]);
    }
    let [low, high] = at_ends;
    let ends =
        format!("{} of the {rows} rows are best at an end of the grid, {low} of them at the lowest rate,", low + high);
    assert!(page.contains(&ends), "{ends}");
}

/// What state.md and README say of solved seeds at scale `long`, with Clopper and Pearson's intervals.
#[test]
fn sentences_of_words_are_on_the_page() {
    let [page, readme] = ["docs/state.md", "README.md"].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let long = page.split("## Longer").nth(1).unwrap();
    let solved = |row: &str, group: usize| -> u32 {
        let line = long.lines().find(|line| line.starts_with(&format!("| {row} |"))).unwrap();
        line.split(" | ").nth(2 + group).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    let interval = |count: u32| {
        let end = |a: u32, b: u32, share: f64| Beta::new(f64::from(a), f64::from(b)).unwrap().inverse_cdf(share);
        let low = if count == 0 { 0.0 } else { end(count, 9 - count, 0.025) };
        let high = if count == 8 { 1.0 } else { end(count + 1, 8 - count, 0.975) };
        let [low, high] = [low, high].map(|end| if end == 0.0 { "0".to_owned() } else { format!("{end:.2}") });
        format!("{low} to {high}")
    };
    let [of_z2, of_z3, of_s3] = [0, 1, 2].map(|group| solved("householder-2", group));
    let signed = solved("selective-signed", 0);
    for said in [
        format!("in {of_s3} of 8 seeds on a model of 260,000 parameters ({})", interval(of_s3)),
        format!("as those trained on (0 of 8 seeds, {})", interval(0)),
    ] {
        assert!(readme.contains(&said), "{said}");
    }
    for said in [
        format!("in {of_s3} of 8 seeds (95 % interval {})", interval(of_s3)),
        format!("Z2 in {of_z2} of 8 seeds\n  ({})", interval(of_z2)),
        format!("**Z3 in {of_z3} of 8** ({})", interval(of_z3)),
        format!("solves parity**, in {signed} of 8 seeds ({})", interval(signed)),
    ] {
        assert!(page.contains(&said), "{said}");
    }
    let rows = ["lora", "lora-all", "dora", "hrm-positive", "hrm-signed", "hrm-complex", "delta"];
    assert!(rows.iter().chain(&["rotation"]).all(|row| (0..3).all(|group| solved(row, group) == 0)));
    let cells = read(&root().join("docs/results/state/words-long.jsonl"));
    let [on_z2, on_z3, on_s3] = ["z2", "z3", "s3"].map(|group| {
        let cell = cells.iter().find(|cell| cell["axes"][0][1] == group).unwrap();
        number(&cell["result"]["task"]["baselines"]["window_8"])
    });
    let window = format!("is right there in {on_s3:.3}, in {on_z2:.3} on Z2 and in {on_z3:.3} on Z3.");
    assert!(page.contains(&window), "{window}");
    // Means over seeds of the right answers over words of a length.
    let mean_of = |cells: &[Value], row: &str, group: &str, words: u32| -> f64 {
        let of_group = cells.iter().filter(|cell| cell["axes"][0][1] == group);
        let rows = of_group.flat_map(|cell| cell["result"]["rows"].as_array().unwrap());
        let values: Vec<f64> = rows
            .filter(|found| found["name"] == row)
            .map(|found| number(&found["test"]["metrics"][format!("accuracy_to_{words}")]))
            .collect();
        assert_eq!(values.len(), 8, "{row} {group}");
        values.iter().sum::<f64>() / 8.0
    };
    let mean = |row: &str, group: &str, words: u32| format!("{:.3}", mean_of(&cells, row, group, words));
    let small = read(&root().join("docs/results/state/words-small.jsonl"));
    let early = |row: &str| format!("{:.3}", mean_of(&small, row, "s3", 32));
    let on_s3: Vec<f64> = rows.iter().map(|row| mean_of(&cells, row, "s3", 32)).collect();
    let (least, most) = on_s3.iter().fold((1.0_f64, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)));
    let [two, signed_poles, all] = ["householder-2", "hrm-signed", "lora-all"];
    let text = page.replace("\n  ", " ");
    for said in [
        format!("they are right in {}, {} and {}.", mean(two, "z2", 512), mean(two, "z3", 512), mean(two, "s3", 512)),
        format!("right over the words trained on ({}), and beyond them errors add up", mean(two, "z3", 32)),
        format!("They fit the words trained on ({})", mean("rotation", "z3", 32)),
        format!("are right in {} over words of 64 of Z3", mean("rotation", "z3", 64)),
        format!("and drift: {} over words of 128", mean("rotation", "z3", 128)),
        format!(
            "parity most (LoRA on all layers {}, HRM with signed poles {}), and fall behind beyond them ({}, {} over words of 128)",
            mean(all, "z2", 32),
            mean(signed_poles, "z2", 32),
            mean(all, "z2", 128),
            mean(signed_poles, "z2", 128)
        ),
        format!("On S3 they end at {least:.2} to {most:.2} over the words trained on"),
        format!(
            "over the words trained on ({}, {}, {}; {}, {}, {} after 1,000 steps)",
            mean("householder", "s3", 32),
            mean("rotation", "s3", 32),
            mean("selective-signed", "s3", 32),
            early("householder"),
            early("rotation"),
            early("selective-signed")
        ),
    ] {
        assert!(text.contains(&said), "{said}");
    }
}

/// What state.md and README say of solved seeds on SmolLM2.
#[test]
fn sentences_of_words_on_smollm2_are_their_result() {
    let [page, readme] = ["docs/state.md", "README.md"].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let cells = read(&root().join("docs/results/state/words-smollm2-s3.jsonl"));
    let accuracies = |row: &str| -> Vec<f64> {
        let of_cell = |cell: &Value| {
            let row = cell["result"]["rows"].as_array().unwrap().iter().find(|found| found["name"] == row).unwrap();
            number(&row["test"]["metrics"]["accuracy_to_128"])
        };
        cells.iter().map(of_cell).collect()
    };
    let reflections = accuracies("householder-2");
    let solved = reflections.iter().filter(|accuracy| **accuracy > 0.99).count();
    let (count, seeds) = (solved as f64, reflections.len() as f64);
    let low = Beta::new(count, seeds - count + 1.0).unwrap().inverse_cdf(0.025);
    let high = Beta::new(count + 1.0, seeds - count).unwrap().inverse_cdf(0.975);
    let others: Vec<String> = reflections.iter().filter(|a| **a <= 0.99).map(|a| format!("{a:.4}")).collect();
    assert!(["lora-all", "hrm-signed"].iter().all(|row| accuracies(row).iter().all(|accuracy| *accuracy < 0.5)));
    for said in [
        format!("solve {solved} of {seeds} seeds** (95 % interval {low:.2} to {high:.2})"),
        format!("The other two are right in {} of the answers", others.join(" and ")),
        format!("is right there in {:.3}. LoRA", number(&cells[0]["result"]["task"]["baselines"]["window_8"])),
    ] {
        assert!(page.contains(&said), "{said}");
    }
    let said = format!("and in {solved} of {seeds} on SmolLM2-135M ({low:.2} to {high:.2};");
    assert!(readme.contains(&said), "{said}");
}
