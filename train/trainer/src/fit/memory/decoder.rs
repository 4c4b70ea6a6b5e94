//! Activations of decoders.

use super::Activations;
use hankel_core::DType;
use hankel_models::adapters::StreamInput;
use hankel_models::decoder::Activation;
use hankel_models::{AdapterSet, DecoderConfig};

/// What is done with the layers' activations until the backward pass.
#[derive(Clone, Copy)]
pub(super) struct Layers {
    /// Only their inputs are kept.
    pub recompute: bool,
    /// In this type, if it is another than that of the activations.
    pub kept: Option<DType>,
}

/// What a step on `tokens` tokens takes, with elements of `size` bytes.
pub(super) fn activations(
    adapters: &AdapterSet,
    config: &DecoderConfig,
    tokens: u64,
    size: u64,
    layers: Layers,
) -> Activations {
    let (d, f) = (config.d_model as u64, config.d_ff as u64);
    let (q, heads) = ((config.heads * config.head_dim) as u64, config.heads as u64);
    let saved: Vec<u64> = (0..config.layers).map(|layer| saved_per_token(adapters, config, layer)).collect();
    // The hidden states before and after the last norm, and their gradient.
    let head = 3 * d;
    // The widest moment: in the gated MLP, the gradients of its three activations, and those of the stream around it.
    let backward = 3 * f + 4 * d;
    if !layers.recompute {
        return Activations {
            kept: size * tokens * (head + saved.iter().sum::<u64>()),
            moment: size * tokens * backward,
        };
    }
    let kept_size = match layers.kept {
        Some(DType::BF16 | DType::F16) => 2,
        _ => size,
    };
    let trained = saved.iter().filter(|saved| **saved > 0).count() as u64;
    let again = saved.iter().copied().max().unwrap_or(0);
    // Before the backward pass a layer runs once without anything being kept.
    let forward = 3 * f + 4 * d + q + heads;
    Activations {
        kept: tokens * (size * head + kept_size * d * trained),
        moment: size * tokens * (again + backward).max(forward),
    }
}

/// Values per token that the backward pass through layer `layer` needs; 0 when nothing in or below it is trained.
fn saved_per_token(adapters: &AdapterSet, config: &DecoderConfig, layer: usize) -> u64 {
    let (d, f, heads) = (config.d_model as u64, config.d_ff as u64, config.heads as u64);
    let (q, kv) = (heads * config.head_dim as u64, (config.kv_heads * config.head_dim) as u64);
    let own = adapters.layer(layer);
    let has_linear = own.linears().next().is_some();
    let below = adapters.layers()[..layer].iter().any(|l| l.linears().next().is_some() || l.streams().next().is_some());
    let mut saved = 0;
    if below || has_linear {
        // Inputs of both norms; query, key, value and output of attention with a number per head; gate and up.
        saved += 2 * d + 2 * q + 2 * kv + heads + 2 * f;
        // Outputs of sub-layers before a norm on them; queries and keys before theirs; the output of GELU beside its slopes.
        saved += config.family.names.norms.iter().skip(1).step_by(2).flatten().count() as u64 * d;
        saved += config.qk_norm.map_or(0, |_| q + kv);
        saved += if config.activation == Activation::GeluTanh { f } else { 0 };
    }
    // Inputs of adapted projections: one normalised stream for those that share it.
    let adapted = |names: &[&str]| names.iter().any(|name| own.linear(name).is_some());
    let names = &config.family.names;
    saved += if adapted(names.qkv) { d } else { 0 };
    saved += if adapted(names.up.names()) { d } else { 0 };
    saved += if adapted(&[names.down]) { f } else { 0 };
    saved += own.linears().map(|(_, adapter)| adapter.saved_per_token() as u64).sum::<u64>();
    for (_, adapter) in own.streams() {
        saved += if adapter.input() == StreamInput::Residual && below { 0 } else { d };
        saved += adapter.saved_per_token() as u64;
    }
    saved
}
