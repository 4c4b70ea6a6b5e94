//! Backbones, adapters, linear systems and files of weights.

pub mod lti;
