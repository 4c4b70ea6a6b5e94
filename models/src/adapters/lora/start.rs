//! The initial factors of PiSSA: frozen beside those that learn, and folded into them in files.

use super::{Lora, LoraConfig};
use crate::adapters::linear::peft::number;
use crate::adapters::linear::{LinearContext, SharedTraining};
use crate::parameter::{Parameter, Role};
use crate::settings::Table;
use crate::weights::arrays::{Array, NamedArrays};
use hankel_core::{DType, Error, Result, Tensor};
use hankel_ops::{linear, scale};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `A0` and `-B0` of a projection, to be set.
pub(super) fn parameters(context: &LinearContext<'_>, rank: usize) -> [Parameter; 2] {
    let parameter = |name: &str, shape: [usize; 2]| {
        Parameter::new(format!("{}.{name}", context.path()), Role::Start, &Tensor::zeros::<f32>(shape))
    };
    let site = context.site;
    [parameter("pissa_A", [rank, site.inputs]), parameter("pissa_B", [site.outputs, rank])]
}

/// Takes the initial values of the factors.
pub(super) fn set([a0, b0]: &[Parameter; 2], a: &Tensor, b: &Tensor) -> Result<()> {
    a0.set(a)?;
    b0.set(&scale(b, -1.0)?)
}

/// A weight `[out, in]` in doubles, row-major.
pub(super) fn decoded(weight: &Tensor) -> Result<Vec<f64>> {
    /// Columns decoded at once.
    const COLUMNS: usize = 256;
    let (DType::Nf4 | DType::Blocks(_), &[outputs, inputs], Some(_)) =
        (weight.dtype(), &weight.shape()[..], weight.gpu())
    else {
        return Ok(weight.to_f64_vec());
    };
    // Quantised weights are not read back from a GPU: their products with unit vectors are.
    let mut matrix = vec![0.0; outputs * inputs];
    for first in (0..inputs).step_by(COLUMNS) {
        let count = COLUMNS.min(inputs - first);
        let mut units = vec![0.0_f32; count * inputs];
        (0..count).for_each(|k| units[k * inputs + first + k] = 1.0);
        let units = Tensor::from_vec(units, [count, inputs])?.to_device(weight.device())?;
        let columns = linear(&units, weight, None)?.to_f64_vec();
        for (k, column) in columns.chunks(outputs).enumerate() {
            column.iter().enumerate().for_each(|(i, &x)| matrix[i * inputs + first + k] = x);
        }
    }
    Ok(matrix)
}

/// The initial factors of all projections.
pub(super) struct Starts {
    rank: usize,
    alpha: f64,
    adapters: Vec<Arc<Lora>>,
}

impl Starts {
    pub(super) fn new(settings: &LoraConfig, adapters: Vec<Arc<Lora>>) -> Self {
        // The scale stays what it was when the rank is doubled.
        let alpha = settings.lora_alpha * if settings.rslora { 2.0_f64.sqrt() } else { 2.0 };
        Starts { rank: 2 * settings.rank, alpha, adapters }
    }

    fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.adapters.iter().flat_map(|adapter| adapter.start.iter().flatten())
    }
}

impl SharedTraining for Starts {
    fn save(&self) -> Result<BTreeMap<String, Tensor>> {
        Ok(self.parameters().map(|parameter| (parameter.name().to_owned(), parameter.tensor())).collect())
    }

    fn restore(&self, saved: &BTreeMap<String, Tensor>) -> Result<()> {
        if saved.len() != self.parameters().count() {
            return Err(Error::invalid("lora", "the saved state is that of other adapters"));
        }
        self.parameters().try_for_each(|parameter| {
            let missing = || Error::invalid("lora", format!("the saved state has no {}", parameter.name()));
            parameter.set(saved.get(parameter.name()).ok_or_else(missing)?)
        })
    }

    fn finish(&self, fields: &mut Table, arrays: &mut NamedArrays) {
        fields.insert("r".into(), json!(self.rank));
        fields.insert("lora_alpha".into(), number(self.alpha));
        for adapter in &self.adapters {
            let Some([a0, b0]) = &adapter.start else { continue };
            let mut join = |parameter: &Parameter, start: &Parameter, side_by_side: bool| {
                let (Some(own), Some(start)) = (arrays.remove(parameter.name()), arrays.remove(start.name())) else {
                    return;
                };
                let [rows, columns] = [own.shape[0], own.shape[1]];
                let (data, shape): (Vec<f64>, [usize; 2]) = if side_by_side {
                    let rows_of = own.data.chunks(columns).zip(start.data.chunks(columns));
                    (rows_of.flat_map(|(own, start)| own.iter().chain(start)).copied().collect(), [rows, 2 * columns])
                } else {
                    (own.data.iter().chain(&start.data).copied().collect(), [2 * rows, columns])
                };
                arrays.insert(parameter.name().to_owned(), Array::new(shape.to_vec(), data, own.precision));
            };
            join(&adapter.a, a0, false);
            join(&adapter.b, b0, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::block_formats::{BlockFormat, BlockMatrix};
    use hankel_core::gpu::for_tests;
    use hankel_core::{Device, Random};
    use hankel_ops::linear::nf4;

    #[test]
    fn quantised_weights_are_decoded_on_a_gpu() {
        let Some(gpu) = for_tests() else { return };
        // More columns than are decoded at once.
        let (outputs, inputs) = (24, 512);
        let values = Random::new(0, "weight", 0).normal_vec::<f32>(outputs * inputs, 1.0);
        let in_blocks = |name: &str| {
            let format = <dyn BlockFormat>::from_name(name).unwrap();
            Tensor::from_blocks(BlockMatrix::quantize(format, &values).unwrap(), [outputs, inputs]).unwrap()
        };
        let plain = Tensor::from_vec(values.clone(), [outputs, inputs]).unwrap();
        for weight in [nf4::quantize(&plain, true).unwrap(), in_blocks("q8_0"), in_blocks("q4_k")] {
            let there = decoded(&weight.to_device(Device::Gpu(gpu)).unwrap()).unwrap();
            let close = weight.to_f64_vec().iter().zip(&there).all(|(x, y)| (x - y).abs() < 1e-5);
            assert!(close && there.len() == outputs * inputs, "{}", weight.dtype());
        }
    }
}
