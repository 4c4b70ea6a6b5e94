//! Sizes and presets: from what was written to the settings of the models.

use super::adapter::{AdapterConfig, AdapterMethod, HrmConfig, LoraConfig, Scan};
use hankel_models::adapters::{self, Budget, Placement, RateInit};
use hankel_ops::ScanPath;

/// Difference between a budget and what it comes to above which a warning is given.
const BUDGET_TOLERANCE: f64 = 0.01;

impl From<ScanPath> for Scan {
    fn from(path: ScanPath) -> Self {
        match path {
            ScanPath::Fft => Scan::Fft,
            ScanPath::Sequential => Scan::Sequential,
            ScanPath::Chunked => Scan::Chunked,
        }
    }
}

impl Scan {
    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Scan::Auto => "auto",
            Scan::Fft => "fft",
            Scan::Sequential => "sequential",
            Scan::Chunked => "chunked",
        }
    }
}

impl HrmConfig {
    /// The settings of the model for sequences of `length` tokens, presets filled in.
    fn settings(&self, length: usize, placement: &Placement) -> adapters::HrmConfig {
        let d = self.state_dim.unwrap_or(1);
        let defaults = adapters::HrmConfig::new(self.preset, d, placement.d_model, length);
        let a_max = self.a_max.unwrap_or(defaults.a_max);
        adapters::HrmConfig {
            mode: self.mode,
            sites: self.sites.clone().unwrap_or(defaults.sites),
            input: self.input.unwrap_or(defaults.input),
            discretization: self.discretization.unwrap_or(defaults.discretization),
            rate_init: self.rate_init.unwrap_or(defaults.rate_init),
            a_min: self.a_min.unwrap_or(defaults.a_min.min(a_max)),
            a_max,
            b_std: self.b_std.unwrap_or(defaults.b_std),
            c_std: self.c_std.unwrap_or(defaults.c_std),
            gate_init: self.gate_init.unwrap_or(defaults.gate_init),
            train_gate: self.train_gate.unwrap_or(defaults.train_gate),
            train_log_dt: self.train_log_dt.unwrap_or(defaults.train_log_dt),
            scan: match self.scan {
                Scan::Auto => defaults.scan,
                Scan::Fft => ScanPath::Fft,
                Scan::Sequential => ScanPath::Sequential,
                Scan::Chunked => ScanPath::Chunked,
            },
            ..defaults
        }
    }

    /// Writes out every setting.
    fn resolve(&mut self, length: usize, placement: &Placement) {
        let settings = self.settings(length, placement);
        self.sites = Some(settings.sites);
        self.input = Some(settings.input);
        self.discretization = Some(settings.discretization);
        self.rate_init = Some(settings.rate_init);
        if settings.rate_init == RateInit::LogSpaced {
            (self.a_min, self.a_max) = (Some(settings.a_min), Some(settings.a_max));
        }
        (self.b_std, self.c_std) = (Some(settings.b_std), Some(settings.c_std));
        self.gate_init = Some(settings.gate_init);
        (self.train_gate, self.train_log_dt) = (Some(settings.train_gate), Some(settings.train_log_dt));
        self.scan = settings.scan.into();
    }
}

impl LoraConfig {
    fn settings(&self, dora: bool) -> adapters::LoraConfig {
        let defaults = adapters::LoraConfig::new(self.rank.unwrap_or(1));
        adapters::LoraConfig {
            lora_alpha: self.lora_alpha.unwrap_or(defaults.lora_alpha),
            dropout: self.dropout,
            targets: self.targets.clone().unwrap_or(defaults.targets),
            rslora: self.rslora,
            dora,
            ..defaults
        }
    }

    fn resolve(&mut self) {
        let settings = self.settings(false);
        (self.targets, self.lora_alpha) = (Some(settings.targets), Some(settings.lora_alpha));
    }
}

/// A solved budget in words.
fn describe(budget: &Budget, name: &str) -> String {
    let warning = if budget.difference().abs() > BUDGET_TOLERANCE { "warning: " } else { "" };
    format!(
        "{warning}adapter.{name}: a budget of {} parameters gives {} = {} with {} parameters ({:+.2} %)",
        budget.budget,
        budget.key,
        budget.size,
        budget.parameters,
        100.0 * budget.difference()
    )
}

impl AdapterMethod {
    fn budget(&self) -> Option<u64> {
        match self {
            AdapterMethod::Hrm(c) => c.budget,
            AdapterMethod::Lora(c) | AdapterMethod::Dora(c) => c.budget,
            AdapterMethod::AdaLora(c) => c.budget,
            AdapterMethod::Stream(c) => c.common.budget,
            AdapterMethod::Ia3(_) | AdapterMethod::Full(_) | AdapterMethod::None(_) => None,
        }
    }

    /// Puts a size in the place of a budget.
    fn set_size(&mut self, size: usize) {
        match self {
            AdapterMethod::Hrm(c) => (c.state_dim, c.budget) = (Some(size), None),
            AdapterMethod::Lora(c) | AdapterMethod::Dora(c) => (c.rank, c.budget) = (Some(size), None),
            AdapterMethod::AdaLora(c) => (c.init_rank, c.budget) = (Some(size), None),
            AdapterMethod::Stream(c) => c.set_size(size),
            AdapterMethod::Ia3(_) | AdapterMethod::Full(_) | AdapterMethod::None(_) => {}
        }
    }
}

impl AdapterConfig {
    /// Solves a budget and writes out every setting; what to tell about a solved budget.
    ///
    /// `steps` are those of its training, when they are known.
    pub(super) fn resolve(&mut self, length: usize, placement: &Placement, steps: Option<u64>) -> Option<String> {
        if self.path.is_some() {
            return None;
        }
        let solve = |budget| self.settings(length, placement, steps.unwrap_or(0)).solve_budget(placement, budget).ok();
        let solved = self.method.budget().and_then(solve);
        if let Some(solved) = &solved {
            self.method.set_size(solved.size);
        }
        match &mut self.method {
            AdapterMethod::Hrm(c) => c.resolve(length, placement),
            AdapterMethod::Lora(c) | AdapterMethod::Dora(c) => c.resolve(),
            AdapterMethod::AdaLora(c) => c.resolve(steps),
            AdapterMethod::Ia3(c) => c.resolve(),
            AdapterMethod::Stream(c) => c.resolve(length),
            AdapterMethod::Full(_) | AdapterMethod::None(_) => {}
        }
        solved.map(|solved| describe(&solved, &self.name))
    }

    /// The adapter's settings for the models, for sequences of `length` tokens and a training of `steps` optimizer steps.
    pub fn settings(&self, length: usize, placement: &Placement, steps: u64) -> adapters::AdapterConfig {
        match &self.method {
            AdapterMethod::Hrm(c) => adapters::AdapterConfig::Hrm(c.settings(length, placement)),
            AdapterMethod::Lora(c) => adapters::AdapterConfig::Lora(c.settings(false)),
            AdapterMethod::Dora(c) => adapters::AdapterConfig::Lora(c.settings(true)),
            AdapterMethod::AdaLora(c) => adapters::AdapterConfig::AdaLora(c.settings(steps)),
            AdapterMethod::Ia3(c) => adapters::AdapterConfig::Ia3(c.settings()),
            AdapterMethod::Stream(c) => adapters::AdapterConfig::Stream(c.settings(length)),
            AdapterMethod::Full(_) | AdapterMethod::None(_) => adapters::AdapterConfig::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_models::TinyGptConfig;
    use hankel_models::adapters::HrmMode;

    fn solve(method: AdapterMethod) -> (AdapterConfig, Option<String>) {
        let placement = TinyGptConfig::default().placement();
        let mut adapter = AdapterConfig {
            name: "x".to_owned(),
            path: None,
            truncate: Vec::new(),
            reduce: None,
            hsv_regularization: 0.0,
            probe: Vec::new(),
            exactness: None,
            train: None,
            method,
        };
        let told = adapter.resolve(512, &placement, None);
        (adapter, told)
    }

    #[test]
    fn budgets_of_the_paper() {
        for (budget, state_dim, rank) in [(16_384, 16, 8), (32_768, 32, 16), (65_536, 63, 32)] {
            let (hrm, _) = solve(AdapterMethod::Hrm(HrmConfig { budget: Some(budget), ..HrmConfig::default() }));
            let AdapterMethod::Hrm(hrm) = hrm.method else { panic!() };
            assert_eq!((hrm.state_dim, hrm.budget), (Some(state_dim), None));
            let (lora, _) = solve(AdapterMethod::Lora(LoraConfig { budget: Some(budget), ..LoraConfig::default() }));
            let AdapterMethod::Lora(lora) = lora.method else { panic!() };
            assert_eq!((lora.rank, lora.lora_alpha), (Some(rank), Some(rank as f64)));
        }
    }

    #[test]
    fn states_in_pairs_are_solved_for_by_twos() {
        for (mode, state_dim) in [(HrmMode::Signed, 15), (HrmMode::Complex, 16)] {
            let config = HrmConfig { mode, budget: Some(15_600), ..HrmConfig::default() };
            let AdapterMethod::Hrm(hrm) = solve(AdapterMethod::Hrm(config)).0.method else { panic!() };
            assert_eq!((hrm.state_dim, hrm.mode), (Some(state_dim), mode));
        }
    }

    #[test]
    fn what_a_budget_comes_to_is_told() {
        let (_, told) = solve(AdapterMethod::Hrm(HrmConfig { budget: Some(33_000), ..HrmConfig::default() }));
        assert_eq!(
            told.unwrap(),
            "adapter.x: a budget of 33000 parameters gives state_dim = 32 with 33028 parameters (+0.08 %)"
        );
        let (_, told) = solve(AdapterMethod::Hrm(HrmConfig { budget: Some(100), ..HrmConfig::default() }));
        assert!(told.unwrap().starts_with("warning: adapter.x: a budget of 100 parameters gives state_dim = 1"));
        let (_, told) = solve(AdapterMethod::Lora(LoraConfig { rank: Some(3), ..LoraConfig::default() }));
        assert_eq!(told, None);
    }
}
