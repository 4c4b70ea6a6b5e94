//! Ctrl-C: the first one asks what runs to come to an end in order, the second one stops at once.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a training process does when it is asked to end.
pub const SAVING: &str = "saving the full state after this step";

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit code of an interrupted process.
pub const EXIT_CODE: u8 = 130;

/// The end of what is no run with a state of its own: where it was, and what is left of it.
#[derive(Debug, thiserror::Error)]
#[error("interrupted {0}")]
pub struct Interrupted(pub String);

/// Takes over Ctrl-C (and the requests to end that job schedulers send); `told` is what happens then.
///
/// # Errors
/// When the system refuses.
pub fn install(told: &'static str) -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(move || {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(EXIT_CODE));
        }
        tell!("\ninterrupted: {told} (again to stop at once)");
    })
}

/// Whether an end was asked for.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}
