//! SmolLM3: some layers do not turn queries and keys. If there are windows it is these that have them.

use super::{Family, STORED_FREQUENCIES, read_common, read_windows, write_common, write_windows};
use crate::decoder::config::{Biases, DecoderConfig, LayerSet};
use crate::decoder::layout::Names;
use crate::gguf::Architecture;
use serde_json::{Value, json};

/// `model_type = "smollm3"`.
pub static SMOLLM3: Family = Family {
    model_type: "smollm3",
    architecture: "SmolLM3ForCausalLM",
    names: Names::LLAMA,
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        let attention = keys.or("attention_bias", false)?;
        let biases = Biases { qkv: attention, output: attention, mlp: keys.or("mlp_bias", false)? };
        let tied_embeddings = keys.or("tie_word_embeddings", true)?;
        let config = read_common(family, keys, 2e6)?;
        let interval: usize = keys.or("no_rope_layer_interval", 4)?;
        if interval == 0 {
            return Err("no_rope_layer_interval = 0 is out of range".to_owned());
        }
        let rope_layers = match keys.get::<Vec<u8>>("no_rope_layers")? {
            // Despite the name, 1 is a layer that turns.
            Some(turns) => turns.iter().map(|&turns| turns != 0).collect(),
            None => (0..config.layers).map(|layer| !(layer + 1).is_multiple_of(interval)).collect(),
        };
        let rope_layers = LayerSet::Only(rope_layers);
        // Released files have it from Qwen, and nothing reads it.
        keys.ignore(&["max_window_layers"]);
        let config = read_windows(keys, config, keys.get("sliding_window")?, |layer| !rope_layers.contains(layer))?;
        Ok(DecoderConfig { tied_embeddings, rope_layers, biases, ..config })
    },
    write: |config, map| {
        write_common(config, map);
        write_windows(config, map);
        map.insert("attention_bias".into(), json!(config.biases.qkv));
        map.insert("mlp_bias".into(), json!(config.biases.mlp));
        let turns = |layer| Value::from(u8::from(config.rope_layers.contains(layer)));
        map.insert("no_rope_layers".into(), (0..config.layers).map(turns).collect());
    },
    gguf: Some(Architecture { interleaved: true, check: check_layers_without_rope, ..Architecture::plain("smollm3") }),
};

/// llama.cpp leaves out every fourth layer and has no key for it.
fn check_layers_without_rope(config: &DecoderConfig) -> Result<(), String> {
    match (0..config.layers).find(|&layer| config.rope_layers.contains(layer) == (layer + 1).is_multiple_of(4)) {
        None => Ok(()),
        Some(layer) => {
            Err(format!("it turns queries and keys in all layers but every fourth, and layer {layer} differs"))
        }
    }
}
