//! `Tensor`: an immutable value with a shape, an element type, a device and, when tracked, a node of the graph.

use crate::autograd::{self, Node, Wanted};
use crate::block_formats::BlockMatrix;
use crate::conversion::Slot;
use crate::gpu::{Gpu, GpuStorage};
use crate::nf4::Nf4;
use crate::pool::Buffer;
use crate::read_back::ReadBack;
use crate::storage::{CpuStorage, Storage};
use crate::{DType, Device, Element, Error, Float, Result, Shape, parallel, trace};
use half::{bf16, f16};
use std::fmt;
use std::sync::Arc;

/// The problem with elements that cannot be read.
const ELSEWHERE: &str = "the elements are not in main memory";

/// A contiguous row-major array. Cloning shares the elements.
///
/// A tensor made by [`Tensor::parameter`] is a leaf of the graph: [`Tensor::backward`] gives its gradient. Whatever is
/// computed from a leaf by operators is tracked; everything else costs neither a node nor saved memory.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    shape: Shape,
    storage: Arc<Storage>,
    node: Option<Arc<Node>>,
    slot: Option<Slot>,
}

impl Tensor {
    pub(crate) fn new(shape: Shape, storage: Arc<Storage>, node: Option<Arc<Node>>) -> Self {
        Tensor(Arc::new(Inner { shape, storage, node, slot: None }))
    }

    /// A tensor of the elements of `data` in row-major order.
    ///
    /// # Errors
    /// When the number of elements is not that of the shape.
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl Into<Shape>) -> Result<Self> {
        Self::from_buffer(data.into(), shape)
    }

    /// As [`Tensor::from_vec`], from pooled memory.
    pub fn from_buffer<T: Element>(data: Buffer<T>, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if data.len() != shape.elements() {
            return Err(Error::shape("tensor", format!("{} elements do not fill shape {shape}", data.len())));
        }
        trace::bytes(|| size_of_val(&data[..]));
        Ok(Self::new(shape, Arc::new(Storage::Cpu(T::wrap(data))), None))
    }

    /// A matrix of packed 4-bit floats.
    ///
    /// # Errors
    /// When the number of elements is not that of the shape.
    pub fn from_nf4(data: Nf4, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if data.elements() != shape.elements() {
            return Err(Error::shape("tensor", format!("{} elements do not fill shape {shape}", data.elements())));
        }
        Ok(Self::new(shape, Arc::new(Storage::Cpu(CpuStorage::Nf4(data))), None))
    }

    /// A matrix of blocks, whose rows are whole blocks.
    ///
    /// # Errors
    /// When the number of elements is not that of the shape, or a row ends within a block.
    pub fn from_blocks(data: BlockMatrix, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if data.elements() != shape.elements() {
            return Err(Error::shape("tensor", format!("{} elements do not fill shape {shape}", data.elements())));
        }
        let (name, size) = (data.format().name(), data.format().block_size());
        if shape.is_empty() || !shape.last().is_multiple_of(size) {
            return Err(Error::shape("tensor", format!("rows of {shape} are not whole blocks of {size} ({name})")));
        }
        Ok(Self::new(shape, Arc::new(Storage::Cpu(CpuStorage::Blocks(data))), None))
    }

    /// A tensor with every element `value`.
    pub fn full<T: Element>(shape: impl Into<Shape>, value: T) -> Self {
        let shape = shape.into();
        let mut data = Buffer::unspecified(shape.elements());
        data.fill(value);
        Self::new(shape, Arc::new(Storage::Cpu(T::wrap(data))), None)
    }

    /// Zeros.
    pub fn zeros<T: Element>(shape: impl Into<Shape>) -> Self {
        Self::full(shape, T::zeroed())
    }

    /// Zeros of the given floating-point type.
    ///
    /// # Errors
    /// When `dtype` is not `f32` or `f64`.
    pub fn zeros_of(dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        match dtype {
            DType::F32 => Ok(Self::zeros::<f32>(shape)),
            DType::F64 => Ok(Self::zeros::<f64>(shape)),
            found => Err(Error::DType { operator: "zeros", expected: "f32 or f64", found }),
        }
    }

    /// A tensor with every element `value`, of the type and on the device of `self`.
    ///
    /// # Errors
    /// When the type is not `f32` or `f64`, or the device has no room for it.
    pub fn full_like(&self, shape: impl Into<Shape>, value: f64) -> Result<Self> {
        let shape = shape.into();
        match (self.dtype(), self.gpu()) {
            (DType::F32, Some(gpu)) => Self::from_gpu(GpuStorage::filled(gpu, shape.elements(), value as f32)?, shape),
            (DType::F32, None) => Ok(Self::full(shape, value as f32)),
            (DType::F64, None) => Ok(Self::full(shape, value)),
            (found, _) => Err(Error::DType { operator: "full_like", expected: "f32 or f64", found }),
        }
    }

    /// A tensor with one element and no dimensions.
    pub fn scalar<T: Element>(value: T) -> Self {
        Self::full([], value)
    }

    /// The sizes of the dimensions.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.0.shape.elements()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.0.storage.dtype()
    }

    /// Where the elements are.
    pub fn device(&self) -> Device {
        self.0.storage.device()
    }

    /// The GPU it is on, if it is on one.
    pub fn gpu(&self) -> Option<&'static Gpu> {
        match self.storage() {
            Storage::Cpu(_) => None,
            Storage::Gpu(storage) => Some(storage.buffer.gpu()),
        }
    }

    /// The memory behind the tensor.
    pub fn storage(&self) -> &Storage {
        &self.0.storage
    }

    /// The elements in main memory, for `operator`.
    ///
    /// # Errors
    /// When they are on a GPU.
    pub fn cpu_storage(&self, operator: &'static str) -> Result<&CpuStorage> {
        match self.storage() {
            Storage::Cpu(storage) => {
                trace::bytes(|| storage.bytes());
                Ok(storage)
            }
            Storage::Gpu(_) => Err(self.elsewhere(operator)),
        }
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> usize {
        match self.storage() {
            Storage::Cpu(storage) => storage.bytes(),
            Storage::Gpu(storage) => storage.bytes(),
        }
    }

    /// The elements.
    ///
    /// # Errors
    /// When the elements are of another type, or on a GPU.
    pub fn data<T: Element>(&self) -> Result<&[T]> {
        let storage = self.cpu_storage("data")?;
        T::slice(storage).ok_or(Error::DType { operator: "data", expected: T::ELEMENT.name(), found: self.dtype() })
    }

    /// The packed 4-bit floats; `None` for any other element type.
    pub fn nf4(&self) -> Option<&Nf4> {
        match self.storage() {
            Storage::Cpu(CpuStorage::Nf4(data)) => Some(data),
            _ => None,
        }
    }

    /// The blocks of a tensor in a block format; `None` for any other element type.
    pub fn blocks(&self) -> Option<&BlockMatrix> {
        match self.storage() {
            Storage::Cpu(CpuStorage::Blocks(data)) => Some(data),
            _ => None,
        }
    }

    /// The elements for an update in place, copied first if another tensor shares them. The node of a leaf stays the same.
    ///
    /// # Errors
    /// When the elements are of another type or on a GPU, or the tensor is the tracked output of an operator.
    pub fn data_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let found = self.dtype();
        if self.node().is_some_and(|node| !node.is_leaf()) {
            return Err(Error::invalid("data_mut", "the output of an operator cannot be changed in place"));
        }
        let inner = Arc::make_mut(&mut self.0);
        inner.slot = None;
        if Arc::get_mut(&mut inner.storage).is_none() {
            let Storage::Cpu(storage) = &*inner.storage else {
                return Err(Error::Placement { operator: "data_mut", problem: ELSEWHERE.to_owned() });
            };
            let data =
                T::slice(storage).ok_or(Error::DType { operator: "data_mut", expected: T::ELEMENT.name(), found })?;
            inner.storage = Arc::new(Storage::Cpu(T::wrap(data.to_vec().into())));
        }
        let Some(Storage::Cpu(storage)) = Arc::get_mut(&mut inner.storage) else {
            return Err(Error::Placement { operator: "data_mut", problem: ELSEWHERE.to_owned() });
        };
        T::slice_mut(storage).ok_or(Error::DType { operator: "data_mut", expected: T::ELEMENT.name(), found })
    }

    /// A copy of the elements as doubles, from any element type. All NaN if they cannot be read: the GPU has failed, or
    /// holds them as `nf4` or in a block format. [`Tensor::to_device`] gives the error.
    pub fn to_f64_vec(&self) -> Vec<f64> {
        let storage = match self.storage() {
            Storage::Cpu(storage) => storage,
            Storage::Gpu(_) => match self.to_device(Device::Cpu) {
                Ok(here) => return here.to_f64_vec(),
                Err(_) => return vec![f64::NAN; self.elements()],
            },
        };
        match storage {
            CpuStorage::F32(data) => data.iter().map(|&x| f64::from(x)).collect(),
            CpuStorage::F64(data) => data.to_vec(),
            CpuStorage::F16(data) => data.iter().map(|x| x.to_f64()).collect(),
            CpuStorage::BF16(data) => data.iter().map(|x| x.to_f64()).collect(),
            CpuStorage::U8(data) => data.iter().map(|&x| f64::from(x)).collect(),
            CpuStorage::U32(data) => data.iter().map(|&x| f64::from(x)).collect(),
            CpuStorage::Nf4(data) => data.to_vec(),
            CpuStorage::Blocks(data) => data.to_vec(),
        }
    }

    /// The only element, as a double.
    ///
    /// # Errors
    /// When there is not exactly one, or it cannot be read.
    pub fn item(&self) -> Result<f64> {
        if self.elements() != 1 {
            return Err(Error::shape("item", format!("expected one element, found shape {}", self.shape())));
        }
        Ok(self.to_device(Device::Cpu)?.to_f64_vec()[0])
    }

    /// The same elements under another shape. Its gradient is the gradient under the old shape.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if shape.elements() != self.elements() {
            return Err(Error::shape(
                "reshape",
                format!("{} elements of shape {} do not fill shape {shape}", self.elements(), self.shape()),
            ));
        }
        let old = self.shape().clone();
        let view = Self::new(shape, self.0.storage.clone(), None);
        view.from_operator("reshape", &[Some(self)], move |gradient, _| Ok(vec![Some(gradient.reshape(&old)?)]))
    }

    /// The elements rounded or widened to another type, untracked; shared when they have that type already.
    ///
    /// # Errors
    /// When the type is another one and the elements are integers, or are asked for as integers, `nf4` or in a block format; on
    /// a GPU, for all but f32, f16 and bf16, and where it has failed or has no room.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        fn through<T: Element>(source: &Tensor, convert: impl Fn(f64) -> T) -> Result<Tensor> {
            let mut data = Buffer::unspecified(source.elements());
            match source.cpu_storage("to_dtype")? {
                CpuStorage::F32(x) => data.iter_mut().zip(x.iter()).for_each(|(y, &x)| *y = convert(f64::from(x))),
                CpuStorage::F64(x) => data.iter_mut().zip(x.iter()).for_each(|(y, &x)| *y = convert(x)),
                CpuStorage::F16(x) => data.iter_mut().zip(x.iter()).for_each(|(y, &x)| *y = convert(x.to_f64())),
                CpuStorage::BF16(x) => data.iter_mut().zip(x.iter()).for_each(|(y, &x)| *y = convert(x.to_f64())),
                CpuStorage::Nf4(x) => {
                    data.iter_mut().zip(x.to_vec::<f64>()).for_each(|(y, x)| *y = convert(x));
                }
                CpuStorage::Blocks(x) => {
                    let mut rest = &mut data[..];
                    x.for_runs(|run| {
                        let (out, after) = std::mem::take(&mut rest).split_at_mut(run.len());
                        out.iter_mut().zip(run).for_each(|(y, &x)| *y = convert(f64::from(x)));
                        rest = after;
                    });
                }
                CpuStorage::U8(_) | CpuStorage::U32(_) => {
                    return Err(Error::DType { operator: "to_dtype", expected: "a float", found: source.dtype() });
                }
            }
            Tensor::from_buffer(data, source.shape())
        }
        if dtype == self.dtype() {
            return Ok(self.detach());
        }
        if let Storage::Gpu(storage) = self.storage()
            && let Some(converted) = storage.convert(dtype)?
        {
            return Self::from_gpu(converted, self.shape());
        }
        match dtype {
            DType::F32 => through(self, |x| x as f32),
            DType::F64 => through(self, |x| x),
            // By way of f32: the crate's conversions from f64 drop its low bits before they round to nearest.
            DType::F16 => through(self, |x| f16::from_f32(to_odd(x))),
            DType::BF16 => through(self, |x| bf16::from_f32(to_odd(x))),
            DType::U8 | DType::U32 | DType::Nf4 | DType::Blocks(_) => {
                Err(Error::invalid("to_dtype", format!("floats do not convert to {dtype}")))
            }
        }
    }

    /// The same elements on another device, untracked; shared when they are there already.
    ///
    /// # Errors
    /// When there is no room for them, the device has failed, or it cannot hold their type: `f64` is for the CPU alone, and
    /// `nf4` and block formats do not come back from a GPU.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        if device == self.device() {
            return Ok(self.detach());
        }
        let storage = match (self.storage(), device) {
            (Storage::Cpu(storage), Device::Gpu(gpu)) => Storage::Gpu(GpuStorage::upload(gpu, storage)?),
            (Storage::Gpu(_), Device::Cpu) => return self.read_back()?.wait(),
            (Storage::Gpu(_), Device::Gpu(_)) | (Storage::Cpu(_), Device::Cpu) => {
                return self.to_device(Device::Cpu)?.to_device(device);
            }
        };
        Ok(Self::new(self.shape().clone(), Arc::new(storage), None))
    }

    /// Starts a copy of the elements to main memory without waiting for it.
    ///
    /// # Errors
    /// When the device has failed, or a GPU holds the tensor as `nf4` or in a block format.
    pub fn read_back(&self) -> Result<ReadBack> {
        ReadBack::of(self)
    }

    /// A tensor of elements that are on a GPU.
    ///
    /// # Errors
    /// When the number of elements is not that of the shape.
    pub fn from_gpu(storage: GpuStorage, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if storage.elements != shape.elements() {
            return Err(Error::shape("tensor", format!("{} elements do not fill shape {shape}", storage.elements)));
        }
        Ok(Self::new(shape, Arc::new(Storage::Gpu(storage)), None))
    }

    /// The elements for an update in place on a GPU, copied first if another tensor shares them.
    ///
    /// # Errors
    /// When they are not on a GPU, or the tensor is the tracked output of an operator.
    pub fn gpu_mut(&mut self, operator: &'static str) -> Result<&GpuStorage> {
        if self.node().is_some_and(|node| !node.is_leaf()) {
            return Err(Error::invalid(operator, "the output of an operator cannot be changed in place"));
        }
        let inner = Arc::make_mut(&mut self.0);
        inner.slot = None;
        let Storage::Gpu(storage) = &*inner.storage else {
            let problem = "its tensors are on different devices".to_owned();
            return Err(Error::Placement { operator, problem });
        };
        if Arc::strong_count(&inner.storage) > 1 {
            inner.storage = Arc::new(Storage::Gpu(storage.duplicate()?));
        }
        match &*inner.storage {
            Storage::Gpu(storage) => Ok(storage),
            Storage::Cpu(_) => unreachable!("it was on a GPU"),
        }
    }

    fn elsewhere(&self, operator: &'static str) -> Error {
        let problem = format!("{ELSEWHERE} ({})", self.device());
        Error::Placement { operator, problem }
    }

    /// The same elements as a leaf of the graph: gradients are wanted for it.
    ///
    /// # Errors
    /// When the element type is not `f32` or `f64`.
    pub fn parameter(&self) -> Result<Self> {
        if !self.dtype().is_float() {
            return Err(Error::DType { operator: "parameter", expected: "f32 or f64", found: self.dtype() });
        }
        Ok(Self::new(self.shape().clone(), self.0.storage.clone(), Some(Node::leaf(self))))
    }

    /// The same elements outside the graph.
    pub fn detach(&self) -> Self {
        if self.0.node.is_none() && self.0.slot.is_none() {
            return self.clone();
        }
        Self::new(self.shape().clone(), self.0.storage.clone(), None)
    }

    /// Whether a gradient is wanted for this tensor or for something it was computed from.
    pub fn is_tracked(&self) -> bool {
        self.0.node.is_some()
    }

    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.0.node.as_ref()
    }

    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.0.slot.as_ref()
    }

    pub(crate) fn with_slot(&self, slot: Slot) -> Self {
        Tensor(Arc::new(Inner { slot: Some(slot), ..(*self.0).clone() }))
    }

    pub(crate) fn with_node(self, node: Arc<Node>) -> Self {
        Self::new(self.0.shape.clone(), self.0.storage.clone(), Some(node))
    }

    /// `self + other`, in the memory of `self` if no other tensor shares it.
    pub(crate) fn accumulate(mut self, other: &Tensor) -> Result<Self> {
        fn add<T: Float>(sum: &mut Tensor, other: &Tensor) -> Result<()> {
            let _event = trace::kernel(module_path!(), "accumulate");
            let other = other.data::<T>()?;
            parallel::for_rows(sum.data_mut::<T>()?, 1, |first, piece| {
                piece.iter_mut().zip(&other[first..]).for_each(|(x, &y)| *x += y);
            });
            Ok(())
        }
        if self.shape() != other.shape() {
            return Err(Error::shape("backward", format!("gradients {} and {} meet", self.shape(), other.shape())));
        }
        if let Storage::Gpu(addend) = other.storage() {
            self.gpu_mut("backward")?.add(addend)?;
            return Ok(self);
        }
        match self.dtype() {
            DType::F32 => add::<f32>(&mut self, other)?,
            DType::F64 => add::<f64>(&mut self, other)?,
            found => return Err(Error::DType { operator: "backward", expected: "f32 or f64", found }),
        }
        Ok(self)
    }

    /// Whether every element is finite; false where they cannot be read ([`Tensor::to_f64_vec`]).
    pub fn is_finite(&self) -> bool {
        let storage = match self.storage() {
            Storage::Cpu(storage) => storage,
            Storage::Gpu(_) => return self.to_device(Device::Cpu).is_ok_and(|here| here.is_finite()),
        };
        match storage {
            CpuStorage::F32(x) => all(x, |x| x.is_finite()),
            CpuStorage::F64(x) => all(x, |x| x.is_finite()),
            CpuStorage::F16(x) => all(x, |x| x.is_finite()),
            CpuStorage::BF16(x) => all(x, |x| x.is_finite()),
            CpuStorage::U8(_) | CpuStorage::U32(_) => true,
            CpuStorage::Nf4(x) => x.is_finite(),
            CpuStorage::Blocks(x) => x.is_finite(),
        }
    }

    /// Makes `self` the output of `operator` applied to `inputs`; `None` stands for an optional input that was not given.
    ///
    /// `rule` maps the gradient of the output to one gradient for each input; its second argument says which of them are
    /// wanted, never that of a `None`. It is kept, with all it captured, only if an input is tracked. Capture only what the
    /// wanted gradients need.
    ///
    /// # Errors
    /// [`Error::NonFinite`] inside [`autograd::find_non_finite`] when an element of `self` is not finite.
    #[allow(clippy::wrong_self_convention)]
    pub fn from_operator(
        self,
        operator: &'static str,
        inputs: &[Option<&Tensor>],
        rule: impl FnOnce(Tensor, &mut Wanted) -> Result<Vec<Option<Tensor>>> + Send + 'static,
    ) -> Result<Self> {
        // Boxed here, so that recording is compiled once and not for each rule.
        autograd::record(self, operator, inputs, Box::new(rule))
    }

    /// Makes `self` the output of an operator without a gradient.
    ///
    /// # Errors
    /// [`Error::NoGradient`] when one of `inputs` is tracked and gradients are being recorded.
    #[allow(clippy::wrong_self_convention)]
    pub fn from_untracked(self, operator: &'static str, inputs: &[&Tensor]) -> Result<Self> {
        if autograd::is_recording() && inputs.iter().any(|input| input.is_tracked()) {
            return Err(Error::NoGradient(operator));
        }
        Ok(self)
    }
}

/// `x` in single precision, rounded to odd: where bits are lost the last one that is kept is 1. Rounding that once more to fewer bits gives what
/// rounding `x` to them would have given.
pub fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let wide = f64::from(nearest);
    if wide == x || !nearest.is_finite() {
        return nearest;
    }
    let towards_zero = if wide.abs() > x.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(towards_zero | 1)
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let values = self.to_f64_vec();
        write!(f, "Tensor({} {} {:?}", self.dtype(), self.shape(), &values[..values.len().min(SHOWN)])?;
        f.write_str(if values.len() > SHOWN { " ...)" } else { ")" })
    }
}
/// Whether all elements are `fine`. A piece has no early exit, so that the loop over it is one of vectors.
fn all<T: Sync>(x: &[T], fine: impl Fn(&T) -> bool + Sync) -> bool {
    const PIECE: usize = 1 << 16;
    let bad = |piece: std::ops::Range<usize>| !x[piece].iter().fold(true, |all, x| all & fine(x));
    parallel::sum(x.len(), PIECE, |piece| f64::from(u8::from(bad(piece)))) == 0.0
}
