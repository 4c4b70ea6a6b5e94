//! Facts about software and hardware for the result file.

use crate::results::Environment;
use std::fs;

/// What computes here, with `device` and `precision` as configured.
pub fn environment(device: &str, precision: &str) -> Environment {
    Environment {
        hankel: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit(),
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cpu: cpu_name().unwrap_or_else(|| "unknown".to_owned()),
        cpu_features: cpu_features(),
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_bytes: memory(),
        device: device.to_owned(),
        precision: precision.to_owned(),
    }
}

/// The commit that is checked out where this was built, if that is still there.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let git = std::process::Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output();
        git.ok().filter(|output| output.status.success()).and_then(|output| String::from_utf8(output.stdout).ok())
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned();
    let differs = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|files| !files.trim().is_empty());
    (!head.is_empty()).then(|| if differs { format!("{head}-dirty") } else { head })
}

fn cpu_name() -> Option<String> {
    if cfg!(target_os = "macos") {
        return sysctl("machdep.cpu.brand_string");
    }
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name") || line.starts_with("CPU part"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<u64> {
    if cfg!(target_os = "macos") {
        return sysctl("hw.memsize")?.parse().ok();
    }
    kilobytes("/proc/meminfo", "MemTotal:")
}

pub(super) fn kilobytes(file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn sysctl(key: &str) -> Option<String> {
    let output = std::process::Command::new("sysctl").args(["-n", key]).output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

fn cpu_features() -> Vec<String> {
    let mut features: Vec<(&str, bool)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        features.push(("avx2", std::arch::is_x86_feature_detected!("avx2")));
        features.push(("fma", std::arch::is_x86_feature_detected!("fma")));
        features.push(("avx512f", std::arch::is_x86_feature_detected!("avx512f")));
    }
    if cfg!(target_arch = "aarch64") {
        features.push(("neon", true));
    }
    features.into_iter().filter(|(_, present)| *present).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_describes_itself() {
        let facts = environment("cpu", "f32");
        assert!(facts.threads >= 1 && !facts.hankel.is_empty() && !facts.platform.is_empty());
        if cfg!(target_os = "linux") {
            assert!(facts.memory_bytes.unwrap() > 1 << 20);
        }
    }
}
