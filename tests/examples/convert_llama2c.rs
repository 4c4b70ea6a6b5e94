//! Converts a checkpoint of llama2.c and its tokenizer into a Hugging Face model directory.
//!
//! ```text
//! cargo run -p hankel-tests --example convert_llama2c -- MODEL.bin TOKENIZER.bin DIRECTORY
//! ```
//!
//! `tests/fixtures/stories260k` was made this way from the 260K model of karpathy/llama2.c (MIT). llama2.c turns adjacent
//! pairs (0, 1), (2, 3) ... of a head, the Hugging Face layout its halves: the rows of the query and key projections are
//! put in the other order.

use hankel_core::Tensor;
use hankel_io::Existing;
use hankel_models::decoder::{CONFIG_FILE, DecoderConfig, TensorSpec, families};
use hankel_models::tokenizer::TOKENIZER_FILE;
use hankel_models::weights::ShardWriter;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, tokenizer, directory] = &arguments[..] else {
        return Err("expected MODEL.bin TOKENIZER.bin DIRECTORY".into());
    };
    let bytes = std::fs::read(model)?;
    let header: Vec<i32> = bytes.as_chunks().0[..7].iter().map(|b| i32::from_le_bytes(*b)).collect();
    let size = |i: usize| usize::try_from(header[i].unsigned_abs());
    let (d, f, layers, heads) = (size(0)?, size(1)?, size(2)?, size(3)?);
    let (kv_heads, vocabulary, context) = (size(4)?, size(5)?, size(6)?);
    let config = DecoderConfig {
        vocabulary,
        d_model: d,
        layers,
        heads,
        kv_heads,
        head_dim: d / heads,
        d_ff: f,
        context,
        norm_eps: 1e-5,
        tied_embeddings: header[5] > 0,
        ..DecoderConfig::plain(&families::LLAMA)
    };
    let mut values = bytes[28..].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
    let mut take = |n: usize| values.by_ref().take(n).collect::<Vec<f32>>();
    let kv = kv_heads * config.head_dim;
    let mut tensors = BTreeMap::new();
    tensors.insert("model.embed_tokens.weight".to_owned(), take(vocabulary * d));
    let parts = [
        ("input_layernorm", d, 1),
        ("self_attn.q_proj", d, d),
        ("self_attn.k_proj", kv, d),
        ("self_attn.v_proj", kv, d),
        ("self_attn.o_proj", d, d),
        ("post_attention_layernorm", d, 1),
        ("mlp.gate_proj", f, d),
        ("mlp.down_proj", d, f),
        ("mlp.up_proj", f, d),
    ];
    for (name, rows, cols) in parts {
        for layer in 0..layers {
            let mut weight = take(rows * cols);
            if name.ends_with("q_proj") || name.ends_with("k_proj") {
                weight = halves(&weight, cols, config.head_dim);
            }
            tensors.insert(format!("model.layers.{layer}.{name}.weight"), weight);
        }
    }
    tensors.insert("model.norm.weight".to_owned(), take(d));
    if !config.tied_embeddings {
        take(context * config.head_dim);
        tensors.insert("lm_head.weight".to_owned(), take(vocabulary * d));
    }
    let mut writer = ShardWriter::create(Path::new(directory), Existing::Refuse, 1 << 30)?;
    for TensorSpec { name, shape, .. } in config.tensors() {
        let data = tensors.remove(&name).ok_or_else(|| format!("{name} was not read"))?;
        writer.push(&name, &Tensor::from_vec(data, shape)?)?;
    }
    writer.file(CONFIG_FILE, &serde_json::to_vec_pretty(&config.to_json("float32"))?)?;
    let tokenizer = tokenizer_json(&std::fs::read(tokenizer)?, vocabulary)?;
    writer.file(TOKENIZER_FILE, &serde_json::to_vec_pretty(&tokenizer)?)?;
    writer.finish()?;
    Ok(())
}

/// Rows of each head: even ones first, then odd ones.
fn halves(weight: &[f32], cols: usize, head_dim: usize) -> Vec<f32> {
    let heads = weight.chunks(head_dim * cols);
    let row = |head: &[f32], i: usize| head[i * cols..(i + 1) * cols].to_vec();
    let order = |i: usize| if i < head_dim / 2 { 2 * i } else { 2 * (i - head_dim / 2) + 1 };
    heads.flat_map(|head| (0..head_dim).flat_map(move |i| row(head, order(i)))).collect()
}

/// The byte-pair tokenizer whose merges go by the highest score.
fn tokenizer_json(bytes: &[u8], vocabulary: usize) -> Result<Value, Box<dyn Error>> {
    let mut rest = &bytes[4..];
    let mut pieces = Vec::new();
    for id in 0..vocabulary {
        let (score, after) = rest.split_first_chunk().ok_or("the tokenizer ends early")?;
        let (len, after) = after.split_first_chunk().ok_or("the tokenizer ends early")?;
        let (text, after) = after.split_at(usize::try_from(i32::from_le_bytes(*len))?);
        let text = match id {
            0 => "<unk>".to_owned(),
            1 => "<s>".to_owned(),
            2 => "</s>".to_owned(),
            3..=258 => format!("<0x{:02X}>", id - 3),
            _ => std::str::from_utf8(text)?.replace(' ', "\u{2581}"),
        };
        pieces.push((text, f32::from_le_bytes(*score)));
        rest = after;
    }
    let ids: HashMap<&str, usize> = pieces.iter().enumerate().map(|(id, (text, _))| (text.as_str(), id)).collect();
    let mut ranked: Vec<&(String, f32)> = pieces[259..].iter().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut merges = Vec::new();
    for (text, _) in ranked {
        let splits = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
        let mut pairs: Vec<_> = splits.filter_map(|(l, r)| Some((*ids.get(l)?, *ids.get(r)?, l, r))).collect();
        pairs.sort_unstable();
        merges.extend(pairs.into_iter().map(|(_, _, left, right)| json!([left, right])));
    }
    let special = |id: usize| {
        json!({ "id": id, "content": pieces[id].0, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true })
    };
    let ordered: serde_json::Map<String, Value> =
        pieces.iter().enumerate().map(|(id, (text, _))| (text.clone(), json!(id))).collect();
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(0), special(1), special(2)],
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "\u{2581}" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" },
        ] },
        "pre_tokenizer": null,
        "post_processor": { "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
            "pair": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } },
                { "SpecialToken": { "id": "<s>", "type_id": 1 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [1], "tokens": ["<s>"] } } },
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " },
            { "type": "ByteFallback" }, { "type": "Fuse" },
            { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
        ] },
        "model": { "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": ordered, "merges": merges },
    }))
}
