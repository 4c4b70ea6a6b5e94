//! `train score`.

use anyhow::{Result, bail, ensure};
use hankel_io::{input, terminal};
use hankel_trainer::TextMetric;
use hankel_trainer::tasks::text::lines::{Problems, each_line, one_or_more, text};
use hankel_trainer::tasks::text::{Prediction, Scoring, TextFormat};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON lines with `prediction` and `references` (or one `reference`), as `train eval` writes them; gzip is recognised
    predictions: PathBuf,
    /// Format of the data set that the answers belong to; it decides the metrics
    #[arg(long, value_enum)]
    task: &'static TextFormat,
    /// Metrics instead of those usual for the task, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    metrics: Vec<TextMetric>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let path = &args.predictions;
    let content = input::unzipped(path, input::read(path)?)?;
    let format = args.task;
    let metrics = if args.metrics.is_empty() { format.metrics.to_vec() } else { args.metrics.clone() };
    ensure!(
        format.figure.is_some() || !metrics.is_empty(),
        "--task {} has no metrics of its own: name some with --metrics",
        format.name
    );
    let scoring = Scoring { format, metrics, generate: true };
    let (mut problems, mut lines) = (Problems::default(), Vec::new());
    // A byte order mark, as other programs write it.
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&content);
    each_line(content, path, &mut problems, |_, value| {
        let mut line = prediction(value, format)?;
        line.scores = scoring.score(&line);
        lines.push(line);
        Ok(())
    });
    problems.warn();
    if lines.is_empty() {
        let why = problems.first().unwrap_or("it is empty");
        bail!("{}: nothing to score: {why}", path.display());
    }
    // `train eval` writes the answers of several adapters into one file.
    let mut groups: Vec<(Option<&str>, Vec<&Prediction>)> = Vec::new();
    for line in &lines {
        let name = line.adapter.as_deref();
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(line),
            None => groups.push((name, vec![line])),
        }
    }
    let means = |group: &[&Prediction]| scoring.means(group.iter().copied());
    if args.json {
        let mut found = json!({ "task": format.name, "predictions": lines.len(), "left_out": problems.len() });
        if let [(_, group)] = &groups[..] {
            found["scores"] = json!(means(group));
        } else {
            let rows = groups
                .iter()
                .map(|(name, group)| json!({ "adapter": name, "predictions": group.len(), "scores": means(group) }));
            found["adapters"] = rows.collect();
        }
        return Ok(terminal::json(&serde_json::to_string_pretty(&found)?)?);
    }
    let block = |(name, group): &(Option<&str>, Vec<&Prediction>)| {
        let of = name.map_or_else(|| path.display().to_string(), |name| format!("{name} in {}", path.display()));
        let rows = means(group).into_iter().map(|(name, value)| format!("\n  {name:<36} {value:.4}"));
        format!("{} predictions of {of}", group.len()) + &rows.collect::<String>()
    };
    Ok(terminal::line(&groups.iter().map(block).collect::<Vec<_>>().join("\n"))?)
}

fn prediction(value: &Value, format: &TextFormat) -> Result<Prediction, String> {
    let mut object = value.clone();
    // What is null is not there.
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let references = if object.get("references").is_none() && object.get("reference").is_some() {
        one_or_more(&object, "reference")?
    } else {
        one_or_more(&object, "references")?
    };
    // For their messages: what serde says names no key.
    text(&object, "prediction")?;
    if references.is_empty() {
        return Err("`references` is empty".to_owned());
    }
    object["references"] = json!(references);
    let line: Prediction = serde_json::from_value(object).map_err(|error| error.to_string())?;
    if format.names_data_sets() {
        line.check_dataset()?;
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_what_the_metric_needs() {
        let line = |dataset: &str, classes: Value| {
            let references = json!(["Food"]);
            json!({"prediction": "x", "references": references, "dataset": dataset, "all_classes": classes})
        };
        let [longbench, qmsum] = ["longbench", "qmsum"].map(|name| TextFormat::named(name).unwrap());
        let read = |line: &Value| prediction(line, longbench);
        for classes in [json!(null), json!([])] {
            let refused = read(&line("trec", classes)).unwrap_err();
            assert_eq!(refused, "has no `all_classes`, among which answers of \"trec\" are scored");
        }
        assert!(read(&line("trek", json!(null))).unwrap_err().starts_with("`dataset` is \"trek\"; there are "));
        assert_eq!(read(&line("trec", json!(["Food", "Animal"]))).unwrap().all_classes.len(), 2);
        assert!(read(&line("qasper", json!(null))).unwrap().all_classes.is_empty());
        let null = json!({"prediction": "x", "references": null, "reference": "y", "id": null});
        assert_eq!(prediction(&null, qmsum).unwrap().references, ["y"]);
    }
}
