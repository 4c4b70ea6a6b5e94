//! Claims evaluated on cells with known figures.

use super::*;
use crate::CellId;
use crate::testing::result;
use hankel_trainer::results::{AdapterResult, Scores, TaskResult};
use std::collections::BTreeMap;

fn cell(length: u32, seed: u32, rows: &[(&str, f64)]) -> Cell {
    let row = |&(name, accuracy): &(&str, f64)| AdapterResult {
        name: name.into(),
        validation: Scores { metrics: BTreeMap::from([("accuracy".into(), accuracy)]), ..Scores::default() },
        ..AdapterResult::default()
    };
    let mut result = result();
    result.rows = rows.iter().map(row).collect();
    result.task = TaskResult {
        baselines: BTreeMap::from([("window_1".into(), 0.4)]),
        primary_metric: "accuracy".into(),
        ..TaskResult::default()
    };
    let axes = vec![("length".to_owned(), length.to_string()), ("seed".to_owned(), seed.to_string())];
    Cell {
        id: CellId { experiment: "e".into(), scale: Some("small".into()), axes },
        diverged: None,
        result: Some(result),
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
        assert!(!claim.paper.is_empty() && !claim.ours.is_empty() && !claim.scales.is_empty(), "{}", claim.id);
        assert!(claim.scales.iter().all(|scale| scale != SMOKE), "{}", claim.id);
        let outcome = claim.evaluate(&[]);
        assert!(matches!(outcome.verdict, Verdict::NotMeasured(_) | Verdict::NotTestable(_)), "{}", claim.id);
    }
}

/// Seeds differ much more than adapters do: only pairs can tell.
#[test]
fn pairs_decide() {
    let claim = claim(AHEAD);
    let verdict = |gaps: &[(u32, &[f64])]| claim.evaluate(&cells(gaps)).verdict;
    assert_eq!(verdict(&[(64, &[0.02, 0.021, 0.019]), (128, &[0.03, 0.031, 0.03])]), Verdict::Confirmed(String::new()));
    assert_eq!(
        verdict(&[(64, &[0.02, 0.021, 0.019]), (128, &[-0.03, -0.031, -0.03])]),
        Verdict::NotConfirmed("the contrary at length 128".into())
    );
    assert_eq!(verdict(&[(64, &[0.02, -0.021, 0.019])]), Verdict::NotConfirmed("undecided at length 64".into()));
    assert!(matches!(verdict(&[(64, &[0.02])]), Verdict::NotMeasured(why) if why.contains("more seeds")));
    assert!(matches!(verdict(&[]), Verdict::NotMeasured(why) if why == "not run yet"));
    let mut smoke = cells(&[(64, &[0.02, 0.021])]);
    smoke.iter_mut().for_each(|cell| cell.id.scale = Some(SMOKE.into()));
    let outcome = claim.evaluate(&smoke);
    assert!(matches!(outcome.verdict, Verdict::NotMeasured(_)) && outcome.measured.groups.len() == 1);
}

#[test]
fn trends_ratios_baselines_and_other_cells() {
    let cells = cells(&[(64, &[0.01, 0.02, 0.03]), (256, &[0.05, 0.06, 0.07])]);
    let outcome_of = |text: &str| {
        let claim = claim(text);
        let Outcome { measured, verdict, .. } = claim.evaluate(&cells);
        (measured.groups, verdict)
    };
    let (groups, verdict) = outcome_of(
        "measure = { of = \"accuracy\", row = \"hrm\", against = \"lora\", trend = \"length\" }\nexpect = { above = 0.0 }",
    );
    assert_eq!((groups.len(), verdict), (1, Verdict::Confirmed(String::new())));
    assert!((groups[0].summary.mean - 0.02).abs() < 1e-12, "two doublings, 0.04 more");
    let (groups, verdict) = outcome_of(
        "measure = { of = \"accuracy\", row = \"lora\", against = \"window_1\", combine = \"spread\", where = { length = \"64\" } }\n\
         expect = { above = 0.0 }",
    );
    assert_eq!(
        verdict,
        Verdict::NotConfirmed("undecided".into()),
        "distances of 0.1, 0 and 0.1 from their mean, and none"
    );
    assert!((groups[0].summary.mean - 0.2 / 3.0).abs() < 1e-12);
    let (groups, _) = outcome_of(
        "measure = { of = \"accuracy\", row = \"lora\", against = \"window_1\", combine = \"ratio\", where = { length = \"64\" } }\n\
         expect = { mean_within = [1.5, 1.5] }",
    );
    let expected = (0.5 / 0.4 + 0.6 / 0.4 + 0.7 / 0.4) / 3.0;
    assert!((groups[0].summary.mean - expected).abs() < 1e-12 && groups[0].summary.n == 3);
    let (groups, verdict) = outcome_of(
        "measure = { of = \"accuracy\", row = \"hrm\", against = \"hrm\", where = { length = \"256\" }, against_where = { length = \"64\" } }\n\
         expect = { within = [0.03, 0.05] }",
    );
    assert_eq!(verdict, Verdict::Confirmed(String::new()));
    assert!((groups[0].summary.mean - 0.04).abs() < 1e-12);
    let (groups, verdict) =
        outcome_of("measure = { of = \"accuracy\", row = [\"lora\", \"hrm\"] }\nexpect = { at_most = 0.6 }");
    assert_eq!(verdict, Verdict::NotConfirmed("outside".into()));
    assert!((groups[0].largest() - 0.77).abs() < 1e-12);
    let (_, verdict) = outcome_of("measure = { of = \"accuracy\", row = \"dora\" }\nexpect = { above = 0.0 }");
    assert!(matches!(verdict, Verdict::NotMeasured(_)));
}

#[test]
fn divergence_is_an_outcome() {
    let mut cells = cells(&[(64, &[0.0, 0.0])]);
    cells[0] = Cell { diverged: Some("not finite".into()), result: None, ..cells[0].clone() };
    let share = claim("measure = { of = \"diverged\", row = \"hrm\" }\nexpect = { mean_within = [1.0, 1.0] }");
    let outcome = share.evaluate(&cells);
    assert_eq!((outcome.measured.groups[0].summary.mean, outcome.measured.diverged), (0.5, 1));
    assert!(matches!(outcome.verdict, Verdict::NotConfirmed(_)));
    assert!(matches!(claim(AHEAD).evaluate(&cells).verdict, Verdict::NotMeasured(_)), "one pair is left");
}

/// A point of the grid where every run diverged is not passed over, and one that was not run is counted.
#[test]
fn points_without_figures() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019]), (128, &[0.03, 0.031, 0.03])]);
    let nine = claim(&format!("points = 9\n{AHEAD}"));
    let verdict = nine.evaluate(&cells).verdict;
    assert_eq!(verdict, Verdict::Confirmed("at 2 of 9 points".into()));
    assert_eq!(claim(&format!("points = 2\n{AHEAD}")).evaluate(&cells).verdict, Verdict::Confirmed(String::new()));
    for cell in cells.iter_mut().filter(|cell| cell.id.axis("length") == Some("128")) {
        *cell = Cell { diverged: Some("not finite".into()), result: None, ..cell.clone() };
    }
    let verdict = nine.evaluate(&cells).verdict;
    assert_eq!(verdict, Verdict::NotMeasured("no figures at length 128, 3 runs diverged".into()));
    let slope = "measure = { of = \"accuracy\", row = \"hrm\", against = \"lora\", trend = \"length\" }\nexpect = { above = 0.0 }";
    let verdict = claim(slope).evaluate(&cells).verdict;
    assert_eq!(verdict, Verdict::NotMeasured("a slope takes several values of length, 3 runs diverged".into()));
}

#[test]
fn a_scale_that_is_not_finished_does_not_hide_one_that_is() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    let mut first = cells[0].clone();
    first.id.scale = Some("full".into());
    cells.push(first);
    let outcome_of = claim(AHEAD);
    let outcome = outcome_of.evaluate(&cells);
    assert_eq!((outcome.scale.as_deref(), outcome.verdict), (Some("small"), Verdict::Confirmed(String::new())));
}

#[test]
fn what_is_undecided_and_what_is_not() {
    let undecided = |verdict: &str| Verdict::NotConfirmed(verdict.into()).is_undecided();
    assert!(undecided("undecided") && undecided("undecided at length 64; undecided at length 128"));
    assert!(!undecided("undecided at length 64; the contrary at length 128") && !undecided("outside"));
}
