//! What llama.cpp calls tensors, and what Hugging Face does.

/// Inside a layer, `blk.N.` and `model.layers.N.`.
const LAYER: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Outside layers.
const WHOLE: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Tensors of every layer, without which there is no model; projections have the suffix `.weight`.
pub(super) const REQUIRED: [&str; 9] =
    ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"];

/// The key of what queries and keys are multiplied by, beside what the kind of scaling multiplies them by.
pub(super) const ATTENTION_FACTOR: &str = "rope.scaling.attn_factor";

/// The tensor that divides the frequencies of rotary positions.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The name in a model directory of the tensor that a GGUF file calls `name`.
pub(super) fn hugging_face(name: &str) -> Option<String> {
    let (stem, suffix) = name.rsplit_once('.').filter(|(_, suffix)| matches!(*suffix, "weight" | "bias"))?;
    if let Some((_, whole)) = WHOLE.iter().find(|(ours, _)| *ours == stem) {
        return Some(format!("{whole}.{suffix}"));
    }
    let (layer, part) = stem.strip_prefix("blk.")?.split_once('.')?;
    // Two spellings of a number would be two tensors of one name.
    let layer = layer.parse::<usize>().ok().filter(|number| number.to_string() == layer)?;
    let (_, part) = LAYER.iter().find(|(ours, _)| *ours == part)?;
    Some(format!("model.layers.{layer}.{part}.{suffix}"))
}

/// Whether a tensor's rows are those of queries or keys, whose order depends on which pairs are turned.
pub(super) fn is_rotated(name: &str) -> bool {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    stem.ends_with(".attn_q") || stem.ends_with(".attn_k")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hugging_face() {
        assert_eq!(hugging_face("blk.12.attn_q.bias").unwrap(), "model.layers.12.self_attn.q_proj.bias");
        assert_eq!(hugging_face("output.weight").unwrap(), "lm_head.weight");
        for name in ["rope_freqs.weight", "blk.x.attn_q.weight", "blk.1.attn_q", "blk.1.weight", "attn_q.weight", ""] {
            assert_eq!(hugging_face(name), None, "{name}");
        }
        for layer in ["00", "01", "+1", "-0", " 1", ""] {
            assert_eq!(hugging_face(&format!("blk.{layer}.attn_q.weight")), None, "{layer:?}");
        }
        assert!(is_rotated("blk.0.attn_k.bias") && !is_rotated("blk.0.attn_k_norm.weight"));
    }
}
