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

A figure is the mean over runs, of the test split where an experiment has one, else of the validation split. Differences are taken between rows of the same run: same seed, data, table and backbone.
Runs that repeat each other are units, seeds unless a claim names others; figures of one unit are averaged, and the interval of Student's t is over units. Beside it stands a hierarchical
bootstrap, which draws units at every level: of three units it is their range, narrower than it should be. Intervals of shares and of orders end where these do; a slope over tables (`dfa-window`) is the mean of its jackknife pseudo-values, with their interval. Units that do not differ at all are judged by a sign test; spreads take five of them.

A claim stands at a point when the 95 % interval is on the claimed side, or within the claimed range for a size and for the equality of two rows (two one-sided tests, each at 2.5 %). It has to
stand at every point of the grid that it is about; it is refuted where the interval of one point lies on the other side. Both have to hold after Holm's correction over all claims that figures
are held against, whatever else keeps them from a verdict; figures that are each held against a bound, and counts, are no tests. What is [computed](#computed) is counted, or a theorem, and no test either. A scale that is not complete by its plan, or where a run lacks a row
that a claim names, has figures and no verdict, and runs beside those planned do not count. Figures of which any two would agree, of other runs too, do not confirm an agreement.

Where an experiment has several learning rates, every row is taken at the one of its least validation loss, the mean over units, and its figures are of the test split, or there are none. Where all have one rate, as in the paper, they are compared all the same, and
the section of the experiment says so. What is
compared has to beat no adapter, and the predictor that sees one symbol where one is on record (`window_1`, `order_1`, on the validation split), else the best constant answer, and to have converged, at every point of the grid,
on average over its units; where what truncation leaves of one row is compared, the row has to. Of several rivals the chosen one has to beat no adapter, and all have to have converged, since any
might come to be chosen. One row by itself, too, is judged when it has converged, unless more training could only move it further to the side on which it is, at every point or at one that refutes the claim: stopping early does not show that a
row cannot learn, or that it does not diverge. That a row stays near chance says something only where a control, trained as long, does better. What training makes of a row (order, gate, contribution, poles) is judged when its training has converged and gained something. The best of several rivals is the one of the least
validation loss where figures are of the test split; else it is chosen on the figures themselves, and its p counts once for each rival. A run that diverged is an outcome: neither side is shown by
what is left. Beside another metric stands the paired difference of the losses, which training lowers.

| verdict | |
| --- | --- |
| confirmed | shown at every point, after the correction |
| confirmed in part | shown at every point that was run; the claim is about more |
| not confirmed | *undecided*: the interval includes the limit, or chance among so many tests could show it, or refute it; *the contrary*: it lies on the other side; *outside* the claimed range |
| true by construction | no data could have spoken against it |
| no comparison | a compared row is no better than the model without an adapter, or than a predictor that sees one symbol (the best constant where a task has none); or the control of a claim that a row stays near chance is not shown to do better |
| not converged | a row was still learning when it was stopped: the line through the validation losses of the last fifth, continued for as long, falls by 2 % of the gain over no adapter, or more, all on the validation split and on average over the runs of a point (of the loss itself where there is no gain, or, for a score that is judged alone, one of less than 2 % of it); a loss that rises in one run makes up for none that falls in another; or no curve is on record (results of before curves were kept). Rates fall to 0 by a cosine unless an experiment says otherwise, which makes the ends of curves level: a longer schedule may gain more than the line says. Where no loss of the last step is on record, the line ends at the evaluation before it (at scale `small`{TWO_POINTS}, it mostly has two points, at 80 and 90 % of the steps), and a part of what it continues was trained: such a row is called still learning rather too often |
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
