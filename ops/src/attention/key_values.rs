//! Keys and values of the tokens that a stream has seen.
//!
//! On the CPU they lie in blocks of [`BLOCK`] tokens that are filled in place: a step writes one row and copies nothing, and a clone
//! shares all blocks but copies the last one when it goes its own way. A few queries read the blocks where they are
//! ([`super::cpu::decode`]); many, and gradients, see them as one tensor. On a GPU that tensor is kept.

use super::{Heads, ScoreSettings, attention, cpu, sizes};
use crate::dispatch::for_float;
use crate::sequence::{concat_time, narrow_time};
use cpu::decode::KeyBlock;
use hankel_core::{Buffer, Device, Element, Error, Result, Tensor, trace};

/// Tokens of a block.
pub(super) const BLOCK: usize = 128;
/// Most queries that read keys and values in their blocks. For more, copying them in the order of the tiles pays.
const FEW: usize = 8;
const NAME: &str = "attention";

/// Keys and values of a stream, `[batch, steps, width]`. A clone goes its own way.
#[derive(Clone, Default)]
pub struct KeyValues {
    /// Pairs `[batch, BLOCK, width]` on the CPU; one pair `[batch, steps, width]` on a GPU.
    blocks: Vec<[Tensor; 2]>,
    /// Tokens kept.
    steps: usize,
    /// Tokens at the beginning of the first block that are out of the window.
    passed: usize,
}

impl KeyValues {
    /// Tokens that are kept.
    pub fn steps(&self) -> usize {
        self.steps - self.passed
    }

    /// Causal attention of `q` to the tokens seen and to `k` and `v`, which are kept then, without their gradients.
    ///
    /// # Errors
    /// As [`attention`], and when the tokens seen are of other sizes.
    pub fn attention(
        &mut self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        heads: Heads,
        settings: impl Into<ScoreSettings>,
    ) -> Result<Tensor> {
        let settings = settings.into();
        // The new tokens by themselves: sizes and types fit.
        sizes(q, k, v, heads, settings)?;
        // True also in the first run of a checkpoint, where no gradient is needed yet: the output has to stay in the graph.
        let tracked = [q, k, v].into_iter().any(Tensor::is_tracked);
        let here = q.device() == Device::Cpu;
        let out = if here && q.shape()[1] == k.shape()[1] && !tracked && k.shape()[1] <= FEW {
            self.append(k, v)?;
            self.decode(q, heads, settings)?
        } else {
            let [all_k, all_v] = match self.whole()? {
                Some([keys, values]) => [concat_time(&[&keys, k])?, concat_time(&[&values, v])?],
                None => [k.clone(), v.clone()],
            };
            let out = attention(q, &all_k, &all_v, heads, settings)?;
            if here {
                self.append(&k.detach(), &v.detach())?;
            } else {
                self.steps = all_k.shape()[1];
                self.passed = 0;
                self.blocks = vec![[all_k.detach(), all_v.detach()]];
            }
            out
        };
        self.forget(settings.window)?;
        Ok(out)
    }

    /// All that is kept, as one tensor each.
    fn whole(&self) -> Result<Option<[Tensor; 2]>> {
        if self.steps() == 0 {
            return Ok(None);
        }
        let part = |which: usize| {
            let parts: Vec<&Tensor> = self.blocks.iter().map(|block| &block[which]).collect();
            let all = if let [one] = parts[..] { one.clone() } else { concat_time(&parts)? };
            if all.shape()[1] == self.steps() { Ok(all) } else { narrow_time(&all, self.passed, self.steps()) }
        };
        Ok(Some([part(0)?, part(1)?]))
    }

    /// Writes new tokens behind those seen.
    fn append(&mut self, k: &Tensor, v: &Tensor) -> Result<()> {
        let &[batch, new, width] = &k.shape()[..] else { return Err(Error::shape(NAME, "keys are [batch, T, width]")) };
        if let Some([keys, _]) = self.blocks.first()
            && (keys.shape()[0], keys.shape()[2], keys.dtype()) != (batch, width, k.dtype())
        {
            let problem = format!("keys {} in {} after a stream of {}", k.shape(), k.dtype(), keys.shape());
            return Err(Error::shape(NAME, problem));
        }
        for_float!(k, NAME, T => {
            let mut done = 0;
            while done < new {
                let at = self.steps % BLOCK;
                if at == 0 {
                    self.blocks.push([empty::<T>([batch, BLOCK, width])?, empty::<T>([batch, BLOCK, width])?]);
                }
                let count = (BLOCK - at).min(new - done);
                let block = self.blocks.last_mut().expect("a block was pushed when there was none");
                for (block, from) in block.iter_mut().zip([k, v]) {
                    let (block, from) = (block.data_mut::<T>()?, from.data::<T>()?);
                    for b in 0..batch {
                        let rows = &from[(b * new + done) * width..][..count * width];
                        block[(b * BLOCK + at) * width..][..count * width].copy_from_slice(rows);
                    }
                }
                (self.steps, done) = (self.steps + count, done + count);
            }
            Ok(())
        })
    }

    /// Attention of a few queries, the last of the tokens kept.
    fn decode(&self, q: &Tensor, heads: Heads, settings: ScoreSettings) -> Result<Tensor> {
        let _event = trace::kernel(module_path!(), "decode");
        for_float!(q, NAME, T => {
            let blocks = self.blocks.iter().enumerate().map(|(i, [keys, values])| {
                let first = if i == 0 { self.passed } else { 0 };
                let end = BLOCK.min(self.steps - i * BLOCK);
                Ok(KeyBlock { keys: keys.data::<T>()?, values: values.data::<T>()?, tokens: first..end })
            });
            let blocks: Vec<KeyBlock<T>> = blocks.collect::<Result<_>>()?;
            let (batch, queries) = (q.shape()[0], q.shape()[1]);
            let mut out = Buffer::<T>::unspecified(q.elements());
            let window = settings.window.filter(|&window| window < self.steps());
            let settings = ScoreSettings { window, ..settings };
            cpu::decode::decode([batch, queries], heads, settings, q.data::<T>()?, &blocks, &mut out);
            Tensor::from_buffer(out, q.shape())
        })
    }

    /// Drops the tokens that the next token does not see. Keeps `window - 1`, as the window includes the next token itself.
    fn forget(&mut self, window: Option<usize>) -> Result<()> {
        let Some(window) = window.filter(|&window| self.steps() > window - 1) else { return Ok(()) };
        let on_cpu = self.blocks.first().is_none_or(|[keys, _]| keys.device() == Device::Cpu);
        if on_cpu {
            self.passed = self.steps - (window - 1);
            let blocks = self.passed / BLOCK;
            self.blocks.drain(..blocks.min(self.blocks.len()));
            (self.steps, self.passed) = (self.steps - blocks * BLOCK, self.passed - blocks * BLOCK);
        } else if let Some(block) = self.blocks.first_mut() {
            for tensor in block {
                *tensor = narrow_time(tensor, self.steps - (window - 1), window - 1)?;
            }
            self.steps = window - 1;
        }
        Ok(())
    }
}

fn empty<T: Element>(shape: [usize; 3]) -> Result<Tensor> {
    Tensor::from_buffer(Buffer::<T>::zeros(shape.iter().product()), shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::{DType, Random};
    use proptest::prelude::*;

    fn normal(shape: [usize; 3], name: &str) -> Tensor {
        let values = Random::new(1, name, 0).normal_vec::<f64>(shape.iter().product(), 1.0);
        Tensor::from_vec(values, shape).unwrap()
    }

    /// A sequence read in pieces, against the same read at once.
    fn agrees(
        batch: usize,
        pieces: &[usize],
        heads: Heads,
        dim: usize,
        settings: impl Into<ScoreSettings>,
    ) -> Result<(), TestCaseError> {
        let settings @ ScoreSettings { window, .. } = settings.into();
        let total: usize = pieces.iter().sum();
        let q = normal([batch, total, heads.query * dim], "q");
        let [k, v] = ["k", "v"].map(|name| normal([batch, total, heads.key_value * dim], name));
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
            let [q, k, v] = [&q, &k, &v].map(|x| x.to_dtype(dtype).unwrap());
            let expected = attention(&q, &k, &v, heads, settings).unwrap();
            let (mut seen, mut first, mut found) = (KeyValues::default(), 0, Vec::new());
            for &steps in pieces {
                let [q, k, v] = [&q, &k, &v].map(|x| narrow_time(x, first, steps).unwrap());
                // A clone that goes its own way leaves no trace.
                let mut other = seen.clone();
                other.attention(&q, &v, &k, heads, settings).unwrap();
                found.push(seen.attention(&q, &k, &v, heads, settings).unwrap());
                first += steps;
                prop_assert_eq!(seen.steps(), window.map_or(first, |window| first.min(window - 1)));
            }
            let found = concat_time(&found.iter().collect::<Vec<_>>()).unwrap();
            for (found, expected) in found.to_f64_vec().iter().zip(expected.to_f64_vec()) {
                prop_assert!((found - expected).abs() < tolerance, "{found} for {expected} in {dtype}");
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn pieces_give_what_the_whole_gives(
            batch in 1_usize..3, group in 1_usize..4, kv_heads in 1_usize..3, dim in 1_usize..40,
            pieces in prop::collection::vec(prop_oneof![1_usize..9, 20_usize..150], 1..7),
            window in prop::option::of(1_usize..200), cap in prop::option::of(0.2_f64..5.0),
        ) {
            agrees(batch, &pieces, Heads { query: group * kv_heads, key_value: kv_heads }, dim, ScoreSettings { window, cap })?;
        }
    }

    #[test]
    fn steps_of_one_token_over_several_blocks() {
        let mut pieces = vec![250];
        pieces.extend([1; 20]);
        let heads = Heads { query: 6, key_value: 2 };
        agrees(1, &pieces, heads, 64, None).unwrap();
        agrees(2, &pieces, heads, 32, Some(131)).unwrap();
        agrees(1, &pieces, heads, 16, Some(1)).unwrap();
        // The last token of the piece of 8 sees nothing of the first block, which its first one sees.
        agrees(1, &[108, 102, 99, 8], heads, 8, Some(183)).unwrap();
    }

    #[test]
    fn large_scores_and_gradients() {
        let heads = Heads { query: 2, key_value: 1 };
        let [k, v] = ["k", "v"].map(|name| normal([1, 3, 8], name).to_dtype(DType::F32).unwrap());
        let q = normal([1, 3, 16], "q").to_dtype(DType::F32).unwrap();
        let large = crate::scale(&q, 1e4).unwrap();
        let expected = attention(&large, &k, &v, heads, None).unwrap().to_f64_vec();
        let found = KeyValues::default().attention(&large, &k, &v, heads, None).unwrap().to_f64_vec();
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?}");
        let tracked = k.parameter().unwrap();
        let y = KeyValues::default().attention(&q, &tracked, &v, heads, None).unwrap();
        let gradient = |y: Tensor| y.backward_with(q.clone()).unwrap().take(&tracked).unwrap().to_f64_vec();
        assert_eq!(gradient(y), gradient(attention(&q, &tracked, &v, heads, None).unwrap()));
    }

    #[test]
    fn streams_of_other_sizes_are_refused() {
        let heads = Heads { query: 1, key_value: 1 };
        let mut seen = KeyValues::default();
        let x = normal([1, 2, 8], "x");
        seen.attention(&x, &x, &x, heads, None).unwrap();
        let other = normal([1, 1, 4], "x");
        assert!(seen.attention(&other, &other, &other, heads, None).is_err());
        assert_eq!(seen.steps(), 2);
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let heads = Heads { query: 4, key_value: 2 };
        let [k, v] = ["k", "v"].map(|name| normal([1, 700, 64], name).to_dtype(DType::F32).unwrap());
        let q = normal([1, 700, 128], "q").to_dtype(DType::F32).unwrap();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut seen = KeyValues::default();
                let step = |x: &Tensor| narrow_time(x, 699, 1).unwrap();
                seen.attention(&q, &k, &v, heads, None).unwrap();
                seen.attention(&step(&q), &step(&k), &step(&v), heads, None).unwrap().to_f64_vec()
            })
        };
        assert!(run(1) == run(2) && run(1) == run(5));
    }
}
