//! The report as a whole, made from synthetic run directories.

use std::path::{Path, PathBuf};

use super::testing::{events, result, write_run};
use super::{ReportError, Run, RunError, text_table};

/// Writes the report of run directories to `out/report.html`, and gives its path.
fn write(directories: &[PathBuf], out: &Path) -> Result<PathBuf, ReportError> {
    let runs: Vec<Run> = directories.iter().map(|directory| Run::load(directory).unwrap()).collect();
    let page = out.join("report.html");
    super::write(&runs, &page).map(|()| page)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Names of the files in `plots`, sorted.
fn plots(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("plots")).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_run_gets_a_page_with_tables_and_plots() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), Some(&result("quickstart")), &events("quickstart"));
    let page = write(&[dir.path().to_path_buf()], dir.path()).unwrap();
    assert_eq!(page, dir.path().join("report.html"));
    let html = read(&page);
    for expected in [
        "<title>quickstart</title>",
        "State of a random automaton",
        "Accuracy on validation: none 0.4140, hrm 0.5187, lora 0.6671, hrm-truncated 0.5172.",
        "33,028",
        "+ 768 head",
        "<strong>0.6671</strong>",
        "+0.1047",
        "14, 13, 11, 9 of 32",
        "1 min 11 s",
        "epsilon = 0.01",
        "measured error",
        "seed = 17",
        "0123456789abcdef",
    ] {
        assert!(html.contains(expected), "{expected:?} is missing");
    }
    let figures = [
        "accuracy-by-quarter",
        "gates",
        "gates-hrm",
        "pretraining-loss",
        "singular-values-hrm",
        "training-loss",
        "validation",
        "window-predictors",
    ];
    let mut expected: Vec<String> =
        figures.iter().flat_map(|f| ["csv", "png", "svg"].map(|extension| format!("{f}.{extension}"))).collect();
    expected.sort();
    assert_eq!(plots(dir.path()), expected);
    for figure in figures.iter().filter(|figure| !figure.contains("window")) {
        let numbers = read(&dir.path().join("plots").join(figure).with_extension("csv"));
        let mut lines: Vec<&str> = numbers.lines().skip(1).collect();
        assert!(lines.iter().all(|line| !line.starts_with(',')), "{figure}: {numbers}");
        let count = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), count, "{figure}: {numbers}");
    }
    assert_eq!(html.matches("<figure>").count(), figures.len());
    assert_eq!(html.matches("<svg ").count(), 2 * figures.len(), "wide and narrow");
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), Some(&result("r")), &events("r"));
    let html = read(&write(&[dir.path().to_path_buf()], dir.path()).unwrap());
    for outside in ["src=", "href=", "<script", "<link", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    // The only address is the name of the SVG namespace, which nobody fetches.
    assert_eq!(html.matches("http").count(), html.matches("http://www.w3.org/2000/svg").count());
}

#[test]
fn several_runs_are_compared_on_one_page() {
    let dir = tempfile::tempdir().unwrap();
    let dirs: Vec<PathBuf> = ["first", "second"].map(|n| dir.path().join(n)).into();
    for (i, run) in dirs.iter().enumerate() {
        let name = format!("seed {i}");
        write_run(run, Some(&result(&name)), &events(&name));
    }
    let out = dir.path().join("both");
    let html = read(&write(&dirs, &out).unwrap());
    assert!(html.contains("<h1>Comparison of 2 runs</h1>"));
    assert!(html.contains("<h3>seed 0</h3>") && html.contains("<h3>seed 1</h3>"));
    assert!(plots(&out).contains(&"run-2-training-loss.svg".to_owned()), "{:?}", plots(&out));
    assert!(!dirs[0].join("report.html").exists(), "the runs are left alone");
}

#[test]
fn hostile_names_stay_text() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = "<script>alert(1)</script>\"'&";
    let mut result = result(hostile);
    result.task.description = hostile.into();
    result.task.kind = hostile.into();
    result.task.baselines.insert(hostile.into(), 0.2);
    result.backbone.source = hostile.into();
    result.environment.cpu = hostile.into();
    result.data[0].path = hostile.into();
    result.data[0].sha256 = hostile.into();
    result.rows[1].name = hostile.into();
    result.rows[1].settings = hostile.into();
    result.rows[3].truncated_from = Some(hostile.into());
    result.rows[3].truncation_rule = Some(hostile.into());
    result.rows[1].layers[0].site = hostile.into();
    result.rows[2].validation.metrics.insert(hostile.into(), 1.0);
    write_run(dir.path(), Some(&result), &events("x"));
    std::fs::write(dir.path().join("config.toml"), hostile).unwrap();
    let html = read(&write(&[dir.path().to_path_buf()], dir.path()).unwrap());
    assert!(!html.contains("<script"), "a name became an element");
    assert!(html.contains("&lt;script&gt;"));
    assert!(
        plots(dir.path()).contains(&"singular-values-script-alert-1-script.svg".to_owned()),
        "{:?}",
        plots(dir.path())
    );
}

#[test]
fn an_unfinished_or_empty_run_gets_a_page_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let unfinished: Vec<_> = events("stopped").into_iter().take(500).collect();
    write_run(dir.path(), None, &unfinished);
    let html = read(&write(&[dir.path().to_path_buf()], dir.path()).unwrap());
    assert!(html.contains("not finished") && html.contains("<figure>"));

    let empty = tempfile::tempdir().unwrap();
    let bare = crate::results::RunResult { rows: Vec::new(), ..result("bare") };
    write_run(empty.path(), Some(&bare), &[]);
    let html = read(&write(&[empty.path().to_path_buf()], empty.path()).unwrap());
    assert!(html.contains("No row has been evaluated."));
}

#[test]
fn figures_survive_values_that_are_not_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let mut result = result("odd");
    for row in &mut result.rows {
        for layer in &mut row.layers {
            layer.hankel_singular_values = vec![0.0; 32];
            layer.gate = Some(0.0);
        }
    }
    result.rows[1].layers[1].hankel_singular_values = vec![1.0, 1e-30, 0.0];
    for value in result.rows[2].validation.metrics.values_mut() {
        *value = f64::NAN;
    }
    result.wall_time_seconds = -1.0;
    write_run(dir.path(), Some(&result), &events("odd")[..3]);
    let html = read(&write(&[dir.path().to_path_buf()], dir.path()).unwrap());
    assert!(html.contains("Hankel singular values of hrm"));
    assert!(html.contains("lora –") && !html.contains("NaN"));
}

#[test]
fn pages_in_one_folder_keep_their_plots() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), Some(&result("quickstart")), &events("quickstart"));
    std::fs::create_dir(dir.path().join("plots")).unwrap();
    std::fs::write(dir.path().join("plots/hankel.svg"), "of another page").unwrap();
    let runs = [Run::load(dir.path()).unwrap()];
    for page in ["other.html", "no-extension"] {
        super::write(&runs, &dir.path().join(page)).unwrap();
    }
    assert_eq!(plots(dir.path()), ["hankel.svg"]);
    let count = |folder: &str| std::fs::read_dir(dir.path().join(folder)).unwrap().count();
    assert!(count("other-plots") > 0 && count("other-plots") == count("no-extension-plots"));
}

#[test]
fn errors_say_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(write(&[], dir.path()), Err(ReportError::NoRuns)));
    let absent = Run::load(&dir.path().join("absent"));
    assert!(matches!(absent, Err(RunError::NotARun { .. })), "{absent:?}");
    // A file stands where the directory of the plots should be.
    write_run(dir.path(), Some(&result("r")), &[]);
    std::fs::write(dir.path().join("plots"), "").unwrap();
    let error = write(&[dir.path().to_path_buf()], dir.path()).unwrap_err().to_string();
    assert!(error.contains("cannot create") && error.contains("plots"), "{error}");
}

#[test]
fn the_terminal_gets_the_same_figures() {
    let text = text_table(&result("r"));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("adapter") && lines[1].contains("accuracy"), "{text}");
    assert!(lines[5].contains("lora") && lines[5].contains("0.6671") && lines[5].contains("+0.2531"), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("\nEvery row also trained parameters of the backbone: 768 head.\n"), "{text}");
    assert!(text.contains("\nhrm-truncated has kept ") && text.contains(" of 32 states."), "{text}");
    let mut one = result("r");
    one.rows[1].parameters.head = 0;
    assert!(text_table(&one).contains("\nlora also trained parameters of the backbone: 768 head.\n"), "{one:?}");
}

#[test]
fn a_terminal_shows_the_usual_figures_of_texts() {
    let mut run = result("r");
    run.task.primary_metric = "rouge1".into();
    run.rows.retain(|row| row.name != "none");
    for row in &mut run.rows {
        for name in ["rouge1", "rouge2", "released_rouge1_recall", "longbench_score_qmsum"] {
            row.validation.metrics.insert(name.into(), 0.5);
        }
    }
    let text = text_table(&run);
    let header: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(header[..5], ["adapter", "parameters", "rouge1", "rouge2", "accuracy"], "{text}");
    assert!(!text.contains("released") && !text.contains("qmsum") && !text.contains("to none"), "{text}");
}
