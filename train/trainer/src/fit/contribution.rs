//! How much each adapter adds to the stream, measured in an evaluation.

use crate::results::LayerResult;
use crate::tasks::Batch;
use hankel_models::Contribution;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sums of `||y_t||^2` (before the gate) and `||h_t||^2` over tokens, by layer and site.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Contributions(BTreeMap<(usize, String), [f64; 2]>);

impl Contributions {
    /// Adds what was recorded along a batch, up to the last target of each sequence: behind it is padding.
    pub fn add(&mut self, batch: &Batch, recorded: &[Contribution]) {
        let ends: Vec<usize> = batch
            .weights
            .chunks(batch.length.max(1))
            .map(|weights| weights.iter().rposition(|weight| *weight != 0.0).map_or(0, |last| last + 1))
            .collect();
        for Contribution { layer, site, output, stream } in recorded {
            let sums = self.0.entry((*layer, site.name().to_owned())).or_default();
            for (sum, squares) in sums.iter_mut().zip([output, stream]) {
                let squares = squares.to_f64_vec();
                let counted = squares.chunks(batch.length.max(1)).zip(&ends).flat_map(|(row, &end)| &row[..end]);
                *sum += counted.sum::<f64>();
            }
        }
    }

    /// Adds those of other batches.
    pub fn merge(&mut self, behind: &Contributions) {
        for (place, more) in &behind.0 {
            let sums = self.0.entry(place.clone()).or_default();
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }

    /// Writes `||gate y|| / ||h||` into the layers that were measured.
    pub fn put_into(&self, layers: &mut [LayerResult]) {
        for layer in layers {
            let found = self.0.iter().find(|((number, site), _)| *number == layer.layer && *site == layer.site);
            if let (Some((_, [output, stream])), Some(gate)) = (found, layer.gate) {
                layer.contribution = (*stream > 0.0).then(|| gate.abs() * (output / stream).sqrt());
            }
        }
    }
}
