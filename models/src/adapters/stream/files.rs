//! Directories of kinds on the stream: the PEFT envelope with `"peft_type": "STREAM"`, the kind and its settings in
//! `adapter_config.json`.

use super::{Context, Reduction, SiteSettings, Stream, StreamSite};
use crate::adapters::config::AdapterConfig;
use crate::adapters::{AdapterSet, Placement, registry};
use crate::settings::{self, Table};
use crate::tiny_gpt::files::{fill, to_arrays};
use crate::weights::arrays::{Array, NamedArrays, Precision, parse, serialize};
use crate::weights::hrm_file::{CONFIG_FILE, WEIGHTS_FILE};
use crate::weights::{Result, WeightsError};
use faer::MatRef;
use hankel_io::{Existing, write_folder};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// The value of `peft_type`.
const PEFT_TYPE: &str = "STREAM";
/// Prefix of every tensor's name.
const PREFIX: &str = "base_model.model.";
/// What the envelope has beside the settings.
const ENVELOPE: [&str; 3] = ["peft_type", "task_type", "base_model_name_or_path"];

/// Settings that are numbers of rows of the model's width, beside the size of the kind.
const DIMENSIONS: [&str; 2] = ["state_dim", "value_dim"];
/// Values that may be allocated beyond those in a file: an error that names the missing tensor is better than one about sizes.
const MISSING: usize = 1 << 20;

/// What `adapter_config.json` holds beside the envelope and the settings of sites.
#[derive(Serialize, Deserialize)]
struct Stored {
    kind: String,
    /// Length of the training sequences.
    length: usize,
    /// The kind's own settings.
    settings: Table,
}

/// Whether a file is of the kind called `kind`.
pub(super) fn is_of_kind(file: &Table, kind: &str) -> bool {
    let text = |key: &str| file.get(key).and_then(Value::as_str);
    text("peft_type") == Some(PEFT_TYPE) && text("kind") == Some(kind)
}

pub(super) fn save(set: &AdapterSet, config: &AdapterConfig, directory: &Path, base_model: Option<&str>) -> Result<()> {
    let malformed = |e: String| WeightsError::content(directory, e);
    let common = config.read::<SiteSettings>().map_err(|e| malformed(e.to_string()))?;
    let mut own = config.settings().clone();
    SiteSettings::keys().iter().for_each(|key| drop(own.remove(&key.name)));
    let kind = config.kind().name().to_owned();
    let stored = Stored { kind, length: config.length(), settings: own };
    let [peft_type, task_type, base] = ENVELOPE;
    let mut fields = Table::new();
    fields.insert(peft_type.into(), json!(PEFT_TYPE));
    fields.insert(task_type.into(), json!("CAUSAL_LM"));
    fields.insert(base.into(), json!(base_model));
    fields.extend(settings::write(&common).map_err(|e| malformed(e.to_string()))?);
    fields.extend(settings::write(&stored).map_err(|e| malformed(e.to_string()))?);
    let json = serde_json::to_vec_pretty(&fields).map_err(|e| malformed(e.to_string()))?;
    let mut arrays = to_arrays(&set.parameters()).map_err(|e| malformed(e.to_string()))?;
    for (name, stream) in set.named_streams() {
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

pub(super) fn load(directory: &Path, file: &Table, placement: &Placement) -> Result<AdapterSet> {
    let path = directory.join(CONFIG_FILE);
    let fail = |reason: String| WeightsError::content(&path, reason);
    let own = file.iter().filter(|(key, _)| !ENVELOPE.contains(&key.as_str()));
    let own: Table = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    let common: SiteSettings = settings::read(&own).map_err(|e| fail(e.to_string()))?;
    let Stored { kind, length, settings } = settings::read(&own).map_err(|e| fail(e.to_string()))?;
    let kind = registry::kind(&kind).ok_or_else(|| fail(registry::unknown(&kind)))?;
    let mut given = settings::write(&common).map_err(|e| fail(e.to_string()))?;
    given.extend(settings);
    let context = Context { placement, length, steps: None, pretrained: false };
    kind.check_types(&given, &context).map_err(|e| fail(e.to_string()))?;
    let config = kind.configure(&given, &context).map_err(|e| fail(e.to_string()))?;
    let weights = directory.join(WEIGHTS_FILE);
    let bytes = hankel_io::input::read(&weights)?;
    let mut arrays = parse(&weights, &bytes)?;
    let there: usize = arrays.values().map(|array| array.data.len()).sum();
    for key in kind.size().into_iter().chain(DIMENSIONS) {
        let size = config.settings().get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
        if size.saturating_mul(placement.d_model) > there.saturating_add(MISSING) {
            return Err(fail(format!("{key} = {size}, but {WEIGHTS_FILE} holds {there} values in all")));
        }
    }
    let mut set = AdapterSet::new(&config, placement, 0).map_err(|e| fail(e.to_string()))?;
    set.take_reductions(&mut arrays).map_err(|reason| WeightsError::content(&weights, reason))?;
    fill(&weights, &set.parameters(), &mut arrays, |name| format!("{PREFIX}{name}"))?;
    if set.is_truncated() {
        let frozen = set.parameters().iter().try_for_each(|parameter| parameter.set_trainable(false));
        frozen.map_err(|e| fail(e.to_string()))?;
    }
    Ok(set)
}

impl AdapterSet {
    /// The stream adapters by the names of their modules.
    fn named_streams(&self) -> impl Iterator<Item = (String, &Stream)> {
        let kind = self.config().map_or("", |config| config.kind().name());
        self.layers.iter().enumerate().flat_map(move |(layer, adapters)| {
            let name = move |site: StreamSite| format!("model.layers.{layer}.{}.{kind}", site.module());
            adapters.streams().map(move |(site, stream)| (name(site), stream))
        })
    }

    /// Truncates where `arrays` has the projections `left` [r, d] and `right` [d, r] of a layer.
    fn take_reductions(&mut self, arrays: &mut NamedArrays) -> std::result::Result<(), String> {
        let names: Vec<String> = self.named_streams().map(|(name, _)| name).collect();
        let streams = self.layers.iter_mut().flat_map(|adapters| adapters.stream.values_mut());
        for (name, stream) in names.into_iter().zip(streams) {
            let name = format!("{PREFIX}{name}");
            let (left, right) = (arrays.remove(&format!("{name}.left")), arrays.remove(&format!("{name}.right")));
            let (left, right) = match (left, right) {
                (None, None) => continue,
                (Some(left), Some(right)) => (left, right),
                _ => return Err(format!("only one of {name}.left and {name}.right is there")),
            };
            let system = stream.example().map_err(|e| e.to_string())?;
            let d = system.ok_or("this kind cannot be truncated, but the file has projections")?.rate.shape()[2];
            match (&left.shape[..], &right.shape[..]) {
                (&[r, a], &[b, s]) if r == s && a == d && b == d && r <= d => {}
                (left, right) => {
                    return Err(format!("{name}: projections {left:?} and {right:?} do not fit {d} states"));
                }
            }
            let matrix =
                |array: &Array| MatRef::from_row_major_slice(&array.data, array.shape[0], array.shape[1]).to_owned();
            stream.reduction = Some(Arc::new(Reduction { left: matrix(&left), right: matrix(&right) }));
        }
        Ok(())
    }
}
