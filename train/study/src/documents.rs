//! What pages of docs/ say in figures stands in the files of results that they name.

use hankel_trainer::results::{AdapterResult, RunResult};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// `16 %`, `1.6 %`: two digits.
fn percent(share: f64) -> String {
    if share < 0.0995 { format!("{:.1} %", 100.0 * share) } else { format!("{:.0} %", 100.0 * share) }
}

/// The worked example of truncation.md, line by line.
#[test]
fn the_example_of_truncation_is_its_result() {
    let page = page("truncation.md");
    let text = fs::read_to_string(root().join("docs/results/truncation.json")).unwrap();
    let result: RunResult = serde_json::from_str(&text).unwrap();
    let row = |name: &str| -> &AdapterResult { result.rows.iter().find(|row| row.name == name).unwrap() };
    let figure = |name: &str, metric: &str| row(name).validation.get(metric).unwrap();
    let error = |name: &str| {
        let layers = row(name).layers.iter();
        layers.map(|layer| layer.hinf_error.unwrap() / layer.hinf_norm.unwrap()).fold(0.0, f64::max)
    };
    let full =
        format!("(the full adapter: loss {:.4}, accuracy {:.4})", figure("hrm", "loss"), figure("hrm", "accuracy"));
    assert!(page.contains(&full), "{full}");
    for order in [12, 8, 4, 2] {
        let cells: Vec<String> = ["", "-hankel", "-modal", "-svd"]
            .iter()
            .map(|method| {
                let name = format!("hrm-order-{order}{method}");
                let (loss, accuracy) = (figure(&name, "loss"), figure(&name, "accuracy"));
                format!("{loss:.4}, {accuracy:.4} | {}", percent(error(&name)))
            })
            .collect();
        let line = format!("| {order} | {} |", cells.join(" | "));
        assert!(page.contains(&line), "{line}");
    }
    let kept = format!(
        "reaches loss {:.4} and keeps {:.4} with **three** states per layer; truncated to eight after half of its training, it ends at {:.4}",
        figure("regularized", "loss"),
        figure("regularized-epsilon-0.05", "loss"),
        figure("reduced-on-the-way", "loss")
    );
    assert!(page.contains(&kept), "{kept}");
    assert!(row("regularized-epsilon-0.05").layers.iter().all(|layer| layer.order == 3));
}

/// The products of one row in performance.md: before and after, and the bandwidth after.
#[test]
fn products_of_one_row_are_their_result() {
    let page = page("performance.md");
    let text = fs::read_to_string(root().join("docs/results/performance/few-rows.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let of = |format: &str, code: &str| {
        let one = rows.iter().find(|row| row["type"] == format && row["rows"] == 1 && row["code"] == code);
        one.map(|row| (row["milliseconds"].as_f64().unwrap(), row["weight_gb_per_s"].as_f64().unwrap()))
    };
    let lines: Vec<String> = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.matches(" ms |").count() == 2 && line.matches('|').count() == 5)
        .filter(|line| of(line[2..].split(' ').next().unwrap(), "before").is_some())
        .map(str::to_owned)
        .collect();
    assert!(lines.len() >= 10, "{lines:?}");
    for line in lines {
        let format = line[2..].split(' ').next().unwrap();
        let ((before, _), (after, bandwidth)) = (of(format, "before").unwrap(), of(format, "after").unwrap());
        let printed: Vec<f64> = line.split([' ', '|']).skip(2).filter_map(|word| word.parse().ok()).collect();
        // The file has two decimals, the page one.
        let near = |(printed, exact): (&f64, f64)| (printed - exact).abs() < 0.0501;
        assert!(
            printed.len() == 3 && printed.iter().zip([before, after, bandwidth]).all(near),
            "{line}: {before} {after} {bandwidth}"
        );
    }
}
