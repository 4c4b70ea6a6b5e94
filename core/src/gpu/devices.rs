//! Which GPUs there are, and opening one.

use super::Gpu;
use super::kernel::IMMEDIATES;
use crate::{Error, Result};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes of workgroup memory that every GPU must offer to a kernel.
const WORKGROUP_STORAGE: u32 = 16 << 10;
/// Lanes of a workgroup, and buffers that a kernel sees.
const LANES: u32 = 256;
const BUFFERS: u32 = 8;

/// Name, driver, limits and features of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFacts {
    /// The card's name.
    pub name: String,
    /// `vulkan`, `metal` or `dx12`.
    pub backend: String,
    /// The driver's name and version.
    pub driver: String,
    /// `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub kind: &'static str,
    /// The largest buffer that a kernel can see, in bytes.
    pub max_binding: u64,
    /// Bytes that tensors may take where a driver refuses nothing: Metal gives memory that it does not have, and fails later.
    pub memory: Option<u64>,
    /// Workgroups in one dimension of a launch.
    pub max_workgroups: u32,
    /// Memory of a workgroup, in bytes.
    pub workgroup_storage: u32,
    /// The most lanes of a workgroup.
    pub workgroup_lanes: u32,
    /// Whether kernels may compute in 16-bit floats.
    pub f16: bool,
    /// Least and most lanes of a subgroup.
    pub subgroup: [u32; 2],
    /// Shapes `M x N x K` of cooperative matrix products with 16-bit operands and 32-bit sums.
    pub cooperative: Vec<[u32; 3]>,
    /// The missing feature of a GPU that cannot be used.
    pub lacks: Option<String>,
}

impl GpuFacts {
    fn of(adapter: &wgpu::Adapter) -> Self {
        let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
        let half = wgpu::CooperativeScalarType::F16;
        let cooperative = adapter.cooperative_matrix_properties();
        let cooperative = cooperative
            .iter()
            .filter(|p| p.ab_type == half && p.cr_type == wgpu::CooperativeScalarType::F32)
            .map(|p| [p.m_size, p.n_size, p.k_size])
            .collect();
        let lacks = if !features.contains(wgpu::Features::IMMEDIATES) || limits.max_immediate_size < IMMEDIATES {
            Some("immediates (push constants)".to_owned())
        } else if limits.max_compute_workgroup_storage_size < WORKGROUP_STORAGE {
            Some(format!("{WORKGROUP_STORAGE} bytes of workgroup memory"))
        } else if limits.max_compute_invocations_per_workgroup < LANES {
            Some(format!("{LANES} lanes in a workgroup"))
        } else if limits.max_storage_buffers_per_shader_stage < BUFFERS {
            Some(format!("{BUFFERS} buffers for a kernel"))
        } else {
            None
        };
        GpuFacts {
            name: info.name,
            backend: info.backend.to_str().to_owned(),
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            kind: match info.device_type {
                wgpu::DeviceType::DiscreteGpu => "discrete",
                wgpu::DeviceType::IntegratedGpu => "integrated",
                wgpu::DeviceType::VirtualGpu => "virtual",
                wgpu::DeviceType::Cpu => "software",
                wgpu::DeviceType::Other => "other",
            },
            // Kernels count bytes and elements in 32 bits.
            max_binding: limits
                .max_storage_buffer_binding_size
                .min(limits.max_buffer_size)
                .min(u64::from(u32::MAX) & !3),
            // The longest buffer of Metal: about half of the memory that the processor and the card share.
            memory: (info.backend == wgpu::Backend::Metal).then_some(limits.max_buffer_size),
            max_workgroups: limits.max_compute_workgroups_per_dimension,
            workgroup_storage: limits.max_compute_workgroup_storage_size,
            workgroup_lanes: limits.max_compute_invocations_per_workgroup,
            f16: features.contains(wgpu::Features::SHADER_F16),
            subgroup: [info.subgroup_min_size, info.subgroup_max_size],
            cooperative,
            lacks,
        }
    }

    /// Most operations of one launch: about half a second on a slow card of its kind (discrete: 1 TFLOP/s, others: 0.1 TFLOP/s).
    /// Windows resets a card when one launch takes two seconds.
    pub(super) fn longest_launch(&self) -> f64 {
        if self.kind == "discrete" { 5e11 } else { 5e10 }
    }

    /// Real cards come first, software last.
    fn rank(&self) -> u8 {
        match self.kind {
            "discrete" => 0,
            "integrated" => 1,
            "virtual" => 2,
            "other" => 3,
            _ => 4,
        }
    }
}

struct Found {
    adapter: wgpu::Adapter,
    facts: GpuFacts,
    opened: Mutex<Option<&'static Gpu>>,
}

static FOUND: OnceLock<Vec<Found>> = OnceLock::new();

/// All GPUs, hardware before software; the drivers are asked once.
fn found() -> &'static [Found] {
    FOUND.get_or_init(|| {
        let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = backends;
        let instance = wgpu::Instance::new(descriptor);
        let mut adapters = pollster::block_on(instance.enumerate_adapters(backends));
        // Windows has a card twice: by Direct3D 12 and, with a compiler that knows all our kernels, by Vulkan.
        let card = |adapter: &wgpu::Adapter| (adapter.get_info().vendor, adapter.get_info().device);
        let of_vulkan = adapters.iter().filter(|adapter| adapter.get_info().backend == wgpu::Backend::Vulkan);
        let of_vulkan: Vec<(u32, u32)> = of_vulkan.map(card).collect();
        adapters
            .retain(|adapter| adapter.get_info().backend != wgpu::Backend::Dx12 || !of_vulkan.contains(&card(adapter)));
        let mut found: Vec<Found> = adapters
            .into_iter()
            .map(|adapter| Found { facts: GpuFacts::of(&adapter), adapter, opened: Mutex::new(None) })
            .collect();
        found.sort_by_key(|found| found.facts.rank());
        found
    })
}

/// The GPUs of this machine, in the order of `gpu:0`, `gpu:1` ...
pub fn devices() -> Vec<&'static GpuFacts> {
    found().iter().map(|found| &found.facts).collect()
}

/// Waits until all opened GPUs are idle. Call it at the end of a program: some drivers crash when a process ends while they
/// work. Errors are ignored, their caller has seen them.
pub fn finish() {
    for found in FOUND.get().into_iter().flatten() {
        let opened = *found.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = opened {
            // It has been reported to whoever used it.
            let _ = gpu.synchronize();
        }
    }
}

pub(super) fn open(name: &str) -> Result<&'static Gpu> {
    let fail = |problem: String| Err(Error::Gpu { device: name.to_owned(), problem });
    let all = found();
    if all.is_empty() {
        let how = if cfg!(target_os = "linux") {
            "install the driver of your card, or Mesa's (on Debian and Ubuntu: apt install mesa-vulkan-drivers libvulkan1)"
        } else {
            "install the driver of your card"
        };
        return fail(format!(
            "there is no GPU: no Vulkan, Metal or Direct3D 12 driver was found; {how}; `cpu` is always there"
        ));
    }
    let wanted = match name.strip_prefix("gpu").map(|rest| rest.strip_prefix(':').unwrap_or(rest)) {
        Some("") => all.iter().find(|found| found.facts.lacks.is_none()).or(all.first()),
        Some(rest) if rest.chars().all(|c| c.is_ascii_digit()) => rest.parse().ok().and_then(|i: usize| all.get(i)),
        _ => all.iter().find(|found| found.facts.name.to_lowercase().contains(&name.to_lowercase())),
    };
    let Some(found) = wanted else {
        let list: Vec<String> = all.iter().enumerate().map(|(i, f)| format!("gpu:{i} is {}", f.facts.name)).collect();
        let is_api =
            ["cuda", "mps", "metal", "vulkan", "rocm", "hip"].contains(&name.split(':').next().unwrap_or_default());
        let hint = if is_api { "; `gpu` takes the first" } else { "" };
        return fail(format!("there is no such GPU: {}{hint}", list.join(", ")));
    };
    let mut opened = found.opened.lock().expect("no panic while a device is opened");
    if let Some(gpu) = *opened {
        return Ok(gpu);
    }
    if let Some(lack) = &found.facts.lacks {
        return fail(format!("{} lacks {lack}", found.facts.name));
    }
    let mut optional = wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP;
    let mut experimental = wgpu::ExperimentalFeatures::disabled();
    if !found.facts.cooperative.is_empty() {
        optional |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        // SAFETY: experimental features may have bugs that lead to undefined behaviour. Only cooperative matrices are asked
        // for, in shapes that the driver lists, by kernels that run only where a precision of f16 is chosen.
        experimental = unsafe { wgpu::ExperimentalFeatures::enabled() };
    }
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("hankel"),
        required_features: wgpu::Features::IMMEDIATES | (optional & found.adapter.features()),
        required_limits: found.adapter.limits(),
        // Small blocks: a large one that does not fit is refused, whatever is free beside it. The pool has few calls to save.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        experimental_features: experimental,
        ..wgpu::DeviceDescriptor::default()
    };
    let (device, queue) = match pollster::block_on(found.adapter.request_device(&descriptor)) {
        Ok(pair) => pair,
        Err(e) => return fail(format!("{} cannot be opened: {e}", found.facts.name)),
    };
    let gpu: &'static Gpu = Box::leak(Box::new(Gpu::new(found.facts.clone(), device, queue)));
    *opened = Some(gpu);
    Ok(gpu)
}

/// The GPU for a test, `None` where there is none. With `HANKEL_REQUIRE_GPU=1`, as in CI, that is a failure instead.
///
/// # Panics
/// When a GPU is required and cannot be opened.
#[doc(hidden)]
pub fn for_tests() -> Option<&'static Gpu> {
    match Gpu::open("gpu") {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            assert!(std::env::var_os("HANKEL_REQUIRE_GPU").is_none_or(|value| value != "1"), "{error}");
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}
