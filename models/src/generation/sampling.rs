//! Which token comes next, given the logits.

/// How tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always takes the most probable token.
    pub temperature: f64,
    /// Tokens are drawn from the fewest whose probabilities sum to this (Holtzman et al., 2020).
    pub top_p: f64,
    /// Positive logits of tokens that are there already are divided by this, negative ones multiplied (Keskar et al.,
    /// 2019); 1 changes nothing.
    pub repetition_penalty: f64,
    /// Of the drawing.
    pub seed: u64,
}

impl Default for Sampling {
    /// The most probable token.
    fn default() -> Self {
        Sampling { temperature: 0.0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Says what is out of range.
    ///
    /// # Errors
    /// Names the setting.
    pub fn check(&self) -> Result<(), String> {
        let Sampling { temperature, top_p, repetition_penalty, .. } = *self;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(format!("temperature must be finite and at least 0, found {temperature}"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(format!("top_p must be above 0 and at most 1, found {top_p}"));
        }
        if !(repetition_penalty > 0.0 && repetition_penalty.is_finite()) {
            return Err(format!("repetition_penalty must be above 0, found {repetition_penalty}"));
        }
        Ok(())
    }

    /// The token at quantile `uniform` of the distribution, after `seen`.
    pub(super) fn choose(&self, logits: &[f32], seen: &[u32], uniform: f64) -> u32 {
        let mut logits: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
        if self.repetition_penalty != 1.0 {
            let mut seen = seen.to_vec();
            seen.sort_unstable();
            seen.dedup();
            for id in seen {
                let logit = &mut logits[id as usize];
                *logit = if *logit > 0.0 { *logit / self.repetition_penalty } else { *logit * self.repetition_penalty };
            }
        }
        // The first of equals.
        let best = (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
        if self.temperature == 0.0 {
            return best as u32;
        }
        let weights: Vec<f64> = logits.iter().map(|x| ((x - logits[best]) / self.temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut order = Descending::new(&logits);
        // The nucleus: how many tokens, and their weight.
        let (mut count, mut nucleus) = (0, 0.0);
        if self.top_p >= 1.0 {
            (count, nucleus) = (logits.len(), total);
        }
        while count < logits.len() && nucleus / total < self.top_p {
            nucleus += weights[order.get(count)];
            count += 1;
        }
        let mut left = uniform * nucleus;
        for place in 0..count {
            let token = order.get(place);
            left -= weights[token];
            if left < 0.0 {
                return token as u32;
            }
        }
        count.checked_sub(1).map_or(best, |last| order.get(last)) as u32
    }
}

/// Tokens by their logits, the largest first and of equals the first; as many are sorted as are asked for, since most of a vocabulary never is.
struct Descending<'a> {
    logits: &'a [f64],
    tokens: Vec<usize>,
    sorted: usize,
}

impl<'a> Descending<'a> {
    fn new(logits: &'a [f64]) -> Self {
        Descending { logits, tokens: (0..logits.len()).collect(), sorted: 0 }
    }

    fn get(&mut self, place: usize) -> usize {
        while place >= self.sorted {
            let by_logit = |a: &usize, b: &usize| self.logits[*b].total_cmp(&self.logits[*a]).then(a.cmp(b));
            let rest = &mut self.tokens[self.sorted..];
            let next = (7 * self.sorted).max(64).min(rest.len());
            if next < rest.len() {
                rest.select_nth_unstable_by(next, by_logit);
            }
            rest[..next].sort_unstable_by(by_logit);
            self.sorted += next;
        }
        self.tokens[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The draw with all tokens sorted.
    fn drawn(sampling: &Sampling, logits: &[f32], uniform: f64) -> u32 {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let weight = |token: usize| (f64::from(logits[token] - logits[order[0]]) / sampling.temperature).exp();
        let total: f64 = order.iter().map(|&token| weight(token)).sum();
        let mut mass = 0.0;
        let nucleus: Vec<usize> = order
            .iter()
            .copied()
            .take_while(|&token| {
                let before = mass;
                mass += weight(token) / total;
                before < sampling.top_p
            })
            .collect();
        let mut left = uniform * nucleus.iter().map(|&token| weight(token)).sum::<f64>();
        let chosen = nucleus.iter().find(|&&token| {
            left -= weight(token);
            left < 0.0
        });
        chosen.or(nucleus.last()).copied().unwrap() as u32
    }

    #[test]
    fn as_many_tokens_are_sorted_as_are_needed_and_the_draw_is_the_same() {
        let random = hankel_core::Random::new(4, "logits", 0);
        for (case, (temperature, top_p)) in [(1.0, 1.0), (0.7, 0.9), (3.0, 0.5), (50.0, 0.999)].into_iter().enumerate()
        {
            let sampling = Sampling { temperature, top_p, ..Sampling::default() };
            for (size, std) in [(1, 1.0), (70, 2.0), (5000, 3.0)] {
                // Some are equal.
                let logit = |i| (4.0 * std * random.normal(1_000_000 * case as u64 + i)).round() as f32 / 4.0;
                let logits: Vec<f32> = (0..size).map(logit).collect();
                for uniform in [0.0, 0.013, 0.37, 0.71, 0.995, 0.999_999] {
                    let found = sampling.choose(&logits, &[], uniform);
                    assert_eq!(found, drawn(&sampling, &logits, uniform), "{temperature} {top_p} {size} {uniform}");
                }
            }
        }
    }

    #[test]
    fn nucleus_and_temperature() {
        let logits = [0.0, 2.0, 1.0, f32::NEG_INFINITY];
        let choose = |temperature, top_p, uniform| {
            let sampling = Sampling { temperature, top_p, ..Sampling::default() };
            sampling.choose(&logits, &[1], uniform)
        };
        assert_eq!(choose(0.0, 1.0, 0.99), 1);
        let total: f64 = [1.0_f64, 2.0, 0.0].iter().map(|x| x.exp()).sum();
        let p1 = 2.0_f64.exp() / total;
        assert_eq!(choose(1.0, 1.0, p1 - 1e-9), 1);
        assert_eq!(choose(1.0, 1.0, p1 + 1e-9), 2);
        assert_eq!(choose(1.0, 1.0, 1.0 - 1e-12), 0);
        assert_eq!(choose(1.0, p1 - 1e-9, 1.0 - 1e-12), 1, "the nucleus is the first token alone");
        assert_eq!(choose(1.0, p1 + 1e-9, 1.0 - 1e-12), 2);
        assert_eq!(choose(1e-3, 1.0, 0.999), 1);
    }

    #[test]
    fn repetition_is_penalised_once_for_each_token() {
        let sampling = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        assert_eq!(sampling.choose(&[0.0, 3.0, 2.0], &[1, 1], 0.0), 2);
        assert_eq!(sampling.choose(&[0.0, 5.0, 2.0], &[1, 1, 1], 0.0), 1);
        assert_eq!(sampling.choose(&[-3.0, -2.0, -3.5], &[1], 0.0), 0);
    }
}
