//! Piano performances of MAESTRO (C. Hawthorne et al., Enabling Factorized Piano Music Modeling and Generation with the MAESTRO
//! Dataset, 2019): the next event is predicted at every position.

mod archive;
mod config;
pub mod events;
pub mod midi;
#[cfg(test)]
mod tests;

pub use config::MaestroConfig;

use super::drawn;
use super::ngram::Ngrams;
use super::{MetricSums, Row, Task, TaskError};
use crate::format::thousands;
use crate::results::{DataFile, Scores, Split, TaskResult, metric};
use archive::Archive;
use events::{Event, VOCABULARY};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const SPLITS: [Split; 3] = [Split::Train, Split::Validation, Split::Test];

/// The task `maestro`: windows of the pieces of the published splits, none across two pieces.
pub struct Maestro {
    config: MaestroConfig,
    archive: Archive,
    /// For each split the pieces that are long enough, with the number of places for a window in them and all before.
    places: [Vec<(usize, usize)>; 3],
    data_seed: u64,
    baselines: OnceLock<BTreeMap<String, f64>>,
}

impl Maestro {
    /// Reads the files of a resolved configuration, those of the splits that are used.
    ///
    /// # Errors
    /// When the table or a file is missing or damaged, or no piece of a split has room for a window.
    pub fn open(config: &MaestroConfig) -> Result<Self, TaskError> {
        let used: Vec<Split> = SPLITS.into_iter().filter(|&split| config.sequences.count(split) > 0).collect();
        let archive = Archive::open(&config.path, &used)?;
        let places = SPLITS.map(|split| {
            let mut all = 0;
            let long = archive.of(split).iter().enumerate().filter(|(_, piece)| piece.len() > config.length);
            long.map(|(index, piece)| {
                all += piece.len() - config.length;
                (index, all)
            })
            .collect::<Vec<_>>()
        });
        for (split, places) in SPLITS.into_iter().zip(&places) {
            if !used.contains(&split) || !places.is_empty() {
                continue;
            }
            let (table, name) = (archive.table.display(), split.name());
            return Err(TaskError::Unusable(match archive.of(split).iter().map(Vec::len).max() {
                None => format!("`task.path`: {table} lists no piece of the {name} split"),
                Some(longest) => format!(
                    "`task.path`: the longest piece of the {name} split in {table} has {longest} events; a window of \
                     `task.length` = {} needs {}: take a smaller `task.length`",
                    config.length,
                    config.length + 1
                ),
            }));
        }
        let data_seed = config.sequences.seed();
        Ok(Maestro { config: config.clone(), archive, places, data_seed, baselines: OnceLock::new() })
    }

    /// The events that the model reads and, one further, predicts.
    fn window(&self, split: Split, index: usize) -> &[u16] {
        let places = &self.places[SPLITS.iter().position(|&other| other == split).unwrap_or(0)];
        let all = places.last().map_or(0, |&(_, all)| all);
        let place = drawn::window(self.data_seed, "maestro", split, index, [self.sequences(split), all]);
        let which = places.partition_point(|&(_, up_to)| up_to <= place);
        let before = if which == 0 { 0 } else { places[which - 1].1 };
        &self.archive.of(split)[places[which].0][place - before..][..=self.config.length]
    }

    /// Accuracies of predictors that count in the training pieces, on the windows of validation.
    fn baselines(&self) -> BTreeMap<String, f64> {
        let pieces: Vec<&[u16]> = self.archive.of(Split::Train).iter().map(Vec::as_slice).collect();
        let windows: Vec<&[u16]> = (0..self.config.sequences.validation_sequences)
            .map(|index| self.window(Split::Validation, index))
            .collect();
        Ngrams::count(&pieces, VOCABULARY).baselines(&windows, |reached| reached.accuracy)
    }
}

impl Task for Maestro {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn sequence_length(&self) -> usize {
        self.config.length
    }

    fn sequences(&self, split: Split) -> usize {
        self.config.sequences.count(split)
    }

    fn example(&self, split: Split, index: usize, row: Row<'_>) {
        let window = self.window(split, index);
        row.tokens.iter_mut().zip(window).for_each(|(token, &event)| *token = u32::from(event));
        row.targets.iter_mut().zip(&window[1..]).for_each(|(target, &event)| *target = u32::from(event));
        row.weights.fill(1.0);
    }

    fn text(&self, token: u32) -> String {
        Event::of(token).map_or_else(|| format!("<{token}>"), |event| event.to_string())
    }

    fn describe(&self) -> TaskResult {
        let of = |split: Split| {
            let pieces = self.archive.of(split);
            let events: usize = pieces.iter().map(Vec::len).sum();
            format!("{} {} pieces with {}", pieces.len(), split.name(), thousands(events as u64))
        };
        let used: Vec<String> =
            SPLITS.into_iter().filter(|&split| !self.archive.of(split).is_empty()).map(of).collect();
        TaskResult {
            kind: "maestro".to_owned(),
            primary_metric: metric::ACCURACY.to_owned(),
            sequence_length: self.config.length,
            vocabulary: VOCABULARY,
            description: format!(
                "next event of piano performances ({} events; windows of {})",
                used.join(", "),
                self.config.length
            ),
            baselines: self.baselines.get_or_init(|| self.baselines()).clone(),
            ..TaskResult::default()
        }
    }

    fn scores(&self, sums: &MetricSums) -> Scores {
        let mut scores = sums.scores();
        scores.metrics.insert(metric::BITS_PER_EVENT.to_owned(), sums.mean_loss() / std::f64::consts::LN_2);
        scores
    }

    fn data_files(&self) -> Vec<DataFile> {
        self.archive.files.clone()
    }
}
