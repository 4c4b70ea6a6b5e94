//! LoRA and rsLoRA as llama.cpp's `--lora` reads them.
//!
//! ```text
//! y = W x + (adapter.lora.alpha / rank) B A x        rank = rows of A
//! ```
//!
//! There is one alpha for all projections, and no other scale: what differs from it, the root of the rank of rsLoRA for
//! one, is folded in. An alpha of 0 is a scale of 1 to llama.cpp: an update without effect has a B of zeros instead.

use super::tensors::interleave;
use super::{ExportReport, name_of};
use crate::adapters::{AdapterConfig, AdapterSet, Lora, Sites};
use crate::decoder::DecoderConfig;
use crate::gguf::names::stem;
use crate::gguf::write::{GgufWriter, Meta, Planned};
use crate::gguf::{Architecture, TensorType};
use crate::weights::{Result, WeightsError};
use std::path::Path;

/// Sequence length for defaults that a file leaves out. Linear adapters have no such defaults, so any value will do.
const LENGTH: usize = 512;

/// Writes the adapter in the directory `from`, which was trained on `model`, to the new file `to`.
///
/// # Errors
/// When it cannot be read or is of another model, is neither LoRA nor rsLoRA, or `to` exists.
pub fn export_adapter(from: &Path, model: &Path, to: &Path) -> Result<ExportReport> {
    let fail = |reason: String| WeightsError::content(from, reason);
    let config = DecoderConfig::load(model)?;
    let architecture = Architecture::of(&config).map_err(|reason| WeightsError::content(model, reason))?;
    let adapters = AdapterSet::load(from, &config.placement(), LENGTH)?;
    check_kind(&adapters).map_err(&fail)?;
    let (mut planned, mut contents, mut alpha) = (Vec::new(), Vec::new(), None);
    for layer in 0..config.layers {
        for module in config.modules() {
            let path = config.path(layer, &module);
            let found = adapters.linears().find(|(adapted, _)| *adapted == path);
            let Some(lora) = found.and_then(|(_, adapter)| adapter.downcast_ref::<Lora>()) else { continue };
            let [a, b] = lora.factors().map_err(|e| fail(e.to_string()))?;
            let rank = a.shape()[0];
            let own = lora.scale() * rank as f64;
            let factor = if own as f32 == 0.0 { 0.0 } else { own / *alpha.get_or_insert(own) };
            let rows =
                |values: Vec<f64>, factor: f64| values.into_iter().map(|x| (x * factor) as f32).collect::<Vec<_>>();
            let (a_values, mut b_values) = (rows(a.to_f64_vec(), 1.0), rows(b.to_f64_vec(), factor));
            if architecture.interleaves(module.slot) {
                let ordered = interleave(bytemuck::cast_slice(&b_values), b.shape()[0], config.head_dim);
                b_values = bytemuck::pod_collect_to_vec(&ordered);
            }
            for (suffix, tensor, values) in [("lora_a", &a, a_values), ("lora_b", &b, b_values)] {
                let name = format!("blk.{layer}.{}.weight.{suffix}", stem(module.slot, config.family));
                planned.push(Planned { name, shape: tensor.shape().to_vec(), dtype: TensorType::F32 });
                contents.push(values);
            }
        }
    }
    let text = |key: &str, value: &str| (key.to_owned(), Meta::Text(value.to_owned()));
    let mut metadata = vec![
        text("general.architecture", architecture.name),
        text("general.type", "adapter"),
        text("adapter.type", "lora"),
    ];
    metadata.extend(name_of(from).map(|name| text("general.name", &name)));
    metadata.push(("general.file_type".to_owned(), Meta::U32(0)));
    metadata.push(("adapter.lora.alpha".to_owned(), Meta::F32(alpha.unwrap_or(1.0) as f32)));
    metadata.push(("general.quantization_version".to_owned(), Meta::U32(2)));
    let mut writer = GgufWriter::create(to, &metadata, &planned)?;
    contents.iter().try_for_each(|values| writer.push(bytemuck::cast_slice(values)))?;
    let bytes = writer.finish()?;
    Ok(ExportReport::new(architecture.name, &planned, bytes, Vec::new()))
}

/// Says what to do with an adapter that is not LoRA.
fn check_kind(adapters: &AdapterSet) -> std::result::Result<(), String> {
    let Some(kind) = adapters.config().map(AdapterConfig::kind) else {
        return Err("it holds no adapter".to_owned());
    };
    let name = kind.name();
    if kind.sites() == Sites::Stream {
        return Err(format!(
            "an adapter of kind {name:?} has a state, for which GGUF files have no place: use it with `train generate` or \
             `train chat` (--adapter), or from the Python package"
        ));
    }
    if adapters.linears().any(|(_, adapter)| adapter.downcast_ref::<Lora>().is_none()) {
        return Err(format!(
            "llama.cpp reads adapters of kind lora only, and this is {name}: fold it into the model first (`train merge`), \
             then convert the model"
        ));
    }
    if adapters.linears().any(|(_, adapter)| adapter.needs_nf4()) {
        return Err("an adapter that began by LoftQ is for weights in 4-bit normal floats, which GGUF files have no place for: fold it \
                    into the model first (`train merge`), then convert the model"
            .to_owned());
    }
    Ok(())
}
