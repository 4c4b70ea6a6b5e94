//! What llama.cpp calls tensors, and where model directories have them.

use crate::decoder::layout::Slot;
use crate::decoder::{DecoderConfig, Family, QkNorm, Up};

/// The key of what queries and keys are multiplied by, beside what the kind of scaling multiplies them by.
pub(super) const ATTENTION_FACTOR: &str = "rope.scaling.attn_factor";

/// The tensor that divides the frequencies of rotary positions.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// What the module of a layer is called, below `blk.N.`.
pub(super) fn stem(slot: Slot, family: &Family) -> &'static str {
    match slot {
        Slot::Norm(index) => ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"][index],
        Slot::Qkv(_) if family.names.qkv.len() == 1 => "attn_qkv",
        Slot::Qkv(index) => ["attn_q", "attn_k", "attn_v"][index],
        Slot::QkNorm(index) => ["attn_q_norm", "attn_k_norm"][index],
        Slot::Output => "attn_output",
        Slot::Up(0) if matches!(family.names.up, Up::Gated(_)) => "ffn_gate",
        Slot::Up(_) => "ffn_up",
        Slot::Down => "ffn_down",
    }
}

/// The name in a model directory of the tensor that a GGUF file calls `name`, and its module if that is in a layer.
pub(super) fn hugging_face(name: &str, family: &'static Family) -> Option<(String, Option<Slot>)> {
    let (ours, suffix) = name.rsplit_once('.').filter(|(_, suffix)| matches!(*suffix, "weight" | "bias"))?;
    let names = &family.names;
    let whole = [("token_embd", names.embedding), ("output_norm", names.norm), ("output", names.head)];
    if let Some((_, theirs)) = whole.into_iter().find(|(stem, _)| *stem == ours) {
        return Some((format!("{theirs}.{suffix}"), None));
    }
    let (layer, part) = ours.strip_prefix("blk.")?.split_once('.')?;
    // Two spellings of a number would be two tensors of one name.
    let layer = layer.parse::<usize>().ok().filter(|number| number.to_string() == layer)?;
    // With all modules that a model of the family may have.
    let config = DecoderConfig { qk_norm: Some(QkNorm::Head), ..DecoderConfig::plain(family) };
    let module = config.modules().into_iter().find(|module| stem(module.slot, family) == part)?;
    Some((format!("{}.{suffix}", config.path(layer, &module)), Some(module.slot)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::families::LLAMA;

    #[test]
    fn names_are_those_of_hugging_face() {
        let found = |name: &str| hugging_face(name, &LLAMA);
        let of = |name: &str, slot| Some((name.to_owned(), slot));
        let bias = "model.layers.12.self_attn.q_proj.bias";
        assert_eq!(found("blk.12.attn_q.bias"), of(bias, Some(Slot::Qkv(0))));
        let gain = "model.layers.0.self_attn.k_norm.weight";
        assert_eq!(found("blk.0.attn_k_norm.weight"), of(gain, Some(Slot::QkNorm(1))));
        assert_eq!(found("output.weight"), of("lm_head.weight", None));
        for name in ["rope_freqs.weight", "blk.x.attn_q.weight", "blk.1.attn_q", "blk.1.weight", "attn_q.weight", ""] {
            assert_eq!(found(name), None, "{name}");
        }
        for layer in ["00", "01", "+1", "-0", " 1", ""] {
            assert_eq!(found(&format!("blk.{layer}.attn_q.weight")), None, "{layer:?}");
        }
    }
}
