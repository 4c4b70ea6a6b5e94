//! How much an error of each layer's output can change a task's loss, as a file.

use super::error::{Result, WeightsError};
use super::hrm_file::sha256;
use super::weight_file::WeightFile;
use hankel_io::{Existing, write_file};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What `train eval --record-gradients` writes.
///
/// With `g_s` the gradient of the mean loss by a layer's output along sequence s and `u_s` what the layer reads there, an error E of its
/// transfer function changes the loss, to first order, by at most `sensitivity ||E||`, `sensitivity = sum_s ||g_s|| ||u_s||`, in the
/// H-infinity norm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitivities {
    /// Version of this format.
    pub format: u32,
    /// SHA-256 of the adapter's weights.
    pub adapter: String,
    /// Sequences that were read.
    pub sequences: usize,
    /// Their mean loss.
    pub loss: f64,
    /// Layer by layer.
    pub layers: Vec<LayerSensitivity>,
}

/// The sensitivity of one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSensitivity {
    /// `layer 3`.
    pub layer: String,
    /// Loss per unit of error.
    pub sensitivity: f64,
}

/// Name of the file in a run directory.
pub const SENSITIVITY_FILE: &str = "gradients.json";

impl Sensitivities {
    /// The version of the format that is written and read.
    pub const FORMAT: u32 = 1;

    /// Reads a file, or [`SENSITIVITY_FILE`] of a run directory.
    ///
    /// # Errors
    /// A file that is something else; sensitivities that are negative or not finite.
    pub fn read(path: &Path) -> Result<(Self, WeightFile)> {
        let path = if path.is_dir() { &path.join(SENSITIVITY_FILE) } else { path };
        if !path.exists() {
            let reason = "it does not exist; `train eval RUN --adapter NAME --record-gradients FILE` writes it";
            return Err(WeightsError::content(path, reason.to_owned()));
        }
        let bytes = hankel_io::input::read(path)?;
        let found: Self = serde_json::from_slice(&bytes).map_err(|error| {
            WeightsError::content(path, format!("it is not what `train eval --record-gradients` writes: {error}"))
        })?;
        if found.format != Self::FORMAT {
            let reason = format!("it has format {}, this program knows format {}", found.format, Self::FORMAT);
            return Err(WeightsError::content(path, reason));
        }
        if let Some(layer) = found.layers.iter().find(|l| !(l.sensitivity >= 0.0 && l.sensitivity.is_finite())) {
            let reason = format!(
                "the sensitivity of {} is {}; it must be finite and not negative",
                layer.layer, layer.sensitivity
            );
            return Err(WeightsError::content(path, reason));
        }
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok((found, WeightFile { file: name, sha256: sha256(&bytes) }))
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// When the file exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| WeightsError::content(path, format!("it cannot be written: {error}")))?;
        json.push(b'\n');
        Ok(write_file(path, &json, Existing::Refuse)?)
    }

    /// That of a layer.
    pub fn of(&self, label: &str) -> Option<f64> {
        self.layers.iter().find(|layer| layer.layer == label).map(|layer| layer.sensitivity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_back_and_nonsense_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let layer = |sensitivity| LayerSensitivity { layer: "layer 2".into(), sensitivity };
        let some = |sensitivity| Sensitivities {
            format: Sensitivities::FORMAT,
            adapter: "00".into(),
            sequences: 3,
            loss: 1.5,
            layers: vec![layer(sensitivity)],
        };
        some(0.1).save(&folder.path().join(SENSITIVITY_FILE)).unwrap();
        let (read, file) = Sensitivities::read(folder.path()).unwrap();
        assert_eq!(
            (&read, file.file.as_str(), read.of("layer 2"), read.of("layer 1")),
            (&some(0.1), SENSITIVITY_FILE, Some(0.1), None)
        );
        assert!(some(0.2).save(&folder.path().join(SENSITIVITY_FILE)).is_err(), "a file that exists is left alone");
        let refused = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Sensitivities::read(&path).unwrap_err().to_string()
        };
        assert!(refused("a", "{}").contains("--record-gradients"));
        assert!(refused("b", &serde_json::to_string(&some(-0.1)).unwrap()).contains("layer 2 is -0.1"));
        let newer = serde_json::to_string(&Sensitivities { format: 2, ..some(0.1) }).unwrap();
        assert!(refused("c", &newer).contains("format 2"));
    }
}
