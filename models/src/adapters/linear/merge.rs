//! Adapters folded into the weights they change.
//!
//! Each kind says how its weight changes ([`WeightChange`]): a sum of low rank, norms of the rows, factors of rows and columns.
//!
//! Sums are formed in doubles, a row at a time, and rounded once to the type of the result.

// Weights may come to be packed in more ways than there are now.
#![allow(clippy::match_wildcard_for_single_variants)]

use crate::adapters::AdapterSet;
use crate::adapters::kind::Sites;
use crate::parameter::Parameter;
use half::{bf16, f16};
use hankel_core::{CpuStorage, DType, Element, Error, Float, Result, Tensor, parallel, to_odd};
use hankel_ops::linear::nf4;

/// What merging did to one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// Name of the tensor.
    pub name: String,
    /// Largest change of an element, before rounding.
    pub update: f64,
    /// Largest difference between an element as stored and its exact value.
    pub drift: f64,
}

impl Merged {
    /// The drift as a share of the update: 1 when rounding has lost it; 0 where nothing was to change.
    pub fn relative_drift(&self) -> f64 {
        if self.update > 0.0 { self.drift / self.update } else { 0.0 }
    }
}

/// What merging did to a backbone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MergeReport {
    /// The tensors that changed.
    pub tensors: Vec<Merged>,
}

impl MergeReport {
    /// The tensor with the largest drift relative to its update.
    pub fn largest_drift(&self) -> Option<&Merged> {
        self.tensors.iter().max_by(|x, y| x.relative_drift().total_cmp(&y.relative_drift()))
    }
}

impl AdapterSet {
    /// Folds the adapters into the backbone's `parameters`, which keep their types. Afterwards the backbone alone computes
    /// what it computed with the adapters, but for rounding.
    ///
    /// # Errors
    /// When the adapter cannot be merged ([`AdapterSet::check_mergeable`]), a weight it changes is not among `parameters`,
    /// shapes differ, a weight is not f64, f32, bf16 or f16 in main memory, or a result is not finite; nothing has changed
    /// then.
    pub fn merge(&self, parameters: &[Parameter]) -> Result<MergeReport> {
        self.check_mergeable()?;
        let mut missing = self.merged_names();
        let mut merged = Vec::new();
        for parameter in parameters {
            let value = parameter.tensor();
            if let Some((tensor, report)) = self.merge_tensor(parameter.name(), &value, value.dtype())? {
                missing.retain(|name| name != parameter.name());
                merged.push((parameter, tensor, report));
            }
        }
        if let Some(name) = missing.first() {
            return Err(Error::invalid("merge", format!("the backbone has no {name}, which the adapter changes")));
        }
        let mut report = MergeReport::default();
        for (parameter, tensor, of_this) in merged {
            parameter.set(&tensor)?;
            report.tensors.push(of_this);
        }
        Ok(report)
    }

    /// The merged form of the backbone's tensor `name`, rounded to `stored`; `None` if the adapters leave it as it is. For
    /// merging a backbone from file to file, a tensor at a time.
    ///
    /// # Errors
    /// As [`AdapterSet::merge`].
    pub fn merge_tensor(&self, name: &str, tensor: &Tensor, stored: DType) -> Result<Option<(Tensor, Merged)>> {
        self.check_mergeable()?;
        let Some((path, is_bias)) = name
            .strip_suffix(".weight")
            .map(|path| (path, false))
            .or_else(|| name.strip_suffix(".bias").map(|path| (path, true)))
        else {
            return Ok(None);
        };
        let Some((_, adapter)) = self.linears().find(|(adapted, _)| *adapted == path) else { return Ok(None) };
        let change = adapter.weight_change()?;
        let change = match (is_bias, change.rows) {
            (false, rows) => WeightChange { rows, ..change },
            (true, Some(rows)) => WeightChange { rows: Some(rows), ..WeightChange::default() },
            (true, None) => return Ok(None),
        };
        let rest = change.taken.as_ref().map(|taken| taken.taken_from(tensor)).transpose()?;
        let rest = rest.as_ref().unwrap_or(tensor);
        let quantized = change.of_nf4.then(|| nf4::round_trip(rest, true)).transpose()?;
        let (merged, update, drift) = change.apply(name, quantized.as_ref().unwrap_or(tensor), stored)?;
        Ok(Some((merged, Merged { name: name.to_owned(), update, drift })))
    }

    /// Names of the weights that merging changes.
    pub fn merged_names(&self) -> Vec<String> {
        self.linears().map(|(path, _)| format!("{path}.weight")).collect()
    }

    /// Whether the adapters can be folded into weights.
    ///
    /// # Errors
    /// Says why not: a recurrent adapter has a state, which no weight can hold.
    pub fn check_mergeable(&self) -> Result<()> {
        let Some(config) = self.config().filter(|config| config.kind().sites() == Sites::Stream) else { return Ok(()) };
        let problem = format!(
            "an adapter of kind {:?} cannot be merged: its output depends on all tokens before through its state, and a weight \
             acts on one token at a time; keep the adapter beside the model",
            config.kind().name()
        );
        Err(Error::invalid("merge", problem))
    }
}

/// How a weight changes: first the sum, then norms, then factors.
#[derive(Default)]
pub struct WeightChange {
    /// What is added.
    pub update: Option<Update>,
    /// The norm that each row gets.
    pub norms: Option<Vec<f64>>,
    /// A factor for each row, and for its bias.
    pub rows: Option<Vec<f64>>,
    /// A factor for each column.
    pub columns: Option<Vec<f64>>,
    /// Whether it is a change of the weight after quantising to 4-bit normal floats (LoftQ).
    pub of_nf4: bool,
    /// What was taken from the weight before it was quantised (LoftQ of several rounds).
    pub taken: Option<Update>,
}

/// `scale B A`, see [`WeightChange::low_rank`].
pub struct Update {
    scale: f64,
    a: Vec<f64>,
    b: Vec<f64>,
    rank: usize,
    inputs: usize,
    outputs: usize,
}

impl Update {
    pub(crate) fn low_rank(scale: f64, a: &Tensor, b: &Tensor) -> Self {
        let [rank, inputs, outputs] = [a.shape()[0], a.shape()[1], b.shape()[0]];
        Update { scale, a: a.to_f64_vec(), b: b.to_f64_vec(), rank, inputs, outputs }
    }

    /// `W - scale B A`, summed in doubles and rounded to f32.
    ///
    /// # Errors
    /// When `weight` has another shape.
    pub(crate) fn taken_from(&self, weight: &Tensor) -> Result<Tensor> {
        if weight.shape()[..] != [self.outputs, self.inputs] {
            return Err(Error::shape(
                "merge",
                format!("a weight of shape {}, the adapter is for another", weight.shape()),
            ));
        }
        let mut rest = weight.to_f64_vec();
        for (i, row) in rest.chunks_mut(self.inputs.max(1)).enumerate() {
            self.add(i, -self.scale, row);
        }
        Tensor::from_vec(rest.into_iter().map(|x| x as f32).collect(), weight.shape())
    }

    /// Adds row `i` of `scale B A`.
    fn add(&self, i: usize, scale: f64, row: &mut [f64]) {
        for (k, &b) in self.b[i * self.rank..(i + 1) * self.rank].iter().enumerate() {
            row.iter_mut().zip(&self.a[k * self.inputs..]).for_each(|(w, &a)| *w += scale * b * a);
        }
    }
}

impl WeightChange {
    /// `W + scale B A` of `A` `[rank, in]` and `B` `[out, rank]`.
    pub fn low_rank(scale: f64, a: &Tensor, b: &Tensor) -> Self {
        WeightChange { update: Some(Update::low_rank(scale, a, b)), ..WeightChange::default() }
    }

    /// The changed matrix, the largest change and the largest rounding error.
    fn apply(&self, name: &str, tensor: &Tensor, stored: DType) -> Result<(Tensor, f64, f64)> {
        let (rows, width) = match tensor.shape()[..] {
            [rows, width] => (rows, width),
            [rows] => (rows, 1),
            _ => return Err(Error::shape("merge", format!("{name} has shape {}", tensor.shape()))),
        };
        let mut expected = [None, None];
        if let Some(update) = &self.update {
            expected = [Some(update.outputs), Some(update.inputs)];
        }
        expected[0] = expected[0].or(self.rows.as_ref().map(Vec::len));
        expected[1] = expected[1].or(self.columns.as_ref().map(Vec::len));
        if expected.iter().zip([rows, width]).any(|(expected, found)| expected.is_some_and(|e| e != found)) {
            return Err(Error::shape(
                "merge",
                format!("{name} has shape {}, the adapter is for another", tensor.shape()),
            ));
        }
        match stored {
            DType::F64 => self.round::<f64>(name, tensor, width, |x| x, Float::f64),
            DType::F32 => self.round::<f32>(name, tensor, width, |x| x as f32, Float::f64),
            // Not to the nearest f32 on the way, which would be rounded a second time.
            DType::BF16 => self.round::<bf16>(name, tensor, width, |x| bf16::from_f32(to_odd(x)), bf16::to_f64),
            DType::F16 => self.round::<f16>(name, tensor, width, |x| f16::from_f32(to_odd(x)), f16::to_f64),
            found => Err(Error::DType { operator: "merge", expected: "f64, f32, bf16 or f16", found }),
        }
    }

    fn round<T: Element>(
        &self,
        name: &str,
        tensor: &Tensor,
        width: usize,
        round: impl Fn(f64) -> T + Sync,
        widen: impl Fn(T) -> f64 + Sync,
    ) -> Result<(Tensor, f64, f64)> {
        let storage = tensor.cpu_storage("merge")?;
        let at: Box<dyn Fn(usize) -> f64 + Sync + '_> = match storage {
            CpuStorage::F64(data) => Box::new(|i| data[i]),
            CpuStorage::F32(data) => Box::new(|i| f64::from(data[i])),
            CpuStorage::F16(data) => Box::new(|i| data[i].to_f64()),
            CpuStorage::BF16(data) => Box::new(|i| data[i].to_f64()),
            _ => {
                let problem =
                    format!("{name} is stored as {}: merge into the weights it was made from", tensor.dtype());
                return Err(Error::invalid("merge", problem));
            }
        };
        let mut out = vec![round(0.0); tensor.elements()];
        // Largest change and drift of each row.
        let mut largest = vec![[0.0_f64; 2]; tensor.elements().checked_div(width).unwrap_or(0)];
        let mut pieces: Vec<(&mut [T], &mut [f64; 2])> = out.chunks_mut(width.max(1)).zip(&mut largest).collect();
        parallel::for_row_blocks(&mut pieces, 1, 16, |first, pieces| {
            for (i, (row, largest)) in (first..).zip(pieces) {
                let old: Vec<f64> = (0..width).map(|j| at(i * width + j)).collect();
                let new = self.row(i, &old);
                for ((stored, &new), &old) in row.iter_mut().zip(&new).zip(&old) {
                    *stored = round(new);
                    largest[0] = largest[0].max((new - old).abs());
                    largest[1] = largest[1].max((widen(*stored) - new).abs());
                }
            }
        });
        let most = |k: usize| largest.iter().map(|l| l[k]).fold(0.0, f64::max);
        if !(most(0).is_finite() && most(1).is_finite()) {
            return Err(Error::invalid("merge", format!("{name} would hold values that are not finite")));
        }
        Ok((Tensor::from_vec(out, tensor.shape())?, most(0), most(1)))
    }

    /// Row `i` of the merged matrix.
    fn row(&self, i: usize, old: &[f64]) -> Vec<f64> {
        let mut row = old.to_vec();
        if let Some(update) = &self.update {
            update.add(i, update.scale, &mut row);
        }
        if let Some(norms) = &self.norms {
            let norm = row.iter().map(|w| w * w).sum::<f64>().sqrt();
            let factor = if norm > 0.0 { norms[i] / norm } else { 0.0 };
            row.iter_mut().for_each(|w| *w *= factor);
        }
        if let Some(factors) = &self.rows {
            row.iter_mut().for_each(|w| *w *= factors[i]);
        }
        if let Some(factors) = &self.columns {
            row.iter_mut().zip(factors).for_each(|(w, f)| *w *= f);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest f32 of these sums is in the middle between two neighbours in 16 bits, and the sum itself is not.
    #[test]
    fn sums_are_rounded_once() {
        let tensor = |x: f64| Tensor::from_vec(vec![x], [1, 1]).unwrap();
        for (dtype, digits) in [(DType::BF16, 7), (DType::F16, 10)] {
            let spacing = 0.5_f64.powi(digits);
            let change = WeightChange::low_rank(1.0, &tensor(spacing / 2.0 + 0.5_f64.powi(40)), &tensor(1.0));
            let weight = tensor(1.0).to_dtype(dtype).unwrap();
            let (merged, update, drift) = change.apply("weight", &weight, dtype).unwrap();
            assert_eq!((merged.dtype(), merged.to_f64_vec()), (dtype, vec![1.0 + spacing]));
            assert!(drift < update, "{drift} {update}");
        }
    }
}
