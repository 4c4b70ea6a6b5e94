//! Which Gramians `bt reduce` goes by.

use crate::cli::{GramiansArg, ReduceArgs};
use crate::subject::Subject;
use anyhow::{Result, bail};
use clap::ValueEnum;
use hankel_files::{RecordedStates, recorded_states};
use hankel_reduce::Gramians;
use std::collections::BTreeMap;

/// Recorded states, converted from the state coordinates of the file to those of the system that is read from it.
fn in_states_of(subject: &Subject, mut recorded: BTreeMap<String, RecordedStates>) -> BTreeMap<String, RecordedStates> {
    if let Subject::System { plant, .. } = subject {
        for RecordedStates { states, .. } in recorded.values_mut() {
            let columns = states.ncols();
            for &state in plant.turned.iter().filter(|state| **state < columns) {
                for i in 0..states.nrows() {
                    states[(i, state)] = -states[(i, state)];
                }
            }
            if let Some(own) = plant.system.stored().filter(|_| columns == plant.system.states()) {
                *states = own.states(states.as_ref());
            }
        }
    }
    recorded
}

/// The Gramians that the options ask for.
///
/// # Errors
/// When options do not go together, or recorded states cannot be read.
pub fn gramians(args: &ReduceArgs, subject: &Subject) -> Result<Gramians> {
    let weighted = args.weights.weight.is_some() || args.weights.output_weight.is_some();
    let kind = args.gramians.unwrap_or(match args.band {
        Some(_) => GramiansArg::FrequencyLimited,
        None if weighted && args.method.takes_weights() => GramiansArg::Weighted,
        None => GramiansArg::Analytic,
    });
    if subject.is_continuous() && matches!(kind, GramiansArg::TimeLimited | GramiansArg::Empirical) {
        bail!("--gramians time-limited and empirical count steps, which a system in continuous time does not have");
    }
    Ok(match (kind, args.horizon, &args.states, args.band) {
        (GramiansArg::Analytic, None, None, None) => Gramians::Analytic,
        (GramiansArg::TimeLimited, Some(steps), None, None) => Gramians::TimeLimited(steps),
        (GramiansArg::Empirical, None, Some(path), None) => {
            Gramians::Empirical(in_states_of(subject, recorded_states(path)?))
        }
        (GramiansArg::Weighted, None, None, None) if weighted => Gramians::Weighted,
        (GramiansArg::Enns, None, None, None) if weighted => Gramians::Enns,
        (GramiansArg::FrequencyLimited, None, None, Some(ends)) if !weighted => {
            Gramians::FrequencyLimited(subject.band(ends)?)
        }
        (kind, horizon, states, band) => {
            bail!("{}", mismatch(kind, horizon, states.is_some(), band.is_some(), weighted))
        }
    })
}

/// Says which option the Gramians of this kind need, or which of the given options they do not take.
fn mismatch(kind: GramiansArg, horizon: Option<usize>, states: bool, band: bool, weighted: bool) -> String {
    let name = kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    match kind {
        GramiansArg::FrequencyLimited if !band => "--gramians frequency-limited needs --band LOW,HIGH".to_owned(),
        GramiansArg::Weighted | GramiansArg::Enns if !weighted => {
            format!("--gramians {name} needs --weight FILE or --output-weight FILE")
        }
        GramiansArg::FrequencyLimited if weighted => "--band and --weight exclude each other: keep one".to_owned(),
        _ if horizon.is_some() && kind != GramiansArg::TimeLimited => {
            format!("--horizon goes with --gramians time-limited, not with {name}")
        }
        _ if states && kind != GramiansArg::Empirical => {
            format!("--states goes with --gramians empirical, not with {name}")
        }
        _ => format!("--band goes with --gramians frequency-limited, not with {name}"),
    }
}
