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
use hankel_models::adapters::StreamInput;
use hankel_models::{Parameter, TinyGpt, TinyGptConfig};

/// What a step takes, `bytes` being those of one value for every token.
pub(super) fn activations(model: &Model, backbone: &TinyGpt, bytes: u64) -> Activations {
    let config = backbone.config();
    let trained = trained_layers(model, config.layers);
    let mut below = model.backbone.embeddings().iter().any(Parameter::is_trainable);
    let mut saved = 0;
    for (layer, backbone_trains) in trained.into_iter().enumerate() {
        saved += saved_per_token(model, config, layer, backbone_trains, below);
        let adapters = model.adapters.layer(layer);
        below |= backbone_trains || adapters.linears().next().is_some() || adapters.streams().next().is_some();
    }
    let (d, f) = (config.d_model as u64, config.d_ff as u64);
    // The widest moment: inside an MLP, its activation, its gradient, and gradients of the stream around it.
    Activations { kept: bytes * (saved + 2 * d), moment: bytes * (3 * f + 4 * d) }
}

/// Of every layer, whether a parameter of the backbone in it is trained.
fn trained_layers(model: &Model, layers: usize) -> Vec<bool> {
    let mut trained = vec![false; layers];
    for parameter in model.backbone.parameters().iter().filter(|parameter| parameter.is_trainable()) {
        let layer = parameter.name().strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
        if let Some(layer) = layer.and_then(|layer| layer.parse::<usize>().ok()) {
            trained[layer] = true;
        }
    }
    trained
}

/// Values per token that layer `layer` saves. `backbone_trains`: a weight of the layer is trained; `below`: something below it is.
fn saved_per_token(model: &Model, config: &TinyGptConfig, layer: usize, backbone_trains: bool, below: bool) -> u64 {
    let (d, f, heads) = (config.d_model as u64, config.d_ff as u64, config.heads as u64);
    let adapters = model.adapters.layer(layer);
    let linear = adapters.linears().next().is_some();
    // Something below this layer, or inside it before the MLP's adapter, needs a gradient through it.
    let below = below || backbone_trains || linear;
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
        saved += if adapter.input() == StreamInput::Residual && below { 0 } else { d };
        saved += adapter.saved_per_token() as u64;
    }
    if config.dropout > 0.0 && below {
        saved += 2 * d;
    }
    saved
}
