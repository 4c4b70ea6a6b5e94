//! What llama.cpp calls a family, and in which ways it computes what the family does. A family's file has its own.

use super::write::{Meta, Metadata};
use crate::decoder::layout::Slot;
use crate::decoder::{Biases, DecoderConfig, Family, families};

/// Which tensors can divide the frequencies of rotary positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Divisors {
    /// None.
    None,
    /// One.
    One,
    /// One for long sequences, and one for those up to the original length.
    LongAndShort,
}

/// An architecture of llama.cpp.
pub(crate) struct Architecture {
    /// `general.architecture`.
    pub(crate) name: &'static str,
    /// Whether its files are read as models of the family: its names are those of Llama, and no keys but Llama's say what it is.
    pub(crate) is_read: bool,
    /// Whether rows of queries and keys are stored in the order of pairs that stand side by side.
    pub(crate) interleaved: bool,
    /// Which projections may have biases.
    pub(crate) biases: Biases,
    /// Whether layers have the sliding windows of the family; where not, the context ends where a window would begin to matter.
    pub(crate) has_windows: bool,
    /// How frequencies can be divided.
    pub(crate) divisors: Divisors,
    /// What llama.cpp knows the model by in `general.name`, to be added where that is not in it.
    pub(crate) label: Option<&'static str>,
    /// Says what else llama.cpp would compute in another way.
    pub(crate) check: fn(&DecoderConfig) -> Result<(), String>,
    /// Puts the keys that only this architecture has.
    pub(crate) keys: fn(&DecoderConfig, &mut Keys) -> Result<(), String>,
}

impl Architecture {
    /// One without any feature.
    pub(crate) const fn plain(name: &'static str) -> Self {
        Architecture {
            name,
            is_read: false,
            interleaved: false,
            biases: Biases { qkv: false, output: false, mlp: false },
            has_windows: false,
            divisors: Divisors::None,
            label: None,
            check: |_| Ok(()),
            keys: |_, _| Ok(()),
        }
    }

    /// The architecture of a model.
    ///
    /// # Errors
    /// When llama.cpp has none, or it would compute something else: says what.
    pub(super) fn of(config: &DecoderConfig) -> Result<&'static Self, String> {
        let model_type = config.family.model_type;
        let Some(found) = &config.family.gguf else {
            let known = families::FAMILIES.iter().filter(|family| family.gguf.is_some());
            let known: Vec<&str> = known.map(|family| family.model_type).collect();
            let known = known.join(", ");
            return Err(format!("model_type {model_type:?} has no architecture in GGUF files here; {known} have"));
        };
        found.fits(config).map_err(|problem| {
            format!("llama.cpp's architecture {:?} cannot compute this model: {problem}", found.name)
        })?;
        Ok(found)
    }

    /// The families whose files are read, with their architectures.
    pub(super) fn read() -> impl Iterator<Item = (&'static Family, &'static Self)> {
        let all = families::FAMILIES.iter().filter_map(|family| Some((*family, family.gguf.as_ref()?)));
        all.filter(|(_, architecture)| architecture.is_read)
    }

    /// Whether rows of the projection in `slot` are stored in the order of pairs that stand side by side.
    pub(super) fn interleaves(&self, slot: Slot) -> bool {
        self.interleaved && matches!(slot, Slot::Qkv(0 | 1))
    }

    /// Says what the architecture has no place for.
    fn fits(&self, config: &DecoderConfig) -> Result<(), String> {
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
        (self.check)(config)
    }
}

/// Refuses heads that are together not as wide as the stream, which llama.cpp takes for granted in some architectures.
pub(crate) fn check_width(config: &DecoderConfig) -> Result<(), String> {
    let DecoderConfig { heads, head_dim, d_model, .. } = config;
    if heads * head_dim == *d_model {
        return Ok(());
    }
    Err(format!("{heads} heads of {head_dim} elements are not as wide as the stream of {d_model}"))
}

/// The keys below an architecture's name.
pub(crate) struct Keys {
    prefix: &'static str,
    pub(super) metadata: Metadata,
}

impl Keys {
    pub(super) fn new(prefix: &'static str) -> Self {
        Keys { prefix, metadata: Metadata::new() }
    }

    pub(super) fn put(&mut self, key: &str, value: Meta) {
        self.metadata.push((format!("{}.{key}", self.prefix), value));
    }

    pub(crate) fn size(&mut self, key: &str, value: usize) -> Result<(), String> {
        let number = u32::try_from(value).map_err(|_| format!("{key} = {value} is beyond 32 bits"))?;
        self.put(key, Meta::U32(number));
        Ok(())
    }

    pub(crate) fn float(&mut self, key: &str, value: f64) {
        self.put(key, Meta::F32(value as f32));
    }
}
