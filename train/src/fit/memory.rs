//! An estimate of the memory that training takes, by component.

use super::model::Model;
use crate::config::TrainConfig;
use hankel_core::DType;
use hankel_models::adapters::{AdapterConfig as Settings, HrmInput};
use hankel_models::{Parameter, TinyGptConfig};

/// A component and its bytes.
pub type Component = (&'static str, u64);

/// The program itself, its threads and small buffers.
const PROGRAM: u64 = 16 << 20;
/// Logits that exist at once in the fused loss (see `hankel_ops::cross_entropy`).
const LOGITS: u64 = 1 << 20;

/// What a step of training `model` keeps and needs on sequences of `length` tokens.
///
/// Counted are the tensors that the operators save for the backward pass, layer by layer from the lowest trained
/// parameter upwards (below it nothing is saved), and the largest ones that live only for a moment.
///
/// Estimate and measured peak in MiB for TinyGPT with 4 layers of width 128 on bytes (x86-64, two threads):
///
/// | trained | batch x length | estimate | peak |
/// | --- | --- | --- | --- |
/// | HRM, d = 32 | 8 x 512 | 126 | 126 |
/// | HRM, d = 32 | 32 x 512 | 433 | 406 |
/// | HRM, d = 32 | 32 x 1024 | 842 | 786 |
/// | LoRA, r = 16 | 8 x 1024 | 277 | 256 |
/// | LoRA, r = 16 | 32 x 512 | 529 | 481 |
/// | everything | 8 x 512 | 203 | 227 |
/// | everything | 16 x 512 | 371 | 378 |
/// | everything | 32 x 512 | 708 | 690 |
pub fn estimate(model: &Model, settings: &TrainConfig, length: usize) -> Vec<Component> {
    let parameters = model.parameters();
    let bytes = |trainable: bool| -> u64 {
        let chosen = parameters.iter().filter(|parameter| parameter.is_trainable() == trainable);
        chosen.map(|parameter| parameter.tensor().bytes() as u64).sum()
    };
    let (frozen, trained) = (bytes(false), bytes(true));
    let size = if model.backbone.head().tensor().dtype() == DType::F64 { 8 } else { 4 };
    let tokens = (settings.batch_size * length) as u64;
    let config = model.backbone.config();
    let saved: u64 = (0..config.layers).map(|layer| saved_per_token(model, config, layer)).sum();
    let (d, f) = (config.d_model as u64, config.d_ff as u64);
    // The widest moment: inside an MLP, its activation, its gradient, and gradients of the stream around it.
    let moment = 3 * f + 4 * d;
    vec![
        ("program", PROGRAM),
        ("frozen parameters", frozen),
        ("trained parameters", trained),
        ("gradients", trained * if settings.accumulation > 1 { 2 } else { 1 }),
        ("optimizer moments", 2 * trained),
        ("activations kept for the backward pass", size * tokens * (saved + 2 * d)),
        ("activations of the moment", size * tokens * moment),
        ("logits of a chunk", size * LOGITS.min(tokens * config.vocabulary as u64)),
        ("batches", 12 * tokens * settings.accumulation as u64),
    ]
}

/// Values per token that layer `layer` saves.
fn saved_per_token(model: &Model, config: &TinyGptConfig, layer: usize) -> u64 {
    let (d, f, heads) = (config.d_model as u64, config.d_ff as u64, config.heads as u64);
    let full = |parameters: &[Parameter]| parameters.iter().any(Parameter::is_trainable);
    let prefix = format!("model.layers.{layer}.");
    let of_layer: Vec<Parameter> =
        model.backbone.parameters().into_iter().filter(|parameter| parameter.name().starts_with(&prefix)).collect();
    let backbone_trains = full(&of_layer);
    let adapters = model.adapters.layer(layer);
    let linear = adapters.linears().next().is_some();
    // Something below this layer, or inside it before the MLP's adapter, needs a gradient through it.
    let below = full(&model.backbone.embeddings())
        || model.adapters.layers()[..layer]
            .iter()
            .any(|l| l.linears().next().is_some() || l.streams().next().is_some())
        || backbone_trains
        || linear;
    let mut saved = 0;
    if below {
        // Inputs of both norms; query, key, value and output of attention with a number per head; input of the GELU.
        saved += 6 * d + f + heads;
    }
    if backbone_trains {
        // Inputs of the projections: both norms' outputs, the activation.
        saved += 2 * d + f;
    }
    if linear {
        saved +=
            d + adapters.linears().map(|(_, adapter)| adapter.parameters()[0].tensor().shape()[0] as u64).sum::<u64>();
    }
    if let Settings::Hrm(settings) = model.adapters.config() {
        for (_, adapter) in adapters.streams() {
            let states = adapter.state_dim() as u64;
            saved += 2 * states + if settings.input == HrmInput::Residual && below { 0 } else { d };
        }
    }
    if config.dropout > 0.0 && below {
        saved += 2 * d;
    }
    saved
}

/// Bytes as a person reads them.
pub fn readable(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.2} GiB", value / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_models::adapters::{HrmConfig, LoraConfig, Preset};
    use hankel_models::{AdapterSet, TinyGpt};

    fn total(settings: &Settings, training: &TrainConfig, length: usize) -> u64 {
        let backbone = TinyGpt::new(&TinyGptConfig::default(), 0).unwrap();
        let adapters = AdapterSet::new(settings, &backbone.placement(), 0).unwrap();
        estimate(&Model { backbone, adapters }, training, length).iter().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn it_grows_with_what_is_trained_and_with_the_tokens() {
        let training = TrainConfig::default();
        let hrm = Settings::Hrm(HrmConfig::new(Preset::Paper, 32, 128, 512));
        let lora = Settings::Lora(LoraConfig::new(16));
        // LoRA in the first layer keeps that layer's activations, HRM behind it does not.
        assert!(total(&hrm, &training, 512) < total(&lora, &training, 512));
        let twice = TrainConfig { batch_size: 64, ..training.clone() };
        let (one, two) = (total(&hrm, &training, 512), total(&hrm, &twice, 512));
        assert!(two > one * 3 / 2 && two < one * 2, "{one} {two}");
        assert_eq!(readable(1536), "1.5 KiB");
        assert_eq!(readable(3 << 30), "3.00 GiB");
    }
}
