//! Buffers that are used again from step to step.
//!
//! A training step allocates the same few hundred large buffers each time. Fresh memory from the system costs a page
//! fault per 4 KiB, which is as much time as the arithmetic of an element-wise operator; so freed buffers are kept and handed
//! out again.
//!
//! How many are kept follows from what was in use: buffers in use and kept together take at most a quarter more than those in
//! use at the worst moment lately, of the last 16,384 allocations or the ones before; 32 MiB may be kept always. A step that
//! needs 2 GB keeps 2 GB between steps; memory that only loading needed goes back soon after it.

use crate::dtype::FREE_LISTS;
use crate::{Element, Error, Result};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Buffers below this size are left to the system's allocator.
const SMALLEST: usize = 16 << 10;

/// Allocations of one window, of buffers of at least [`COUNTED`] bytes: more than a step has.
const WINDOW: usize = 1 << 14;
const COUNTED: usize = 64 << 10;
/// Bytes that may always be kept.
const ALWAYS: usize = 32 << 20;

static HELD: AtomicUsize = AtomicUsize::new(0);
static IN_USE: AtomicUsize = AtomicUsize::new(0);
/// Most bytes in use at once, in this window and the one before.
static PEAKS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets how many bytes of freed buffers are kept at most; 0 turns reuse off. There is no such limit by default.
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// Counts a buffer as in use.
fn taken(bytes: usize) {
    let in_use = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAKS[0].fetch_max(in_use, Ordering::Relaxed);
    if bytes >= COUNTED && ALLOCATIONS.fetch_add(1, Ordering::Relaxed) % WINDOW == WINDOW - 1 {
        PEAKS[1].store(PEAKS[0].swap(in_use, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Bytes that may be kept beside those in use.
fn room() -> usize {
    let peak = PEAKS.iter().map(|peak| peak.load(Ordering::Relaxed)).max().unwrap_or(0);
    let room = (peak + peak / 4).saturating_sub(IN_USE.load(Ordering::Relaxed)).max(ALWAYS);
    room.min(LIMIT.load(Ordering::Relaxed))
}

/// Free lists of one element type, by capacity.
#[doc(hidden)]
pub struct FreeList<T>(Mutex<BTreeMap<usize, Vec<Vec<T>>>>);

impl<T> FreeList<T> {
    pub(crate) const fn new() -> Self {
        FreeList(Mutex::new(BTreeMap::new()))
    }
}

/// A buffer of this capacity. No list is kept empty: there would be one for every size that was ever used.
fn take<T>(lists: &mut BTreeMap<usize, Vec<Vec<T>>>, capacity: usize) -> Option<Vec<T>> {
    let list = lists.get_mut(&capacity)?;
    let data = list.pop();
    if list.is_empty() {
        lists.remove(&capacity);
    }
    data
}

/// What the free lists of all element types have in common.
pub(crate) trait AnyFreeList {
    /// Bytes of the largest buffer, 0 if there is none.
    fn largest(&self) -> usize;
    /// Gives the largest buffer back to the system.
    fn drop_largest(&self);
}

impl<T> AnyFreeList for FreeList<T> {
    fn largest(&self) -> usize {
        let Ok(lists) = self.0.lock() else { return 0 };
        lists.last_key_value().map_or(0, |(capacity, _)| capacity * size_of::<T>())
    }

    fn drop_largest(&self) {
        let Ok(mut lists) = self.0.lock() else { return };
        let largest = lists.last_key_value().map(|(capacity, _)| *capacity);
        if let Some(data) = largest.and_then(|capacity| take(&mut lists, capacity)) {
            HELD.fetch_sub(data.capacity() * size_of::<T>(), Ordering::Relaxed);
        }
    }
}

/// Drops kept buffers until `bytes` more may be held. The largest of any type go first, so that buffers of sizes and types that are
/// no longer used do not add up.
fn make_room(bytes: usize) {
    while HELD.load(Ordering::Relaxed).saturating_add(bytes) > room() {
        let largest = FREE_LISTS.iter().map(|list| list()).max_by_key(|list| list.largest());
        match largest.filter(|list| list.largest() > 0) {
            Some(list) => list.drop_largest(),
            None => return,
        }
    }
}

/// Memory that a [`Buffer`] can borrow from: a memory-mapped file, say.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A vector of fixed length. Its memory goes back to the pool when it is dropped, or belongs to a shared owner such as a
/// memory-mapped file; borrowed elements are copied when they are first written to.
pub struct Buffer<T: Element>(Memory<T>);

enum Memory<T> {
    Owned(Vec<T>),
    Borrowed(Bytes, Range<usize>),
}

impl<T: Element> Buffer<T> {
    /// `len` elements of unspecified (but valid) value, for kernels that write every element.
    pub fn unspecified(len: usize) -> Self {
        if len.saturating_mul(size_of::<T>()) < SMALLEST {
            return vec![T::zeroed(); len].into();
        }
        let mut lists = T::free_list().0.lock().expect("a thread panicked while it held the buffer pool");
        // Steps over texts of other lengths need other sizes: one up to twice as large will do.
        let nearest = lists.range(len..=len.saturating_mul(2)).next().map(|(capacity, _)| *capacity);
        let found = nearest.and_then(|capacity| take(&mut lists, capacity));
        drop(lists);
        if found.is_none() {
            make_room(len.saturating_mul(size_of::<T>()));
        }
        if let Some(mut data) = found {
            HELD.fetch_sub(data.capacity() * size_of::<T>(), Ordering::Relaxed);
            data.resize(len, T::zeroed());
            return data.into();
        }
        vec![T::zeroed(); len].into()
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::unspecified(len);
        buffer.fill(T::zeroed());
        buffer
    }

    /// The bytes `range` of `owner` as elements, without a copy.
    ///
    /// # Errors
    /// When the range goes beyond the end, is not a whole number of elements, or does not start where elements of this type
    /// may start.
    pub fn borrowed(owner: Bytes, range: Range<usize>) -> Result<Self> {
        let bytes = (*owner).as_ref();
        let Some(part) = bytes.get(range.clone()) else {
            let problem = format!("bytes {range:?} of {}", bytes.len());
            return Err(Error::invalid("buffer", problem));
        };
        if let Err(problem) = bytemuck::try_cast_slice::<u8, T>(part) {
            return Err(Error::invalid("buffer", format!("bytes {range:?} as {}: {problem}", T::ELEMENT)));
        }
        Ok(Buffer(Memory::Borrowed(owner, range)))
    }

    /// Whether the elements belong to another owner.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.0, Memory::Borrowed(..))
    }
}

impl<T: Element> From<Vec<T>> for Buffer<T> {
    fn from(data: Vec<T>) -> Self {
        let bytes = data.capacity() * size_of::<T>();
        if bytes >= SMALLEST {
            taken(bytes);
        }
        Buffer(Memory::Owned(data))
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        let Memory::Owned(data) = &mut self.0 else { return };
        let bytes = data.capacity() * size_of::<T>();
        if bytes < SMALLEST {
            return;
        }
        IN_USE.fetch_sub(bytes, Ordering::Relaxed);
        if HELD.load(Ordering::Relaxed) + bytes > room() {
            return;
        }
        let data = std::mem::take(data);
        if let Ok(mut lists) = T::free_list().0.lock() {
            HELD.fetch_add(bytes, Ordering::Relaxed);
            lists.entry(data.capacity()).or_default().push(data);
        }
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.0 {
            Memory::Owned(data) => data,
            // Checked once already; the second look costs two comparisons.
            Memory::Borrowed(owner, range) => bytemuck::cast_slice(&(**owner).as_ref()[range.clone()]),
        }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.is_borrowed() {
            *self = self.to_vec().into();
        }
        match &mut self.0 {
            Memory::Owned(data) => data,
            Memory::Borrowed(..) => unreachable!("the elements were copied just now"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of what is kept go one after another.
    static ONE: Mutex<()> = Mutex::new(());

    /// Buffers of a type that is used no more are given back for those of another.
    #[test]
    fn other_types_give_way() {
        let _one = ONE.lock();
        let len = 1_234_577;
        drop(Buffer::<f64>::unspecified(len));
        let kept = || f64::free_list().0.lock().unwrap().get(&len).map_or(0, Vec::len);
        assert_eq!(kept(), 1);
        // As a large buffer of another type does.
        make_room(usize::MAX / 4);
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_freed_buffer_is_used_again() {
        let _one = ONE.lock();
        // Twice what any other test asks for, so that none in parallel takes it.
        let len = 1_700_003;
        let first = Buffer::<f64>::unspecified(len);
        let address = first.as_ptr();
        drop(first);
        let second = Buffer::<f64>::unspecified(len - len / 3);
        assert_eq!(second.as_ptr(), address);
        assert_eq!(second.len(), len - len / 3);
        drop(second);
        // Much smaller ones leave it to its like.
        assert_ne!(Buffer::<f64>::unspecified(len / 3).as_ptr(), address);
        assert_eq!(Buffer::<f64>::unspecified(len).as_ptr(), address);
        make_room(usize::MAX / 4);
    }

    #[test]
    fn zeros_are_zero_after_reuse() {
        let len = 98_765;
        let mut buffer = Buffer::<f32>::unspecified(len);
        buffer.fill(3.0);
        drop(buffer);
        assert!(Buffer::<f32>::zeros(len).iter().all(|&x| x == 0.0));
    }

    #[test]
    fn borrowed_elements_are_read_in_place_and_copied_when_written() {
        let words: Arc<Vec<u8>> = Arc::new(bytemuck::cast_slice(&[1.0_f64, 2.0, 3.0]).to_vec());
        let start = words.as_ptr().align_offset(8);
        if start != 0 {
            return; // an allocator that aligns to bytes: nothing to show
        }
        let mut buffer = Buffer::<f64>::borrowed(words.clone(), 8..24).unwrap();
        assert_eq!(buffer.as_ptr().cast::<u8>(), words[8..].as_ptr());
        assert_eq!(&buffer[..], [2.0, 3.0]);
        buffer[0] = 5.0;
        assert!(!buffer.is_borrowed());
        assert_eq!(&buffer[..], [5.0, 3.0]);
        assert_eq!(&Buffer::<f64>::borrowed(words.clone(), 8..24).unwrap()[..], [2.0, 3.0]);
        for range in [4..12, 8..25, 16..32, 0..7] {
            assert!(Buffer::<f64>::borrowed(words.clone(), range.clone()).is_err(), "{range:?}");
        }
    }
}
