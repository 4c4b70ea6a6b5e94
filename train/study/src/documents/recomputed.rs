//! Figures of the page of the audit, recomputed from the files by nothing of what wrote it: JSON, sums, and Student's t in closed form.

use super::{page, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A claim whose figure is a mean, a difference or a rank correlation, as it stands in claims.toml.
struct Form {
    of: String,
    row: String,
    against: Option<String>,
    by: Vec<String>,
    filter: Vec<(String, Vec<String>)>,
    units: Vec<String>,
    spearman: Option<String>,
}

fn texts(value: Option<&toml::Value>) -> Vec<String> {
    match value {
        Some(toml::Value::String(text)) => vec![text.clone()],
        Some(toml::Value::Array(all)) => all.iter().map(|text| text.as_str().unwrap().to_owned()).collect(),
        _ => Vec::new(),
    }
}

impl Form {
    /// `None` for ratios, spreads, slopes, the best of several rows, and what is compared between cells.
    fn of(claim: &toml::Value) -> Option<Self> {
        let measure = claim["measure"].as_table().unwrap();
        let known = ["of", "row", "against", "by", "where", "units", "spearman"];
        if measure.keys().any(|key| !known.contains(&key.as_str())) {
            return None;
        }
        let one = |key: &str| measure.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        if measure.get("against").is_some_and(|against| !against.is_str()) {
            return None;
        }
        let filter = measure.get("where").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let units = texts(measure.get("units"));
        Some(Form {
            of: one("of")?,
            row: one("row")?,
            against: one("against"),
            by: texts(measure.get("by")),
            filter: filter.iter().map(|(axis, values)| (axis.clone(), texts(Some(values)))).collect(),
            units: if units.is_empty() { vec!["seed".to_owned()] } else { units },
            spearman: one("spearman"),
        })
    }

    /// The figure of a cell.
    fn value(&self, cell: &Value) -> Option<f64> {
        let own = figure(cell, &self.row, &self.of)?;
        let Some(against) = &self.against else { return Some(own) };
        Some(own - figure(cell, against, &self.of)?)
    }

    /// The units' figures at each point of the grid, by its label.
    fn groups(&self, cells: &[Value]) -> BTreeMap<String, Vec<f64>> {
        let mut points = BTreeMap::<String, Vec<(&Value, f64)>>::new();
        for cell in cells {
            let counts =
                self.filter.iter().all(|(name, values)| axis(cell, name).is_none_or(|own| values.contains(&own)));
            if let Some(value) = self.value(cell).filter(|_| counts) {
                let parts: Vec<String> = self
                    .by
                    .iter()
                    .filter_map(|name| Some(format!("{} {}", name.replace('-', " "), axis(cell, name)?)))
                    .collect();
                let label = if parts.is_empty() { String::new() } else { format!("{}: ", parts.join(", ")) };
                points.entry(label).or_default().push((cell, value));
            }
        }
        points.into_iter().map(|(label, points)| (label, self.of_units(&points))).collect()
    }

    fn of_units(&self, points: &[(&Value, f64)]) -> Vec<f64> {
        let levels: Vec<&String> =
            self.units.iter().filter(|name| points.iter().any(|(cell, _)| axis(cell, name).is_some())).collect();
        let key =
            |cell: &Value| -> Vec<String> { levels.iter().map(|name| axis(cell, name).unwrap_or_default()).collect() };
        // The innermost units, then what they are within.
        let mut within = BTreeMap::<Vec<String>, Vec<(f64, f64)>>::new();
        for (cell, value) in points {
            let x = self.spearman.as_ref().and_then(|name| axis(cell, name)?.parse().ok()).unwrap_or(0.0);
            within.entry(key(cell)).or_default().push((x, *value));
        }
        let of_unit = |points: &Vec<(f64, f64)>| {
            if self.spearman.is_some() { rank_correlation(points) } else { mean(points.iter().map(|point| point.1)) }
        };
        let mut figures: BTreeMap<Vec<String>, f64> =
            within.iter().map(|(key, points)| (key.clone(), of_unit(points))).collect();
        for level in (1..levels.len()).rev() {
            let mut outer = BTreeMap::<Vec<String>, Vec<f64>>::new();
            for (key, figure) in figures {
                outer.entry(key[..level].to_vec()).or_default().push(figure);
            }
            figures = outer.into_iter().map(|(key, figures)| (key, mean(figures.into_iter()))).collect();
        }
        figures.into_values().collect()
    }
}

fn axis(cell: &Value, name: &str) -> Option<String> {
    let axes = cell["axes"].as_array().unwrap();
    axes.iter().find(|axis| axis[0] == name).map(|axis| axis[1].as_str().unwrap().to_owned())
}

/// A metric of the test split, where there is one, or the mean order of the layers.
fn figure(cell: &Value, name: &str, of: &str) -> Option<f64> {
    let task = &cell["result"]["task"];
    if let Some(baseline) = task["baselines"][name].as_f64() {
        return (task["primary_metric"] == of).then_some(baseline);
    }
    let row = cell["result"]["rows"].as_array()?.iter().find(|row| row["name"] == name)?;
    if of == "order" {
        let layers = row["layers"].as_array()?;
        return (!layers.is_empty()).then(|| mean(layers.iter().map(|layer| layer["order"].as_f64().unwrap())));
    }
    let validation = &row["validation"]["metrics"];
    match of {
        "as_trained" => validation[task["primary_metric"].as_str()?].as_f64(),
        // Measured once for a row.
        "forgetting" => validation[of].as_f64(),
        _ => row[if row["test"].is_null() { "validation" } else { "test" }]["metrics"][of].as_f64(),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// Spearman's, with the mean rank for equal values; 0 where a side does not vary.
fn rank_correlation(points: &[(f64, f64)]) -> f64 {
    let ranks = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        let rank = |own: f64| {
            let below = points.iter().filter(|point| of(point) < own).count() as f64;
            let equal = points.iter().filter(|point| of(point) == own).count() as f64;
            below + f64::midpoint(equal, -1.0)
        };
        points.iter().map(|point| rank(of(point))).collect()
    };
    let (x, y) = (ranks(|point| point.0), ranks(|point| point.1));
    let (x_mean, y_mean) = (mean(x.iter().copied()), mean(y.iter().copied()));
    let sum = |a: &[f64], b: &[f64], (c, d): (f64, f64)| a.iter().zip(b).map(|(a, b)| (a - c) * (b - d)).sum::<f64>();
    let variances = sum(&x, &x, (x_mean, x_mean)) * sum(&y, &y, (y_mean, y_mean));
    if variances > 0.0 { sum(&x, &y, (x_mean, y_mean)) / variances.sqrt() } else { 0.0 }
}

/// The probability of a larger |t| (Abramowitz and Stegun, 26.7.3 and 26.7.4).
pub(super) fn beyond(t: f64, degrees: usize) -> f64 {
    let theta = (t.abs() / (degrees as f64).sqrt()).atan();
    let (mut term, mut total) = if degrees % 2 == 1 { (theta.cos(), 0.0) } else { (1.0, 0.0) };
    let first = 1 + degrees % 2;
    for k in (first..degrees).step_by(2) {
        total += term;
        term *= theta.cos().powi(2) * k as f64 / (k + 1) as f64;
    }
    let within = theta.sin() * total;
    1.0 - if degrees % 2 == 1 { std::f64::consts::FRAC_2_PI * (theta + within) } else { within }
}

/// Of t, that 0.05 are beyond.
pub(super) fn quantile(degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0, 100.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        *(if beyond(middle, degrees) > 0.05 { &mut low } else { &mut high }) = middle;
    }
    high
}

#[test]
fn figures_of_the_audit_recomputed() {
    for (t, degrees, p) in
        [(12.706, 1, 0.05), (4.3027, 2, 0.05), (3.1824, 3, 0.05), (2.5706, 5, 0.05), (2.2281, 10, 0.05)]
    {
        assert!((beyond(t, degrees) - p).abs() < 1e-4, "{t} {degrees} {}", beyond(t, degrees));
    }
    let page = page("reproduction.md");
    let claims: toml::Table = toml::from_str(include_str!("../claims.toml")).unwrap();
    let (mut checked, mut with_p, mut of_claims, mut wrong) = (0, 0, BTreeSet::new(), Vec::new());
    for claim in claims["claim"].as_array().unwrap() {
        let Some(form) = Form::of(claim) else { continue };
        let [id, experiment] = ["id", "experiment"].map(|key| claim[key].as_str().unwrap());
        let section = page.split(&format!("\n### {id}\n")).nth(1).unwrap().split("\n#").next().unwrap();
        for scale in ["small", "paper", "paper-seeds", "full"] {
            let file = root().join(format!("docs/results/{experiment}-{scale}.jsonl"));
            let Some(at_scale) = section.split(&format!("\n- At scale `{scale}`")).nth(1) else { continue };
            let cells: Vec<Value> =
                fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            // Rates of their own, and what was not planned, are chosen before figures are taken.
            if cells.iter().any(|cell| axis(cell, "lr").is_some() || cell["planned_rows"].is_array()) {
                continue;
            }
            for (label, values) in form.groups(&cells) {
                let n = values.len();
                let middle = mean(values.iter().copied());
                let error = (values.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / ((n - 1) * n) as f64).sqrt();
                // A single run has no deviation, and what does not vary is printed otherwise.
                if n < 2 || error < 1e-12 {
                    continue;
                }
                let mut lines = at_scale.split("\n- ").next().unwrap().lines();
                let line = lines.find_map(|line| line.strip_prefix("  - ")?.strip_prefix(&label));
                let Some(line) = line.map(|line| line.replace('\u{2212}', "-")) else {
                    wrong.push(format!("{id} at {scale}: no line {label}"));
                    continue;
                };
                // `0.01053 ± 0.02981 (n = 5); ...; 95 % -0.02649 to 0.04754, bootstrap ...; t = 0.7895, p = 0.4740, ...`
                let between = |start: &str, end: &str| -> Option<f64> {
                    line.split_once(start)?.1.split(end).next().unwrap().trim().parse().ok()
                };
                let near = |printed: f64, exact: f64| (printed - exact).abs() <= 6e-4 * exact.abs() + 1e-15;
                let interval =
                    line.split_once("95 % ").and_then(|(_, rest)| rest.split([',', ';']).next()?.split_once(" to "));
                let parsed = interval
                    .and_then(|(low, high)| Some((low.trim().parse::<f64>().ok()?, high.trim().parse::<f64>().ok()?)));
                let Some((low, high)) = parsed else {
                    wrong.push(format!("{id} at {scale}: {label}{line}: no interval"));
                    continue;
                };
                let half = quantile(n - 1) * error;
                // Intervals of shares, orders and correlations end where these do, at whole numbers.
                let ends = [near(low, middle - half), near(high, middle + half)];
                let cut = [low, high].map(|end| form.against.is_none() && end.fract() == 0.0);
                let figures = [
                    near(line.split(" ± ").next().unwrap().parse().unwrap_or(f64::NAN), middle),
                    near(between(" ± ", " (").unwrap_or(f64::NAN), error * (n as f64).sqrt()),
                    between("(n = ", ")") == Some(n as f64),
                    (ends[0] || cut[0]) && (ends[1] || cut[1]) && (ends[0] || ends[1]),
                ];
                // Against the limit of the claim.
                let limit = ["above", "below"].iter().find_map(|side| claim["expect"].get(side)?.as_float());
                let p = between(", p = ", ",").zip(limit).is_none_or(|(p, limit)| {
                    with_p += 1;
                    let exact = beyond((middle - limit) / error, n - 1);
                    // The closed form loses digits next to 1.
                    (p - exact).abs() < 2e-3 * exact + 1e-12
                });
                if figures.contains(&false) || !p {
                    wrong.push(format!("{id} at {scale}: {label}{line}: {middle}, error {error}, {figures:?}, {p}"));
                }
                checked += 1;
                of_claims.insert(id);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let counts = (checked, with_p, of_claims.len());
    assert!(counts.0 >= 100 && counts.1 >= 60 && counts.2 >= 40, "{counts:?}");
}

/// The differences of our own studies: mean and interval of every model, but where the best of several rivals is chosen.
#[test]
fn figures_of_hypotheses_recomputed() {
    let page = page("reproduction.md");
    let hypotheses: toml::Table = toml::from_str(include_str!("../hypotheses.toml")).unwrap();
    let mut checked = 0;
    for claim in hypotheses["claim"].as_array().unwrap() {
        let Some(form) = Form::of(claim) else { continue };
        let [id, experiment] = ["id", "experiment"].map(|key| claim[key].as_str().unwrap());
        let mut lines = page.lines().skip_while(|line| !line.starts_with(&format!("| [{id}](language.md): ")));
        for scale in texts(claim.get("scales")) {
            let line = lines.next().unwrap();
            let file = root().join(format!("docs/results/language/{experiment}-{scale}.jsonl"));
            // Not run yet.
            let Ok(text) = fs::read_to_string(file) else { continue };
            assert!(line.contains(&format!(", `{scale}` | ")), "{id} at {scale}: {line}");
            let cells: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let groups = form.groups(&cells);
            assert_eq!(groups.len(), 1, "{id} at {scale}");
            let values = &groups[""];
            let (n, middle) = (values.len(), mean(values.iter().copied()));
            let half = quantile(n - 1)
                * (values.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / ((n - 1) * n) as f64).sqrt();
            // `0.9533 (0.9154 to 0.9913), n = 3`
            let figures = line.replace('\u{2212}', "-").replace(['(', ')', ',', ';'], " ");
            let figures: Vec<&str> = figures.rsplit(" | ").nth(1).unwrap().split_whitespace().collect();
            let figure = |place: usize| -> f64 { figures[place].parse().unwrap() };
            let near = |printed: f64, exact: f64| (printed - exact).abs() <= 6e-4 * exact.abs() + 1e-15;
            let of_share = |end: f64| form.against.is_none() && end == 1.0;
            assert!(
                near(figure(0), middle) && near(figure(1), middle - half),
                "{id} at {scale}: {line}: {middle} {half}"
            );
            assert!(near(figure(3), middle + half) || of_share(figure(3)), "{id} at {scale}: {line}: {middle} {half}");
            assert_eq!(figures[6], n.to_string(), "{id} at {scale}: {line}");
            checked += 1;
        }
    }
    assert!(checked >= 16, "{checked}");
}
