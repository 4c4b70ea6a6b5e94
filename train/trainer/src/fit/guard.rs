//! A guard against adapters that cannot learn: values that no gradient reaches, or that do not move, in the first steps.

use super::training::Training;
use crate::config::TrainConfig;
use anyhow::Result;
use hankel_core::Tensor;
use std::collections::BTreeMap;

/// Steps after which the guard looks.
const STEPS: u64 = 10;
/// Places that a warning names.
const SHOWN: usize = 4;

/// The adapters' values as they were when a process began to train them.
pub(super) struct Guard {
    start: Vec<(String, Tensor)>,
    after: u64,
}

/// What the first steps did to the values of an adapter at one place.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Signs {
    gradient: bool,
    moved: bool,
}

impl Guard {
    /// Watches the adapters of `training`, unless its first steps are over.
    pub(super) fn new(training: &Training<'_>) -> Option<Self> {
        let after = STEPS.min(training.steps());
        // A of LoRA gets its first gradient in the second step, when B is not 0 any more.
        // The first step of a warm-up has a rate of 0.
        let fresh = after > 2 && training.step_number() < after;
        fresh.then(|| Guard { start: training.adapter_values(), after }).filter(|guard| !guard.start.is_empty())
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, step: u64) -> bool {
        step >= self.after
    }

    /// What is wrong with the adapters of the stage `name`, if anything is.
    ///
    /// # Errors
    /// When the device has failed.
    pub(super) fn warning(
        &self,
        name: &str,
        training: &Training<'_>,
        settings: &TrainConfig,
    ) -> Result<Option<String>> {
        let now: BTreeMap<String, Tensor> = training.adapter_values().into_iter().collect();
        let mut places: BTreeMap<&str, Signs> = BTreeMap::new();
        for (parameter, before) in &self.start {
            // Truncation gives an adapter other values: it has learnt.
            let Some(value) = now.get(parameter).filter(|value| value.shape() == before.shape()) else {
                return Ok(None);
            };
            // `q_proj.lora_A.weight` as `q_proj.lora_magnitude_vector`.
            let own = parameter.trim_end_matches(".weight");
            let place = own.rsplit_once('.').map_or(own, |(place, _)| place);
            let signs = places.entry(place).or_default();
            signs.gradient |= training.has_gradient(parameter)?;
            signs.moved |= value.to_f64_vec() != before.to_f64_vec();
        }
        Ok(describe(name, self.after, &places, settings))
    }
}

fn describe(name: &str, steps: u64, places: &BTreeMap<&str, Signs>, settings: &TrainConfig) -> Option<String> {
    let without = |sign: fn(&Signs) -> bool| -> Vec<&str> {
        places.iter().filter(|(_, signs)| !sign(signs)).map(|(place, _)| *place).collect()
    };
    let (untouched, still) = (without(|signs| signs.gradient), without(|signs| signs.moved));
    let all = |list: &[&str]| list.len() == places.len();
    if all(&untouched) {
        return Some(format!(
            "warning: no value of `{name}` got a gradient in the first {steps} steps: it cannot learn. Two factors that are both 0 at \
             the start do this, as `gate_init = 0` with `c_std = 0`: give one of them another value"
        ));
    }
    if all(&still) {
        let [lr, rate_lr, gate_lr] =
            [settings.lr, settings.rate_lr.unwrap_or(settings.lr), settings.gate_lr.unwrap_or(settings.lr)];
        return Some(format!(
            "warning: no value of `{name}` moved in the first {steps} steps, though there were gradients: it does not learn. The \
             learning rates are lr = {lr}, rate_lr = {rate_lr}, gate_lr = {gate_lr}: give `train.lr` a larger value"
        ));
    }
    let (list, what) = if untouched.is_empty() { (still, "moved") } else { (untouched, "got a gradient") };
    (!list.is_empty()).then(|| {
        let shown = list[..list.len().min(SHOWN)].join(", ");
        let more = if list.len() > SHOWN { ", ..." } else { "" };
        format!(
            "warning: at {} of the {} places of `{name}` no value {what} in the first {steps} steps ({shown}{more}): what is there does \
             not learn; leave these places out (`targets`, `sites`), or look at what stands behind them",
            list.len(),
            places.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(signs: [(bool, bool); 3]) -> Option<String> {
        let signs = signs.map(|(gradient, moved)| Signs { gradient, moved });
        let places = ["layers.0", "layers.1", "layers.2"].into_iter().zip(signs).collect();
        describe("hrm", 10, &places, &TrainConfig { gate_lr: Some(0.5), ..TrainConfig::default() })
    }

    #[test]
    fn what_does_not_learn_is_named_with_the_remedy() {
        assert_eq!(told([(true, true); 3]), None);
        // Weight decay moves values without a gradient.
        assert!(told([(false, true); 3]).unwrap().contains("no value of `hrm` got a gradient in the first 10 steps"));
        assert!(told([(true, false); 3]).unwrap().contains("lr = 0.003, rate_lr = 0.003, gate_lr = 0.5"));
        let some = told([(true, true), (false, false), (false, true)]).unwrap();
        assert!(
            some.contains("at 2 of the 3 places of `hrm` no value got a gradient")
                && some.contains("(layers.1, layers.2)"),
            "{some}"
        );
        assert!(
            told([(true, true), (true, false), (true, true)])
                .unwrap()
                .contains("at 1 of the 3 places of `hrm` no value moved")
        );
    }
}
