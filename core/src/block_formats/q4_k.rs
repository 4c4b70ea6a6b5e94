//! `q4_k`: 256 elements in 144 bytes. `d` and `m` (f16), scales `s_j` and minima `t_j` of 8 parts of 32 elements (6 bits
//! each), then 4 times 32 bytes with parts `2i` and `2i + 1` in their low and high halves: `(d s_j) q - (m t_j)`.

use super::k_scales::{put_scales_and_minima, scales_and_minima};
use super::{Blocks, Encode, FROM_0, encode_blocks, inverse, pair, part, put_half, range, splat_half};
use crate::wide::Wide;
use half::f16;

pub(super) struct Q4K;

impl Blocks for Q4K {
    const NAME: &str = "q4_k";
    const SIZE: usize = 256;
    const BYTES: usize = 144;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let (scales, minima) =
            scales_and_minima(wide, part(block, 4), [splat_half(wide, block, 0), splat_half(wide, block, 2)]);
        for i in 0..4 {
            let codes = pair!(j => wide.unsigned(part(block, 16 + 32 * i + 16 * j)));
            let [low, high] = pair!(j => {
                let (scale, minimum) = (wide.splat(scales[2 * i + j]), wide.splat(minima[2 * i + j]));
                wide.sub(wide.mul(scale, wide.load(&FROM_0)), minimum)
            });
            give(2 * i, pair!(i => wide.look_up(low, codes[i])));
            give(2 * i + 1, pair!(i => wide.look_up(high, wide.shr(codes[i], 4))));
        }
    }

    const ENCODE: Option<Encode> = Some(|values, out| {
        encode_blocks(values, out, |values: &[f32; 256], out: &mut [u8; 144]| {
            let parts: &[[f32; 32]] = values.as_chunks().0;
            let fits: [Fit; 8] = std::array::from_fn(|j| fit(&parts[j]));
            let largest = |of: fn(&Fit) -> f32| fits.iter().map(of).fold(0.0_f32, f32::max);
            let (scale, minimum) = (largest(|fit| fit.scale), largest(|fit| fit.minimum));
            let steps = |x: f32, largest: f32| (x * 63.0 * inverse(largest)).round_ties_even().min(63.0) as u8;
            let scales = fits.each_ref().map(|fit| steps(fit.scale, scale));
            let minima = fits.each_ref().map(|fit| steps(fit.minimum, minimum));
            put_half(scale / 63.0, out);
            put_half(minimum / 63.0, &mut out[2..]);
            put_scales_and_minima(scales, minima, &mut out[4..16]);
            let [d, m] = [0, 2].map(|at| f16::from_le_bytes(*part(out, at)).to_f32());
            // With the scales as they are stored.
            let codes: [[u8; 32]; 8] = std::array::from_fn(|j| {
                let (step, minimum) = (inverse(d * f32::from(scales[j])), m * f32::from(minima[j]));
                parts[j].map(|x| ((x + minimum) * step).round_ties_even().clamp(0.0, 15.0) as u8)
            });
            for (pair, out) in codes.chunks_exact(2).zip(out[16..].chunks_exact_mut(32)) {
                out.iter_mut().zip(&pair[0]).zip(&pair[1]).for_each(|((out, low), high)| *out = low | high << 4);
            }
        });
    });
}

/// `scale q - minimum`, both 0 or more.
struct Fit {
    scale: f32,
    minimum: f32,
}

/// Scale and minimum of a part by least squares over the elements, large ones weighing more: tries 21 scales, each of which
/// gives codes, and each codes' best scale and minimum. Codes are counted from the best minimum so far.
///
/// Source: `make_qkx2_quants` in `ggml-quants.c`.
fn fit(x: &[f32; 32]) -> Fit {
    const LARGEST: f32 = 15.0;
    let (low, high) = range(x);
    let low = low.min(0.0);
    if high <= low {
        return Fit { scale: 0.0, minimum: -low };
    }
    let usual = (x.iter().map(|x| x * x).sum::<f32>() / 32.0).sqrt();
    let weights = x.map(|x| usual + x.abs());
    let weight: f32 = weights.iter().sum();
    let weighted: f32 = weights.iter().zip(x).map(|(w, x)| w * x).sum();
    let codes = |inverse: f32, low: f32| x.map(|x| ((x - low) * inverse).round_ties_even().clamp(0.0, LARGEST));
    let error = |codes: &[f32; 32], scale: f32, low: f32| {
        let parts = codes.iter().zip(x).zip(&weights);
        parts.map(|((q, x), w)| w * (scale * q + low - x) * (scale * q + low - x)).sum::<f32>()
    };
    let scale = (high - low) / LARGEST;
    let mut best = Fit { scale, minimum: -low };
    let mut least = error(&codes(1.0 / scale, low), scale, low);
    for step in 0..=20 {
        let low = -best.minimum;
        let codes = codes((LARGEST - 1.0 + 0.1 * step as f32) / (high - low), low);
        let (mut sum, mut squares, mut products) = (0.0, 0.0, 0.0);
        for ((q, x), w) in codes.iter().zip(x).zip(&weights) {
            sum += w * q;
            squares += w * q * q;
            products += w * q * x;
        }
        let determinant = weight * squares - sum * sum;
        if determinant <= 0.0 {
            continue;
        }
        let mut scale = (weight * products - weighted * sum) / determinant;
        let mut low = (squares * weighted - sum * products) / determinant;
        if low > 0.0 {
            (scale, low) = (products / squares, 0.0);
        }
        let error = error(&codes, scale, low);
        if error < least && scale > 0.0 {
            (least, best) = (error, Fit { scale, minimum: -low });
        }
    }
    best
}
