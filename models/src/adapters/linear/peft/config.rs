//! `adapter_config.json`: the envelope, and what kinds read from it.

use super::targets::Targets;
use crate::adapters::placement::{ALL_LINEAR, Placement};
use crate::settings::Table;
use crate::weights::{Result, WeightsError};
use serde_json::{Value, json};
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
    "eva_config",
    "corda_config",
    "runtime_config",
    "ensure_weight_tying",
    "fan_in_fan_out",
];
/// Settings of where adapters are.
const SITES: &[&str] =
    &["target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "feedforward_modules"];

/// Values of `init_lora_weights` beside true and false that leave the weights of the model as they were.
const HARMLESS_STARTS: &[&str] = &["gaussian", "eva", "orthogonal"];

/// What every kind writes.
pub(super) fn envelope(peft_type: &str, targets: &[String], base_model: Option<&str>) -> Table {
    let targets = if targets.iter().any(|t| t == ALL_LINEAR) { json!(ALL_LINEAR) } else { json!(targets) };
    let fields = [
        ("peft_type", json!(peft_type)),
        ("task_type", json!("CAUSAL_LM")),
        ("auto_mapping", Value::Null),
        ("base_model_name_or_path", json!(base_model)),
        ("revision", Value::Null),
        ("inference_mode", json!(true)),
        ("target_modules", targets),
        ("fan_in_fan_out", json!(false)),
        ("modules_to_save", Value::Null),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Whole numbers without a point, as PEFT's users write them.
pub(crate) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}

/// The fields of a file, for a backbone with certain sites.
pub struct Fields<'a> {
    path: &'a Path,
    value: &'a Table,
    placement: &'a Placement,
}

impl<'a> Fields<'a> {
    pub(super) fn new(path: &'a Path, value: &'a Table, placement: &'a Placement) -> Self {
        Fields { path, value, placement }
    }

    /// The value of a field.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key)
    }

    /// The targets of `target_modules` and what narrows them, as [`Placement::select`] reads them. Names that match
    /// nothing are left out.
    ///
    /// # Errors
    /// When none is left, or one is of the head or the embedding.
    pub fn targets(&self) -> Result<Vec<String>> {
        Targets { path: self.path, value: self.value, placement: self.placement }.read()
    }

    /// The paths of the projections that `targets` name.
    ///
    /// # Errors
    /// When a target matches nothing.
    pub fn paths(&self, targets: &[String]) -> Result<Vec<String>> {
        let selected = self.placement.select(targets).map_err(|e| self.fail(e.to_string()))?;
        Ok(selected.into_iter().map(|(layer, site)| site.path(layer)).collect())
    }

    /// The targets of `feedforward_modules` without names that match nothing.
    ///
    /// # Errors
    /// When there are some and none is left.
    pub fn feedforward(&self) -> Result<Vec<String>> {
        Targets { path: self.path, value: self.value, placement: self.placement }.feedforward()
    }

    /// An error about the file.
    pub fn fail(&self, reason: impl Into<String>) -> WeightsError {
        WeightsError::content(self.path, reason)
    }

    /// Refuses a setting that is on and that is neither neutral nor in `known`.
    ///
    /// # Errors
    /// Names the setting.
    pub fn refuse_others(&self, known: &[&str]) -> Result<()> {
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

    /// What files of LoRA and its relatives must have: an initialisation that left the weights as they were. Biases that were trained are
    /// tensors that the adapter does not have; a model without any has none, whatever `bias` says.
    ///
    /// # Errors
    /// Names the setting.
    pub fn check_bias_and_initialization(&self) -> Result<()> {
        match self.value.get("bias") {
            None | Some(Value::Null) => {}
            Some(Value::String(bias)) if ["none", "all", "lora_only"].contains(&&**bias) => {}
            Some(bias) => {
                return Err(self.fail(format!("bias = {bias} is none of \"none\", \"all\" and \"lora_only\"")));
            }
        }
        match self.value.get("init_lora_weights") {
            None | Some(Value::Null | Value::Bool(_)) => Ok(()),
            Some(Value::String(kind)) if HARMLESS_STARTS.contains(&kind.as_str()) => Ok(()),
            Some(Value::String(kind)) if kind == "loftq" => Err(self.fail(
                "init_lora_weights = \"loftq\" is not supported: it has changed the base weights; merge the adapter into them with PEFT, or \
                 say `true` where the model is the one that PEFT saved with it",
            )),
            Some(kind) => Err(self.fail(format!(
                "init_lora_weights = {kind} is not supported: it may have changed the base weights; convert the adapter \
                 to plain LoRA with PEFT first"
            ))),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// When it is missing or something else.
    pub fn number(&self, key: &str) -> Result<f64> {
        let number = self.value.get(key).and_then(Value::as_f64);
        number.ok_or_else(|| self.fail(format!("{key} is missing or not a number")))
    }

    /// A number, or `usual` when it is not there.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number_or(&self, key: &str, usual: f64) -> Result<f64> {
        match self.value.get(key) {
            None | Some(Value::Null) => Ok(usual),
            Some(_) => self.number(key),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// When it is missing or something else.
    pub fn integer(&self, key: &str) -> Result<usize> {
        let number = self.value.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        number.ok_or_else(|| self.fail(format!("{key} is missing or not a whole number")))
    }

    /// A whole number of at least 1.
    ///
    /// # Errors
    /// When it is missing or something else.
    pub fn positive(&self, key: &str) -> Result<usize> {
        match self.integer(key)? {
            0 => Err(self.fail(format!("{key} must be at least 1"))),
            n => Ok(n),
        }
    }

    /// A truth value, false when it is not there.
    ///
    /// # Errors
    /// When it is neither true nor false.
    pub fn flag(&self, key: &str) -> Result<bool> {
        match self.value.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.fail(format!("{key} = {other} is neither true nor false"))),
        }
    }
}
