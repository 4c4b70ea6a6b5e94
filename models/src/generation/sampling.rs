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
        let weight = |token: usize| ((logits[token] - logits[best]) / self.temperature).exp();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let total: f64 = order.iter().map(|&token| weight(token)).sum();
        let mut mass = 0.0;
        let nucleus = order.iter().take_while(|token| {
            let before = mass;
            mass += weight(**token) / total;
            before < self.top_p
        });
        let nucleus: Vec<usize> = nucleus.copied().collect();
        let mut left = uniform * nucleus.iter().map(|&token| weight(token)).sum::<f64>();
        for &token in &nucleus {
            left -= weight(token);
            if left < 0.0 {
                return token as u32;
            }
        }
        nucleus.last().copied().unwrap_or(best) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
