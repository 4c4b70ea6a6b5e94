//! Learning-rate schedules: linear warm-up, then a cosine, a line or a constant.

use crate::config::Schedule;

/// Factor of the peak learning rate at optimizer step `step` (from 0) of `steps`, after `warmup` steps of warm-up.
///
/// As in Hugging Face's schedulers: the first step of a warm-up has rate 0, the cosine is half a period, and both it and
/// the line would reach 0 at step `steps`, one past the last.
pub(crate) fn factor(schedule: Schedule, step: u64, steps: u64, warmup: u64) -> f64 {
    if step < warmup {
        return step as f64 / warmup as f64;
    }
    let rest = steps.saturating_sub(warmup).max(1) as f64;
    let done = (step - warmup) as f64 / rest;
    match schedule {
        Schedule::Cosine => (0.5 * (1.0 + (std::f64::consts::PI * done).cos())).max(0.0),
        Schedule::Linear => (1.0 - done).max(0.0),
        Schedule::Constant => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_rates_of_hugging_face() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/optim/schedules.json");
        let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let tolerance = golden["tolerance_abs_over_base_lr_f64"].as_f64().unwrap();
        let mut checked = 0;
        for case in golden["schedules"].as_array().unwrap() {
            let number = |key: &str| case.get(key).and_then(Value::as_f64);
            let schedule = match case["schedule"].as_str().unwrap() {
                "cosine" if number("num_cycles").is_none_or(|cycles| cycles == 0.5) => Schedule::Cosine,
                "linear" => Schedule::Linear,
                "constant_with_warmup" | "constant" => Schedule::Constant,
                _ => continue,
            };
            let base = number("base_lr").unwrap();
            let warmup = number("num_warmup_steps").unwrap_or(0.0) as u64;
            let rates: Vec<f64> = case["lr_per_step"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            let steps = number("num_training_steps").map_or(rates.len() as u64, |n| n as u64);
            for (step, &rate) in rates.iter().enumerate().take(steps as usize) {
                let found = base * factor(schedule, step as u64, steps, warmup);
                assert!((found - rate).abs() <= tolerance * base, "{case} step {step}: {found} instead of {rate}");
                checked += 1;
            }
        }
        assert!(checked > 100, "only {checked} rates were checked");
    }
}
