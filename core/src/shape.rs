//! Shapes: the sizes of a tensor's dimensions, row-major.

use std::fmt;
use std::ops::Deref;

/// Sizes of the dimensions, outermost first. An empty shape is a scalar with one element.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape(Box<[usize]>);

impl Shape {
    /// Number of elements; the largest number there is where they cannot be counted.
    pub fn elements(&self) -> usize {
        product(&self.0)
    }

    /// Size of the last dimension, 1 for a scalar.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Number of rows when all but the last dimension are flattened: `elements / last`.
    pub fn rows(&self) -> usize {
        product(&self.0[..self.0.len().saturating_sub(1)])
    }

    /// The same shape with another last dimension.
    pub fn with_last(&self, size: usize) -> Shape {
        let mut dims = self.0.to_vec();
        match dims.last_mut() {
            Some(last) => *last = size,
            None => dims.push(size),
        }
        dims.into()
    }
}

fn product(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |n: usize, &size| n.saturating_mul(size))
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Shape(dims.into())
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Shape(dims.into())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Shape(dims.into())
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Self {
        shape.clone()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
