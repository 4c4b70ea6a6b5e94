//! Inverted dropout: `y = x * m / (1 - p)`, where `m` is 1 with probability `1 - p`.
//!
//! The mask is a function of the element's index in a [`Random`] stream, so nothing is saved for the gradient, a
//! recomputed region sees the same mask, and every device draws the same one: element `i` is kept when word `i` of the
//! stream is at least `p 2^32`.

#[doc(hidden)]
pub mod cases;
mod gpu;

use crate::dispatch::for_float;
use hankel_core::{Buffer, Error, Float, Random, Result, Tensor, parallel};

/// Drops elements with probability `p` and scales the others by `1 / (1 - p)`; `p = 0` is the identity.
///
/// # Errors
/// When `p` is not in `0 <= p < 1`.
pub fn dropout(x: &Tensor, p: f64, random: Random) -> Result<Tensor> {
    if !(0.0..1.0).contains(&p) {
        return Err(Error::invalid("dropout", format!("probability {p} is not in 0 <= p < 1")));
    }
    if p == 0.0 {
        return Ok(x.clone());
    }
    if let Some(gpu) = x.gpu() {
        return gpu::dropout(gpu, x, p, random);
    }
    for_float!(x, "dropout", T => {
        let out = Tensor::from_buffer(apply::<T>(x.data()?, p, &random), x.shape())?;
        out.from_operator("dropout", &[Some(x)], move |g, _| {
            Ok(vec![Some(Tensor::from_buffer(apply::<T>(g.data()?, p, &random), g.shape())?)])
        })
    })
}

fn apply<T: Float>(x: &[T], p: f64, random: &Random) -> Buffer<T> {
    let (threshold, scale) = ((p * 4_294_967_296.0) as u32, T::of(1.0 / (1.0 - p)));
    let mut out = Buffer::unspecified(x.len());
    parallel::for_rows(&mut out, 4, |first, piece| {
        for (block, (y, x)) in piece.chunks_mut(4).zip(x[4 * first..].chunks(4)).enumerate() {
            let words = random.block((first + block) as u64);
            for ((y, &x), word) in y.iter_mut().zip(x).zip(words) {
                *y = if word >= threshold { x * scale } else { T::zero() };
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_right_share_and_the_mean() {
        let x = Tensor::full([100_000], 1.0_f32);
        let y = dropout(&x, 0.3, Random::new(3, "d", 9)).unwrap();
        let kept = y.data::<f32>().unwrap().iter().filter(|&&y| y != 0.0).count();
        assert!((kept as f64 / 1e5 - 0.7).abs() < 0.01);
        assert!((y.to_f64_vec().iter().sum::<f64>() / 1e5 - 1.0).abs() < 0.01);
        for p in [-0.1, 1.0, f64::NAN] {
            assert!(dropout(&x, p, Random::new(3, "d", 9)).is_err());
        }
    }
}
