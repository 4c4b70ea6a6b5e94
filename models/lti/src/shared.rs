//! Numbers with several owners.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Numbers that several owners read where they lie, and that are copied when one of them writes: what a file holds, and the systems made
/// of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shared(Arc<Vec<f64>>);

impl Deref for Shared {
    type Target = Vec<f64>;

    fn deref(&self) -> &Vec<f64> {
        &self.0
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Vec<f64> {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<f64>> for Shared {
    fn from(values: Vec<f64>) -> Self {
        Self(Arc::new(values))
    }
}

impl FromIterator<f64> for Shared {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        values.into_iter().collect::<Vec<f64>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_has_a_copy() {
        let one: Shared = [1.0, 2.0].into_iter().collect();
        let mut other = one.clone();
        assert_eq!(one.as_ptr(), other.as_ptr());
        other[1] = 3.0;
        assert_eq!((one.to_vec(), other.to_vec()), (vec![1.0, 2.0], vec![1.0, 3.0]));
    }
}
