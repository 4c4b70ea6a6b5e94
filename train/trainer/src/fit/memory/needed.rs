//! Whether a run fits into the memory that there is.

use super::MAPPED;
use crate::config::{AdapterMethod, BackboneConfig, Config};
use crate::format;
use anyhow::{Result, bail};
use hankel_core::DType;
use hankel_io::memory::{Available, available};

/// Gradient and two moments of the optimizer, beside a trained parameter itself.
const WHILE_TRAINED: u128 = 3;

/// The bytes that the parameters of a run's backbone take at least, from its sizes alone: nothing is allocated. Models in
/// files are not counted, since files are mapped.
pub(crate) fn least(config: &Config) -> u64 {
    let size: u128 = if config.precision.dtype() == DType::F64 { 8 } else { 4 };
    let BackboneConfig::TinyGpt(backbone) = &config.backbone else { return 0 };
    let Ok(settings) = backbone.settings(config.task.vocabulary(), config.longest()) else { return 0 };
    let wide = |n: usize| n as u128;
    let (d, f) = (wide(settings.d_model), wide(settings.d_ff));
    let embeddings = (wide(settings.vocabulary) + wide(settings.context)) * d;
    let own = embeddings + wide(settings.layers) * (4 * d * d + 2 * d * f);
    let trains =
        config.pretrain.is_some() || config.adapter.iter().any(|adapter| adapter.method == AdapterMethod::Full);
    let trained = if trains { own } else { 0 };
    u64::try_from(size * (own + WHILE_TRAINED * trained)).unwrap_or(u64::MAX)
}

/// Fails when the parameters of a run alone need more memory than there is; nothing is allocated for that.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_parameters(config: &Config) -> Result<()> {
    check("the parameters alone take at least", least(config), 0)
}

/// Fails when `bytes` are more than there is, `held` of them being this process's already. What `bytes` are is said by
/// `what`.
///
/// # Errors
/// Says both figures and what to do.
pub(crate) fn check(what: &str, bytes: u64, held: u64) -> Result<()> {
    match available() {
        Some(found) => compare(what, bytes, &Available { bytes: found.bytes.saturating_add(held), ..found }),
        None => Ok(()),
    }
}

fn compare(what: &str, bytes: u64, available: &Available) -> Result<()> {
    if bytes > available.bytes {
        bail!(
            "{what} {}, and {} are available ({}): take smaller sizes (see --dry-run), or begin all the same with --force",
            format::bytes(bytes),
            format::bytes(available.bytes),
            available.limit
        );
    }
    Ok(())
}

/// What of an estimate's components the process has to have for itself.
pub(crate) fn own(components: &[super::Component]) -> u64 {
    components.iter().filter(|(what, _)| *what != MAPPED).map(|(_, bytes)| bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        let text = format!("[task]\nkind = \"dfa\"\nlength = 12\n{more}\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\n");
        Config::load(&text, "c.toml", &[]).unwrap().0
    }

    #[test]
    fn absurd_sizes_are_counted_and_not_allocated() {
        let small = least(&config("[backbone]\nlayers = 1\nd_model = 16\nheads = 2"));
        assert!((4 * 12 * 256..4 * 12 * 256 + 40_000).contains(&small), "{small}");
        // Twelve matrices of a million by a million.
        let large = least(&config("[backbone]\nlayers = 1\nd_model = 1000000\nheads = 2"));
        assert!(large > 48_000_000_000_000, "{large}");
        let message = check("its parameters alone take at least", large, 0).unwrap_err().to_string();
        assert!(message.contains("TiB") && message.contains("available (") && message.contains("--force"), "{message}");
    }

    #[test]
    fn what_fits_is_not_refused() {
        let room = Available { bytes: 1000, limit: "a test" };
        assert!(compare("it takes", 1000, &room).is_ok() && compare("it takes", 1001, &room).is_err());
    }
}
