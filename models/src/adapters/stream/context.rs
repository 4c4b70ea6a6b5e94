//! What a stream adapter is built from: its site, and its parameters, which are named, drawn under their names, and trainable.

use super::StreamSite;
use super::initial::log_spaced;
use crate::adapters::shared::SharedParameters;
use crate::linear::normal;
use crate::parameter::{Parameter, Role};
use hankel_core::{Error, Random, Result, Tensor};

/// The site of one layer. Parameters are trainable, in `f32`, and initial values depend on seed and name only.
#[derive(Clone)]
pub struct SiteContext<'a> {
    /// Index of the layer.
    pub layer: usize,
    /// The site in it.
    pub site: StreamSite,
    /// Width D of the stream.
    pub d_model: usize,
    /// Length of the training sequences.
    pub length: usize,
    prefix: String,
    seed: u64,
    shared: &'a SharedParameters,
    is_shared: bool,
}

impl<'a> SiteContext<'a> {
    pub(crate) fn new(
        kind: &str,
        [layer, d_model, length]: [usize; 3],
        site: StreamSite,
        seed: u64,
        shared: &'a SharedParameters,
    ) -> Self {
        let prefix = format!("model.layers.{layer}.{}.{kind}", site.module());
        SiteContext { layer, site, d_model, length, prefix, seed, shared, is_shared: false }
    }

    /// The same site for parameters that all layers have in common: the first layer makes them, the others get them.
    pub fn common(&self) -> Self {
        let (_, kind) = self.prefix.rsplit_once('.').unwrap_or_default();
        let prefix = format!("model.shared.{}.{kind}", self.site.module());
        SiteContext { prefix, is_shared: true, ..self.clone() }
    }

    /// The random numbers of the parameter `name`.
    pub fn random(&self, name: &str) -> Random {
        Random::new(self.seed, &format!("{}.{name}", self.prefix), 0)
    }

    /// A parameter that starts at `value`.
    ///
    /// # Errors
    /// When it cannot be trained: another type than `f32` or `f64`.
    pub fn parameter(&self, name: &str, role: Role, value: &Tensor) -> Result<Parameter> {
        let name = format!("{}.{name}", self.prefix);
        self.unless_there(&name, || Ok(Parameter::new(name.clone(), role, value)))
    }

    /// A matrix of normal values with standard deviation `std`.
    ///
    /// # Errors
    /// When `std` is negative or not finite, or the matrix has more than 2^28 elements.
    pub fn normal(&self, name: &str, shape: [usize; 2], std: f64) -> Result<Parameter> {
        let name = format!("{}.{name}", self.prefix);
        check_size(&name, shape)?;
        if !(std.is_finite() && std >= 0.0) {
            return Err(Error::invalid("adapter", format!("the standard deviation of {name} is {std}")));
        }
        self.unless_there(&name, || normal(&name, &shape, std, self.seed))
    }

    /// A matrix of zeros.
    ///
    /// # Errors
    /// When the matrix has more than 2^28 elements.
    pub fn zeros(&self, name: &str, shape: [usize; 2]) -> Result<Parameter> {
        check_size(name, shape)?;
        self.parameter(name, Role::Matrix, &Tensor::zeros::<f32>(shape))
    }

    /// Logarithms of the rates `-ln a` of `states` states, log-spaced from `a_min` to `a_max`; without `a_max`, to
    /// `1 - 1/length`, so that the slowest remembers about one sequence (R2).
    ///
    /// # Errors
    /// When the poles are not between 0 and 1 or not in this order, or there are no states or more than 2^20.
    pub fn log_rates(&self, name: &str, states: usize, a_min: f64, a_max: Option<f64>) -> Result<Parameter> {
        let a_max = a_max.unwrap_or(1.0 - 1.0 / self.length.max(2) as f64).max(f64::EPSILON);
        let refuse = |problem: String| Err(Error::invalid("adapter", problem));
        if states == 0 || states > 1 << 20 {
            return refuse(format!("{name} of {states} states: there can be 1 to {}", 1 << 20));
        }
        if !(a_min > 0.0 && a_min <= a_max && a_max < 1.0) {
            return refuse(format!(
                "{name}: a_min = {a_min} and a_max = {a_max} must be in this order between 0 and 1"
            ));
        }
        self.parameter(name, Role::Rate, &Tensor::from_vec(log_spaced(states, a_min, a_max), [states])?)
    }

    fn unless_there(&self, name: &str, make: impl FnOnce() -> Result<Parameter>) -> Result<Parameter> {
        let make = || {
            let parameter = make()?;
            parameter.set_trainable(true)?;
            Ok(parameter)
        };
        match self.shared.get(name) {
            Some(parameter) => Ok(parameter),
            None if self.is_shared => self.shared.get_or_insert(name, make),
            None => make(),
        }
    }
}

/// Refuses what could only be a mistake, or a damaged file, before memory is asked for.
fn check_size(name: &str, [rows, columns]: [usize; 2]) -> Result<()> {
    if rows.checked_mul(columns).is_some_and(|elements| elements <= 1 << 28) {
        return Ok(());
    }
    Err(Error::invalid("adapter", format!("{name} would be a matrix of {rows} x {columns}")))
}
