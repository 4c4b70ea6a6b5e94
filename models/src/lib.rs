//! Backbones, adapters, linear systems and files of weights.
