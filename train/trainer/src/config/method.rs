//! What is trained: adapters of a registered kind, every parameter of the backbone, or nothing but its head.

use crate::settings::check::Checks;
use hankel_models::adapters::{self, Context, Kind, Placement, Sites, kinds};
use hankel_models::settings::{SettingsError, Table};
use hankel_models::{AdapterSet, TinyGptConfig};

/// Difference between a budget and what it comes to above which a warning is given.
const BUDGET_TOLERANCE: f64 = 0.01;
/// Values of `adapter.kind` that are not adapters.
pub const FULL: &str = "full";
pub const NONE: &str = "none";

/// What is trained, by `adapter.kind`.
#[derive(Debug, Clone, PartialEq)]
pub enum AdapterMethod {
    /// Adapters of a registered kind.
    Adapter(AdapterSettings),
    /// `kind = "full"`: no adapter, but every parameter of the backbone trained further.
    Full,
    /// `kind = "none"`: the backbone alone, or its head and embeddings when those are trained.
    None,
}

/// A kind and what is set of it; complete once the configuration is resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterSettings {
    /// The kind.
    pub kind: Kind,
    /// Number of parameters to solve the kind's size for, instead of giving it.
    pub budget: Option<u64>,
    /// Its settings.
    pub settings: Table,
}

/// What adapters can be asked for.
pub struct Abilities {
    /// They are linear recurrences with constant coefficients, measured for exactness.
    pub recurrent: bool,
    /// They are truncated with a certificate, in the middle of training too.
    pub reducible: bool,
    /// They are systems that vary with their input, truncated along data.
    pub varying: bool,
    /// Whether the sum of their Hankel singular values can be trained for, or why it cannot though they have some.
    pub penalty: Result<bool, String>,
}

/// Every value of `adapter.kind`.
pub fn names() -> Vec<&'static str> {
    kinds().into_iter().map(Kind::name).chain([FULL, NONE]).collect()
}

impl AdapterMethod {
    /// The value of `adapter.kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            AdapterMethod::Adapter(adapter) => adapter.kind.name(),
            AdapterMethod::Full => FULL,
            AdapterMethod::None => NONE,
        }
    }

    /// The adapter, if it is one.
    pub fn adapter(&self) -> Option<&AdapterSettings> {
        if let AdapterMethod::Adapter(adapter) = self { Some(adapter) } else { None }
    }

    pub(super) fn has_gate(&self) -> bool {
        self.adapter().is_some_and(|adapter| adapter.kind.has_gate())
    }

    /// What the adapter can be asked for; `None` when its settings cannot be used.
    pub(super) fn abilities(&self, length: usize, placement: &Placement) -> Option<Abilities> {
        let none = Abilities { recurrent: false, reducible: false, varying: false, penalty: Ok(false) };
        let Some(adapter) = self.adapter().filter(|adapter| adapter.kind.sites() == Sites::Stream) else {
            return Some(none);
        };
        let context = Context { placement, length, steps: None, pretrained: false };
        adapter.kind.configure(&adapter.settings, &context).ok()?;
        let example = |d_model: usize, settings: &Table| {
            let placement = Placement { layers: 1, d_model, ..placement.clone() };
            let config = adapter.kind.configure(settings, &Context { placement: &placement, ..context }).ok()?;
            AdapterSet::new(&config, &placement, 0).ok()
        };
        // What it can do does not depend on its size: the example is as small as most kinds can be.
        let mut small = adapter.settings.clone();
        small.extend(adapter.kind.size().map(|key| (key.to_owned(), 2.into())));
        let one = example(2, &small).or_else(|| example(placement.d_model, &adapter.settings))?;
        Some(Abilities {
            recurrent: one.is_recurrent().ok()?,
            reducible: one.is_reducible(),
            varying: one.is_varying().ok()?,
            penalty: if one.begins_from_data() {
                Err("the gradient is not known for an adapter that begins as a truncated one".to_owned())
            } else {
                one.hankel_sum().map(|sum| sum.is_some()).map_err(|error| error.to_string())
            },
        })
    }

    /// Checks the settings; those of a saved adapter, at a path, come from its file.
    pub(super) fn check(&self, is_saved: bool, length: usize, placement: &Placement, checks: &mut Checks<'_>) {
        let Some(adapter) = self.adapter() else {
            let kind = self.kind();
            checks.require("path", !is_saved, || format!("is not for `kind = {kind:?}`, which has no adapter to load"));
            return;
        };
        if is_saved {
            checks.require("path", adapter.budget.is_none() && adapter.settings.is_empty(), || {
                "names a saved adapter, which has its own settings: leave out the others".to_owned()
            });
        } else if let Err(SettingsError { key, problem }) = adapter.usable(length, placement) {
            checks.require(&key, false, || problem);
        }
    }

    /// Solves a budget and writes out every setting of the adapter called `name`; what to tell about a solved budget.
    ///
    /// # Errors
    /// When there is no size for the budget.
    pub(super) fn resolve(&mut self, name: &str, context: &Context<'_>) -> Result<Option<String>, String> {
        let AdapterMethod::Adapter(adapter) = self else { return Ok(None) };
        let solve = |budget| {
            let config = adapter.kind.configure(&adapter.settings, context).map_err(|error| error.problem)?;
            config
                .solve_budget(context.placement, budget)
                .map_err(|error| format!("of {budget} cannot be met: {error}"))
        };
        let solved = adapter.budget.map(solve).transpose()?;
        if let Some(solved) = &solved {
            adapter.budget = None;
            let fitted = solved.config.settings();
            let changed = adapter.settings.iter().find(|(key, value)| fitted[*key].as_f64() != value.as_f64());
            if let Some((key, value)) = changed {
                let (size, found) = (solved.key, solved.size);
                return Err(format!(
                    "gives {size} = {found}, to which `{key}` = {value} does not fit: change one of them"
                ));
            }
            adapter.settings.insert(solved.key.to_owned(), solved.size.into());
        }
        if let Ok(all) = adapter.kind.resolve(&adapter.settings, context) {
            adapter.settings = all;
        }
        Ok(solved.map(|solved| {
            let difference = solved.difference();
            let warning = if difference.abs() > BUDGET_TOLERANCE { "warning: " } else { "" };
            format!(
                "{warning}adapter.{name}: a budget of {} parameters gives {} = {} with {} parameters ({:+.2} %)",
                solved.budget,
                solved.key,
                solved.size,
                solved.parameters,
                100.0 * difference
            )
        }))
    }

    /// Whether its training is laid out for a number of steps: its defaults then depend on them.
    pub fn depends_on_steps(&self) -> bool {
        let Some(adapter) = self.adapter() else { return false };
        let placement = TinyGptConfig::default().placement();
        let size = adapter.kind.size().into_iter().map(|key| (key.to_owned(), 2.into())).collect();
        let settings = |steps| {
            let context = Context { placement: &placement, length: 2, steps: Some(steps), pretrained: false };
            adapter.kind.resolve(&size, &context).ok()
        };
        settings(1000) != settings(2000)
    }

    /// The adapter's settings for the models; `None` without an adapter.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn settings(&self, context: &Context<'_>) -> Result<Option<adapters::AdapterConfig>, SettingsError> {
        self.adapter().map(|adapter| adapter.kind.configure(&adapter.settings, context)).transpose()
    }
}

impl AdapterSettings {
    fn usable(&self, length: usize, placement: &Placement) -> Result<(), SettingsError> {
        self.kind.check_size(&self.settings, self.budget)?;
        self.kind.configure(&self.settings, &Context { placement, length, steps: None, pretrained: false }).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_models::adapters::kind;

    fn solve(name: &str, budget: u64, given: &[(&str, &str)]) -> (Table, Option<String>) {
        let placement = TinyGptConfig::default().placement();
        let settings = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let adapter = AdapterSettings { kind: kind(name).unwrap(), budget: Some(budget), settings };
        let mut method = AdapterMethod::Adapter(adapter);
        let context = Context { placement: &placement, length: 512, steps: None, pretrained: false };
        let told = method.resolve("x", &context).unwrap();
        let adapter = method.adapter().unwrap();
        assert_eq!(adapter.budget, None);
        (adapter.settings.clone(), told)
    }

    #[test]
    fn budgets_of_the_paper() {
        for (budget, state_dim, rank) in [(16_384, 16, 8), (32_768, 32, 16), (65_536, 63, 32)] {
            assert_eq!(solve("hrm", budget, &[]).0["state_dim"], state_dim);
            let (lora, _) = solve("lora", budget, &[]);
            assert_eq!((&lora["rank"], &lora["lora_alpha"]), (&rank.into(), &f64::from(rank).into()));
        }
    }

    #[test]
    fn settings_that_do_not_fit_the_size_of_a_budget_are_refused() {
        let placement = TinyGptConfig::default().placement();
        let context = Context { placement: &placement, length: 512, steps: Some(100), pretrained: false };
        let resolve = |target_rank: u32| {
            let settings = [("target_rank".to_owned(), target_rank.into())].into_iter().collect();
            let adapter = AdapterSettings { kind: kind("adalora").unwrap(), budget: Some(33_000), settings };
            AdapterMethod::Adapter(adapter).resolve("x", &context)
        };
        assert!(resolve(8).is_ok());
        let problem = resolve(20).unwrap_err();
        assert!(problem.starts_with("gives init_rank = ") && problem.contains("`target_rank` = 20"), "{problem}");
    }

    #[test]
    fn ranks_that_are_shared_out_depend_on_the_steps() {
        let of = |name: &str| {
            let adapter = AdapterSettings { kind: kind(name).unwrap(), budget: None, settings: Table::new() };
            AdapterMethod::Adapter(adapter).depends_on_steps()
        };
        assert!(of("adalora") && !of("lora") && !of("hrm"));
    }

    #[test]
    fn states_in_pairs_are_solved_for_by_twos() {
        for (mode, state_dim) in [("signed", 15), ("complex", 16)] {
            assert_eq!(solve("hrm", 15_600, &[("mode", mode)]).0["state_dim"], state_dim, "{mode}");
        }
    }

    #[test]
    fn what_a_budget_comes_to_is_told() {
        let (_, told) = solve("hrm", 33_000, &[]);
        assert_eq!(
            told.unwrap(),
            "adapter.x: a budget of 33000 parameters gives state_dim = 32 with 33028 parameters (+0.08 %)"
        );
        let (_, told) = solve("lora", 100, &[]);
        assert!(told.unwrap().starts_with("warning: adapter.x: a budget of 100 parameters gives rank = 1"));
    }
}
