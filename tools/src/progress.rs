//! A sign of life on the standard error, for what takes longer than a second.

use hankel_io::terminal;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A stage is named once it has taken this long, and again after ten times that.
const PATIENCE: Duration = Duration::from_secs(1);

/// Names the stages of a command as they take their time; ends when dropped.
pub struct Progress {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    stage: &'static str,
    since: Instant,
    /// When the stage is named next, after its beginning.
    next: Duration,
    over: bool,
}

impl Progress {
    /// Begins with a stage.
    pub fn start(stage: &'static str) -> Self {
        let state = State { stage, since: Instant::now(), next: PATIENCE, over: false };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let watched = Arc::clone(&shared);
        // Without a thread there is no progress shown, and that is all.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || watch(&watched)).ok();
        Self { shared, thread }
    }

    /// Goes on to another stage.
    pub fn stage(&self, stage: &'static str) {
        let mut state = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.stage, state.since, state.next) = (stage, Instant::now(), PATIENCE);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has nothing to say
        }
    }
}

fn watch((state, changed): &(Mutex<State>, Condvar)) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.over {
        let elapsed = state.since.elapsed();
        if elapsed >= state.next {
            let seconds = elapsed.as_secs();
            terminal::tell(&if seconds < 2 {
                format!("{} ...", state.stage)
            } else {
                format!("{} ... {seconds} s", state.stage)
            });
            state.next *= 10;
        }
        let wait = state.next.saturating_sub(state.since.elapsed()).min(PATIENCE);
        state =
            changed.wait_timeout(state, wait.max(Duration::from_millis(10))).unwrap_or_else(PoisonError::into_inner).0;
    }
}
