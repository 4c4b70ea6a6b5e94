//! The examples of docs/control.md, with what the page says that they print.

use crate::common::{succeed, write_arrays};
use faer::Mat;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The page's chain of 24 masses between walls.
fn chain(path: &Path) {
    const N: usize = 24;
    let stiffness = |i: usize, j: usize| match i.abs_diff(j) {
        0 => 50.0,
        1 => -25.0,
        _ => 0.0,
    };
    let a = Mat::from_fn(2 * N, 2 * N, |i, j| match (i < N, j < N) {
        (true, _) => f64::from(u8::from(j == i + N)),
        (false, true) => -stiffness(i - N, j),
        (false, false) => -0.004 * stiffness(i - N, j - N),
    });
    let b = Mat::from_fn(2 * N, 1, |i, _| f64::from(u8::from(i == N)));
    let c = Mat::from_fn(3, 2 * N, |i, j| f64::from(u8::from(j == [0, 11, 23][i])));
    write_arrays(path, &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
}

/// Its motor near 8 radians per second.
fn motor(path: &Path) {
    let (w, z) = (8.0, 0.02);
    let a = [[0.0, 1.0], [-w * w, -2.0 * z * w]];
    let a = Mat::from_fn(2, 2, |i, j| a[i][j]);
    let b = Mat::from_fn(2, 1, |i, _| i as f64);
    let c = Mat::from_fn(1, 2, |_, j| if j == 1 { 2.0 * z * w } else { 0.0 });
    write_arrays(path, &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
}

/// Three significant digits, as the page has them.
fn three(value: &Value) -> String {
    let value = value.as_f64().unwrap();
    let decimals = (2 - value.log10().floor() as i32).max(0) as usize;
    format!("{value:.decimals$}")
}

#[test]
fn the_examples_print_what_the_page_says() {
    let page = include_str!("../../../docs/control.md");
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    chain(&dir.join("chain.npz"));
    motor(&dir.join("motor.npz"));
    let reduce = ["reduce", "chain.npz", "--continuous", "--order", "12", "-o"];

    let said = succeed(dir, &[&reduce[..], &["small.npz"]].concat());
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("system ")).collect();
    assert_eq!(lines.len(), 2, "{said}");
    for line in lines {
        assert!(page.contains(&format!("    {}", line.trim_end())), "not on the page: {line}");
    }

    for (row, name, arguments) in [
        ("`--weight motor.npz`", "quiet.npz", &[][..]),
        ("`--weight motor.npz --gramians enns`", "enns.npz", &["--gramians", "enns"]),
        ("no weight (`--gramians analytic`: the weight only measures)", "plain.npz", &["--gramians", "analytic"]),
    ] {
        succeed(dir, &[&reduce[..], &[name, "--weight", "motor.npz"], arguments].concat());
        let certificate = fs::read(dir.join(format!("{name}.certificate.json"))).unwrap();
        let certificate: Value = serde_json::from_slice(&certificate).unwrap();
        let (layer, weighted) = (&certificate["layers"][0], &certificate["layers"][0]["weighted"]);
        let bound = &weighted["error_bound"];
        let bound = if bound.is_null() { "none".to_owned() } else { three(bound) };
        let [error, h2, whole] = [&weighted["hinf_error"], &weighted["h2_error"], &layer["hinf_error"]].map(three);
        let line = format!("| {row} | {error} | {bound} | {h2} | {whole} |");
        assert!(page.contains(&line), "not on the page: {line}\n{weighted}");
        let norm = &weighted["hinf_norm"];
        assert!(page.contains(&format!("`|| G V ||` is {}:", three(norm))), "{norm}");
    }
}
