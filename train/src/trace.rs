//! `train trace`: sums up what `HANKEL_TRACE` wrote.

use anyhow::{Context, Result, bail};
use hankel_core::trace::CORES;
use hankel_io::terminal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace file, written by a command that ran with HANKEL_TRACE=FILE in its environment; Perfetto (ui.perfetto.dev) shows it, too
    file: PathBuf,
    /// Print the facts as JSON
    #[arg(long)]
    json: bool,
}

/// An event, with what [`hankel_core::trace`] writes into its `args`.
#[derive(Debug, Deserialize)]
struct Event {
    name: String,
    cat: Category,
    ts: f64,
    dur: f64,
    args: Numbers,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Category {
    Kernel,
    Phase,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Numbers {
    caller_us: f64,
    operations: f64,
    bytes: f64,
    threads: usize,
    loops: u64,
    tasks: u64,
    serial_us: f64,
    parallel_us: f64,
    cores: BTreeMap<usize, f64>,
}

/// Calls of one kernel or of one phase, summed up. Times in seconds.
#[derive(Debug, Default, Serialize)]
struct Sum {
    calls: u64,
    /// On the clock.
    seconds: f64,
    /// Of processors, all threads together.
    processor_seconds: f64,
    operations: f64,
    bytes: f64,
    loops: u64,
    tasks: u64,
    /// On one thread, for a phase also between its kernels.
    serial_seconds: f64,
    /// On so many cores, estimated.
    cores: BTreeMap<usize, f64>,
    /// Of a phase: `serial_seconds` of each kernel within it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    serial_seconds_of: BTreeMap<String, f64>,
}

impl Sum {
    fn add(&mut self, dur: f64, serial_us: f64, numbers: &Numbers) {
        self.calls += 1;
        self.seconds += dur / 1e6;
        self.processor_seconds += (serial_us + numbers.parallel_us) / 1e6;
        self.operations += numbers.operations;
        self.bytes += numbers.bytes;
        self.loops = self.loops.saturating_add(numbers.loops);
        self.tasks = self.tasks.saturating_add(numbers.tasks);
        self.serial_seconds += serial_us / 1e6;
        for cores in CORES {
            *self.cores.entry(cores).or_default() += numbers.cores.get(&cores).copied().unwrap_or(serial_us) / 1e6;
        }
    }

    fn on(&self, cores: usize) -> f64 {
        self.cores.get(&cores).copied().unwrap_or_default()
    }
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    threads: usize,
    /// By name.
    phases: BTreeMap<String, Sum>,
    /// Those within phases, if there are any, else all. By name.
    kernels: BTreeMap<String, Sum>,
}

pub fn run(args: &Args) -> Result<()> {
    let summary = Summary::of(&read(&args.file)?);
    if args.json {
        return Ok(terminal::json(&serde_json::to_string_pretty(&summary)?)?);
    }
    Ok(summary.lines().iter().try_for_each(|line| terminal::line(line))?)
}

fn read(path: &Path) -> Result<Vec<Event>> {
    let file = hankel_io::input::open(path)?;
    let mut events = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.with_context(|| format!("{}:{number} cannot be read", path.display()))?;
        if number == 1 && line != "[" {
            bail!("{} is not a trace: its first line is not `[`", path.display());
        }
        // A full disk may have cut the last line.
        let Some(event) = line.strip_suffix(',') else { continue };
        events
            .push(serde_json::from_str(event).with_context(|| format!("{}:{number} is not an event", path.display()))?);
    }
    if events.is_empty() {
        bail!("{} has no events", path.display());
    }
    Ok(events)
}

impl Summary {
    fn of(events: &[Event]) -> Self {
        let mut summary = Summary::default();
        let mut kernels: Vec<&Event> = events.iter().filter(|event| event.cat == Category::Kernel).collect();
        kernels.sort_by(|a, b| a.ts.total_cmp(&b.ts));
        summary.threads = kernels.iter().map(|event| event.args.threads).max().unwrap_or_default();
        let mut within = Vec::new();
        for phase in events.iter().filter(|event| event.cat == Category::Phase) {
            let first = kernels.partition_point(|kernel| kernel.ts < phase.ts);
            let inside = kernels[first..].iter().take_while(|kernel| kernel.ts < phase.ts + phase.dur);
            let mut whole = Numbers::default();
            let mut between = phase.args.caller_us;
            let sum = summary.phases.entry(phase.name.clone()).or_default();
            for kernel in inside {
                let numbers = &kernel.args;
                between -= numbers.caller_us;
                whole.parallel_us += numbers.serial_us + numbers.parallel_us;
                whole.operations += numbers.operations;
                whole.bytes += numbers.bytes;
                whole.loops += numbers.loops;
                whole.tasks += numbers.tasks;
                numbers.cores.iter().for_each(|(cores, us)| *whole.cores.entry(*cores).or_default() += us);
                *sum.serial_seconds_of.entry(kernel.name.clone()).or_default() += numbers.serial_us / 1e6;
                within.push(*kernel);
            }
            let between = between.max(0.0);
            CORES.iter().for_each(|cores| *whole.cores.entry(*cores).or_default() += between);
            sum.add(phase.dur, between, &whole);
        }
        for kernel in if summary.phases.is_empty() { &kernels } else { &within } {
            let sum = summary.kernels.entry(kernel.name.clone()).or_default();
            sum.add(kernel.dur, kernel.args.serial_us, &kernel.args);
        }
        summary
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{:<32} {:>8} {:>10} {:>9} {:>8} {:>9} {:>9} {:>9} {:>10}",
            "", "calls", "seconds", "Gop/s", "GB/s", "1 core", "16 cores", "64 cores", "serial"
        )];
        let row = |name: &str, sum: &Sum| {
            let rate =
                |amount: f64| if amount > 0.0 { format!("{:.1}", amount / sum.seconds / 1e9) } else { "-".into() };
            format!(
                "{name:<32} {:>8} {:>10.4} {:>9} {:>8} {:>9.4} {:>9.4} {:>9.4} {:>10.4}",
                sum.calls,
                sum.seconds,
                rate(sum.operations),
                rate(sum.bytes),
                sum.on(1),
                sum.on(16),
                sum.on(64),
                sum.serial_seconds,
            )
        };
        let mut kernels: Vec<(&String, &Sum)> = self.kernels.iter().collect();
        kernels.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        lines.extend(kernels.iter().map(|(name, sum)| row(name, sum)));
        lines.extend(self.phases.iter().map(|(name, sum)| row(name, sum)));
        for (name, phase) in &self.phases {
            let of_64 = |seconds: f64| 100.0 * seconds / phase.on(64).max(f64::MIN_POSITIVE);
            let mut serial: Vec<(&str, f64)> =
                phase.serial_seconds_of.iter().map(|(name, seconds)| (name.as_str(), *seconds)).collect();
            serial.push(("between kernels", phase.serial_seconds));
            serial.sort_by(|a, b| b.1.total_cmp(&a.1));
            let parts: Vec<String> =
                serial.iter().take(4).map(|(name, seconds)| format!("{name} {:.1} %", of_64(*seconds))).collect();
            lines.push(format!(
                "\n{name}: an estimate of {:.3} times the speed of one core on 16 and {:.3} on 64; parts on one thread, of the time on 64 cores: {}",
                phase.on(1) / phase.on(16),
                phase.on(1) / phase.on(64),
                parts.join(", ")
            ));
        }
        lines.push(format!(
            "\nMeasured with {} threads. `1 core`, `16 cores`, `64 cores`: seconds, estimated from the processor time of each task; shared memory\n\
             and the way to other threads are not in them. `serial`: processor seconds outside of parallel loops.",
            self.threads
        ));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_phase_is_its_kernels_and_what_lies_between() {
        let kernel = |ts: f64| {
            event(&format!(
                r#"{{"name":"linear.project","cat":"kernel","ts":{ts},"dur":10,"args":{{"caller_us":4,"operations":100,"bytes":8,
                "threads":2,"loops":1,"tasks":4,"serial_us":4,"parallel_us":16,"cores":{{"1":20,"2":12,"4":8,"8":8,"16":8,"32":8,"64":8,"128":8}}}}}}"#
            ))
        };
        let phase = event(r#"{"name":"step","cat":"phase","ts":0,"dur":30,"args":{"caller_us":11}}"#);
        let summary = Summary::of(&[kernel(2.0), kernel(15.0), phase, kernel(40.0)]);
        assert_eq!(
            (summary.threads, summary.kernels["linear.project"].calls),
            (2, 2),
            "the one behind the phase is left out"
        );
        let step = &summary.phases["step"];
        // 11 of the caller, of which 8 within kernels.
        let close = |a: f64, b: f64| assert!((a - b * 1e-6).abs() < 1e-12, "{a} {b}");
        close(step.serial_seconds, 3.0);
        close(step.on(1), 43.0);
        close(step.on(64), 19.0);
        close(step.processor_seconds, 43.0);
        assert!(summary.lines().iter().any(|line| line.contains("between kernels 15.8 %")), "{:?}", summary.lines());
    }
}
