//! Poles in polar form, and the two differences that decide the accuracy of everything built from them.

use faer::c64;
use std::f64::consts::PI;

/// Smallest decay rate `-ln |pole|` that a Gramian is computed with (R2): slower poles are treated as having this one.
pub const MIN_RATE: f64 = 1e-6;

/// A pole `radius * exp(i angle)` together with its decay rate `-ln radius` per step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pole {
    /// Modulus, in [0, 1).
    pub radius: f64,
    /// Argument in radians, in (-pi, pi].
    pub angle: f64,
    /// `-ln radius`, infinite for a pole at 0.
    pub rate: f64,
}

impl Pole {
    /// The pole of given modulus and argument.
    pub fn polar(radius: f64, angle: f64) -> Self {
        Self { radius, angle, rate: -radius.ln() }
    }

    /// A pole on the real axis; negative ones have the angle pi.
    pub fn real(value: f64) -> Self {
        Self::polar(value.abs(), if value < 0.0 { PI } else { 0.0 })
    }

    /// The complex conjugate.
    pub fn conj(self) -> Self {
        // A real negative pole is its own conjugate.
        if self.angle == PI { self } else { Self { angle: -self.angle, ..self } }
    }

    /// This pole, or the nearest one of rate [`MIN_RATE`] if it decays more slowly.
    pub fn clamped(self) -> Self {
        if self.rate < MIN_RATE { Self { radius: (-MIN_RATE).exp(), rate: MIN_RATE, ..self } } else { self }
    }

    /// The pole as a complex number.
    pub fn value(self) -> c64 {
        let (sin, cos) = sin_cos(self.angle);
        c64::new(self.radius * cos, self.radius * sin)
    }

    /// `1 - self * conj(other)` without cancellation as both approach the unit circle: minus `expm1` of the rates.
    pub fn one_minus_product(self, other: Self) -> c64 {
        let rate = self.rate + other.rate;
        let angle = self.angle - other.angle;
        if angle == 0.0 {
            return c64::new(-(-rate).exp_m1(), 0.0);
        }
        let (sin, cos) = sin_cos(angle);
        let half = sin_cos(angle / 2.0).0;
        c64::new(-(-rate).exp_m1() * cos + 2.0 * half * half, -(-rate).exp() * sin)
    }

    /// `self - other` without cancellation as both approach each other.
    pub fn minus(self, other: Self) -> c64 {
        let angle = self.angle - other.angle;
        let radial = self.radius - other.radius;
        if angle == 0.0 && self.angle == 0.0 {
            return c64::new(radial, 0.0);
        }
        let (sin, cos) = sin_cos(angle);
        let half = sin_cos(angle / 2.0).0;
        // (r e^{i t} - q) with t the angle between them, then turned back by the other's angle.
        let turned = c64::new(radial * cos - other.radius * 2.0 * half * half, self.radius * sin);
        let (sin, cos) = sin_cos(other.angle);
        turned * c64::new(cos, sin)
    }
}

/// Sine and cosine, exact at the multiples of pi that real poles have.
pub fn sin_cos(angle: f64) -> (f64, f64) {
    match angle.abs() {
        a if a == PI => (0.0, -1.0),
        a if a == 2.0 * PI => (0.0, 1.0),
        a if a == PI / 2.0 => (angle.signum(), 0.0),
        _ => angle.sin_cos(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_agree_with_direct_evaluation() {
        for p in [Pole::polar(0.9, 0.3), Pole::real(-0.5), Pole::real(0.25), Pole::real(0.0), Pole::polar(0.7, -2.9)] {
            for q in [Pole::polar(0.8, -0.3), Pole::real(-0.9), Pole::real(0.0), Pole::polar(0.7, 2.9)] {
                let product = p.value() * q.value().conj();
                assert!((p.one_minus_product(q) - (c64::new(1.0, 0.0) - product)).norm() < 1e-15);
                assert!((p.minus(q) - (p.value() - q.value())).norm() < 1e-15);
            }
        }
    }

    #[test]
    fn differences_keep_their_digits_near_the_unit_circle() {
        // 1 - a^2 for a = 1 - 2^-40 is 2^-39 - 2^-80.
        let tiny = 2f64.powi(-40);
        let p = Pole::real(1.0 - tiny);
        let exact = 2.0 * tiny - tiny * tiny;
        assert!((p.one_minus_product(p).re / exact - 1.0).abs() < 1e-15);
        let negative = Pole::real(tiny - 1.0);
        assert!((negative.one_minus_product(negative).re / exact - 1.0).abs() < 1e-15);
        assert!((negative.one_minus_product(p).re - (2.0 - exact)).abs() < 1e-15);
        let q = Pole::real(1.0 - 2.0 * tiny);
        assert_eq!(p.minus(q), c64::new(tiny, 0.0));
        let turned = Pole::polar(0.5, 1.0).minus(Pole::polar(0.5, 1.0 + 1e-12));
        let angle: f64 = (1.0 + 1e-12) - 1.0;
        assert!((turned.norm() / (0.5 * angle) - 1.0).abs() < 1e-12);
    }
}
