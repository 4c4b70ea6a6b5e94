//! Rotary positions: the base of the wavelengths, and how they are stretched for longer contexts.

use super::keys::Keys;
use hankel_ops::Rotary;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::f64::consts::TAU;

/// The rotary embedding of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths, `rope_theta`.
    pub theta: f64,
    /// How they are stretched.
    pub scaling: RopeScaling,
}

impl Default for Rope {
    fn default() -> Self {
        Rope { theta: 1e4, scaling: RopeScaling::None }
    }
}

/// How wavelengths are stretched, `rope_type`.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// `default`: not at all.
    None,
    /// `linear`: all frequencies divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// `llama3`: long wavelengths by the factor, short ones not, and a ramp between.
    Llama3 {
        /// The factor.
        factor: f64,
        /// Wavelengths above `original / low_freq_factor` are stretched.
        low_freq_factor: f64,
        /// Wavelengths below `original / high_freq_factor` are not.
        high_freq_factor: f64,
        /// Length of the training before the stretching.
        original: usize,
    },
    /// `yarn` (Peng et al., 2023): a ramp over the dimensions, and longer vectors.
    Yarn {
        /// The factor.
        factor: f64,
        /// Length of the training before the stretching.
        original: usize,
        /// Planes with more turns than this over the original length keep their frequency.
        beta_fast: f64,
        /// Planes with fewer turns get the full factor.
        beta_slow: f64,
        /// Whether the ends of the ramp are rounded to whole dimensions.
        truncate: bool,
        /// What queries and keys are multiplied by.
        magnitude: f64,
    },
    /// `longrope` (Ding et al., 2024): a divisor for each plane, others beyond the original length.
    LongRope {
        /// Divisors of sequences up to the original length, `[head_dim / 2]`.
        short: Vec<f64>,
        /// Divisors of longer ones.
        long: Vec<f64>,
        /// The original length.
        original: usize,
        /// What queries and keys are multiplied by.
        magnitude: f64,
    },
    /// A divisor for each plane, `[head_dim / 2]`: what files of other formats give.
    Divisors(Vec<f64>),
}

/// The angles of a layer.
#[derive(Debug, Clone)]
pub(super) enum Rotation {
    /// The same for sequences of every length.
    Fixed(Rotary),
    /// By the length of the sequence.
    ByLength { short: Rotary, long: Rotary, original: usize },
}

impl Rotation {
    /// The length beyond which sequences are turned by other angles, if any are.
    pub fn border(&self) -> Option<usize> {
        match self {
            Rotation::Fixed(_) => None,
            Rotation::ByLength { original, .. } => Some(*original),
        }
    }

    /// For a sequence of `length` tokens.
    pub fn of(&self, length: usize) -> &Rotary {
        match self {
            Rotation::Fixed(rotary) => rotary,
            Rotation::ByLength { short, long, original } => {
                if length > *original {
                    long
                } else {
                    short
                }
            }
        }
    }
}

/// `beta_fast` and `beta_slow` of YaRN where a file does not say.
pub(crate) const YARN_BETAS: [f64; 2] = [32.0, 1.0];

/// What YaRN multiplies queries and keys by where a file does not say, in transformers as in llama.cpp.
pub(crate) fn yarn_magnitude(factor: f64) -> f64 {
    scaled_magnitude(factor, 1.0)
}

fn scaled_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

/// Keys of released files that change nothing: `finetuned` says where the weights come from; `attn_factor`
/// (DeepSeek-R1-0528-Qwen3-8B) is not known to transformers, which computes as if it were not there.
const WITHOUT_EFFECT: [&str; 2] = ["attn_factor", "finetuned"];

/// `rope_parameters` or `rope_scaling`, by its keys. Those of other kinds of scaling change nothing.
#[derive(Deserialize)]
struct Parameters {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    /// The older spelling, which transformers saves beside the newer one.
    #[serde(rename = "type")]
    older_type: Option<String>,
    factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    short_factor: Option<Vec<f64>>,
    long_factor: Option<Vec<f64>>,
    partial_rotary_factor: Option<f64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Parameters {
    /// A key that may change the result, and is not understood. One with an underscore in front is a note of the program
    /// that wrote the file.
    fn unknown(&self) -> Option<&str> {
        let unknown = |(key, value): &(&String, &Value)| {
            !(value.is_null() || key.starts_with('_') || WITHOUT_EFFECT.contains(&key.as_str()))
        };
        self.others.iter().find(unknown).map(|(key, _)| key.as_str())
    }
}

impl Rope {
    /// What a `config.json` says in either spelling: `rope_theta` with `rope_scaling`, or `rope_parameters`; in both, if they agree. `theta` is
    /// the base when none is written, `context` the length in `max_position_embeddings`.
    pub(super) fn read(keys: &Keys, theta: f64, context: usize) -> Result<Self, String> {
        keys.only("partial_rotary_factor", &json!(1.0))?;
        let original: Option<usize> = keys.get("original_max_position_embeddings")?;
        let (old, new): (Option<Value>, Option<Value>) = (keys.get("rope_scaling")?, keys.get("rope_parameters")?);
        let written: Option<f64> = keys.get("rope_theta")?;
        let of = |key, value: &Value, theta| Self::of_value(key, value, written, original, theta, context);
        match (new, old) {
            (Some(new), Some(old)) => {
                let rope = of("rope_parameters", &new, theta)?;
                let older = of("rope_scaling", &old, rope.theta)?;
                if rope != older {
                    return Err(
                        "rope_parameters and rope_scaling ask for different embeddings: keep one of them".into()
                    );
                }
                Ok(rope)
            }
            (Some(new), None) => of("rope_parameters", &new, theta),
            (None, Some(old)) => of("rope_scaling", &old, theta),
            (None, None) => Ok(Rope { theta: written.unwrap_or(theta), scaling: RopeScaling::None }),
        }
    }

    /// What `value`, the value of `key`, says.
    pub(super) fn of_value(
        key: &str,
        value: &Value,
        written: Option<f64>,
        original: Option<usize>,
        theta: f64,
        context: usize,
    ) -> Result<Self, String> {
        let p = Parameters::deserialize(value).map_err(|e| format!("{key}: {e}"))?;
        if let Some(unknown) = p.unknown() {
            return Err(format!("{key}: {unknown} is not understood, and may change what the model computes"));
        }
        if let (Some(old), Some(new)) = (written, p.rope_theta)
            && old != new
        {
            return Err(format!("rope_theta is {old} and {key}.rope_theta is {new}"));
        }
        if p.partial_rotary_factor.is_some_and(|factor| factor != 1.0) {
            return Err(format!("{key}: partial_rotary_factor other than 1 is not supported"));
        }
        let theta = written.or(p.rope_theta).unwrap_or(theta);
        let need = |name: &str, value: Option<f64>| value.ok_or_else(|| format!("{key}: {name} is missing"));
        // transformers goes by that of the whole configuration where there are two.
        let original = original.or(p.original_max_position_embeddings);
        let scaling = match p.rope_type.as_deref().or(p.older_type.as_deref()).unwrap_or("default") {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: need("factor", p.factor)? },
            "llama3" => RopeScaling::Llama3 {
                factor: need("factor", p.factor)?,
                low_freq_factor: need("low_freq_factor", p.low_freq_factor)?,
                high_freq_factor: need("high_freq_factor", p.high_freq_factor)?,
                original: original.ok_or_else(|| format!("{key}: original_max_position_embeddings is missing"))?,
            },
            "yarn" => {
                let factor = need("factor", p.factor)?;
                let magnitude = match (p.attention_factor, p.mscale, p.mscale_all_dim) {
                    (Some(magnitude), ..) => magnitude,
                    (None, Some(m), Some(all)) if m != 0.0 && all != 0.0 => {
                        scaled_magnitude(factor, m) / scaled_magnitude(factor, all)
                    }
                    _ => yarn_magnitude(factor),
                };
                RopeScaling::Yarn {
                    factor,
                    original: original.unwrap_or(context),
                    beta_fast: p.beta_fast.unwrap_or(YARN_BETAS[0]),
                    beta_slow: p.beta_slow.unwrap_or(YARN_BETAS[1]),
                    truncate: p.truncate.unwrap_or(true),
                    magnitude,
                }
            }
            "longrope" | "su" => {
                let list =
                    |name: &str, value: Option<Vec<f64>>| value.ok_or_else(|| format!("{key}: {name} is missing"));
                let original = original.unwrap_or(context);
                let factor = p.factor.unwrap_or(context as f64 / original as f64);
                let usual = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
                RopeScaling::LongRope {
                    short: list("short_factor", p.short_factor)?,
                    long: list("long_factor", p.long_factor)?,
                    original,
                    magnitude: p.attention_factor.unwrap_or(usual),
                }
            }
            other => {
                return Err(format!(
                    "{key}: rope type {other:?} is not supported; default, linear, llama3, yarn and longrope are"
                ));
            }
        };
        Ok(Rope { theta, scaling })
    }

    /// Writes it as `rope_theta` and `rope_scaling`.
    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        map.insert("rope_theta".into(), json!(self.theta));
        let scaling = match &self.scaling {
            RopeScaling::None => return,
            RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => json!({
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "original_max_position_embeddings": original,
            }),
            RopeScaling::Yarn { factor, original, beta_fast, beta_slow, truncate, magnitude } => json!({
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original,
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
                "truncate": truncate,
                "attention_factor": magnitude,
            }),
            RopeScaling::LongRope { short, long, original, magnitude } => json!({
                "rope_type": "longrope",
                "short_factor": short,
                "long_factor": long,
                "original_max_position_embeddings": original,
                "attention_factor": magnitude,
            }),
            // Longer and shorter sequences with the same divisors.
            RopeScaling::Divisors(divisors) => json!({
                "rope_type": "longrope",
                "short_factor": divisors,
                "long_factor": divisors,
                "factor": 1.0,
                "attention_factor": 1.0,
            }),
        };
        map.insert("rope_scaling".into(), scaling);
    }

    /// Says what cannot be computed with, naming the key.
    pub(super) fn check(&self, head_dim: usize) -> Result<(), String> {
        if !(self.theta > 0.0 && self.theta.is_finite()) {
            return Err(format!("rope_theta = {} is not a positive number", self.theta));
        }
        let (lists, numbers): (Vec<&Vec<f64>>, Vec<f64>) = match &self.scaling {
            RopeScaling::None => (vec![], vec![]),
            RopeScaling::Linear { factor } => (vec![], vec![*factor]),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => {
                if high_freq_factor <= low_freq_factor {
                    return Err("rope_scaling: high_freq_factor is not above low_freq_factor".to_owned());
                }
                (vec![], vec![*factor, *low_freq_factor, *original as f64])
            }
            RopeScaling::Yarn { factor, original, beta_fast, beta_slow, magnitude, .. } => {
                (vec![], vec![*factor, *original as f64, *beta_fast, *beta_slow, *magnitude])
            }
            RopeScaling::LongRope { short, long, original, magnitude } => {
                (vec![short, long], vec![*original as f64, *magnitude])
            }
            RopeScaling::Divisors(divisors) => (vec![divisors], vec![]),
        };
        if let Some(list) = lists.iter().find(|list| list.len() != head_dim / 2) {
            return Err(format!("rope_scaling: {} factors for heads of {head_dim}", list.len()));
        }
        match lists.into_iter().flatten().chain(&numbers).find(|x| !(**x > 0.0 && x.is_finite())) {
            Some(bad) => Err(format!("rope_scaling: {bad} is not a positive number")),
            None => Ok(()),
        }
    }

    /// The angles for heads of `head_dim` elements.
    pub(super) fn rotation(&self, head_dim: usize) -> Rotation {
        let plain = Rotary::new(head_dim, self.theta);
        let each = |f: &dyn Fn(usize, f64) -> f64, magnitude: f64| Rotary {
            frequencies: plain.frequencies.iter().enumerate().map(|(k, &w)| f(k, w)).collect(),
            magnitude,
        };
        Rotation::Fixed(match &self.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => each(&|_, w| w / factor, 1.0),
            RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original } => {
                let turns = |w: f64| *original as f64 * w / TAU;
                // 1 keeps the frequency, 0 divides it.
                let kept = |w: f64| ((turns(w) - low) / (high - low)).clamp(0.0, 1.0);
                each(&|_, w| (1.0 - kept(w)) * w / factor + kept(w) * w, 1.0)
            }
            RopeScaling::Yarn { factor, original, beta_fast, beta_slow, truncate, magnitude } => {
                // The dimension whose plane makes so many turns over the original length.
                let at =
                    |turns: f64| head_dim as f64 * (*original as f64 / (turns * TAU)).ln() / (2.0 * self.theta.ln());
                let (mut low, mut high) = (at(*beta_fast), at(*beta_slow));
                if *truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, mut high) = (low.max(0.0), high.min(head_dim as f64 - 1.0));
                if low == high {
                    high += 0.001;
                }
                let stretched = |k: usize| ((k as f64 - low) / (high - low)).clamp(0.0, 1.0);
                each(&|k, w| stretched(k) * w / factor + (1.0 - stretched(k)) * w, *magnitude)
            }
            RopeScaling::LongRope { short, long, original, magnitude } => {
                return Rotation::ByLength {
                    short: each(&|k, w| w / short[k], *magnitude),
                    long: each(&|k, w| w / long[k], *magnitude),
                    original: *original,
                };
            }
            RopeScaling::Divisors(divisors) => each(&|k, w| w / divisors[k], 1.0),
        })
    }
}
