//! The time in which a system runs: converts angles per step to frequencies, and poles to time constants.

use crate::subject::Subject;
use faer::c64;
use hankel_files::system_file::Time;
use hankel_lti::continuous::Bilinear;

/// How the steps of discrete time, in which everything is computed, lie in the time of the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// Steps of unknown length.
    Steps,
    /// Steps of this length.
    Sampled(f64),
    /// Continuous time.
    Continuous(Bilinear),
}

impl Clock {
    /// That of an adapter or system.
    pub fn of(subject: &Subject) -> Self {
        let Subject::System { plant, .. } = subject else { return Self::Steps };
        match (plant.map, plant.time) {
            (Some(map), _) => Self::Continuous(map),
            (None, Time::Discrete { step: Some(step) }) => Self::Sampled(step),
            (None, _) => Self::Steps,
        }
    }

    /// Whether a unit of time is known.
    pub fn has_unit(self) -> bool {
        self != Self::Steps
    }

    /// The angular frequency of an angle per step.
    pub fn frequency(self, angle: f64) -> f64 {
        match self {
            Self::Steps => angle,
            Self::Sampled(step) => angle / step,
            Self::Continuous(map) => map.frequency(angle),
        }
    }

    /// The time constant of a pole in discrete time, which takes so many steps.
    pub fn time_constant(self, pole: c64, steps: f64) -> f64 {
        match self {
            Self::Steps => steps,
            Self::Sampled(step) => step * steps,
            // -1 / Re s of s = rate (z - 1) / (z + 1), and 1 - |z|^2 without cancellation.
            Self::Continuous(map) => (pole + 1.0).norm_sqr() / (map.rate * -(-2.0 / steps).exp_m1()),
        }
    }

    /// What a time constant is, and its unit.
    pub fn time_constants(self) -> &'static str {
        match self {
            Self::Steps => "-1/ln|pole| in steps",
            Self::Sampled(_) => "-dt/ln|pole| in units of time",
            Self::Continuous(_) => "-1/Re(pole) in units of time",
        }
    }

    /// The unit of [`Clock::frequency`].
    pub fn frequencies(self) -> &'static str {
        match self {
            Self::Steps => "radians per step",
            Self::Sampled(_) | Self::Continuous(_) => "radians per unit of time",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poles_and_angles_have_the_time_of_the_file() {
        let steps = |pole: c64| -1.0 / pole.norm().ln();
        let half = c64::new(0.5, 0.0);
        assert_eq!(Clock::Steps.time_constant(half, steps(half)), steps(half));
        assert_eq!(Clock::Sampled(0.1).time_constant(half, steps(half)), 0.1 * steps(half));
        assert_eq!(Clock::Sampled(0.1).frequency(0.2), 2.0);
        // s = -0.04 +- 5i.
        let map = Bilinear { rate: 3.0 };
        let s = c64::new(-0.04, 5.0);
        let pole = (c64::new(map.rate, 0.0) + s) / (c64::new(map.rate, 0.0) - s);
        let found = Clock::Continuous(map).time_constant(pole, steps(pole));
        assert!((found / 25.0 - 1.0).abs() < 1e-12, "{found}");
        assert!((Clock::Continuous(map).frequency(map.angle(5.0)) / 5.0 - 1.0).abs() < 1e-14);
    }
}
