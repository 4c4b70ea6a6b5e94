//! What crosses crates: gradients, equivalence, conformance and recovery.

pub mod decoders;
pub mod golden;
pub mod gradients;
pub mod operators;
pub mod readers;
pub mod sequences;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};

/// So many random cases, the same ones each time; `PROPTEST_CASES` asks for another number of them, new ones each time.
pub fn cases(usual: u32) -> ProptestConfig {
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return ProptestConfig::default();
    }
    ProptestConfig { cases: usual, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() }
}
