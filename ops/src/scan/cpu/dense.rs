//! The recurrence with a full state matrix, `[d, d]`: for systems that have no well-conditioned modal form (R5).

use super::recurrence::Direction;
use hankel_core::{Float, parallel};

/// `next += A state`, or `A^T state`.
fn advance<T: Float>(a: &[T], state: &[T], direction: Direction, next: &mut [T]) {
    let d = state.len();
    for (i, y) in next.iter_mut().enumerate() {
        for (j, &x) in state.iter().enumerate() {
            *y += x * if direction == Direction::Forward { a[i * d + j] } else { a[j * d + i] };
        }
    }
}

fn state_dim<T>(a: &[T]) -> usize {
    a.len().isqrt()
}

/// All states; as [`super::recurrence::scan`].
pub(super) fn scan<T: Float>(
    direction: Direction,
    a: &[T],
    steps: usize,
    u: &[T],
    initial: Option<&[T]>,
    states: &mut [T],
) {
    let d = state_dim(a);
    let size = steps * d;
    if size == 0 {
        return;
    }
    parallel::for_chunks(states, size, |batch, states| {
        states.copy_from_slice(&u[batch * size..][..size]);
        let mut state = initial.map(|initial| initial[batch * d..][..d].to_vec());
        for step in 0..steps {
            let t = if direction == Direction::Forward { step } else { steps - 1 - step };
            let next = &mut states[t * d..][..d];
            if let Some(state) = &state {
                advance(a, state, direction, next);
            }
            state = Some(next.to_vec());
        }
    });
}

/// `A^T lam_0` of each sequence.
pub(super) fn initial_gradient<T: Float>(a: &[T], steps: usize, lam: &[T], out: &mut [T]) {
    let d = state_dim(a);
    out.fill(T::zero());
    if steps * d > 0 {
        for (lam, out) in lam.chunks(steps * d).zip(out.chunks_mut(d)) {
            advance(a, &lam[..d], Direction::Backward, out);
        }
    }
}

/// `sum over t of lam_t s_{t-1}^T`, `[d, d]`: sums per sequence, added in order.
pub(super) fn gradient<T: Float>(a: &[T], steps: usize, lam: &[T], states: &[T], initial: Option<&[T]>) -> Vec<T> {
    let d = state_dim(a);
    let size = (steps * d).max(1);
    let add = |sum: &mut [T], lam: &[T], state: &[T]| {
        for (row, &l) in sum.chunks_mut(d).zip(lam) {
            row.iter_mut().zip(state).for_each(|(g, &s)| *g += l * s);
        }
    };
    let partial: Vec<Vec<T>> = parallel::collect(lam.len() / size, |b| {
        let (lam, states) = (&lam[b * size..][..size], &states[b * size..][..size]);
        let mut sum = vec![T::zero(); d * d];
        if let Some(initial) = initial {
            add(&mut sum, &lam[..d], &initial[b * d..][..d]);
        }
        for (lam, state) in lam[d..].chunks(d).zip(states.chunks(d)) {
            add(&mut sum, lam, state);
        }
        sum
    });
    partial.iter().fold(vec![T::zero(); d * d], |mut sum, part| {
        sum.iter_mut().zip(part).for_each(|(s, &p)| *s += p);
        sum
    })
}
