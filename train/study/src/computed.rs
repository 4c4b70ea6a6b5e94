//! Claims that need no training: they are computed whenever the page is written.

use crate::claims::{Expect, Finding, Verdict};
use crate::measure::Group;
use crate::statistics::{Summary, slope};
use crate::units::Unit;
use faer::Mat;
use hankel_core::Random;
use hankel_models::adapters::HrmConfig;
use hankel_models::lti::{GramianFactors, HankelSpectrum, LinearSystem, LtiError, Method, Mode, StateMatrix, reduce};
use hankel_models::weights::HrmPreset;
use serde::Deserialize;

/// A claim with its figures.
pub(crate) struct Computed {
    /// Its name.
    pub id: &'static str,
    /// What the paper says.
    pub paper: &'static str,
    /// What is computed.
    pub ours: &'static str,
    /// What it must show.
    pub expect: Expect,
    /// Why no figure could speak against it, if none could.
    pub by_construction: &'static str,
    /// The figures.
    pub group: Group,
}

impl Computed {
    fn new(id: &'static str, paper: &'static str, ours: &'static str, expect: Expect, values: Vec<f64>) -> Self {
        let units = Unit::Within(values.iter().map(|value| Unit::Figures(vec![*value])).collect());
        let summary = Summary::of(&values).expect("there are figures");
        let group = Group {
            label: String::new(),
            values,
            units,
            summary,
            sides: None,
            diverged: 0,
            choices: 1,
            losses: None,
            range: (f64::NEG_INFINITY, f64::INFINITY),
        };
        Computed { id, paper, ours, expect, by_construction: "", group }
    }

    /// What the figures say.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.expect.evaluate(&self.group) {
            Finding::Shown if !self.by_construction.is_empty() => {
                Verdict::ByConstruction(self.by_construction.to_owned())
            }
            Finding::Shown => Verdict::Confirmed,
            Finding::Undecided | Finding::TooFew => Verdict::Undecided("undecided".to_owned()),
            Finding::Contrary | Finding::Outside => Verdict::NotConfirmed(String::new()),
        }
    }
}

/// All of them. What is counted is no test, and what is a theorem could not fail: none of them adds to the tests of the page.
///
/// # Panics
/// Never on the systems that are drawn here: a test computes them.
pub(crate) fn all() -> Vec<Computed> {
    let mut all = mistral_7b();
    all.extend(complexity());
    let drawn = "a system drawn here is stable";
    let theorem = "a theorem, which figures could only show this program to break";
    let stability = Computed::new(
        "reduced-stability",
        "The reduced system is stable",
        "largest modulus of a pole after balanced truncation of 40 random systems (24 states, real and complex poles up to 0.999) to each of the orders 1 to 23",
        Expect::AtMost(1.0 - 1e-9),
        (0..40).map(|seed| largest_pole(seed).expect(drawn)).collect(),
    );
    let gramians = Computed::new(
        "empirical-gramians",
        "Empirical Gramians converge at 1/sqrt(N)",
        "slope of the logarithm of the relative error of the controllability Gramian over that of the number N of independent recorded states (16 to 256), 20 random systems",
        Expect::Within(-0.6, -0.4),
        (0..20).map(|seed| convergence(seed).expect(drawn)).collect(),
    );
    all.extend([stability, gramians].map(|claim| Computed { by_construction: theorem, ..claim }));
    all
}

/// Sizes of a Mistral model.
#[derive(Deserialize)]
struct Sizes {
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    num_hidden_layers: usize,
    vocab_size: usize,
}

impl Sizes {
    fn key_value_width(&self) -> usize {
        self.hidden_size / self.num_attention_heads * self.num_key_value_heads
    }

    /// Embedding and head; q, k, v, o; the three matrices of the MLP; two norms a layer and one at the end.
    fn parameters(&self) -> usize {
        let d = self.hidden_size;
        let layer = 2 * d * d + 2 * d * self.key_value_width() + 3 * d * self.intermediate_size + 2 * d;
        2 * self.vocab_size * d + self.num_hidden_layers * layer + d
    }
}

fn mistral_7b() -> Vec<Computed> {
    let sizes: Sizes =
        serde_json::from_str(include_str!("../../experiments/mistral-7b.json")).expect("a test reads it");
    let (d, layers) = (sizes.hidden_size, sizes.num_hidden_layers);
    let site = HrmConfig::new(HrmPreset::Paper, 32, d, 4096).parameters_per_site(d) + 1;
    let hrm = (layers * site) as f64;
    // q_proj is [D, D], v_proj [D_kv, D] with grouped queries: r (D + D) and r (D + D_kv).
    let lora = (layers * 16 * (2 * d + d + sizes.key_value_width())) as f64;
    vec![
        Computed::new(
            "mistral-parameters",
            "HRM with 32 states has about 8.4 M trainable parameters on Mistral-7B",
            "millions of parameters, B, C, rates, steps and gates of 32 layers",
            Expect::EachWithin(8.35, 8.45),
            vec![hrm / 1e6],
        ),
        Computed::new(
            "mistral-share",
            "that is roughly 0.116 % of the total",
            "percent of the parameters of Mistral-7B",
            Expect::EachWithin(0.1155, 0.1165),
            vec![100.0 * hrm / sizes.parameters() as f64],
        ),
        Computed::new(
            "mistral-iso-parameters",
            "LoRA of rank 16 has as many (all methods are iso-parametric)",
            "parameters of HRM over those of LoRA of rank 16 on q_proj and v_proj, of which the latter is 4096 to 1024",
            Expect::EachWithin(0.99, 1.01),
            vec![hrm / lora],
        ),
    ]
}

/// What the paper says of costs, counted.
fn complexity() -> Vec<Computed> {
    /// Sizes of the paper's example: states and width.
    const SIZES: (f64, f64) = (16.0, 128.0);
    let (d, width) = SIZES;
    // Of a real sequence, padded to 2T so that it does not wrap: 2.5 N log2 N operations of a radix-2 transform (half of a complex one).
    // Kernel, input and inverse, for every state.
    let transforms = |t: f64| 3.0 * d * 2.5 * (2.0 * t) * (2.0 * t).log2();
    // B and C, a multiplication and an addition for each entry and token.
    let projections = |t: f64| 2.0 * 2.0 * d * width * t;
    vec![
        Computed::new(
            "complexity-projections",
            "With 16 states on a width of 128 the pass by FFT is dominated by B and C, d D T",
            "floating-point operations of the three transforms of every state over those of B and C, T = 512 to 4,096",
            Expect::AtMost(1.0),
            [512.0, 1024.0, 2048.0, 4096.0].map(|t| transforms(t) / projections(t)).into(),
        ),
        Computed::new(
            "complexity-sequential",
            "Without the FFT, T = 2,048, batches of 32 and 4 layers take 262,144 sequential operations",
            "steps of a forward pass that must follow one another: layers times tokens, since the sequences of a batch go side by side",
            Expect::EachWithin(262_144.0, 262_144.0),
            vec![4.0 * 2048.0],
        ),
        Computed::new(
            "memory-depth",
            "With a slowest pole of 0.97 the last 70 tokens contribute substantially, at a threshold of 1 %",
            "tokens after which 0.97^k is 1 % (at 70 it is 12 %)",
            Expect::EachWithin(60.0, 80.0),
            vec![0.01_f64.ln() / 0.97_f64.ln()],
        ),
    ]
}

/// A random system with `pairs` complex pairs and as many real poles twice over, moduli up to `radius`.
fn system(seed: u64, pairs: usize, radius: f64) -> Result<LinearSystem, LtiError> {
    let random = |name: &str| Random::new(seed, &format!("computed.{name}"), 0);
    let (moduli, angles) = (random("moduli"), random("angles"));
    let states = 4 * pairs;
    let modes: Vec<Mode> = (0..3 * pairs as u64)
        .map(|i| {
            let modulus = radius * moduli.uniform(i).sqrt();
            if i < pairs as u64 {
                Mode::Pair { radius: modulus, angle: std::f64::consts::PI * angles.uniform(i).clamp(0.01, 0.99) }
            } else {
                Mode::Real(if angles.uniform(i) < 0.5 { -modulus } else { modulus })
            }
        })
        .collect();
    let (b, c) = (random("b"), random("c"));
    let b = Mat::from_fn(states, 3, |i, j| b.normal((3 * i + j) as u64));
    let c = Mat::from_fn(3, states, |i, j| c.normal((states * i + j) as u64));
    LinearSystem::new(StateMatrix::Modal(modes), b, c, None)
}

fn largest_pole(seed: u64) -> Result<f64, LtiError> {
    let system = system(seed, 6, 0.999)?;
    let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system)?)?;
    let orders = 1..system.states().min(spectrum.rank() + 1);
    let radius = |order| Ok(reduce(&system, &spectrum, Method::default(), order)?.system.spectral_radius());
    orders.map(radius).try_fold(0.0, |largest: f64, radius: Result<f64, LtiError>| Ok(largest.max(radius?)))
}

/// Slope of log error over log N. The states are those of N sequences of white noise at their end: states of one sequence are not independent.
fn convergence(seed: u64) -> Result<f64, LtiError> {
    /// After so many steps 0.9^200 of a variance is left to come.
    const STEPS: usize = 100;
    const REPEATS: u64 = 4;
    let system = system(seed, 2, 0.9)?;
    let exact = GramianFactors::analytic(&system)?.controllability();
    let (n, inputs, a) = (system.states(), system.inputs(), system.a().to_dense());
    let error = |sequences: usize, repeat: u64| {
        let noise = Random::new(seed, &format!("computed.noise.{sequences}"), repeat);
        // All sequences side by side: [n, N].
        let mut states = Mat::<f64>::zeros(n, sequences);
        for step in 0..STEPS {
            let place = |i: usize, j: usize| ((step * sequences + j) * inputs + i) as u64;
            let input = Mat::from_fn(inputs, sequences, |i, j| noise.normal(place(i, j)));
            states = &a * &states + system.b() * &input;
        }
        let empirical = &states * states.transpose() * faer::Scale(1.0 / sequences as f64);
        (empirical - &exact).squared_norm_l2() / exact.squared_norm_l2()
    };
    let point = |exponent: u32| {
        let sequences = 1_usize << exponent;
        let square = (0..REPEATS).map(|repeat| error(sequences, repeat)).sum::<f64>() / REPEATS as f64;
        ((sequences as f64).ln(), square.sqrt().ln())
    };
    Ok(slope(&(4..=8).map(point).collect::<Vec<_>>()).expect("several points"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_training() {
        let sizes: Sizes = serde_json::from_str(include_str!("../../experiments/mistral-7b.json")).unwrap();
        // As the model card and transformers count.
        assert_eq!(sizes.parameters(), 7_241_732_096);
        let all = all();
        let figures = |id: &str| all.iter().find(|computed| computed.id == id).unwrap();
        // REFERENCE: r (2 D + D + 1024) a layer.
        assert!((figures("mistral-iso-parameters").group.values[0] - 8_390_688.0 / 6_815_744.0).abs() < 1e-12);
        let holds = |id: &str| figures(id).verdict() == Verdict::Confirmed;
        assert!(!holds("mistral-iso-parameters") && holds("mistral-parameters") && holds("mistral-share"));
        for theorem in ["reduced-stability", "empirical-gramians"] {
            assert!(
                matches!(figures(theorem).verdict(), Verdict::ByConstruction(_)),
                "{:?}",
                figures(theorem).group.values
            );
        }
        // By hand: 3 x 16 x 2.5 x 1024 x 10 over 4 x 16 x 128 x 512, and a pole of 0.97: ln 100 / 0.030459.
        let transforms = &figures("complexity-projections").group.values;
        assert!((transforms[0] - 1_228_800.0 / 4_194_304.0).abs() < 1e-12 && holds("complexity-projections"));
        assert!(!holds("complexity-sequential") && !holds("memory-depth"));
        assert!((figures("memory-depth").group.values[0] - 151.19).abs() < 0.01);
    }
}
