use super::*;
use crate::Random;
use half::bf16;

/// The instruction sets of this processor.
pub(crate) fn architectures() -> Vec<Arch> {
    let mut all = vec![Arch::Scalar];
    #[cfg(target_arch = "x86_64")]
    {
        all.extend(pulp::x86::V3::try_new().map(Arch::V3));
        all.extend(pulp::x86::V4::try_new().map(Arch::V4));
    }
    all
}

/// The results of every operation on these bits, as bits.
struct All([u32; WIDTH], [u32; WIDTH]);

impl WideOp for All {
    type Output = Vec<[u32; WIDTH]>;
    #[inline(always)]
    fn run<W: Wide>(self, wide: W) -> Self::Output {
        let (a, b) = (self.0.map(f32::from_bits), self.1.map(f32::from_bits));
        let (x, y) = (wide.load(&a), wide.load(&b));
        let bytes = self.0.map(|bits| bits as u8);
        let shorts = self.0.map(|bits| bits as u16);
        let (u, s, t) = (wide.unsigned(&bytes), wide.signed(&bytes), wide.shorts(&shorts));
        let floats = [
            x,
            wide.splat(a[3]),
            wide.add(x, y),
            wide.sub(x, y),
            wide.mul(x, y),
            wide.look_up(x, wide.bits(y)),
            wide.float(s),
            wide.halves(&shorts.map(f16::from_bits)),
            wide.splat_half(shorts[1]),
            wide.round_bf16(x),
            wide.zip(x, y)[0],
            wide.zip(x, y)[1],
        ];
        let words = [
            u,
            s,
            t,
            wide.splat_word(self.1[5]),
            wide.and(u, wide.bits(y)),
            wide.or(u, wide.bits(y)),
            wide.add_words(s, wide.bits(y)),
            wide.shl(s, 3),
            wide.shr(s, 5),
            wide.where_set(shorts[2], 77),
        ];
        let mut found: Vec<_> = words
            .map(|words| {
                let mut out = [0.0; WIDTH];
                wide.store(wide.of_bits(words), &mut out);
                out.map(f32::to_bits)
            })
            .into();
        let quiet = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
        found.extend(floats.map(|floats| {
            let mut out = [0.0; WIDTH];
            wide.store(floats, &mut out);
            out.map(quiet)
        }));
        found.push([quiet(wide.sum(x)); WIDTH]);
        found
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let random = Random::new(1, "wide", 0);
    for case in 0..200 {
        let bits =
            |which: u64| std::array::from_fn(|i| random.below((2 * case + which) * 16 + i as u64, 1 << 32) as u32);
        let expected = dispatch(Arch::Scalar, All(bits(0), bits(1)));
        for arch in architectures() {
            assert_eq!(dispatch(arch, All(bits(0), bits(1))), expected, "{arch:?}");
        }
    }
}

#[test]
fn fused_sums_and_rounding() {
    struct Fused([f32; WIDTH]);
    impl WideOp for Fused {
        type Output = [[f32; WIDTH]; 2];
        #[inline(always)]
        fn run<W: Wide>(self, wide: W) -> Self::Output {
            let x = wide.load(&self.0);
            let mut out = [[0.0; WIDTH]; 2];
            wide.store(wide.mul_add(x, wide.splat(3.0), wide.splat(0.5)), &mut out[0]);
            wide.store(wide.round_bf16(x), &mut out[1]);
            out
        }
    }
    let x: [f32; WIDTH] = std::array::from_fn(|i| 1.37_f32.powi(i as i32) - 3.0);
    for arch in architectures() {
        let [sums, rounded] = dispatch(arch, Fused(x));
        for i in 0..WIDTH {
            assert!((sums[i] - (3.0 * x[i] + 0.5)).abs() < 1e-5 * (1.0 + x[i].abs()), "{arch:?}");
            assert_eq!(rounded[i], bf16::from_f32(x[i]).to_f32(), "{arch:?}");
        }
    }
}

#[test]
fn every_half_is_widened_exactly() {
    struct Splat(u16);
    impl WideOp for Splat {
        type Output = [f32; WIDTH];
        #[inline(always)]
        fn run<W: Wide>(self, wide: W) -> Self::Output {
            let mut out = [0.0; WIDTH];
            wide.store(wide.splat_half(self.0), &mut out);
            out
        }
    }
    for bits in 0..=u16::MAX {
        let expected = f16::from_bits(bits).to_f32();
        for arch in architectures() {
            let found = dispatch(arch, Splat(bits));
            assert!(
                found.iter().all(|x| x.to_bits() == expected.to_bits() || x.is_nan() && expected.is_nan()),
                "{bits:#x} {arch:?}"
            );
        }
    }
}
