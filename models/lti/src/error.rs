use thiserror::Error;

/// What can go wrong with a linear system or its reduction.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum LtiError {
    /// Matrices that do not fit together.
    #[error("{what} has shape {got:?}, expected {expected:?}{}", transposed(.what, *.got, *.expected))]
    Shape {
        /// The matrix, by name.
        what: String,
        /// Rows and columns it should have.
        expected: (usize, usize),
        /// Rows and columns it has.
        got: (usize, usize),
    },
    /// A NaN or an infinity in a matrix.
    #[error("{what} holds {value} at row {row}, column {column}; every entry must be finite")]
    NotFinite {
        /// The matrix, by name.
        what: String,
        /// Row of the first such entry.
        row: usize,
        /// Column of the first such entry.
        column: usize,
        /// The value itself.
        value: f64,
    },
    /// An eigenvalue of A on or outside the unit circle.
    #[error(
        "the system is not stable: eigenvalue {} has modulus {modulus}, which must be below 1{}",
        complex(*re, *im),
        state.map(|i| format!(" (state {i})")).unwrap_or_default()
    )]
    Unstable {
        /// Real part of the eigenvalue.
        re: f64,
        /// Imaginary part of the eigenvalue.
        im: f64,
        /// Its modulus.
        modulus: f64,
        /// The state that carries it, where A is diagonal or modal.
        state: Option<usize>,
    },
    /// A system without states where one with states is needed.
    #[error("the system has no states (d = 0): there is nothing to reduce")]
    NoStates,
    /// A requested order above the number of states.
    #[error("order {order} is larger than the {states} states of the system")]
    OrderTooLarge {
        /// The order asked for.
        order: usize,
        /// The states there are.
        states: usize,
    },
    /// A threshold outside its range.
    #[error("{name} = {value} is out of range: it must be {range}")]
    OutOfRange {
        /// The option.
        name: &'static str,
        /// The value given.
        value: f64,
        /// The values that make sense, in words.
        range: &'static str,
    },
    /// A tolerance below what any order reaches in double precision.
    #[error(
        "the tolerance {tolerance:e} cannot be reached: at the numerical rank ({rank} states) the certified bound is {best:e}"
    )]
    UnreachableBound {
        /// The tolerance asked for.
        tolerance: f64,
        /// The smallest bound there is.
        best: f64,
        /// Order at which it is reached.
        rank: usize,
    },
    /// A form of A that cannot represent the system.
    #[error("cannot bring A to {form} form: {reason}")]
    Conversion {
        /// The form asked for.
        form: &'static str,
        /// Why not.
        reason: String,
    },
    /// A combination of method and system that makes no sense.
    #[error("{0}")]
    Unsupported(String),
    /// Gains so small that doubles have no number for a Hankel singular value, which is above rounding.
    #[error(
        "its gains underflow double precision; multiply B or C by a number, by which the errors of the reduced system are then larger"
    )]
    Underflow,
    /// An eigenvalue or singular value iteration of the linear algebra library gave up.
    #[error("{0} did not converge; are the entries of the system scaled sensibly?")]
    NoConvergence(&'static str),
}

fn complex(re: f64, im: f64) -> String {
    if im == 0.0 { format!("{re}") } else { format!("{re} {} {}i", if im < 0.0 { '-' } else { '+' }, im.abs()) }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, LtiError>;

/// What to say of a B or C whose other side is as long as the states are many. `expected` has that side of what was given.
fn transposed(what: &str, got: (usize, usize), expected: (usize, usize)) -> &'static str {
    let is = match what {
        "B" => got.1 == expected.0 && got.0 != expected.0,
        "C" => got.0 == expected.1 && got.1 != expected.1,
        _ => false,
    };
    if is { "; it looks transposed" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_matrices_are_told() {
        let told = |what: &str, got, expected| LtiError::Shape { what: what.into(), got, expected }.to_string();
        assert_eq!(told("B", (2, 4), (4, 4)), "B has shape (2, 4), expected (4, 4); it looks transposed");
        assert_eq!(told("C", (4, 3), (4, 4)), "C has shape (4, 3), expected (4, 4); it looks transposed");
        assert_eq!(told("B", (3, 2), (4, 2)), "B has shape (3, 2), expected (4, 2)");
        assert_eq!(told("A", (2, 5), (2, 2)), "A has shape (2, 5), expected (2, 2)");
    }
}
