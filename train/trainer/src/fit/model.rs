//! The backbone with its adapters, as the loop sees them.

use super::transformer::Transformer;
use crate::config::{AdapterMethod, BackboneConfig};
use crate::tasks::{Batch, TokenPrediction};
use anyhow::{Context, Result, bail, ensure};
use hankel_core::{DType, Device, Gradients, Tensor, no_grad};
use hankel_io::{Existing, PendingFolder};
use hankel_models::weights::arrays::{Array, NamedArrays, Precision as Stored, parse, serialize};
use hankel_models::weights::{StreamSite, TRAINED_BACKBONE_FILE};
use hankel_models::{AdapterSet, Backbone, Contribution, Parameter, Pass, SiteInput, State, StepKey};
use hankel_ops::Targets;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A stream adapter's input, and the gradient by its output.
pub struct SiteGradient {
    /// Index of the layer.
    pub layer: usize,
    /// Its site.
    pub site: StreamSite,
    /// `[batch, T, d_model]`.
    pub read: Tensor,
    /// `[batch, T, d_model]`.
    pub gradient: Tensor,
}

/// A backbone with adapters. Cloning shares the parameters.
#[derive(Clone)]
pub struct Model {
    /// The transformer.
    pub backbone: Transformer,
    /// What is attached to it.
    pub adapters: AdapterSet,
}

impl Model {
    /// The loss of a batch, the weighted sum over its targets or pairs divided by `normalizer`, in parts that are to be added up, and
    /// its gradient.
    ///
    /// With `chunk`, sequences are run in parts of so many tokens. The state is carried from part to part, so the loss is
    /// that of the whole; gradients do not flow back over the borders (truncated back-propagation).
    ///
    /// # Errors
    /// Those of the operators.
    pub fn differentiate(
        &self,
        batch: &Batch,
        (smoothing, normalizer): (f64, f64),
        key: StepKey,
        chunk: Option<usize>,
    ) -> hankel_core::Result<(Vec<Tensor>, Gradients)> {
        if batch.preference.is_some() {
            return self.differentiate_pairs(batch, (smoothing, normalizer), self.training(batch, key));
        }
        let Some(chunk) = chunk.filter(|&chunk| chunk < batch.length) else {
            let loss = self.loss(batch, (smoothing, normalizer), self.training(batch, key))?;
            return Ok((vec![loss.detach()], loss.backward()?));
        };
        let (mut losses, mut gradients, mut number) = (Vec::new(), Gradients::default(), 0);
        for document in batch.clone().apart() {
            let mut state = State::default();
            // What comes after the last target is not needed.
            let columns = document.weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0);
            let end = columns.map(|(place, _)| place % document.length + 1).max().unwrap_or(0);
            for start in (0..end).step_by(chunk) {
                let part = document.steps(start, (start + chunk).min(end));
                // Every part draws its own dropout.
                let key = StepKey { step: key.step + (number << 40), ..key };
                number += 1;
                let pass = Pass { state: Some(&mut state), ..self.training(&part, key) };
                if part.weights.iter().all(|weight| *weight == 0.0) {
                    self.read(&part, pass)?;
                } else {
                    let loss = self.loss(&part, (smoothing, normalizer), pass)?;
                    losses.push(loss.detach());
                    gradients.accumulate(loss.backward()?)?;
                }
            }
        }
        Ok((losses, gradients))
    }

    /// The loss of a batch, summed over its targets, and what every stream adapter reads with the gradient of that sum by its output.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn output_gradients(&self, batch: &Batch) -> hankel_core::Result<(f64, Vec<SiteGradient>)> {
        let (mut inputs, mut probes) = (Vec::new(), Vec::new());
        let pass = divided(batch, Pass { inputs: Some(&mut inputs), probes: Some(&mut probes), ..Pass::evaluation() });
        let loss = self.loss(batch, (0.0, 1.0), pass)?;
        let mut gradients = loss.backward()?;
        let site = |(input, probe): (SiteInput, SiteInput)| {
            // What the loss does not depend on has no gradient.
            let gradient = gradients.take(&probe.x).unwrap_or_else(|| probe.x.detach());
            SiteGradient { layer: probe.layer, site: probe.site, read: input.x, gradient }
        };
        Ok((loss.item()?, inputs.into_iter().zip(probes).map(site).collect()))
    }

    fn training(&self, batch: &Batch, key: StepKey) -> Pass<'static> {
        divided(batch, self.backbone.training_pass(key))
    }

    fn loss(
        &self,
        batch: &Batch,
        (smoothing, normalizer): (f64, f64),
        mut pass: Pass<'_>,
    ) -> hankel_core::Result<Tensor> {
        let shape = [batch.sequences, batch.length];
        let tokens = Tensor::from_vec(batch.tokens.clone(), shape)?;
        let targets = Tensor::from_vec(batch.targets.clone(), shape)?;
        let weights = Tensor::from_vec(batch.weights.clone(), shape)?;
        let targets = Targets { tokens: &targets, weights: &weights, smoothing, normalizer };
        self.backbone.loss(&tokens, targets, &self.adapters, &mut pass)
    }

    /// Reads a batch for what `pass` appends and leaves behind; nothing is kept for a backward pass.
    ///
    /// # Errors
    /// Those of the operators.
    pub(super) fn read(&self, batch: &Batch, pass: Pass<'_>) -> hankel_core::Result<()> {
        let tokens = Tensor::from_vec(batch.tokens.clone(), [batch.sequences, batch.length])?;
        no_grad(|| self.backbone.hidden(&tokens, &self.adapters, &mut divided(batch, pass)))?;
        Ok(())
    }

    /// What the model says at every target of a batch with a weight above 0. Appends to `contributions` how large is what the
    /// adapters add on the way.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn predict_targets(
        &self,
        batch: &Batch,
        smoothing: f64,
        contributions: Option<&mut Vec<Contribution>>,
    ) -> hankel_core::Result<Vec<TokenPrediction>> {
        let shape = [batch.sequences, batch.length];
        let tokens = Tensor::from_vec(batch.tokens.clone(), shape)?;
        let targets = Tensor::from_vec(batch.targets.clone(), shape)?;
        let places: Vec<usize> = (0..batch.weights.len()).filter(|&place| batch.weights[place] > 0.0).collect();
        let mut pass = divided(batch, Pass { contributions, ..Pass::evaluation() });
        let scores = self.backbone.scores(&tokens, &targets, &places, &self.adapters, &mut pass)?;
        let evaluated = |i: usize| TokenPrediction {
            loss: scores.nll[i],
            smoothed: (1.0 - smoothing) * scores.nll[i] + smoothing * scores.mean_nll[i],
            predicted: scores.predicted[i],
        };
        Ok((0..places.len()).map(evaluated).collect())
    }

    /// Element type that is computed in: that of the adapters. The backbone's weights may be kept in fewer bits.
    pub fn dtype(&self) -> DType {
        let adapters = self.adapters.parameters();
        let dtype = adapters.first().map_or_else(|| self.backbone.head().tensor().dtype(), |p| p.tensor().dtype());
        if dtype.is_compact() { DType::F32 } else { dtype }
    }

    /// Every parameter of backbone and adapters.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.backbone.parameters();
        all.extend(self.adapters.parameters());
        all
    }

    /// Makes the backbone's parameters trainable as configured for the training of `adapter`; adapters are so already.
    ///
    /// # Errors
    /// When a parameter is of a type that cannot be trained.
    pub fn free_backbone(&self, config: &BackboneConfig, adapter: &AdapterMethod) -> hankel_core::Result<()> {
        let BackboneConfig::TinyGpt(c) = config else { return Ok(()) };
        if !c.freeze || *adapter == AdapterMethod::Full {
            return self.backbone.parameters().iter().try_for_each(|parameter| parameter.set_trainable(true));
        }
        if c.train_head {
            self.backbone.head().set_trainable(true)?;
        }
        if c.train_embeddings {
            self.backbone.embeddings().iter().try_for_each(|parameter| parameter.set_trainable(true))?;
        }
        Ok(())
    }

    /// Writes the adapter's directory, with the parameters of the backbone that were trained with the adapter.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, directory: &Path, base_model: &str) -> Result<()> {
        let trained: Vec<Parameter> = self.backbone.parameters().into_iter().filter(Parameter::is_trainable).collect();
        if trained.is_empty() {
            return Ok(self.adapters.save(directory, Some(base_model))?);
        }
        let array = |parameter: &Parameter| {
            let tensor = parameter.tensor().to_device(Device::Cpu)?;
            let stored = if tensor.dtype() == DType::F64 { Stored::F64 } else { Stored::F32 };
            Ok((parameter.name().to_owned(), Array::new(tensor.shape().to_vec(), tensor.to_f64_vec(), stored)))
        };
        let arrays: NamedArrays = trained.iter().map(array).collect::<hankel_core::Result<_>>()?;
        save_with(&self.adapters, directory, base_model, &[(TRAINED_BACKBONE_FILE, &serialize(&arrays))])
    }

    /// Puts the backbone's parameters that were trained with the adapter in `directory` in place, if there are any.
    ///
    /// # Errors
    /// When the file is damaged or of another backbone.
    pub fn load_trained_backbone(&self, directory: &Path) -> Result<()> {
        self.load_trained(directory, |_| Ok(()))
    }

    /// The same for a training that goes on from the adapter in `directory`, behind [`Model::free_backbone`].
    ///
    /// # Errors
    /// As there, and when one of them is not trained here: it would not be what this configuration says.
    pub(super) fn go_on_from(&self, directory: &Path) -> Result<()> {
        self.load_trained(directory, |parameter| {
            ensure!(
                parameter.is_trainable(),
                "{} holds {}, which was trained with the adapter and is frozen here: set `train_head`, `train_embeddings` \
                 or `freeze = false` in [backbone] as it was trained, or take that file away to begin with the backbone's",
                directory.join(TRAINED_BACKBONE_FILE).display(),
                parameter.name()
            );
            Ok(())
        })
    }

    fn load_trained(&self, directory: &Path, check: impl Fn(&Parameter) -> Result<()>) -> Result<()> {
        let path = directory.join(TRAINED_BACKBONE_FILE);
        if !path.is_file() {
            return Ok(());
        }
        let bytes = hankel_io::input::read(&path)?;
        let mut arrays = parse(&path, &bytes)?;
        for parameter in self.backbone.parameters() {
            let Some(array) = arrays.remove(parameter.name()) else { continue };
            check(&parameter)?;
            let value = Tensor::from_vec(array.data, array.shape);
            value.and_then(|value| parameter.set(&value)).with_context(|| path.display().to_string())?;
        }
        match arrays.keys().next() {
            Some(name) => bail!("{}: {name} is not a parameter of this backbone", path.display()),
            None => Ok(()),
        }
    }
}

/// A pass that starts afresh where documents and turns of the batch begin, if there are several in a sequence.
pub(super) fn divided<'a>(batch: &Batch, pass: Pass<'a>) -> Pass<'a> {
    let several = |starts: &[usize]| (starts.len() > 1).then(|| starts.into());
    Pass { documents: several(&batch.documents), turns: several(&batch.turns), ..pass }
}

/// Names of the parameters of the backbone's embeddings and head.
pub(super) fn roles(backbone: &dyn Backbone) -> (BTreeSet<String>, String) {
    let embeddings = backbone.embeddings().iter().map(|parameter| parameter.name().to_owned()).collect();
    (embeddings, backbone.head().name().to_owned())
}

/// Writes an adapter's directory with further files (name, content), all or nothing.
///
/// # Errors
/// When it cannot be written; what was there is still there then.
pub(super) fn save_with(
    adapters: &AdapterSet,
    directory: &Path,
    base_model: &str,
    files: &[(&str, &[u8])],
) -> Result<()> {
    let folder = PendingFolder::create(directory, Existing::Replace)?;
    adapters.save(folder.temporary(), Some(base_model))?;
    for (name, bytes) in files {
        folder.write(name, bytes)?;
    }
    Ok(folder.commit()?)
}

/// The directory of an adapter of a run, given as a directory or by the name of its row.
pub fn adapter_directory(run: &Path, name: &str) -> PathBuf {
    let inside = [run.join("adapters").join(name), PathBuf::from(name), run.join(name)];
    inside.into_iter().find(|directory| directory.is_dir()).unwrap_or_else(|| PathBuf::from(name))
}
