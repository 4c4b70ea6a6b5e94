//! Helpers of the GPU kernels: buffers of tensors, new tensors, cached tables, sums over rows.

use hankel_core::gpu::{Gpu, GpuBuffer, GpuStorage, Kernel, flag, groups};
use hankel_core::{DType, Error, Result, Shape, Storage, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// The floats of `tensor`, which plays the role `name`, on `gpu`.
pub(crate) fn floats<'a>(operator: &'static str, name: &str, tensor: &'a Tensor, gpu: &Gpu) -> Result<&'a GpuBuffer> {
    let storage = stored(operator, name, tensor, gpu)?;
    if storage.dtype != DType::F32 {
        return Err(Error::DType { operator, expected: "f32 on a GPU", found: storage.dtype });
    }
    Ok(&storage.buffer)
}

/// The elements of `tensor`, whatever their type, on `gpu`.
pub(crate) fn stored<'a>(operator: &'static str, name: &str, tensor: &'a Tensor, gpu: &Gpu) -> Result<&'a GpuStorage> {
    match tensor.storage() {
        Storage::Gpu(storage) if std::ptr::eq(storage.buffer.gpu(), gpu) => Ok(storage),
        _ => {
            let problem = format!("{name} is on the {}, expected on gpu ({})", tensor.device(), gpu.facts().name);
            Err(Error::Placement { operator, problem })
        }
    }
}

/// A tensor under construction.
pub(crate) struct Output(GpuStorage);

impl Output {
    pub(crate) fn new(gpu: &'static Gpu, elements: usize) -> Result<Self> {
        GpuStorage::floats(gpu, elements).map(Output)
    }

    pub(crate) fn buffer(&self) -> &GpuBuffer {
        &self.0.buffer
    }

    pub(crate) fn finish(self, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_gpu(self.0, shape)
    }
}

/// Zeros on the GPU.
pub(crate) fn zeros(gpu: &'static Gpu, shape: &[usize]) -> Result<Tensor> {
    Tensor::from_gpu(GpuStorage::filled(gpu, shape.iter().product(), 0.0)?, shape)
}

/// Words of the host as a buffer.
pub(crate) fn words(gpu: &'static Gpu, words: &[u32]) -> Result<GpuBuffer> {
    gpu.upload(bytemuck::cast_slice(words))
}

/// Answers about cards, each found once in a run of the program.
pub(crate) struct Answers<K>(Mutex<Vec<(&'static Gpu, K, bool)>>);

impl<K: PartialEq> Answers<K> {
    /// None so far.
    pub(crate) const fn new() -> Self {
        Answers(Mutex::new(Vec::new()))
    }

    /// The answer of a key, found at the first call. Who asks meanwhile waits for it.
    pub(crate) fn get(&self, gpu: &'static Gpu, key: K, find: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., answer)) = found.iter().find(|(at, of, _)| std::ptr::eq(*at, gpu) && *of == key) {
            return Ok(*answer);
        }
        let answer = find()?;
        found.push((gpu, key, answer));
        Ok(answer)
    }
}

/// What a trial of kernels has found: a failure on a device that works is the driver's, unless there was no memory for the trial.
///
/// # Errors
/// When the device has failed, or is out of memory.
pub(crate) fn tried(gpu: &Gpu, found: Result<bool>) -> Result<bool> {
    match found {
        Err(Error::GpuMemory { .. }) | Ok(_) => found,
        Err(_) => gpu.check().map(|()| false),
    }
}

/// Tables that kernels read, kept on their devices: the ones used last.
pub(crate) struct Tables<K> {
    most: usize,
    kept: Mutex<Vec<(&'static Gpu, K, Arc<GpuBuffer>)>>,
}

impl<K: PartialEq> Tables<K> {
    /// Keeps at most so many.
    pub(crate) const fn new(most: usize) -> Self {
        Tables { most, kept: Mutex::new(Vec::new()) }
    }

    /// The table of a key, made at the first call.
    pub(crate) fn get(&self, gpu: &'static Gpu, key: K, make: impl FnOnce() -> Vec<f32>) -> Result<Arc<GpuBuffer>> {
        // A list left by a thread that panicked is as good as before.
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = lock();
        if let Some(i) = kept.iter().position(|(at, of, _)| std::ptr::eq(*at, gpu) && *of == key) {
            let found = kept.remove(i);
            let table = found.2.clone();
            kept.push(found);
            return Ok(table);
        }
        // Not while it is made, which may take other threads to help.
        drop(kept);
        let table = Arc::new(gpu.upload(bytemuck::cast_slice(&make()))?);
        let mut kept = lock();
        if kept.len() >= self.most {
            kept.remove(0);
        }
        kept.push((gpu, key, table.clone()));
        Ok(table)
    }
}

static COLUMNS: Kernel = Kernel { name: "column_sums", source: include_str!("column_sums.wgsl"), bindings: "rrw" };

/// Lanes of a workgroup of `column_sums.wgsl`.
const LANES: usize = 256;

/// `out_j = sum_i a_ij b_ij` over rows of `width` elements, or `sum_i a_ij`: in pieces of rows, then over the pieces, so that
/// the order of the sum depends on the shape alone.
pub(crate) fn column_sums(
    gpu: &'static Gpu,
    a: &GpuBuffer,
    b: Option<&GpuBuffer>,
    rows: usize,
    width: usize,
) -> Result<Tensor> {
    // Columns side by side in a workgroup, and its rows, of which each lane takes 32.
    let side = width.next_power_of_two().clamp(1, 64);
    let piece = 32 * LANES / side;
    let (pieces, blocks) = (rows.div_ceil(piece).max(1), width.div_ceil(side));
    let out = Output::new(gpu, pieces * width)?;
    let constants = [("WEIGHED", flag(b.is_some())), ("SIDE", side as f64)];
    let parameters = [rows, width, piece, pieces, blocks].map(|size| size as u32);
    let buffers = [a, b.unwrap_or(a), out.buffer()];
    gpu.launch(&COLUMNS, &constants, &buffers, &parameters, groups(pieces * blocks, 1))?;
    if pieces > 1 {
        return column_sums(gpu, out.buffer(), None, pieces, width);
    }
    out.finish([width])
}

/// Compiles a kernel, also where no card runs it: a mistake in its text does not wait for one.
#[cfg(test)]
pub(crate) fn compiles(kernel: &Kernel, constants: &[(&str, f64)]) {
    use naga::back::{pipeline_constants::process_overrides, spv};
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let module = naga::front::wgsl::parse_str(&kernel.text()).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module);
    let info = info.unwrap_or_else(|e| panic!("{}: {e:?}", kernel.name));
    let constants = constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let (module, info) = process_overrides(&module, &info, None, &constants).unwrap();
    // Fragments may be loaded from and stored to multiples of 16 bytes only, and a driver may put variables in any order.
    let fragments = module.types.iter().any(|(_, t)| matches!(t.inner, naga::TypeInner::CooperativeMatrix { .. }));
    for (_, variable) in module.global_variables.iter().filter(|(_, v)| v.space == naga::AddressSpace::WorkGroup) {
        let bytes = module.types[variable.ty].inner.size(module.to_ctx());
        assert!(!fragments || bytes % 16 == 0, "{}: {:?} has {bytes} bytes", kernel.name, variable.name);
    }
    let options = spv::Options { lang_version: (1, 6), fake_missing_bindings: true, ..spv::Options::default() };
    let words = spv::write_vec(&module, &info, &options, None).unwrap_or_else(|e| panic!("{}: {e:?}", kernel.name));
    assert!(words.len() > 200);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heads, Poles, ScanPath, ScoreSettings, attention, delta_scan, linear, scan};
    use hankel_core::gpu::for_tests;
    use hankel_core::{Device, Random};

    /// What takes long is divided among launches, with the same bits.
    #[test]
    fn parts_are_the_whole() {
        let Some(gpu) = for_tests() else { return };
        let random = |name: &str, shape: &[usize]| {
            let values = Random::new(5, name, 0).normal_vec::<f32>(shape.iter().product(), 0.1);
            Tensor::from_vec(values, shape).unwrap().to_device(Device::Gpu(gpu)).unwrap()
        };
        let all = || {
            let mut found = Vec::new();
            let mut take = |inputs: &[&Tensor], out: Tensor| {
                let mut gradients = out.backward_with(random("g", out.shape())).unwrap();
                found.push(out.to_f64_vec());
                found.extend(inputs.iter().map(|x| gradients.take(x).unwrap().to_f64_vec()));
            };
            let leaf = |name: &str, shape: &[usize]| random(name, shape).parameter().unwrap();
            let (x, w) = (leaf("x", &[150, 70]), leaf("w", &[200, 70]));
            take(&[&x, &w], linear(&x, &w, None).unwrap());
            let heads = Heads { query: 4, key_value: 2 };
            let (q, k, v) = (leaf("q", &[2, 200, 64]), leaf("k", &[2, 200, 32]), leaf("v", &[2, 200, 32]));
            take(&[&q, &k, &v], attention(&q, &k, &v, heads, ScoreSettings::default()).unwrap());
            let (u, a, start) = (leaf("u", &[2, 21, 6]), leaf("a", &[6, 6]), leaf("s", &[2, 6]));
            let states = scan(&u, &Poles::Dense(a.clone()), Some(&start), ScanPath::Sequential).unwrap();
            take(&[&u, &a, &start], states);
            let (k, v, beta) = (leaf("dk", &[2, 19, 8]), leaf("dv", &[2, 19, 6]), leaf("b", &[2, 19, 2]));
            take(&[&k, &v, &beta], delta_scan(&k, &v, &beta, None).unwrap());
            found
        };
        let whole = all();
        let usual = gpu.set_longest_launch(1e4);
        assert_eq!(gpu.runs(5, 1e6).count(), 5);
        let parts = all();
        gpu.set_longest_launch(usual);
        assert_eq!((gpu.runs(5, 1e3).count(), gpu.runs(5, 1e3).next()), (1, Some(0..5)));
        assert!(whole == parts);
    }

    #[test]
    fn tables_are_made_once_and_the_oldest_is_given_up() {
        let Some(gpu) = for_tests() else { return };
        static TABLES: Tables<usize> = Tables::new(2);
        let made = std::cell::Cell::new(0);
        let get = |key: usize| {
            let make = || {
                made.set(made.get() + 1);
                vec![key as f32; 3]
            };
            let table = TABLES.get(gpu, key, make).unwrap();
            let bytes = gpu.download(&table, 12).unwrap();
            assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&bytes), [key as f32; 3]);
            made.get()
        };
        assert_eq!([get(5), get(6), get(5), get(6)], [1, 2, 2, 2]);
        // 5 goes, 6 was used after it.
        assert_eq!([get(7), get(6), get(5)], [3, 3, 4]);
    }
}
