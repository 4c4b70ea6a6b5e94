//! Weights fitted to what the recurrent adapters of a model read, for input-weighted reduction.

use super::batches::unpadded;
use super::model::Model;
use crate::results::Split;
use crate::tasks::Task;
use anyhow::{Context, Result, anyhow, bail};
use faer::{Mat, MatRef};
use hankel_core::Device;
use hankel_models::lti::LinearSystem;
use hankel_models::lti::autoregression::{Autoregression, Moments, directions_read};
use hankel_models::reduce::hrm::linear_system;
use hankel_models::weights::StreamSite;
use hankel_models::{Pass, SiteInput};

/// Highest order that is tried. Higher ones make text held out likelier, and weigh slow drift so much that reduced systems of few states
/// lose the response to single tokens, which the loss charges more for.
const HIGHEST_ORDER: usize = 1;

/// Every fifth sequence is held out to choose the order by.
const HELD_OUT: usize = 5;

/// The weight of a layer.
pub struct FittedWeight {
    /// Index of the layer.
    pub layer: usize,
    /// Its site.
    pub site: StreamSite,
    /// From white noise to the inputs of the adapter.
    pub system: LinearSystem,
    /// Directions of the stream that B reads.
    pub directions: usize,
    /// Order of the autoregression.
    pub order: usize,
    /// Log-likelihood of the sequences held out, per step, for order 0, 1, ...
    pub log_likelihoods: Vec<f64>,
    /// Largest modulus of a pole.
    pub spectral_radius: f64,
}

/// One layer while its inputs are read.
struct Layer {
    index: usize,
    site: StreamSite,
    /// Orthonormal rows, [k, D].
    directions: Mat<f64>,
    moments: Moments,
    held_out: Vec<Mat<f64>>,
}

/// Fits a vector autoregression to what every adapted site reads along the first `sequences` of a split, in the directions that its B
/// reads. The order is the one under which the sequences held out are likeliest.
///
/// # Errors
/// When the adapter is not a linear recurrence or there are too few sequences, and those of the operators.
pub fn record_inputs(
    model: &Model,
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
) -> Result<Vec<FittedWeight>> {
    let sequences = sequences.min(task.sequences(split));
    if sequences < HELD_OUT {
        bail!("{sequences} sequences are too few to fit a weight to: every fifth one is held out");
    }
    let mut layers = layers(model)?;
    for batch in unpadded(task, split, sequences, batch_size) {
        let (first, batch) = batch?;
        let mut inputs = Vec::new();
        model.read(&batch, Pass { inputs: Some(&mut inputs), ..Pass::evaluation() })?;
        for input in inputs {
            let found = layers.iter_mut().find(|l| l.index == input.layer && l.site == input.site);
            found.with_context(|| format!("layer {} has no recurrence", input.layer))?.read(&input, first)?;
        }
    }
    layers.iter().map(Layer::fit).collect()
}

fn layers(model: &Model) -> Result<Vec<Layer>> {
    let file = model.adapters.to_hrm_file(None).map_err(|reason| anyhow!("there are no inputs to record: {reason}"))?;
    let discretization = file.config.discretization;
    let layer = |layer: &hankel_models::weights::HrmLayerFile| {
        let system = linear_system(layer, discretization).with_context(|| layer.label())?;
        let directions = directions_read(system.b()).with_context(|| layer.label())?;
        let moments = Moments::new(directions.nrows(), HIGHEST_ORDER);
        Ok(Layer { index: layer.layer, site: layer.site, directions, moments, held_out: Vec::new() })
    };
    file.layers.iter().map(layer).collect()
}

impl Layer {
    /// `first` is the index of the first sequence of the batch.
    fn read(&mut self, input: &SiteInput, first: usize) -> Result<()> {
        let [sequences, steps, width] = [0, 1, 2].map(|i| input.x.shape()[i]);
        let values = input.x.to_device(Device::Cpu)?.to_f64_vec();
        for sequence in 0..sequences {
            let rows = &values[sequence * steps * width..][..steps * width];
            let x = MatRef::from_row_major_slice(rows, steps, width).to_owned();
            let read = &x * self.directions.transpose();
            if (first + sequence) % HELD_OUT == HELD_OUT - 1 {
                self.held_out.push(read);
            } else {
                self.moments.add(read.as_ref())?;
            }
        }
        Ok(())
    }

    fn fit(&self) -> Result<FittedWeight> {
        let of_layer = || format!("layer {}", self.index);
        let models = self.moments.autoregressions().with_context(of_layer)?;
        let mut log_likelihoods = Vec::new();
        let mut best: Option<(f64, &Autoregression, LinearSystem)> = None;
        for model in &models {
            let (mut sum, mut steps) = (0.0, 0);
            for sequence in &self.held_out {
                let (log_likelihood, counted) = model.log_likelihood(sequence.as_ref(), HIGHEST_ORDER)?;
                sum += log_likelihood;
                steps += counted;
            }
            if steps == 0 {
                bail!("{}: sequences of {HIGHEST_ORDER} steps or fewer are too short to fit a weight to", of_layer());
            }
            let per_step = sum / steps as f64;
            log_likelihoods.push(per_step);
            // Rounding may put a pole of a fitted system onto the circle; such an order is passed over.
            if let Ok(system) = model.system()
                && best.as_ref().is_none_or(|best| per_step > best.0)
            {
                best = Some((per_step, model, system));
            }
        }
        let (_, model, system) = best.with_context(|| format!("{}: no stable weight was found", of_layer()))?;
        Ok(FittedWeight {
            layer: self.index,
            site: self.site,
            spectral_radius: system.spectral_radius(),
            system: system.with_outputs(self.directions.transpose())?,
            directions: self.directions.nrows(),
            order: model.order(),
            log_likelihoods,
        })
    }
}
