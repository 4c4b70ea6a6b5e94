//! Weights of inputs and outputs as files: one system for all layers, or one per layer.

use super::arrays::{NamedArrays, serialize};
use super::error::{Result, WeightsError};
use super::hrm_config::StreamSite;
use super::hrm_file::{layer_label, sha256, split_layer};
use super::system_file::{StoredSystem, parse_arrays, system_arrays};
use hankel_io::{Existing, write_file};
use hankel_lti::{LinearSystem, LtiError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Weights by the label of their layer (`layer 3`), or one for all.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are two of them")]
pub enum WeightSet {
    /// The same everywhere.
    All(LinearSystem),
    /// One each.
    PerLayer(BTreeMap<String, LinearSystem>),
}

/// Which file a weight came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFile {
    /// Its name, without the folder.
    pub file: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

impl WeightSet {
    /// Reads a system file (`A`, `B`, `C`[, `D`][, `dt`]), or one that [`save_weights`] wrote. `prepare` makes a stable system in discrete
    /// time of what is stored: [`StoredSystem::system`] where nothing runs in continuous time.
    ///
    /// # Errors
    /// Arrays that are missing, unexpected or misshapen, by name; what `prepare` refuses.
    pub fn read(
        path: &Path,
        prepare: impl Fn(&StoredSystem) -> std::result::Result<LinearSystem, LtiError>,
    ) -> Result<(Self, WeightFile)> {
        let bytes = hankel_io::input::read(path)?;
        let of = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let file = WeightFile { file: of, sha256: sha256(&bytes) };
        let arrays = parse_arrays(path, &bytes)?;
        let system = |what: &str, arrays: NamedArrays| {
            let stored = StoredSystem::parse(path, arrays)?;
            prepare(&stored).map_err(|reason| WeightsError::content(path, format!("{what}: {reason}")))
        };
        if !arrays.keys().any(|name| name.starts_with(PREFIX)) {
            return Ok((Self::All(system("the weight", arrays)?), file));
        }
        let mut layers: BTreeMap<String, NamedArrays> = BTreeMap::new();
        for (name, array) in arrays {
            let Some((label, entry)) = entry_of(&name) else {
                return Err(WeightsError::content(
                    path,
                    format!("unexpected array {name}; the weights of layers have names like layers.0.mlp.weight.A"),
                ));
            };
            layers.entry(label).or_default().insert(entry, array);
        }
        let layers = layers.into_iter().map(|(label, arrays)| {
            let weight = system(&label, arrays)?;
            Ok((label, weight))
        });
        Ok((Self::PerLayer(layers.collect::<Result<_>>()?), file))
    }

    /// All weights.
    pub fn systems(&self) -> impl Iterator<Item = &LinearSystem> {
        let (all, layers) = match self {
            Self::All(weight) => (Some(weight), None),
            Self::PerLayer(layers) => (None, Some(layers)),
        };
        all.into_iter().chain(layers.into_iter().flat_map(BTreeMap::values))
    }

    /// The weight of a layer, if there is one.
    pub fn of(&self, label: &str) -> Option<&LinearSystem> {
        match self {
            Self::All(weight) => Some(weight),
            Self::PerLayer(layers) => layers.get(label),
        }
    }
}

/// Writes one weight per layer to a new file: the arrays of a system under names like `layers.0.mlp.weight.A`, in f64.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn save_weights(path: &Path, weights: &[(usize, StreamSite, LinearSystem)]) -> Result<()> {
    let mut named = NamedArrays::new();
    for (layer, site, weight) in weights {
        for (name, array) in system_arrays(weight) {
            named.insert(format!("{PREFIX}{layer}.{}.weight.{name}", site.module()), array);
        }
    }
    Ok(write_file(path, &serialize(&named), Existing::Refuse)?)
}

const PREFIX: &str = "layers.";

/// The label of the layer, and `A`, `B`, `C` or `D`.
fn entry_of(name: &str) -> Option<(String, String)> {
    let (layer, site, rest) = split_layer(name.strip_prefix(PREFIX)?)?;
    Some((layer_label(layer, site), rest.strip_prefix("weight.")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_file::arrays_to_bytes;
    use faer::Mat;
    use hankel_lti::StateMatrix;

    #[test]
    fn weights_survive_their_file_and_nonsense_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.safetensors");
        let weight = |pole| {
            let a = StateMatrix::Dense(Mat::from_fn(2, 2, |i, j| if i == j { pole } else { 0.1 * j as f64 }));
            LinearSystem::new(a, Mat::identity(2, 2), Mat::identity(2, 2), Some(Mat::identity(2, 2))).unwrap()
        };
        let weights = [(0, StreamSite::Mlp, weight(0.5)), (3, StreamSite::Attention, weight(0.25))];
        save_weights(&path, &weights).unwrap();
        let (set, file) = WeightSet::read(&path, StoredSystem::system).unwrap();
        assert_eq!((file.file.as_str(), file.sha256.len()), ("weights.safetensors", 64));
        for (layer, site, weight) in &weights {
            assert_eq!(set.of(&layer_label(*layer, *site)), Some(weight));
        }
        assert_eq!(set.of("layer 1"), None);
        assert!(save_weights(&path, &weights).is_err(), "a file that exists is left alone");

        let m = Mat::<f64>::identity(2, 2);
        let error = |name: &str, arrays: &[(&str, f64)]| {
            let path = folder.path().join(name);
            let scaled: Vec<_> = arrays.iter().map(|(name, by)| (*name, &m * faer::Scale(*by))).collect();
            let arrays: Vec<_> = scaled.iter().map(|(name, m)| (*name, m.as_ref())).collect();
            std::fs::write(&path, arrays_to_bytes(&path, &arrays).unwrap()).unwrap();
            WeightSet::read(&path, StoredSystem::system).unwrap_err().to_string()
        };
        assert!(error("a.npz", &[("layers.0.mlp.states", 1.0)]).contains("names like layers.0.mlp.weight.A"));
        assert!(error("d.npz", &[("layers.00.mlp.weight.A", 0.5)]).contains("names like layers.0.mlp.weight.A"));
        assert!(error("b.npz", &[("layers.0.mlp.weight.A", 0.5)]).contains("the array B is missing"));
        let unstable = [("A", 1.5), ("B", 1.0), ("C", 1.0)];
        assert!(error("c.npz", &unstable).contains("the weight: the system is not stable"));
    }
}
