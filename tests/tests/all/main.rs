//! What crosses crates, in one program; tests that need a process of their own stand beside it.

mod adapters;
mod damaged_adapters;
mod devices;
mod exactness;
mod extremes;
mod families;
mod golden_chat;
mod golden_families;
mod golden_gguf;
mod golden_hrm;
mod golden_mistral;
mod golden_nf4;
mod golden_peft;
mod golden_tokenizer;
mod lora_fa;
mod mistral;
mod model_directories;
mod models;
mod modules;
mod operators;
mod readers;
mod stories260k;
