//! File formats of linear systems and adapters, without mathematics.
//!
//! [`arrays`] (safetensors) and [`npz`] hold named arrays of f64, [`system_file`] a linear system, [`hrm_file`] and
//! [`hrm_config`] the directory of an HRM adapter, [`recorded`] the states of one along data, [`weight_file`] the weights of
//! errors, [`sensitivity`] what errors cost a task. They are written and read through [`hankel_io`].

pub mod arrays;
mod error;
pub mod hrm_config;
pub mod hrm_file;
pub mod npz;
pub mod recorded;
pub mod sensitivity;
pub mod system_file;
pub mod weight_file;

pub use error::{Result, WeightsError};
pub use hrm_config::{Discretization, HrmConfigFile, HrmForm, HrmMode, HrmPreset, HrmSites, StreamInput, StreamSite};
pub use hrm_file::{AdapterBytes, AdapterHashes, HrmAdapterFile, HrmDynamics, HrmLayerFile};
pub use recorded::{RecordedStates, StateRecord, recorded_states};
pub use sensitivity::Sensitivities;
pub use weight_file::{WeightFile, WeightSet, save_weights};

/// File beside an adapter with the parameters of the backbone that were trained with it (head, embeddings, or all).
pub const TRAINED_BACKBONE_FILE: &str = "trained_backbone.safetensors";
