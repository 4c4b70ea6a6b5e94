//! Every operator with the cases that the suites run on it: the gradient check in f64, the comparison with a naive oracle,
//! and the comparison between devices. An operator without a line here does not exist for the tests: the suite counts the
//! folders and fails.

use hankel_core::{Random, Result, Tensor};

/// An operator with its settings filled in.
pub type Run = dyn Fn(&[Tensor]) -> Result<Tensor>;

/// The elements that it should give.
pub type Oracle = dyn Fn(&[Array]) -> Vec<f64>;

/// One call of an operator.
pub struct Case {
    /// What is particular about it.
    pub name: String,
    /// Its tensors.
    pub inputs: Vec<Input>,
    /// The operator, in the element type of its inputs.
    pub run: Box<Run>,
    /// The same by the most naive loops, in doubles: the expected elements.
    pub oracle: Box<Oracle>,
}

/// A tensor to be drawn at random.
#[derive(Clone)]
pub struct Input {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// How its elements are drawn.
    pub values: Values,
    /// Whether its gradient is checked.
    pub tracked: bool,
}

/// A distribution of elements.
#[derive(Clone, Copy)]
pub enum Values {
    /// Normal with this standard deviation.
    Normal(f64),
    /// Uniform between two bounds.
    Uniform(f64, f64),
    /// Integers below a bound, as `u32`.
    Tokens(usize),
}

impl Input {
    /// A tracked tensor of normal values.
    pub fn normal(shape: impl Into<Vec<usize>>, std: f64) -> Self {
        Input { shape: shape.into(), values: Values::Normal(std), tracked: true }
    }

    /// A tracked tensor of uniform values.
    pub fn uniform(shape: impl Into<Vec<usize>>, low: f64, high: f64) -> Self {
        Input { shape: shape.into(), values: Values::Uniform(low, high), tracked: true }
    }

    /// Token ids below `n`.
    pub fn tokens(shape: impl Into<Vec<usize>>, n: usize) -> Self {
        Input { shape: shape.into(), values: Values::Tokens(n), tracked: false }
    }

    /// The same without a gradient.
    pub fn frozen(self) -> Self {
        Input { tracked: false, ..self }
    }

    /// Draws the elements, rounded to `f32` so that both precisions start from the same numbers.
    pub fn draw(&self, random: &Random) -> Array {
        let n: usize = self.shape.iter().product();
        let value = |i: u64| match self.values {
            Values::Normal(std) => f64::from((std * random.normal(i)) as f32),
            Values::Uniform(low, high) => f64::from((low + (high - low) * random.uniform(i)) as f32),
            Values::Tokens(n) => random.below(i, n) as f64,
        };
        Array { shape: self.shape.clone(), data: (0..n as u64).map(value).collect() }
    }
}

/// A shape and doubles: what oracles compute with.
#[derive(Clone)]
pub struct Array {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub data: Vec<f64>,
}

impl Array {
    /// Size of the last dimension.
    pub fn last(&self) -> usize {
        *self.shape.last().expect("an array with at least one dimension")
    }

    /// The rows along the last dimension.
    pub fn rows(&self) -> std::slice::Chunks<'_, f64> {
        self.data.chunks(self.last().max(1))
    }
}

/// Random choices for a case.
pub struct Dice(Random, u64);

impl Dice {
    /// Choices determined by `seed`.
    pub fn new(seed: u64) -> Self {
        Dice(Random::new(seed, "dice", 0), 0)
    }

    /// A size between `low` and `high`, both possible.
    pub fn size(&mut self, low: usize, high: usize) -> usize {
        self.1 += 1;
        low + self.0.below(self.1, high - low + 1)
    }

    /// Yes or no.
    pub fn coin(&mut self) -> bool {
        self.size(0, 1) == 1
    }
}

/// An operator's line.
pub struct Operator {
    /// The name it gives to its errors; the folder's name is its prefix.
    pub name: &'static str,
    /// Cases worth naming: usual sizes, empty, 1-long, odd, edges of tiles.
    pub cases: fn() -> Vec<Case>,
    /// A case of random sizes.
    pub random: fn(&mut Dice) -> Case,
}

/// All operators.
pub const OPERATORS: &[Operator] = &[
    Operator { name: "attention", cases: crate::attention::cases::cases, random: crate::attention::cases::random },
    Operator {
        name: "causal_conv",
        cases: crate::causal_conv::cases::cases,
        random: crate::causal_conv::cases::random,
    },
    Operator {
        name: "cross_entropy",
        cases: crate::cross_entropy::cases::cases,
        random: crate::cross_entropy::cases::random,
    },
    Operator { name: "dropout", cases: crate::dropout::cases::cases, random: crate::dropout::cases::random },
    Operator {
        name: "elementwise",
        cases: crate::elementwise::cases::cases,
        random: crate::elementwise::cases::random,
    },
    Operator { name: "embedding", cases: crate::embedding::cases::cases, random: crate::embedding::cases::random },
    Operator { name: "gelu", cases: crate::gelu::cases::cases, random: crate::gelu::cases::random },
    Operator { name: "layer_norm", cases: crate::layer_norm::cases::cases, random: crate::layer_norm::cases::random },
    Operator { name: "linear", cases: crate::linear::cases::cases, random: crate::linear::cases::random },
    Operator {
        name: "orthogonality",
        cases: crate::orthogonality::cases::cases,
        random: crate::orthogonality::cases::random,
    },
    Operator { name: "rms_norm", cases: crate::rms_norm::cases::cases, random: crate::rms_norm::cases::random },
    Operator { name: "rope", cases: crate::rope::cases::cases, random: crate::rope::cases::random },
    Operator { name: "row_norms", cases: crate::row_norms::cases::cases, random: crate::row_norms::cases::random },
    Operator { name: "scan", cases: crate::scan::cases::cases, random: crate::scan::cases::random },
    Operator { name: "sequence", cases: crate::sequence::cases::cases, random: crate::sequence::cases::random },
    Operator { name: "swiglu", cases: crate::swiglu::cases::cases, random: crate::swiglu::cases::random },
    Operator {
        name: "varying_scan",
        cases: crate::varying_scan::cases::cases,
        random: crate::varying_scan::cases::random,
    },
];
