//! A run's `config.toml` that was edited since its newest checkpoint.

use anyhow::{Context, Result, bail};
use hankel_trainer::config::{first_difference, without_places};
use hankel_trainer::run::{RunDirectory, checkpoint};
use toml::{Table, Value};

/// Refuses to go on with another configuration than the newest checkpoint was trained with, but for the files that it names, the steps, and
/// the keys in `free`. If it was edited, returns its text with the steps that the checkpoint was trained with.
pub fn with_steps_of_checkpoint(directory: &RunDirectory, free: &[&str]) -> Result<Option<String>> {
    let Some(newest) = checkpoint::list(&directory.checkpoints()).pop() else { return Ok(None) };
    // A checkpoint that cannot be read is reported when the run resumes from it. Those of earlier versions hold no configuration.
    let Some(trained) = checkpoint::state(&newest).ok().and_then(|state| state.config) else { return Ok(None) };
    let file = directory.config();
    let shown = file.display();
    let now = hankel_io::input::read_to_string(&file)?;
    if now == trained {
        return Ok(None);
    }
    let table = |text: &str| text.parse::<Table>().with_context(|| shown.to_string());
    let (now, trained) = (table(&now)?, table(&trained)?);
    let essence = |table: &Table| {
        let mut table = without_steps(table.clone());
        table.retain(|key, _| !free.contains(&key));
        without_places(table).to_string()
    };
    if let Some((has, had)) = first_difference(&essence(&now), &essence(&trained)) {
        bail!(
            "{shown} was edited: it has {has}, and the newest checkpoint was trained with {had}: put that back, or begin a new run \
             with `train fit {shown}`"
        );
    }
    Ok(Some(with_steps(now, &trained).to_string()))
}

/// The tables of settings of training: `[train]`, and those of adapters of their own.
fn trainings(table: &mut Table) -> impl Iterator<Item = (String, &mut Table)> {
    let mut found = Vec::new();
    for (key, value) in table.iter_mut() {
        match (key.as_str(), value) {
            ("train", Value::Table(train)) => found.push((String::new(), train)),
            ("adapter", Value::Array(adapters)) => {
                for adapter in adapters.iter_mut().filter_map(Value::as_table_mut) {
                    let name = adapter.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                    found.extend(adapter.get_mut("train").and_then(Value::as_table_mut).map(|train| (name, train)));
                }
            }
            _ => {}
        }
    }
    found.into_iter()
}

fn without_steps(mut table: Table) -> Table {
    trainings(&mut table).for_each(|(_, train)| drop(train.remove("steps")));
    table
}

/// `now` with the steps of `trained`.
fn with_steps(mut now: Table, trained: &Table) -> Table {
    let mut trained = trained.clone();
    let steps: Vec<(String, Option<Value>)> =
        trainings(&mut trained).map(|(name, train)| (name, train.remove("steps"))).collect();
    for (name, train) in trainings(&mut now) {
        if let Some((_, Some(steps))) = steps.iter().find(|(other, _)| *other == name) {
            train.insert("steps".to_owned(), steps.clone());
        }
    }
    now
}
