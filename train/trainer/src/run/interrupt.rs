//! Ctrl-C: the first one asks what runs to come to an end in order, the second one stops at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a training process does when it is asked to end.
pub const SAVING: &str = "saving the full state after this step";

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit code of an interrupted process.
pub const EXIT_CODE: u8 = 130;

/// Interrupted outside of training: where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("interrupted {0}")]
pub struct Interrupted(pub String);

/// Takes over Ctrl-C (and the requests to end that job schedulers send); `message` is printed then.
///
/// # Errors
/// When the system refuses.
pub fn install(message: &'static str) -> Result<(), ctrlc::Error> {
    take_over(move || {
        let at_once = message_at_once();
        if let Some(message) = &*at_once {
            tell!("\nerror: {message}");
        }
        if REQUESTED.swap(true, Ordering::SeqCst) || at_once.is_some() {
            std::process::exit(i32::from(EXIT_CODE));
        }
        drop(at_once);
        tell!("\ninterrupted: {message} (again to stop at once)");
    })
}

/// Takes over the requests to end, but not the hang-up of the terminal (SIGHUP) where it is ignored, as under `nohup`. (Background jobs of
/// a shell script ignore SIGINT, too, but that is taken over: `kill -INT` may still ask a program to end.)
fn take_over(handler: impl FnMut() + 'static + Send) -> Result<(), ctrlc::Error> {
    let outlives_terminal = ignores_hangup();
    ctrlc::set_handler(handler)?;
    if outlives_terminal {
        ignore_hangup();
    }
    Ok(())
}

#[cfg(unix)]
fn ignores_hangup() -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks; an action of zeros is a valid one, and is written where the call succeeds.
    unsafe {
        libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(unix)]
fn ignore_hangup() {
    // SAFETY: no code of this process runs where a signal is ignored.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

#[cfg(not(unix))]
fn ignores_hangup() -> bool {
    false
}

#[cfg(not(unix))]
fn ignore_hangup() {}

/// Has a file that comes to the limit of `ulimit -f` be an error of its write, as a full disk is, and not the end of the process.
pub fn ignore_file_limit() {
    #[cfg(unix)]
    // SAFETY: no code of this process runs where a signal is ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN)
    };
}

/// Whether the next Ctrl-C is only noted.
static CAUGHT: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C for a program that goes on after it: it ends the process at once, but for the first one while a [`CatchOne`] lives,
/// which [`requested`] tells.
///
/// # Errors
/// When the system refuses.
pub fn catch_some() -> Result<(), ctrlc::Error> {
    take_over(|| {
        if !CAUGHT.load(Ordering::SeqCst) || REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(EXIT_CODE));
        }
    })
}

/// As long as it lives, the first Ctrl-C does not end the process; see [`catch_some`].
#[must_use]
pub struct CatchOne(());

/// Begins to wait for a Ctrl-C.
pub fn catch_one() -> CatchOne {
    REQUESTED.store(false, Ordering::SeqCst);
    CAUGHT.store(true, Ordering::SeqCst);
    CatchOne(())
}

impl Drop for CatchOne {
    fn drop(&mut self) {
        CAUGHT.store(false, Ordering::SeqCst);
    }
}

/// Printed when Ctrl-C ends the process at once, while nothing has to be saved.
static AT_ONCE: Mutex<Option<String>> = Mutex::new(None);

fn message_at_once() -> MutexGuard<'static, Option<String>> {
    AT_ONCE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as it lives, the first Ctrl-C ends the process at once.
#[must_use]
pub struct AtOnce(());

/// Lets the first Ctrl-C end the process at once with `message`, while something is computed that cannot be stopped halfway
/// and everything before it is saved. Files appear whole or not at all, so the end may come at any instant.
pub fn at_once(message: String) -> AtOnce {
    *message_at_once() = Some(message);
    AtOnce(())
}

impl Drop for AtOnce {
    fn drop(&mut self) {
        *message_at_once() = None;
    }
}

/// Whether an interrupt was requested.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}
