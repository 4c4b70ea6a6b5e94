//! Counts of attempts and failures.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Attempts and failures by name.
#[derive(Default)]
pub struct Tally(BTreeMap<String, (usize, usize)>);

impl Tally {
    /// Counts an attempt; a problem is told at once.
    pub fn add(&mut self, name: &str, problem: Option<String>) {
        let (attempts, failures) = self.0.entry(name.to_owned()).or_default();
        *attempts += 1;
        if let Some(problem) = problem {
            *failures += 1;
            println!("FAILURE {name}: {problem}");
        }
    }

    /// Counts attempts that are judged under another name.
    pub fn count(&mut self, name: &str, attempts: usize) {
        self.0.entry(name.to_owned()).or_default().0 += attempts;
    }

    /// Prints the table; whether nothing failed.
    pub fn report(&self) -> bool {
        for (name, (attempts, failures)) in &self.0 {
            println!("{name}: {attempts} attempts, {failures} failures");
        }
        self.0.values().all(|(_, failures)| *failures == 0)
    }

    /// Adds the counts as one entry, with what is in `facts`, to a list in a JSON file, which may not be there yet.
    pub fn save(&self, path: &Path, mut facts: Map<String, Value>) -> Result<()> {
        let mut list: Vec<Value> = match std::fs::read(path) {
            Ok(content) => serde_json::from_slice(&content).with_context(|| path.display().to_string())?,
            Err(_) => Vec::new(),
        };
        let count = |(attempts, failures): &(usize, usize)| json!({"attempts": attempts, "failures": failures});
        let counts: Map<_, _> = self.0.iter().map(|(name, counts)| (name.clone(), count(counts))).collect();
        facts.insert("counts".to_owned(), counts.into());
        list.push(facts.into());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let content = serde_json::to_string_pretty(&list)? + "\n";
        std::fs::write(path, content).with_context(|| path.display().to_string())
    }
}
