//! Documents and turns of one packed sequence, side by side for what starts afresh at each.

use hankel_core::{Result, Tensor};
use hankel_ops::{Selection, concat_time, narrow_time, select_time};
use std::cmp::Reverse;
use std::sync::{Arc, Mutex, PoisonError};

/// Spans that are at most as long as this are taken together, whatever their lengths: kernels work on as many steps at once.
const SHORT: usize = 16;

/// Where documents, or turns, begin in one packed sequence: in order, the first at 0. Clones share what is computed of it.
#[derive(Clone)]
pub struct Spans {
    starts: Arc<[usize]>,
    arrangements: Arc<Mutex<Vec<Arc<Arrangement>>>>,
}

impl<const N: usize> From<[usize; N]> for Spans {
    fn from(starts: [usize; N]) -> Self {
        starts[..].into()
    }
}

impl From<Vec<usize>> for Spans {
    fn from(starts: Vec<usize>) -> Self {
        starts[..].into()
    }
}

impl From<&[usize]> for Spans {
    fn from(starts: &[usize]) -> Self {
        Spans { starts: starts.into(), arrangements: Arc::default() }
    }
}

impl Spans {
    /// First steps.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// `f` on the spans of `inputs` `[1, T, width]`, the results end to end; on `inputs` themselves where there is one.
    ///
    /// Spans of similar lengths are below each other, `[spans, longest, width]`, the shorter ones with their last step again behind their
    /// ends: `f` must be causal, so that this changes nothing. Spans of at most `border` steps are not with longer ones.
    ///
    /// # Errors
    /// Those of `f`.
    pub(crate) fn apart(
        &self,
        border: Option<usize>,
        inputs: &[&Tensor],
        f: impl Fn(&[&Tensor]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if self.starts.len() < 2 {
            return f(inputs);
        }
        let steps = inputs.first().map_or(0, |input| input.shape()[1]);
        let Arrangement { groups, selection, inverse, .. } = &*self.arrangement(steps, border)?;
        let selected: Vec<Tensor> = inputs.iter().map(|input| select_time(input, selection)).collect::<Result<_>>()?;
        let mut first = 0;
        let mut outputs = Vec::with_capacity(groups.len());
        for Group { spans, longest } in groups {
            let size = spans.len() * longest;
            let part = |x: &Tensor| {
                let part = if groups.len() == 1 { x.clone() } else { narrow_time(x, first, size)? };
                part.reshape([spans.len(), *longest, x.shape()[2]])
            };
            let parts: Vec<Tensor> = selected.iter().map(part).collect::<Result<_>>()?;
            let y = f(&parts.iter().collect::<Vec<_>>())?;
            let width = y.shape().last();
            outputs.push(y.reshape([1, size, width])?);
            first += size;
        }
        let all = match &outputs[..] {
            [one] => one.clone(),
            several => concat_time(&several.iter().collect::<Vec<_>>())?,
        };
        select_time(&all, inverse)
    }

    /// Computed once for each length and border.
    fn arrangement(&self, steps: usize, border: Option<usize>) -> Result<Arc<Arrangement>> {
        let mut known = self.arrangements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|known| known.steps == steps && known.border == border) {
            return Ok(Arc::clone(found));
        }
        let groups = groups(&self.starts, steps, border);
        let selection = Selection::new(groups.iter().flat_map(Group::steps).collect(), steps)?;
        let inverse = selection.inverse();
        let arrangement = Arc::new(Arrangement { steps, border, groups, selection, inverse });
        known.push(Arc::clone(&arrangement));
        Ok(arrangement)
    }
}

/// The spans of a sequence of `steps` in groups.
struct Arrangement {
    steps: usize,
    border: Option<usize>,
    groups: Vec<Group>,
    /// The steps of all groups, end to end.
    selection: Selection,
    inverse: Selection,
}

/// Spans below each other.
#[derive(Debug, PartialEq)]
struct Group {
    /// First step and number of steps of each.
    spans: Vec<(usize, usize)>,
    longest: usize,
}

impl Group {
    /// The steps of the sequence in the order of the group.
    fn steps(&self) -> impl Iterator<Item = u32> {
        self.spans.iter().flat_map(|&(first, count)| {
            let end = (first + count) as u32;
            (first as u32..end).chain(std::iter::repeat_n(end - 1, self.longest - count))
        })
    }
}

/// The spans of a sequence of `steps`, the longest first; none is with one of more than one and a half times its length, unless both are
/// short.
fn groups(starts: &[usize], steps: usize, border: Option<usize>) -> Vec<Group> {
    let ends = starts[1..].iter().copied().chain([steps]);
    let mut spans: Vec<(usize, usize)> = starts.iter().zip(ends).map(|(&first, end)| (first, end - first)).collect();
    spans.sort_by_key(|&(_, count)| Reverse(count));
    let mut groups: Vec<Group> = Vec::new();
    for span in spans {
        let beyond = |count| border.is_some_and(|border| count > border);
        let fits = |group: &&mut Group| {
            (2 * group.longest <= 3 * span.1 || group.longest <= SHORT) && beyond(group.longest) == beyond(span.1)
        };
        match groups.last_mut().filter(fits) {
            Some(group) => group.spans.push(span),
            None => groups.push(Group { spans: vec![span], longest: span.1 }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_lengths_go_together() {
        let starts = [0, 30, 70, 73, 75];
        let found = groups(&starts, 80, None);
        let long = Group { spans: vec![(30, 40), (0, 30)], longest: 40 };
        let short = Group { spans: vec![(75, 5), (70, 3), (73, 2)], longest: 5 };
        assert_eq!(found, [long, short]);
        let bordered: Vec<usize> = groups(&starts, 80, Some(30)).iter().map(|group| group.spans.len()).collect();
        assert_eq!(bordered, [1, 1, 3]);
        let steps: Vec<u32> = found[1].steps().collect();
        assert_eq!(steps, [75, 76, 77, 78, 79, 70, 71, 72, 72, 72, 73, 74, 74, 74, 74]);
    }

    #[test]
    fn what_is_causal_does_not_see_the_padding() {
        // Sums of all steps so far, of lengths that fall into two groups.
        let starts = [0, 2, 22, 25, 45];
        let x: Vec<f64> = (0..63).map(|i| f64::from(i % 7) - 2.5).collect();
        let sums = |x: &[&Tensor]| {
            let [batch, steps, width] = [x[0].shape()[0], x[0].shape()[1], x[0].shape()[2]];
            let mut data = x[0].to_f64_vec();
            for i in width..batch * steps * width {
                if i / width % steps > 0 {
                    data[i] += data[i - width];
                }
            }
            Tensor::from_vec(data, [batch, steps, width])
        };
        let packed = Tensor::from_vec(x.clone(), [1, 63, 1]).unwrap();
        let found = Spans::from(starts).apart(None, &[&packed], sums).unwrap();
        let mut expected = x;
        for i in 1..63 {
            if !starts.contains(&i) {
                expected[i] += expected[i - 1];
            }
        }
        assert_eq!(found.to_f64_vec(), expected);
    }
}
