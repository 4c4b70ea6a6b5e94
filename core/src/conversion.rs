//! What an operator makes of a tensor before it computes with it, such as a copy in 16 bits: made once where several operators read
//! the same tensor.

use crate::{Result, Tensor};
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// The place for one conversion.
pub(crate) type Slot = Arc<OnceLock<Arc<dyn Any + Send + Sync>>>;

impl Tensor {
    /// This tensor with a place for what operators convert it to. It lives as long as the result and its clones do; tensors saved for
    /// the backward pass ([`Tensor::detach`]) and changed ones do not have it.
    #[must_use]
    pub fn keep_conversion(&self) -> Self {
        self.with_slot(Slot::default())
    }

    /// The kept conversion of type `C`, or else the result of `convert`. That is kept if this tensor has a place and the place is empty.
    ///
    /// # Errors
    /// Those of `convert`.
    pub fn converted<C: Any + Send + Sync>(&self, convert: impl FnOnce() -> Result<C>) -> Result<Arc<C>> {
        let kept = self.slot().and_then(|slot| slot.get()).and_then(|kept| Arc::clone(kept).downcast().ok());
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let made = Arc::new(convert()?);
        if let Some(slot) = self.slot() {
            // The first one stays, should two threads have made it.
            let _ = slot.set(made.clone());
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// Twice the elements, and how often they were made.
    fn doubled(x: &Tensor, count: &mut usize) -> Vec<f64> {
        let convert = || {
            *count += 1;
            Ok(x.to_f64_vec().iter().map(|x| 2.0 * x).collect::<Vec<f64>>())
        };
        x.converted(convert).unwrap().to_vec()
    }

    #[test]
    fn conversions_are_kept_where_asked_for() {
        let plain = Tensor::from_vec(vec![1.0_f64, 2.0], [2]).unwrap();
        let (mut count, expected) = (0, [2.0, 4.0]);
        for _ in 0..2 {
            assert_eq!(doubled(&plain, &mut count), expected);
        }
        assert_eq!(count, 2);
        let kept = plain.keep_conversion();
        for x in [&kept, &kept.clone(), &kept] {
            assert_eq!(doubled(x, &mut count), expected);
        }
        assert_eq!(count, 3);
        // Another type is made, and does not take the place.
        assert_eq!(*kept.converted(|| Ok(5_u8)).unwrap(), 5);
        assert!(kept.converted::<u8>(|| Err(Error::NotTracked)).is_err());
        assert_eq!(doubled(&kept, &mut count), expected);
        assert_eq!(count, 3);
    }

    #[test]
    fn saved_and_changed_tensors_keep_nothing() {
        let mut count = 0;
        let leaf = Tensor::from_vec(vec![1.0_f64], [1]).unwrap().parameter().unwrap();
        for x in [&leaf, &leaf.detach()] {
            let mut kept = x.keep_conversion();
            assert_eq!(kept.is_tracked(), x.is_tracked());
            doubled(&kept, &mut count);
            assert_eq!(count, 1);
            doubled(&kept.detach(), &mut count);
            assert_eq!(count, 2);
            kept.data_mut::<f64>().unwrap()[0] = 3.0;
            assert_eq!(doubled(&kept, &mut count), [6.0]);
            assert_eq!(count, 3);
            count = 0;
        }
    }

    #[test]
    fn conversions_end_with_their_tensor() {
        let kept = Tensor::from_vec(vec![1.0_f64], [1]).unwrap().keep_conversion();
        let watched = Arc::downgrade(&kept.converted(|| Ok(vec![1_u8])).unwrap());
        assert!(watched.upgrade().is_some());
        let saved = kept.detach();
        drop(kept);
        assert!(watched.upgrade().is_none() && saved.elements() == 1);
    }
}
