//! `kind = "adalora"` and `kind = "ia3"`.

use super::check::Checks;
use hankel_models::adapters::{self, Placement, Schedule};
use serde::de::{self, Deserializer, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// Low-rank updates whose ranks are shared out among the projections while training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaLoraConfig {
    /// Rank of every projection at the start; one and a half times the target when not given.
    pub init_rank: Option<usize>,
    /// Mean rank at the end.
    pub target_rank: Option<usize>,
    /// Number of parameters to solve the initial rank for, instead of giving it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Scale of the update, divided by the initial rank; that rank itself when not given.
    pub lora_alpha: Option<f64>,
    /// Dropout on the input of the right singular vectors.
    pub dropout: f64,
    /// Linear sites; `q_proj` and `v_proj` when not given.
    #[serde(deserialize_with = "one_or_many")]
    pub targets: Option<Vec<String>>,
    /// Steps before the ranks are reduced; a tenth of all when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tinit: Option<usize>,
    /// Steps at the end in which they stay; a third of all when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tfinal: Option<usize>,
    /// Steps between two allocations.
    pub delta_t: usize,
    /// Decay of the running mean of the sensitivities.
    pub beta1: f64,
    /// Decay of the running mean of their deviations.
    pub beta2: f64,
    /// Weight of the orthogonality penalty.
    pub orth_reg_weight: f64,
}

impl Default for AdaLoraConfig {
    fn default() -> Self {
        AdaLoraConfig {
            init_rank: None,
            target_rank: None,
            budget: None,
            lora_alpha: None,
            dropout: 0.0,
            targets: None,
            tinit: None,
            tfinal: None,
            delta_t: 10,
            beta1: 0.85,
            beta2: 0.85,
            orth_reg_weight: 0.5,
        }
    }
}

impl AdaLoraConfig {
    fn initial(&self) -> usize {
        self.init_rank.unwrap_or_else(|| self.target_rank.map_or(1, |target| (target * 3).div_ceil(2)))
    }

    /// The model's settings for a training of `steps` optimizer steps.
    pub(super) fn settings(&self, steps: u64) -> adapters::AdaLoraConfig {
        let (initial, steps) = (self.initial(), steps as usize);
        let target = self.target_rank.unwrap_or_else(|| (initial * 2).div_ceil(3)).min(initial);
        let defaults = adapters::AdaLoraConfig::new(initial, target, steps);
        adapters::AdaLoraConfig {
            lora_alpha: self.lora_alpha.unwrap_or(defaults.lora_alpha),
            dropout: self.dropout,
            targets: self.targets.clone().unwrap_or(defaults.targets),
            schedule: Schedule {
                tinit: self.tinit.unwrap_or(defaults.schedule.tinit),
                tfinal: self.tfinal.unwrap_or(defaults.schedule.tfinal),
                delta_t: self.delta_t,
                total_steps: steps,
            },
            beta1: self.beta1,
            beta2: self.beta2,
            orth_reg_weight: self.orth_reg_weight,
            ..defaults
        }
    }

    /// Writes out what is known: the schedule follows from the number of steps, when that is open it stays so.
    pub(super) fn resolve(&mut self, steps: Option<u64>) {
        let settings = self.settings(steps.unwrap_or(0));
        (self.init_rank, self.target_rank) = (Some(settings.init_rank), Some(settings.target_rank));
        (self.lora_alpha, self.targets) = (Some(settings.lora_alpha), Some(settings.targets));
        if steps.is_some() {
            (self.tinit, self.tfinal) = (Some(settings.schedule.tinit), Some(settings.schedule.tfinal));
        }
    }

    pub(super) fn check(&self, placement: &Placement, checks: &mut Checks<'_>) {
        let sized = self.init_rank.is_some() || self.target_rank.is_some() || self.budget.is_some();
        checks.require("target_rank", sized, || "or `init_rank` or `budget` must be given".to_owned());
        checks.require("budget", self.init_rank.is_none() || self.budget.is_none(), || {
            "and `init_rank` are both given: keep one".to_owned()
        });
        for (key, rank) in [("init_rank", self.init_rank), ("target_rank", self.target_rank)] {
            checks.at_least(key, rank.unwrap_or(1), 1);
            checks.at_most(key, rank.unwrap_or(1), 1 << 20);
        }
        if let (Some(initial), Some(target)) = (self.init_rank, self.target_rank) {
            checks.require("target_rank", target <= initial, || format!("is {target}, above init_rank = {initial}"));
        }
        checks.require("lora_alpha", self.lora_alpha.is_none_or(f64::is_finite), || "must be finite".to_owned());
        checks.fraction("dropout", self.dropout);
        checks.fraction("beta1", self.beta1);
        checks.fraction("beta2", self.beta2);
        checks.at_least("delta_t", self.delta_t, 1);
        checks.not_negative("orth_reg_weight", self.orth_reg_weight);
        targets(self.targets.as_deref(), placement, checks);
    }
}

/// Learned scales of keys, values and the MLP's inner activations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ia3Config {
    /// Linear sites; `k_proj`, `v_proj` and `down_proj` when not given.
    #[serde(deserialize_with = "one_or_many")]
    pub targets: Option<Vec<String>>,
    /// Those among them whose input is scaled instead of their output; `down_proj` when not given.
    #[serde(deserialize_with = "one_or_many")]
    pub feedforward: Option<Vec<String>>,
}

impl Ia3Config {
    /// The model's settings.
    pub(super) fn settings(&self) -> adapters::Ia3Config {
        let defaults = adapters::Ia3Config::default();
        adapters::Ia3Config {
            targets: self.targets.clone().unwrap_or(defaults.targets),
            feedforward: self.feedforward.clone().unwrap_or(defaults.feedforward),
        }
    }

    pub(super) fn resolve(&mut self) {
        let adapters::Ia3Config { targets, feedforward } = self.settings();
        (self.targets, self.feedforward) = (Some(targets), Some(feedforward));
    }

    pub(super) fn check(&self, placement: &Placement, checks: &mut Checks<'_>) {
        let settings = self.settings();
        targets(Some(&settings.targets), placement, checks);
        for name in &settings.feedforward {
            checks.require("feedforward", settings.targets.contains(name), || {
                format!("names {name:?}, which is not among `targets`")
            });
        }
    }
}

/// Every pattern matches something.
pub(super) fn targets(targets: Option<&[String]>, placement: &Placement, checks: &mut Checks<'_>) {
    let Some(targets) = targets else { return };
    checks.require("targets", !targets.is_empty(), || {
        "must name at least one linear site, for example [\"q_proj\", \"v_proj\"]".to_owned()
    });
    if let Err(error) = placement.select(targets) {
        checks.require("targets", false, || format!("cannot be attached: {error}"));
    }
}

/// A value alone or an array of them.
pub(super) fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Vec<T>>, D::Error> {
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a name or an array of names")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Vec<T>, E> {
            T::deserialize(name.into_deserializer()).map(|one| vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                all.push(item);
            }
            Ok(all)
        }
    }

    from.deserialize_any(OneOrMany(PhantomData)).map(Some)
}
