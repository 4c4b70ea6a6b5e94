//! Backbones, adapters, linear systems and files of weights.
//!
//! [`tiny_gpt`] is the backbone of the small experiments; [`adapters`] what is trained on it; [`lti`] the control theory
//! behind truncation, ignorant of both; [`mod@reduce`] applies it to whole adapters; [`weights`] the files.

pub mod adapters;
pub mod linear;
pub mod lti;
pub mod parameter;
pub mod pass;
pub mod reduce;
pub mod tiny_gpt;
pub mod weights;

pub use adapters::{AdapterConfig, AdapterSet};
pub use parameter::{Parameter, Role};
pub use pass::{Pass, State, StepKey};
pub use tiny_gpt::{TinyGpt, TinyGptConfig};
