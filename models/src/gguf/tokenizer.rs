//! The tokenizer of a file, built from its vocabulary.

use super::Gguf;
use super::pre_tokenizer::{self, PreTokenizer};
use crate::weights::Result;
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use tokenizers::models::bpe::{BPE, BpeBuilder};
use tokenizers::{AddedToken, Tokenizer};

const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";
/// What the model is called. llama.cpp knows a Phi-3 by it.
pub(super) const NAME: &str = "general.name";
/// Tokens that llama.cpp looks for in a Phi-3. All tokens but the last three drop the white space behind them there.
pub(super) const PHI3_TOKENS: [&str; 4] = ["</s>", "<unk>", "<s>", "<|endoftext|>"];

/// Types of tokens as the file numbers them.
pub(super) const NORMAL: f64 = 1.0;
pub(super) const UNKNOWN: f64 = 2.0;
pub(super) const CONTROL: f64 = 3.0;
pub(super) const USER_DEFINED: f64 = 4.0;
pub(super) const UNUSED: f64 = 5.0;
pub(super) const BYTE: f64 = 6.0;

/// Whether llama.cpp takes a model of this name for a Phi-3.
pub(super) fn is_phi3(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("phi-3") || name.contains("phi3")
}

/// Whether `token`, which is found in a text before anything else, drops the white space behind it in a model of this
/// name: files have no key for that.
pub(super) fn strips_behind(name: &str, token: &str) -> bool {
    is_phi3(name) && !PHI3_TOKENS[1..].contains(&token)
}

/// The ids of special tokens under the names of `config.json`, those that are there.
pub(super) fn special_ids(file: &Gguf, vocabulary: usize) -> Result<Vec<(&'static str, usize)>> {
    let mut found = Vec::new();
    for (name, key) in [
        ("bos_token_id", "tokenizer.ggml.bos_token_id"),
        ("eos_token_id", "tokenizer.ggml.eos_token_id"),
        ("pad_token_id", "tokenizer.ggml.padding_token_id"),
    ] {
        let Some(id) = file.size(key)? else { continue };
        if id >= vocabulary {
            return Err(file.fail(format!("{key} is {id}, but there are {vocabulary} tokens")));
        }
        found.push((name, id));
    }
    Ok(found)
}

/// Checks what can be checked of the vocabulary without building a tokenizer, for a model of `vocabulary` ids.
pub(super) fn check(file: &Gguf, vocabulary: usize) -> Result<()> {
    let Some((tokens, _)) = file.strings(TOKENS)? else { return Ok(()) };
    if tokens > vocabulary {
        return Err(file.fail(format!("{TOKENS} has {tokens} entries, token_embd.weight {vocabulary} rows")));
    }
    for key in [TYPES, SCORES] {
        if let Some((count, _)) = file.numbers(key)?
            && count != tokens
        {
            return Err(file.fail(format!("{key} has {count} entries, {TOKENS} has {tokens}")));
        }
    }
    let Some((_, merges)) = file.strings(MERGES)? else { return Ok(()) };
    for (index, merge) in merges.enumerate() {
        pair(merge)
            .ok_or_else(|| file.fail(format!("{MERGES}[{index}] is {merge:?}, expected two tokens and a space")))?;
    }
    Ok(())
}

/// The two tokens of a merge. The space that a token begins with is `Ġ`, so the separator is the only one.
fn pair(merge: &str) -> Option<(&str, &str)> {
    merge.split_once(' ').filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
}

/// A tokenizer with the ids that begin and end a text.
pub(crate) struct Built {
    pub(crate) tokenizer: Tokenizer,
    /// Number of ids.
    pub(crate) ids: usize,
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    /// Other ids at which generation stops.
    pub(crate) ends: Vec<u32>,
    /// Other special tokens by the names that chat templates have for them.
    pub(crate) others: Vec<(&'static str, String)>,
}

/// Tokens that end a turn, by what they are called: llama.cpp stops at them, too, whatever `eos_token_id` says.
pub(crate) const ENDS: [&str; 9] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|END_OF_TURN_TOKEN|>",
    "<EOT>",
];

/// The tokenizer in `file`.
///
/// # Errors
/// When there is none, its kind or pre-tokenizer is not known, or its tables do not fit together.
pub(crate) fn build(file: &Gguf) -> Result<Built> {
    let model = file.string(MODEL)?;
    let Some((_, tokens)) = file.strings(TOKENS)?.filter(|_| model.is_some()) else {
        return Err(file.fail(format!("it has no tokenizer ({MODEL} and {TOKENS}): token ids can be run, text cannot")));
    };
    let tokens: Vec<&str> = tokens.collect();
    check(file, tokens.len())?;
    let mut types: Vec<f64> = match file.numbers(TYPES)? {
        Some((_, types)) => types.collect(),
        None => vec![NORMAL; tokens.len()],
    };
    // llama.cpp takes them for control tokens, too, whatever the file says.
    for (token, kind) in tokens.iter().zip(&mut types) {
        if ENDS.contains(token) && [NORMAL, USER_DEFINED].contains(kind) {
            *kind = CONTROL;
        }
    }
    let vocabulary = Vocabulary { file, tokens, types };
    let (mut tokenizer, add_bos) = match model {
        Some("gpt2") => vocabulary.byte_level()?,
        Some("llama") => (vocabulary.sentencepiece()?, true),
        other => {
            let other = other.unwrap_or_default();
            return Err(file
                .fail(format!("{MODEL} is {other:?}; gpt2 (byte-level BPE) and llama (SentencePiece) are supported")));
        }
    };
    vocabulary.add_tokens(&mut tokenizer)?;
    let ids = special_ids(file, vocabulary.tokens.len())?;
    let special = |name: &str| ids.iter().find(|(other, _)| *other == name).map(|(_, id)| *id as u32);
    let (bos, eos) = (special("bos_token_id"), special("eos_token_id"));
    let before = bos.filter(|_| file.flag("tokenizer.ggml.add_bos_token").ok().flatten().unwrap_or(add_bos));
    let after = eos.filter(|_| file.flag("tokenizer.ggml.add_eos_token").ok().flatten().unwrap_or(false));
    if before.is_some() || after.is_some() {
        let processor = vocabulary.template(before, after);
        tokenizer.with_post_processor(Some(component::<tokenizers::PostProcessorWrapper>(processor)));
    }
    let named = vocabulary.tokens.iter().zip(&vocabulary.types).enumerate();
    let mut ends: Vec<u32> =
        named.filter(|(_, (token, kind))| **kind == CONTROL && ENDS.contains(token)).map(|(id, _)| id as u32).collect();
    for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        let id = file.size(key)?.filter(|id| *id < vocabulary.tokens.len());
        ends.extend(id.map(|id| id as u32).filter(|id| !ends.contains(id)));
    }
    let mut others = Vec::new();
    for (name, key) in [
        ("unk_token", "tokenizer.ggml.unknown_token_id"),
        // Spelt so in the format.
        ("sep_token", "tokenizer.ggml.seperator_token_id"),
        ("pad_token", "tokenizer.ggml.padding_token_id"),
        ("cls_token", "tokenizer.ggml.cls_token_id"),
        ("mask_token", "tokenizer.ggml.mask_token_id"),
    ] {
        let token = file.size(key)?.and_then(|id| vocabulary.tokens.get(id));
        others.extend(token.map(|token| (name, (*token).to_owned())));
    }
    Ok(Built { tokenizer, ids: vocabulary.tokens.len(), bos, eos, ends, others })
}

/// A part of a tokenizer, from what `tokenizer.json` would say.
fn component<T: serde::de::DeserializeOwned>(json: Json) -> T {
    serde_json::from_value(json).expect("a part as tokenizer.json has it")
}

struct Vocabulary<'a> {
    file: &'a Gguf,
    tokens: Vec<&'a str>,
    types: Vec<f64>,
}

impl Vocabulary<'_> {
    /// Token to id, without the tokens that only fill the table.
    fn ids(&self) -> Result<HashMap<&str, u32>> {
        let mut ids = HashMap::new();
        for (id, (token, kind)) in self.tokens.iter().zip(&self.types).enumerate() {
            if *kind != UNUSED
                && let Some(first) = ids.insert(*token, id as u32)
            {
                return Err(self.file.fail(format!("{TOKENS} has {token:?} twice, as {first} and {id}")));
            }
        }
        Ok(ids)
    }

    fn model(
        &self,
        ids: &HashMap<&str, u32>,
        merges: Vec<(String, String)>,
        set: impl Fn(BpeBuilder) -> BpeBuilder,
    ) -> Result<BPE> {
        let vocabulary: tokenizers::models::bpe::Vocab =
            ids.iter().map(|(token, id)| ((*token).to_owned(), *id)).collect();
        let model = set(BPE::builder().vocab_and_merges(vocabulary, merges)).build();
        model.map_err(|e| self.file.fail(format!("its tokenizer: {e}")))
    }

    /// Byte-level BPE, and whether a text begins with its special token where the file does not say.
    fn byte_level(&self) -> Result<(Tokenizer, bool)> {
        let PreTokenizer { normalizer, split, ignore_merges, add_bos } = pre_tokenizer::of(self.file)?;
        let ids = self.ids()?;
        let Some((_, merges)) = self.file.strings(MERGES)? else {
            return Err(self.file.fail(format!("{MERGES} is missing")));
        };
        let merges = merges.filter_map(pair).map(|(left, right)| (left.to_owned(), right.to_owned())).collect();
        let mut tokenizer = Tokenizer::new(self.model(&ids, merges, |model| model.ignore_merges(ignore_merges))?);
        if let Some(normalizer) = normalizer {
            let normalizer = component::<tokenizers::NormalizerWrapper>(normalizer);
            tokenizer.with_normalizer(Some(normalizer)).map_err(|e| self.file.fail(e.to_string()))?;
        }
        tokenizer.with_pre_tokenizer(Some(component::<tokenizers::PreTokenizerWrapper>(split)));
        let decoder = json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true });
        tokenizer.with_decoder(Some(component::<tokenizers::DecoderWrapper>(decoder)));
        Ok((tokenizer, add_bos))
    }

    /// SentencePiece BPE: pairs are merged in the order of the scores of what they make.
    fn sentencepiece(&self) -> Result<Tokenizer> {
        let ids = self.ids()?;
        let Some((_, scores)) = self.file.numbers(SCORES)? else {
            return Err(self.file.fail(format!("{SCORES} is missing")));
        };
        let merges = self.merges_by_score(&ids, &scores.collect::<Vec<_>>());
        let unknown = self.types.iter().position(|kind| *kind == UNKNOWN).map(|id| self.tokens[id].to_owned());
        let model = self.model(&ids, merges, |model| {
            let model = model.byte_fallback(true).fuse_unk(true);
            match &unknown {
                Some(unknown) => model.unk_token(unknown.clone()),
                None => model,
            }
        })?;
        let mut tokenizer = Tokenizer::new(model);
        let prefix = self.file.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
        let mut normalizers = vec![replace(" ", "▁")];
        let mut decoders = vec![replace("▁", " "), json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" })];
        if prefix {
            normalizers.insert(0, json!({ "type": "Prepend", "prepend": "▁" }));
            decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }
        let normalizer = json!({ "type": "Sequence", "normalizers": normalizers });
        let normalizer = component::<tokenizers::NormalizerWrapper>(normalizer);
        tokenizer.with_normalizer(Some(normalizer)).map_err(|e| self.file.fail(e.to_string()))?;
        let decoder = json!({ "type": "Sequence", "decoders": decoders });
        tokenizer.with_decoder(Some(component::<tokenizers::DecoderWrapper>(decoder)));
        Ok(tokenizer)
    }

    /// Every way to make a token of two others, the best scores first.
    fn merges_by_score(&self, ids: &HashMap<&str, u32>, scores: &[f64]) -> Vec<(String, String)> {
        let mut merges = Vec::new();
        // A token has as many ends as bytes, and few of them are tokens: those of other lengths are not looked for.
        let lengths: HashSet<usize> = self.tokens.iter().map(|token| token.len()).collect();
        for (id, token) in self.tokens.iter().enumerate().filter(|(id, _)| self.types[*id] == NORMAL) {
            let ends = token.char_indices().map(|(at, _)| at).skip(1);
            for at in ends.filter(|at| lengths.contains(at) && lengths.contains(&(token.len() - at))) {
                let (left, right) = token.split_at(at);
                if let (Some(&first), Some(&second)) = (ids.get(left), ids.get(right)) {
                    merges.push((scores[id], left, right, (id, first, second)));
                }
            }
        }
        merges.sort_by(|a, b| {
            let lengths = |merge: &(f64, &str, &str, _)| (merge.1.chars().count(), merge.2.chars().count());
            b.0.total_cmp(&a.0).then_with(|| lengths(b).cmp(&lengths(a))).then_with(|| a.3.cmp(&b.3))
        });
        merges.into_iter().map(|(_, left, right, _)| (left.to_owned(), right.to_owned())).collect()
    }

    /// Tokens that are found in a text before anything else. A space in one is a space of the text, not `▁`, and no
    /// merge makes them.
    fn add_tokens(&self, tokenizer: &mut Tokenizer) -> Result<()> {
        let name = self.file.string(NAME).ok().flatten().unwrap_or_default();
        let listed = self.tokens.iter().zip(&self.types).filter(|(token, _)| !token.is_empty());
        let added = listed.filter_map(|(token, kind)| {
            let added = match *kind {
                CONTROL | UNKNOWN => AddedToken::from(*token, true),
                USER_DEFINED => AddedToken::from(*token, false).normalized(false),
                _ => return None,
            };
            Some(added.rstrip(strips_behind(name, token)))
        });
        tokenizer.add_tokens(added).map_err(|e| self.file.fail(format!("its tokenizer: {e}")))?;
        Ok(())
    }

    /// What is put before and after a text.
    fn template(&self, before: Option<u32>, after: Option<u32>) -> Json {
        let token = |id: &u32| self.tokens[*id as usize];
        let special = |id: &u32, kind: usize| json!({ "SpecialToken": { "id": token(id), "type_id": kind } });
        let sequence = |name: &str, kind: usize| json!({ "Sequence": { "id": name, "type_id": kind } });
        let around = |name: &str, kind: usize| -> Vec<Json> {
            let before = before.iter().map(|id| special(id, kind));
            before.chain([sequence(name, kind)]).chain(after.iter().map(|id| special(id, kind))).collect()
        };
        let tokens: serde_json::Map<String, Json> = before
            .iter()
            .chain(&after)
            .map(|id| (token(id).to_owned(), json!({ "id": token(id), "ids": [id], "tokens": [token(id)] })))
            .collect();
        let pair: Vec<Json> = [around("A", 0), around("B", 1)].concat();
        json!({ "type": "TemplateProcessing", "single": around("A", 0), "pair": pair, "special_tokens": tokens })
    }
}
