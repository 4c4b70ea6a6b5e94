//! Certificates that claim something else than what was measured: `bt verify` accepts none.

use crate::binaries::{Binaries, run, run_and_judge};
use crate::kills::{Whole, copy};
use crate::mutations::system;
use crate::random::Random;
use crate::tally::Tally;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Numbers of a layer that are measured again.
const OF_LAYER: [&str; 14] = [
    "hinf_error",
    "hinf_error_upper",
    "hinf_norm",
    "h2_error",
    "h2_norm",
    "error_bound",
    "lower_bound",
    "gate",
    "spectral_radius",
    "reduced_spectral_radius",
    "hankel_singular_values",
    "order",
    "states",
    "clamped_poles",
];
/// Sums over the layers that are made again.
const OF_TOTAL: [&str; 4] = ["hinf_error", "error_bound", "order", "states"];
/// Fields that a certificate must have: one without them claims nothing that could be checked.
const NEEDED: [&str; 8] =
    ["hinf_error", "hinf_error_upper", "hinf_norm", "h2_error", "order", "states", "proved", "gate"];
/// How the reductions are made whose certificates are changed.
const WAYS: [&[&str]; 8] = [
    &["--order", "3"],
    &["--epsilon", "0.05"],
    &["--order", "3", "--method", "modal"],
    &["--order", "2", "--method", "hankel"],
    &["--order", "3", "--method", "svd"],
    &["--energy", "0.9", "--method", "bfsr"],
    &["--order", "0"],
    &["--order", "6"],
];
/// Nearer to the truth than this nothing is a lie: relative to the number, of an upper end that is raised, relative to the norm, and of radii.
const RELATIVE: f64 = 3e-6;
const ABOVE: f64 = 1e-5;
const OF_NORM: f64 = 3e-9;
const OF_RADIUS: f64 = 3e-9;

/// A full system or adapter, what it was reduced to, and the certificate of that.
struct Subject {
    full: PathBuf,
    reduced: PathBuf,
    file: PathBuf,
    honest: Value,
}

/// Changes a certificate `count` times.
pub fn attack(b: &Binaries, whole: &Whole, place: &Path, count: usize, seed: u64, tally: &mut Tally) -> Result<()> {
    let mut random = Random(seed ^ 1);
    let subjects = subjects(b, whole, place)?;
    for subject in &subjects {
        let (code, problem) = verify(b, place, subject)?;
        let refused = (code != 0).then(|| format!("{}: exit {code}", subject.reduced.display()));
        tally.add("an honest certificate is accepted", problem.or(refused));
    }
    let mut done = 0;
    while done < count {
        let subject = random.choice(&subjects);
        let mut forged = subject.honest.clone();
        let Some(lie) = change(&mut random, &mut forged, &subjects)? else { continue };
        done += 1;
        fs::write(&subject.file, serde_json::to_vec_pretty(&forged)?)?;
        let (code, problem) = verify(b, place, subject)?;
        let accepted = (code == 0).then(|| format!("{}: {lie}: accepted", subject.reduced.display()));
        tally.add("a changed claim is refused", problem.or(accepted));
        fs::write(&subject.file, serde_json::to_vec_pretty(&subject.honest)?)?;
    }
    Ok(())
}

fn verify(b: &Binaries, place: &Path, subject: &Subject) -> Result<(i32, Option<String>)> {
    run_and_judge(&b.bt, &[Path::new("verify"), &subject.full, &subject.reduced], place)
}

/// Reductions of an adapter and of a system, by every method.
fn subjects(b: &Binaries, whole: &Whole, place: &Path) -> Result<Vec<Subject>> {
    fs::create_dir(place)?;
    let (adapter, file) = (place.join("adapter"), place.join("full.safetensors"));
    copy(&whole.run.join("adapters/hrm"), &adapter)?;
    fs::write(&file, system())?;
    let mut subjects = Vec::new();
    for (full, ending) in [(&adapter, ""), (&file, ".npz")] {
        for (number, way) in WAYS.iter().enumerate() {
            // The system has five states.
            if ending == ".npz" && way.contains(&"6") {
                continue;
            }
            let reduced = place.join(format!("reduced-{number}{ending}"));
            let (from, to) = (full.display().to_string(), reduced.display().to_string());
            let output = run(&b.bt, &[&["reduce", &from, "-o", &to], *way].concat(), place)?;
            ensure!(output.status.success(), "bt reduce {way:?}: {}", String::from_utf8_lossy(&output.stderr));
            let file = if reduced.is_dir() {
                reduced.join("certificate.json")
            } else {
                place.join(format!("reduced-{number}{ending}.certificate.json"))
            };
            let honest = serde_json::from_slice(&fs::read(&file)?)?;
            subjects.push(Subject { full: full.clone(), reduced, file, honest });
        }
    }
    Ok(subjects)
}

/// Makes one claim false and says which; `None` when it could be true after all.
fn change(random: &mut Random, forged: &mut Value, subjects: &[Subject]) -> Result<Option<String>> {
    let layers = forged["layers"].as_array().context("a certificate has layers")?.len();
    let norms: f64 = (0..layers).filter_map(|index| forged["layers"][index]["hinf_norm"].as_f64()).sum();
    let layer = random.below(layers);
    Ok(match random.below(13) {
        0 => {
            let name = *random.choice(&OF_TOTAL);
            number(random, &mut forged["total"][name], &format!("total {name}"), norms)
        }
        1 => {
            let name = *random.choice(&NEEDED);
            let fields = forged["layers"][layer].as_object_mut().context("a layer is an object")?;
            fields.remove(name).map(|_| format!("layer {layer} without {name}"))
        }
        2 => {
            let which = *random.choice(&["full", "reduced"]);
            let hashes = forged[which].as_object_mut().context("a certificate has hashes")?;
            let digits: Vec<_> = hashes.iter_mut().filter(|(_, hash)| hash.is_string()).collect();
            let at = random.below(digits.len());
            digits.into_iter().nth(at).and_then(|(name, hash)| {
                let mut text = hash.as_str()?.to_owned().into_bytes();
                // A file of a system has no configuration to have a hash of.
                if text.is_empty() {
                    text.push(b'0');
                } else {
                    let digit = random.below(text.len());
                    text[digit] = if text[digit] == b'0' { b'1' } else { b'0' };
                }
                *hash = String::from_utf8(text).ok()?.into();
                Some(format!("{which} {name} {hash}"))
            })
        }
        3 => {
            let own = &mut forged["layers"][layer];
            let (name, lie) = match random.below(4) {
                0 => ("proved", json!(own["proved"] == false)),
                1 => ("proof", json!("by eye")),
                2 => ("form", json!(if own["form"] == "dense" { "diagonal" } else { "dense" })),
                _ => ("layer", json!("layer 7")),
            };
            own[name] = lie.clone();
            Some(format!("layer {layer}: {name} {lie}"))
        }
        4 => {
            let other = &random.choice(subjects).honest;
            (other["reduced"] != forged["reduced"]).then(|| {
                let (one, two) = (forged["full"].clone(), forged["reduced"].clone());
                *forged = other.clone();
                // Of another reduction of the same thing, with the hashes made right, most claims may be true.
                let hashes = random.below(2) == 0 && other["full"] != one;
                if hashes {
                    (forged["full"], forged["reduced"]) = (one, two);
                }
                format!("that of another reduction, hashes made right: {hashes}")
            })
        }
        5 => {
            let errors = (0..layers).filter_map(|index| forged["layers"][index]["hinf_error"].as_f64());
            let (largest, total) =
                errors.fold((0.0_f64, 0.0), |(largest, total), error| (largest.max(error), total + error));
            // No order is chosen by a bound below the error, whether or not bounds are claimed beside it.
            let share = 1.0 - 2.0 * ABOVE - random.below(1000) as f64 / 1001.0;
            let orders = match random.below(2) {
                0 => json!({"per_layer": {"bound": share * largest}}),
                _ => json!({"total_bound": share * total}),
            };
            if random.below(2) == 0 {
                for place in std::iter::once("/total".to_owned()).chain((0..layers).map(|i| format!("/layers/{i}"))) {
                    let facts = forged.pointer_mut(&place).context("a certificate has layers and a total")?;
                    (facts["error_bound"], facts["holds"]) = (Value::Null, Value::Null);
                }
            }
            forged["orders"] = orders;
            (largest > OF_NORM * norms).then(|| format!("orders {}", forged["orders"]))
        }
        _ => {
            let name = *random.choice(&OF_LAYER);
            let own = &mut forged["layers"][layer];
            let place = match own[name].as_array_mut() {
                Some(values) if values.is_empty() => return Ok(None),
                Some(values) => {
                    let at = random.below(values.len());
                    &mut values[at]
                }
                None => &mut own[name],
            };
            number(random, place, &format!("layer {layer}: {name}"), norms)
        }
    })
}

/// Makes a number false, by a little or by much.
fn number(random: &mut Random, place: &mut Value, name: &str, norms: f64) -> Option<String> {
    if place.is_null() && name.ends_with("error_bound") {
        *place = json!(1e-3);
        return Some(format!("{name} where there is none"));
    }
    let before = place.as_f64()?;
    let lie = if place.is_u64() {
        let step = 1 + random.below(3) as i64;
        json!(place.as_i64()? + if random.below(2) == 0 { step } else { -step })
    } else {
        let unit = random.below(1_000_000) as f64 / 1e6;
        let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
        let value = match random.below(4) {
            0 | 1 => before * (1.0 + sign * 10_f64.powf(-6.0 * unit)),
            2 => before * 10_f64.powf(sign * 30.0 * unit),
            _ => *random.choice(&[-before, 0.0, before + sign, 1e-300, 1e300]),
        };
        let slack = match name {
            _ if name.ends_with("radius") => OF_RADIUS,
            // A little more claims less, and is proved as it is claimed.
            _ if name.ends_with("upper") && value > before => ABOVE * before.abs() + OF_NORM * norms,
            _ => RELATIVE * before.abs() + OF_NORM * norms,
        };
        if (value - before).abs() <= slack {
            return None;
        }
        json!(value)
    };
    let told = format!("{name} {lie} instead of {place}");
    *place = lie;
    Some(told)
}
