//! What pages of docs/ say in figures stands in the files of results that they name.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
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
