//! What a system was made of: proofs are about the numbers that are stored.

use super::{LinearSystem, StateMatrix, check_shape};
use crate::Result;
use crate::continuous::{Bilinear, DirectTerm, Original};
use crate::coordinates::AsStored;
use faer::{Mat, MatRef};
use std::sync::Arc;

impl LinearSystem {
    /// The same system, whose modal A was read from this matrix: moduli and angles of its pairs have the rounding of that change. Proofs
    /// are about the matrix.
    ///
    /// # Errors
    /// Another number of states.
    pub fn with_written(self, a: Mat<f64>) -> Result<Self> {
        check_shape("A as it was written out", a.as_ref(), (self.states(), self.states()))?;
        Ok(Self { written: matches!(self.a, StateMatrix::Modal(_)).then_some(a), ..self })
    }

    /// The matrix that a modal A was read from, if it was.
    pub fn written(&self) -> Option<MatRef<'_, f64>> {
        self.written.as_ref().map(Mat::as_ref)
    }

    /// The same system, which is the image by this map of one in continuous time with this direct term, [p, m].
    #[must_use]
    pub fn with_map(self, map: Bilinear, direct: Option<Mat<f64>>) -> Self {
        Self { map: Some(map), direct, ..self }
    }

    /// Whether the difference to another system has a direct term in continuous time, of both as they are known; that of a system without
    /// a map, or made by a method, has to be computed. `gain` is the largest of both.
    pub fn direct_term_beside(&self, other: Option<&Self>, gain: f64) -> DirectTerm {
        let systems = [Some(self), other];
        let shape = (self.outputs(), self.inputs());
        let is_known = |system: &&Self| {
            let fits = system.direct.as_ref().is_none_or(|direct| (direct.nrows(), direct.ncols()) == shape);
            system.map.is_some() && fits
        };
        if !systems.iter().flatten().all(is_known) {
            return DirectTerm::Computed { gain };
        }
        let entry = |system: Option<&Self>, i: usize, j: usize| {
            system.and_then(|system| system.direct.as_ref()).map_or(0.0, |direct| direct[(i, j)])
        };
        let mut entries = (0..shape.0).flat_map(|i| (0..shape.1).map(move |j| (i, j)));
        DirectTerm::Known(entries.any(|(i, j)| entry(systems[0], i, j) != entry(systems[1], i, j)))
    }

    /// The bilinear map, where this system is the image of one in continuous time. Such an image has a direct term even where the original
    /// has none.
    pub fn map(&self) -> Option<Bilinear> {
        self.map
    }

    /// The same system, which is the image of these matrices in continuous time, state by state, up to the rounding of the map. Proofs
    /// are about them.
    ///
    /// # Errors
    /// Another number of states.
    pub fn with_image_of(self, matrices: Original) -> Result<Self> {
        check_shape("A in continuous time", matrices.a.as_ref(), (self.states(), self.states()))?;
        Ok(Self { image_of: Some(Arc::new(matrices)), ..self })
    }

    /// The same system, or the image of it by the map, which is stored as these matrices in other states.
    #[must_use]
    pub(crate) fn with_stored(self, stored: AsStored) -> Self {
        Self { stored: Some(Arc::new(stored)), ..self }
    }

    /// The matrices that are stored, where its states are others than theirs ([`near_normal`](crate::coordinates::near_normal)).
    pub fn stored(&self) -> Option<&AsStored> {
        self.stored.as_deref()
    }

    /// The matrices in continuous time that it is known to be the image of.
    pub fn image_of(&self) -> Option<&Original> {
        self.image_of.as_deref()
    }
}
