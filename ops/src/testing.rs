//! Every operator with the cases that the test suites run on it, behind the feature `testing`: the gradient check in f64, the
//! comparison with a naive oracle, and the comparison between devices. A test fails when a folder is missing from
//! [`OPERATORS`].

use hankel_core::{Random, Result, Tensor};

/// An operator with its settings filled in.
pub type Run = dyn Fn(&[Tensor]) -> Result<Tensor>;

/// The elements that it should give.
pub type Oracle = dyn Fn(&[Array]) -> Vec<f64>;

/// One call of an operator.
pub struct Case {
    /// Its sizes and settings, for messages.
    pub name: String,
    /// Its tensors.
    pub inputs: Vec<Input>,
    /// The operator, in the element type of its inputs.
    pub run: Box<Run>,
    /// The expected elements, by naive loops in doubles.
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

/// Random sizes and choices for a case.
pub struct ShapeRng(Random, u64);

impl ShapeRng {
    /// Choices determined by `seed`.
    pub fn new(seed: u64) -> Self {
        ShapeRng(Random::new(seed, "dice", 0), 0)
    }

    /// A size between `low` and `high`, both possible.
    pub fn size(&mut self, low: usize, high: usize) -> usize {
        self.1 += 1;
        low + self.0.below(self.1, high - low + 1)
    }

    /// True or false, each with probability 1/2.
    pub fn coin(&mut self) -> bool {
        self.size(0, 1) == 1
    }
}

/// An operator's line.
pub struct Operator {
    /// The name of its folder, which it gives to its errors.
    pub name: &'static str,
    /// Cases worth naming: usual sizes, empty, 1-long, odd, edges of tiles.
    pub cases: fn() -> Vec<Case>,
    /// A case of random sizes.
    pub random: fn(&mut ShapeRng) -> Case,
}

macro_rules! operators {
    ($($name:ident,)*) => {
        &[$(Operator {
            name: stringify!($name),
            cases: crate::$name::cases::cases,
            random: crate::$name::cases::random,
        }),*]
    };
}

/// All operators.
#[rustfmt::skip]
pub const OPERATORS: &[Operator] = operators![
    attention,
    causal_conv,
    cross_entropy,
    delta_scan,
    dropout,
    elementwise,
    embedding,
    gelu,
    layer_norm,
    linear,
    orthogonality,
    rms_norm,
    rope,
    row_norms,
    scan,
    sequence,
    swiglu,
    varying_scan,
];
