//! Rows that say something: they beat the model without an adapter, are there, and have come to the end of their training.

use super::*;

#[test]
fn rows_that_beat_nothing_are_not_compared() {
    let drowned: Vec<Cell> = [0.0, 0.001, 0.002]
        .iter()
        .enumerate()
        .map(|(i, e)| cell(64, i as u32, &[("lora", 0.5), ("hrm", 0.2 - e)]))
        .collect();
    let verdict = claim(AHEAD).evaluate_alone(&drowned, &[]).verdict;
    let told = "hrm is no better than no adapter (gain −0.001000, −0.003484 to 0.001484)";
    assert_eq!(verdict, Verdict::NoComparison(told.into()));
    // Against no adapter, that is the question.
    let alone = claim(&AHEAD.replace("\"lora\"", "\"none\""));
    assert_eq!(alone.evaluate_alone(&drowned, &[]).verdict.name(), "not confirmed");
    let mut without = cells(&[(64, &[0.02, 0.021, 0.019])]);
    without.iter_mut().for_each(|cell| cell.result.as_mut().unwrap().rows.retain(|row| row.name != "none"));
    let verdict = claim(AHEAD).evaluate_alone(&without, &[]).verdict;
    assert!(
        matches!(verdict, Verdict::NotMeasured(why) if why.starts_with("no row without an adapter tells what hrm is"))
    );
}

#[test]
fn rows_that_still_learn_are_not_compared() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    let lora = |cell: &mut Cell, curve: Vec<(u64, f64)>| {
        let rows = &mut cell.result.as_mut().unwrap().rows;
        rows.iter_mut().find(|row| row.name == "lora").unwrap().training.as_mut().unwrap().curve = curve;
    };
    // To fall by 0.01, of gains of 0.3 to 0.5: too much for this run alone, little on average.
    lora(&mut cells[1], vec![(80, 0.505), (90, 0.5)]);
    assert_eq!(claim(AHEAD).evaluate_alone(&cells, &[]).verdict, Verdict::Confirmed);
    lora(&mut cells[1], vec![(80, 0.6), (90, 0.5)]);
    let verdict = claim(AHEAD).evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::NotConverged("lora was still learning in 1 of 3 runs".into()));
    lora(&mut cells[1], Vec::new());
    let verdict = claim(AHEAD).evaluate_alone(&cells, &[]).verdict;
    assert_eq!(
        verdict,
        Verdict::NotConverged("fewer than two evaluations of lora are on record in the last fifth".into())
    );
}

/// What one length gains does not pay for what another has still to learn.
#[test]
fn every_point_of_the_grid_has_to_have_converged() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019]), (128, &[0.03, 0.031, 0.03])]);
    for cell in &mut cells {
        let curve = if cell.id.axis("length") == Some("64") { [0.52, 0.5] } else { [0.5, 0.52] };
        let rows = &mut cell.result.as_mut().unwrap().rows;
        let lora = rows.iter_mut().find(|row| row.name == "lora").unwrap();
        lora.training.as_mut().unwrap().curve = vec![(80, curve[0]), (90, curve[1])];
    }
    let verdict = claim(AHEAD).evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::NotConverged("lora was still learning in 3 of 3 runs at length 64".into()));
}

/// A truncated row is held against what the training gained that it was made of, not against what truncation left of it.
#[test]
fn what_is_made_of_a_row_has_its_training() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    for cell in &mut cells {
        cell.result.as_mut().unwrap().task.baselines.clear();
        let rows = &mut cell.result.as_mut().unwrap().rows;
        let mut cut = row("hrm-2", 0.25);
        cut.truncated_from = Some("hrm".into());
        cut.training = None;
        rows.push(cut);
        let hrm = rows.iter_mut().find(|row| row.name == "hrm").unwrap();
        let loss = hrm.validation.metrics["loss"];
        // 0.004 to fall: little of a gain of 0.3, much of the 0.05 that are left.
        hrm.training.as_mut().unwrap().curve = vec![(80, loss + 0.002), (90, loss)];
    }
    let cut = claim(&AHEAD.replace("\"hrm\"", "\"hrm-2\""));
    assert_eq!(cut.evaluate_alone(&cells, &[]).verdict, Verdict::NotConfirmed("the contrary at length 64".into()));
}

/// That a row stays at chance says something where another one, trained as long, does not.
#[test]
fn a_row_that_learns_nothing_is_held_against_one_that_does() {
    let chance =
        claim("control = \"full\"\nmeasure = { of = \"accuracy\", row = \"hrm\" }\nexpect = { within = [0.45, 0.55] }");
    let cells = |hrm: f64, full: f64| -> Vec<Cell> {
        let noise = [0.0, 0.001, -0.001];
        let of = |(seed, e): (usize, &f64)| cell(64, seed as u32, &[("hrm", hrm + e), ("full", full + e)]);
        noise.iter().enumerate().map(of).collect()
    };
    let verdict = |hrm: f64, full: f64| chance.evaluate_alone(&cells(hrm, full), &[]).verdict;
    assert_eq!(verdict(0.5, 0.8), Verdict::Confirmed);
    let told = "full, the control, is not shown to do better than the range either (0.5400, 0.5375 to 0.5425)";
    assert_eq!(verdict(0.5, 0.54), Verdict::NoComparison(told.into()));
    // Its interval has to be outside, not its mean alone.
    assert_eq!(verdict(0.5, 0.551).name(), "no comparison");
    // Worse than the range is no sign of learning.
    assert_eq!(verdict(0.5, 0.4).name(), "no comparison");
    // A row that does leave the range needs no control.
    assert_eq!(verdict(0.6, 0.5).name(), "not confirmed");
    let mut without = cells(0.5, 0.8);
    without.iter_mut().for_each(|cell| cell.result.as_mut().unwrap().rows.retain(|row| row.name != "full"));
    assert!(matches!(chance.evaluate_alone(&without, &[]).verdict, Verdict::NotMeasured(why) if why.contains("full")));
}

/// "It does not learn" is not shown by stopping early; that it does learn is, however little.
#[test]
fn one_row_is_judged_when_it_has_converged() {
    let chance = claim("measure = { of = \"accuracy\", row = \"hrm\" }\nexpect = { within = [0.45, 0.55] }");
    let verdict = |accuracy: f64, fall: f64| {
        let one = |seed: u32| {
            let mut cell = cell(64, seed, &[("hrm", accuracy + 0.001 * f64::from(seed))]);
            let training = cell.result.as_mut().unwrap().rows[1].training.as_mut().unwrap();
            training.curve = if fall.is_nan() { Vec::new() } else { vec![(80, 0.5 + fall), (90, 0.5)] };
            cell
        };
        chance.evaluate_alone(&[0, 1, 2].map(one), &[]).verdict
    };
    assert_eq!(verdict(0.5, 0.0), Verdict::Confirmed);
    assert_eq!(verdict(0.5, 0.02), Verdict::NotConverged("hrm was still learning in 3 of 3 runs".into()));
    assert_eq!(
        verdict(0.5, f64::NAN),
        Verdict::NotConverged("fewer than two evaluations of hrm are on record in the last fifth".into())
    );
    assert_eq!(verdict(0.6, 0.02), Verdict::NotConfirmed("outside".into()));
    assert!(matches!(verdict(0.4, 0.02), Verdict::NotConverged(_)));
}

fn named<'a>(cell: &'a mut Cell, name: &str) -> &'a mut AdapterResult {
    cell.result.as_mut().unwrap().rows.iter_mut().find(|row| row.name == name).unwrap()
}

/// What is about to fall is the loss of the validation split, and so is what was gained: a test split that is harder or easier changes nothing.
#[test]
fn falls_and_gains_are_of_the_same_split() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    for cell in &mut cells {
        for name in ["none", "lora", "hrm"] {
            let row = named(cell, name);
            let accuracy = row.validation.metrics["accuracy"];
            // Ten times the gain in the loss.
            let loss = 10.0 * (1.0 - accuracy);
            let metrics = BTreeMap::from([("accuracy".into(), accuracy), ("loss".into(), loss)]);
            row.test = Some(Scores { metrics, ..Scores::default() });
        }
        // 0.02 to fall, of gains of 0.3 to 0.5 on the validation split.
        named(cell, "lora").training.as_mut().unwrap().curve = vec![(80, 0.52), (90, 0.5)];
    }
    let verdict = claim(AHEAD).evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::NotConverged("lora was still learning in 3 of 3 runs".into()));
}

/// A run that gains nothing does not bring its whole loss into what the falls of the others are held against.
#[test]
fn gains_are_summed_before_they_are_looked_at() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    for (cell, accuracy) in cells.iter_mut().zip([0.6, 0.19, 0.6]) {
        let lora = named(cell, "lora");
        let curve = vec![(80, 1.0035 - accuracy), (90, 1.0 - accuracy)];
        *lora = row("lora", accuracy);
        lora.training.as_mut().unwrap().curve = curve;
        let none = named(cell, "none");
        *none = row("none", 0.2);
        cell.result.as_mut().unwrap().task.baselines.clear();
    }
    // 0.007 to fall in each: 2.7 % of what is gained on average, 0.26, and 1.3 % where the loss of the second stands for its gain.
    let verdict = claim(AHEAD).evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::NotConverged("lora was still learning in 3 of 3 runs".into()));
}

/// A rival that is not the best one may be no better than no adapter, but has to have converged: it might become the best.
#[test]
fn the_worst_rival_hides_nothing() {
    let mut cells: Vec<Cell> = [0.70, 0.71, 0.69, 0.70, 0.705]
        .iter()
        .zip(0..)
        .map(|(&hrm, seed)| cell(64, seed, &[("lora", 0.5), ("dora", 0.15), ("hrm", hrm)]))
        .collect();
    let best = claim(&AHEAD.replace("\"lora\"", "[\"lora\", \"dora\"]"));
    assert_eq!(best.evaluate_alone(&cells, &[]).verdict, Verdict::Confirmed);
    named(&mut cells[0], "dora").training.as_mut().unwrap().curve = vec![(80, 2.0), (90, 0.85)];
    let verdict = best.evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::NotConverged("dora was still learning in 1 of 5 runs".into()));
}

/// A row that was not run is missing, whatever became of another; and at every learning rate.
#[test]
fn a_row_that_was_not_run_did_not_diverge() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    cells[2].diverged_rows.insert("dora".into(), "not finite".into());
    cells[2].result.as_mut().unwrap().rows.retain(|row| row.name != "hrm");
    let missing = Verdict::NotMeasured("2 of 3 runs have hrm".into());
    assert_eq!(claim(AHEAD).evaluate_alone(&cells, &[]).verdict, missing);
    let at = |rate: &str| {
        let rated = |cell: &Cell| {
            let mut cell = cell.clone();
            cell.id.axes.push(("lr".into(), rate.into()));
            cell.result
                .iter_mut()
                .flat_map(|result| &mut result.rows)
                .for_each(|row| row.test = Some(row.validation.clone()));
            cell
        };
        self::cells(&[(64, &[0.02, 0.021, 0.019])]).iter().map(rated).collect::<Vec<_>>()
    };
    let mut rated = [at("0.001"), at("0.01")].concat();
    assert_eq!(claim(AHEAD).evaluate_alone(&rated, &[]).verdict, Verdict::Confirmed);
    rated[5].result.as_mut().unwrap().rows.retain(|row| row.name != "hrm");
    let missing = Verdict::NotMeasured("5 of 6 runs have hrm".into());
    assert_eq!(claim(AHEAD).evaluate_alone(&rated, &[]).verdict, missing);
}

/// A point that refutes a claim, which more training could only make clearer, does so whatever others still learn.
#[test]
fn one_point_is_enough_against_a_claim() {
    let chance =
        claim("measure = { of = \"accuracy\", row = \"hrm\", by = \"length\" }\nexpect = { within = [0.45, 0.55] }");
    let cells: Vec<Cell> = [(64, 0.7), (128, 0.5)]
        .iter()
        .flat_map(|&(length, accuracy)| {
            (0..3).map(move |seed| cell(length, seed, &[("hrm", accuracy + 0.001 * f64::from(seed))]))
        })
        .map(|mut cell| {
            named(&mut cell, "hrm").training.as_mut().unwrap().curve = vec![(80, 0.6), (90, 0.5)];
            cell
        })
        .collect();
    let verdict = chance.evaluate_alone(&cells, &[]).verdict;
    assert_eq!(verdict, Verdict::NotConfirmed("outside at length 64".into()));
}
