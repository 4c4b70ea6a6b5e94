//! Ctrl-C: the first one asks the loop to save and stop, the second one stops at once.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit code of an interrupted process.
pub const EXIT_CODE: u8 = 130;

/// Takes over Ctrl-C (and the requests to end that job schedulers send).
///
/// # Errors
/// When the system refuses.
pub fn install() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(EXIT_CODE));
        }
        eprintln!("\ninterrupted: saving the full state after this step (again to stop at once)");
    })
}

/// Whether an end was asked for.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}
