//! Counter-based random numbers.
//!
//! A number is a pure function of (seed, name, step, index), computed by Philox-4x32-10 (Salmon et al., "Parallel random
//! numbers: as easy as 1, 2, 3", 2011). The same seed therefore gives the same run whatever the number of threads or the
//! device, a recomputed dropout mask is the same mask, and a resumed run needs no generator state.

use crate::Float;

/// A stream of random numbers, one for each index.
#[derive(Debug, Clone, Copy)]
pub struct Random {
    key: [u32; 2],
    step: u64,
}

impl Random {
    /// The stream of `name` at `step` under `seed`.
    pub fn new(seed: u64, name: &str, step: u64) -> Self {
        // FNV-1a over the name, then the finaliser of SplitMix64 to mix in the seed.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut mixed = hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        Random { key: [mixed as u32, (mixed >> 32) as u32], step }
    }

    /// The key words and the step, for kernels that compute the same numbers on another device.
    pub fn key(&self) -> ([u32; 2], u64) {
        (self.key, self.step)
    }

    /// Four random words for each block index.
    #[inline]
    pub fn block(&self, block: u64) -> [u32; 4] {
        let mut counter = [block as u32, (block >> 32) as u32, self.step as u32, (self.step >> 32) as u32];
        let mut key = self.key;
        for _ in 0..10 {
            let a = u64::from(counter[0]) * 0xD251_1F53;
            let b = u64::from(counter[2]) * 0xCD9E_8D57;
            counter =
                [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        counter
    }

    /// The random word at `index`.
    #[inline]
    pub fn bits(&self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// Uniform in [0, 1) with 53 bits.
    pub fn uniform(&self, index: u64) -> f64 {
        let words = self.block(index);
        let wide = (u64::from(words[0]) << 32) | u64::from(words[1]);
        (wide >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in 0..n (by multiplication of 64 bits: the bias is below n / 2^64).
    pub fn below(&self, index: u64, n: usize) -> usize {
        let words = self.block(index);
        let wide = (u64::from(words[0]) << 32) | u64::from(words[1]);
        ((u128::from(wide) * n as u128) >> 64) as usize
    }

    /// Standard normal (Box-Muller).
    pub fn normal(&self, index: u64) -> f64 {
        let words = self.block(index);
        let unit =
            |high: u32, low: u32| (((u64::from(high) << 32) | u64::from(low)) >> 11) as f64 / (1_u64 << 53) as f64;
        let (u, v) = (1.0 - unit(words[0], words[1]), unit(words[2], words[3]));
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// `len` independent normal values with standard deviation `std`.
    pub fn normal_vec<T: Float>(&self, len: usize, std: f64) -> Vec<T> {
        if std == 0.0 {
            return vec![T::zero(); len];
        }
        (0..len as u64).map(|i| T::of(std * self.normal(i))).collect()
    }

    /// A random permutation of 0..n.
    pub fn permutation(&self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i as u64, i + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_known_answers() {
        // Random123's known-answer vectors for philox4x32-10.
        let zero = Random { key: [0, 0], step: 0 };
        assert_eq!(zero.block(0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = Random { key: [u32::MAX, u32::MAX], step: u64::MAX };
        assert_eq!(ones.block(u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn moments() {
        let random = Random::new(1, "moments", 0);
        let n = 100_000;
        let normal: Vec<f64> = random.normal_vec(n, 1.0);
        let mean = normal.iter().sum::<f64>() / n as f64;
        let variance = normal.iter().map(|x| x * x).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        let uniform = (0..n as u64).map(|i| random.uniform(i)).sum::<f64>() / n as f64;
        assert!((uniform - 0.5).abs() < 0.005);
        let counts = (0..n as u64).fold([0_i32; 7], |mut c, i| {
            c[random.below(i, 7)] += 1;
            c
        });
        assert!(counts.iter().all(|&c| (f64::from(c) - n as f64 / 7.0).abs() < 600.0), "{counts:?}");
    }

    #[test]
    fn streams_differ_by_seed_name_and_step() {
        let base = Random::new(1, "a", 0).block(0);
        for other in [Random::new(2, "a", 0), Random::new(1, "b", 0), Random::new(1, "a", 1)] {
            assert_ne!(base, other.block(0));
        }
    }

    #[test]
    fn permutations_are_permutations() {
        let mut order = Random::new(0, "p", 0).permutation(50);
        assert_ne!(order, (0..50).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
        assert_eq!(Random::new(0, "p", 0).permutation(0), Vec::<usize>::new());
    }
}
