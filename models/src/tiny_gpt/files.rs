//! A `TinyGPT` on disk: `config.json` (its sizes, with `"model_type": "tiny_gpt"`) and `model.safetensors`.

use super::{TinyGpt, TinyGptConfig};
use crate::backbone::Backbone;
use crate::parameter::Parameter;
use crate::settings;
use crate::weights::arrays::{Array, NamedArrays, Precision, parse, serialize};
use crate::weights::{Result, WeightsError};
use hankel_core::{DType, Device, Tensor};
use hankel_io::{Existing, write_folder};
use serde::{Deserialize, Serialize};
use std::path::Path;

const CONFIG_FILE: &str = "config.json";
const WEIGHTS_FILE: &str = "model.safetensors";
const MODEL_TYPE: &str = "tiny_gpt";

#[derive(Serialize, Deserialize)]
struct Envelope {
    model_type: String,
    #[serde(flatten)]
    config: serde_json::Map<String, serde_json::Value>,
}

impl TinyGpt {
    /// Writes the directory, all or nothing, replacing one that is there.
    ///
    /// # Errors
    /// When it cannot be written; what was there is still there then.
    pub fn save(&self, directory: &Path) -> Result<()> {
        self.write(directory, Existing::Replace)
    }

    /// As [`TinyGpt::save`], where nothing is yet.
    ///
    /// # Errors
    /// When it cannot be written, or something is there.
    pub fn save_new(&self, directory: &Path) -> Result<()> {
        self.write(directory, Existing::Refuse)
    }

    fn write(&self, directory: &Path, existing: Existing) -> Result<()> {
        let path = directory.join(CONFIG_FILE);
        let malformed = |e: serde_json::Error| WeightsError::content(&path, e.to_string());
        let serde_json::Value::Object(config) = serde_json::to_value(self.config()).map_err(malformed)? else {
            return Err(WeightsError::content(&path, "the configuration is not an object"));
        };
        let envelope = Envelope { model_type: MODEL_TYPE.to_owned(), config };
        let config = serde_json::to_vec_pretty(&envelope).map_err(malformed)?;
        let arrays = to_arrays(&self.parameters()).map_err(|e| WeightsError::content(directory, e.to_string()))?;
        let weights = serialize(&arrays);
        Ok(write_folder(directory, &[(CONFIG_FILE, &config), (WEIGHTS_FILE, &weights)], existing)?)
    }

    /// Reads the sizes alone.
    ///
    /// # Errors
    /// When the file is missing, malformed or of another model.
    pub fn load_config(directory: &Path) -> Result<TinyGptConfig> {
        let path = directory.join(CONFIG_FILE);
        let bytes = hankel_io::input::read(&path)?;
        let envelope: Envelope =
            serde_json::from_slice(&bytes).map_err(|e| WeightsError::content(&path, e.to_string()))?;
        if envelope.model_type != MODEL_TYPE {
            let reason = format!(
                "the model type is {:?}, expected {MODEL_TYPE:?}; a [backbone] of another family has `kind = \"decoder\"` and `model = ...`",
                envelope.model_type
            );
            return Err(WeightsError::content(&path, reason));
        }
        let malformed = |e: serde_json::Error| WeightsError::content(&path, e.to_string());
        let all = serde_json::to_value(TinyGptConfig::default()).map_err(malformed)?;
        let mut keys = all.as_object().into_iter().flatten().map(|(key, _)| key);
        if let Some(missing) = keys.find(|key| !envelope.config.contains_key(*key)) {
            return Err(WeightsError::content(&path, format!("missing field `{missing}`")));
        }
        let config: TinyGptConfig =
            settings::read(&envelope.config).map_err(|e| WeightsError::content(&path, e.to_string()))?;
        config.check().map_err(|problem| WeightsError::content(&path, problem))?;
        Ok(config)
    }

    /// Reads a model. Every tensor must be there with its shape, and no other. Parameters stored in f64 are f64, others f32.
    ///
    /// # Errors
    /// When a file is missing or malformed, or a tensor is missing, superfluous, misshapen or not finite.
    pub fn load(directory: &Path) -> Result<Self> {
        let config = Self::load_config(directory)?;
        let path = directory.join(WEIGHTS_FILE);
        let bytes = hankel_io::input::read(&path)?;
        let mut arrays = parse(&path, &bytes)?;
        let model = Self::new(&config, 0).map_err(|e| WeightsError::content(&path, e.to_string()))?;
        fill(&path, &model.parameters(), &mut arrays, str::to_owned)?;
        Ok(model)
    }
}

/// The values of `parameters` by name.
///
/// # Errors
/// When they are on a device that has failed.
pub(crate) fn to_arrays(parameters: &[Parameter]) -> hankel_core::Result<NamedArrays> {
    let array = |parameter: &Parameter| {
        let tensor = parameter.tensor().to_device(Device::Cpu)?;
        let precision = if tensor.dtype() == DType::F64 { Precision::F64 } else { Precision::F32 };
        Ok((parameter.name().to_owned(), Array::new(tensor.shape().to_vec(), tensor.to_f64_vec(), precision)))
    };
    parameters.iter().map(array).collect()
}

/// Gives every parameter the array that `file_name` maps its name to, and makes it f64 where that is; nothing may be left over.
pub(crate) fn fill(
    path: &Path,
    parameters: &[Parameter],
    arrays: &mut NamedArrays,
    file_name: impl Fn(&str) -> String,
) -> Result<()> {
    for parameter in parameters {
        let name = file_name(parameter.name());
        let array =
            arrays.remove(&name).ok_or_else(|| WeightsError::content(path, format!("tensor {name} is missing")))?;
        let expected = parameter.tensor().shape().clone();
        if array.shape != expected[..] {
            let reason = format!("tensor {name} has shape {:?}, expected {expected}", array.shape);
            return Err(WeightsError::content(path, reason));
        }
        let double = array.precision == Precision::F64;
        let value = Tensor::from_vec(array.data, array.shape);
        let stored = value.and_then(|value| {
            if double {
                parameter.to_dtype(DType::F64)?;
            }
            parameter.set(&value)
        });
        stored.map_err(|e| WeightsError::content(path, format!("tensor {name}: {e}")))?;
    }
    match arrays.keys().next() {
        Some(extra) => Err(WeightsError::content(path, format!("tensor {extra} does not belong to this model"))),
        None => Ok(()),
    }
}
