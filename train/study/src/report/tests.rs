//! Sections of synthetic experiments.

use super::{CellRun, read, sections, write};
use crate::testing::result;
use crate::{Cell, CellId};
use hankel_trainer::report::{Figure, Run, Section};
use hankel_trainer::results::{Event, LayerResult, RunResult, Scores, Split};
use serde_json::json;
use std::fs;
use std::path::Path;

/// A finished cell.
fn cell(experiment: &str, axes: &[(&str, &str)], change: impl Fn(&mut RunResult)) -> CellRun {
    let mut result = result();
    change(&mut result);
    let id = CellId {
        experiment: experiment.into(),
        scale: None,
        axes: axes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    CellRun { cell: Cell { id, result: Some(result), ..Cell::default() }, events: Vec::new() }
}

/// With two seeds.
fn cells(experiment: &str, axes: &[(&str, &str)], change: impl Fn(&mut RunResult)) -> Vec<CellRun> {
    let seeds = ["0", "1"].map(|seed| {
        let axes: Vec<_> = axes.iter().copied().chain([("seed", seed)]).collect();
        cell(experiment, &axes, &change)
    });
    seeds.into()
}

fn on_task(result: &mut RunResult, kind: &str, metric: &str) {
    result.task.kind = kind.into();
    result.task.primary_metric = metric.into();
    result.task.baselines.clear();
    for row in &mut result.rows {
        row.validation = Scores { metrics: [(metric.to_owned(), 0.25)].into(), ..Scores::default() };
    }
}

/// Two evaluations of a stage.
fn curve(stage: &str, metric: &str, value: f64) -> Vec<Event> {
    let eval = |step| Event::Eval {
        stage: stage.into(),
        step,
        split: Split::Validation,
        scores: Scores { metrics: [(metric.to_owned(), value)].into(), ..Scores::default() },
        seconds: 1.0,
    };
    [1, 2].map(eval).into()
}

fn of<'a>(sections: &'a [Section], title: &str) -> &'a Section {
    sections.iter().find(|section| section.title == title).unwrap()
}

/// Figures whose names begin so.
fn figures<'a>(section: &'a Section, name: &str) -> Vec<&'a Figure> {
    section.figures.iter().filter(|figure| figure.name.starts_with(name)).collect()
}

/// Labels of series that have a value.
fn series(figure: &Figure) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for line in figure.to_csv().lines().skip(1) {
        let label = line.split(',').next().unwrap();
        if labels.last().is_none_or(|last| last != label) {
            labels.push(label.to_owned());
        }
    }
    labels
}

#[test]
fn every_task_is_shown_by_its_own_metric() {
    let tasks = [("quality", "accuracy"), ("qmsum", "rouge1"), ("narrativeqa", "token_f1")];
    let mut runs = Vec::new();
    for (task, metric) in tasks {
        for weights in ["bf16", "nf4"] {
            let mut made =
                cells("longbench", &[("task", task), ("weights", weights)], |result| on_task(result, task, metric));
            for run in &mut made {
                run.events = ["none", "hrm", "lora"].iter().flat_map(|stage| curve(stage, metric, 0.2)).collect();
            }
            runs.extend(made);
        }
    }
    let sections = sections(&runs);
    let section = of(&sections, "longbench");
    for (task, metric) in tasks {
        let name = hankel_trainer::format::metric_name(metric);
        assert!(section.html.contains(&format!("{name}<small>mean ± sd")), "{metric}: {}", section.html);
        assert!(section.html.contains(&format!("task {task}, weights nf4")), "{task}");
        assert_eq!(figures(section, &format!("longbench-curves-task-{task}-weights")).len(), 2, "{task}");
        let along = figures(section, &format!("longbench-{}-by-weights-task-{task}", metric.replace('_', "-")));
        let [along] = along[..] else { panic!("{} figures of {task} by weights", along.len()) };
        assert_eq!(series(along), ["none", "hrm", "lora", "hrm-truncated"]);
        assert!(!along.to_csv().contains(",,"), "{}", along.to_csv());
    }
    assert!(figures(section, "longbench-accuracy-by-task").is_empty(), "no metric is shared by tasks");
}

#[test]
fn layers_are_shown_at_every_point_of_the_grid() {
    let at = |points: usize| -> Vec<CellRun> {
        let values: Vec<String> = (1..=points).map(|n| n.to_string()).collect();
        values.iter().flat_map(|value| cells("diverge", &[("gate", value)], |_| {})).collect()
    };
    let mut runs = at(3);
    for result in runs.iter_mut().filter_map(|run| run.cell.result.as_mut()) {
        result.rows[3].name = "hrm-order-6".into();
        let mut closed = result.rows[1].clone();
        (closed.name, closed.probed_from) = ("hrm-gate-0".into(), Some("hrm".into()));
        result.rows.push(closed);
        for (n, row) in result.rows.iter_mut().enumerate() {
            let n = if row.probed_from.is_some() { 0 } else { n };
            row.layers.iter_mut().for_each(|layer| layer.contribution = Some(0.1 * n as f64));
            if row.probed_from.is_some() {
                row.layers.iter_mut().for_each(|layer| layer.gate = Some(0.0));
            }
        }
    }
    for quantity in ["gates-after-training", "contribution-of-each-layer"] {
        let sections = sections(&runs);
        let drawn = figures(of(&sections, "diverge"), &format!("diverge-{quantity}"));
        let names: Vec<&str> = drawn.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["1", "2", "3"].map(|gate| format!("diverge-{quantity}-gate-{gate}")));
        // A truncated row is as the full one, and there is nothing to see of a row at 0.
        assert!(drawn.iter().all(|figure| !series(figure).iter().any(|row| row != "hrm" && row != "lora")));
        assert!(drawn.iter().all(|figure| series(figure).contains(&"hrm".to_owned())));
        assert!(drawn.iter().all(|figure| figure.caption.ends_with("Everywhere 0: hrm-gate-0.")), "{drawn:?}");
    }
    let sections = sections(&at(11));
    let drawn = figures(of(&sections, "diverge"), "diverge-gates-after-training");
    assert_eq!(drawn.len(), 9);
    assert!(drawn[8].caption.ends_with("deviation. 2 more points of the grid: not drawn."), "{}", drawn[8].caption);
    assert!(!drawn[7].caption.contains("not drawn"));
}

#[test]
fn singular_values_have_a_line_per_task() {
    let task = |kind: &'static str| move |result: &mut RunResult| on_task(result, kind, "accuracy");
    let twice = |result: &mut RunResult| {
        on_task(result, "dfa", "accuracy");
        // Signed poles come first and do not count.
        let mut signed = result.rows[1].clone();
        (signed.name, signed.settings) = ("signed".into(), "d = 32, paper preset, signed poles, mlp".into());
        signed.layers.truncate(1);
        signed.layers[0].hankel_singular_values = vec![1.0, 1.0];
        result.rows.insert(1, signed);
        for layer in &mut result.rows[2].layers {
            *layer = LayerResult { hankel_singular_values: vec![2.0, 0.5, 0.5], ..layer.clone() };
        }
    };
    let mut runs = cells("data", &[("task", "dfa")], task("dfa"));
    runs.extend(cells("data", &[("task", "parity")], task("parity")));
    runs.extend(cells("dfa", &[("states", "4")], twice));
    // A smaller system is not mixed with the larger ones.
    runs.extend(cells("dfa", &[("states", "5")], |result| {
        on_task(result, "dfa", "accuracy");
        for layer in result.rows.iter_mut().flat_map(|row| &mut row.layers) {
            layer.hankel_singular_values = vec![1.0, 1.0];
        }
    }));
    runs.extend(cells("enwik8", &[], task("bytes")));
    runs.extend(cells("longbench", &[("task", "quality")], task("quality")));
    runs.extend(cells("longbench", &[("task", "qmsum")], task("qmsum")));
    let sections = sections(&runs);
    let [figure] = figures(&sections[0], "singular-values-by-task")[..] else { panic!("{:?}", sections[0]) };
    assert_eq!(series(figure), ["dfa", "parity", "enwik8", "qmsum", "quality", "ε = 0.01"]);
    assert!(figure.to_csv().contains("\ndfa,2,0.25,"), "{}", figure.to_csv());
    assert!(figure.caption.ends_with("From dfa, data, enwik8, longbench."), "{}", figure.caption);
}

#[test]
fn all_rows_and_points_are_drawn() {
    let many = |result: &mut RunResult| {
        let (lora, hrm) = (result.rows[2].clone(), result.rows[1].clone());
        result.rows.truncate(1);
        for size in [4, 8, 16, 32, 64, 128] {
            let mut row = lora.clone();
            row.name = format!("lora-{size}");
            row.layers.iter_mut().for_each(|layer| layer.order = size);
            result.rows.push(row);
        }
        for size in [4, 8, 16, 32, 64] {
            let mut row = hrm.clone();
            row.name = format!("hrm-{size}");
            row.layers.iter_mut().for_each(|layer| layer.order = size);
            result.rows.push(row);
        }
    };
    let lengths: Vec<String> = (1..=14).map(|n| (8 * n).to_string()).collect();
    let mut runs: Vec<CellRun> = lengths.iter().flat_map(|length| cells("rank", &[("length", length)], many)).collect();
    for run in &mut runs {
        let names: Vec<String> = run.rows().iter().map(|row| row.name.clone()).collect();
        run.events = names.iter().flat_map(|name| curve(name, "accuracy", 0.5)).collect();
    }
    let sections = sections(&runs);
    let section = of(&sections, "rank");
    let lora = ["none", "lora-4", "lora-8", "lora-16", "lora-32", "lora-64", "lora-128"];
    let hrm = ["hrm-4", "hrm-8", "hrm-16", "hrm-32", "hrm-64"];

    let curves = figures(section, "rank-curves-");
    assert_eq!(curves.len(), 2 * 12, "two charts each for twelve lengths");
    assert_eq!(curves[0].name, "rank-curves-length-8-1");
    assert_eq!(series(curves[0]), lora);
    assert_eq!(series(curves[1]), hrm);
    assert!(curves[23].caption.ends_with("2 more points of the grid: not drawn."), "{}", curves[23].caption);

    let along = figures(section, "rank-accuracy-by-length");
    assert_eq!(
        along.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>(),
        ["rank-accuracy-by-length-1", "rank-accuracy-by-length-2"]
    );
    assert!(
        series(along[0]).starts_with(&lora.map(String::from)) && series(along[1]).starts_with(&hrm.map(String::from))
    );

    let sizes = figures(section, "rank-sizes");
    assert_eq!(sizes.len(), 12);
    assert_eq!(sizes[0].caption, "Mean over seeds ± one standard deviation.", "the band is drawn for every metric");
}

#[test]
fn points_with_the_same_file_name_keep_their_figures() {
    let gates = ["-0.1", "0.1"].map(|gate| cells("signs", &[("gate-init", gate)], |_| {}));
    let out = tempfile::tempdir().unwrap();
    let runs = gates.concat().into_iter().map(|run| {
        let result = run.cell.result.clone();
        (Run { name: "r".into(), result, events: run.events, ..Run::default() }, Some(run.cell))
    });
    write(runs.collect(), &out.path().join("report.html")).unwrap();
    let html = fs::read_to_string(out.path().join("report.html")).unwrap();
    assert_eq!(html.matches("<svg ").count() % 2, 0);
    let files = fs::read_dir(out.path().join("plots")).unwrap();
    assert_eq!(files.count(), 3 * html.matches("<figure>").count(), "svg, png and csv of each");
    assert!(out.path().join("plots/signs-gates-after-training-gate-init-0-1-2.csv").exists());
}

#[test]
fn odd_names_of_metrics_make_a_page() {
    for metric in ["", "é"] {
        let runs =
            ["1", "2"].map(|length| cells("odd", &[("length", length)], |result| on_task(result, "dfa", metric)));
        let sections = sections(&runs.concat());
        assert!(!of(&sections, "odd").figures.is_empty(), "{metric:?}");
    }
}

#[test]
fn times_belong_to_one_point_of_the_other_axes() {
    let mut runs = Vec::new();
    for tier in ["1", "2"] {
        for length in ["8", "16"] {
            runs.extend(cells("bytes", &[("tier", tier), ("length", length)], |_| {}));
        }
    }
    let sections = sections(&runs);
    let drawn = figures(of(&sections, "bytes"), "bytes-seconds-per-step-by-length");
    let names: Vec<&str> = drawn.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["1", "2"].map(|tier| format!("bytes-seconds-per-step-by-length-tier-{tier}")));
}

#[test]
fn rows_of_no_one_size_are_not_drawn_by_size() {
    let runs = cells("ranks", &[], |result| {
        let lora = result.rows[2].clone();
        result.rows.truncate(1);
        for (kind, size) in [("lora", 4), ("lora", 8), ("lora", 16), ("adalora", 4), ("adalora", 8), ("adalora", 16)] {
            let mut row = lora.clone();
            (row.name, row.kind) = (format!("{kind}-{size}"), kind.into());
            for (n, layer) in row.layers.iter_mut().enumerate() {
                layer.order = if kind == "adalora" { size + n } else { size };
            }
            result.rows.push(row);
        }
    });
    let sections = sections(&runs);
    let [sizes] = figures(of(&sections, "ranks"), "ranks-sizes")[..] else { panic!("{:?}", sections[1]) };
    assert_eq!(series(sizes), ["lora"]);
}

#[test]
fn the_split_of_figures_is_told() {
    let tested = |result: &mut RunResult| {
        result.rows[1].test = Some(Scores { metrics: [("accuracy".to_owned(), 0.75)].into(), ..Scores::default() });
    };
    let runs = ["8", "16"].map(|length| cells("splits", &[("length", length)], tested)).concat();
    let sections_of = sections(&runs);
    let section = of(&sections_of, "splits");
    for told in [
        "validation accuracy<small>mean ± sd",
        "<small>validation, 95 %",
        "test accuracy<small>mean ± sd",
        "0.7500 ± 0.0000",
    ] {
        assert!(section.html.contains(told), "{told}: {}", section.html);
    }
    let titles = |name: &str| format!("{:?}", figures(section, name));
    assert!(titles("splits-accuracy-by-length").contains("Validation accuracy by length"));
    assert!(titles("splits-seconds-per-step-by-length").contains("\"Seconds per step by length"));
    let untested = sections(&cells("splits", &[], |_| {}));
    assert!(!of(&untested, "splits").html.contains("test accuracy"));
}

#[test]
fn one_run_has_no_deviation() {
    let runs: Vec<CellRun> =
        ["8", "16"].map(|length| cell("single", &[("length", length), ("gate", "a"), ("seed", "0")], |_| {})).into();
    let sections_of = sections(&runs);
    let [along] = figures(of(&sections_of, "single"), "single-accuracy-by-length")[..] else { panic!("no figure") };
    assert!(along.to_csv().lines().skip(1).all(|line| line.ends_with(",,")), "{}", along.to_csv());
    let [gates, ..] = figures(of(&sections_of, "single"), "single-gates")[..] else { panic!("no gates") };
    assert!(gates.to_csv().lines().skip(1).all(|line| line.ends_with(',')), "{}", gates.to_csv());
}

#[test]
fn what_came_to_nothing_is_named() {
    let mut runs = cells("lost", &[("length", "8")], |_| {});
    runs[1].cell.result = None;
    runs[1].cell.diverged = Some("`pretrain` stopped at step 3".into());
    runs[0].cell.diverged_rows.insert("lora".into(), "`lora` stopped at step <4>".into());
    let planned =
        |cell: &Cell| cell.result.as_ref().unwrap().rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    runs[0].cell.planned_rows = [planned(&runs[0].cell), vec!["dora".to_owned(), "lora".to_owned()]].concat();
    let html = of(&sections(&runs), "lost").html.clone();
    assert!(html.contains("2 came to values that are not finite. Rows are not run yet in 1 cell."), "{html}");
    assert!(html.contains("<li>length 8, seed 0: dora not run yet</li>"), "{html}");
    assert!(html.contains("<li>length 8, seed 1: `pretrain` stopped at step 3</li>"), "{html}");
    assert!(html.contains("<li>length 8, seed 0: lora: `lora` stopped at step &lt;4&gt;</li>"), "{html}");
}

/// Leaves the directory of a run of a sweep.
fn leave(directory: &Path, cell: &serde_json::Value, result: Option<&RunResult>) {
    fs::create_dir_all(directory).unwrap();
    let mut files = vec![("cell.json", cell.to_string()), ("metrics.jsonl", String::new())];
    files.extend(result.map(|result| ("result.json", serde_json::to_string(result).unwrap())));
    for (name, content) in files {
        fs::write(directory.join(name), content).unwrap();
    }
}

#[test]
fn rows_of_several_plans_are_one_cell() {
    let place = tempfile::tempdir().unwrap();
    let old = ["hrm", "lora"];
    for (name, planned) in [("hrm", &old[..]), ("lora", &old), ("none", &["none", "hrm", "lora"])] {
        let mut result = result();
        result.rows.retain(|row| row.name == name);
        let cell = json!({ "experiment": "e", "axes": [["seed", "0"]], "planned_rows": planned });
        leave(&place.path().join("e/seed-0").join(name), &cell, Some(&result));
    }
    let runs = read(&[place.path().to_owned()]).unwrap();
    let [(run, Some(cell))] = &runs[..] else { panic!("{} runs", runs.len()) };
    let names: Vec<&str> = run.rows().iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["none", "hrm", "lora"]);
    assert!(cell.planned_rows.is_empty() && run.result == cell.result);
}

/// Of a run of all rows that diverged nothing else is known; of rows that were run by themselves something is.
#[test]
fn rows_are_not_lost_beside_another_run_of_their_cell() {
    let place = tempfile::tempdir().unwrap();
    let id = |planned: &[&str]| json!({ "experiment": "e", "axes": [["seed", "0"]], "planned_rows": planned });
    leave(&place.path().join("whole"), &id(&[]), None);
    let logged = |directory: &str| {
        let event = Event::Checkpoint { stage: "hrm".into(), step: 1, path: directory.into() };
        let line = serde_json::to_string(&event).unwrap() + "\n";
        fs::write(place.path().join(directory).join("metrics.jsonl"), line).unwrap();
    };
    logged("whole");
    let failure = json!({ "error": "`lora` stopped at step 3", "diverged": ["lora", 3] });
    fs::write(place.path().join("whole/failed.json"), failure.to_string()).unwrap();
    let mut result = result();
    result.rows.retain(|row| row.name == "hrm");
    leave(&place.path().join("rows/hrm"), &id(&["hrm", "lora"]), Some(&result));
    logged("rows/hrm");
    let lost = place.path().join("rows/lora");
    leave(&lost, &id(&["hrm", "lora"]), None);
    fs::write(lost.join("failed.json"), failure.to_string()).unwrap();
    for order in [["whole", "rows"], ["rows", "whole"]] {
        let runs = read(&order.map(|name| place.path().join(name))).unwrap();
        let [(run, Some(cell))] = &runs[..] else { panic!("{} runs", runs.len()) };
        let of_row = Event::Checkpoint { stage: "hrm".into(), step: 1, path: "rows/hrm".into() };
        assert_eq!(run.events, [of_row], "curves are of the run with the figures");
        assert_eq!((cell.result.as_ref().map(|result| result.rows.len()), &cell.diverged), (Some(1), &None));
        assert_eq!(cell.diverged_rows.keys().collect::<Vec<_>>(), ["lora"]);
    }
    // One directory deeper.
    let deeper = place.path().join("all/node/e/seed-0/hrm");
    leave(&deeper, &id(&["hrm", "lora"]), Some(&result));
    assert_eq!(read(&[place.path().join("all")]).unwrap().len(), 1);
    // Whole runs have the same rows.
    let other = place.path().join("other");
    leave(&other, &id(&[]), Some(&result));
    result.rows[0].name = "last".into();
    leave(&place.path().join("another"), &id(&[]), Some(&result));
    let message = read(&[other, place.path().join("another")]).unwrap_err().to_string();
    assert!(message.contains("are the same cell, and one of them alone has hrm, last"), "{message}");
}

#[test]
fn cells_of_different_settings_are_not_averaged() {
    let place = tempfile::tempdir().unwrap();
    let seed = |seed: &str, train: &str| {
        let cell = json!({ "experiment": "e", "axes": [["seed", seed]], "settings": { "train": train } });
        leave(&place.path().join(format!("e/seed-{seed}")), &cell, Some(&result()));
    };
    seed("0", "a");
    seed("1", "a");
    assert_eq!(read(&[place.path().to_owned()]).unwrap().len(), 2);
    seed("1", "b");
    let message = read(&[place.path().to_owned()]).unwrap_err().to_string();
    assert!(
        message.contains("seed-0 and ") && message.contains("seed-1 are") && message.contains("`train`"),
        "{message}"
    );
}

#[test]
fn a_run_that_diverged_is_not_called_unfinished() {
    let place = tempfile::tempdir().unwrap();
    leave(place.path(), &json!({ "experiment": "e", "axes": [["seed", "0"]] }), None);
    let failure = json!({ "error": "`lora` stopped at step 3", "diverged": ["lora", 3] });
    fs::write(place.path().join("failed.json"), failure.to_string()).unwrap();
    let runs = read(&[place.path().to_owned()]).unwrap();
    assert_eq!(runs[0].0.notes, ["Training came to values that are not finite. `lora` stopped at step 3"]);
}
