//! The order in which training examples are seen.

use hankel_core::Random;

/// An endless stream of example numbers: every epoch is a fresh random permutation. Batches run over the border of two
/// epochs, so that none is smaller than the others.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    seed: u64,
    examples: usize,
    epoch: Option<(u64, Vec<usize>)>,
}

impl Order {
    /// The order of `examples` (at least one) under `seed`.
    pub(crate) fn new(seed: u64, examples: usize) -> Self {
        Order { seed, examples: examples.max(1), epoch: None }
    }

    /// The example at `position` of the stream.
    pub(crate) fn index(&mut self, position: u64) -> usize {
        let (epoch, place) = (position / self.examples as u64, position % self.examples as u64);
        if self.epoch.as_ref().is_none_or(|(current, _)| *current != epoch) {
            self.epoch = Some((epoch, Random::new(self.seed, "order", epoch).permutation(self.examples)));
        }
        self.epoch.as_ref().map_or(0, |(_, order)| order[place as usize])
    }

    /// The examples of batch number `batch`, of `size` sequences.
    pub(crate) fn batch(&mut self, batch: u64, size: usize) -> Vec<usize> {
        (0..size as u64).map(|i| self.index(batch * size as u64 + i)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_once_an_epoch_and_the_same_from_anywhere() {
        let mut order = Order::new(5, 10);
        let all: Vec<usize> = (0..10).flat_map(|batch| order.batch(batch, 3)).collect();
        for epoch in all.chunks(10) {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        }
        assert_ne!(all[..10], all[10..20]);
        assert_eq!(Order::new(5, 10).batch(7, 3), all[21..24]);
        assert_ne!(Order::new(6, 10).batch(0, 10), all[..10]);
    }
}
