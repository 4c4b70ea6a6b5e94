//! What llama.cpp calls tensors.

/// Tensors of every layer, `blk.N.NAME.weight`, without which there is no model.
pub(super) const REQUIRED: [&str; 9] =
    ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"];

/// The tensor that divides the frequencies of rotary positions.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";
