//! What crosses crates: gradients, equivalence, conformance and recovery.

pub mod decoders;
pub mod golden;
pub mod gradients;
pub mod operators;
pub mod sequences;

/// A number of random cases, unless `PROPTEST_CASES` asks for another.
pub fn cases(usual: u32) -> proptest::prelude::ProptestConfig {
    let config = proptest::prelude::ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        config
    } else {
        proptest::prelude::ProptestConfig { cases: usual, ..config }
    }
}
