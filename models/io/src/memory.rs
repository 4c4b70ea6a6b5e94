//! How much memory there is, and what happens when there is no more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

/// Exit code of a process that got no memory: what was asked for does not fit on this machine.
const NO_MEMORY: i32 = 2;

/// The system's allocator, which ends the process with a message and exit code 2 when there is no memory, where Rust's own
/// answer would be to abort. For `#[global_allocator]` of a program.
pub struct Allocator;

// SAFETY: every call is passed on to the system's allocator as it is. A null pointer, its only failure, is not returned.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is the one asked for here.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; `block` came from `System`.
        given(unsafe { System.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

fn given(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        no_memory(size);
    }
    block
}

/// What to take less of, where a program knows.
static SMALLER: OnceLock<&str> = OnceLock::new();

/// Sets what a message about memory advises: "a smaller batch_size". The first call counts.
pub fn advise(smaller: &'static str) {
    let _ = SMALLER.set(smaller);
}

#[cold]
fn no_memory(size: usize) -> ! {
    // Nothing here allocates: the text is put together on the stack.
    let mut text = [0_u8; 256];
    let mut rest = &mut text[..];
    let _ = writeln!(
        rest,
        "error: out of memory: {size} bytes were asked for and the system has none to give; take {}, or a machine or limit with \
         more memory",
        SMALLER.get().unwrap_or(&"a smaller input")
    );
    let used = 256 - rest.len();
    let _ = io::stderr().write_all(&text[..used]);
    std::process::exit(NO_MEMORY)
}

/// Starts the threads that everything is computed on, as `RAYON_NUM_THREADS` says. Later, when they are first needed, there
/// is nobody to tell an error to.
///
/// The calling thread, that of `main`, becomes one of them: it computes its share of each loop where it would wait for the end of it.
/// A pool of one thread is left to other threads, which would wait for ever while `main` is busy; `main` runs its loops by itself then.
///
/// # Errors
/// When the system has no memory or no more threads for them.
pub fn start_threads() -> io::Result<()> {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|threads| threads.parse().ok()).filter(|n| *n > 0);
    let threads = asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let started = if threads > 1 { builder.use_current_thread() } else { builder }.build_global();
    started.map_err(|error| {
        io::Error::other(format!(
            "cannot start the threads to compute on ({error}): set RAYON_NUM_THREADS=1, or allow more memory"
        ))
    })
}

/// Memory that a process can still take, in bytes, and what says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// How much.
    pub bytes: u64,
    /// What limits it.
    pub limit: &'static str,
}

/// The least of what the system has, what the control groups of this process allow, and what its own limit leaves. `None`
/// where the system says nothing of it (Windows). On macOS, where nothing says what is free, it is all that the machine has.
pub fn available() -> Option<Available> {
    let system = kilobytes("/proc/meminfo", "MemAvailable:").map(|bytes| Available { bytes, limit: "free memory" });
    let groups = control_groups().map(|bytes| Available { bytes, limit: "the memory limit of the control group" });
    let machine = sysctl("hw.memsize").and_then(|bytes| bytes.parse().ok());
    let machine = machine.map(|bytes| Available { bytes, limit: "the memory of the machine" });
    [system, machine, groups, address_space()].into_iter().flatten().min_by_key(|found| found.bytes)
}

/// What macOS says of itself under `key`; `None` elsewhere.
pub fn sysctl(key: &str) -> Option<String> {
    if !cfg!(target_os = "macos") {
        return None;
    }
    let output = std::process::Command::new("sysctl").args(["-n", key]).output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A figure of a file below /proc that is in kB there, in bytes.
pub fn kilobytes(file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// What `ulimit -v` leaves.
fn address_space() -> Option<Available> {
    #[cfg(target_os = "linux")]
    {
        let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
        let used = kilobytes("/proc/self/status", "VmSize:")?;
        Some(Available { bytes: limit.saturating_sub(used), limit: "the limit of the address space (ulimit -v)" })
    }
    #[cfg(not(target_os = "linux"))]
    None
}

fn control_groups() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let root = Path::new("/sys/fs/cgroup");
    let mut least = None;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        let version_1 = controllers.split(',').any(|controller| controller == "memory");
        let (root, files) = match (controllers.is_empty(), version_1) {
            (true, _) => (root.to_owned(), ["memory.max", "memory.current"]),
            (false, true) => (root.join("memory"), ["memory.limit_in_bytes", "memory.usage_in_bytes"]),
            (false, false) => continue,
        };
        // Every group above limits as well. In a container the path may be the one outside of it.
        let inner = root.join(path);
        let groups = inner.ancestors().take_while(|group| group.starts_with(&root));
        least = least.into_iter().chain(groups.filter_map(|group| group_leaves(group, files))).min();
    }
    least
}

/// What is left below the limit of one group; pages of files count as used there, but the system can drop them.
fn group_leaves(group: &Path, [limit, used]: [&str; 2]) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number(limit)?, number(used)?);
    let pages = fs::read_to_string(group.join("memory.stat")).ok().map_or(0, |text| {
        let figure = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok());
        figure("inactive_file").unwrap_or(0_u64) + figure("active_file").unwrap_or(0_u64)
    });
    Some(limit.saturating_sub(used.saturating_sub(pages)))
}

/// Raises the number of files that may be open to what the system permits: a report has all of its plots open until they get their names
/// together, and usual limits are made for `select`.
pub fn allow_open_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // macOS takes no more than this.
        let current = Some(maximum.map_or(10240, |most| most.min(1 << 16)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_some_of_what_there_is() {
        let found = available().unwrap();
        assert!(found.bytes > 1 << 20 && found.bytes <= kilobytes("/proc/meminfo", "MemTotal:").unwrap(), "{found:?}");
    }

    #[test]
    fn a_group_leaves_what_its_limit_is_above_its_use_without_pages_of_files() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        write("memory.max", "1000\n");
        write("memory.current", "700\n");
        let left = || group_leaves(group.path(), ["memory.max", "memory.current"]);
        assert_eq!(left(), Some(300));
        write("memory.stat", "anon 400\ninactive_file 200\nactive_file 50\n");
        assert_eq!(left(), Some(550));
        write("memory.max", "max\n");
        assert_eq!(left(), None);
    }
}
