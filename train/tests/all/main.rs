//! Every test of the `train` program, in one program of its own.

mod bad_input;
mod chat;
mod commands;
mod common;
mod data_of_a_run;
mod diverged;
mod dpo;
mod gguf_export;
mod gpu;
mod mistral;
mod newcomers;
mod paper;
mod predict;
mod recordings;
mod resume;
mod resumed_sweeps;
mod score;
mod sequences;
mod studies;
mod texts;
mod trace;
mod version_0_1;
