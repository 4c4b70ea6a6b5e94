//! Sizes from a number of parameters: the rank or the number of states whose adapters come nearest to it.

use super::{AdaLoraConfig, AdapterConfig, AdapterSet, HrmConfig, HrmMode, LoraConfig, Placement, stream};
use hankel_core::{Error, Result};

/// A budget and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// The settings with the size filled in.
    pub config: AdapterConfig,
    /// What was solved for: `state_dim`, `rank` or `init_rank`.
    pub key: &'static str,
    /// Its value.
    pub size: usize,
    /// The number of parameters that was asked for.
    pub budget: u64,
    /// The number of trainable values there will be.
    pub parameters: u64,
}

impl Budget {
    /// `parameters / budget - 1`.
    pub fn difference(&self) -> f64 {
        self.parameters as f64 / self.budget as f64 - 1.0
    }
}

impl AdapterConfig {
    /// Number of trainable values on a backbone with the sites of `placement`: the shapes that are really there, narrower
    /// keys and values of grouped queries included.
    ///
    /// # Errors
    /// When a target matches nothing, or a setting of a registered kind is out of range.
    pub fn parameter_count(&self, placement: &Placement) -> Result<u64> {
        let over = |targets: &[String], count: &dyn Fn(usize, &super::LinearSite) -> usize| -> Result<u64> {
            let sites = placement.select(targets)?;
            Ok(sites.iter().map(|(layer, site)| count(*layer, site) as u64).sum())
        };
        match self {
            AdapterConfig::None => Ok(0),
            AdapterConfig::Hrm(c) => {
                Ok((c.parameters_per_site(placement.d_model) * c.sites.len() * placement.layers) as u64)
            }
            AdapterConfig::Stream(_) => {
                // Layers are alike, but may have parameters in common.
                let of = |layers: usize| {
                    let few = Placement { layers, ..placement.clone() };
                    AdapterSet::new(self, &few, 0).map(|set| set.trainable_count() as u64)
                };
                let layers = placement.layers as u64;
                if layers < 2 { of(placement.layers) } else { Ok(of(1)? + (layers - 1) * (of(2)? - of(1)?)) }
            }
            AdapterConfig::Lora(c) => over(&c.targets, &|_, site| {
                c.rank * (site.inputs + site.outputs) + if c.dora { site.outputs } else { 0 }
            }),
            AdapterConfig::AdaLora(c) => over(&c.targets, &|_, site| c.init_rank * (site.inputs + site.outputs + 1)),
            AdapterConfig::Ia3(c) => over(&c.targets, &|layer, site| c.scales(site, layer)),
        }
    }

    /// Solves for the size with which [`AdapterConfig::parameter_count`] is nearest to `budget`, at least 1. Everything else
    /// stays as it is, but for AdaLoRA's `target_rank`, which is lowered to `init_rank` where it would exceed it.
    ///
    /// # Errors
    /// When a target matches nothing, or the adapter has no size: IA3, none and kinds without one.
    pub fn solve_budget(&self, placement: &Placement, budget: u64) -> Result<Budget> {
        if budget == 0 {
            return Err(Error::invalid("budget", "a budget must be at least 1"));
        }
        let key = match self {
            AdapterConfig::Hrm(_) => "state_dim",
            AdapterConfig::Lora(_) => "rank",
            AdapterConfig::Stream(c) => stream::kind(&c.kind)
                .and_then(|kind| kind.size)
                .ok_or_else(|| Error::invalid("budget", format!("kind {:?} has no size to solve for", c.kind)))?,
            AdapterConfig::AdaLora(_) => "init_rank",
            AdapterConfig::None => return Err(Error::invalid("budget", "no adapter has no size to solve for")),
            AdapterConfig::Ia3(_) => {
                return Err(Error::invalid(
                    "budget",
                    "IA3 has as many parameters as its projections are wide: choose targets",
                ));
            }
        };
        // States in complex pairs come by twos.
        let unit = match self {
            AdapterConfig::Hrm(c) if c.mode == HrmMode::Complex => 2,
            _ => 1,
        };
        let count = |units: usize| self.with_size(units * unit).parameter_count(placement);
        let (one, two) = (count(1)?, count(2)?);
        // The count is a straight line.
        let slope = (two - one).max(1);
        let below = ((budget.saturating_sub(one) / slope).saturating_add(1)).min(1 << 20) as usize;
        let (low, high) = (count(below)?, count(below + 1)?);
        let (units, parameters) =
            if high.abs_diff(budget) < low.abs_diff(budget) { (below + 1, high) } else { (below, low) };
        let size = units * unit;
        Ok(Budget { config: self.with_size(size), key, size, budget, parameters })
    }

    /// The same settings with another rank or number of states.
    fn with_size(&self, size: usize) -> AdapterConfig {
        match self {
            AdapterConfig::Hrm(c) => AdapterConfig::Hrm(HrmConfig { state_dim: size, ..c.clone() }),
            AdapterConfig::Stream(c) => {
                let key = stream::kind(&c.kind).and_then(|kind| kind.size);
                AdapterConfig::Stream(key.map_or_else(|| c.clone(), |key| c.clone().with(key, size)))
            }
            AdapterConfig::Lora(c) => AdapterConfig::Lora(LoraConfig { rank: size, ..c.clone() }),
            AdapterConfig::AdaLora(c) => {
                let target_rank = c.target_rank.min(size);
                AdapterConfig::AdaLora(AdaLoraConfig { init_rank: size, target_rank, ..c.clone() })
            }
            other => other.clone(),
        }
    }
}
