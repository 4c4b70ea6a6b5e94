//! The bytes of a file.

mod config;

pub(crate) use config::BytesConfig;

use super::drawn;
use super::ngram::Ngrams;
use super::settings::GeneratedData;
use super::{MetricSums, Row, Task, TaskError, file};
use crate::results::{DataFile, Scores, Split, TaskResult, metric};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

/// The task `bytes`: the first 90 % of a file are for training, then 5 % each for validation and test.
pub(crate) struct Bytes {
    config: BytesConfig,
    text: Vec<u8>,
    /// Whether all of it is the test part.
    is_whole: bool,
    file: DataFile,
    data_seed: u64,
    baselines: OnceLock<BTreeMap<String, f64>>,
}

impl Bytes {
    /// Reads the file of a resolved configuration, unpacking gzip.
    ///
    /// # Errors
    /// When it cannot be read, is empty, or has a part shorter than a window.
    pub(crate) fn open(config: &BytesConfig) -> Result<Self, TaskError> {
        let (text, file) = file::read("task.path", &config.path)?;
        let task = Self::of(config, text, file);
        for split in [Split::Train, Split::Validation, Split::Test] {
            let part = task.part(split).len();
            if part <= config.length && task.sequences(split) > 0 {
                return Err(TaskError::TooShort {
                    path: config.path.clone(),
                    bytes: task.text.len(),
                    split: split.name(),
                    part,
                    length: config.length,
                    needed: config.length + 1,
                });
            }
        }
        Ok(task)
    }

    /// All of another file as the test part, in windows that follow each other; the last one ends with the file.
    ///
    /// # Errors
    /// When it cannot be read, or is shorter than a window.
    pub(crate) fn open_on(config: &BytesConfig, path: &Path) -> Result<Self, TaskError> {
        let (text, file) = file::read("--data", path)?;
        let (bytes, length) = (text.len(), config.length);
        if bytes <= length {
            let name = path.display();
            let problem = format!(
                "`--data`: {name} has {bytes} bytes; a window of `task.length` = {length} needs {}",
                length + 1
            );
            return Err(TaskError::Unusable(problem));
        }
        let test_sequences = (bytes - 1).div_ceil(length);
        let sequences = GeneratedData { test_sequences, ..config.sequences.clone() };
        let config = BytesConfig { path: path.to_owned(), sequences, ..config.clone() };
        Ok(Bytes { is_whole: true, ..Self::of(&config, text, file) })
    }

    fn of(config: &BytesConfig, text: Vec<u8>, file: DataFile) -> Self {
        let data_seed = config.sequences.seed();
        Bytes { config: config.clone(), text, is_whole: false, file, data_seed, baselines: OnceLock::new() }
    }

    /// Bits per character of n-gram models of the whole training part, on the windows of the validation part.
    fn baselines(&self) -> BTreeMap<String, f64> {
        let counted = Ngrams::count(&[&self.text[self.part(Split::Train)]], 256);
        let windows: Vec<&[u8]> = (0..self.config.sequences.validation_sequences)
            .map(|index| self.window(Split::Validation, index))
            .collect();
        counted.baselines(&windows, |reached| reached.bits)
    }

    /// Where a split lies in the file.
    pub(crate) fn part(&self, split: Split) -> Range<usize> {
        let all = self.text.len();
        let small = all / 20;
        match split {
            Split::Train => 0..all - 2 * small,
            Split::Validation => all - 2 * small..all - small,
            Split::Test if self.is_whole => 0..all,
            Split::Test => all - small..all,
        }
    }

    fn window(&self, split: Split, index: usize) -> &[u8] {
        &self.text[self.start(split, index)..][..=self.config.length]
    }

    fn start(&self, split: Split, index: usize) -> usize {
        let part = self.part(split);
        let places = part.len() - self.config.length;
        part.start
            + match split {
                Split::Test if self.is_whole => (index * self.config.length).min(places - 1),
                _ => drawn::window(self.data_seed, "bytes", split, index, [self.sequences(split), places]),
            }
    }

    /// Targets at the beginning of a window that the one before it has counted: where the last of a whole file lies over it.
    fn counted_before(&self, split: Split, index: usize) -> usize {
        let is_in_order = self.is_whole && split == Split::Test;
        if is_in_order { index * self.config.length - self.start(split, index) } else { 0 }
    }
}

impl Task for Bytes {
    fn vocabulary(&self) -> usize {
        256
    }

    fn sequence_length(&self) -> usize {
        self.config.length
    }

    fn sequences(&self, split: Split) -> usize {
        self.config.sequences.count(split)
    }

    fn example(&self, split: Split, index: usize, row: Row<'_>) {
        let window = self.window(split, index);
        row.tokens.iter_mut().zip(window).for_each(|(token, &byte)| *token = u32::from(byte));
        row.targets.iter_mut().zip(&window[1..]).for_each(|(target, &byte)| *target = u32::from(byte));
        row.weights[self.counted_before(split, index)..].fill(1.0);
    }

    fn text(&self, token: u32) -> String {
        match u8::try_from(token) {
            Ok(byte) => byte.escape_ascii().to_string(),
            Err(_) => format!("<{token}>"),
        }
    }

    fn describe(&self) -> TaskResult {
        TaskResult {
            kind: "bytes".to_owned(),
            primary_metric: metric::BITS_PER_CHARACTER.to_owned(),
            sequence_length: self.config.length,
            vocabulary: 256,
            description: format!(
                "next byte of {} ({} bytes; windows of {})",
                self.config.path.display(),
                self.text.len(),
                self.config.length
            ),
            baselines: self.baselines.get_or_init(|| self.baselines()).clone(),
            ..TaskResult::default()
        }
    }

    fn scores(&self, sums: &MetricSums) -> Scores {
        let mut scores = sums.scores();
        let bits = |nats: f64| nats / std::f64::consts::LN_2;
        scores.metrics.insert(metric::BITS_PER_CHARACTER.to_owned(), bits(sums.mean_loss()));
        if let Some(smoothed) = sums.mean_smoothed() {
            scores.metrics.insert(metric::LABEL_SMOOTHED_BITS.to_owned(), bits(smoothed));
        }
        scores
    }

    fn data_files(&self) -> Vec<DataFile> {
        vec![self.file.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::settings::GeneratedData;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;
    use std::path::Path;

    fn config(path: &Path, length: usize) -> BytesConfig {
        BytesConfig {
            path: path.to_owned(),
            length,
            sequences: GeneratedData {
                data_seed: Some(1),
                train_sequences: 50,
                validation_sequences: 7,
                test_sequences: 1,
            },
        }
    }

    fn sample() -> Vec<u8> {
        (0..2047_u32).map(|i| (i * i % 251) as u8).collect()
    }

    #[test]
    fn windows_stay_in_their_part_and_targets_follow() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        std::fs::write(&path, sample()).unwrap();
        let task = Bytes::open(&config(&path, 20)).unwrap();
        assert_eq!(task.part(Split::Train), 0..1843);
        assert_eq!(task.part(Split::Test), 1945..2047);
        for split in [Split::Train, Split::Validation, Split::Test] {
            for index in 0..task.sequences(split) {
                let (start, part) = (task.start(split, index), task.part(split));
                assert!(start >= part.start && start + 21 <= part.end);
                let batch = task.batch(split, &[index]).unwrap();
                assert_eq!(batch.tokens[1..], batch.targets[..19]);
                assert_eq!(batch.tokens[0], u32::from(sample()[start]));
                assert_eq!(batch.targets[19], u32::from(sample()[start + 20]));
            }
        }
        // Two bytes say what the next one is, but those that came before are others than those that come.
        let baselines = task.describe().baselines;
        assert_eq!(baselines.keys().collect::<Vec<_>>(), ["order_0", "order_1", "order_2", "order_3"]);
        assert!(baselines["order_0"] > 6.0 && baselines["order_0"] < 8.0, "{baselines:?}");
        assert_eq!(task.start(Split::Validation, 0), 1843);
        assert_eq!(task.start(Split::Validation, 6) + 21, 1945);
    }

    #[test]
    fn every_byte_of_another_file_is_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("other");
        let length = 20;
        for bytes in [21, 22, 41, 45, 61, 600] {
            std::fs::write(&path, &sample()[..bytes]).unwrap();
            let task = Bytes::open_on(&config(Path::new("text"), length), &path).unwrap();
            let mut counted = vec![0; bytes];
            for index in 0..task.sequences(Split::Test) {
                let (start, batch) = (task.start(Split::Test, index), task.batch(Split::Test, &[index]).unwrap());
                for (place, weight) in batch.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                    assert_eq!((batch.targets[place], *weight), (u32::from(sample()[start + place + 1]), 1.0));
                    counted[start + place + 1] += 1;
                }
            }
            assert_eq!(counted[0], 0);
            assert!(counted[1..].iter().all(|count| *count == 1), "{bytes} bytes: {counted:?}");
        }
    }

    #[test]
    fn the_split_of_the_enwik8_prefix() {
        let text = vec![b'x'; 4_154_064];
        let task = Bytes::of(&config(Path::new("x"), 5), text, DataFile::default());
        assert_eq!(task.part(Split::Train).len(), 3_738_658);
        assert_eq!(task.part(Split::Validation).len(), 207_703);
        assert_eq!(task.part(Split::Test).len(), 207_703);
    }

    #[test]
    fn gzip_is_the_same_text() {
        let directory = tempfile::tempdir().unwrap();
        let (plain, packed) = (directory.path().join("text"), directory.path().join("text.gz"));
        std::fs::write(&plain, sample()).unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&sample()).unwrap();
        let packed_bytes = encoder.finish().unwrap();
        std::fs::write(&packed, &packed_bytes).unwrap();
        let (a, b) = (Bytes::open(&config(&plain, 20)).unwrap(), Bytes::open(&config(&packed, 20)).unwrap());
        assert_eq!(a.text, b.text);
        assert_eq!(b.data_files()[0].bytes, packed_bytes.len() as u64);
        assert_ne!(a.data_files()[0].sha256, b.data_files()[0].sha256);
        std::fs::write(&packed, &packed_bytes[..packed_bytes.len() / 2]).unwrap();
        let error = Bytes::open(&config(&packed, 20)).err().unwrap().to_string();
        assert!(error.contains("not a complete gzip file"), "{error}");
        std::fs::write(&packed, b"PK\x03\x04 and more").unwrap();
        let error = Bytes::open(&config(&packed, 20)).err().unwrap().to_string();
        assert!(error.contains("it is a zip archive: unpack it") && !error.contains("not a complete"), "{error}");
    }

    #[test]
    fn files_that_cannot_be_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        let message = || Bytes::open(&config(&path, 100)).err().unwrap().to_string();
        assert!(message().contains("cannot read"), "{}", message());
        std::fs::write(&path, b"").unwrap();
        assert!(message().ends_with("text is empty"), "{}", message());
        std::fs::write(&path, vec![1; 1500]).unwrap();
        assert!(
            message().contains("its validation part has 75; a window of `task.length` = 100 needs 101"),
            "{}",
            message()
        );
    }

    #[test]
    fn bits() {
        let mut sums = MetricSums::with_smoothing(0.1);
        let mut batch = crate::tasks::Batch::blank(1, 1);
        (batch.targets[0], batch.weights[0]) = (1, 1.0);
        let ln2 = std::f64::consts::LN_2;
        sums.add(&batch, [crate::tasks::TokenPrediction { loss: 2.0 * ln2, smoothed: 3.0 * ln2, predicted: 1 }]);
        let task = Bytes::of(&config(Path::new("x"), 5), vec![], DataFile::default());
        let scores = task.scores(&sums);
        assert_eq!(scores.get(metric::BITS_PER_CHARACTER), Some(2.0));
        assert_eq!(scores.get(metric::LABEL_SMOOTHED_BITS), Some(3.0));
    }
}
