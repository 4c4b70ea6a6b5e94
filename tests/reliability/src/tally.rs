//! Counts of attempts and failures.

use std::collections::BTreeMap;

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

    /// Prints the table; whether nothing failed.
    pub fn report(&self) -> bool {
        for (name, (attempts, failures)) in &self.0 {
            println!("{name}: {attempts} attempts, {failures} failures");
        }
        self.0.values().all(|(_, failures)| *failures == 0)
    }
}
