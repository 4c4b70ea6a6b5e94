//! The model in a file: its configuration in the spelling of `config.json`, and its weights under the names of a model
//! directory.

use super::names::{ATTENTION_FACTOR, ROPE_FACTORS, hugging_face, stem};
use super::{Architecture, Gguf, TensorType, tokenizer};
use crate::chat::load::TOOLS_KEY;
use crate::decoder::{DecoderConfig, Family, YARN_BETAS, yarn_magnitude};
use crate::weights::mapped::{Done, Entry, Stored};
use crate::weights::{ModelFiles, Result};
use serde_json::{Value as Json, json};
use std::path::Path;

/// Keys below the architecture's name that are read, or change nothing. Any other may change the result. llama.cpp reads
/// those with `yarn_` for other architectures only: here it goes by its own constants, whatever a file says.
const KEYS: [&str; 25] = [
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    OLD_SCALING_FACTOR,
    ATTENTION_FACTOR,
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "tensor_data_layout",
    "vocab_size",
];

/// `rope.scaling.factor` in files from before August 2023, where scaling was linear.
const OLD_SCALING_FACTOR: &str = "rope.scale_linear";

/// A file that holds a model.
pub struct GgufModel {
    file: Gguf,
    family: &'static Family,
    architecture: &'static Architecture,
    config: Json,
    head_dim: usize,
}

impl GgufModel {
    /// Opens the file and checks what it says of the model and its tokenizer.
    ///
    /// # Errors
    /// As [`Gguf::open`]; when the file is an adapter, one shard of several, or of an architecture that is not supported;
    /// when a key is missing, of another kind, or not understood; when a tensor is missing.
    pub fn open(path: &Path) -> Result<Self> {
        let file = Gguf::open(path)?;
        if let Some(kind) = file.string("general.type")?.filter(|kind| *kind != "model") {
            return Err(file.fail(format!("general.type is {kind:?}: this is not a model")));
        }
        if let Some(count) = file.size("split.count")?.filter(|&count| count > 1) {
            let reason =
                format!("it is one of {count} shards (split.count): join them with `llama-gguf-split --merge`");
            return Err(file.fail(reason));
        }
        let Some(name) = file.string("general.architecture")? else {
            return Err(file.fail("general.architecture is missing"));
        };
        let Some((family, architecture)) = Architecture::read().find(|(_, known)| known.name == name) else {
            let known: Vec<&str> = Architecture::read().map(|(_, known)| known.name).collect();
            let known = known.join(", ");
            return Err(file.fail(format!("architecture {name:?} is not supported; {known} are")));
        };
        let prefix = format!("{name}.");
        let mut own = file.metadata().keys().filter_map(|key| key.strip_prefix(&prefix));
        if let Some(key) = own.find(|key| !KEYS.contains(key)) {
            return Err(
                file.fail(format!("key {name}.{key} is not understood, and may change what the model computes"))
            );
        }
        let (config, head_dim) = Reader { file: &file, family, architecture }.config()?;
        Ok(GgufModel { file, family, architecture, config, head_dim })
    }

    /// The file.
    pub fn file(&self) -> &Gguf {
        &self.file
    }

    /// The configuration as a `config.json` would have it.
    pub fn config(&self) -> &Json {
        &self.config
    }

    /// `chat_template` of a `tokenizer_config.json`: the template of conversations, with the one for tools where there are two, or null.
    ///
    /// # Errors
    /// When one is not a string.
    pub fn chat_template(&self) -> Result<Json> {
        let template = self.file.string("tokenizer.chat_template")?;
        Ok(match (template, self.file.string(TOOLS_KEY)?) {
            (Some(template), Some(for_tools)) => {
                let entry = |name: &str, template: &str| json!({ "name": name, "template": template });
                json!([entry("default", template), entry("tool_use", for_tools)])
            }
            (template, _) => json!(template),
        })
    }

    /// The weights, in the file's blocks, under the names of a model directory. Rows of queries and keys are in the order
    /// of Hugging Face.
    ///
    /// # Errors
    /// When a tensor has a name that no model of this architecture has.
    pub fn weights(&self) -> Result<ModelFiles> {
        let path = std::sync::Arc::<Path>::from(self.file.path());
        let mut entries = std::collections::BTreeMap::new();
        for (name, tensor) in self.file.tensors().iter().filter(|(name, _)| *name != ROPE_FACTORS) {
            let Some((new, slot)) = hugging_face(name, self.family) else {
                let reason =
                    format!("tensor {name} does not belong to a model of architecture {}", self.architecture.name);
                return Err(self.file.fail(reason));
            };
            let interleaves = slot.is_some_and(|slot| self.architecture.interleaves(slot));
            let entry = Entry {
                map: self.file.map.clone(),
                path: path.clone(),
                stored: match tensor.dtype {
                    TensorType::F32 => Stored::Plain(safetensors::Dtype::F32),
                    TensorType::F16 => Stored::Plain(safetensors::Dtype::F16),
                    TensorType::Bf16 => Stored::Plain(safetensors::Dtype::BF16),
                    TensorType::Blocks(format) => Stored::Blocks(format),
                },
                shape: tensor.shape.clone(),
                range: tensor.range.clone(),
                interleaved: interleaves.then_some(self.head_dim),
            };
            entries.insert(new, entry);
        }
        let data = self.file.tensors().values().map(|tensor| tensor.range.start).min().unwrap_or(0);
        Ok(ModelFiles::of_entries(self.file.path(), entries, Done::new(self.file.map.clone(), 0..data)))
    }
}

struct Reader<'a> {
    file: &'a Gguf,
    family: &'static Family,
    architecture: &'static Architecture,
}

impl Reader<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture.name)
    }

    fn size(&self, key: &str) -> Result<Option<usize>> {
        let key = self.key(key);
        match self.file.size(&key)? {
            Some(0) => Err(self.file.fail(format!("{key} is 0"))),
            found => Ok(found),
        }
    }

    fn required(&self, key: &str) -> Result<usize> {
        self.size(key)?.ok_or_else(|| self.file.fail(format!("{} is missing", self.key(key))))
    }

    fn positive(&self, key: &str) -> Result<Option<f64>> {
        let key = self.key(key);
        let value = self.file.number(&key)?;
        match value.filter(|value| !(*value > 0.0 && value.is_finite())) {
            Some(value) => Err(self.file.fail(format!("{key} is {value}, expected a positive number"))),
            None => Ok(value),
        }
    }

    /// `config.json`, and the width of a head.
    fn config(&self) -> Result<(Json, usize)> {
        let (d_model, layers) = (self.required("embedding_length")?, self.required("block_count")?);
        let d_ff = self.required("feed_forward_length")?;
        let heads = self.required("attention.head_count")?;
        let kv_heads = self.size("attention.head_count_kv")?.unwrap_or(heads);
        let head_dim = match (self.size("attention.key_length")?, self.size("rope.dimension_count")?) {
            (Some(head_dim), _) => head_dim,
            (None, _) if d_model.is_multiple_of(heads) => d_model / heads,
            (None, _) => {
                let heads_key = self.key("attention.head_count");
                return Err(self
                    .file
                    .fail(format!("{heads_key} = {heads} does not divide an embedding_length of {d_model}")));
            }
        };
        for key in ["attention.value_length", "rope.dimension_count"] {
            if let Some(found) = self.size(key)?.filter(|&found| found != head_dim) {
                let key = self.key(key);
                return Err(self.file.fail(format!("{key} = {found}, but heads have {head_dim} elements")));
            }
        }
        if let Some(experts) = self.file.size(&self.key("expert_count"))?.filter(|&experts| experts > 0) {
            let key = self.key("expert_count");
            return Err(self.file.fail(format!("{key} = {experts}: mixtures of experts are not supported")));
        }
        let Some(eps) = self.positive("attention.layer_norm_rms_epsilon")? else {
            return Err(self.file.fail(format!("{} is missing", self.key("attention.layer_norm_rms_epsilon"))));
        };
        self.tensors_are_there(layers)?;
        let vocabulary = self.file.tensors()["token_embd.weight"].shape[0];
        let mut config = json!({
            "architectures": [self.family.architecture],
            "model_type": self.family.model_type,
            "vocab_size": vocabulary,
            "hidden_size": d_model,
            "intermediate_size": d_ff,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "max_position_embeddings": self.size("context_length")?.unwrap_or(4096),
            "rms_norm_eps": eps,
            "rope_theta": self.positive("rope.freq_base")?.unwrap_or(1e4),
            "tie_word_embeddings": !self.file.tensors().contains_key("output.weight"),
            "hidden_act": "silu",
            "torch_dtype": "float32",
        });
        // A family in which queries, keys and values alone have biases has no key for them.
        let has_key = self.architecture.biases.qkv == self.architecture.biases.output;
        if self.file.tensors().contains_key("blk.0.attn_q.bias") && has_key {
            config["attention_bias"] = json!(true);
        }
        if self.file.tensors().contains_key("blk.0.ffn_up.bias") {
            config["mlp_bias"] = json!(true);
        }
        if let Some(scaling) = self.rope_scaling(head_dim)? {
            config["rope_scaling"] = scaling;
        }
        for (key, id) in tokenizer::special_ids(self.file, vocabulary)? {
            config[key] = json!(id);
        }
        tokenizer::check(self.file, vocabulary)?;
        Ok((config, head_dim))
    }

    fn tensors_are_there(&self, layers: usize) -> Result<()> {
        let tensors = self.file.tensors();
        let missing = |name: &str| self.file.fail(format!("tensor {name} is missing"));
        for name in ["token_embd.weight", "output_norm.weight"] {
            if !tensors.contains_key(name) {
                return Err(missing(name));
            }
        }
        // Without any feature, they are what every model of the family has.
        let modules = DecoderConfig::plain(self.family).modules();
        for layer in 0..layers {
            for module in &modules {
                let name = format!("blk.{layer}.{}.weight", stem(module.slot, self.family));
                if !tensors.contains_key(&name) {
                    return Err(missing(&name));
                }
            }
        }
        Ok(())
    }

    /// How positions are stretched, in the spelling of `config.json`.
    fn rope_scaling(&self, head_dim: usize) -> Result<Option<Json>> {
        let key = self.key("rope.scaling.type");
        let factor = match self.positive("rope.scaling.factor")? {
            None => self.positive(OLD_SCALING_FACTOR)?,
            found => found,
        };
        // A factor without a type is a linear one to llama.cpp.
        let usual = if factor.is_some_and(|factor| factor != 1.0) { "linear" } else { "none" };
        let kind = self.file.string(&key)?.unwrap_or(usual);
        let original = self.size("rope.scaling.original_context_length")?;
        let magnitude = self.positive(ATTENTION_FACTOR)?.unwrap_or(1.0);
        let scaling = match kind {
            "none" => None,
            // Without a factor it is 1 to llama.cpp.
            "linear" => factor.map(|factor| json!({ "rope_type": "linear", "factor": factor })),
            "yarn" => Some(json!({
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original,
                "beta_fast": YARN_BETAS[0],
                "beta_slow": YARN_BETAS[1],
                "attention_factor": magnitude * yarn_magnitude(factor.unwrap_or(1.0)),
            })),
            other => return Err(self.file.fail(format!("{key} is {other:?}; none, linear and yarn are supported"))),
        };
        if scaling.is_some() && factor.is_none() {
            return Err(self.file.fail(format!("{} is missing", self.key("rope.scaling.factor"))));
        }
        let factors = self.file.tensors().get(ROPE_FACTORS);
        if factors.is_none() && kind != "yarn" && magnitude != 1.0 {
            let own = self.key(ATTENTION_FACTOR);
            let reason = format!("{own} = {magnitude} is supported where {key} is \"yarn\", and it is {kind:?}");
            return Err(self.file.fail(reason));
        }
        let Some(factors) = factors else { return Ok(scaling) };
        if factors.dtype != TensorType::F32 || factors.shape != [head_dim / 2] || scaling.is_some() {
            let reason =
                format!("tensor {ROPE_FACTORS} is not F32 [{}] and the only scaling of positions", head_dim / 2);
            return Err(self.file.fail(reason));
        }
        let bytes = self.file.bytes(factors).as_chunks::<4>().0;
        let factors: Vec<f64> = bytes.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes))).collect();
        if let Some(bad) = factors.iter().find(|factor| !(**factor > 0.0 && factor.is_finite())) {
            return Err(self.file.fail(format!("tensor {ROPE_FACTORS} holds {bad}, expected positive numbers")));
        }
        // The one kind of `config.json` that gives a factor for each frequency; nothing else is scaled.
        Ok(Some(json!({
            "rope_type": "longrope",
            "long_factor": &factors,
            "short_factor": &factors,
            "attention_factor": magnitude,
            "factor": 1.0,
            "original_max_position_embeddings": self.size("context_length")?.unwrap_or(4096),
        })))
    }
}
