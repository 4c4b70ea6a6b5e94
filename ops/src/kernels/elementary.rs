//! Exponential and normal distribution without branches or table look-ups, so that loops over them vectorise.
//!
//! Call them inside [`super::simd::vectorized`] or [`super::simd::dispatch`]; elsewhere they are right but slow.
//! Accuracy: `vexp` and `vexp2` 2 ulp where the result is normal; smaller results are 0. `gaussian` a few ulp of 1.

use hankel_core::Float;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LOG2_E};

/// Functions of one float, inlined into vector loops.
pub trait Elementary: Float {
    /// `exp(x)`: 0 where it would be below about 2e-38 (`f32`) or 3e-308 (`f64`).
    fn vexp(self) -> Self;

    /// `2^x` for `x <= 127`: 0 where it would not be a normal number. With half the operations of `vexp`.
    fn vexp2(self) -> Self;

    /// Distribution function and density of the standard normal distribution, (Φ(x), φ(x)).
    ///
    /// The tail is Q(z) = exp(-z²/2) t P(t) with t = 1 / (1 + z/4), a Chebyshev fit of Mills' ratio on the whole
    /// half-axis, so Q keeps its relative accuracy far out.
    fn gaussian(self) -> (Self, Self);

    /// `tanh(x)`, within a few ulp of 1.
    #[inline(always)]
    fn vtanh(self) -> Self {
        let e = (self.abs() * Self::of(-2.0)).vexp();
        ((Self::one() - e) / (Self::one() + e)).copysign(self)
    }

    /// `1 / (1 + exp(-x))`.
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::one() / (Self::one() + (-self).vexp())
    }
}

/// `c[0] + x (c[1] + x (c[2] + ...))`.
#[inline(always)]
fn horner<T: Float, const N: usize>(x: T, c: &[T; N]) -> T {
    let mut sum = c[N - 1];
    for i in (0..N - 1).rev() {
        sum = sum.mul_add(x, c[i]);
    }
    sum
}

macro_rules! elementary {
    ($float:ty, round: $round:expr, ln2: $high:expr, $low:expr, lowest: $lowest:expr, highest: $highest:expr,
     bias: $bias:expr, mantissa: $mantissa:expr, exp: $exp:expr, exp2: $exp2:expr, mills: $mills:expr) => {
        impl Elementary for $float {
            #[inline(always)]
            fn vexp(self) -> Self {
                // Adding 1.5 * 2^mantissa rounds to an integer, which then stands in the low bits.
                let rounded = self.mul_add(LOG2_E as $float, $round);
                let n = rounded - $round;
                let r = n.mul_add(-$low, n.mul_add(-$high, self));
                let p = horner(r, &$exp).mul_add(r * r, r) + 1.0;
                // 2^(n - 1), doubled after: 2^n itself would overflow for the largest results.
                let power = <$float>::from_bits(rounded.to_bits().wrapping_add($bias) << $mantissa);
                let y = (p + p) * power;
                let y = if self < $lowest { 0.0 } else { y };
                if self > $highest { <$float>::INFINITY } else { y }
            }

            #[inline(always)]
            fn vexp2(self) -> Self {
                let rounded = self + $round;
                let r = self - (rounded - $round);
                // The integer, in the low bits, is added to the exponent.
                let p = horner(r, &$exp2).mul_add(r, 1.0);
                let y = <$float>::from_bits(p.to_bits().wrapping_add(rounded.to_bits() << $mantissa));
                let y = if self < -($bias as $float) { 0.0 } else { y };
                // Adding integers to its bits makes a number of some NaN.
                if self.is_nan() { self } else { y }
            }

            #[inline(always)]
            fn gaussian(self) -> (Self, Self) {
                let z = self.abs();
                let density = (z * z * (LOG2_E * -0.5) as $float).vexp2();
                let t = 1.0 / (z.mul_add(0.25, 1.0));
                let tail = density * t * horner(t.mul_add(2.0, -1.0), &$mills);
                (
                    if self > 0.0 { 1.0 - tail } else { tail },
                    density * ((FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5) as $float),
                )
            }
        }
    };
}

elementary!(
    f32,
    round: 12_582_912.0,
    ln2: 0.693_359_4, -2.121_944_4e-4,
    lowest: -86.9,
    highest: 88.722_84,
    bias: 126,
    mantissa: 23,
    exp: [0.5, 0.166_665_76, 0.041_666_554, 0.008_363_293, 0.001_392_632_6],
    exp2: [LN_2 as f32, 0.240_226_53, 0.055_503_104, 0.009_617_693, 0.001_340_664_3, 0.000_155_946_78],
    mills: [
        0.188_821_28, 0.151_974_15, 0.096_784_39, 0.046_631_046, 0.015_098_828, 0.001_880_313_9, -0.000_869_049_1,
        -0.000_393_938, 3.233_503e-5, 4.065_408e-5,
    ]
);

elementary!(
    f64,
    round: 6_755_399_441_055_744.0,
    ln2: 0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10,
    lowest: -708.0,
    highest: 709.782_712_893_384,
    bias: 1022,
    mantissa: 52,
    exp: [
        0.5, 0.166_666_666_666_666_69, 0.041_666_666_666_623_48, 0.008_333_333_333_330_011, 0.001_388_888_891_753_829_6,
        0.000_198_412_698_633_032_23, 2.480_152_079_257_269_4e-5, 2.755_726_807_290_01e-6, 2.762_032_742_826_824e-7,
        2.510_056_927_581_368_3e-8,
    ],
    exp2: [
        0.693_147_180_559_945_7, 0.240_226_506_959_100_98, 0.055_504_108_664_790_39, 0.009_618_129_107_607_003,
        0.001_333_355_815_343_996_5, 0.000_154_035_304_415_721_33, 1.525_272_738_519_386_8e-5, 1.321_544_267_532_982_2e-6,
        1.018_064_765_923_413_9e-7, 7.072_570_412_814_423e-9, 4.078_071_929_588_337e-10,
    ],
    mills: [
        0.188_821_282_603_937_85, 0.151_974_160_492_973_02, 0.096_784_350_185_556_73, 0.046_630_464_489_912_93,
        0.015_099_143_722_587_02, 0.001_885_047_241_749_155_8, -0.000_869_923_089_112_694_4, -0.000_407_704_615_694_742_2,
        3.333_605_188_788_428e-5, 5.777_374_668_713_712e-5, -4.769_171_283_300_536e-7, -8.786_247_032_900_86e-6,
        1.786_450_648_048_275e-7, 1.480_322_355_528_757e-6, -1.562_285_420_225_164_3e-7, -2.560_592_247_141_351e-7,
        6.617_114_031_617_585e-8, 3.979_109_847_948_73e-8, -1.968_673_607_617_706_2e-8, -4.354_781_294_864_761e-9,
        4.012_985_628_570_617e-9, 1.044_370_963_108_505_7e-10, -4.214_620_484_319_69e-10, 3.734_119_877_488_462e-11,
    ]
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::simd::vectorized;

    /// Series and continued fraction of Φ, in f64.
    fn normal_distribution(x: f64) -> f64 {
        let z = x.abs();
        let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let tail = if z < 1.5 {
            let (mut term, mut sum) = (z, z);
            for k in 1..200 {
                term *= z * z / f64::from(2 * k + 1);
                sum += term;
            }
            0.5 - density * sum
        } else {
            density / (1..400).rev().fold(z, |fraction, k| z + f64::from(k) / fraction)
        };
        if x > 0.0 { 1.0 - tail } else { tail }
    }

    fn checks_exp<T: Elementary>(from: f64, to: f64, ulps: f64) {
        let steps = 200_000;
        let x: Vec<T> = (0..=steps).map(|i| T::of(from + (to - from) * f64::from(i) / f64::from(steps))).collect();
        let mut y = x.clone();
        vectorized(|| y.iter_mut().for_each(|y| *y = y.vexp()));
        for (x, y) in x.iter().zip(&y) {
            let exact = x.f64().exp();
            assert!((y.f64() - exact).abs() <= ulps * T::epsilon().f64() * exact, "exp({x}) = {y}, not {exact}");
        }
    }

    #[test]
    fn exp_is_accurate() {
        checks_exp::<f32>(-86.8, 88.7, 2.0);
        checks_exp::<f32>(-1.0, 1.0, 2.0);
        checks_exp::<f64>(-707.9, 709.7, 2.0);
        checks_exp::<f64>(-1.0, 1.0, 2.0);
    }

    fn checks_exp2<T: Elementary>(from: f64, to: f64, ulps: f64) {
        let steps = 200_000;
        let x: Vec<T> = (0..=steps).map(|i| T::of(from + (to - from) * f64::from(i) / f64::from(steps))).collect();
        let mut y = x.clone();
        vectorized(|| y.iter_mut().for_each(|y| *y = y.vexp2()));
        for (x, y) in x.iter().zip(&y) {
            let exact = x.f64().exp2();
            assert!((y.f64() - exact).abs() <= ulps * T::epsilon().f64() * exact, "2^{x} = {y}, not {exact}");
        }
    }

    #[test]
    fn exp2_is_accurate() {
        checks_exp2::<f32>(-126.0, 127.0, 2.0);
        checks_exp2::<f32>(-1.0, 1.0, 2.0);
        checks_exp2::<f64>(-1022.0, 1023.0, 2.0);
        checks_exp2::<f64>(-1.0, 1.0, 2.0);
        assert!(f32::NEG_INFINITY.vexp2() == 0.0 && (-127.0_f32).vexp2() == 0.0 && 0.0_f32.vexp2() == 1.0);
        assert!(f64::NEG_INFINITY.vexp2() == 0.0 && (-1023.0_f64).vexp2() == 0.0 && 0.0_f64.vexp2() == 1.0);
        assert!(f32::NAN.vexp2().is_nan() && f64::NAN.vexp2().is_nan());
    }

    fn checks_special<T: Elementary>() {
        assert!(T::neg_infinity().vexp() == T::zero() && T::infinity().vexp() == T::infinity());
        assert!(T::zero().vexp() == T::one() && T::nan().vexp().is_nan());
        assert!(T::of(1e4).vexp() == T::infinity() && T::of(-1e4).vexp() == T::zero());
        assert!(T::nan().gaussian().0.is_nan() && T::nan().sigmoid().is_nan());
        assert!(T::of(1e3).gaussian() == (T::one(), T::zero()) && T::of(-1e3).gaussian() == (T::zero(), T::zero()));
        assert!(T::infinity().sigmoid() == T::one() && T::neg_infinity().sigmoid() == T::zero());
    }

    #[test]
    fn special_values() {
        checks_special::<f32>();
        checks_special::<f64>();
    }

    fn checks_gaussian<T: Elementary>(ulps: f64) {
        for i in -100_000..=100_000 {
            let x = T::of(f64::from(i) * 1e-4);
            let (cdf, pdf) = x.gaussian();
            let x = x.f64();
            let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
            let exact = normal_distribution(x);
            let tolerance = ulps * T::epsilon().f64();
            assert!((cdf.f64() - exact).abs() <= tolerance, "Φ({x}) = {cdf}, not {exact}");
            // The rounding of x²/2 is felt in the exponential.
            assert!(
                (pdf.f64() - density).abs() <= tolerance * density * (1.0 + x * x),
                "φ({x}) = {pdf}, not {density}"
            );
            if x < 0.0 && density > T::min_positive_value().f64() * 100.0 {
                assert!((cdf.f64() - exact).abs() <= 4.0 * tolerance * exact * (1.0 + x * x), "tail Φ({x})");
            }
        }
    }

    #[test]
    fn gaussian_is_accurate() {
        checks_gaussian::<f32>(2.0);
        checks_gaussian::<f64>(4.0);
    }
}
