//! What a run logged, for other programs: comma-separated values, and event files of TensorBoard.

mod events;

use crate::results::Event;
use hankel_io::{Existing, Outputs};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// One figure at one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    /// Stage: `pretrain`, or the name of a row.
    pub stage: String,
    /// Optimizer step of the stage.
    pub step: u64,
    /// Seconds of training in this stage until then.
    pub seconds: f64,
    /// Name: `train/loss`, `validation/accuracy`, `layers/0 mlp/gate`.
    pub name: String,
    /// The value.
    pub value: f64,
}

/// The figures of a run's events, in their order.
pub fn scalars(events: &[Event]) -> Vec<Scalar> {
    let mut out = Vec::new();
    let mut clock: BTreeMap<&str, f64> = BTreeMap::new();
    for event in events {
        let mut add = |stage: &str, step: u64, seconds: f64, name: String, value: f64| {
            out.push(Scalar { stage: stage.to_owned(), step, seconds, name, value });
        };
        match event {
            Event::Step { stage, step, loss, learning_rate, gradient_norm, tokens_per_second, seconds, .. } => {
                clock.insert(stage, *seconds);
                for (name, value) in [
                    ("loss", *loss),
                    ("learning_rate", *learning_rate),
                    ("gradient_norm", *gradient_norm),
                    ("tokens_per_second", *tokens_per_second),
                ] {
                    add(stage, *step, *seconds, format!("train/{name}"), value);
                }
            }
            Event::Eval { stage, step, split, scores, .. } => {
                let seconds = clock.get(stage.as_str()).copied().unwrap_or(0.0);
                for (name, value) in &scores.metrics {
                    add(stage, *step, seconds, format!("{}/{name}", split.name()), *value);
                }
            }
            Event::Layers { stage, step, layers } => {
                let seconds = clock.get(stage.as_str()).copied().unwrap_or(0.0);
                for layer in layers {
                    let mut own = |name: &str, value: Option<f64>| {
                        if let Some(value) = value {
                            let place = format!("layers/{} {}/{name}", layer.layer, layer.site);
                            add(stage, *step, seconds, place, value);
                        }
                    };
                    own("gate", layer.gate);
                    own("fastest_pole", layer.pole_range.map(|range| range.0));
                    own("slowest_pole", layer.pole_range.map(|range| range.1));
                    own("rank", layer.rank.map(|rank| rank as f64));
                }
            }
            _ => {}
        }
    }
    out
}

/// A line per figure: `stage,step,seconds,name,value`.
pub fn to_csv(scalars: &[Scalar]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail.
    let _ = writer.write_record(["stage", "step", "seconds", "name", "value"]);
    for scalar in scalars {
        let (step, seconds, value) = (scalar.step.to_string(), scalar.seconds.to_string(), scalar.value.to_string());
        let _ = writer.write_record([&scalar.stage, &step, &seconds, &scalar.name, &value]);
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Writes `DIR/STAGE/events.out.tfevents.hankel` for every stage, with times counted from `begun` (seconds since 1970). Run again it
/// writes the same files again, also when the run has continued meanwhile: a second one would show every figure twice.
///
/// # Errors
/// When a stage cannot be the name of a folder, a file is of another run, or cannot be written; then none is.
pub fn tensorboard(scalars: &[Scalar], begun: f64, directory: &Path) -> hankel_io::Result<Vec<PathBuf>> {
    let mut stages: BTreeMap<&str, Vec<&Scalar>> = BTreeMap::new();
    for scalar in scalars {
        stages.entry(&scalar.stage).or_default().push(scalar);
    }
    let (mut outputs, mut written) = (Outputs::new(), Vec::new());
    for (stage, scalars) in stages {
        let place = directory.join(hankel_io::name::component("the stage", stage)?);
        outputs.create_folder(&place)?;
        let path = place.join("events.out.tfevents.hankel");
        let content = events::file(&scalars, begun);
        if path.exists() && !events::are_of_one_run(&hankel_io::input::read(&path)?, &content) {
            let other = io::Error::other("it has the figures of another run; name another directory");
            return Err(hankel_io::Error::io("write", path)(other));
        }
        outputs.file(&path, &content, Existing::Replace)?;
        written.push(path);
    }
    outputs.commit()?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::events;

    #[test]
    fn every_figure_is_a_line() {
        let scalars = scalars(&events("r"));
        let text = to_csv(&scalars);
        assert_eq!(text.lines().count(), scalars.len() + 1);
        let line =
            text.lines().find(|line| line.starts_with("hrm,75,") && line.contains("validation/accuracy,")).unwrap();
        let value: f64 = line.rsplit(',').next().unwrap().parse().unwrap();
        assert!(value > 0.0 && scalars.iter().any(|s| s.value == value && s.stage == "hrm" && s.step == 75), "{line}");
        assert!(text.contains("hrm,75,8,layers/3 mlp/gate,"), "times of layers are those of the last step");
    }

    #[test]
    fn a_stage_that_leads_elsewhere_is_refused_and_nothing_written() {
        let place = tempfile::tempdir().unwrap();
        let board = place.path().join("deep/board");
        for stage in ["../../escaped", "/tmp/escaped", "..", "a/b", "", "x\0y"] {
            let mut all = scalars(&events("r"));
            all.last_mut().unwrap().stage = stage.to_owned();
            let message = tensorboard(&all, 1.7e9, &board).unwrap_err().to_string();
            assert!(message.starts_with("the stage "), "{message}");
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_directory_per_stage() {
        let place = tempfile::tempdir().unwrap();
        let files = tensorboard(&scalars(&events("r")), 1.7e9, place.path()).unwrap();
        let names: Vec<String> =
            files.iter().map(|file| file.strip_prefix(place.path()).unwrap().display().to_string()).collect();
        assert_eq!(names.len(), 4);
        assert!(names.contains(&"hrm/events.out.tfevents.hankel".to_owned()), "{names:?}");
        // Going on with another device writes the configuration anew, whose time is that of the beginning.
        assert_eq!(tensorboard(&scalars(&events("r")), 1.8e9, place.path()).unwrap(), files);
    }

    #[test]
    fn files_of_another_run_stay() {
        let place = tempfile::tempdir().unwrap();
        let whole = scalars(&events("r"));
        let begun = &whole[..whole.len() / 2];
        let files = tensorboard(begun, 1.7e9, place.path()).unwrap();
        // What was trained again after an interruption took other times.
        let mut continued = whole.clone();
        for scalar in &mut continued {
            scalar.seconds += 3.0;
            scalar.value *= if scalar.name == "train/tokens_per_second" { 0.5 } else { 1.0 };
        }
        tensorboard(&continued, 1.7e9, place.path()).unwrap();
        let before: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        let mut other = continued;
        other[0].value += 1.0;
        let message = tensorboard(&other, 1.7e9, place.path()).unwrap_err().to_string();
        assert!(message.ends_with("it has the figures of another run; name another directory"), "{message}");
        assert_eq!(files.iter().map(|file| std::fs::read(file).unwrap()).collect::<Vec<_>>(), before);
        std::fs::write(&files[0], "no events").unwrap();
        assert!(tensorboard(&whole, 1.7e9, place.path()).unwrap_err().to_string().contains("another run"));
    }
}
