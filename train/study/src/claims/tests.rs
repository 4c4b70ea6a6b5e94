//! Claims evaluated on cells with known figures.

mod comparison;
mod counted;

use super::*;
use crate::CellId;
use crate::testing::result;
use hankel_trainer::results::{AdapterResult, Scores, TaskResult, TrainingResult};
use std::collections::BTreeMap;

/// A row whose loss is 1 less its accuracy, and level at the end of its training.
fn row(name: &str, accuracy: f64) -> AdapterResult {
    let loss = 1.0 - accuracy;
    AdapterResult {
        name: name.into(),
        training: Some(TrainingResult { steps: 100, curve: vec![(80, loss), (90, loss)], ..TrainingResult::default() }),
        validation: Scores {
            metrics: BTreeMap::from([("accuracy".into(), accuracy), ("loss".into(), loss)]),
            ..Scores::default()
        },
        ..AdapterResult::default()
    }
}

/// A cell with these accuracies; without an adapter it is 0.2.
fn cell(length: u32, seed: u32, rows: &[(&str, f64)]) -> Cell {
    let mut result = result();
    result.rows = [("none", 0.2)].iter().chain(rows).map(|&(name, accuracy)| row(name, accuracy)).collect();
    result.task = TaskResult {
        baselines: BTreeMap::from([("window_1".into(), 0.4)]),
        primary_metric: "accuracy".into(),
        ..TaskResult::default()
    };
    let axes = vec![("length".to_owned(), length.to_string()), ("seed".to_owned(), seed.to_string())];
    Cell {
        id: CellId { experiment: "e".into(), scale: Some("small".into()), axes },
        result: Some(result),
        ..Cell::default()
    }
}

fn claim(text: &str) -> Claim {
    toml::from_str(&format!("id = \"i\"\nexperiment = \"e\"\npaper = \"p\"\nours = \"o\"\n{text}")).unwrap()
}

const AHEAD: &str =
    "measure = { of = \"accuracy\", row = \"hrm\", against = \"lora\", by = \"length\" }\nexpect = { above = 0.0 }";

fn cells(gaps: &[(u32, &[f64])]) -> Vec<Cell> {
    let one = |length: u32, seed: usize, gap: f64| {
        let base = 0.5 + 0.1 * seed as f64;
        cell(length, seed as u32, &[("lora", base), ("hrm", base + gap)])
    };
    gaps.iter()
        .flat_map(|(length, gaps)| gaps.iter().enumerate().map(move |(seed, gap)| one(*length, seed, *gap)))
        .collect()
}

#[test]
fn the_list_is_sound() {
    let claims = all();
    assert!(claims.len() > 30);
    for (index, claim) in claims.iter().enumerate() {
        assert!(claims[..index].iter().all(|other| other.id != claim.id), "{} twice", claim.id);
        assert!(claim.points > 0 || claim.measure.by.is_empty(), "{}: at how many points?", claim.id);
        assert!(!claim.paper.is_empty() && !claim.ours.is_empty() && !claim.scales.is_empty(), "{}", claim.id);
        assert!(claim.scales.iter().all(|scale| scale != SMOKE), "{}", claim.id);
        let is_range = matches!(claim.expect, Expect::Within(..));
        assert!(claim.control.is_none() || is_range, "{}: a control has to leave a range", claim.id);
        let outcome = claim.evaluate_alone(&[], &[]);
        assert!(matches!(outcome.verdict, Verdict::NotMeasured(_) | Verdict::NotTestable(_)), "{}", claim.id);
    }
}

/// Seeds differ much more than adapters do: only pairs can tell.
#[test]
fn pairs_decide() {
    let claim = claim(AHEAD);
    let verdict = |gaps: &[(u32, &[f64])]| claim.evaluate_alone(&cells(gaps), &[]).verdict;
    assert_eq!(verdict(&[(64, &[0.02, 0.021, 0.019]), (128, &[0.03, 0.031, 0.03])]), Verdict::Confirmed);
    assert_eq!(
        verdict(&[(64, &[0.02, 0.021, 0.019]), (128, &[-0.03, -0.031, -0.03])]),
        Verdict::NotConfirmed("the contrary at length 128".into())
    );
    assert_eq!(verdict(&[(64, &[0.02, -0.021, 0.019])]), Verdict::Undecided("undecided at length 64".into()));
    assert!(matches!(verdict(&[(64, &[0.02])]), Verdict::NotMeasured(why) if why.contains("more seeds")));
    assert!(matches!(verdict(&[]), Verdict::NotMeasured(why) if why == "not run yet"));
    let mut smoke = cells(&[(64, &[0.02, 0.021])]);
    smoke.iter_mut().for_each(|cell| cell.id.scale = Some(SMOKE.into()));
    let outcome = claim.evaluate_alone(&smoke, &[]);
    assert!(matches!(outcome.verdict, Verdict::NotMeasured(_)) && outcome.measured.groups.len() == 1);
}

#[test]
fn trends_ratios_baselines_and_other_cells() {
    let cells = cells(&[(64, &[0.01, 0.02, 0.03]), (256, &[0.048, 0.06, 0.072])]);
    let outcome_of = |text: &str| {
        let claim = claim(text);
        let Outcome { measured, verdict, .. } = claim.evaluate_alone(&cells, &[]);
        (measured.groups, verdict)
    };
    let (groups, verdict) = outcome_of(
        "measure = { of = \"accuracy\", row = \"hrm\", against = \"lora\", trend = \"length\" }\nexpect = { above = 0.0 }",
    );
    assert_eq!((groups.len(), verdict), (1, Verdict::Confirmed));
    assert!((groups[0].summary.mean - 0.02).abs() < 1e-12, "two doublings, 0.04 more");
    let (groups, verdict) = outcome_of(
        "measure = { of = \"accuracy\", row = \"lora\", against = \"window_1\", combine = \"spread\", where = { length = \"64\" } }\n\
         expect = { above = 0.0 }",
    );
    assert_eq!(verdict, Verdict::NotMeasured("a spread takes 5 runs of each kind".into()));
    assert!((groups[0].summary.mean - 0.2 / 3.0).abs() < 1e-12);
    let (groups, _) = outcome_of(
        "measure = { of = \"accuracy\", row = \"lora\", against = \"window_1\", combine = \"ratio\", where = { length = \"64\" } }\n\
         expect = { within = [1.5, 1.5] }",
    );
    let expected = (0.5 / 0.4 + 0.6 / 0.4 + 0.7 / 0.4) / 3.0;
    assert!((groups[0].summary.mean - expected).abs() < 1e-12 && groups[0].summary.n == 3);
    let (groups, verdict) = outcome_of(
        "measure = { of = \"accuracy\", row = \"hrm\", against = \"hrm\", where = { length = \"256\" }, against_where = { length = \"64\" } }\n\
         expect = { within = [0.03, 0.05] }",
    );
    assert_eq!(verdict, Verdict::Confirmed);
    assert!((groups[0].summary.mean - 0.04).abs() < 1e-12);
    let (groups, verdict) =
        outcome_of("measure = { of = \"accuracy\", row = [\"lora\", \"hrm\"] }\nexpect = { at_most = 0.6 }");
    assert_eq!(verdict, Verdict::NotConfirmed("outside".into()));
    assert!((groups[0].largest() - 0.772).abs() < 1e-12);
    let (_, verdict) = outcome_of("measure = { of = \"accuracy\", row = \"dora\" }\nexpect = { above = 0.0 }");
    assert!(matches!(verdict, Verdict::NotMeasured(_)));
}

#[test]
fn divergence_is_an_outcome() {
    let mut cells = cells(&[(64, &[0.0, 0.0])]);
    cells[0] = Cell { diverged: Some("not finite".into()), result: None, ..cells[0].clone() };
    let share = claim("measure = { of = \"diverged\", row = \"hrm\" }\nexpect = { each_within = [1.0, 1.0] }");
    let outcome = share.evaluate_alone(&cells, &[]);
    assert_eq!((outcome.measured.groups[0].summary.mean, outcome.measured.diverged), (0.5, 1));
    assert!(matches!(outcome.verdict, Verdict::NotConfirmed(_)));
    assert!(matches!(claim(AHEAD).evaluate_alone(&cells, &[]).verdict, Verdict::NotMeasured(_)), "one pair is left");
}

/// A row that was run by itself and diverged takes nothing from the others of its cell.
#[test]
fn a_diverged_row_is_an_outcome_of_that_row() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019, 0.02])]);
    let verdict = |cells: &[Cell]| claim(AHEAD).evaluate_alone(cells, &[]).verdict;
    cells[3].diverged_rows.insert("dora".into(), "not finite".into());
    assert_eq!(verdict(&cells), Verdict::Confirmed);
    let share = |row: &str, cells: &[Cell]| {
        let text = format!("measure = {{ of = \"diverged\", row = \"{row}\" }}\nexpect = {{ at_most = 0.0 }}");
        claim(&text).evaluate_alone(cells, &[]).measured.groups[0].summary.mean
    };
    assert_eq!((share("hrm", &cells), share("dora", &cells)), (0.0, 0.25));
    cells[3].diverged_rows.insert("lora".into(), "not finite".into());
    cells[3].result.as_mut().unwrap().rows.retain(|row| row.name != "lora");
    assert_eq!(verdict(&cells), Verdict::Undecided("undecided: shown by the runs with figures, but 1 diverged".into()));
}

/// A point that speaks against a claim is not hidden by one where nothing came out.
#[test]
fn what_refutes_a_claim_counts_whatever_is_missing() {
    let mut cells = cells(&[(64, &[-0.02, -0.021, -0.019]), (128, &[0.03])]);
    let verdict = |cells: &[Cell]| claim(AHEAD).evaluate_alone(cells, &[]).verdict;
    assert_eq!(verdict(&cells), Verdict::NotConfirmed("the contrary at length 64".into()));
    cells[3] = Cell { diverged: Some("not finite".into()), result: None, ..cells[3].clone() };
    assert_eq!(verdict(&cells), Verdict::NotConfirmed("the contrary at length 64".into()));
}

#[test]
fn figures_that_do_not_differ_are_a_sign_test() {
    let orders = |n: u32, order: f64| -> Vec<Cell> { (0..n).map(|seed| cell(64, seed, &[("hrm", order)])).collect() };
    let above = claim("measure = { of = \"accuracy\", row = \"hrm\" }\nexpect = { above = 0.5 }");
    assert!(matches!(above.evaluate_alone(&orders(5, 0.6), &[]).verdict, Verdict::NotMeasured(_)));
    let outcome = above.evaluate_alone(&orders(6, 0.6), &[]);
    assert_eq!((above.expect.p(&outcome.measured.groups[0]), outcome.verdict), (Some(0.03125), Verdict::Confirmed));
    assert_eq!(above.expect.p_against(&outcome.measured.groups[0]), Some(1.0));
}

/// An interval that reaches beyond what is possible is within a range that ends there.
#[test]
fn ranges_end_where_figures_do() {
    let cells: Vec<Cell> =
        [1.0, 0.99, 1.0, 1.0, 1.0].iter().zip(0..).map(|(&a, seed)| cell(64, seed, &[("hrm", a)])).collect();
    let within = |range: &str| {
        let text = format!("measure = {{ of = \"accuracy\", row = \"hrm\" }}\nexpect = {{ within = {range} }}");
        let claim = claim(&text);
        let outcome = claim.evaluate_alone(&cells, &[]);
        (outcome.verdict.name(), claim.expect.p(&outcome.measured.groups[0]).unwrap())
    };
    let (verdict, p) = within("[0.95, 1.0]");
    assert!(verdict == "confirmed" && p < 1e-3, "{p}");
    assert_eq!(within("[0.95, 0.999]").0, "not confirmed");
}

#[test]
fn figures_that_are_not_finite_hold_nothing() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    let row = |cell: &mut Cell| cell.result.as_mut().unwrap().rows.iter_mut().find(|row| row.name == "hrm").cloned();
    let mut bad = row(&mut cells[1]).unwrap();
    bad.validation.metrics.insert("accuracy".into(), f64::NAN);
    *cells[1].result.as_mut().unwrap().rows.iter_mut().find(|row| row.name == "hrm").unwrap() = bad;
    let most = claim("measure = { of = \"accuracy\", row = \"hrm\" }\nexpect = { at_most = 0.9 }");
    let outcome = most.evaluate_alone(&cells, &[]);
    assert_eq!((outcome.verdict, outcome.measured.diverged), (Verdict::NotConfirmed("outside".into()), 1));
}

/// A point of the grid where every run diverged is not passed over, and one that was not run is counted.
#[test]
fn points_without_figures() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019]), (128, &[0.03, 0.031, 0.03])]);
    let nine = claim(&format!("points = 9\n{AHEAD}"));
    let verdict = nine.evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::InPart("at 2 of 9 points".into()));
    assert_eq!(claim(&format!("points = 2\n{AHEAD}")).evaluate_alone(&cells, &[]).verdict, Verdict::Confirmed);
    for cell in cells.iter_mut().filter(|cell| cell.id.axis("length") == Some("128")) {
        *cell = Cell { diverged: Some("not finite".into()), result: None, ..cell.clone() };
    }
    let verdict = nine.evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::NotMeasured("no figures at length 128, 3 runs diverged".into()));
    let slope = "measure = { of = \"accuracy\", row = \"hrm\", against = \"lora\", trend = \"length\" }\nexpect = { above = 0.0 }";
    let verdict = claim(slope).evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::NotMeasured("a slope takes several values of length, 3 runs diverged".into()));
}

#[test]
fn a_scale_that_is_not_finished_does_not_hide_one_that_is() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    let mut first = cells[0].clone();
    first.id.scale = Some("full".into());
    cells.push(first);
    let outcome_of = claim(AHEAD);
    let plan = |lengths: u32| {
        let axes =
            |length: u32, seed: u32| vec![("length".into(), length.to_string()), ("seed".into(), seed.to_string())];
        let planned = (0..lengths).flat_map(|length| (0..3).map(move |seed| axes(64 + length, seed)));
        Plan {
            experiment: "e".into(),
            scale: Some("full".into()),
            cells: planned.collect(),
            text: None,
            shares_rate: false,
        }
    };
    let outcome = outcome_of.evaluate_alone(&cells, &[plan(1)]);
    assert_eq!((outcome.scale.as_deref(), outcome.verdict), (Some("small"), Verdict::Confirmed));
    // Nor does one of which enough is there for an interval, but not what was planned.
    let mut more = cells[..3].to_vec();
    more.iter_mut().for_each(|cell| cell.id.scale = Some("full".into()));
    cells.truncate(3);
    cells.extend(more);
    let scale = |planned: u32| {
        let outcome = outcome_of.evaluate_alone(&cells, &[plan(planned)]);
        (outcome.scale, outcome.elsewhere.len(), outcome.verdict.name())
    };
    assert_eq!(scale(1), (Some("full".into()), 1, "confirmed"));
    assert_eq!(scale(2), (Some("small".into()), 1, "confirmed"));
    let verdict = outcome_of.evaluate_alone(&cells[3..], &[plan(2)]).verdict;
    assert_eq!(verdict, Verdict::NotMeasured("3 of the 6 runs planned at scale `full` are there".into()));
}

/// Cells of another shape than the measure asks for are compared with nothing, not with themselves.
#[test]
fn a_partner_has_the_axes_that_are_asked_for() {
    let cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    let claim = claim(
        "measure = { of = \"accuracy\", row = \"hrm\", against = \"hrm\", against_where = { task = \"text\" } }\n\
         expect = { above = -1.0 }",
    );
    assert_eq!(claim.evaluate_alone(&cells, &[]).verdict.name(), "not measured");
}

/// Numbers that are normal and nothing else, by Box and Muller from a linear congruence.
fn normals() -> impl Iterator<Item = f64> {
    let mut state = 1_u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    std::iter::from_fn(move || Some((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()))
}

/// 67 claims of no difference in truth: chance confirms one of them in at most 5 % of such studies, refutes one in at most as many, and does
/// either in most without the correction.
#[test]
fn chance_confirms_at_the_nominal_rate() {
    const STUDIES: usize = 60;
    let claims: Vec<Claim> = (0..67)
        .map(|i| {
            claim(&format!(
                "measure = {{ of = \"accuracy\", row = \"r{i}\", against = \"lora\" }}\nexpect = {{ above = 0.0 }}"
            ))
        })
        .collect();
    let mut noise = normals();
    let (mut alone, mut together, mut refuted_alone, mut refuted) = (0, 0, 0, 0);
    for _ in 0..STUDIES {
        let cells: Vec<Cell> = (0..5)
            .map(|seed| {
                let names: Vec<String> = (0..67).map(|i| format!("r{i}")).collect();
                let mut rows: Vec<(&str, f64)> =
                    names.iter().map(|name| (name.as_str(), 0.5 + 0.01 * noise.next().unwrap())).collect();
                rows.push(("lora", 0.5));
                cell(64, seed, &rows)
            })
            .collect();
        let confirmed = |outcome: &Outcome| outcome.verdict == Verdict::Confirmed;
        alone += usize::from(claims.iter().any(|claim| confirmed(&claim.evaluate_alone(&cells, &[]))));
        let outcomes = evaluate(&claims, &cells, &[]);
        together += usize::from(outcomes.iter().any(confirmed));
        let contrary = |outcome: &Outcome| matches!(outcome.verdict, Verdict::NotConfirmed(_));
        refuted_alone += usize::from(claims.iter().any(|claim| contrary(&claim.evaluate_alone(&cells, &[]))));
        refuted += usize::from(outcomes.iter().any(contrary));
    }
    // 0.05 of 60 and two standard deviations.
    assert!(together <= 6, "{together} of {STUDIES}");
    assert!(alone > STUDIES / 2, "{alone} of {STUDIES}");
    assert!(refuted <= 6 && refuted_alone > STUDIES / 2, "{refuted} and {refuted_alone} of {STUDIES}");
}

#[test]
fn what_is_clear_stands_the_correction() {
    let claims = [claim(AHEAD), claim(&AHEAD.replace("above = 0.0", "above = 0.0195"))];
    let cells = cells(&[(64, &[0.02, 0.021, 0.0195, 0.0205, 0.0202])]);
    let outcomes = evaluate(&claims, &cells, &[]);
    assert_eq!(outcomes[0].verdict, Verdict::Confirmed);
    let [first, second] = [0, 1].map(|i| outcomes[i].test.unwrap());
    assert_eq!((first.tests, first.holm), (2, 2.0 * first.p));
    assert!(first.p < second.p && second.holm == second.p);
}

#[test]
fn a_claim_that_nothing_can_refute_is_called_so() {
    let claim = claim(&format!("by_construction = \"it is so\"\n{AHEAD}"));
    let verdict = |gaps: &[f64]| claim.evaluate_alone(&cells(&[(64, gaps)]), &[]).verdict;
    assert_eq!(verdict(&[0.02, 0.021, 0.019]), Verdict::ByConstruction("it is so".into()));
    assert_eq!(verdict(&[-0.02, 0.03, 0.019]).name(), "true by construction");
    // What is measured counts more than what was thought.
    assert_eq!(verdict(&[-0.02, -0.021, -0.019]), Verdict::NotConfirmed("the contrary at length 64".into()));
}

#[test]
fn a_size_is_judged_by_its_interval() {
    let size = claim(&AHEAD.replace("above = 0.0", "within = [0.01, 0.03]"));
    let verdict = |gaps: &[f64]| size.evaluate_alone(&cells(&[(64, gaps)]), &[]).verdict;
    assert_eq!(verdict(&[0.02, 0.021, 0.019]), Verdict::Confirmed);
    // The mean is as before; nobody knows where the true one is.
    assert_eq!(verdict(&[-0.02, 0.06, 0.02]), Verdict::Undecided("undecided at length 64".into()));
    assert_eq!(verdict(&[0.05, 0.051, 0.049]), Verdict::NotConfirmed("outside at length 64".into()));
}

/// Ten seeds on each of three tables that differ: thirty runs are three units, and the interval that takes them for thirty is wrong.
#[test]
fn seeds_within_tables_count_once_for_each_table() {
    let gap = [0.03, -0.01, 0.05];
    let cells: Vec<Cell> = (0..30)
        .map(|i| {
            let (table, seed) = (i / 10, i % 10);
            let mut cell =
                cell(64, seed, &[("lora", 0.5), ("hrm", 0.5 + gap[table as usize] + 1e-4 * f64::from(seed))]);
            cell.id.axes.push(("table".into(), table.to_string()));
            cell
        })
        .collect();
    let naive = claim(&AHEAD.replace("by = \"length\"", "units = [\"seed\", \"table\"]"));
    let nested = claim(&AHEAD.replace("by = \"length\"", "units = [\"table\", \"seed\"]"));
    assert_eq!(naive.evaluate_alone(&cells, &[]).verdict, Verdict::Confirmed);
    // Cells that nothing says to repeat each other are one.
    let none = claim(&AHEAD.replace("by = \"length\"", "units = []"));
    let none = none.evaluate_alone(&cells, &[]);
    assert_eq!((none.measured.groups[0].summary.n, none.verdict.name()), (1, "not measured"));
    let outcome = nested.evaluate_alone(&cells, &[]);
    assert_eq!(outcome.verdict, Verdict::Undecided("undecided".into()));
    let group = &outcome.measured.groups[0];
    assert_eq!((group.summary.n, group.values.len()), (3, 30));
    let (low, high) = group.bootstrap();
    assert!(low < -0.005 && high > 0.045, "{low} {high}");
}

#[test]
fn rank_correlations_are_taken_within_a_seed() {
    // Orders 2, 4 and 8 in place of lengths; what is left grows with them on all seeds, at levels of their own.
    let grows = |seed: u32, length: u32| 0.2 + 0.1 * f64::from(seed) + 0.01 * f64::from(length);
    let cells: Vec<Cell> = [2, 4, 8]
        .iter()
        .flat_map(|&length| (0..6).map(move |seed| cell(length, seed, &[("hrm", grows(seed, length)), ("lora", 0.5)])))
        .collect();
    let of = |row: &str| {
        let text = format!(
            "measure = {{ of = \"accuracy\", row = \"{row}\", spearman = \"length\" }}\nexpect = {{ above = 0.5 }}"
        );
        let claim = claim(&text);
        let Outcome { measured, verdict, .. } = claim.evaluate_alone(&cells, &[]);
        (measured.groups[0].values.clone(), verdict)
    };
    assert_eq!(of("hrm"), (vec![1.0; 6], Verdict::Confirmed));
    assert_eq!(of("lora"), (vec![0.0; 6], Verdict::NotConfirmed("the contrary".into())));
}

/// On one seed the figure falls along the axis, on the others it grows: Student's t alone would reach beyond 1.
#[test]
fn intervals_of_correlations_end_where_correlations_do() {
    let figure = |seed: u32, length: u32| if seed == 0 { -f64::from(length) } else { f64::from(length) };
    let cells: Vec<Cell> =
        [2, 4, 8].iter().flat_map(|&n| (0..3).map(move |seed| cell(n, seed, &[("hrm", figure(seed, n))]))).collect();
    let claim =
        claim("measure = { of = \"accuracy\", row = \"hrm\", spearman = \"length\" }\nexpect = { above = 0.5 }");
    let Outcome { measured, .. } = claim.evaluate_alone(&cells, &[]);
    let estimate = measured.groups[0].estimate(0.0).unwrap();
    assert_eq!((estimate.summary.mean * 3.0, estimate.interval), (1.0, (-1.0, 1.0)));
}

/// Two one-sided tests: of rows that are equal, noise apart, enough runs say so; few do not, and a difference of the margin is not equality.
#[test]
fn equivalence_takes_more_than_no_difference() {
    let equal = claim(&AHEAD.replace("above = 0.0", "within = [-0.02, 0.02]"));
    let mut noise = normals();
    let mut share = |runs: usize, gap: f64| {
        let found = (0..100).filter(|_| {
            let gaps: Vec<f64> = (0..runs).map(|_| gap + 0.02 * noise.next().unwrap()).collect();
            equal.evaluate_alone(&cells(&[(64, &gaps)]), &[]).verdict == Verdict::Confirmed
        });
        found.count()
    };
    let (few, many, margin) = (share(3, 0.0), share(20, 0.0), share(20, 0.02));
    assert!(few < 20 && many > 90 && margin <= 7, "{few} {many} {margin}");
}

/// The lead of a row that falls by 0.5 for each unit of what a predictor tells, give or take a little; and one that does not depend on it.
#[test]
fn leads_are_regressed_over_units() {
    let claim = claim(
        "measure = { of = \"accuracy\", row = \"hrm\", against = \"lora\", on = \"window_4\" }\nexpect = { below = 0.0 }",
    );
    let cells = |slope: f64| -> Vec<Cell> {
        let one = |seed: u32, noise: f64| {
            let tells = 0.3 + 0.05 * f64::from(seed);
            let mut cell = cell(64, seed, &[("lora", 0.6), ("hrm", 0.7 + slope * tells + noise)]);
            cell.result.as_mut().unwrap().task.baselines.insert("window_4".into(), tells);
            cell
        };
        [0.0, 0.01, -0.01, 0.005, -0.01, 0.01, -0.005, 0.0]
            .into_iter()
            .zip(0..)
            .map(|(noise, seed)| one(seed, noise))
            .collect()
    };
    let falling = claim.evaluate_alone(&cells(-0.5), &[]);
    assert_eq!(falling.verdict, Verdict::Confirmed);
    assert!((falling.measured.groups[0].summary.mean + 0.5).abs() < 0.05, "{:?}", falling.measured.groups);
    assert!(matches!(claim.evaluate_alone(&cells(0.0), &[]).verdict, Verdict::Undecided(_)));
    // Too few units for a line.
    let verdict = claim.evaluate_alone(&cells(-0.5)[..3], &[]).verdict;
    assert_eq!(verdict, Verdict::NotMeasured("a slope on window_4 takes four units, and several values of it".into()));
}
