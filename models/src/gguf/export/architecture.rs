//! What llama.cpp calls families, and in which ways it computes what they do.

use crate::decoder::{Biases, DecoderConfig, LayerSet};

/// Which layers have a sliding window in llama.cpp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Windows {
    /// None: the context ends where a window would begin to matter.
    None,
    /// All but every so manieth.
    AllBut(usize),
}

/// An architecture of llama.cpp.
#[derive(Debug)]
pub(super) struct Architecture {
    /// `model_type` of the family.
    model_type: &'static str,
    /// `general.architecture`.
    pub(super) name: &'static str,
    /// Whether rows of queries and keys are stored in the order of pairs that stand side by side.
    pub(super) interleaved: bool,
    /// Which projections may have biases.
    biases: Biases,
    /// Which layers have windows.
    pub(super) windows: Windows,
    /// Whether a tensor can divide each frequency of the rotary positions.
    pub(super) has_divisors: bool,
}

const NO_BIAS: Biases = Biases { qkv: false, output: false, mlp: false };
const ANY_BIAS: Biases = Biases { qkv: true, output: true, mlp: true };
const QKV_BIAS: Biases = Biases { qkv: true, output: false, mlp: false };

const fn plain(model_type: &'static str, name: &'static str) -> Architecture {
    Architecture { model_type, name, interleaved: false, biases: NO_BIAS, windows: Windows::None, has_divisors: false }
}

/// The architectures, by the family.
const ARCHITECTURES: [Architecture; 10] = [
    Architecture { interleaved: true, biases: ANY_BIAS, has_divisors: true, ..plain("llama", "llama") },
    Architecture { interleaved: true, has_divisors: true, ..plain("mistral", "llama") },
    Architecture { biases: QKV_BIAS, ..plain("qwen2", "qwen2") },
    plain("qwen3", "qwen3"),
    Architecture { interleaved: true, ..plain("smollm3", "smollm3") },
    plain("olmo2", "olmo2"),
    plain("phi3", "phi3"),
    Architecture { interleaved: true, biases: ANY_BIAS, has_divisors: true, ..plain("granite", "granite") },
    Architecture { windows: Windows::AllBut(6), ..plain("gemma3_text", "gemma3") },
    Architecture { biases: ANY_BIAS, ..plain("gpt2", "gpt2") },
];

impl Architecture {
    /// The architecture of a model.
    ///
    /// # Errors
    /// When llama.cpp has none, or it would compute something else: says what.
    pub(super) fn of(config: &DecoderConfig) -> Result<&'static Self, String> {
        let model_type = config.family.model_type;
        let Some(found) = ARCHITECTURES.iter().find(|known| known.model_type == model_type) else {
            let known = ARCHITECTURES.each_ref().map(|known| known.model_type).join(", ");
            return Err(format!("model_type {model_type:?} has no architecture in GGUF files here; {known} have"));
        };
        found.check(config).map_err(|problem| {
            format!("llama.cpp's architecture {:?} cannot compute this model: {problem}", found.name)
        })?;
        Ok(found)
    }

    /// What the architecture has no place for.
    fn check(&self, config: &DecoderConfig) -> Result<(), String> {
        let Biases { qkv, output, mlp } = config.biases;
        let allowed = self.biases;
        for (there, allowed, what) in [
            (qkv, allowed.qkv, "queries, keys and values"),
            (output, allowed.output, "the attention's output"),
            (mlp, allowed.mlp, "the MLP"),
        ] {
            if there && !allowed {
                return Err(format!("the projections of {what} have biases, for which it has no tensors"));
            }
        }
        if config.score_cap.is_some() || config.logit_cap.is_some() {
            return Err("scores or logits are capped".to_owned());
        }
        match self.name {
            "smollm3" => check_layers_without_rope(config),
            "gemma3" => check_gemma(config),
            "olmo2" | "gpt2" if config.heads * config.head_dim != config.d_model => Err(format!(
                "{} heads of {} elements are not as wide as the stream of {}",
                config.heads, config.head_dim, config.d_model
            )),
            _ => Ok(()),
        }
    }
}

/// llama.cpp leaves out every fourth layer and has no key for it.
fn check_layers_without_rope(config: &DecoderConfig) -> Result<(), String> {
    match (0..config.layers).find(|&layer| config.rope_layers.contains(layer) == (layer + 1).is_multiple_of(4)) {
        None => Ok(()),
        Some(layer) => {
            Err(format!("it turns queries and keys in all layers but every fourth, and layer {layer} differs"))
        }
    }
}

/// llama.cpp takes the scale of the scores, the multiplier of embeddings and the layers with windows for granted.
fn check_gemma(config: &DecoderConfig) -> Result<(), String> {
    let same = |x: f64, y: f64| (x - y).abs() <= 1e-6 * y.abs();
    // The 27B model, which it knows by its 62 layers, has another scale.
    let scalar = if config.layers == 62 { config.d_model as f64 / config.heads as f64 } else { config.head_dim as f64 };
    if config.attention_multiplier.is_some_and(|multiplier| !same(multiplier, 1.0 / scalar.sqrt())) {
        return Err(format!("query_pre_attn_scalar is not {scalar}, which it takes for granted"));
    }
    if !same(config.embedding_multiplier, (config.d_model as f64).sqrt()) {
        return Err("embeddings are not multiplied by the root of the width, which it takes for granted".to_owned());
    }
    let usual = |layer: usize| !(layer + 1).is_multiple_of(6);
    let slides = |layer: usize| config.sliding_window.is_some() && config.sliding_layers.contains(layer);
    if config.sliding_layers == LayerSet::All || (0..config.layers).any(|layer| slides(layer) != usual(layer)) {
        return Err("it has windows in all layers but every sixth, and this model has them in others".to_owned());
    }
    Ok(())
}
