//! Activations of Mistral and Llama.

use super::Activations;
use hankel_models::adapters::{AdapterConfig as Settings, HrmInput};
use hankel_models::{AdapterSet, MistralConfig};

/// What a step on `tokens` tokens takes.
pub fn activations(adapters: &AdapterSet, config: &MistralConfig, tokens: u64, recompute: bool) -> Activations {
    let (d, f) = (config.d_model as u64, config.d_ff as u64);
    let layers: Vec<u64> = (0..config.layers).map(|layer| saved_per_token(adapters, config, layer)).collect();
    // The hidden states before the head, and their gradient.
    let head = 2 * d;
    // The widest moment: inside the MLP, its gradients, and those of the stream around it.
    let moment = 3 * f + 4 * d;
    if recompute {
        let largest = layers.iter().copied().max().unwrap_or(0);
        Activations { kept: tokens * (head + d * config.layers as u64), moment: tokens * (moment + largest) }
    } else {
        Activations { kept: tokens * (head + layers.iter().sum::<u64>()), moment: tokens * moment }
    }
}

/// Values per token that the backward pass through layer `layer` needs.
fn saved_per_token(adapters: &AdapterSet, config: &MistralConfig, layer: usize) -> u64 {
    let (d, f, heads) = (config.d_model as u64, config.d_ff as u64, config.heads as u64);
    let (q, kv) = (heads * config.head_dim as u64, (config.kv_heads * config.head_dim) as u64);
    let own = adapters.layer(layer);
    let has_linear = own.linears().next().is_some();
    let below = adapters.layers()[..layer].iter().any(|l| l.linears().next().is_some() || l.streams().next().is_some());
    let mut saved = 0;
    if below || has_linear {
        // Inputs of both norms; query, key, value and output of attention with a number per head; gate and up.
        saved += 2 * d + 2 * q + 2 * kv + heads + 2 * f;
    }
    for (site, adapter) in own.linears() {
        let inputs = if site == "down_proj" { f } else { d };
        saved += inputs + adapter.parameters()[0].tensor().shape()[0] as u64;
    }
    if let Settings::Hrm(settings) = adapters.config() {
        for (_, adapter) in own.streams() {
            let states = adapter.state_dim() as u64;
            saved += 2 * states + if settings.input == HrmInput::Residual && below { 0 } else { d };
        }
    }
    saved
}
