//! Files of weights: model directories, memory-mapped ([`model_files`]); small safetensors files, written atomically and read
//! strictly; adapter directories.

pub mod arrays;
pub mod atomic;
mod error;
pub mod hrm_config;
pub mod hrm_file;
mod mapped;
pub mod model_files;
pub mod npz;
mod quantized;
mod recorded;
mod shards;
pub mod system_file;
mod tensor_file;

pub use error::{Result, WeightsError};
pub use hrm_config::{Discretization, HrmConfigFile, HrmForm, HrmInput, HrmMode, HrmPreset, HrmSite, HrmSites};
pub use hrm_file::{AdapterBytes, AdapterHashes, HrmAdapterFile, HrmDynamics, HrmLayerFile};
pub use model_files::ModelFiles;
pub use recorded::{StateRecord, recorded_states};
pub use shards::ShardWriter;
pub use tensor_file::write_tensors;

/// File beside an adapter with the parameters of the backbone that were trained with it (head, embeddings, or all).
pub const TRAINED_BACKBONE_FILE: &str = "trained_backbone.safetensors";
