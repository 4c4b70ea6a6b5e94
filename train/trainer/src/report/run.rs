//! A run directory, read back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::answers::{self, Answers};
use crate::results::{AdapterResult, Event, RunResult, SCHEMA};

/// Why a run directory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Neither `result.json` nor `metrics.jsonl` is there.
    #[error("{} is not a run directory: it has neither result.json nor metrics.jsonl", dir.display())]
    NotARun {
        /// The directory as given.
        dir: PathBuf,
    },
    /// A file exists but could not be read.
    #[error(transparent)]
    Read(#[from] hankel_io::Error),
    /// `result.json` is not what this version writes.
    #[error("{}, line {}{at}: {reason}", path.display(), reason.line())]
    Parse {
        /// The file.
        path: PathBuf,
        /// At which key, if that is known.
        at: String,
        /// What was wrong.
        reason: serde_json::Error,
    },
    /// The run was made by a newer version, with another layout.
    #[error("{} has layout {found}, this version reads layouts up to {SCHEMA}; use the version that made the run", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The layout it states.
        found: u32,
    },
}

/// How the note of a run without a result begins.
pub const UNFINISHED: &str = "There is no result.json: the run is not finished, or was stopped.";

/// What a run left in its directory.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Name for headings: that of the run, or of its directory.
    pub name: String,
    /// Final figures; absent while the run is unfinished.
    pub result: Option<RunResult>,
    /// Lines of `metrics.jsonl` in the order in which they count (see [`Run::load`]).
    pub events: Vec<Event>,
    /// The resolved configuration, as text.
    pub config: Option<String>,
    /// The first generated answers of every row.
    pub answers: Vec<Answers>,
    /// What was missing or not understood, one sentence each.
    pub notes: Vec<String>,
}

impl Run {
    /// Reads `result.json`, `metrics.jsonl` and `config.toml` of a run directory.
    ///
    /// An unfinished run has no result yet and is read all the same. A resumed run logs again the steps between its last
    /// checkpoint and its end: the later line stands. Lines of `metrics.jsonl` that cannot be read (the last one of a
    /// killed run is often cut) are left out and noted.
    ///
    /// # Errors
    /// When `dir` holds no run, a file cannot be read, or `result.json` is malformed or of a newer layout.
    pub fn load(dir: &Path) -> Result<Self, RunError> {
        let mut notes = Vec::new();
        let result = read(&dir.join("result.json"))?;
        let metrics = read(&dir.join("metrics.jsonl"))?;
        let config = read(&dir.join("config.toml"))?;
        if result.is_none() && metrics.is_none() {
            return Err(RunError::NotARun { dir: dir.to_path_buf() });
        }
        let result = result.map(|text| parse_result(&dir.join("result.json"), &text)).transpose()?;
        if metrics.is_none() {
            notes.push("There is no metrics.jsonl: curves are missing.".to_owned());
        }
        let events = metrics.map_or_else(Vec::new, |text| parse_events(&text, &mut notes));
        if result.is_none() {
            let end = stopped(&events).map_or_else(String::new, |end| format!(" {end}"));
            notes.insert(0, format!("{UNFINISHED}{end}"));
        }
        let started =
            events.iter().find_map(|e| if let Event::Start { name, .. } = e { Some(name.clone()) } else { None });
        let directory = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = result.as_ref().map(|r| r.name.clone()).or(started).or(directory).unwrap_or_else(|| "run".into());
        let rows = result.iter().flat_map(|result| &result.rows).map(|row| row.name.as_str());
        let answers = answers::read(dir, rows);
        Ok(Self { name, result, events, config, answers, notes })
    }

    /// Rows of the comparison; none while the run is unfinished.
    pub fn rows(&self) -> &[AdapterResult] {
        self.result.as_ref().map_or(&[], |r| &r.rows)
    }

    /// The row without an adapter, which the others are measured against.
    pub fn baseline(&self) -> Option<&AdapterResult> {
        self.rows().iter().find(|row| row.kind == "none")
    }

    /// The first truncated version of a row.
    pub fn truncated(&self, name: &str) -> Option<&AdapterResult> {
        self.rows().iter().find(|row| row.truncated_from.as_deref() == Some(name))
    }
}

fn read(path: &Path) -> Result<Option<String>, RunError> {
    match hankel_io::input::read(path) {
        // A damaged byte should cost a line, not the report.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn parse_result(path: &Path, text: &str) -> Result<RunResult, RunError> {
    #[derive(serde::Deserialize)]
    struct Layout {
        schema: u32,
    }
    // The layout first: a newer file may well fail to parse in a confusing place.
    if let Ok(Layout { schema }) = serde_json::from_str(text)
        && schema > SCHEMA
    {
        return Err(RunError::Schema { path: path.to_path_buf(), found: schema });
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let is_known = error.inner().is_data() && error.path().iter().len() > 0;
        let at = if is_known { format!(", `{}`", error.path()) } else { String::new() };
        RunError::Parse { path: path.to_path_buf(), at, reason: error.into_inner() }
    })?;
    let rest = json.end().map_err(|reason| RunError::Parse { path: path.to_path_buf(), at: String::new(), reason });
    rest.map(|()| read)
}

/// Where and why a run stopped, unless it went on after that.
fn stopped(events: &[Event]) -> Option<String> {
    // An adapter that diverges stops its own stage alone.
    let of_run = |event: &&Event| {
        matches!(event, Event::Start { .. } | Event::Stopped { .. } | Event::Stage { .. } | Event::Finished { .. })
    };
    let last = events.iter().rev().find(of_run)?;
    let Event::Stopped { stage, step, reason } = last else { return None };
    Some(format!("It stopped after step {step} of `{stage}`: {reason}."))
}

/// Reads the lines, dropping steps that were done again after a resume.
fn parse_events(text: &str, notes: &mut Vec<String>) -> Vec<Event> {
    let mut lost = Vec::new();
    let mut events: Vec<Option<Event>> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(event) => events.push(Some(event)),
            Err(_) => lost.push(number + 1),
        }
    }
    match lost.as_slice() {
        [] => {}
        [line] => notes.push(format!("Line {line} of metrics.jsonl could not be read and was left out.")),
        [first, .., last] => notes.push(format!(
            "{} lines of metrics.jsonl (the first is {first}, the last {last}) could not be read and were left out.",
            lost.len()
        )),
    }
    let mut latest: BTreeMap<(&str, &str, u64), usize> = BTreeMap::new();
    let mut replaced = Vec::new();
    for (i, event) in events.iter().enumerate() {
        let key = match event {
            Some(Event::Step { stage, step, .. }) => ("step", stage.as_str(), *step),
            Some(Event::Eval { stage, step, split, .. }) => (split.name(), stage.as_str(), *step),
            Some(Event::Layers { stage, step, .. }) => ("layers", stage.as_str(), *step),
            _ => continue,
        };
        replaced.extend(latest.insert(key, i));
    }
    for i in replaced {
        events[i] = None;
    }
    events.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(stage: &str, step: u64, loss: f64) -> String {
        format!(
            r#"{{"event":"step","stage":"{stage}","step":{step},"loss":{loss},"learning_rate":0.001,"gradient_norm":1.0,"tokens":1,"tokens_per_second":1.0,"seconds":1.0}}"#
        )
    }

    #[test]
    fn a_resumed_run_counts_the_later_lines() {
        let text = [step("a", 1, 5.0), step("a", 2, 4.0), step("b", 2, 9.0), step("a", 2, 3.0), step("a", 3, 2.0)];
        let mut notes = Vec::new();
        let events = parse_events(&text.join("\n"), &mut notes);
        let losses: Vec<f64> =
            events.iter().filter_map(|e| if let Event::Step { loss, .. } = e { Some(*loss) } else { None }).collect();
        assert_eq!(losses, [5.0, 9.0, 3.0, 2.0]);
        assert!(notes.is_empty());
    }

    #[test]
    fn damaged_lines_are_noted_by_number() {
        let text =
            format!("{}\n\nnot json\n{}\n{}", step("a", 1, 1.0), r#"{"event":"unheard of"}"#, &step("a", 2, 1.0)[..40]);
        let mut notes = Vec::new();
        assert_eq!(parse_events(&text, &mut notes).len(), 1);
        assert!(
            notes[0].contains("3 lines") && notes[0].contains("first is 3") && notes[0].contains("last 5"),
            "{notes:?}"
        );
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Run::load(dir.path()), Err(RunError::NotARun { .. })));
        std::fs::write(dir.path().join("result.json"), "{\n\"schema\": 1,\n oops").unwrap();
        let error = Run::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("result.json, line 3"), "{error}");
        std::fs::write(dir.path().join("result.json"), r#"{"schema": 1, "rows": "other"}"#).unwrap();
        let error = Run::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("line 1, `rows`: invalid type"), "{error}");
        std::fs::write(dir.path().join("result.json"), r#"{"schema": 999, "rows": "other"}"#).unwrap();
        let error = Run::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("layout 999"), "{error}");
    }

    #[test]
    fn an_unfinished_run_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("metrics.jsonl"), step("a", 1, 1.0)).unwrap();
        let run = Run::load(dir.path()).unwrap();
        assert!(run.result.is_none() && run.rows().is_empty() && run.events.len() == 1);
        assert!(run.notes[0].contains("not finished"), "{:?}", run.notes);
    }

    #[test]
    fn a_run_that_stopped_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let stopped = r#"{"event":"stopped","stage":"a","step":1,"reason":"the loss is not finite"}"#;
        let note = |lines: &[&str]| {
            std::fs::write(dir.path().join("metrics.jsonl"), lines.join("\n")).unwrap();
            Run::load(dir.path()).unwrap().notes.remove(0)
        };
        let first = step("a", 1, 1.0);
        assert!(note(&[&first, stopped]).ends_with("It stopped after step 1 of `a`: the loss is not finite."));
        let again = r#"{"event":"start","name":"x","seed":1,"version":"0.1.0","resumed":true}"#;
        assert_eq!(note(&[&first, stopped, again]), UNFINISHED);
    }
}
