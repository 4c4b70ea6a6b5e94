//! The batches of a stage: a pure function of the step, made on demand or prefetched.

use crate::config::TrainConfig;
use crate::results::Split;
use crate::tasks::{Batch, Order, Task};
use anyhow::{Context, Result};
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, Scope};

/// The batches of one step, with their numbers since the beginning.
pub(super) type StepBatches = Vec<(u64, Batch)>;

/// Most steps whose batches are made before they are needed.
const PREFETCHED_STEPS: usize = 2;

/// The first sequences of a split, batch by batch, with the number of the first of each. No padding is read: texts, and windows that are not
/// full, are by themselves.
pub(super) fn unpadded(
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
) -> impl Iterator<Item = Result<(usize, Batch)>> {
    let sequences = sequences.min(task.sequences(split));
    let size = if task.as_text().is_some() { 1 } else { batch_size.max(1) };
    (0..sequences).step_by(size).flat_map(move |first| {
        let indices: Vec<usize> = (first..sequences.min(first + size)).collect();
        match task.batch(split, &indices) {
            Ok(batch) => (first..).zip(batch.unpadded()).map(Ok).collect(),
            Err(error) => vec![Err(error.into())],
        }
    })
}

/// What makes the batches of a stage.
#[derive(Clone)]
pub(super) struct Batches<'a> {
    task: &'a dyn Task,
    order: Order,
    batch_size: usize,
    accumulation: u64,
    /// Which batches of a step are made here, by their number in it.
    share: Range<u64>,
}

impl<'a> Batches<'a> {
    /// Those of training on `task` with these settings and the run's seed.
    pub(super) fn new(task: &'a dyn Task, settings: &TrainConfig, seed: u64) -> Self {
        let order = Order::new(seed, task.sequences(Split::Train));
        let accumulation = settings.accumulation as u64;
        Batches { task, order, batch_size: settings.batch_size, accumulation, share: 0..accumulation }
    }

    /// Only those of a step that are in `share`.
    pub(super) fn of_share(self, share: Range<u64>) -> Self {
        Batches { share, ..self }
    }

    /// Those of step `step`, from 0, that are made here.
    ///
    /// # Errors
    /// When an example cannot be made.
    pub(super) fn of_step(&mut self, step: u64) -> Result<StepBatches> {
        let batch = |number| {
            let indices = self.order.batch(number, self.batch_size);
            Ok((number, self.task.batch(Split::Train, &indices)?))
        };
        let first = step * self.accumulation;
        (first + self.share.start..first + self.share.end).map(batch).collect()
    }
}

/// Makes batches on a second thread while earlier steps run: on a GPU the main thread only submits work, and the CPU would be idle
/// otherwise. Batches and errors come in the order of the steps.
pub(super) struct Prefetcher(Receiver<Result<StepBatches>>);

impl Prefetcher {
    /// Starts the thread that makes the batches of `steps`. Dropping the prefetcher ends it.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn spawn<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut batches: Batches<'a>,
        steps: Range<u64>,
    ) -> Result<Self> {
        let (sender, receiver) = sync_channel(PREFETCHED_STEPS);
        let make = move || {
            // Nobody listens any more once training has stopped.
            let mut send = |step| sender.send(batches.of_step(step)).is_ok();
            steps.into_iter().all(&mut send);
        };
        Builder::new()
            .name("batches".to_owned())
            .spawn_scoped(scope, make)
            .context("cannot start the thread that makes batches")?;
        Ok(Prefetcher(receiver))
    }

    /// The batches of the next step.
    ///
    /// # Errors
    /// When an example cannot be made, or when there are no more steps.
    pub(super) fn next(&self) -> Result<StepBatches> {
        self.0.recv().context("the thread that makes batches has ended")?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::TaskResult;
    use crate::tasks::{Row, TaskError};

    /// A task whose tokens are the number of the example; the one called `broken` cannot be made.
    struct Numbers {
        broken: usize,
    }

    impl Task for Numbers {
        fn vocabulary(&self) -> usize {
            100
        }
        fn sequence_length(&self) -> usize {
            2
        }
        fn sequences(&self, _: Split) -> usize {
            30
        }
        fn example(&self, _: Split, index: usize, row: Row<'_>) {
            row.tokens.fill(index as u32);
        }
        fn text(&self, token: u32) -> String {
            token.to_string()
        }
        fn describe(&self) -> TaskResult {
            TaskResult::default()
        }
        fn batch(&self, _: Split, indices: &[usize]) -> Result<Batch, TaskError> {
            if indices.contains(&self.broken) {
                return Err(TaskError::Unusable(format!("example {} is broken", self.broken)));
            }
            let mut batch = Batch::blank(indices.len(), 2);
            for (row, &index) in batch.rows().zip(indices) {
                self.example(Split::Train, index, row);
            }
            Ok(batch)
        }
    }

    fn batches(task: &Numbers) -> Batches<'_> {
        let settings = TrainConfig { batch_size: 3, accumulation: 2, ..TrainConfig::default() };
        Batches::new(task, &settings, 7)
    }

    #[test]
    fn those_made_ahead_are_those_made_on_demand() {
        let task = Numbers { broken: 99 };
        let mut now = batches(&task);
        let expected: Vec<StepBatches> = (4..20).map(|step| now.of_step(step).unwrap()).collect();
        assert_eq!(expected[0].iter().map(|(number, _)| *number).collect::<Vec<_>>(), [8, 9]);
        std::thread::scope(|scope| {
            let prefetcher = Prefetcher::spawn(scope, batches(&task), 4..20).unwrap();
            for expected in &expected {
                assert_eq!(&prefetcher.next().unwrap(), expected);
            }
            assert!(prefetcher.next().unwrap_err().to_string().contains("has ended"));
        });
        // Stopping early does not hang.
        std::thread::scope(|scope| drop(Prefetcher::spawn(scope, batches(&task), 0..1_000_000).unwrap().next()));
    }

    #[test]
    fn shares_of_a_step_are_its_batches() {
        let task = Numbers { broken: 99 };
        let whole = batches(&task).of_step(5).unwrap();
        let parts = [0..0, 0..1, 1..2].map(|share| batches(&task).of_share(share).of_step(5).unwrap());
        assert_eq!(parts.concat(), whole);
    }

    #[test]
    fn an_error_comes_with_its_step() {
        let broken = batches(&Numbers { broken: 99 }).of_step(3).unwrap()[1].1.tokens[0] as usize;
        let task = Numbers { broken };
        std::thread::scope(|scope| {
            let prefetcher = Prefetcher::spawn(scope, batches(&task), 0..6).unwrap();
            (0..3).for_each(|_| drop(prefetcher.next().unwrap()));
            assert!(prefetcher.next().unwrap_err().to_string().contains("is broken"));
        });
    }
}
