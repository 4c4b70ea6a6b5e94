//! A count of the batches that a device has run, kept by the device itself.
//!
//! Metal tells nobody that it gave up a batch (out of memory, out of time), and neither does Direct3D 12 until the next one: what was to
//! be written stays as it was. Every batch is one pass, which Metal runs or gives up as a whole, and ends with a launch that counts it;
//! whoever reads back reads the count with it. Uploads are not counted.

use wgpu::util::DeviceExt;
use wgpu::{BindGroup, Buffer, ComputePass, ComputePipeline, Device};

const COUNT: &str = "
@group(0) @binding(0) var<storage, read_write> batches: array<u32>;

@compute @workgroup_size(1)
fn main() { batches[0] += 1u; }
";

/// The count, and how many it should be.
pub(super) struct Pulse {
    buffer: Buffer,
    pipeline: ComputePipeline,
    group: BindGroup,
    beats: u32,
}

impl Pulse {
    pub(super) fn new(device: &Device) -> Self {
        let label = Some("count of batches");
        let buffer = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label,
            contents: &[0; 4],
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
        });
        let source = wgpu::ShaderSource::Wgsl(COUNT.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
        });
        Pulse { buffer, pipeline, group, beats: 0 }
    }

    /// Counts what is before it in the pass.
    pub(super) fn beat(&mut self, pass: &mut ComputePass<'_>) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        self.miss();
    }

    /// Expects a beat without making one.
    pub(super) fn miss(&mut self) {
        self.beats = self.beats.wrapping_add(1);
    }

    /// Where the count is.
    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// What it should be once all that is recorded has run.
    pub(super) fn beats(&self) -> u32 {
        self.beats
    }
}
