//! Backbones, adapters, linear systems and files of weights.
//!
//! [`tiny_gpt`] is the backbone of the small experiments, [`decoder`] that of published models, and [`backbone`] what both
//! offer; [`adapters`] what is trained on them; [`hankel_reduce`] applies the control theory of [`hankel_lti`] to whole
//! adapters; [`weights`] the files and [`gguf`] those of llama.cpp; [`tokenizer`] turns text into token ids, [`chat`]
//! conversations into text, and [`generation`] continues a sequence.

pub mod adapters;
pub mod backbone;
pub mod chat;
pub mod decoder;
pub mod generation;
pub mod gguf;
pub mod linear;
pub mod parameter;
pub mod pass;
pub mod settings;
mod spans;
mod sublayer;
pub mod tiny_gpt;
pub mod tokenizer;
pub mod weights;

/// The control theory behind truncation.
pub use hankel_lti as lti;
/// The reduction of whole adapters.
pub use hankel_reduce as reduce;

pub use adapters::{AdapterConfig, AdapterSet};
pub use backbone::Backbone;
pub use decoder::{Decoder, DecoderConfig};
pub use generation::{Generator, Sampling, StopFilter, TurnStart};
pub use parameter::{Parameter, Role};
pub use pass::{Contribution, Pass, SiteInput, State, StepKey, Trajectory};
pub use tiny_gpt::{TinyGpt, TinyGptConfig};
pub use tokenizer::Tokenizer;

/// The tutorial, so that its program is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/sandbox.md")]
struct Sandbox;
