//! Activations of `TinyGPT`.
//!
//! Estimate and measured peak in MiB with 4 layers of width 128 on bytes (x86-64, two threads):
//!
//! | trained | batch x length | estimate | peak |
//! | --- | --- | --- | --- |
//! | HRM, d = 32 | 8 x 512 | 126 | 126 |
//! | HRM, d = 32 | 32 x 512 | 433 | 406 |
//! | HRM, d = 32 | 32 x 1024 | 842 | 786 |
//! | LoRA, r = 16 | 8 x 1024 | 277 | 256 |
//! | LoRA, r = 16 | 32 x 512 | 529 | 481 |
//! | everything | 8 x 512 | 203 | 227 |
//! | everything | 16 x 512 | 371 | 378 |
//! | everything | 32 x 512 | 708 | 690 |

use super::Activations;
use crate::fit::Model;
use hankel_models::adapters::HrmInput;
use hankel_models::{Parameter, TinyGpt, TinyGptConfig};

/// What a step takes, `bytes` being those of one value for every token.
pub(super) fn activations(model: &Model, backbone: &TinyGpt, bytes: u64) -> Activations {
    let config = backbone.config();
    let saved: u64 = (0..config.layers).map(|layer| saved_per_token(model, config, layer)).sum();
    let (d, f) = (config.d_model as u64, config.d_ff as u64);
    // The widest moment: inside an MLP, its activation, its gradient, and gradients of the stream around it.
    Activations { kept: bytes * (saved + 2 * d), moment: bytes * (3 * f + 4 * d) }
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
        saved += d + adapters.linears().map(|(_, adapter)| adapter.saved_per_token() as u64).sum::<u64>();
    }
    for (_, adapter) in adapters.streams() {
        saved += if adapter.input() == HrmInput::Residual && below { 0 } else { d };
        saved += adapter.saved_per_token() as u64;
    }
    if config.dropout > 0.0 && below {
        saved += 2 * d;
    }
    saved
}
