//! The keys of a `config.json`. Whoever reads one says so; what is left over at the end is refused unless it is known to
//! change nothing, so that a model is never computed without a feature that its file asks for.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Keys that change no logit while nothing is dropped out: where the file comes from, how weights are stored, what
/// generation does, and losses and heads that are not used.
const HARMLESS: &[&str] = &[
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "auto_map",
    "begin_suppress_tokens",
    "bos_token",
    "bos_token_id",
    "cache_implementation",
    "do_sample",
    "dtype",
    "embd_pdrop",
    "eos_token",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "max_length",
    "max_new_tokens",
    "num_labels",
    "num_logits_to_keep",
    "output_attentions",
    "output_hidden_states",
    "pad_token",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
];

/// The object of a `config.json`, and which of its keys were read.
pub struct Keys<'a> {
    map: &'a Map<String, Value>,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Keys { map, read: RefCell::default() }
    }

    /// The value of `key`; `null` is as good as none.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &'static str) -> Result<Option<T>, String> {
        self.ignore(&[key]);
        let Some(value) = self.map.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        T::deserialize(value).map(Some).map_err(|e| format!("{key}: {e}"))
    }

    /// The value of `key`.
    pub(super) fn require<T: DeserializeOwned>(&self, key: &'static str) -> Result<T, String> {
        self.get(key)?.ok_or_else(|| format!("missing key {key}"))
    }

    /// The value of `key`: `usual` when the key is missing, `None` when it is `null`.
    pub(super) fn nullable<T: DeserializeOwned>(&self, key: &'static str, usual: T) -> Result<Option<T>, String> {
        let value = self.get(key)?;
        Ok(if self.map.contains_key(key) { value } else { Some(usual) })
    }

    /// The value of `key`, or `usual` when the key is missing or `null`.
    pub(super) fn or<T: DeserializeOwned>(&self, key: &'static str, usual: T) -> Result<T, String> {
        Ok(self.get(key)?.unwrap_or(usual))
    }

    /// Takes note of keys that change nothing in this family.
    pub(super) fn ignore(&self, keys: &[&'static str]) {
        self.read.borrow_mut().extend(keys);
    }

    /// Refuses any value of `key` but `only`, which is what leaving it out means.
    pub(super) fn only(&self, key: &'static str, only: &Value) -> Result<(), String> {
        let Some(value) = self.get::<Value>(key)? else { return Ok(()) };
        // 1 and 1.0 are the same.
        let same = value == *only || value.as_f64().is_some_and(|value| only.as_f64() == Some(value));
        if same { Ok(()) } else { Err(format!("{key} = {value} is not supported, only {only}")) }
    }

    /// Refuses what was not read and may change the result.
    pub(super) fn finish(&self, model_type: &str) -> Result<(), String> {
        let read = self.read.borrow();
        let unknown = |key: &&String| {
            let key = key.as_str();
            // A key with an underscore in front is a note of the program that wrote the file.
            !(key.starts_with('_') || read.contains(key) || HARMLESS.contains(&key) || self.map[key].is_null())
        };
        match self.map.keys().find(unknown) {
            None => Ok(()),
            Some(key) => Err(format!(
                "{key} = {} is not understood for model_type {model_type:?}, and may change what the model computes",
                self.map[key]
            )),
        }
    }

    /// Refuses what makes something else of a decoder.
    pub(super) fn check_decoder(&self) -> Result<(), String> {
        for (key, only) in
            [("add_cross_attention", json!(false)), ("is_encoder_decoder", json!(false)), ("pruned_heads", json!({}))]
        {
            self.only(key, &only)?;
        }
        Ok(())
    }

    /// Refuses weights that are stored in a form that cannot be read.
    pub(super) fn check_quantization(&self) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Quantization {
            quant_method: Option<String>,
            load_in_4bit: Option<bool>,
            bnb_4bit_quant_type: Option<String>,
            bnb_4bit_quant_storage: Option<String>,
        }
        let Some(quantization) = self.get("quantization_config")? else { return Ok(()) };
        let Quantization { quant_method, load_in_4bit, bnb_4bit_quant_type, bnb_4bit_quant_storage } = quantization;
        let kind = bnb_4bit_quant_type.as_deref();
        if quant_method.as_deref() != Some("bitsandbytes") || load_in_4bit != Some(true) || kind != Some("nf4") {
            return Err("quantization_config: only bitsandbytes in 4 bit with nf4 is supported".to_owned());
        }
        if let Some(storage) = bnb_4bit_quant_storage.filter(|storage| storage != "uint8") {
            return Err(format!(
                "quantization_config: bnb_4bit_quant_storage = {storage:?} is not supported; \"uint8\" is"
            ));
        }
        Ok(())
    }
}
