//! Units of the states that suit a realisation.

use crate::linalg::{eigenvalues, times_power_of_two};
use faer::{Mat, MatRef};

/// The scales of systems with loops between states settle in a few rounds; more would change nothing that matters.
const ROUNDS: usize = 50;

/// B and C are as large as A is fast up to this factor.
const ALIKE: f64 = 16.0;

/// Changes the units of the states until each block of states is driven, by B and by other blocks through A, as strongly as
/// it drives C and other blocks, within a factor of 4. `blocks` are the numbers of states that share a unit. A is [d, d], B
/// [d, m], C [p, d]; units change by powers of two, so that every digit stays.
///
/// A block that nothing drives, or that drives nothing, is not part of the transfer function: it is cut off, since its size
/// would say nothing.
///
/// Returns the unit of every state: what it was multiplied by, 0 where it was cut off.
///
/// The idea is that of SLICOT's TB01ID and LAPACK's GEBAL: every change lowers the sum of the moduli of all entries.
pub fn balance(a: &mut Mat<f64>, b: &mut Mat<f64>, c: &mut Mat<f64>, blocks: &[usize]) -> Vec<f64> {
    let d = a.nrows();
    let mut units = vec![1.0; d];
    for _ in 0..ROUNDS {
        let mut settled = true;
        let mut first = 0;
        for &states in blocks {
            let block = first..first + states;
            first = block.end;
            let others = || (0..d).filter(|j| !block.contains(j));
            let (mut driven, mut drives) = (0.0, 0.0);
            for i in block.clone() {
                driven += (0..b.ncols()).map(|j| b[(i, j)].abs()).sum::<f64>();
                driven += others().map(|j| a[(i, j)].abs()).sum::<f64>();
                drives += (0..c.nrows()).map(|j| c[(j, i)].abs()).sum::<f64>();
                drives += others().map(|j| a[(j, i)].abs()).sum::<f64>();
            }
            if driven == 0.0 && drives == 0.0 {
                continue;
            }
            let apart = driven == 0.0 || drives == 0.0;
            let factor = if apart { 0.0 } else { (0.5 * (drives.log2() - driven.log2())).trunc().exp2() };
            if factor == 1.0 {
                continue;
            }
            settled = false;
            let over = |x: f64| if apart { 0.0 } else { x / factor };
            for i in block.clone() {
                units[i] *= factor;
                (0..b.ncols()).for_each(|j| b[(i, j)] *= factor);
                (0..c.nrows()).for_each(|j| c[(j, i)] = over(c[(j, i)]));
                for j in others() {
                    a[(i, j)] *= factor;
                    a[(j, i)] = over(a[(j, i)]);
                }
            }
        }
        if settled {
            break;
        }
    }
    units
}

/// The diagonal of T, powers of two, with which `T^-1 A T, T^-1 B, C T` have states in units that suit; ones where that would
/// overflow. A chain of integrators has no loop by which A alone would tell. What inputs and outputs are counted in changes nothing.
///
/// A system in discrete time is taken to be no slower than a step (`rate` 1): poles at 0, of which rounding leaves any small number, say
/// nothing of units. In continuous time, `rate` 0, the fastest pole alone tells.
pub fn suitable_units(a: MatRef<'_, f64>, b: MatRef<'_, f64>, c: MatRef<'_, f64>, rate: f64) -> Vec<f64> {
    let d = a.nrows();
    let (mut balanced, mut driven, mut read) = (a.to_owned(), b.to_owned(), c.to_owned());
    let mut changes = balance(&mut balanced, &mut driven, &mut read, &vec![1; d]);
    let fastest = eigenvalues(a).map_or(0.0, |poles| poles.iter().map(|pole| pole.norm()).fold(rate, f64::max));
    for _ in 0..ROUNDS {
        // Without loops in A, balancing gives B, C and the couplings one size, whatever the poles' speed. So B and C are scaled to it.
        let sizes = [&driven, &read].map(Mat::norm_max);
        let far = fastest / (sizes[0].sqrt() * sizes[1].sqrt());
        if !(far.is_finite() && far > 0.0) || (1.0 / ALIKE..=ALIKE).contains(&far) {
            break;
        }
        let alike = |m: &Mat<f64>, size: f64| times_power_of_two(m.as_ref(), (fastest / size).log2().round() as i32);
        (driven, read) = (alike(&driven, sizes[0]), alike(&read, sizes[1]));
        let more = balance(&mut balanced, &mut driven, &mut read, &vec![1; d]);
        changes.iter_mut().zip(more).for_each(|(change, more)| *change *= more);
    }
    // 0 is a state that nothing drives or reads.
    let units: Vec<f64> = changes.into_iter().map(|change| if change == 0.0 { 1.0 } else { 1.0 / change }).collect();
    let fits = |i: usize| {
        (0..d).all(|j| (a[(i, j)] / units[i] * units[j]).is_finite())
            && (0..b.ncols()).all(|j| (b[(i, j)] / units[i]).is_finite())
            && (0..c.nrows()).all(|j| (c[(j, i)] * units[i]).is_finite())
    };
    if (0..d).all(fits) { units } else { vec![1.0; d] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(b: &Mat<f64>, c: &Mat<f64>) -> Vec<(f64, f64)> {
        (0..b.nrows()).map(|i| (b.row(i).norm_l2(), c.col(i).norm_l2())).collect()
    }

    #[test]
    fn states_of_any_unit_come_out_alike() {
        let unit = |i: usize| 2_f64.powi(60 - 40 * i as i32);
        let (a, b, c) = (
            Mat::from_fn(4, 4, |i, j| 0.1 * ((i + 3 * j) as f64).cos()),
            Mat::from_fn(4, 2, |i, j| ((i + 2 * j) as f64).sin() + 2.0),
            Mat::from_fn(3, 4, |i, j| ((2 * i + j) as f64).cos() + 2.0),
        );
        let mut found = (
            Mat::from_fn(4, 4, |i, j| a[(i, j)] * unit(i) / unit(j)),
            Mat::from_fn(4, 2, |i, j| b[(i, j)] * unit(i)),
            Mat::from_fn(3, 4, |i, j| c[(i, j)] / unit(j)),
        );
        balance(&mut found.0, &mut found.1, &mut found.2, &[1; 4]);
        for (b, c) in sizes(&found.1, &found.2) {
            assert!((0.1..10.0).contains(&(b / c)), "{b} {c}");
        }
        // A change of coordinates by powers of two, digit by digit.
        let turned = |i: usize| found.1[(i, 0)] / b[(i, 0)];
        for i in 0..4 {
            assert_eq!(turned(i).log2().fract(), 0.0);
            for j in 0..4 {
                assert_eq!(found.0[(i, j)], a[(i, j)] * turned(i) / turned(j));
            }
            assert_eq!(found.2[(1, i)], c[(1, i)] / turned(i));
        }
    }

    #[test]
    fn both_states_of_a_pair_keep_one_unit() {
        let mut a = Mat::from_fn(3, 3, |i, j| [[0.5, -0.2, 0.0], [0.2, 0.5, 0.0], [0.0, 0.0, 0.9]][i][j]);
        let before = a.clone();
        let mut b = Mat::from_fn(3, 1, |i, _| [1e12, 0.0, 1e-3][i]);
        let mut c = Mat::from_fn(1, 3, |_, j| [0.0, 1.0, 1e6][j]);
        balance(&mut a, &mut b, &mut c, &[2, 1]);
        assert_eq!(a, before);
        assert!((0.25..=4.0).contains(&(b[(0, 0)] / c[(0, 1)])) && (0.25..=4.0).contains(&(b[(2, 0)] / c[(0, 2)])));
        assert_eq!((b[(0, 0)] * c[(0, 1)], b[(2, 0)] * c[(0, 2)]), (1e12, 1e-3 * 1e6));
    }

    #[test]
    fn what_is_no_part_of_the_transfer_function_is_cut_off() {
        // State 1 is driven by nothing, state 2 only by it; state 3 is not seen.
        let mut a = Mat::from_fn(4, 4, |i, j| if i == j { 0.5 } else { f64::from(u8::from((i, j) == (2, 1))) * 1e9 });
        let mut b = Mat::from_fn(4, 1, |i, _| [1.0, 0.0, 0.0, 1e20][i]);
        let mut c = Mat::from_fn(1, 4, |_, j| [1.0, 1e20, 1e20, 0.0][j]);
        balance(&mut a, &mut b, &mut c, &[1; 4]);
        assert_eq!(a, Mat::<f64>::identity(4, 4) * faer::Scale(0.5));
        assert_eq!(sizes(&b, &c), [(1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]);
    }
}
