//! Directories of registered kinds: the PEFT envelope with `"peft_type": "STREAM"` and a [`StreamConfig`] in
//! `adapter_config.json`.

use super::{Attached, Reduction, Stream, StreamConfig, kind, registry};
use crate::adapters::{AdapterConfig, AdapterSet, Placement};
use crate::tiny_gpt::files::{fill, to_arrays};
use crate::weights::arrays::{Array, NamedArrays, Precision, parse, serialize};
use crate::weights::hrm_file::{CONFIG_FILE, WEIGHTS_FILE};
use crate::weights::{Result, WeightsError};
use faer::MatRef;
use hankel_io::{Existing, write_folder};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;

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
        let mut arrays = arrays.map_err(|e| WeightsError::content(directory, e.to_string()))?;
        for (name, stream) in self.attached() {
            let Some(reduction) = &stream.reduction else { continue };
            for (entry, matrix) in [("left", &reduction.left), ("right", &reduction.right)] {
                let (rows, columns) = (matrix.nrows(), matrix.ncols());
                let data = (0..rows * columns).map(|i| matrix[(i / columns, i % columns)]).collect();
                arrays.insert(format!("{name}.{entry}"), Array::new(vec![rows, columns], data, Precision::F64));
            }
        }
        let arrays = arrays.into_iter().map(|(name, array)| (format!("{PREFIX}{name}"), array)).collect();
        Ok(write_folder(directory, &[(CONFIG_FILE, &json), (WEIGHTS_FILE, &serialize(&arrays))], Existing::Replace)?)
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
        let mut set = AdapterSet::new(&AdapterConfig::Stream(config), placement, 0).map_err(|e| fail(e.to_string()))?;
        let weights = directory.join(WEIGHTS_FILE);
        let bytes = hankel_io::input::read(&weights)?;
        let mut arrays = parse(&weights, &bytes)?;
        set.take_reductions(&mut arrays).map_err(|reason| WeightsError::content(&weights, reason))?;
        fill(&weights, &set.parameters(), &mut arrays, |name| format!("{PREFIX}{name}"))?;
        if set.is_truncated() {
            let frozen = set.parameters().iter().try_for_each(|parameter| parameter.set_trainable(false));
            frozen.map_err(|e| fail(e.to_string()))?;
        }
        Ok(set)
    }

    /// The adapters of registered kinds by the names of their modules.
    fn attached(&self) -> impl Iterator<Item = (String, &Attached)> {
        let layers = self.layers.iter().enumerate();
        let all =
            layers.flat_map(|(layer, adapters)| adapters.streams().map(move |(site, stream)| (layer, site, stream)));
        all.filter_map(move |(layer, site, stream)| match (stream, self.config()) {
            (Stream::Attached(attached), AdapterConfig::Stream(config)) => {
                Some((format!("model.layers.{layer}.{}.{}", site.module(), config.kind), attached))
            }
            _ => None,
        })
    }

    /// Truncates where `arrays` has the projections `left` [r, d] and `right` [d, r] of a layer.
    fn take_reductions(&mut self, arrays: &mut NamedArrays) -> std::result::Result<(), String> {
        let names: Vec<String> = self.attached().map(|(name, _)| name).collect();
        let streams = self.layers.iter_mut().flat_map(|adapters| adapters.stream.values_mut());
        for (name, stream) in names.into_iter().zip(streams) {
            let name = format!("{PREFIX}{name}");
            let (left, right) = (arrays.remove(&format!("{name}.left")), arrays.remove(&format!("{name}.right")));
            let (left, right) = match (left, right) {
                (None, None) => continue,
                (Some(left), Some(right)) => (left, right),
                _ => return Err(format!("only one of {name}.left and {name}.right is there")),
            };
            let Stream::Attached(attached) = stream else { continue };
            let system = attached.example().map_err(|e| e.to_string())?;
            let d = system.ok_or("this kind cannot be truncated, but the file has projections")?.rate.shape()[2];
            match (&left.shape[..], &right.shape[..]) {
                (&[r, a], &[b, s]) if r == s && a == d && b == d && r <= d => {}
                (left, right) => {
                    return Err(format!("{name}: projections {left:?} and {right:?} do not fit {d} states"));
                }
            }
            let matrix =
                |array: &Array| MatRef::from_row_major_slice(&array.data, array.shape[0], array.shape[1]).to_owned();
            attached.reduction = Some(Arc::new(Reduction { left: matrix(&left), right: matrix(&right) }));
        }
        Ok(())
    }
}
