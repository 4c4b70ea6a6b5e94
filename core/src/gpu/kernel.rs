//! Kernels, their pipelines and their bindings.

use super::GpuBuffer;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A compute shader with the entry point `main`.
///
/// `flat(group, groups)` numbers the workgroups of a launch laid out by [`groups`]. Parameters are immediates,
/// `var<immediate> p: ...`; bindings are numbered from 0 in group 0. `to_f16` and `from_f16` are between the bits of `f32` and of `f16`.
pub struct Kernel {
    /// For messages and the debugger.
    pub name: &'static str,
    /// WGSL.
    pub source: &'static str,
    /// One letter for each binding: `r` for one that is read, `w` for one that is read and written.
    pub bindings: &'static str,
}

impl Kernel {
    /// All of its WGSL.
    pub fn text(&self) -> String {
        format!("{}{PRELUDE}", self.source)
    }
}

/// What every kernel ends with; directives such as `enable` come first.
const PRELUDE: &str = concat!(
    "\nfn flat(group: vec3<u32>, groups: vec3<u32>) -> u32 { return group.y * groups.x + group.x; }\n",
    include_str!("half.wgsl")
);

/// Bytes of immediates that every layout has room for, and every GPU must offer.
pub(super) const IMMEDIATES: u32 = 64;

/// Sets of buffers that are kept bound.
const BINDINGS: usize = 8192;

/// The value of a constant of a kernel that is a `bool`.
pub fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

/// The grid of workgroups of `size` lanes that cover `n` items, folded into two dimensions where one is too short.
pub fn groups(n: usize, size: usize) -> [u32; 3] {
    const WIDEST: usize = 65_535;
    let count = n.div_ceil(size);
    let rows = count.div_ceil(WIDEST).max(1);
    [count.div_ceil(rows) as u32, rows as u32, 1]
}

/// Compiled kernels and bound buffers, by what they were made of.
#[derive(Default)]
pub(super) struct Pipelines {
    compiled: HashMap<(usize, Vec<(&'static str, u64)>), wgpu::ComputePipeline>,
    layouts: HashMap<&'static str, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    bound: HashMap<(&'static str, Vec<wgpu::Buffer>), wgpu::BindGroup>,
}

impl Pipelines {
    fn layout(
        &mut self,
        device: &wgpu::Device,
        bindings: &'static str,
    ) -> &(wgpu::BindGroupLayout, wgpu::PipelineLayout) {
        self.layouts.entry(bindings).or_insert_with(|| {
            let entry = |(i, letter)| wgpu::BindGroupLayoutEntry {
                binding: i as u32,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: letter == 'r' },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            };
            let entries: Vec<_> = bindings.chars().enumerate().map(entry).collect();
            let group = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(bindings),
                entries: &entries,
            });
            let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(bindings),
                bind_group_layouts: &[Some(&group)],
                immediate_size: IMMEDIATES,
            });
            (group, layout)
        })
    }

    /// The kernel with these constants, compiled at the first call; or what the compiler says against it, which fails nothing else.
    pub(super) fn get(
        &mut self,
        device: &wgpu::Device,
        kernel: &'static Kernel,
        constants: &[(&'static str, f64)],
    ) -> Result<wgpu::ComputePipeline, String> {
        let values = constants.iter().map(|&(name, value)| (name, value.to_bits())).collect();
        let key = (std::ptr::from_ref(kernel) as usize, values);
        if let Some(pipeline) = self.compiled.get(&key) {
            return Ok(pipeline.clone());
        }
        let scopes =
            [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal].map(|filter| device.push_error_scope(filter));
        let layout = self.layout(device, kernel.bindings).1.clone();
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(kernel.text().into()),
        };
        let module = if cfg!(debug_assertions) {
            device.create_shader_module(descriptor)
        } else {
            let mut checks = wgpu::ShaderRuntimeChecks::checked();
            checks.force_loop_bounding = false;
            // SAFETY: only the bound on the number of turns of a loop is left out, and every loop of our kernels counts up to
            // a parameter; accesses stay checked. The whole suite runs with this check in debug builds.
            unsafe { device.create_shader_module_trusted(descriptor, checks) }
        };
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name),
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants,
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        });
        // The last one first.
        let [validation, internal] = scopes;
        let internal = pollster::block_on(internal.pop());
        if let Some(error) = internal.or(pollster::block_on(validation.pop())) {
            return Err(format!("the kernel {:?} does not compile: {error}", kernel.name));
        }
        self.compiled.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    /// The buffers as a kernel sees them.
    pub(super) fn bind(
        &mut self,
        device: &wgpu::Device,
        kernel: &'static Kernel,
        buffers: &[&GpuBuffer],
    ) -> wgpu::BindGroup {
        assert_eq!(buffers.len(), kernel.bindings.len(), "{}: number of buffers", kernel.name);
        if self.bound.len() >= BINDINGS {
            self.forget_bindings();
        }
        let layout = self.layout(device, kernel.bindings).0.clone();
        let raw: Vec<wgpu::Buffer> = buffers.iter().map(|buffer| buffer.raw().clone()).collect();
        match self.bound.entry((kernel.bindings, raw)) {
            Entry::Occupied(bound) => bound.get().clone(),
            Entry::Vacant(place) => {
                let buffers = place.key().1.clone();
                let entries: Vec<wgpu::BindGroupEntry> = buffers
                    .iter()
                    .enumerate()
                    .map(|(i, buffer)| wgpu::BindGroupEntry { binding: i as u32, resource: buffer.as_entire_binding() })
                    .collect();
                let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some(kernel.name),
                    layout: &layout,
                    entries: &entries,
                });
                place.insert(group).clone()
            }
        }
    }

    /// Lets go of all bound buffers, which would otherwise stay alive.
    pub(super) fn forget_bindings(&mut self) {
        self.bound.clear();
    }
}
