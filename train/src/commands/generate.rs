//! `train generate`.

use super::fit::load_run;
use crate::config::TaskConfig;
use crate::fit::{Foundation, Model, adapter_directory};
use anyhow::{Context, Result, bail};
use hankel_core::{Random, Tensor, no_grad};
use hankel_models::{AdapterSet, Pass, State};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directory of a model trained on bytes
    run: PathBuf,
    /// Adapter: a name of the run's or a directory; the backbone alone when left out
    #[arg(long, value_name = "NAME|DIR")]
    adapter: Option<String>,
    /// Text to continue
    #[arg(long, default_value = "\n")]
    prompt: String,
    /// Bytes to generate
    #[arg(long, default_value_t = 256)]
    length: usize,
    /// Divides the logits; 0 always takes the most probable byte
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    /// Draw from the fewest bytes whose probabilities sum to this
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Seed of the drawing
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub fn run(args: &Args) -> Result<()> {
    if !(args.temperature >= 0.0 && args.temperature.is_finite()) {
        bail!("--temperature must be at least 0, found {}", args.temperature);
    }
    if !(args.top_p > 0.0 && args.top_p <= 1.0) {
        bail!("--top-p must be above 0 and at most 1, found {}", args.top_p);
    }
    if args.prompt.is_empty() {
        bail!("--prompt must have at least one byte: the model continues something");
    }
    let config = load_run(&args.run)?;
    let TaskConfig::Bytes(_) = config.task else {
        bail!("{} was trained on `task.kind = {:?}`; generation is for bytes", args.run.display(), config.task.kind());
    };
    let model = load_model(&args.run, args.adapter.as_deref())?;
    let mut writer = Writer { model: &model, seen: Vec::new(), state: State::default() };
    let mut logits = writer.read(args.prompt.as_bytes())?;
    let random = Random::new(args.seed, "generate", 0);
    let mut out = io::stdout().lock();
    let mut put = |bytes: &[u8]| match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("cannot write to the standard output"),
    };
    if !put(args.prompt.as_bytes())? {
        return Ok(());
    }
    for index in 0..args.length as u64 {
        let byte = choose(&logits, args.temperature, args.top_p, random.uniform(index)) as u8;
        if !put(&[byte])? {
            return Ok(());
        }
        logits = writer.read(&[byte])?;
    }
    put(b"\n")?;
    Ok(())
}

/// The backbone of a run with one of its adapters, or one from elsewhere, or none.
pub fn load_model(run: &Path, adapter: Option<&str>) -> Result<Model> {
    let config = load_run(run)?;
    let foundation = Foundation::of_saved_run(&config, run)?;
    let placement = foundation.backbone().placement();
    let Some(adapter) = adapter else { return Ok(foundation.with(AdapterSet::none(&placement))?) };
    foundation.with_saved(&adapter_directory(run, adapter), config.task.sequence_length())
}

/// Feeds a model and remembers where it is.
struct Writer<'a> {
    model: &'a Model,
    seen: Vec<u8>,
    state: State,
}

impl Writer<'_> {
    /// Reads `bytes` and gives the logits of what follows. Past the last learned position, the model starts afresh on the
    /// second half of its context.
    fn read(&mut self, bytes: &[u8]) -> Result<Vec<f64>> {
        let context = self.model.backbone.context().unwrap_or(usize::MAX);
        self.seen.extend_from_slice(bytes);
        let new = if self.state.position + bytes.len() <= context {
            bytes
        } else {
            self.state = State::default();
            let keep = bytes.len().max(context / 2).min(context).min(self.seen.len());
            &self.seen[self.seen.len() - keep..]
        };
        let tokens = Tensor::from_vec(new.iter().map(|&byte| u32::from(byte)).collect(), [1, new.len()])?;
        let Model { backbone, adapters } = self.model;
        let logits = no_grad(|| backbone.logits(&tokens, adapters, &mut Pass::streaming(&mut self.state)))?;
        let all = logits.to_f64_vec();
        Ok(all[all.len() - logits.shape().last()..].to_vec())
    }
}

/// The token at quantile `uniform` of the tempered distribution, cut to its nucleus of mass `top_p`.
fn choose(logits: &[f64], temperature: f64, top_p: f64, uniform: f64) -> usize {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let first = order.first().copied().unwrap_or(0);
    if temperature == 0.0 {
        return first;
    }
    let weight = |&token: &usize| ((logits[token] - logits[first]) / temperature).exp();
    let total: f64 = order.iter().map(weight).sum();
    let mut mass = 0.0;
    let nucleus = order.iter().take_while(|token| {
        let before = mass;
        mass += weight(token) / total;
        before < top_p
    });
    let nucleus: Vec<usize> = nucleus.copied().collect();
    let mut left = uniform * nucleus.iter().map(weight).sum::<f64>();
    for token in &nucleus {
        left -= weight(token);
        if left < 0.0 {
            return *token;
        }
    }
    nucleus.last().copied().unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling() {
        let logits = [0.0, 2.0, 1.0, f64::NEG_INFINITY];
        assert_eq!(choose(&logits, 0.0, 1.0, 0.99), 1);
        let total: f64 = [1.0_f64, 2.0, 0.0].iter().map(|x| x.exp()).sum();
        let p1 = 2.0_f64.exp() / total;
        assert_eq!(choose(&logits, 1.0, 1.0, p1 - 1e-9), 1);
        assert_eq!(choose(&logits, 1.0, 1.0, p1 + 1e-9), 2);
        assert_eq!(choose(&logits, 1.0, 1.0, 1.0 - 1e-12), 0);
        assert_eq!(choose(&logits, 1.0, p1 - 1e-9, 1.0 - 1e-12), 1, "the nucleus is the first token alone");
        assert_eq!(choose(&logits, 1.0, p1 + 1e-9, 1.0 - 1e-12), 2);
        assert_eq!(choose(&logits, 1e-3, 1.0, 0.999), 1);
    }
}
