//! Names that people bring from PEFT, transformers and other trainers, and what they are called here.

/// A key and its table here, or what there is in its place.
pub(super) enum Own {
    Key(&'static str, &'static str),
    Instead(&'static str),
}

use Own::{Instead, Key};

/// Names elsewhere, by what they are here.
const NAMES: &[(&[&str], Own)] = &[
    (&["learning_rate"], Key("[train]", "lr")),
    (&["max_steps", "max_train_steps", "num_steps", "iters"], Key("[train]", "steps")),
    (&["num_train_epochs", "num_epochs"], Key("[train]", "epochs")),
    (&["per_device_train_batch_size", "train_batch_size"], Key("[train]", "batch_size")),
    (&["per_device_eval_batch_size"], Key("[train]", "eval_batch_size")),
    (&["gradient_accumulation_steps", "grad_accumulation_steps"], Key("[train]", "accumulation")),
    (&["max_grad_norm", "gradient_clipping", "grad_clip"], Key("[train]", "clip")),
    (&["warmup", "num_warmup_steps"], Key("[train]", "warmup_steps")),
    (&["lr_scheduler_type", "lr_scheduler", "lr_schedule"], Key("[train]", "schedule")),
    (&["adam_beta1", "adam_beta2"], Key("[train]", "betas")),
    (&["adam_epsilon"], Key("[train]", "eps")),
    (&["label_smoothing_factor"], Key("[train]", "label_smoothing")),
    (&["logging_steps", "steps_per_report"], Key("[train]", "log_every")),
    (&["eval_steps", "steps_per_eval"], Key("[train]", "eval_every")),
    (&["save_steps", "save_every"], Key("[train]", "checkpoint_every")),
    (&["save_total_limit"], Key("[train]", "keep_checkpoints")),
    (&["load_best_model_at_end"], Key("[train]", "keep")),
    (&["early_stopping_patience"], Key("[train]", "patience")),
    (
        &["max_seq_length", "max_length", "model_max_length", "sequence_len", "cutoff_len", "block_size"],
        Key("[task]", "length"),
    ),
    (&["packing", "sample_packing"], Key("[task]", "pack")),
    (&["train_file", "train_path", "train_data", "data_path", "dataset", "datasets"], Key("[task]", "path")),
    (&["validation_file", "eval_file", "eval_path", "val_path", "valid_path"], Key("[task]", "validation_path")),
    (&["val_set_size"], Key("[task]", "validation_share")),
    (&["model_name_or_path", "base_model", "base_model_name_or_path"], Key("[backbone]", "model")),
    (&["gradient_checkpointing", "grad_checkpoint"], Key("[backbone]", "recompute")),
    (&["load_in_4bit"], Instead("write `quantize = \"nf4\"` in [backbone]")),
    (
        &["load_in_8bit"],
        Instead("there is no such quantisation: write `quantize = \"nf4\"` in [backbone], or take a GGUF file of q8_0"),
    ),
    (&["r", "lora_r", "lora_rank"], Key("[[adapter]]", "rank")),
    (&["init_r"], Key("[[adapter]]", "init_rank")),
    (&["target_r"], Key("[[adapter]]", "target_rank")),
    (&["deltaT"], Key("[[adapter]]", "delta_t")),
    (&["alpha"], Key("[[adapter]]", "lora_alpha")),
    (&["lora_dropout"], Key("[[adapter]]", "dropout")),
    (&["target_modules", "lora_target_modules"], Key("[[adapter]]", "targets")),
    (&["feedforward_modules"], Key("[[adapter]]", "feedforward")),
    (&["use_rslora"], Key("[[adapter]]", "rslora")),
    (&["init_lora_weights"], Key("[[adapter]]", "init")),
    (&["loftq_config"], Instead("write `init = \"loftq\"` and `loftq_iter` in [[adapter]]; bits are 4")),
    (&["loraplus_lr_ratio"], Key("[[adapter]]", "lora_plus_ratio")),
    (&["use_dora"], Instead("write `kind = \"dora\"` in [[adapter]]")),
    (&["peft_type", "adapter_type"], Key("[[adapter]]", "kind")),
    (&["task_type"], Instead("leave it out: every model here predicts the next token")),
    (&["bias"], Instead("leave it out: biases are not trained with an adapter")),
    (&["modules_to_save"], Instead("write `train_head` or `train_embeddings` in [backbone], which `tiny_gpt` has")),
    (&["optim", "optimizer"], Instead("leave it out: the optimizer is AdamW")),
    (
        &["metric_for_best_model", "greater_is_better"],
        Instead("leave it out: the primary metric of the task decides, in its direction"),
    ),
    (
        &["output_dir"],
        Instead(
            "the directory of a run is given on the command line, `train fit --out DIR`; it is runs/NAME otherwise",
        ),
    ),
    (&["resume_from_checkpoint"], Instead("a run is continued on the command line, `train fit --out DIR --resume`")),
    (&["overwrite_output_dir"], Instead("no run is overwritten: choose another --out")),
    (&["run_name"], Key("the top level", "name")),
    (&["random_seed"], Key("the top level", "seed")),
    (&["bf16", "fp16", "torch_dtype", "dtype"], Key("the top level", "precision")),
];

/// Keys that are written in a table which is not theirs, by the place where they are.
const PLACES: &[(&str, &[&str])] = &[
    ("the top level", &["name", "seed", "precision", "device", "gpu_memory"]),
    (
        "[train]",
        &[
            "lr",
            "steps",
            "epochs",
            "batch_size",
            "accumulation",
            "schedule",
            "warmup_steps",
            "weight_decay",
            "clip",
            "log_every",
            "eval_every",
            "keep",
            "patience",
        ],
    ),
    ("[task]", &["length", "pack", "validation_path", "metrics"]),
    ("[backbone] with `kind = \"decoder\"`", &["model", "quantize", "recompute"]),
    ("[[adapter]]", &["rank", "lora_alpha", "targets", "state_dim"]),
];

/// Where the key that is written at `path` belongs. `None` where it is in that table already, which is then of another kind.
pub(super) fn place(path: &str) -> Option<&'static str> {
    let key = path.rsplit('.').next().unwrap_or(path);
    let table = path.split('.').next().unwrap_or_default();
    let is_here = |place: &str| place.trim_matches(['[', ']']) == table;
    PLACES.iter().find(|(place, keys)| keys.contains(&key) && !is_here(place)).map(|(place, _)| *place)
}

/// What a name from elsewhere is here.
pub(super) fn own(name: &str) -> Option<&'static Own> {
    NAMES.iter().find(|(names, _)| names.contains(&name)).map(|(_, own)| own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_meaning_and_leads_to_a_key_of_the_documentation() {
        let page = include_str!("../../../../docs/configuration.md");
        let all: Vec<&str> = NAMES.iter().flat_map(|(names, _)| *names).copied().collect();
        for (index, name) in all.iter().enumerate() {
            assert!(!all[..index].contains(name), "{name} is there twice");
            assert!(!page.contains(&format!("| `{name}` |")), "{name} is a key of its own");
        }
        for (_, keys) in PLACES {
            keys.iter()
                .for_each(|key| assert!(page.contains(&format!("`{key}`")), "docs/configuration.md has no `{key}`"));
        }
        for (_, own) in NAMES {
            if let Key(_, key) = own {
                assert!(page.contains(&format!("`{key}`")), "docs/configuration.md has no `{key}`");
            }
        }
    }
}
