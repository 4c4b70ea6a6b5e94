//! `adapter_config.json`.

use super::RankPattern;
use super::targets::Targets;
use crate::adapters::placement::ALL_LINEAR;
use crate::adapters::{AdaLoraConfig, AdapterConfig, Ia3Config, LoraConfig, Placement, Schedule};
use crate::weights::{Result, WeightsError};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Settings without an effect on what a finished adapter computes, or read elsewhere.
const NEUTRAL: &[&str] = &[
    "peft_type",
    "peft_version",
    "task_type",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "megatron_core",
    "qalora_group_size",
    "init_ia3_weights",
    "runtime_config",
    "ensure_weight_tying",
    "fan_in_fan_out",
];
/// Settings of where adapters are.
const SITES: &[&str] =
    &["target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "feedforward_modules"];
const LORA: &[&str] = &["r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "init_lora_weights", "bias"];
const ADALORA: &[&str] = &[
    "r",
    "lora_alpha",
    "lora_dropout",
    "init_lora_weights",
    "bias",
    "rank_pattern",
    "init_r",
    "target_r",
    "tinit",
    "tfinal",
    "deltaT",
    "beta1",
    "beta2",
    "orth_reg_weight",
    "total_step",
];

/// What PEFT reads back.
pub(super) fn write(config: &AdapterConfig, kept: &RankPattern, base_model: Option<&str>) -> Value {
    let (kind, targets) = match config {
        AdapterConfig::None | AdapterConfig::Hrm(_) | AdapterConfig::Stream(_) => return Value::Null,
        AdapterConfig::Lora(c) => ("LORA", &c.targets),
        AdapterConfig::AdaLora(c) => ("ADALORA", &c.targets),
        AdapterConfig::Ia3(c) => ("IA3", &c.targets),
    };
    let targets = if targets.iter().any(|t| t == ALL_LINEAR) { json!(ALL_LINEAR) } else { json!(targets) };
    let Value::Object(mut fields) = json!({
        "peft_type": kind,
        "task_type": "CAUSAL_LM",
        "auto_mapping": null,
        "base_model_name_or_path": base_model,
        "revision": null,
        "inference_mode": true,
        "target_modules": targets,
        "fan_in_fan_out": false,
        "modules_to_save": null,
    }) else {
        return Value::Null;
    };
    let low_rank = |rank: usize, alpha: f64, dropout: f64| {
        json!({
            "r": rank,
            "lora_alpha": number(alpha),
            "lora_dropout": dropout,
            "bias": "none",
            "init_lora_weights": true,
            "layers_pattern": null,
            "layers_to_transform": null,
            "alpha_pattern": {},
            "rank_pattern": {},
            "megatron_config": null,
            "megatron_core": "megatron.core",
            "loftq_config": {},
            "use_dora": false,
            "use_rslora": false,
        })
    };
    let rest = match config {
        AdapterConfig::None | AdapterConfig::Hrm(_) | AdapterConfig::Stream(_) => Value::Null,
        AdapterConfig::Lora(c) => {
            let mut rest = low_rank(c.rank, c.lora_alpha, c.dropout);
            rest["use_dora"] = json!(c.dora);
            rest["use_rslora"] = json!(c.rslora);
            rest
        }
        AdapterConfig::AdaLora(c) => {
            // PEFT ignores r here and warns unless it is its default.
            let mut rest = low_rank(8, c.lora_alpha, c.dropout);
            let pattern: Map<String, Value> =
                kept.iter().map(|(path, kept)| (format!("{path}.lora_E"), json!(kept))).collect();
            rest["rank_pattern"] = if pattern.is_empty() { Value::Null } else { Value::Object(pattern) };
            rest["init_r"] = json!(c.init_rank);
            rest["target_r"] = json!(c.target_rank);
            rest["tinit"] = json!(c.schedule.tinit);
            rest["tfinal"] = json!(c.schedule.tfinal);
            rest["deltaT"] = json!(c.schedule.delta_t);
            rest["total_step"] = json!(c.schedule.total_steps);
            rest["beta1"] = json!(c.beta1);
            rest["beta2"] = json!(c.beta2);
            rest["orth_reg_weight"] = json!(c.orth_reg_weight);
            rest
        }
        AdapterConfig::Ia3(c) => json!({ "feedforward_modules": c.feedforward, "init_ia3_weights": true }),
    };
    if let Value::Object(rest) = rest {
        fields.extend(rest);
    }
    Value::Object(fields)
}

/// Whole numbers without a point, as PEFT's users write them.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}

/// The settings, and AdaLoRA's ranks where they have been allocated.
pub(super) fn read(
    path: &Path,
    value: &Map<String, Value>,
    placement: &Placement,
) -> Result<(AdapterConfig, RankPattern)> {
    let fields = Fields { path, value };
    let kind = value.get("peft_type").and_then(Value::as_str).unwrap_or_default();
    let known = match kind {
        "LORA" => LORA,
        "ADALORA" => ADALORA,
        _ => &[],
    };
    fields.refuse_others(known)?;
    let targets = Targets { path, value, placement };
    if kind == "IA3" {
        let feedforward = targets.feedforward()?;
        return Ok((AdapterConfig::Ia3(Ia3Config { targets: targets.read()?, feedforward }), RankPattern::new()));
    }
    fields.check_common()?;
    let (lora_alpha, dropout, targets) =
        (fields.number("lora_alpha")?, fields.number("lora_dropout")?, targets.read()?);
    if kind == "LORA" {
        let config = LoraConfig {
            rank: fields.positive("r")?,
            lora_alpha,
            dropout,
            targets,
            rslora: fields.flag("use_rslora")?,
            dora: fields.flag("use_dora")?,
        };
        config.check().map_err(|problem| fields.fail(problem))?;
        return Ok((AdapterConfig::Lora(config), RankPattern::new()));
    }
    let config = AdaLoraConfig {
        init_rank: fields.positive("init_r")?,
        target_rank: fields.positive("target_r")?,
        lora_alpha,
        dropout,
        targets,
        schedule: Schedule {
            tinit: fields.integer("tinit")?,
            tfinal: fields.integer("tfinal")?,
            delta_t: fields.positive("deltaT")?,
            total_steps: fields.positive("total_step")?,
        },
        beta1: fields.number("beta1")?,
        beta2: fields.number("beta2")?,
        orth_reg_weight: fields.number("orth_reg_weight")?,
    };
    config.check().map_err(|problem| fields.fail(problem))?;
    let pattern = fields.rank_pattern(config.init_rank)?;
    Ok((AdapterConfig::AdaLora(config), pattern))
}

struct Fields<'a> {
    path: &'a Path,
    value: &'a Map<String, Value>,
}

impl Fields<'_> {
    fn fail(&self, reason: impl Into<String>) -> WeightsError {
        WeightsError::content(self.path, reason)
    }

    /// Refuses a setting that is on and that is neither neutral nor in `known`.
    fn refuse_others(&self, known: &[&str]) -> Result<()> {
        for (key, value) in self.value {
            let off = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(list) => list.is_empty(),
                Value::Object(map) => map.is_empty(),
                _ => false,
            };
            if !off && ![NEUTRAL, SITES, known].iter().any(|keys| keys.contains(&key.as_str())) {
                return Err(self.fail(format!("{key} = {value} is not supported")));
            }
        }
        Ok(())
    }

    /// What every low-rank adapter must have.
    fn check_common(&self) -> Result<()> {
        match self.value.get("bias") {
            None | Some(Value::Null) => {}
            Some(Value::String(bias)) if bias == "none" => {}
            Some(bias) => return Err(self.fail(format!("bias = {bias} is not supported, only \"none\""))),
        }
        match self.value.get("init_lora_weights") {
            None | Some(Value::Null | Value::Bool(_)) => Ok(()),
            Some(Value::String(kind)) if kind == "gaussian" => Ok(()),
            Some(kind) => Err(self.fail(format!(
                "init_lora_weights = {kind} is not supported: it may have changed the base weights; convert the adapter \
                 to plain LoRA with PEFT first"
            ))),
        }
    }

    fn number(&self, key: &str) -> Result<f64> {
        let number = self.value.get(key).and_then(Value::as_f64);
        number.ok_or_else(|| self.fail(format!("{key} is missing or not a number")))
    }

    fn integer(&self, key: &str) -> Result<usize> {
        let number = self.value.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        number.ok_or_else(|| self.fail(format!("{key} is missing or not a whole number")))
    }

    fn positive(&self, key: &str) -> Result<usize> {
        match self.integer(key)? {
            0 => Err(self.fail(format!("{key} must be at least 1"))),
            n => Ok(n),
        }
    }

    fn flag(&self, key: &str) -> Result<bool> {
        match self.value.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.fail(format!("{key} = {other} is neither true nor false"))),
        }
    }

    fn rank_pattern(&self, init_rank: usize) -> Result<RankPattern> {
        let pattern = match self.value.get("rank_pattern") {
            None | Some(Value::Null) => return Ok(RankPattern::new()),
            Some(Value::Object(pattern)) => pattern,
            Some(_) => return Err(self.fail("rank_pattern is not an object")),
        };
        let mut all = RankPattern::new();
        for (key, value) in pattern {
            let name = key.strip_prefix(super::PREFIX).unwrap_or(key);
            let path = name.strip_suffix(".default").unwrap_or(name).strip_suffix(".lora_E");
            let path = path.ok_or_else(|| self.fail(format!("rank_pattern names {key}, which is no lora_E")))?;
            let kept: Option<Vec<bool>> = value.as_array().and_then(|list| list.iter().map(Value::as_bool).collect());
            match kept {
                Some(kept) if kept.len() == init_rank => all.insert(path.to_owned(), kept),
                _ => return Err(self.fail(format!("rank_pattern of {key} is no list of {init_rank} truth values"))),
            };
        }
        Ok(all)
    }
}
