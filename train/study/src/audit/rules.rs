//! When a claim stands.

use crate::Cell;
use crate::claims::{self, Outcome};
use hankel_trainer::format::significant as number;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The section of the page.
pub(super) fn section(outcomes: &[Outcome], cells: &[Cell]) -> String {
    let named: Vec<String> = two_points(cells).iter().map(|name| format!("`{name}`")).collect();
    let named = match named.split_last() {
        None => String::new(),
        Some((last, [])) => format!(", and at `paper` in {last}"),
        Some((last, others)) => format!(", and at `paper` in {} and {last}", others.join(", ")),
    };
    RULES.replace("{TWO_POINTS}", &named) + &many_tests(outcomes)
}

/// Experiments at scale `paper` most of whose curves have two points in the last fifth, the last of them before the end.
fn two_points(cells: &[Cell]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let at_paper = || cells.iter().filter(|cell| cell.id.scale.as_deref() == Some("paper"));
    for cell in at_paper() {
        if !names.contains(&cell.id.experiment.as_str()) {
            names.push(&cell.id.experiment);
        }
    }
    names.retain(|name| {
        let own = at_paper().filter(|cell| cell.id.experiment == *name).filter_map(|cell| cell.result.as_ref());
        let trained: Vec<_> = own.flat_map(|result| &result.rows).filter_map(|row| row.training.as_ref()).collect();
        let has_two = trained.iter().filter(|training| {
            let last = training.curve.iter().filter(|(step, _)| 5 * step >= 4 * training.steps);
            last.clone().count() == 2 && last.clone().all(|(step, _)| *step < training.steps)
        });
        2 * has_two.count() > trained.len()
    });
    names
}

const RULES: &str = "
## Rules

Figures:

- A figure is the mean over runs, of the test split where an experiment has one, else of the validation split.
- Differences are between rows of the same run: same seed, data, table and backbone.
- Runs that repeat each other are units: seeds, unless a claim names others. Figures of one unit are averaged. The interval is Student's t over units.
- Beside it stands a hierarchical bootstrap, which draws units at every level. Of three units it is their range, narrower than it should be.
- Intervals are clipped to possible shares and orders. A slope over tables (`dfa-window`) is the mean of its jackknife pseudo-values, with their interval.
- Units that do not differ at all are judged by a sign test. Spreads take five units.
- Beside another metric stands the paired difference of the losses, which training lowers.

When a claim stands:

- It stands at a point when the 95 % interval is on the claimed side. A size, and the equality of two rows, needs the interval within the claimed range (two one-sided tests, each at 2.5 %).
- It has to stand at every point of the grid that it is about. It is refuted where the interval of one point lies on the other side.
- Both have to hold after Holm's correction over all tested claims, also those that get no verdict for other reasons. Counts, figures each compared with a bound, and what is [computed](#computed) are not tests.
- A scale that is not complete by its plan has figures and no verdict, and so has one where a run lacks a row that a claim names. Runs beside those planned do not count.
- A run that diverged is an outcome: the other runs show neither side.
- An agreement is not confirmed if any two figures agree, even those of different runs.

What is compared:

- A row has to beat `none` (no adapter) and the predictor that sees one symbol (`window_1` or `order_1`, on the validation split; the best constant answer if a task has neither), and to have converged. Both hold at every point of the grid, on average over its units.
- Where truncations of one row are compared, the row itself has to do both.
- Of several rivals the chosen one has to beat `none`, and all have to have converged, since any might be chosen. The chosen one has the least validation loss where figures are of the test split. Else it is chosen on the figures themselves, and its p counts once for each rival.
- Where an experiment has several learning rates, every row is taken at the one of its least validation loss, the mean over units. Its figures are of the test split, or there are none.
- Where all rows have one rate, as in the paper, they are compared all the same. The section of the experiment says so. An experiment of a single adapter has the rate of its plan.
- Where what is forgotten is compared, rows have to beat `none` in the loss. *As trained* is a task's metric on the validation split, where the test split has longer examples.

One row by itself:

- It is judged when it has converged, unless more training could only move it further to the side on which it is, at every point or at one that refutes the claim. Stopping early does not show that a row cannot learn, or that it does not diverge.
- That a row stays near chance says something only where a control, trained as long, does better.
- What training makes of a row (order, gate, contribution, poles) is judged when its training has converged and gained something.

When a row is still learning:

- The line through the validation losses of the last fifth, continued for as long, falls by 2 % of the gain over no adapter, or more. It does so on average over the runs of a point; a rising loss in one run does not offset a falling one in another. All losses are of the validation split.
- Where there is no gain (for a score judged alone: less than 2 % of the loss), the loss itself takes its place.
- Results of before curves were kept count as still learning.
- Rates fall to 0 by a cosine unless an experiment says otherwise, which makes the ends of curves level: a longer schedule may gain more than the line says.
- Where no loss of the last step is on record, the line ends at the evaluation before it, so part of the extrapolation was trained: such a row is called still learning somewhat too often. At scale `small`{TWO_POINTS}, the line mostly has two points, at 80 and 90 % of the steps.

| verdict | |
| --- | --- |
| confirmed | shown at every point, after the correction |
| confirmed in part | shown at every point that was run; the claim is about more |
| not confirmed | *undecided*: the interval includes the limit, or chance among so many tests could show it, or refute it; *the contrary*: it lies on the other side; *outside* the claimed range |
| true by construction | no data could have spoken against it |
| no comparison | a compared row does not beat what it has to, or the control of a claim that a row stays near chance is not shown to do better |
| not converged | a row was still learning when it was stopped |
| not measured, not testable here | what is missing |
";

/// How large an effect has to be for the first step of Holm's correction over all tests.
fn many_tests(outcomes: &[Outcome]) -> String {
    let tests = claims::test_count(outcomes).max(1);
    let least = |n: usize| {
        let student = StudentsT::new(0.0, 1.0, (n - 1) as f64).expect("some degrees of freedom");
        number(student.inverse_cdf(1.0 - 0.025 / tests as f64) / (n as f64).sqrt())
    };
    format!(
        "\nThe power in plans is that of a test by itself. Among {tests} tests the smallest p has to be below {}, for which the mean over three units has to be {} times\n\
         their standard deviation, over five {} times and over ten {} times: three units of the size of the paper's own effects cannot confirm them.\n",
        number(0.05 / tests as f64),
        least(3),
        least(5),
        least(10)
    )
}
