//! What the tests of this crate share.

use hankel_trainer::results::RunResult;

/// A finished DFA run with the rows none, hrm, lora and hrm-truncated.
pub(crate) fn result() -> RunResult {
    serde_json::from_str(include_str!("../tests/fixtures/result.json")).unwrap()
}
