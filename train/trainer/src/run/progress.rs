//! Progress of a stage on stderr: a bar on a terminal, plain lines elsewhere.

use crate::format::{duration, thousands};
use crate::parallel::is_muted;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Least time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Shows how far a stage is.
pub(crate) struct Progress {
    stage: String,
    steps: u64,
    processes: usize,
    bar: Option<ProgressBar>,
    begun: Instant,
    first_step: u64,
    last_line: Option<Instant>,
}

impl Progress {
    /// The progress of `stage`, which begins after `done` of `steps` steps on so many processes.
    pub(crate) fn new(stage: &str, done: u64, steps: u64, processes: usize) -> Self {
        let bar = (std::io::stderr().is_terminal() && !is_muted()).then(|| {
            let style =
                ProgressStyle::with_template("{prefix:>16} {wide_bar:.cyan/blue} {pos}/{len}  {msg}  ETA {eta}");
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(5));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(stage.to_owned());
            bar.set_position(done);
            bar.reset_eta();
            bar
        });
        let (stage, begun) = (stage.to_owned(), Instant::now());
        Progress { stage, steps, processes, bar, begun, first_step: done, last_line: None }
    }

    /// After step `step`: the loss and the speed since the last report.
    pub(crate) fn step(&mut self, step: u64, loss: f64, tokens_per_second: f64) {
        let speed = thousands(tokens_per_second.round() as u64);
        let on = if self.processes > 1 { format!(" on {} processes", self.processes) } else { String::new() };
        let message = format!("loss {loss:.4}  {speed} tokens/s{on}");
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            bar.set_message(message);
        } else if self.last_line.is_none_or(|last| last.elapsed() >= LINE_INTERVAL) || step == self.steps {
            let per_step = self.begun.elapsed().as_secs_f64() / (step - self.first_step).max(1) as f64;
            let left = per_step * (self.steps - step) as f64;
            tell!("{:>16}  step {step}/{}  {message}  ETA {}", self.stage, self.steps, duration(left));
            self.last_line = Some(Instant::now());
        }
    }

    /// A line that stays.
    pub(crate) fn note(&self, text: &str) {
        let line = || tell!("{:>16}  {text}", self.stage);
        self.bar.as_ref().map_or_else(line, |bar| bar.suspend(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
