//! PEFT directories of adapters at linear sites: `adapter_config.json` and `adapter_model.safetensors` as the Python library
//! `peft` writes and reads them.
//!
//! Strict: a tensor that is missing, superfluous, misshapen or not finite is named, and so is a setting whose effect is not
//! implemented. Settings that are off (null, false, empty) are ignored whatever their name, so that files of later versions
//! load as long as they use nothing new.

mod config;
mod targets;

use super::adalora::Allocator;
use super::{AdapterConfig, AdapterSet, Placement};
use crate::tiny_gpt::files::{fill, to_arrays};
use crate::weights::arrays::{Array, NamedArrays, parse, serialize};
use crate::weights::hrm_file::{CONFIG_FILE, WEIGHTS_FILE};
use crate::weights::{Result, WeightsError};
use hankel_io::{Existing, write_folder};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Prefix of every tensor's name.
const PREFIX: &str = "base_model.model.";

/// Which of the `init_rank` triplets of each projection are kept, by path.
type RankPattern = BTreeMap<String, Vec<bool>>;

impl AdapterSet {
    pub(super) fn save_peft(&self, directory: &Path, base_model: Option<&str>) -> Result<()> {
        let (kept, pruned) = self.allocator.kept();
        let config = config::write(self.config(), &kept, base_model);
        let config = serde_json::to_vec_pretty(&config).map_err(|e| WeightsError::content(directory, e.to_string()))?;
        let arrays = to_arrays(&self.parameters());
        let mut arrays = arrays.map_err(|e| WeightsError::content(directory, e.to_string()))?;
        if !pruned {
            kept.iter().for_each(|(path, kept)| prune(&mut arrays, path, kept));
        }
        let arrays = arrays.into_iter().map(|(name, array)| (format!("{PREFIX}{name}"), array)).collect();
        Ok(write_folder(directory, &[(CONFIG_FILE, &config), (WEIGHTS_FILE, &serialize(&arrays))], Existing::Replace)?)
    }

    pub(super) fn load_peft(directory: &Path, value: &Map<String, Value>, placement: &Placement) -> Result<Self> {
        let (config, pattern) = config::read(&directory.join(CONFIG_FILE), value, placement)?;
        let path = directory.join(WEIGHTS_FILE);
        let bytes = hankel_io::input::read(&path)?;
        let mut arrays = parse(&path, &bytes)?;
        check_rank(&path, &config, &pattern, &arrays)?;
        let rank = |path: &str, rank| pattern.get(path).map_or(rank, |kept| kept.iter().filter(|k| **k).count());
        let mut set = Self::build(&config, placement, 0, rank)
            .map_err(|e| WeightsError::content(directory.join(CONFIG_FILE), e.to_string()))?;
        if let AdapterConfig::AdaLora(_) = &config
            && !pattern.is_empty()
        {
            let (adapted, named): (Vec<&str>, Vec<&String>) =
                (set.linears().map(|(path, _)| path).collect(), pattern.keys().collect());
            if adapted.iter().any(|path| !pattern.contains_key(*path)) || adapted.len() != named.len() {
                let reason = "rank_pattern does not name the projections of target_modules";
                return Err(WeightsError::content(directory.join(CONFIG_FILE), reason));
            }
            set.allocator = Allocator::pruned(pattern);
        }
        fill(&path, &set.parameters(), &mut arrays, |name| format!("{PREFIX}{name}"))?;
        Ok(set)
    }
}

/// Refuses a rank above those of the file before memory is taken for it.
fn check_rank(path: &Path, config: &AdapterConfig, pattern: &RankPattern, arrays: &NamedArrays) -> Result<()> {
    let rank = match config {
        AdapterConfig::Lora(config) => config.rank,
        AdapterConfig::AdaLora(config) if pattern.is_empty() => config.init_rank,
        _ => return Ok(()),
    };
    let factors = arrays.iter().filter(|(name, array)| name.contains(".lora_A") && array.shape.len() == 2);
    let reason = match factors.max_by_key(|(_, array)| array.shape[0]) {
        None => "there is no tensor lora_A".to_owned(),
        Some((name, array)) if array.shape[0] < rank => {
            format!("tensor {name} has shape {:?}, expected {rank} rows", array.shape)
        }
        Some(_) => return Ok(()),
    };
    Err(WeightsError::content(path, reason))
}

/// Leaves out the triplets of the projection at `path` that are not kept.
fn prune(arrays: &mut NamedArrays, path: &str, kept: &[bool]) {
    let count = kept.iter().filter(|kept| **kept).count();
    for (factor, rows) in [("lora_A", true), ("lora_E", true), ("lora_B", false)] {
        let Some(array) = arrays.get_mut(&format!("{path}.{factor}")) else { continue };
        let width = array.shape[1];
        let stays = |index: usize| kept[if rows { index / width.max(1) } else { index % width.max(1) }];
        let data = array.data.iter().enumerate().filter(|(i, _)| stays(*i)).map(|(_, &x)| x).collect();
        let shape = if rows { vec![count, width] } else { vec![array.shape[0], count] };
        *array = Array::new(shape, data, array.precision);
    }
}
