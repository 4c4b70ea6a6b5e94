//! What a program spends its time on: an event for each call of a kernel, in the trace event format that Perfetto and
//! `chrome://tracing` show.
//!
//! Programs start it with [`start`]; `train` and `bt` do so when the environment has `HANKEL_TRACE=FILE`. Without it a kernel pays one
//! read of a flag.
//!
//! An event is a call of an operator's kernel (`linear.project`, `attention.backward`), a parallel loop outside of all kernels, or a
//! phase that a program names (`step`). Its `args` (of a phase only `caller_us`):
//!
//! | key | |
//! | --- | --- |
//! | `operations` | multiplications and additions of matrix products and attention |
//! | `bytes` | of the tensors that were asked for and made, in main memory |
//! | `threads` | of the pool |
//! | `loops`, `tasks` | parallel loops, and the tasks that they were split into |
//! | `caller_us` | processor time of the calling thread |
//! | `serial_us` | the same outside of parallel loops |
//! | `parallel_us` | processor time of all tasks |
//! | `cores` | microseconds on 1, 2, 4, ... 128 cores, an estimate |
//!
//! The estimate is `serial_us` and, for each loop, the time until the last of its tasks is done when each, in their order, goes to the first
//! core that is free. It is made of processor times, so that other programs on the machine do not change it. It knows
//! neither the memory that cores share nor the way to other threads and back. A loop within a task of another counts as part of that task.
//!
//! Kernels of a GPU run later than they are called: their events tell what recording the commands took.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The variable of the environment that names the file.
pub const VARIABLE: &str = "HANKEL_TRACE";
/// Numbers of cores that are estimated.
pub const CORES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

static ON: AtomicBool = AtomicBool::new(false);
static TRACE: OnceLock<Trace> = OnceLock::new();

struct Trace {
    begun: Instant,
    file: Mutex<Lines>,
}

/// Whole lines on their way to the file.
struct Lines {
    file: File,
    waiting: Vec<u8>,
}

/// Bytes of lines that wait at most, for the phase to end: a write between two kernels would count as the program's own time.
const WAITING: usize = 1 << 20;

impl Lines {
    fn write(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.waiting);
        self.waiting.clear();
        written
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Totals>> = const { RefCell::new(None) };
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
    /// Phases that are open on this thread.
    static PHASES: Cell<usize> = const { Cell::new(0) };
}

/// Writes events to a new file from now on.
///
/// # Errors
/// When the file is there already or cannot be made, or a trace was started before.
pub fn start(path: &Path) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(b"[\n")?;
    let trace = Trace { begun: Instant::now(), file: Mutex::new(Lines { file, waiting: Vec::new() }) };
    if TRACE.set(trace).is_err() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a trace was started before"));
    }
    ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether events are written.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Processor time of this thread.
#[cfg(unix)]
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where there is no such clock, the time on the wall.
#[cfg(not(unix))]
fn processor_time() -> Duration {
    TRACE.get().map_or(Duration::ZERO, |trace| trace.begun.elapsed())
}

/// What loops and products of a kernel add up.
#[derive(Default)]
struct Totals {
    operations: u64,
    bytes: u64,
    loops: u64,
    tasks: u64,
    /// Processor time of the calling thread within loops.
    in_loops: Duration,
    /// Processor time of the tasks.
    parallel: Duration,
    /// Time of the loops on each of [`CORES`].
    cores: [Duration; CORES.len()],
}

/// An event that ends where this is dropped.
#[must_use = "the event ends where this is dropped"]
pub struct Span(Option<Open>);

struct Open {
    module: &'static str,
    part: &'static str,
    begun: Instant,
    processor: Duration,
    /// A kernel collects what its loops tell; a phase does not.
    kernel: bool,
}

/// A call of the kernel `part` of the module of an operator. Within another one, or within a task of a loop, it is a part of that.
#[inline]
pub fn kernel(module: &'static str, part: &'static str) -> Span {
    if !is_on() || IN_TASK.get() || CURRENT.with_borrow(Option::is_some) {
        return Span(None);
    }
    CURRENT.set(Some(Totals::default()));
    Span::open(module, part, true)
}

/// A part of a program, with kernels within.
#[inline]
pub fn phase(name: &'static str) -> Span {
    if !is_on() {
        return Span(None);
    }
    PHASES.set(PHASES.get() + 1);
    Span::open("", name, false)
}

impl Span {
    fn open(module: &'static str, part: &'static str, kernel: bool) -> Self {
        Span(Some(Open { module, part, begun: Instant::now(), processor: processor_time(), kernel }))
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        let caller = processor_time().saturating_sub(open.processor);
        let totals = if open.kernel { CURRENT.take() } else { None };
        let operator = open.module.rsplit("::").next().unwrap_or_default();
        if !open.kernel {
            PHASES.set(PHASES.get() - 1);
        }
        let name = if operator.is_empty() { open.part.to_owned() } else { format!("{operator}.{}", open.part) };
        write_event(&name, open.begun, caller, totals.as_ref());
    }
}

fn write_event(name: &str, begun: Instant, caller: Duration, totals: Option<&Totals>) {
    let Some(trace) = TRACE.get() else { return };
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let at = us(begun.saturating_duration_since(trace.begun));
    let took = us(begun.elapsed());
    let category = if totals.is_some() { "kernel" } else { "phase" };
    let totals = totals.map_or_else(String::new, |totals| {
        let Totals { operations, bytes, loops, tasks, in_loops, parallel, cores } = totals;
        let threads = rayon::current_num_threads();
        let serial = caller.saturating_sub(*in_loops);
        let cores: Vec<String> =
            CORES.iter().zip(cores).map(|(n, time)| format!("\"{n}\":{:.1}", us(serial + *time))).collect();
        format!(
            ",\"operations\":{operations},\"bytes\":{bytes},\"threads\":{threads},\"loops\":{loops},\"tasks\":{tasks},\"serial_us\":{:.1},\"parallel_us\":{:.1},\"cores\":{{{}}}",
            us(serial),
            us(*parallel),
            cores.join(",")
        )
    });
    let line = format!(
        "{{\"name\":\"{name}\",\"cat\":\"{category}\",\"ph\":\"X\",\"pid\":{},\"tid\":1,\"ts\":{at:.1},\"dur\":{took:.1},\"args\":{{\"caller_us\":{:.1}{totals}}}}},\n",
        std::process::id(),
        us(caller)
    );
    let Ok(mut lines) = trace.file.lock() else { return };
    lines.waiting.extend_from_slice(line.as_bytes());
    // What is there is whole lines, also after a kill. A full disk ends the trace, not the program.
    if (PHASES.get() == 0 || lines.waiting.len() > WAITING) && lines.write().is_err() {
        ON.store(false, Ordering::Relaxed);
    }
}

/// Counts operations of the running kernel. In a task of a loop they are counted already.
#[inline]
pub fn operations(count: impl FnOnce() -> usize) {
    add(|totals| totals.operations += count() as u64);
}

/// Counts bytes of tensors.
#[inline]
pub(crate) fn bytes(count: impl FnOnce() -> usize) {
    add(|totals| totals.bytes += count() as u64);
}

#[inline]
fn add(what: impl FnOnce(&mut Totals)) {
    if is_on() && !IN_TASK.get() {
        CURRENT.with_borrow_mut(|current| current.as_mut().map(what));
    }
}

/// Measures the tasks of a loop.
pub(crate) struct Tasks(Option<Vec<AtomicU64>>);

impl Tasks {
    /// Runs task `i`.
    #[inline]
    pub(crate) fn run<R>(&self, i: usize, f: impl FnOnce() -> R) -> R {
        let Some(nanoseconds) = &self.0 else { return f() };
        let before = processor_time();
        let outer = IN_TASK.replace(true);
        let result = f();
        IN_TASK.set(outer);
        nanoseconds[i].store((processor_time().saturating_sub(before)).as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

/// Runs a loop of `tasks` tasks, each of which goes through [`Tasks::run`].
pub(crate) fn parallel_loop<R>(tasks: usize, run: impl FnOnce(&Tasks) -> R) -> R {
    if !is_on() || IN_TASK.get() {
        return run(&Tasks(None));
    }
    // A loop outside of all kernels is an event of its own.
    let _span = kernel("", "loop");
    let measured = Tasks(Some((0..tasks).map(|_| AtomicU64::new(0)).collect()));
    let before = processor_time();
    let result = run(&measured);
    let in_loop = processor_time().saturating_sub(before);
    let times: Vec<u64> = measured.0.into_iter().flatten().map(AtomicU64::into_inner).collect();
    CURRENT.with_borrow_mut(|current| {
        let Some(totals) = current else { return };
        totals.loops += 1;
        totals.tasks += tasks as u64;
        totals.in_loops += in_loop;
        totals.parallel += Duration::from_nanos(times.iter().sum());
        for (total, cores) in totals.cores.iter_mut().zip(CORES) {
            *total += Duration::from_nanos(last_end(&times, cores));
        }
    });
    result
}

/// When the last task ends, each, in their order, on the first core that is free.
fn last_end(times: &[u64], cores: usize) -> u64 {
    let mut free: BinaryHeap<Reverse<u64>> = (0..cores.max(1)).map(|_| Reverse(0)).collect();
    let mut last = 0;
    for &time in times {
        let Reverse(begin) = free.pop().expect("there is a core");
        last = last.max(begin + time);
        free.push(Reverse(begin + time));
    }
    last
}

#[cfg(test)]
mod tests {
    use super::last_end;
    use proptest::prelude::*;

    #[test]
    fn schedules() {
        assert_eq!(last_end(&[], 4), 0);
        assert_eq!(last_end(&[3, 3, 3, 3], 1), 12);
        assert_eq!(last_end(&[3, 3, 3, 3], 2), 6);
        assert_eq!(last_end(&[1, 1, 1, 9], 3), 10);
        assert_eq!(last_end(&[5, 1, 1], 64), 5);
    }

    proptest! {
        /// Graham's bound: not worse than an equal share and the longest task together, nor better than either.
        #[test]
        fn bounds(times in prop::collection::vec(0_u64..1000, 0..50), cores in 1_usize..70) {
            let (sum, longest) = (times.iter().sum::<u64>(), times.iter().copied().max().unwrap_or(0));
            let end = last_end(&times, cores);
            prop_assert!(end >= longest && end * cores as u64 >= sum);
            prop_assert!(end <= sum / cores as u64 + longest);
        }
    }
}
