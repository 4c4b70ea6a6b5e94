//! What crosses crates: gradients, equivalence, conformance and recovery.

pub mod decoders;
pub mod golden;
pub mod gradients;
pub mod operators;
pub mod readers;
pub mod sequences;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};

/// The largest difference of two elements in the same place; NaN where one is, so that it is within no tolerance.
///
/// # Panics
/// When the lengths differ.
#[track_caller]
pub fn largest_difference(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len(), "number of elements");
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).max_by(f64::total_cmp).unwrap_or(0.0)
}

/// So many random cases, the same ones each time; `PROPTEST_CASES` asks for another number of them, new ones each time.
pub fn cases(usual: u32) -> ProptestConfig {
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return ProptestConfig::default();
    }
    ProptestConfig { cases: usual, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() }
}
