//! Buffers that are used again from step to step.
//!
//! A training step allocates the same few hundred large buffers each time. Fresh memory from the system costs a page
//! fault per 4 KiB, which is as much time as the arithmetic of an element-wise operator; so freed buffers are kept, up
//! to a limit, and handed out again.

use crate::Element;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Buffers below this size are left to the system's allocator.
const SMALLEST: usize = 64 << 10;

static HELD: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(512 << 20);

/// Sets how many bytes of freed buffers are kept; 0 turns reuse off. The default is 512 MiB.
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// Bytes of freed buffers held at the moment.
pub fn held_bytes() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Free lists of one element type, by capacity.
#[doc(hidden)]
pub struct FreeList<T>(Mutex<BTreeMap<usize, Vec<Vec<T>>>>);

impl<T> FreeList<T> {
    pub(crate) const fn new() -> Self {
        FreeList(Mutex::new(BTreeMap::new()))
    }
}

/// A vector of fixed length whose memory goes back to the pool when it is dropped.
pub struct Buffer<T: Element>(Vec<T>);

impl<T: Element> Buffer<T> {
    /// `len` elements of unspecified (but valid) value, for kernels that write every element.
    pub fn unspecified(len: usize) -> Self {
        if len * size_of::<T>() < SMALLEST {
            return Buffer(vec![T::zeroed(); len]);
        }
        let mut lists = T::free_list().0.lock().expect("a thread panicked while it held the buffer pool");
        let found = lists.range_mut(len..=len + len / 8).find_map(|(_, list)| list.pop());
        drop(lists);
        if let Some(mut data) = found {
            HELD.fetch_sub(data.capacity() * size_of::<T>(), Ordering::Relaxed);
            data.resize(len, T::zeroed());
            return Buffer(data);
        }
        Buffer(vec![T::zeroed(); len])
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::unspecified(len);
        buffer.fill(T::zeroed());
        buffer
    }
}

impl<T: Element> From<Vec<T>> for Buffer<T> {
    fn from(data: Vec<T>) -> Self {
        Buffer(data)
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        let bytes = self.0.capacity() * size_of::<T>();
        if bytes < SMALLEST || HELD.load(Ordering::Relaxed) + bytes > LIMIT.load(Ordering::Relaxed) {
            return;
        }
        let data = std::mem::take(&mut self.0);
        if let Ok(mut lists) = T::free_list().0.lock() {
            HELD.fetch_add(bytes, Ordering::Relaxed);
            lists.entry(data.capacity()).or_default().push(data);
        }
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_buffer_is_used_again() {
        // A length that no other test uses, so that tests in parallel do not take it.
        let len = 123_457;
        let first = Buffer::<f64>::unspecified(len);
        let address = first.as_ptr();
        drop(first);
        let second = Buffer::<f64>::unspecified(len - 1000);
        assert_eq!(second.as_ptr(), address);
        assert_eq!(second.len(), len - 1000);
    }

    #[test]
    fn zeros_are_zero_after_reuse() {
        let len = 98_765;
        let mut buffer = Buffer::<f32>::unspecified(len);
        buffer.fill(3.0);
        drop(buffer);
        assert!(Buffer::<f32>::zeros(len).iter().all(|&x| x == 0.0));
    }
}
