//! Any linear system as it lies in a file: continuous or discrete time, poles anywhere.
//!
//! What is reduced is the stable part in discrete time; the rest of the file's system is kept and put back.

use super::analysis::{LayerAnalysis, overflow};
use super::layer::{LayerReduction, Purpose, reduce_and_store};
use super::options::{Gramians, ReduceError, Result};
use faer::{Mat, Scale};
use hankel_files::system_file::{StoredSystem, Time};
use hankel_lti::continuous::{Bilinear, Continuous, Matrices, Original};
use hankel_lti::coordinates::{AsStored, near_normal};
use hankel_lti::norms::{FrequencyResponse, hinf_sweep};
use hankel_lti::split::{Kept, Split, split, split_leading};
use hankel_lti::weighted::Band;
use hankel_lti::{LinearSystem, LtiError, Method, Projection, Reduced, StateMatrix};
use serde::{Deserialize, Serialize};

/// What a certificate says about a system beyond its stable part in discrete time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PlantFacts {
    /// Whether it runs in continuous time. H-infinity norms, Hankel singular values and bounds are the same in both; H2 norms are
    /// those of continuous time; frequencies are angles of the bilinear map.
    pub continuous: bool,
    /// Poles that are not inside the stability boundary. Their part is kept as it is and is in no other number.
    pub kept_poles: usize,
    /// Rate of the bilinear map, in continuous time: the angular frequency of an angle is `rate tan(angle / 2)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

impl PlantFacts {
    /// The bilinear map, in continuous time.
    pub fn map(&self) -> Option<Bilinear> {
        self.rate.map(|rate| Bilinear { rate })
    }

    /// Whether a claim is what was found. Of the rate, which rounding of eigenvalues decides, and which older certificates have not, only
    /// digits that matter are compared.
    pub fn agrees(&self, found: &Self) -> bool {
        let rates = self.rate.zip(found.rate);
        (self.continuous, self.kept_poles) == (found.continuous, found.kept_poles)
            && rates.is_none_or(|(claimed, found)| (claimed / found - 1.0).abs() < 1e-6)
    }
}

/// A system made ready to be reduced.
#[derive(Debug, Clone)]
pub struct Plant {
    /// Its stable part in discrete time, with the direct term.
    pub system: LinearSystem,
    /// Its other part in discrete time.
    pub kept: Kept,
    /// The time of the file.
    pub time: Time,
    /// The map to discrete time, where there is one.
    pub map: Option<Bilinear>,
    /// States whose sign is not the one of the file, where all are in `system`.
    pub turned: Vec<usize>,
    /// The direct term of the file.
    direct: Option<Mat<f64>>,
}

impl Plant {
    /// Prepares a system.
    ///
    /// # Errors
    /// Shapes that do not fit, entries that are not finite, poles that cannot be told apart.
    pub fn new(stored: &StoredSystem) -> Result<Self> {
        Self::prepare(stored, None, None)
    }

    /// Prepares a system that is compared with this one: in continuous time by the same map, and with parts only where this one has
    /// them, so that a pole next to the circle is not taken for one to be kept.
    ///
    /// # Errors
    /// Those of [`Plant::new`]; a pole that is not stable, where this one has none.
    pub fn beside(&self, stored: &StoredSystem) -> Result<Self> {
        Self::prepare(stored, self.map, Some(self.kept.a.states()))
    }

    fn prepare(stored: &StoredSystem, map: Option<Bilinear>, kept: Option<usize>) -> Result<Self> {
        let StoredSystem { a, b, c, d, time, .. } = stored;
        // Shapes and entries first: the map would hide where they are wrong.
        LinearSystem::check(a, b.as_ref(), c.as_ref(), d.as_ref().map(Mat::as_ref))?;
        let map = match time {
            Time::Continuous => Some(map.map_or_else(|| Bilinear::of(a), Ok)?),
            Time::Discrete { .. } | Time::Unstated => None,
        };
        let near = match kept {
            None | Some(0) => near_normal(a, b.as_ref(), c.as_ref(), d.as_ref().map(Mat::as_ref), map)?,
            Some(_) => None,
        };
        if let Some(system) = near {
            let (kept, direct) = (no_states(b.ncols(), c.nrows()), d.clone());
            return Ok(Self { system, kept, time: *time, map, turned: Vec::new(), direct });
        }
        let (a, b, c, d) = if let Some(map) = map {
            let image = map.discrete(a, b.as_ref(), c.as_ref(), d.as_ref().map(Mat::as_ref))?;
            if !image.3.is_all_finite() {
                return Err(overflow(b.as_ref(), c.as_ref()).into());
            }
            let (a, b, c, d) = image;
            (a, b, c, Some(d))
        } else {
            (a.clone(), b.clone(), c.clone(), d.clone())
        };
        let Split { mut stable, kept } = match kept {
            None => split(a, b, c, d)?,
            Some(0) => {
                let kept = no_states(b.ncols(), c.nrows());
                Split { stable: LinearSystem::new(a, b, c, d)?, kept }
            }
            Some(kept) => match split_leading(&a, &b, &c, d.as_ref(), kept)? {
                Some(parts) => parts,
                None => split(a, b, c, d)?,
            },
        };
        // The part that is kept has no direct term in its own time.
        if let Some(map) = map.filter(|_| kept.a.states() > 0) {
            let (_, _, _, at_infinity) = map.continuous(&kept.a, kept.b.as_ref(), kept.c.as_ref(), None)?;
            let (a, b, c, d) = matrices(&stable);
            stable = LinearSystem::new(a, b, c, Some(d + at_infinity))?;
        }
        if let Some(map) = map {
            stable = stable.with_map(map, stored.d.clone());
        }
        // Where no part was split off, proofs are about the exact entries of the file.
        let entries = match (&stored.written, &stored.a) {
            (Some(written), _) => Some(written.clone()),
            (None, StateMatrix::Modal(_)) => None,
            (None, a) => Some(a.to_dense()),
        };
        let system = match (map, entries) {
            (None, Some(a)) if kept.a.states() == 0 => stable.with_written(a)?,
            (Some(map), Some(a)) if kept.a.states() == 0 => {
                let StoredSystem { b, c, d, .. } = stored.clone();
                stable.with_image_of(Original { map, a, b, c, d })?
            }
            _ => stable,
        };
        let system = system.unclamped();
        let turned = if kept.a.states() == 0 { stored.turned.clone() } else { Vec::new() };
        Ok(Self { system, kept, time: *time, map, turned, direct: stored.d.clone() })
    }

    /// What a certificate says about it; `None` for a stable system in discrete time.
    pub fn facts(&self) -> Option<PlantFacts> {
        let facts = PlantFacts {
            continuous: self.map.is_some(),
            kept_poles: self.kept.a.states(),
            rate: self.map.map(|map| map.rate),
        };
        (facts != PlantFacts::default()).then_some(facts)
    }

    /// The stable part, ready to be reduced; it is called `label`.
    ///
    /// # Errors
    /// Those of [`LayerAnalysis::new`].
    pub fn analyse(&self, label: &str) -> Result<LayerAnalysis> {
        let mut layer = LayerAnalysis::new(label, self.system.clone(), 1.0)?;
        layer.turned.clone_from(&self.turned);
        if self.kept.a.states() > 0 {
            layer.image = Some("the part that is kept is split off in floating point");
        } else if self.map.is_some() && self.system.image_of().is_none() && self.system.stored().is_none() {
            layer.image = Some("A was given by moduli and angles of its poles");
        }
        if let Some(map) = self.map {
            let (a, b, c, d) = matrices(&self.system);
            let (a, b, c, d) = map.continuous(&a, b.as_ref(), c.as_ref(), Some(d.as_ref()))?;
            layer.continuous = Some(Continuous { map, a, b, c, d });
        }
        Ok(layer)
    }

    /// Reduces the stable part, which was analysed as `layer`, to a given order, and certifies what the file will hold. Returns that, too:
    /// the whole system as it is read back.
    ///
    /// # Errors
    /// Those of [`reduce_system`](crate::reduce_system).
    pub fn reduce(
        &self,
        layer: &LayerAnalysis,
        method: Method,
        order: usize,
        gramians: &Gramians,
    ) -> Result<(LayerReduction, StoredSystem)> {
        let purpose = Purpose { direct_term: true, single: false };
        let store = |reduced: &Reduced| self.stored_as(reduced, method);
        reduce_and_store(layer, method, order, gramians, purpose, &store)
    }

    /// The stable part and the whole system, as they are read back once `reduced` has taken the place of the stable part.
    ///
    /// # Errors
    /// Those of [`Plant::assemble`]; a reduced system that is not stable in the time of the file.
    pub fn stored_as(&self, reduced: &Reduced, method: Method) -> Result<(LinearSystem, StoredSystem)> {
        let keeps_all = reduced.kept.as_ref().is_some_and(|kept| kept.len() == self.system.states());
        let whole = match self.system.stored().filter(|_| keeps_all) {
            Some(AsStored { a, b, c, d, .. }) => {
                let none = || Mat::zeros(c.nrows(), b.ncols());
                let a = StateMatrix::Dense(a.clone());
                self.stored((a, b.clone(), c.clone(), d.clone().unwrap_or_else(none)), d.is_some())
            }
            None => self.assemble(&reduced.system, reduced.projection.as_ref())?.as_written(),
        };
        let unstable = || ReduceError::System(method.unstable(whole.a.states()));
        match self.beside(&whole) {
            Ok(plant) if plant.kept.a.states() > self.kept.a.states() => Err(unstable()),
            Ok(plant) => Ok((plant.system, whole)),
            Err(ReduceError::System(LtiError::Unstable { .. })) => Err(unstable()),
            Err(other) => Err(other),
        }
    }

    /// A weight of this system's input or output, in discrete time as the system is.
    ///
    /// # Errors
    /// A weight in another time; one that is not stable.
    pub fn weight(&self, stored: &StoredSystem) -> hankel_lti::Result<LinearSystem> {
        let StoredSystem { a, b, c, d, .. } = stored;
        let direct = d.as_ref().map(Mat::as_ref);
        let Some(map) = self.map else {
            return match (self.time, stored.time) {
                (Time::Discrete { step: Some(own) }, Time::Discrete { step: Some(step) }) if own != step => {
                    Err(LtiError::Unsupported(format!("its sampling time dt is {step}, that of the system {own}")))
                }
                (_, Time::Continuous) => stored.system(),
                _ => {
                    LinearSystem::check(a, b.as_ref(), c.as_ref(), direct)?;
                    let near = near_normal(a, b.as_ref(), c.as_ref(), direct, None)?;
                    near.map_or_else(|| stored.system(), Ok)
                }
            };
        };
        if stored.time != Time::Continuous {
            return Err(LtiError::Unsupported(
                "the system runs in continuous time, the weight does not: it has no dt = 0".into(),
            ));
        }
        LinearSystem::check(a, b.as_ref(), c.as_ref(), direct)?;
        if let Some(near) = near_normal(a, b.as_ref(), c.as_ref(), direct, Some(map))? {
            return Ok(near);
        }
        let (a, b, c, d) = map.discrete(a, b.as_ref(), c.as_ref(), direct)?;
        LinearSystem::new(a, b, c, Some(d)).map_err(|error| match error {
            LtiError::Unstable { .. } => {
                LtiError::Unsupported("it is not stable: a pole has no negative real part".into())
            }
            other => other,
        })
    }

    /// The band between two frequencies, in radians per step or per unit of time.
    ///
    /// # Errors
    /// Ends out of range.
    pub fn band(&self, (low, high): (f64, f64)) -> hankel_lti::Result<Band> {
        match self.map {
            None => Band::new(low, high).map_err(|error| match self.time {
                Time::Discrete { step: Some(step) } if step != 1.0 => LtiError::Unsupported(format!(
                    "{error}; a band is in radians per step, and with dt = {step} the angular frequencies {low} to {high} are {} to {}",
                    low * step,
                    high * step
                )),
                _ => error,
            }),
            Some(_) if low.is_nan() || low < 0.0 => {
                Err(LtiError::OutOfRange { name: "band (low end)", value: low, range: "not negative" })
            }
            Some(_) if high.is_nan() || high <= low => {
                Err(LtiError::OutOfRange { name: "band (high end)", value: high, range: "above the low end" })
            }
            Some(map) => Band::new(map.angle(low), map.angle(high)),
        }
    }

    /// The whole system that has `reduced` in place of its stable part, in the time of the file.
    ///
    /// In continuous time a projection is applied to the continuous matrices, so that the direct term stays what it was; its bound is the
    /// same. What is not a projection is mapped back.
    ///
    /// # Errors
    /// A reduced system that the map takes to infinity.
    pub fn assemble(&self, reduced: &LinearSystem, projection: Option<&Projection>) -> Result<StoredSystem> {
        let Some(map) = self.map else {
            let stable = matrices(reduced);
            let direct = self.system.d().is_some() || reduced.d().is_some();
            let written = reduced.written().filter(|_| self.kept.a.states() == 0).map(|a| a.to_owned());
            return Ok(StoredSystem { written, ..self.stored(join(self.kept_matrices()?, stable), direct) });
        };
        let back = |(a, b, c, d): &Matrices| map.continuous(a, b.as_ref(), c.as_ref(), Some(d.as_ref()));
        let stable = match projection {
            Some(Projection { left, right }) => {
                // As they are stored, so that states that are kept are so to the last digit.
                let (a, b, c) = if let Some(stored) = self.system.image_of() {
                    (StateMatrix::Dense(stored.a.clone()), stored.b.clone(), stored.c.clone())
                } else {
                    let (a, b, c, _) = back(&matrices(&self.system))?;
                    (a, b, c)
                };
                let direct = self.direct.clone().unwrap_or_else(|| Mat::zeros(c.nrows(), b.ncols()));
                (StateMatrix::from_square(left * a.apply(right.as_ref())), left * b, c * right, direct)
            }
            None => back(&matrices(reduced))?,
        };
        let Kept { a, b, c } = &self.kept;
        let (a, b, c, _) = map.continuous(a, b.as_ref(), c.as_ref(), None)?;
        let none = Mat::zeros(c.nrows(), b.ncols());
        Ok(self.stored(join((a, b, c, none), stable), true))
    }

    fn stored(&self, (a, b, c, d): Matrices, direct: bool) -> StoredSystem {
        StoredSystem { a, written: None, turned: Vec::new(), b, c, d: direct.then_some(d), time: self.time }
    }

    /// The part that is kept, in discrete time.
    fn kept_matrices(&self) -> Result<Matrices> {
        let Kept { a, b, c } = &self.kept;
        let direct = match self.map {
            Some(map) => map.continuous(a, b.as_ref(), c.as_ref(), None)?.3 * Scale(-1.0),
            None => Mat::zeros(c.nrows(), b.ncols()),
        };
        Ok((a.clone(), b.clone(), c.clone(), direct))
    }

    /// The whole system in discrete time, poles anywhere.
    ///
    /// # Errors
    /// None that [`Plant::new`] did not find.
    pub fn whole(&self) -> Result<LinearSystem> {
        let (a, b, c, d) = join(self.kept_matrices()?, matrices(&self.system));
        Ok(LinearSystem::with_any_poles(a, b, c, Some(d))?)
    }

    /// How far the kept part of `other` is from this one: the largest gain of the difference on the circle of radius 1/2, relative to
    /// its own there, or to a millionth of `size`, the norm of the other part, if that is more. All poles that are kept lie outside that
    /// circle; those on the unit circle have no finite gain there.
    ///
    /// # Errors
    /// Different numbers of inputs, outputs or kept states.
    pub fn kept_deviation(&self, other: &Self, size: f64) -> Result<f64> {
        let (one, two) = (&self.kept, &other.kept);
        if one.a.states() != two.a.states() {
            return Err(LtiError::Unsupported(format!(
                "{} poles outside the stability boundary were to be kept, there are {}",
                one.a.states(),
                two.a.states()
            ))
            .into());
        }
        // `C (z - A)^-1 B` at `z / 2` is `C (z - 2 A)^-1 (2 B)`.
        let system = |kept: &Kept| {
            let twice = StateMatrix::Dense(kept.a.to_dense() * Scale(2.0));
            LinearSystem::with_any_poles(twice, &kept.b * Scale(2.0), kept.c.clone(), None)
        };
        let (one, two) = (system(one)?, system(two)?);
        let gain = |system: &LinearSystem| Ok::<f64, LtiError>(hinf_sweep(&FrequencyResponse::new(system))?.value);
        let largest = gain(&one.difference(&two)?)?;
        Ok(if largest == 0.0 { 0.0 } else { largest / gain(&one)?.max(WEAK * size) })
    }
}

/// A kept part whose gain is a smaller share of the other part's norm is compared with that share: rounding of a projection goes by the norm.
const WEAK: f64 = 1e-6;

/// A part that is kept, without states.
fn no_states(inputs: usize, outputs: usize) -> Kept {
    Kept { a: StateMatrix::Diagonal(Vec::new()), b: Mat::zeros(0, inputs), c: Mat::zeros(outputs, 0) }
}

fn matrices(system: &LinearSystem) -> Matrices {
    let d = system.d().map_or_else(|| Mat::zeros(system.outputs(), system.inputs()), |d| d.to_owned());
    (system.a().clone(), system.b().to_owned(), system.c().to_owned(), d)
}

/// The sum of two systems, the first one's states first.
fn join((a, b, c, d): Matrices, (a2, b2, c2, d2): Matrices) -> Matrices {
    if a.states() == 0 {
        return (a2, b2, c2, d + d2);
    }
    let (n, m) = (a.states(), a2.states());
    let both = a.block_diagonal(&a2);
    let b = Mat::from_fn(n + m, b.ncols(), |i, j| if i < n { b[(i, j)] } else { b2[(i - n, j)] });
    let c = Mat::from_fn(c.nrows(), n + m, |i, j| if j < n { c[(i, j)] } else { c2[(i, j - n)] });
    (both, b, c, d + d2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gramians, Purpose, reduce_system};
    use hankel_lti::Method;

    /// A chain of three masses on springs, from force to position, whose chain floats: a double integrator.
    fn chain() -> StoredSystem {
        let k = [[-1.0, 1.0, 0.0], [1.0, -2.0, 1.0], [0.0, 1.0, -1.0]];
        let a = Mat::from_fn(6, 6, |i, j| match (i < 3, j < 3) {
            (true, true) => 0.0,
            (true, false) => f64::from(u8::from(i + 3 == j)),
            (false, true) => 4.0 * k[i - 3][j],
            (false, false) => 0.2 * k[i - 3][j - 3],
        });
        let b = Mat::from_fn(6, 1, |i, _| f64::from(u8::from(i == 3)));
        let c = Mat::from_fn(1, 6, |_, j| f64::from(u8::from(j == 2)));
        StoredSystem {
            a: StateMatrix::Dense(a),
            written: None,
            turned: Vec::new(),
            b,
            c,
            d: None,
            time: Time::Continuous,
        }
    }

    #[test]
    fn integrators_of_a_continuous_plant_are_kept() {
        let plant = Plant::new(&chain()).unwrap();
        let facts = plant.facts().unwrap();
        assert_eq!((facts.continuous, facts.kept_poles, facts.rate), (true, 2, plant.map.map(|map| map.rate)));
        let layer = plant.analyse("system").unwrap();
        let purpose = Purpose { direct_term: true, single: false };
        for &method in Method::ALL {
            let small = reduce_system(&layer, method, 2, &Gramians::Analytic, purpose).unwrap();
            let whole = plant.assemble(&small.system, small.projection.as_ref()).unwrap();
            assert_eq!((whole.a.states(), whole.time), (4, Time::Continuous));
            let again = plant.beside(&whole).unwrap();
            assert_eq!(again.facts(), plant.facts());
            let deviation = plant.kept_deviation(&again, 1.0).unwrap();
            assert!(deviation < 1e-9, "{}: {deviation:e}", method.name());
            if method == Method::default() {
                // The direct term of balanced truncation in continuous time is that of the plant: none.
                assert_eq!(whole.d.unwrap().norm_max(), 0.0);
            }
        }
    }

    /// The same plant by the clock of atoms and by that of stars.
    #[test]
    fn the_unit_of_time_changes_no_error() {
        let entries = [[-0.5, 0.2], [0.1, -0.3]];
        let reduced = |exponent: i32| {
            let (speed, gain) = (2_f64.powi(2 * exponent), 2_f64.powi(exponent));
            let a = StateMatrix::Dense(Mat::from_fn(2, 2, |i, j| speed * entries[i][j]));
            let (b, c) = (Mat::from_fn(2, 1, |_, _| gain), Mat::from_fn(1, 2, |_, j| gain * (1.0 - 0.3 * j as f64)));
            let stored = StoredSystem { a, written: None, turned: Vec::new(), b, c, d: None, time: Time::Continuous };
            let plant = Plant::new(&stored).unwrap();
            let layer = plant.analyse("system").unwrap();
            let (small, whole) = plant.reduce(&layer, Method::default(), 1, &Gramians::Analytic).unwrap();
            assert_eq!(small.certificate.holds, Some(true), "{exponent}");
            (whole.a.to_dense()[(0, 0)] / speed, small.certificate.hinf_error)
        };
        let (pole, error) = reduced(0);
        for exponent in [-332, -266, 266, 332] {
            let found = reduced(exponent);
            assert!(
                (found.0 / pole - 1.0).abs() < 1e-12 && (found.1 / error - 1.0).abs() < 1e-6,
                "{exponent}: {found:?}"
            );
        }
    }

    #[test]
    fn states_that_are_kept_in_continuous_time_are_those_of_the_file() {
        let a = StateMatrix::Diagonal(vec![-0.3, -1.7, -29.0]);
        let b = Mat::from_fn(3, 1, |i, _| 1.0 / (3.0 + i as f64));
        let c = Mat::from_fn(2, 3, |i, j| (0.7 + (i + 2 * j) as f64).sin());
        let stored = StoredSystem { a, written: None, turned: Vec::new(), b, c, d: None, time: Time::Continuous };
        let plant = Plant::new(&stored).unwrap();
        let layer = plant.analyse("system").unwrap();
        let (small, whole) = plant.reduce(&layer, Method::default(), 3, &Gramians::Analytic).unwrap();
        assert_eq!((whole.a, whole.b, whole.c), (stored.a.clone(), stored.b.clone(), stored.c.clone()));
        assert_eq!((small.certificate.hinf_error_upper, small.certificate.proved), (0.0, true));
        let method = Method::named("modal").unwrap();
        let (_, whole) = plant.reduce(&layer, method, 2, &Gramians::Analytic).unwrap();
        let StateMatrix::Diagonal(kept) = whole.a else { panic!("modes are kept as they are") };
        assert!(kept.iter().all(|pole| [-0.3, -1.7, -29.0].contains(pole)), "{kept:?}");
    }

    /// Modes are dropped in continuous time: the error is that of the dropped ones there, and the bound says so.
    #[test]
    fn bounds_of_dropped_modes_are_those_of_continuous_time() {
        let real = Mat::from_fn(2, 2, |i, j| if i == j { [-1.0, -100.0][i] } else { 0.0 });
        // Poles -1, and -0.5 plus and minus 40 i, whose gain is 1e-3 times that of a resonance: 1 near 40.
        let pair = [[-1.0, 0.0, 0.0], [0.0, -0.5, -40.0], [0.0, 40.0, -0.5]];
        let pair = Mat::from_fn(3, 3, |i, j| pair[i][j]);
        for (a, gain) in [(real, 1e-5), (pair, 1e-3)] {
            let n = a.nrows();
            let b = Mat::from_fn(n, 1, |i, _| f64::from(u8::from(i < 2)));
            let c = Mat::from_fn(1, n, |_, j| [1.0, 1e-3, 0.0][j]);
            let a = StateMatrix::from_square(a);
            let stored = StoredSystem { a, written: None, turned: Vec::new(), b, c, d: None, time: Time::Continuous }
                .as_written();
            let plant = Plant::new(&stored).unwrap();
            let layer = plant.analyse("system").unwrap();
            for name in ["modal", "energy"] {
                let method = Method::named(name).unwrap();
                let (small, whole) = plant.reduce(&layer, method, 1, &Gramians::Analytic).unwrap();
                let found = small.certificate;
                assert_eq!((whole.a.states(), found.holds, found.proved), (1, Some(true), true), "{name}");
                let bound = found.error_bound.unwrap();
                assert!((bound / found.hinf_error - 1.0).abs() < 1e-6, "{bound} {}", found.hinf_error);
                assert!((bound / gain - 1.0).abs() < 1e-3, "{bound} {gain}");
            }
        }
    }
}
