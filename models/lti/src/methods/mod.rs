//! Reduction methods, one file each: the equation, the conditions, the name. [`Method::ALL`] lists them.

pub mod bfsr;
pub mod bt;
pub mod energy;
pub mod h2;
pub mod hankel;
pub mod modal;
mod slow;
pub mod spa;
pub mod svd;
mod units;
pub mod weighted_h2;

pub(crate) use hankel::sign;

use crate::linalg::product;
use crate::{GramianSource, HankelSpectrum, LinearSystem, LtiError, Result, StateMatrix};
use faer::Mat;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// How the smaller system is made from the larger one. Serialised as its name; the default is [`bt`].
#[derive(Clone, Copy)]
pub struct Method(&'static Definition);

/// What the file of a method says about it.
struct Definition {
    name: &'static str,
    summary: &'static str,
    bound: Bound,
    /// The bounds at all orders, where they are known from the modes.
    bounds: Option<fn(&LinearSystem) -> Result<Vec<f64>>>,
    gramians: Accepts,
    direct_term: bool,
    /// The order is at most the number of states.
    reduce: fn(&LinearSystem, &HankelSpectrum, usize) -> Result<Reduced>,
}

/// Which Gramians a method can be based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepts {
    /// Any.
    Any,
    /// Those over an infinite horizon.
    Analytic,
    /// These, and those under weights ([`weighted_h2`]).
    AnalyticOrWeighted,
    /// Any but those under weights, since it reads none: orders by weighted values would be those of another method.
    Unread,
}

/// What guarantees the H-infinity error of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Twice the sum of the discarded Hankel singular values, those of the analytic Gramians.
    HankelSingularValues,
    /// The sum of the norms of the discarded modes, known from the poles whatever the Gramians.
    Modes,
    /// Nothing.
    None,
}

impl Method {
    /// All methods.
    pub const ALL: &[Self] = &[
        bt::METHOD,
        bfsr::METHOD,
        spa::METHOD,
        modal::METHOD,
        energy::METHOD,
        svd::METHOD,
        hankel::METHOD,
        h2::METHOD,
    ];

    /// Their names.
    pub const NAMES: [&'static str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::ALL[i].0.name;
            i += 1;
        }
        names
    };

    /// The method of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.name() == name)
    }

    /// The name on the command line, in configurations and in certificates.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// The method in a line.
    pub const fn summary(self) -> &'static str {
        self.0.summary
    }

    /// What guarantees its error.
    pub const fn bound(self) -> Bound {
        self.0.bound
    }

    /// Whether the reduced system has a direct term D, which the recurrence of an adapter has no place for.
    pub const fn has_direct_term(self) -> bool {
        self.0.direct_term
    }

    /// Whether the method lowers the error under weights when it is given any; else they only measure.
    pub const fn takes_weights(self) -> bool {
        matches!(self.0.gramians, Accepts::Any | Accepts::AnalyticOrWeighted)
    }

    /// Whether the method can be based on these Gramians.
    ///
    /// # Errors
    /// Says that it cannot.
    pub fn check_gramians(self, source: GramianSource) -> Result<()> {
        let accepted = match self.0.gramians {
            Accepts::Any => true,
            Accepts::Analytic => source == GramianSource::Analytic,
            Accepts::AnalyticOrWeighted => matches!(source, GramianSource::Analytic | GramianSource::Weighted),
            Accepts::Unread => !matches!(source, GramianSource::Weighted | GramianSource::Enns),
        };
        if accepted {
            return Ok(());
        }
        if self.0.gramians == Accepts::Unread {
            return Err(LtiError::Unsupported(format!(
                "method {} reads no Gramians, so that a weight only measures its error: use analytic ones, or method bt",
                self.name()
            )));
        }
        let under_weights = if self.takes_weights() { " or under weights" } else { "" };
        Err(LtiError::Unsupported(format!(
            "method {} is optimal for the infinite-horizon Gramians{under_weights} only; use bt with other Gramians",
            self.name()
        )))
    }

    /// What to say of a reduced system of so many states that is not stable.
    pub fn unstable(self, order: usize) -> LtiError {
        LtiError::Unsupported(format!(
            "the reduced system of {order} states is not stable: method {} does not keep stability here; choose another order \
             (--order) or method (--method)",
            self.name()
        ))
    }

    /// Whether the error of a reduction based on these Gramians can have a bound.
    pub fn guarantees(self, source: GramianSource) -> bool {
        match self.bound() {
            Bound::HankelSingularValues => {
                matches!(source, GramianSource::Analytic | GramianSource::Weighted | GramianSource::FrequencyLimited(_))
            }
            Bound::Modes => true,
            Bound::None => false,
        }
    }

    /// Bound of the H-infinity error at `order` states kept; `None` where theory gives none. `spectrum` are the Hankel singular
    /// values of the Gramians that the reduction is based on.
    ///
    /// # Errors
    /// Those of [`reduce`].
    pub fn error_bound(self, system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Option<f64>> {
        match self.bound() {
            Bound::HankelSingularValues => Ok(spectrum.guarantee(order)),
            // A system that keeps all states is not brought to modal form.
            Bound::Modes if order == system.states() => Ok(Some(0.0)),
            Bound::Modes => Ok(reduce(system, spectrum, self, order)?.bound),
            Bound::None => Ok(None),
        }
    }

    /// The same at all orders, from no state to all, where it is the norms of modes that take time; `None` for other methods.
    ///
    /// # Errors
    /// An A that has no modal form; failures of the linear algebra.
    pub fn bounds_by_modes(self, system: &LinearSystem) -> Result<Option<Vec<f64>>> {
        self.0.bounds.map(|bounds| bounds(system)).transpose()
    }
}

impl Default for Method {
    fn default() -> Self {
        bt::METHOD
    }
}

impl PartialEq for Method {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Method {}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Method {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::unknown_variant(&name, &Self::NAMES))
    }
}

/// How the states of a reduced system follow from those of the full one.
#[derive(Debug, Clone)]
pub struct Projection {
    /// Reduced state from full state, `x_r = L x`, [r, d].
    pub left: Mat<f64>,
    /// Full state from reduced state, `x ~ R x_r`, [d, r]; `L R = I`.
    pub right: Mat<f64>,
}

/// A reduced system.
#[derive(Debug, Clone)]
pub struct Reduced {
    /// The smaller system. A method that drops modes, given the image of a system in continuous time, drops the modes of that system. This
    /// one then has the direct term of the image, and only `projection`, applied in continuous time, has the error that `bound` is about.
    pub system: LinearSystem,
    /// How it follows from the full one; `None` for `spa`, `hankel` and weighted `h2`, which are not projections.
    pub projection: Option<Projection>,
    /// Guaranteed bound of the H-infinity error, `None` where theory gives none.
    pub bound: Option<f64>,
    /// The states that were kept as they are, where that is what the method does.
    pub kept: Option<Vec<usize>>,
}

/// Reduces `system` to `order` states (`modal` and `energy`, which do not divide a pair, to one fewer at times); `spectrum` are its Hankel singular values.
///
/// There is a bound if `spectrum` comes from the analytic Gramians of the system as it is ([`HankelSpectrum::guarantee`]).
///
/// # Errors
/// An order above the numerical rank (for `modal`, `energy` and `svd`: above the number of states); a reduced system that is not
/// stable (possible only where theory gives no bound); for `hankel`, equal values on both sides of the cut; for `modal` and
/// `energy`, a dense A without a modal form; a decomposition that does not converge.
pub fn reduce(system: &LinearSystem, spectrum: &HankelSpectrum, method: Method, order: usize) -> Result<Reduced> {
    if order > system.states() {
        return Err(LtiError::OrderTooLarge { order, states: system.states() });
    }
    let reduced = (method.0.reduce)(system, spectrum, order);
    // Other Gramians say what matters, which need not be slow modes.
    let is_comparable = spectrum.is_own() || reduced.as_ref().is_ok_and(|reduced| reduced.bound.is_some());
    let reduced = if is_comparable && method.bound() == Bound::HankelSingularValues && slow::has_slow_modes(system) {
        slow::nearer(system, reduced, slow::reduce_apart(system, method, order))
    } else {
        reduced
    };
    reduced.map_err(|error| match error {
        LtiError::Unstable { .. } => method.unstable(order),
        other => other,
    })
}

/// `A_r = L A R, B_r = L B, C_r = C R`.
fn project(system: &LinearSystem, left: Mat<f64>, right: Mat<f64>, bound: Option<f64>) -> Result<Reduced> {
    let a = product(left.as_ref(), system.a().apply(right.as_ref()).as_ref());
    let b = product(left.as_ref(), system.b());
    let c = product(system.c(), right.as_ref());
    let projection = Some(Projection { left, right });
    Ok(Reduced { system: system.with_realization(StateMatrix::Dense(a), b, c)?, projection, bound, kept: None })
}
