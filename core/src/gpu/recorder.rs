//! One open compute pass, submitted in batches.

use super::pulse::Pulse;
use wgpu::{BindGroup, Buffer, CommandEncoder, ComputePass, ComputePipeline, Device, Queue, SubmissionIndex};

/// Launches after which a batch is submitted, so that the device begins while more is recorded.
const BATCH: usize = 128;
/// Operations after which it is submitted, too: a third of a second of a slow card. Systems give up batches that take seconds.
const WORK: f64 = 1e11;
/// Operations that reading or writing a byte counts as: memory that takes 40 GB/s, a card that makes 200 GFLOP/s.
const OF_A_BYTE: f64 = 5.0;

pub(super) struct Recorder {
    open: Option<Open>,
    pulse: Pulse,
}

struct Open {
    // Dropped before the encoder: a pass ends before its commands do.
    pass: Option<ComputePass<'static>>,
    encoder: CommandEncoder,
    launches: usize,
    work: f64,
    pipeline: Option<ComputePipeline>,
}

impl Open {
    fn new(device: &Device) -> Self {
        let encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        Open { pass: None, encoder, launches: 0, work: 0.0, pipeline: None }
    }

    fn pass(&mut self) -> &mut ComputePass<'static> {
        let encoder = &mut self.encoder;
        self.pass.get_or_insert_with(|| {
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime()
        })
    }
}

impl Recorder {
    pub(super) fn new(device: &Device) -> Self {
        Recorder { open: None, pulse: Pulse::new(device) }
    }

    fn open(&mut self, device: &Device) -> &mut Open {
        self.open.get_or_insert_with(|| Open::new(device))
    }

    pub(super) fn dispatch(
        &mut self,
        device: &Device,
        queue: &Queue,
        pipeline: &ComputePipeline,
        group: &BindGroup,
        parameters: &[u8],
        [x, y, z]: [u32; 3],
        bytes: u64,
    ) {
        let open = self.open(device);
        if open.pipeline.as_ref() != Some(pipeline) {
            open.pass().set_pipeline(pipeline);
            open.pipeline = Some(pipeline.clone());
        }
        let pass = open.pass();
        pass.set_bind_group(0, group, &[]);
        if !parameters.is_empty() {
            pass.set_immediates(0, parameters);
        }
        pass.dispatch_workgroups(x, y, z);
        open.launches += 1;
        open.work += OF_A_BYTE * bytes as f64;
        if open.launches >= BATCH || open.work >= WORK {
            self.submit(queue);
        }
    }

    /// Counts operations of what was recorded last.
    pub(super) fn weigh(&mut self, queue: &Queue, operations: f64) {
        if let Some(open) = &mut self.open {
            open.work += operations;
            if open.work >= WORK {
                self.submit(queue);
            }
        }
    }

    /// Copies to memory that can be read, with the count of batches behind the bytes, and submits it with all before it. Also gives what the
    /// count should be. A copy that is lost leaves 0 there.
    pub(super) fn copy_out(
        &mut self,
        device: &Device,
        queue: &Queue,
        from: &Buffer,
        to: &Buffer,
        bytes: u64,
    ) -> (SubmissionIndex, u32) {
        let mut open = self.open.take().unwrap_or_else(|| Open::new(device));
        self.pulse.beat(open.pass());
        open.pass = None;
        open.encoder.copy_buffer_to_buffer(from, 0, to, 0, bytes);
        open.encoder.copy_buffer_to_buffer(self.pulse.buffer(), 0, to, bytes, 4);
        (queue.submit([open.encoder.finish()]), self.pulse.beats())
    }

    /// Hands everything recorded to the device.
    pub(super) fn submit(&mut self, queue: &Queue) {
        let Some(mut open) = self.open.take() else { return };
        self.pulse.beat(open.pass());
        let Open { pass, encoder, .. } = open;
        drop(pass);
        queue.submit([encoder.finish()]);
    }

    /// Throws away what is recorded, as if it had been submitted.
    pub(super) fn lose(&mut self) {
        if self.open.take().is_some() {
            self.pulse.miss();
        }
    }
}
