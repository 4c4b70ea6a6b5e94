//! Certificates that claim something else than what was measured: `bt verify` accepts none.

use crate::binaries::{Binaries, run, run_and_judge};
use crate::kills::{Whole, copy};
use crate::random::Random;
use crate::tally::Tally;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Claims of a layer that are measured again.
const CLAIMS: [&str; 6] = ["hinf_error", "hinf_norm", "h2_error", "order", "states", "lower_bound"];

/// Changes one claim `count` times.
pub fn attack(b: &Binaries, whole: &Whole, place: &Path, count: usize, seed: u64, tally: &mut Tally) -> Result<()> {
    let mut random = Random(seed ^ 1);
    fs::create_dir(place)?;
    let full = whole.run.join("adapters/hrm").display().to_string();
    let output = run(&b.bt, &["reduce", &full, "-o", "reduced", "--order", "3"], place)?;
    ensure!(output.status.success(), "bt reduce: {}", String::from_utf8_lossy(&output.stderr));
    let (code, problem) = run_and_judge(&b.bt, &["verify", &full, "reduced"], place)?;
    tally.add("an honest certificate is accepted", problem.or((code != 0).then(|| format!("exit {code}"))));
    copy(&place.join("reduced"), &place.join("forged"))?;
    let honest: Value = serde_json::from_slice(&fs::read(place.join("reduced/certificate.json"))?)?;
    for _ in 0..count {
        let mut forged = honest.clone();
        let layers = forged["layers"].as_array_mut().context("a certificate has layers")?;
        let index = random.below(layers.len());
        let claim = *random.choice(&CLAIMS);
        let before = layers[index][claim].clone();
        let Some(value) = before.as_f64().filter(|value| *value != 0.0) else { continue };
        let changed = match before.as_u64() {
            Some(whole) => Value::from(whole + 1),
            None => Value::from(value * random.choice(&[0.5, 0.9, 0.999, 1.001, 1.1, 2.0, 1e-6, -1.0])),
        };
        layers[index][claim] = changed.clone();
        fs::write(place.join("forged/certificate.json"), serde_json::to_vec_pretty(&forged)?)?;
        let (code, problem) = run_and_judge(&b.bt, &["verify", &full, "forged"], place)?;
        let accepted = (code == 0).then(|| format!("layer {index}: {claim} {changed} instead of {before}: accepted"));
        tally.add("a changed claim is refused", problem.or(accepted));
    }
    Ok(())
}
