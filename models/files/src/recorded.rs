//! States recorded on real data, for empirical Gramians (R7).

use super::arrays::{Array, NamedArrays, Precision, serialize};
use super::error::{Result, WeightsError};
use super::hrm_config::StreamSite;
use super::hrm_file::{layer_label, split_layer};
use super::system_file::parse_arrays;
use faer::Mat;
use hankel_io::{Existing, write_file};
use std::collections::BTreeMap;
use std::path::Path;

/// Recorded states of a layer, for empirical Gramians.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedStates {
    /// [N T, d].
    pub states: Mat<f64>,
    /// Length T of each sequence.
    pub steps: usize,
}

/// States of one adapter of one layer along N sequences of T steps.
#[derive(Debug, Clone, PartialEq)]
pub struct StateRecord {
    /// Index of the layer.
    pub layer: usize,
    /// Sub-layer the adapter sits at.
    pub site: StreamSite,
    /// Extents N, T, d.
    pub shape: [usize; 3],
    /// Row-major [N, T, d].
    pub states: Vec<f32>,
}

impl StateRecord {
    /// Writes the records of all layers to a new file: one f32 tensor [N, T, d] per layer named `layers.N.mlp.states`.
    pub fn save_all(path: &Path, records: &[Self]) -> Result<()> {
        let arrays: NamedArrays = records
            .iter()
            .map(|r| {
                let data = r.states.iter().map(|&v| f64::from(v)).collect();
                let name = format!("layers.{}.{}.states", r.layer, r.site.module());
                (name, Array::new(r.shape.to_vec(), data, Precision::F32))
            })
            .collect();
        Ok(write_file(path, &serialize(&arrays), Existing::Refuse)?)
    }
}

/// Reads recorded states by the label of their layer; a plain system's are an array `states`.
///
/// # Errors
/// Names or shapes other than those [`StateRecord::save_all`] writes.
pub fn recorded_states(path: &Path) -> Result<BTreeMap<String, RecordedStates>> {
    let bytes = hankel_io::input::read(path)?;
    let mut out = BTreeMap::new();
    for (name, array) in parse_arrays(path, &bytes)? {
        let label = label_of(&name).ok_or_else(|| {
            let expected = "expected names like layers.0.mlp.states, or `states` for a plain system";
            WeightsError::content(path, format!("unexpected array {name}; {expected}"))
        })?;
        let [sequences, steps, states] = array.shape[..] else {
            return Err(WeightsError::content(
                path,
                format!("{name} has shape {:?}, expected [sequences, steps, states]", array.shape),
            ));
        };
        if sequences * steps == 0 {
            return Err(WeightsError::content(path, format!("{name} has shape {:?}: no steps", array.shape)));
        }
        let states = Mat::from_fn(sequences * steps, states, |i, j| array.data[i * states + j]);
        out.insert(label, RecordedStates { states, steps });
    }
    Ok(out)
}

fn label_of(name: &str) -> Option<String> {
    if name == "states" {
        return Some("system".into());
    }
    let (layer, site, rest) = split_layer(name.strip_prefix("layers.")?)?;
    (rest == "states").then(|| layer_label(layer, site))
}
