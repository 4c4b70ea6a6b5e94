//! Directories of registered kinds: the PEFT envelope with `"peft_type": "STREAM"` and a [`StreamConfig`] in
//! `adapter_config.json`.

use super::{StreamConfig, kind, registry};
use crate::adapters::{AdapterConfig, AdapterSet, Placement};
use crate::tiny_gpt::files::{fill, to_arrays};
use crate::weights::arrays::{parse, serialize};
use crate::weights::atomic::{Existing, write_folder};
use crate::weights::hrm_file::{CONFIG_FILE, WEIGHTS_FILE};
use crate::weights::{Result, WeightsError};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// The value of `peft_type`.
pub(crate) const PEFT_TYPE: &str = "STREAM";
/// Prefix of every tensor's name.
const PREFIX: &str = "base_model.model.";
/// What the envelope has beside the settings.
const ENVELOPE: [&str; 3] = ["peft_type", "task_type", "base_model_name_or_path"];

impl AdapterSet {
    pub(crate) fn save_stream(&self, config: &StreamConfig, directory: &Path, base_model: Option<&str>) -> Result<()> {
        let malformed = |e: serde_json::Error| WeightsError::content(directory, e.to_string());
        let [peft_type, task_type, base] = ENVELOPE;
        let mut fields = Map::new();
        fields.insert(peft_type.into(), json!(PEFT_TYPE));
        fields.insert(task_type.into(), json!("CAUSAL_LM"));
        fields.insert(base.into(), json!(base_model));
        if let Value::Object(settings) = serde_json::to_value(config).map_err(malformed)? {
            fields.extend(settings);
        }
        let json = serde_json::to_vec_pretty(&fields).map_err(malformed)?;
        let arrays = to_arrays(&self.parameters());
        let arrays = arrays.into_iter().map(|(name, array)| (format!("{PREFIX}{name}"), array)).collect();
        write_folder(directory, &[(CONFIG_FILE, &json), (WEIGHTS_FILE, &serialize(&arrays))], Existing::Replace)
    }

    pub(crate) fn load_stream(directory: &Path, value: &Map<String, Value>, placement: &Placement) -> Result<Self> {
        let path = directory.join(CONFIG_FILE);
        let fail = |reason: String| WeightsError::content(&path, reason);
        let own = value.iter().filter(|(key, _)| !ENVELOPE.contains(&key.as_str()));
        let own: Map<String, Value> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        let config: StreamConfig = serde_json::from_value(Value::Object(own)).map_err(|e| fail(e.to_string()))?;
        if kind(&config.kind).is_none() {
            return Err(fail(registry::unknown(&config.kind)));
        }
        let set = AdapterSet::new(&AdapterConfig::Stream(config), placement, 0).map_err(|e| fail(e.to_string()))?;
        let weights = directory.join(WEIGHTS_FILE);
        let bytes = fs::read(&weights).map_err(WeightsError::io("read", &weights))?;
        fill(&weights, &set.parameters(), &mut parse(&weights, &bytes)?, |name| format!("{PREFIX}{name}"))?;
        Ok(set)
    }
}
