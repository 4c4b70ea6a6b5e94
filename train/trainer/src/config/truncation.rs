//! `truncate` and `reduce`: a rule of truncation, at the end of a training or in the middle of it.

use super::training::TrainConfig;
use crate::settings::check::Checks;
use crate::settings::schema::names;
use hankel_models::lti::{Bound, Method, OrderRule};
use hankel_models::reduce::OrderChoice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A truncation rule (R6): one of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TruncateConfig {
    /// Keep singular values of at least this share of the largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Keep this many states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<usize>,
    /// Keep this share of the sum of the singular values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<f64>,
    /// Keep as few states as have an error bound of at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Keep this many states over all layers, those of the largest singular values, so that the sum of the layers' bounds is
    /// least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// How the smaller systems are made; `bt` (balanced truncation) when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "names::<Method>")]
    pub method: Option<Method>,
}

/// When a truncation in the middle of training takes place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// After this many passes over the training sequences; may be a fraction.
    pub after_epoch: f64,
    /// Steps in which the learning rate rises again from 0 to what it was.
    pub warmup_steps: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { after_epoch: 1.0, warmup_steps: 20 }
    }
}

/// Truncation in the middle of training: the rule of `truncate`, and when.
///
/// Adam's moments of the adapter start again, with a short warm-up of the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ReduceConfig {
    /// When.
    #[serde(flatten)]
    pub timing: Timing,
    /// How.
    #[serde(flatten)]
    pub rule: TruncateConfig,
}

impl ReduceConfig {
    /// The optimizer step after which it is done; none in a training of no steps.
    ///
    /// # Errors
    /// When nothing would be trained afterwards.
    pub fn step_within(self, settings: &TrainConfig, sequences: usize) -> anyhow::Result<Option<u64>> {
        let steps = settings.steps(sequences);
        if steps == 0 {
            return Ok(None);
        }
        let after = self.timing.after_epoch;
        let at = TrainConfig { steps: None, epochs: Some(after), ..settings.clone() }.steps(sequences);
        anyhow::ensure!(
            at < steps,
            "`reduce.after_epoch = {after}` is step {at} of a training of {steps} steps: nothing would be trained \
             afterwards; for a truncation at the end use `truncate`"
        );
        Ok(Some(at))
    }
}

impl TruncateConfig {
    fn given(self) -> Vec<OrderChoice> {
        let rules = [
            self.epsilon.map(OrderRule::Epsilon),
            self.order.map(OrderRule::Order),
            self.energy.map(OrderRule::Energy),
            self.bound.map(OrderRule::Bound),
        ];
        let per_layer = rules.into_iter().flatten().map(OrderChoice::PerLayer);
        per_layer.chain(self.total.map(OrderChoice::Budget)).collect()
    }

    /// How the orders are chosen.
    pub fn choice(self) -> OrderChoice {
        self.given().first().copied().unwrap_or_default()
    }

    /// The rule for each layer by itself, if it is one.
    pub fn rule(self) -> Option<OrderRule> {
        if let OrderChoice::PerLayer(rule) = self.choice() { Some(rule) } else { None }
    }

    /// The rule in words: `epsilon = 0.01`, `order = 6, method = svd`, `total = 24`.
    pub fn describe(self) -> String {
        let rule = match self.choice() {
            OrderChoice::PerLayer(OrderRule::Epsilon(value)) => format!("epsilon = {value}"),
            OrderChoice::PerLayer(OrderRule::Order(value)) => format!("order = {value}"),
            OrderChoice::PerLayer(OrderRule::Energy(value)) => format!("energy = {value}"),
            OrderChoice::PerLayer(OrderRule::Bound(value)) => format!("bound = {value}"),
            OrderChoice::Budget(value) => format!("total = {value}"),
            OrderChoice::TotalBound(value) => format!("total bound = {value}"),
        };
        self.method.map_or(rule.clone(), |method| format!("{rule}, method = {}", method.name()))
    }

    /// Name of the row and directory: `hrm-epsilon-0.01`, `hrm-order-6-svd`.
    pub fn row_name(self, full: &str) -> String {
        let rule = self.describe().replace(" = ", "-").replace(", method", "");
        format!("{full}-{rule}")
    }

    /// Whether it is for adapters that vary in time, of which no bound is known.
    pub(crate) fn is_for_varying(self) -> bool {
        self.bound.is_none() && self.total.is_none() && self.method.is_none_or(|method| method == Method::default())
    }

    pub(super) fn check(self, checks: &mut Checks<'_>) {
        checks.require("", self.given().len() == 1, || {
            "must hold exactly one of `epsilon`, `order`, `energy`, `bound` and `total`".to_owned()
        });
        if let Some(Err(error)) = self.rule().map(OrderRule::check) {
            checks.require("", false, || format!("cannot be used: {error}"));
        }
        checks.at_least("total", self.total.unwrap_or(1), 1);
        let direct = self.method.filter(|method| method.has_direct_term());
        checks.require("method", direct.is_none(), || {
            let name = direct.map_or("", Method::name);
            format!("`{name}` makes a direct term, which the recurrence of an adapter has no place for")
        });
        let unbounded = self.method.filter(|method| self.bound.is_some() && method.bound() == Bound::None);
        checks.require("method", unbounded.is_none(), || {
            let name = unbounded.map_or("", Method::name);
            format!("`{name}` has no error bound for `bound` to choose by: take another rule, or another method")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncation_in_a_training_of_no_steps_is_left_out() {
        let timing = Timing { after_epoch: 2.0, ..Timing::default() };
        let reduce = ReduceConfig { timing, ..ReduceConfig::default() };
        let at = |steps| {
            let settings = TrainConfig { steps: Some(steps), batch_size: 4, ..TrainConfig::default() };
            reduce.step_within(&settings, 16).map_err(|error| error.to_string())
        };
        assert_eq!((at(0), at(9)), (Ok(None), Ok(Some(8))));
        assert!(at(8).unwrap_err().contains("nothing would be trained afterwards"));
    }
}
