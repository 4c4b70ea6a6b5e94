//! Every experiment of the paper, as small as can be: each runs from its file, and the page has every figure and a verdict for each
//! claim.

use crate::common::{Finished, Place};
use std::fs;
use std::path::Path;

#[test]
fn the_papers_experiments_run() {
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = fs::read_dir(root.join("train/experiments/paper")).unwrap();
    let files: Vec<String> = files.map(|file| file.unwrap().path().display().to_string()).collect();
    let out = place.path("runs").display().to_string();
    let mut arguments = vec!["sweep", "--set", "scale=smoke", "--out", &out];
    arguments.extend(files.iter().map(String::as_str));
    // Paths in the files are those of the repository.
    let finished = Finished::new(&place.command(&arguments).current_dir(&root).output().unwrap());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);

    let html = fs::read_to_string(place.path("runs/report.html")).unwrap();
    for claim in hankel_study::claims::all() {
        let file = root.join(format!("train/experiments/paper/{}.toml", claim.experiment));
        assert!(file.exists(), "{} is measured on {}", claim.id, file.display());
        let row = html.split(&format!("<th scope=\"row\" class=\"\">{}<", claim.id)).nth(1);
        let row = row.unwrap_or_else(|| panic!("no row for {}", claim.id)).split("</tr>").next().unwrap();
        let (figures, verdict) = row.split_once("class=\"verdict open\"").unwrap_or_else(|| panic!("{row}"));
        // A line over units takes more of them than a smoke test has, whose sequences are all of one length.
        let takes_more = claim.measure.on.is_some() || claim.measure.filter.contains_key("length");
        let has_figure = figures.contains("(n\u{a0}=\u{a0}") || takes_more;
        assert!(has_figure, "{} has no figure: {row}", claim.id);
        assert!(verdict.contains("not measured") || verdict.contains("not testable here"), "{row}");
    }
    let plots: Vec<String> = fs::read_dir(place.path("runs/plots"))
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    for figure in [
        "singular-values-by-task",
        "dfa-smoke-curves-",
        "dfa-smoke-accuracy-by-length",
        "enwik8-smoke-bits-per-character-by-length",
        "data-smoke-accuracy-by-train-sequences",
        "timing-smoke-seconds-per-step-by-length",
        "threshold-smoke-threshold-order",
        "threshold-smoke-threshold-accuracy",
        "rank-smoke-sizes",
        "gates-smoke-gates-after-training",
        "gates-smoke-contribution-of-each-layer",
        "exactness-smoke-exactness",
        "rank-smoke-curves-1",
        "rank-smoke-curves-2",
        "threshold-smoke-accuracy-by-length-3",
        "frozen-gates-smoke-curves-task-dfa",
        "frozen-gates-smoke-curves-task-enwik8",
        "diverge-smoke-bits-per-character-by-gate-task-enwik8",
        "diverge-smoke-gates-after-training-gate-1-0-task-enwik8",
        "longbench-smoke-gates-after-training-task-quality",
        "longbench-smoke-gates-after-training-task-qmsum",
        "longbench-smoke-gates-after-training-task-narrativeqa",
    ] {
        for extension in ["svg", "png", "csv"] {
            let found = |name: &&String| name.starts_with(figure) && name.ends_with(extension);
            assert!(plots.iter().any(|name| found(&name)), "no {figure}*.{extension} in {plots:?}");
        }
    }

    for metric in ["accuracy", "rouge1", "token f1"] {
        let section = html.split("<h2>longbench-smoke</h2>").nth(1).unwrap().split("</section>").next().unwrap();
        assert!(section.contains(&format!("{metric}<small>mean ± sd")), "no table of {metric}");
    }

    // The figures go from the runs into files, and from those into the audit.
    let (results, page) = (place.path("results"), place.path("again/report.html"));
    let (results, page) = (results.display().to_string(), page.display().to_string());
    let dfa = format!("{out}/dfa-smoke");
    let finished = place.run(&["report", &dfa, "-o", &page, "--results", &results]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    fs::create_dir(place.path("experiments")).unwrap();
    fs::copy(root.join("train/experiments/paper/dfa.toml"), place.path("experiments/dfa.toml")).unwrap();
    let finished = place.run(&["audit", &results, "-o", "audit.md", "--experiments", "experiments"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let head = fs::read_to_string(place.path("experiments/dfa.toml")).unwrap();
    let finished = place.run(&["audit", "no-such-directory", "-o", "audit.md", "--experiments", "experiments"]);
    assert_eq!(finished.code, Some(2), "{}", finished.stdout);
    assert_eq!(fs::read_to_string(place.path("experiments/dfa.toml")).unwrap(), head);
    assert!(head.contains("\n# Measured at scale `smoke`: 4 cells, 2 seeds") && !head.contains("not yet"), "{head}");
    let audit = fs::read_to_string(place.path("audit.md")).unwrap();
    assert!(
        audit.contains("at scale `smoke`: 4 cells, 2 seeds, length 8/16") && audit.contains("0 confirmed"),
        "{audit}"
    );
}
