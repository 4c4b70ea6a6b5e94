//! One open compute pass, submitted in batches.

use wgpu::{BindGroup, Buffer, CommandEncoder, ComputePass, ComputePipeline, Device, Queue, SubmissionIndex};

/// Launches after which a batch is submitted, so that the device begins while more is recorded.
const BATCH: usize = 128;

#[derive(Default)]
pub(super) struct Recorder {
    open: Option<Open>,
}

struct Open {
    // Dropped before the encoder: a pass ends before its commands do.
    pass: Option<ComputePass<'static>>,
    encoder: CommandEncoder,
    launches: usize,
    pipeline: Option<ComputePipeline>,
}

impl Recorder {
    fn open(&mut self, device: &Device) -> &mut Open {
        self.open.get_or_insert_with(|| Open {
            pass: None,
            encoder: device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()),
            launches: 0,
            pipeline: None,
        })
    }

    pub(super) fn dispatch(
        &mut self,
        device: &Device,
        queue: &Queue,
        pipeline: &ComputePipeline,
        group: &BindGroup,
        parameters: &[u8],
        [x, y, z]: [u32; 3],
    ) {
        let open = self.open(device);
        let encoder = &mut open.encoder;
        let pass = open.pass.get_or_insert_with(|| {
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime()
        });
        if open.pipeline.as_ref() != Some(pipeline) {
            pass.set_pipeline(pipeline);
            open.pipeline = Some(pipeline.clone());
        }
        pass.set_bind_group(0, group, &[]);
        if !parameters.is_empty() {
            pass.set_immediates(0, parameters);
        }
        pass.dispatch_workgroups(x, y, z);
        open.launches += 1;
        if open.launches >= BATCH {
            self.submit(queue);
        }
    }

    pub(super) fn copy(&mut self, device: &Device, queue: &Queue, from: &Buffer, to: &Buffer, bytes: u64) {
        if self.record_copy(device, from, to, bytes).launches >= BATCH {
            self.submit(queue);
        }
    }

    /// As [`Recorder::copy`], and submits it with all before it.
    pub(super) fn copy_out(
        &mut self,
        device: &Device,
        queue: &Queue,
        from: &Buffer,
        to: &Buffer,
        bytes: u64,
    ) -> SubmissionIndex {
        self.record_copy(device, from, to, bytes);
        self.submit(queue).expect("the copy is in it")
    }

    fn record_copy(&mut self, device: &Device, from: &Buffer, to: &Buffer, bytes: u64) -> &mut Open {
        let open = self.open(device);
        open.pass = None;
        open.pipeline = None;
        open.encoder.copy_buffer_to_buffer(from, 0, to, 0, bytes);
        open.launches += 1;
        open
    }

    /// Hands everything recorded to the device; `None` when there is nothing.
    pub(super) fn submit(&mut self, queue: &Queue) -> Option<SubmissionIndex> {
        let Open { pass, encoder, .. } = self.open.take()?;
        drop(pass);
        Some(queue.submit([encoder.finish()]))
    }
}
