//! Four elements to a block of random words.

use crate::dispatch::for_float;
use hankel_core::{Buffer, Float, Random, Result, Tensor, parallel};

pub(super) fn forward(x: &Tensor, p: f64, random: &Random) -> Result<Tensor> {
    for_float!(x, super::NAME, T => {
        let (source, threshold, scale) = (x.data::<T>()?, (p * 4_294_967_296.0) as u32, T::of(1.0 / (1.0 - p)));
        let mut y = Buffer::unspecified(source.len());
        parallel::for_rows(&mut y, 4, |first, piece| {
            for (block, (y, x)) in piece.chunks_mut(4).zip(source[4 * first..].chunks(4)).enumerate() {
                let words = random.block((first + block) as u64);
                for ((y, &x), word) in y.iter_mut().zip(x).zip(words) {
                    *y = if word >= threshold { x * scale } else { 0.0 };
                }
            }
        });
        Tensor::from_buffer(y, x.shape())
    })
}
