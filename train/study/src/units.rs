//! What repeats what: seeds within tables, runs within seeds.

/// A unit of replication: what was measured of it, or the units within it.
#[derive(Debug, Clone, PartialEq)]
pub enum Unit {
    /// Figures of one unit, such as of several lengths on one table. They do not repeat each other.
    Figures(Vec<f64>),
    /// Units that repeat each other.
    Within(Vec<Unit>),
}

impl Unit {
    /// Figures with the names of the units that they belong to, the outermost first, all as many.
    pub(crate) fn nested(named: &[(Vec<String>, f64)]) -> Self {
        fn below(level: usize, named: &[(&[String], f64)]) -> Unit {
            if named.iter().all(|(names, _)| names.len() == level) {
                return Unit::Figures(named.iter().map(|(_, figure)| *figure).collect());
            }
            let mut parts: Vec<(&str, Vec<(&[String], f64)>)> = Vec::new();
            for &(names, figure) in named {
                match parts.iter_mut().find(|(name, _)| *name == names[level]) {
                    Some((_, part)) => part.push((names, figure)),
                    None => parts.push((&names[level], vec![(names, figure)])),
                }
            }
            Unit::Within(parts.iter().map(|(_, part)| below(level + 1, part)).collect())
        }
        below(0, &named.iter().map(|(names, figure)| (names.as_slice(), *figure)).collect::<Vec<_>>())
    }

    /// Its mean: of its units, each counting once, whatever they hold.
    pub(crate) fn mean(&self) -> f64 {
        match self {
            Unit::Figures(figures) => figures.iter().sum::<f64>() / figures.len() as f64,
            Unit::Within(units) => units.iter().map(Unit::mean).sum::<f64>() / units.len() as f64,
        }
    }

    /// The means of the units within it, which Student's t takes as its sample. Figures of one unit are not independent: they are one.
    pub(crate) fn means(&self) -> Vec<f64> {
        match self {
            Unit::Figures(_) => vec![self.mean()],
            Unit::Within(units) => units.iter().map(Unit::mean).collect(),
        }
    }

    /// Its mean when at every level as many units as there are are drawn with replacement. `below(n)` draws one of n.
    pub(crate) fn resampled_mean(&self, below: &mut impl FnMut(usize) -> usize) -> f64 {
        match self {
            Unit::Figures(_) => self.mean(),
            Unit::Within(units) => {
                let n = units.len();
                (0..n).map(|_| units[below(n)].resampled_mean(below)).sum::<f64>() / n as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_nested_by_name() {
        let named = |table: &str, seed: &str, figure: f64| (vec![table.to_owned(), seed.to_owned()], figure);
        let all = [named("a", "0", 1.0), named("a", "1", 3.0), named("b", "0", 10.0), named("a", "1", 5.0)];
        let units = Unit::nested(&all);
        let figures = |figures: &[f64]| Unit::Figures(figures.to_vec());
        let expected = Unit::Within(vec![
            Unit::Within(vec![figures(&[1.0]), figures(&[3.0, 5.0])]),
            Unit::Within(vec![figures(&[10.0])]),
        ]);
        assert_eq!(units, expected);
        // (1 + (3 + 5) / 2) / 2 = 2.5 and 10.
        assert_eq!(units.means(), [2.5, 10.0]);
        assert!((units.mean() - 6.25).abs() < 1e-12);
        // Always the first: table a, seed 0.
        assert_eq!(units.resampled_mean(&mut |_| 0), 1.0);
        assert_eq!(units.resampled_mean(&mut |n| n - 1), 10.0);
    }
}
