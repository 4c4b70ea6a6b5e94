//! Temporary memory of kernels: pooled, and aligned to a cache line so that vector loads never straddle two.

use hankel_core::{Buffer, Element};
use std::ops::{Deref, DerefMut};

const LINE: usize = 64;

/// A slice of unspecified values that starts on a cache line.
pub struct Scratch<T: Element> {
    buffer: Buffer<T>,
    start: usize,
    len: usize,
}

impl<T: Element> Scratch<T> {
    /// `len` elements of unspecified (but valid) value.
    pub fn new(len: usize) -> Self {
        let buffer = Buffer::unspecified(len + LINE / size_of::<T>());
        let misaligned = buffer.as_ptr() as usize % LINE;
        let start = if misaligned == 0 { 0 } else { (LINE - misaligned) / size_of::<T>() };
        Scratch { buffer, start, len }
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut scratch = Self::new(len);
        scratch.fill(T::zeroed());
        scratch
    }
}

impl<T: Element> Deref for Scratch<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.buffer[self.start..self.start + self.len]
    }
}

impl<T: Element> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.buffer[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_cache_line() {
        for len in [0, 1, 7, 100, 100_000] {
            let scratch = Scratch::<f32>::zeros(len);
            assert_eq!(scratch.len(), len);
            assert_eq!(scratch.as_ptr() as usize % LINE, 0);
        }
    }
}
