//! What changes during training, for checkpoints and for the best evaluation.

use super::{Trained, Training};
use anyhow::{Context, Result, bail};
use hankel_core::Device;
use hankel_core::Tensor;
use hankel_ops::optimizer::Moments;
use std::collections::BTreeMap;

/// Prefix of what adapters remember between steps besides their parameters. It sorts behind all others.
const ADAPTERS: &str = "zz-adapters/";

/// Prefix of what the best evaluation so far was made with. It sorts behind [`ADAPTERS`].
const BEST: &str = "zz-best/";

impl Training<'_> {
    /// Keeps the values as they are, as those of the best evaluation so far.
    ///
    /// # Errors
    /// When the device has failed.
    pub(in crate::fit) fn keep_best(&mut self) -> Result<()> {
        let named = |t: &Trained| (format!("parameter/{}", t.parameter.name()), t.parameter.tensor().detach());
        let values = self.trained.iter().map(named).chain(self.adapter_state()?);
        self.best = Some(values.map(in_main_memory).collect::<Result<_>>()?);
        Ok(())
    }

    /// Forgets the best evaluation: what was evaluated had another size.
    pub(in crate::fit) fn forget_best(&mut self) {
        self.best = None;
    }

    /// Takes the values of the best evaluation.
    ///
    /// # Errors
    /// When the device has failed.
    pub(in crate::fit) fn return_to_best(&mut self) -> Result<()> {
        let Some(mut best) = self.best.take() else { return Ok(()) };
        for Trained { parameter, .. } in &self.trained {
            if let Some(value) = best.remove(&format!("parameter/{}", parameter.name())) {
                parameter.set(&value)?;
            }
        }
        self.restore_adapter_state(best)
    }

    /// What adapters remember besides their parameters, by name.
    fn adapter_state(&self) -> Result<impl Iterator<Item = (String, Tensor)> + use<>> {
        let state = self.model.adapters.training_state()?.into_iter();
        Ok(state.map(|(name, tensor)| (format!("{ADAPTERS}{name}"), tensor)))
    }

    fn restore_adapter_state(&self, state: BTreeMap<String, Tensor>) -> Result<()> {
        let own =
            state.into_iter().map(|(key, tensor)| Ok((without(&key, ADAPTERS)?, tensor))).collect::<Result<_>>()?;
        Ok(self.model.adapters.restore_training_state(&own)?)
    }

    /// Everything that changes during training, by name, in main memory.
    ///
    /// # Errors
    /// When the device has failed.
    pub(in crate::fit) fn tensors(&self) -> Result<BTreeMap<String, Tensor>> {
        let entries = self.trained.iter().flat_map(|trained| {
            let name = trained.parameter.name();
            [
                (format!("parameter/{name}"), trained.parameter.tensor().detach()),
                (format!("first/{name}"), trained.moments.first.clone()),
                (format!("second/{name}"), trained.moments.second.clone()),
            ]
        });
        let best = self.best.iter().flatten().map(|(name, tensor)| (format!("{BEST}{name}"), tensor.clone()));
        entries.chain(self.adapter_state()?).chain(best).map(in_main_memory).collect()
    }

    /// Goes back to a saved state after step `step`.
    ///
    /// # Errors
    /// When a tensor is missing, superfluous or misshapen: the state is then of another configuration.
    pub(in crate::fit) fn restore(&mut self, step: u64, mut tensors: BTreeMap<String, Tensor>) -> Result<()> {
        for trained in &mut self.trained {
            let name = trained.parameter.name().to_owned();
            let expected = trained.parameter.tensor();
            let mut take = |kind: &str| -> Result<Tensor> {
                let key = format!("{kind}/{name}");
                let tensor = tensors.remove(&key).with_context(|| format!("the checkpoint has no {key}"))?;
                if tensor.shape() != expected.shape() || tensor.dtype() != expected.dtype() {
                    bail!(
                        "the checkpoint has {key} as {} {}, the model as {} {}",
                        tensor.dtype(),
                        tensor.shape(),
                        expected.dtype(),
                        expected.shape()
                    );
                }
                // Checkpoints are the same whatever device wrote them.
                Ok(tensor.to_device(expected.device())?)
            };
            trained.parameter.set(&take("parameter")?)?;
            trained.moments = Moments { first: take("first")?, second: take("second")?, ..trained.moments };
        }
        let best = tensors.split_off(BEST);
        let best: BTreeMap<_, _> =
            best.into_iter().map(|(key, tensor)| Ok((without(&key, BEST)?, tensor))).collect::<Result<_>>()?;
        self.best = Some(best).filter(|best| !best.is_empty());
        self.restore_adapter_state(tensors.split_off(ADAPTERS))?;
        if let Some(extra) = tensors.keys().next() {
            bail!("the checkpoint has {extra}, which is not trained here");
        }
        self.step = step;
        Ok(())
    }
}

/// What follows the prefix of a key. Whatever sorts behind a prefix comes here.
fn without(key: &str, prefix: &str) -> Result<String> {
    let rest = key.strip_prefix(prefix);
    rest.map(ToOwned::to_owned).with_context(|| format!("the checkpoint has {key}, which is not trained here"))
}

fn in_main_memory((name, tensor): (String, Tensor)) -> Result<(String, Tensor)> {
    Ok((name, tensor.to_device(Device::Cpu)?))
}
