//! `[[adapter]]`: what is trained on the backbone. Several are trained in turn and compared.

use super::method::AdapterMethod;
use super::probe::{ExactnessConfig, ProbeConfig};
use super::schema::elsewhere;
use super::training::TrainConfig;
use super::truncation::{ReduceConfig, TruncateConfig};
use crate::settings::check::Checks;
use hankel_models::adapters::Placement;
use schemars::JsonSchema;
use std::path::PathBuf;

/// One `[[adapter]]`.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
pub struct AdapterConfig {
    /// Name of the row and of the directory under `adapters/`; the kind when not given.
    pub name: String,
    /// Directory of a saved adapter to go on from, reduced ones included.
    pub path: Option<PathBuf>,
    /// Truncations of the trained adapter, each evaluated as a row of its own: one table or an array of them.
    #[schemars(schema_with = "elsewhere")]
    pub truncate: Vec<TruncateConfig>,
    /// Truncation in the middle of training, which goes on with the smaller adapter.
    #[schemars(schema_with = "elsewhere")]
    pub reduce: Option<ReduceConfig>,
    /// Weight of the sum of all layers' Hankel singular values in the training loss; 0 for none. Layers that were truncated
    /// already have no such term.
    pub hsv_regularization: f64,
    /// Evaluations of the trained adapter under other gates, each a row of its own: one table or an array of them.
    #[schemars(schema_with = "elsewhere")]
    pub probe: Vec<ProbeConfig>,
    /// Measures how exactly the recurrence of the trained adapter is evaluated.
    #[schemars(schema_with = "elsewhere")]
    pub exactness: Option<ExactnessConfig>,
    /// Settings of `[train]` that differ for this adapter, merged over them.
    #[schemars(schema_with = "elsewhere")]
    pub train: Option<TrainConfig>,
    /// The adapter.
    #[schemars(skip)]
    pub method: AdapterMethod,
}

/// Letters of the name of a row: file systems take 255, checkpoints and temporary folders add some.
const LONGEST: usize = 200;

impl AdapterConfig {
    /// Names of the rows that are made of it, and of the directories under `adapters/`.
    pub fn names(&self) -> Vec<String> {
        let probes = self.probe.iter().map(|probe| probe.row_name(&self.name));
        self.saved_names().into_iter().chain(probes).collect()
    }

    /// Names of the directories under `adapters/`: probes are not saved.
    pub fn saved_names(&self) -> Vec<String> {
        let mut names = vec![self.name.clone()];
        names.extend(self.truncate.iter().map(|rule| rule.row_name(&self.name)));
        names.extend(self.reduce.map(|_| self.name_in_training()));
        names
    }

    /// Name under `adapters/` of what `reduce` left in the middle of training.
    pub fn name_in_training(&self) -> String {
        format!("{}-reduced-in-training", self.name)
    }

    /// Checks the adapter for a task of sequences of a `length`, and of a number of them if that is known.
    pub(super) fn check(
        &self,
        (length, sequences): (usize, Option<usize>),
        placement: &Placement,
        checks: &mut Checks<'_>,
    ) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        // `none` is the backbone alone; hidden folders are temporary ones.
        let backbone = self.name == "none" && self.method.kind() != "none";
        let reserved = self.name == "pretrain" || self.name.starts_with('.') || backbone;
        checks.require("name", !self.name.is_empty() && self.name.chars().all(plain) && !reserved, || {
            format!(
                "must be made of letters, digits, `-`, `_` and `.`, begin with no `.`, and not be `pretrain`, nor `none` for another kind; \
                 found {:?}",
                self.name
            )
        });
        if let Some(long) = self.names().into_iter().find(|name| name.len() > LONGEST) {
            checks.require("name", false, || {
                format!(
                    "makes the row {long:?}, of {} characters; the name of a folder has at most {LONGEST}",
                    long.len()
                )
            });
        }
        self.method.check(self.path.is_some(), length, placement, checks);
        self.check_evaluations(length, placement, checks);
        if let Some(reduce) = &self.reduce {
            let mut checks = checks.inside("reduce");
            checks.positive("after_epoch", reduce.timing.after_epoch);
            reduce.rule.check(&mut checks);
        }
        for (index, rule) in self.truncate.iter().enumerate() {
            let twice = self.truncate[..index].contains(rule);
            checks.require("truncate", !twice, || format!("has `{}` twice", rule.describe()));
            rule.check(&mut checks.inside("truncate"));
        }
        if let Some(train) = &self.train {
            train.check(sequences, &mut checks.inside("train"));
        }
    }

    /// What is asked for must be something that the kind can do.
    fn check_evaluations(&self, length: usize, placement: &Placement, checks: &mut Checks<'_>) {
        let kind = self.method.kind();
        let sequences = self.exactness.map_or(1, |exactness| exactness.sequences);
        checks.at_least("exactness.sequences", sequences, 1);
        checks.require("exactness.sequences", sequences <= ExactnessConfig::MOST, || {
            format!("must be at most {}, found {sequences}", ExactnessConfig::MOST)
        });
        checks.require("probe", self.probe.is_empty() || self.method.has_gate(), || {
            format!("is for adapters with a gate, which `kind = {kind:?}` has not")
        });
        for (index, probe) in self.probe.iter().enumerate() {
            // Gates are in single precision.
            checks.require("probe.gate", (probe.gate as f32).is_finite(), || {
                format!("must be finite in single precision, found {:?}", probe.gate)
            });
            checks
                .require("probe", !self.probe[..index].contains(probe), || format!("has `{}` twice", probe.describe()));
        }
        checks.not_negative("hsv_regularization", self.hsv_regularization);
        let regularized = self.hsv_regularization > 0.0;
        if self.truncate.is_empty() && self.reduce.is_none() && self.exactness.is_none() && !regularized {
            return;
        }
        // What is wrong with the settings themselves is told already.
        let Some(abilities) = self.method.abilities(length, placement) else { return };
        let (recurrent, reducible, varying) = (abilities.recurrent, abilities.reducible, abilities.varying);
        let only = |kinds: &'static str| move || format!("is for {kinds}, not for `kind = {kind:?}`");
        let (hrm, truncated) = ("`kind = \"hrm\"`", "`kind = \"hrm\"` and `selective` with `mode = \"positive\"`");
        checks.require("truncate", self.truncate.is_empty() || reducible || varying, only(truncated));
        checks.require("truncate", reducible || self.truncate.iter().all(|rule| rule.is_for_varying()), || {
            format!("has no bound, no total and no other method than `bt` for `kind = {kind:?}`, which varies in time")
        });
        checks.require("exactness", self.exactness.is_none() || recurrent, only(hrm));
        checks.require("reduce", self.reduce.is_none() || reducible, only(hrm));
        match abilities.penalty {
            Ok(penalty) => checks.require("hsv_regularization", !regularized || penalty, only(hrm)),
            Err(problem) => {
                checks.require("hsv_regularization", !regularized, || format!("cannot be used: {problem}"));
            }
        }
    }
}
