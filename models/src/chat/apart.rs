//! Running somebody's code apart: on a thread with a stack for whatever it nests, and for a limited time.
//!
//! The limits of `whole` and `python` end a template long before the time does. The time is for what they overlook: then the
//! caller gets its error, and the thread, whose memory is bounded, ends with the process at the latest.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Reserved, not taken: a page of it takes memory when it is used.
const STACK: usize = 256 << 20;
/// Templates in use take less than a millisecond.
const TIME: Duration = Duration::from_secs(2);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It takes too long.
    #[error("the chat template: it takes more than {} seconds", TIME.as_secs())]
    Slow,
    /// The engine has a fault.
    #[error("the chat template: the template engine panics")]
    Panic,
    /// The system gives no thread.
    #[error("the chat template: cannot start a thread for it ({0})")]
    NoThread(std::io::Error),
}

/// What `work` gives.
///
/// # Errors
/// When it takes too long or panics, or no thread can be started.
pub(super) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let (sender, receiver) = channel();
    let worker = thread::Builder::new().name("chat template".to_owned()).stack_size(STACK);
    let worker = worker.spawn(move || {
        // Nobody listens any more once the time is up.
        let _ = sender.send(work());
    });
    worker.map_err(Failure::NoThread)?;
    receiver.recv_timeout(TIME).map_err(|error| match error {
        RecvTimeoutError::Timeout => Failure::Slow,
        RecvTimeoutError::Disconnected => Failure::Panic,
    })
}
