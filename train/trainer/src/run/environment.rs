//! Facts about software and hardware for the result file.

use crate::results::Environment;
use std::fs;

/// What computes here, with `device` and `precision` as configured.
pub(crate) fn environment(device: &str, precision: &str) -> Environment {
    Environment {
        hankel: env!("CARGO_PKG_VERSION").to_owned(),
        // Of what was built (see `build.rs`), wherever it runs.
        commit: option_env!("HANKEL_COMMIT").map(str::to_owned),
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cpu: cpu_name().unwrap_or_else(|| "unknown".to_owned()),
        cpu_features: cpu_features(),
        // What kernels run on, which may have been told to take fewer than there are.
        threads: rayon::current_num_threads(),
        memory_bytes: memory(),
        processes: None,
        device: device.to_owned(),
        precision: precision.to_owned(),
    }
}

fn cpu_name() -> Option<String> {
    if cfg!(target_os = "macos") {
        return hankel_io::memory::sysctl("machdep.cpu.brand_string");
    }
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name") || line.starts_with("CPU part"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<u64> {
    if cfg!(target_os = "macos") {
        return hankel_io::memory::sysctl("hw.memsize")?.parse().ok();
    }
    hankel_io::memory::kilobytes("/proc/meminfo", "MemTotal:")
}

fn cpu_features() -> Vec<String> {
    let mut features: Vec<(&str, bool)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        features.push(("avx2", std::arch::is_x86_feature_detected!("avx2")));
        features.push(("fma", std::arch::is_x86_feature_detected!("fma")));
        features.push(("f16c", std::arch::is_x86_feature_detected!("f16c")));
        features.push(("avx512f", std::arch::is_x86_feature_detected!("avx512f")));
        features.push(("avx512bw", std::arch::is_x86_feature_detected!("avx512bw")));
        features.push(("avx512vl", std::arch::is_x86_feature_detected!("avx512vl")));
        features.push(("avx512vnni", std::arch::is_x86_feature_detected!("avx512vnni")));
        features.push(("avx512bf16", std::arch::is_x86_feature_detected!("avx512bf16")));
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
