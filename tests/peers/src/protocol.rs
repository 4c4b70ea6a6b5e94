//! Requests and answers, one line of JSON each.
//!
//! | request | answer |
//! | --- | --- |
//! | `{"command": "prepare", "settings": {"comparison": "step", ...}}` | `{}` |
//! | `{"command": "inputs", "path": FILE}` writes what the other side computes from | `{}` |
//! | `{"command": "outputs", "path": FILE}` writes what the other side compares its results with | `{}` |
//! | `{"command": "run"}` | `{"seconds": {NAME: ...}, "values": {NAME: ...}}` |
//!
//! Files are in the safetensors format. A request that fails is answered by `{"error": ...}`.

use crate::{conv, load, mistral, nf4, peaks, reduce, smollm2, step};
use anyhow::{Context, Result};
use hankel_core::Tensor;
use hankel_models::weights::write_tensors;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Tensors of a file, by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Tensors with their names.
pub fn named<const N: usize>(tensors: [(&str, &Tensor); N]) -> Tensors {
    tensors.into_iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect()
}

/// Something to be compared.
pub trait Program {
    /// What the other side computes from.
    fn inputs(&self) -> Result<Tensors>;

    /// What the other side compares its results with. Changes nothing that a run uses.
    fn outputs(&mut self) -> Result<Tensors>;

    /// Runs once.
    fn run(&mut self, report: &mut Report) -> Result<()>;
}

/// What a run took and found.
#[derive(Default, Serialize)]
pub struct Report {
    seconds: Map<String, Value>,
    values: Map<String, Value>,
}

impl Report {
    /// Measures the wall time of `f` under `name`.
    pub fn time<R>(&mut self, name: &str, f: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = f();
        self.seconds.insert(name.to_owned(), begun.elapsed().as_secs_f64().into());
        result
    }

    /// Measures the mean wall time of so many calls of `f` under `name`.
    pub fn mean<R>(&mut self, name: &str, calls: usize, f: impl Fn() -> Result<R>) -> Result<()> {
        let begun = Instant::now();
        (0..calls).try_for_each(|_| f().map(drop))?;
        self.seconds.insert(name.to_owned(), (begun.elapsed().as_secs_f64() / calls as f64).into());
        Ok(())
    }

    /// Notes a number that the other side finds, too.
    pub fn value(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_owned(), value.into());
    }
}

#[derive(Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    Prepare { settings: Settings },
    Inputs { path: PathBuf },
    Outputs { path: PathBuf },
    Run,
}

#[derive(Deserialize)]
#[serde(tag = "comparison", rename_all = "snake_case")]
enum Settings {
    Conv(conv::Settings),
    Load(load::Settings),
    Mistral(mistral::Settings),
    Nf4(nf4::Settings),
    Peaks(peaks::Settings),
    Reduce(reduce::Settings),
    Smollm2(smollm2::Settings),
    Step(step::Settings),
}

impl Settings {
    fn program(self) -> Result<Box<dyn Program>> {
        Ok(match self {
            Settings::Conv(settings) => Box::new(conv::Conv::new(&settings)?),
            Settings::Load(settings) => Box::new(load::Load::new(settings)?),
            Settings::Mistral(settings) => Box::new(mistral::Block::new(&settings)?),
            Settings::Nf4(settings) => Box::new(nf4::Nf4::new(&settings)?),
            Settings::Peaks(settings) => Box::new(peaks::Peaks::new(&settings)?),
            Settings::Reduce(settings) => Box::new(reduce::Reduction::new(&settings)),
            Settings::Smollm2(settings) => Box::new(smollm2::Training::new(&settings)?),
            Settings::Step(settings) => Box::new(step::Step::new(&settings)?),
        })
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Done {},
    Ran(Report),
    Failed { error: String },
}

/// Answers requests until there are no more.
///
/// # Errors
/// When the other end is gone.
pub fn serve(requests: impl BufRead, mut answers: impl Write) -> Result<()> {
    let mut program = None;
    for line in requests.lines() {
        let answer = answer(&line?, &mut program).unwrap_or_else(|e| Answer::Failed { error: format!("{e:#}") });
        serde_json::to_writer(&mut answers, &answer)?;
        answers.write_all(b"\n")?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(line: &str, program: &mut Option<Box<dyn Program>>) -> Result<Answer> {
    let request = serde_json::from_str(line).with_context(|| format!("cannot read the request {line}"))?;
    if let Request::Prepare { settings } = request {
        *program = Some(settings.program()?);
        return Ok(Answer::Done {});
    }
    let program = program.as_mut().context("the first request must be \"prepare\"")?;
    match request {
        Request::Inputs { path } => write_tensors(&path, &program.inputs()?)?,
        Request::Outputs { path } => write_tensors(&path, &program.outputs()?)?,
        Request::Prepare { .. } | Request::Run => {
            let mut report = Report::default();
            program.run(&mut report)?;
            return Ok(Answer::Ran(report));
        }
    }
    Ok(Answer::Done {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_models::weights::arrays::parse;
    use serde_json::json;
    use std::fs;

    fn ask(requests: &[Value]) -> Vec<Value> {
        let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
        let mut answers = Vec::new();
        serve(lines.join("\n").as_bytes(), &mut answers).unwrap();
        str::from_utf8(&answers).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_step_is_prepared_written_and_run() {
        let folder = tempfile::tempdir().unwrap();
        for (adapter, trained, precision) in [("lora", 4, "f32"), ("hrm", 5, "bf16")] {
            let [inputs, outputs] = ["inputs", "outputs"].map(|name| folder.path().join(format!("{adapter}-{name}")));
            let settings = json!({"comparison": "step", "adapter": adapter, "precision": precision,
                "batch": 2, "steps": 5, "layers": 1, "d_model": 8, "heads": 2});
            let run = json!({"command": "run"});
            let answers = ask(&[
                json!({"command": "prepare", "settings": settings}),
                json!({"command": "inputs", "path": inputs}),
                json!({"command": "outputs", "path": outputs}),
                run.clone(),
                run,
            ]);
            assert_eq!(answers[..3], [json!({}), json!({}), json!({})], "{adapter}");
            let outputs = parse(&outputs, &fs::read(&outputs).unwrap()).unwrap();
            assert!(inputs.is_file(), "{adapter}");
            let gradients: Vec<_> = outputs.iter().filter(|(name, _)| name.starts_with("gradient/")).collect();
            assert_eq!(gradients.len(), trained, "{adapter}");
            assert!(gradients.iter().all(|(_, gradient)| gradient.data.iter().any(|&x| x != 0.0)), "{adapter}");
            let losses: Vec<f64> = answers[3..].iter().map(|a| a["values"]["loss"].as_f64().unwrap()).collect();
            assert!((losses[0] - outputs["loss"].data[0]).abs() < 1e-6, "{adapter}");
            assert!(losses[1] < losses[0] && answers[3]["seconds"]["step"].as_f64().unwrap() > 0.0, "{adapter}");
        }
    }

    #[test]
    fn everything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let linear =
            json!({"comparison": "nf4", "inputs": 64, "outputs": 6, "rows": 3, "precision": "bf16", "dense": false});
        let block = json!({"comparison": "mistral", "steps": 3, "precision": "f32", "d_model": 64, "d_ff": 64, "heads": 2,
            "kv_heads": 1});
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/gguf/models/llama.q4_1.gguf");
        let directory = folder.path().join("model");
        let load = json!({"comparison": "load", "directory": directory, "layers": 1, "d_model": 64, "d_ff": 32,
            "vocabulary": 4});
        for settings in [
            json!({"comparison": "conv", "batch": 1, "steps": 4, "states": 2, "calls": 2}),
            json!({"comparison": "conv", "batch": 1, "steps": 4, "states": 2, "calls": 2, "scan": "fft"}),
            json!({"comparison": "peaks", "size": 3, "megabytes": 1}),
            json!({"comparison": "reduce", "layers": 2, "states": 3, "width": 4, "order": 1}),
            json!({"comparison": "smollm2", "model": model, "adapter": "lora", "precision": "f32", "batch": 2, "steps": 3}),
            json!({"comparison": "smollm2", "model": model, "adapter": "hrm", "precision": "bf16", "batch": 1, "steps": 3}),
            linear,
            block,
            load,
        ] {
            let [inputs, outputs] = ["inputs", "outputs"].map(|name| folder.path().join(name));
            let answers = ask(&[
                json!({"command": "prepare", "settings": settings}),
                json!({"command": "inputs", "path": inputs}),
                json!({"command": "outputs", "path": outputs}),
                json!({"command": "run"}),
            ]);
            assert_eq!(answers[..3], [json!({}), json!({}), json!({})], "{settings}");
            assert!(answers[3]["seconds"].as_object().is_some_and(|seconds| !seconds.is_empty()), "{answers:?}");
        }
    }

    #[test]
    fn mistakes_are_answered() {
        let answers = ask(&[json!({"command": "run"}), json!({"command": "prepare"}), json!([])]);
        assert!(answers.iter().all(|answer| answer["error"].is_string()), "{answers:?}");
    }
}
