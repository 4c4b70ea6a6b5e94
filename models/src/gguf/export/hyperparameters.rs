//! The keys below an architecture's name, and tensors that hold settings instead of weights.

use crate::decoder::{DecoderConfig, Positions, Rope, RopeScaling, YARN_BETAS, yarn_magnitude};
use crate::gguf::architecture::{Architecture, Divisors, Keys};
use crate::gguf::names::{ATTENTION_FACTOR, ROPE_FACTORS};
use crate::gguf::write::{Meta, Metadata};
use crate::linear::NormKind;
use std::f64::consts::TAU;

/// Factors of long sequences, and of those up to the original length.
const LONG_FACTORS: &str = "rope_factors_long.weight";
const SHORT_FACTORS: &str = "rope_factors_short.weight";

/// The keys that describe `config`. What they cannot say is added to `notes`.
pub(super) fn of(
    config: &DecoderConfig,
    architecture: &Architecture,
    notes: &mut Vec<String>,
) -> Result<Metadata, String> {
    let mut keys = Keys::new(architecture.name);
    let epsilon = match config.norm {
        NormKind::RmsNorm => "attention.layer_norm_rms_epsilon",
        NormKind::LayerNorm => "attention.layer_norm_epsilon",
    };
    keys.size("block_count", config.layers)?;
    keys.size("context_length", context(config, architecture, notes))?;
    keys.size("embedding_length", config.d_model)?;
    keys.size("feed_forward_length", config.d_ff)?;
    keys.size("attention.head_count", config.heads)?;
    keys.size("attention.head_count_kv", config.kv_heads)?;
    keys.float(epsilon, config.norm_eps);
    keys.size("vocab_size", config.vocabulary)?;
    if let Positions::Rotary(rope) = &config.positions {
        keys.size("attention.key_length", config.head_dim)?;
        keys.size("attention.value_length", config.head_dim)?;
        keys.size("rope.dimension_count", config.head_dim)?;
        keys.float("rope.freq_base", rope.theta);
        keys.scaling(rope, architecture.divisors)?;
        if let RopeScaling::LongRope { short, long, original, .. } = &rope.scaling
            && architecture.divisors == Divisors::LongAndShort
            && short != long
        {
            notes.push(format!(
                "llama.cpp chooses between the factors of short and long sequences by the size of its context and not \
                 by the length of a text: with a context above {original} (-c), short texts get the long factors"
            ));
        }
    }
    (architecture.keys)(config, &mut keys)?;
    Ok(keys.metadata)
}

/// The length that the file gives: no more than what llama.cpp computes as this model does.
fn context(config: &DecoderConfig, architecture: &Architecture, notes: &mut Vec<String>) -> usize {
    let slides = (0..config.layers).any(|layer| config.sliding_layers.contains(layer));
    let window = config.sliding_window.filter(|_| slides && !architecture.has_windows);
    match window.filter(|&window| window < config.context) {
        None => config.context,
        Some(window) => {
            let name = architecture.name;
            notes.push(format!(
                "context_length is {window}, the sliding window, instead of {}: architecture {name} has no windows in \
                 llama.cpp, and beyond this length the answers would be those of another model",
                config.context
            ));
            window
        }
    }
}

/// Tensors that hold settings, in f32: name and values.
///
/// # Errors
/// When the architecture has no place for them.
pub(super) fn own_tensors(
    config: &DecoderConfig,
    architecture: &Architecture,
) -> Result<Vec<(&'static str, Vec<f32>)>, String> {
    let Positions::Rotary(rope) = &config.positions else { return Ok(Vec::new()) };
    let narrow = |divisors: &[f64]| divisors.iter().map(|&x| x as f32).collect::<Vec<_>>();
    let divisors = match &rope.scaling {
        RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Yarn { .. } => return Ok(Vec::new()),
        RopeScaling::LongRope { short, long, .. } if architecture.divisors == Divisors::LongAndShort => {
            return Ok(vec![(LONG_FACTORS, narrow(long)), (SHORT_FACTORS, narrow(short))]);
        }
        RopeScaling::Llama3 { .. } => llama3_divisors(rope, config.head_dim),
        RopeScaling::LongRope { short, long, magnitude, .. } if short == long && *magnitude == 1.0 => narrow(short),
        RopeScaling::Divisors(divisors) => narrow(divisors),
        RopeScaling::LongRope { .. } => return Err(no_place("longrope", architecture)),
    };
    let kind = match rope.scaling {
        RopeScaling::Llama3 { .. } => "llama3",
        RopeScaling::LongRope { .. } => "longrope",
        _ => "divisors",
    };
    if architecture.divisors != Divisors::One {
        return Err(no_place(kind, architecture));
    }
    Ok(vec![(ROPE_FACTORS, divisors)])
}

fn no_place(kind: &str, architecture: &Architecture) -> String {
    format!("positions scaled as {kind} have no place in llama.cpp's architecture {:?}", architecture.name)
}

/// What `rope_type = "llama3"` divides each frequency by.
fn llama3_divisors(rope: &Rope, head_dim: usize) -> Vec<f32> {
    let RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original } = rope.scaling else {
        return Vec::new();
    };
    let divisor = |k: usize| {
        let frequency = rope.theta.powf(-2.0 * k as f64 / head_dim as f64);
        let kept = ((original as f64 * frequency / TAU - low) / (high - low)).clamp(0.0, 1.0);
        1.0 / ((1.0 - kept) / factor + kept)
    };
    (0..head_dim / 2).map(|k| divisor(k) as f32).collect()
}

impl Keys {
    /// How positions are stretched.
    fn scaling(&mut self, rope: &Rope, divisors: Divisors) -> Result<(), String> {
        match &rope.scaling {
            RopeScaling::Linear { factor } => {
                self.put("rope.scaling.type", Meta::Text("linear".to_owned()));
                self.float("rope.scaling.factor", *factor);
            }
            RopeScaling::Yarn { factor, original, beta_fast, beta_slow, truncate, magnitude } => {
                if !truncate {
                    return Err("rope_scaling: truncate = false has no place in GGUF".to_owned());
                }
                // Keys for them exist, which llama.cpp does not read for these architectures.
                for (name, value, usual) in
                    [("beta_fast", *beta_fast, YARN_BETAS[0]), ("beta_slow", *beta_slow, YARN_BETAS[1])]
                {
                    if (value - usual).abs() > 1e-6 {
                        let reason = "has no place in GGUF, where llama.cpp takes";
                        return Err(format!("rope_scaling: {name} = {value} {reason} {usual}"));
                    }
                }
                self.put("rope.scaling.type", Meta::Text("yarn".to_owned()));
                self.float("rope.scaling.factor", *factor);
                self.size("rope.scaling.original_context_length", *original)?;
                // llama.cpp multiplies the usual magnitude by it.
                let multiplier = magnitude / yarn_magnitude(*factor);
                if (multiplier - 1.0).abs() > 1e-6 {
                    self.float(ATTENTION_FACTOR, multiplier);
                }
            }
            RopeScaling::LongRope { original, magnitude, .. } if divisors == Divisors::LongAndShort => {
                self.size("rope.scaling.original_context_length", *original)?;
                self.float(ATTENTION_FACTOR, *magnitude);
            }
            // In a tensor, see `own_tensors`.
            RopeScaling::None
            | RopeScaling::Llama3 { .. }
            | RopeScaling::LongRope { .. }
            | RopeScaling::Divisors(_) => {}
        }
        Ok(())
    }
}
