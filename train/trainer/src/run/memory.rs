//! How much memory this process has taken, where the system says so (Linux).

use hankel_io::memory::kilobytes;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Largest resident set so far, in bytes: pages of mapped files included, which the system can drop.
pub fn peak_memory() -> Option<u64> {
    kilobytes(STATUS, "VmHWM:")
}

/// Largest anonymous part of the resident set since [`watch`] was called, in bytes: what is not pages of files, and has to
/// fit.
pub fn peak_anonymous() -> Option<u64> {
    sample();
    Some(PEAK.load(Ordering::Relaxed)).filter(|peak| *peak > 0)
}

const STATUS: &str = "/proc/self/status";
/// Time between two samples. An activation of a long sequence takes longer to compute.
const INTERVAL: Duration = Duration::from_millis(20);

static PEAK: AtomicU64 = AtomicU64::new(0);

fn sample() -> bool {
    let now = kilobytes(STATUS, "RssAnon:");
    PEAK.fetch_max(now.unwrap_or(0), Ordering::Relaxed);
    now.is_some()
}

/// Starts to sample the anonymous memory: of it, unlike the resident set, the system keeps no maximum.
pub fn watch() {
    static BEGUN: Once = Once::new();
    let looking = || {
        while sample() {
            thread::sleep(INTERVAL);
        }
    };
    // Without the thread the figure is that of the moments at which it is asked for.
    BEGUN.call_once(|| drop(thread::Builder::new().name("memory".to_owned()).spawn(looking)));
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_remembered_after_the_memory_is_freed() {
        watch();
        let before = peak_anonymous().unwrap();
        let size = 256 << 20;
        let large = vec![1_u8; size];
        thread::sleep(5 * INTERVAL);
        drop(std::hint::black_box(large));
        let peak = peak_anonymous().unwrap();
        assert!(peak >= size as u64 && peak >= before, "{before} then {peak}");
        assert!(peak_memory().unwrap() >= peak);
    }
}
