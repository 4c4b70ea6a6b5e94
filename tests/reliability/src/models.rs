//! Small models of every kind, made by the binaries themselves.

use crate::binaries::{Binaries, run};
use anyhow::{Result, ensure};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A model of bytes: 256 of them and two tokens around a text.
const CONFIG: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 258, "hidden_size": 32,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
    "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": 1}"#;
/// What it is told by: the form of ChatML.
const TEMPLATE: &str = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] | trim }}\n{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// Makes a folder with `model` (safetensors, tokenizer, chat template), `model.gguf`, data and configurations for them.
///
/// # Errors
/// When a command fails.
pub fn prepare(b: &Binaries, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let must = |arguments: &[&str]| {
        let output = run(&b.train, arguments, folder)?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    fs::write(folder.join("config.json"), CONFIG)?;
    must(&["init-model", "config.json", "-o", "model"])?;
    fs::remove_file(folder.join("config.json"))?;
    let model = folder.join("model");
    fs::write(model.join("tokenizer.json"), serde_json::to_vec(&tokenizer())?)?;
    fs::write(model.join("tokenizer_config.json"), r#"{"bos_token": "<s>", "eos_token": "</s>"}"#)?;
    fs::write(model.join("chat_template.jinja"), TEMPLATE)?;
    must(&["convert", "model", "-o", "model.gguf", "--type", "q8_0"])?;
    let mut lines = String::new();
    for n in 0..12 {
        writeln!(lines, r#"{{"prompt": "Tom has {n} cats", "completion": " {n} cats"}}"#)?;
    }
    fs::write(folder.join("prompts.jsonl"), &lines)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(lines.as_bytes())?;
    fs::write(folder.join("packed.jsonl.gz"), packed.finish()?)?;
    let mut table = "prompt,completion\n".to_owned();
    (0..12).try_for_each(|n| writeln!(table, "\"Tom, who has {n}\",\" \"\"{n}\"\"\""))?;
    fs::write(folder.join("table.csv"), table)?;
    let mut chats = String::new();
    for n in 0..12 {
        let said = |role: &str, content: String| json!({"role": role, "content": content});
        let turns = [said("user", format!("Cats: {n}?")), said("assistant", format!("{n} cats"))];
        writeln!(chats, "{}", json!({ "messages": turns }))?;
    }
    fs::write(folder.join("chats.jsonl"), chats)?;
    for (name, data) in
        [("prompts", "prompts.jsonl"), ("packed", "packed.jsonl.gz"), ("table", "table.csv"), ("chats", "chats.jsonl")]
    {
        let config = format!(
            "name = \"t\"\n[task]\nkind = \"jsonl\"\npath = \"{data}\"\nlength = 96\nmax_new_tokens = 4\n[backbone]\n\
             kind = \"decoder\"\nmodel = \"model\"\n[train]\nsteps = 2\nbatch_size = 2\n[[adapter]]\nkind = \"lora\"\nrank = 2\n"
        );
        fs::write(folder.join(format!("{name}.toml")), config)?;
    }
    must(&["fit", "prompts.toml", "--out", "tuned"])?;
    fs::copy(music("three.midi"), folder.join("three.midi"))?;
    let table = "file,split\nthree.midi,train\nthree.midi,validation\n";
    fs::write(folder.join("maestro.csv"), table)?;
    let music = "[task]\nkind = \"maestro\"\npath = \".\"\nlength = 8\ntrain_sequences = 4\nvalidation_sequences = 2\n\
                 test_sequences = 0\n[backbone]\nlayers = 1\nd_model = 16\nheads = 2\n[train]\nsteps = 1\nbatch_size = 2\n\
                 [[adapter]]\nkind = \"none\"\n";
    Ok(fs::write(folder.join("music.toml"), music)?)
}

/// A piece of music of the repository.
fn music(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../train/tests/fixtures/maestro").join(name)
}

/// A tokenizer of bytes, as GPT-2 writes them.
fn tokenizer() -> Value {
    // Bytes that print stand for themselves; the others get characters from 256 on.
    let prints = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut other = 256..;
    let characters = (0..256).map(|byte| if prints(byte) { byte } else { other.next().unwrap_or_default() });
    let characters = characters.filter_map(char::from_u32).map(String::from);
    let special = ["<s>", "</s>"].map(str::to_owned);
    let vocabulary: serde_json::Map<String, Value> =
        special.into_iter().chain(characters).zip(0..).map(|(token, id)| (token, Value::from(id))).collect();
    let added = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "added_tokens": [added(0, "<s>"), added(1, "</s>")],
        "normalizer": null,
        "pre_tokenizer": bytes,
        "post_processor": null,
        "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    })
}
