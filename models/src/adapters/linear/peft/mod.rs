//! PEFT directories of adapters at linear sites: `adapter_config.json` and `adapter_model.safetensors` as the Python library
//! `peft` writes and reads them.
//!
//! Strict: a tensor that is missing, superfluous, misshapen or not finite is named, and so is a setting whose effect is not
//! implemented. Settings that are off (null, false, empty) are ignored whatever their name, so that files of later versions
//! load as long as they use nothing new.

mod config;
mod targets;

pub use config::Fields;
pub(crate) use config::number;

use super::LinearKind;
use crate::adapters::AdapterSet;
use crate::adapters::config::AdapterConfig;
use crate::adapters::placement::Placement;
use crate::settings::Table;
use crate::tiny_gpt::files::{fill, to_arrays};
use crate::weights::arrays::{parse, serialize};
use crate::weights::hrm_file::{CONFIG_FILE, WEIGHTS_FILE};
use crate::weights::{Result, WeightsError};
use hankel_io::{Existing, write_folder};
use std::path::Path;

/// Prefix of every tensor's name.
pub(crate) const PREFIX: &str = "base_model.model.";

pub(super) fn save<K: LinearKind>(
    set: &AdapterSet,
    config: &AdapterConfig,
    directory: &Path,
    base_model: Option<&str>,
) -> Result<()> {
    let fail = |e: String| WeightsError::content(directory, e);
    let settings: K::Settings = config.read().map_err(|e| fail(e.to_string()))?;
    let mut fields = config::envelope(K::PEFT_TYPE, K::targets(&settings), base_model);
    fields.extend(K::write_peft(&settings));
    K::fit_peft(&settings, &set.linears().map(|(path, _)| path).collect::<Vec<_>>(), &mut fields);
    let mut arrays = to_arrays(&set.parameters()).map_err(|e| fail(e.to_string()))?;
    if let Some(training) = &set.training {
        training.finish(&mut fields, &mut arrays);
    }
    let fields = serde_json::to_vec_pretty(&fields).map_err(|e| fail(e.to_string()))?;
    let arrays = arrays.into_iter().map(|(name, array)| (file_name(&name), array)).collect();
    Ok(write_folder(directory, &[(CONFIG_FILE, &fields), (WEIGHTS_FILE, &serialize(&arrays))], Existing::Replace)?)
}

/// Name of a parameter's tensor in files.
fn file_name(parameter: &str) -> String {
    format!("{PREFIX}{parameter}")
}

/// What old versions of PEFT write in place of safetensors.
const PICKLED: &str = "adapter_model.bin";

pub(super) fn load<K: LinearKind>(directory: &Path, file: &Table, placement: &Placement) -> Result<AdapterSet> {
    let config_path = directory.join(CONFIG_FILE);
    let fields = Fields::new(&config_path, file, placement);
    let settings = K::read_peft(&fields)?;
    K::check(&settings).map_err(|e| fields.fail(e.to_string()))?;
    let path = directory.join(WEIGHTS_FILE);
    if !path.exists() && directory.join(PICKLED).is_file() {
        let reason = format!("has {PICKLED}, which may run code and is not read: save it with PEFT as safetensors");
        return Err(WeightsError::content(directory, reason));
    }
    let bytes = hankel_io::input::read(&path)?;
    let mut arrays = parse(&path, &bytes)?;
    K::check_arrays(&settings, &arrays).map_err(|reason| WeightsError::content(&path, reason))?;
    let config = AdapterConfig::linear::<K>(&settings);
    let set = AdapterSet::build(&config, placement, 0).map_err(|e| fields.fail(e.to_string()))?;
    fill(&path, &set.parameters(), &mut arrays, file_name)?;
    Ok(set)
}
