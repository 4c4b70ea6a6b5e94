//! GPT-2: layer norms, learned positions, biases everywhere, an MLP without a gate, and weights stored as `[in, out]`.

use super::Family;
use crate::decoder::config::{Activation, Biases, DecoderConfig, Positions};
use crate::decoder::layout::{Names, Up};
use crate::gguf::{Architecture, check_width};
use crate::linear::NormKind;
use serde_json::{Value, json};

/// `model_type = "gpt2"`.
pub static GPT2: Family = Family {
    model_type: "gpt2",
    architecture: "GPT2LMHeadModel",
    names: Names {
        prefix: "transformer.",
        embedding: "transformer.wte",
        positions: "transformer.wpe",
        layers: "transformer.h",
        norm: "transformer.ln_f",
        head: "lm_head",
        attention: "",
        qkv: &["attn.c_attn"],
        output: "attn.c_proj",
        mlp: "",
        up: Up::Plain("mlp.c_fc"),
        down: "mlp.c_proj",
        norms: [Some("ln_1"), None, Some("ln_2"), None],
        transposed: true,
    },
    // The causal mask.
    ignored: &[".attn.bias", ".attn.masked_bias"],
    read: |family, keys| {
        for (key, only) in [
            ("activation_function", json!("gelu_new")),
            ("scale_attn_weights", json!(true)),
            ("scale_attn_by_inverse_layer_idx", json!(false)),
        ] {
            keys.only(key, &only)?;
        }
        keys.ignore(&["n_ctx", "n_special", "output_past", "predict_special_tokens", "summary_activation"]);
        keys.ignore(&["summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"]);
        let (d_model, heads): (usize, usize) = (keys.or("n_embd", 768)?, keys.or("n_head", 12)?);
        if heads == 0 || !d_model.is_multiple_of(heads) {
            return Err(format!("n_head = {heads} does not divide n_embd = {d_model}"));
        }
        Ok(DecoderConfig {
            vocabulary: keys.or("vocab_size", 50_257)?,
            d_model,
            layers: keys.or("n_layer", 12)?,
            heads,
            kv_heads: heads,
            head_dim: d_model / heads,
            d_ff: keys.or("n_inner", 4 * d_model)?,
            context: keys.or("n_positions", 1024)?,
            tied_embeddings: keys.or("tie_word_embeddings", true)?,
            init_std: keys.or("initializer_range", 0.02)?,
            positions: Positions::Learned,
            norm: NormKind::LayerNorm,
            norm_eps: keys.or("layer_norm_epsilon", 1e-5)?,
            biases: Biases { qkv: true, output: true, mlp: true },
            activation: Activation::GeluTanh,
            ..DecoderConfig::plain(family)
        })
    },
    write: |config, map| {
        let pairs: [(&str, Value); 10] = [
            ("vocab_size", json!(config.vocabulary)),
            ("n_embd", json!(config.d_model)),
            ("n_layer", json!(config.layers)),
            ("n_head", json!(config.heads)),
            ("n_inner", json!(config.d_ff)),
            ("n_positions", json!(config.context)),
            ("layer_norm_epsilon", json!(config.norm_eps)),
            ("tie_word_embeddings", json!(config.tied_embeddings)),
            ("initializer_range", json!(config.init_std)),
            ("activation_function", json!("gelu_new")),
        ];
        map.extend(pairs.map(|(key, value)| (key.to_owned(), value)));
    },
    gguf: Some(Architecture {
        biases: Biases { qkv: true, output: true, mlp: true },
        check: check_width,
        ..Architecture::plain("gpt2")
    }),
};
