//! What kinds of low rank have in common.

use crate::pass::Pass;
use crate::settings::SettingsError;
use crate::weights::arrays::NamedArrays;
use hankel_core::{Result, Tensor};
use hankel_ops::dropout;

/// Query and value projections.
pub(crate) const TARGETS: [&str; 2] = ["q_proj", "v_proj"];

pub(crate) fn check_rank(key: &str, rank: usize) -> std::result::Result<(), SettingsError> {
    SettingsError::unless(rank >= 1, key, || format!("must be at least 1, found {rank}"))?;
    SettingsError::unless(rank <= 1 << 20, key, || format!("must be at most {}, found {rank}", 1 << 20))
}

pub(crate) fn check_scale_and_dropout(lora_alpha: f64, dropout: f64) -> std::result::Result<(), SettingsError> {
    SettingsError::unless(lora_alpha.is_finite(), "lora_alpha", || "must be finite".to_owned())?;
    check_fraction("dropout", dropout)
}

/// In [0, 1).
pub(crate) fn check_fraction(key: &str, value: f64) -> std::result::Result<(), SettingsError> {
    let problem = || format!("must be at least 0 and below 1, found {value}");
    SettingsError::unless((0.0..1.0).contains(&value), key, problem)
}

/// Refuses a rank above that of the file's tensors.
pub(crate) fn check_rank_of(arrays: &NamedArrays, rank: usize) -> std::result::Result<(), String> {
    let factors = arrays.iter().filter(|(name, array)| name.contains(".lora_A") && array.shape.len() == 2);
    match factors.max_by_key(|(_, array)| array.shape[0]) {
        None => Err("there is no tensor lora_A".to_owned()),
        Some((name, array)) if array.shape[0] < rank => {
            Err(format!("tensor {name} has shape {:?}, expected {rank} rows", array.shape))
        }
        Some(_) => Ok(()),
    }
}

/// `x` after dropout with probability `p` under `name` while training; `None` where nothing is dropped.
pub(crate) fn dropped(x: &Tensor, p: f64, name: &str, pass: &Pass) -> Result<Option<Tensor>> {
    pass.training.filter(|_| p > 0.0).map(|key| dropout(x, p, key.random(name))).transpose()
}
