//! Which rows, runs and rivals count.

use super::*;

/// Rows that know less than one symbol tells are not compared, whichever is ahead.
#[test]
fn rows_that_one_symbol_beats_are_not_compared() {
    let mut cells = cells(&[(64, &[0.02, 0.021, 0.019])]);
    let verdict = |cells: &[Cell]| claim(AHEAD).evaluate_alone(cells, &[]).verdict;
    assert_eq!(verdict(&cells), Verdict::Confirmed);
    for cell in &mut cells {
        // Between both rows, which are 0.6 and 0.62 on average.
        cell.result.as_mut().unwrap().task.baselines.insert("window_1".into(), 0.61);
    }
    let told = "lora is no better than `window_1` (gain −0.01000, −0.2584 to 0.2384)";
    assert_eq!(verdict(&cells), Verdict::NoComparison(told.into()));
    // The best constant counts where a task has no predictor that sees one symbol.
    for (baselines, is_compared) in
        [(&[("constant", 0.61)][..], false), (&[("window_1", 0.4), ("constant", 0.61)], true)]
    {
        for cell in &mut cells {
            let baselines = baselines.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            cell.result.as_mut().unwrap().task.baselines = baselines;
        }
        let told = Verdict::NoComparison(told.replace("window_1", "constant"));
        assert_eq!(verdict(&cells), if is_compared { Verdict::Confirmed } else { told });
    }
}

/// Runs that came to nothing are on no side: three that are left do not show it, nor refute it.
#[test]
fn what_is_left_of_runs_that_diverged_decides_nothing() {
    for (gap, side) in [(0.02, "shown"), (-0.02, "refuted")] {
        let mut cells = cells(&[(64, &[gap, gap + 0.001, gap - 0.001, gap, gap])]);
        for cell in &mut cells[3..] {
            *cell = Cell { diverged: Some("not finite".into()), result: None, ..cell.clone() };
        }
        let verdict = claim(AHEAD).evaluate_alone(&cells, &[]).verdict;
        let expected = format!("undecided: {side} by the runs with figures, but 2 diverged");
        assert_eq!(verdict, Verdict::Undecided(expected));
    }
}

/// A single run at one point does not take a claim out of the family that is corrected.
#[test]
fn a_point_of_one_run_stays_in_the_family() {
    let cells = cells(&[(64, &[-0.02, -0.022, -0.018]), (128, &[0.03])]);
    let alone = claim(AHEAD);
    assert!(matches!(alone.evaluate_alone(&cells, &[]).verdict, Verdict::NotConfirmed(_)));
    let claims: Vec<Claim> = (0..87).map(|i| Claim { id: i.to_string(), ..alone.clone() }).collect();
    let outcome = &evaluate(&claims, &cells, &[])[0];
    assert_eq!(outcome.test.map(|test| (test.p, test.tests)), Some((1.0, 87)));
    assert!(matches!(&outcome.verdict, Verdict::Undecided(why) if why.contains("among 87 tests")), "{outcome:?}");
}

/// The rival that is best by the figures that are compared is no fair one: its p counts for each. By another split it is.
#[test]
fn the_best_of_several_rivals_is_chosen_elsewhere_or_counts_for_each() {
    let rivals = claim(
        "measure = { of = \"accuracy\", row = \"hrm\", against = [\"lora\", \"dora\"] }\nexpect = { above = 0.0 }",
    );
    let one = |seed: u32| cell(64, seed, &[("hrm", 0.5), ("lora", 0.52 + 0.001 * f64::from(seed)), ("dora", 0.51)]);
    let mut cells: Vec<Cell> = (0..4).map(one).collect();
    let group = |cells: &[Cell]| rivals.evaluate_alone(cells, &[]).measured.groups.swap_remove(0);
    let found = group(&cells);
    assert_eq!((found.choices, &found.sides.as_ref().unwrap()[1].0[..]), (2, "lora"));
    let (alone, outcomes) =
        (rivals.expect.p_against(&found).unwrap(), evaluate(std::slice::from_ref(&rivals), &cells, &[]));
    assert_eq!(outcomes[0].against.unwrap().p, 2.0 * alone);
    // Tested on another split than the one by whose loss dora is better.
    for row in cells.iter_mut().flat_map(|cell| &mut cell.result.as_mut().unwrap().rows) {
        row.test = Some(row.validation.clone());
        let loss = if row.name == "dora" { 0.1 } else { 0.5 };
        row.validation.metrics.insert("loss".into(), loss);
    }
    let found = group(&cells);
    assert_eq!((found.choices, &found.sides.as_ref().unwrap()[1].0[..]), (1, "dora"));
}

/// Losses stand beside another metric, with the interval of their paired difference.
#[test]
fn losses_are_beside_accuracies() {
    let measured_of = |text: &str| {
        claim(text).evaluate_alone(&cells(&[(64, &[0.02, 0.021, 0.019])]), &[]).measured.groups[0].losses.clone()
    };
    let losses = measured_of(AHEAD).unwrap();
    assert!((losses.mean() + 0.02).abs() < 1e-12 && losses.means().len() == 3);
    assert_eq!(measured_of(&AHEAD.replace("accuracy", "loss")), None);
}

/// Spreads are about the means of runs that repeat each other, not about that of two lengths together.
#[test]
fn spreads_are_within_a_point() {
    let one = |length: u32, seed: u32| {
        let level = if length == 64 { 0.5 } else { 0.9 };
        cell(length, seed, &[("hrm", level), ("lora", level + 0.01 * f64::from(seed % 2))])
    };
    let cells: Vec<Cell> = [64, 128].iter().flat_map(|&length| (0..6).map(move |seed| one(length, seed))).collect();
    let spread = claim(
        "measure = { of = \"accuracy\", row = \"hrm\", against = \"lora\", combine = \"spread\" }\nexpect = { below = 0.0 }",
    );
    let outcome = spread.evaluate_alone(&cells, &[]);
    assert!((outcome.measured.groups[0].summary.mean + 0.005).abs() < 1e-12, "{:?}", outcome.measured);
}

/// What an adapter is like is judged once it has been trained, and where it learnt something. Its order is at most the number of its states, which
/// files of results say of the whole adapter alone.
#[test]
fn orders_are_those_of_trained_adapters() {
    let order = claim("measure = { of = \"order\", row = \"cut\" }\nexpect = { within = [31.0, 32.0] }");
    let verdict = |accuracy: f64, fall: f64| {
        let one = |seed: u32| {
            let mut cell = cell(64, seed, &[("hrm", accuracy), ("cut", accuracy)]);
            let rows = &mut cell.result.as_mut().unwrap().rows;
            let layer = |order: usize, values: usize| hankel_trainer::results::LayerResult {
                order,
                hankel_singular_values: vec![1.0; values],
                ..Default::default()
            };
            rows[1].layers = vec![layer(32, 32)];
            rows[1].training.as_mut().unwrap().curve = vec![(80, 0.5 + fall), (90, 0.5)];
            rows[2].layers = vec![layer(if seed == 0 { 31 } else { 32 }, 0)];
            (rows[2].truncated_from, rows[2].training) = (Some("hrm".into()), None);
            cell
        };
        order.evaluate_alone(&[0, 1, 2, 3, 4].map(one), &[]).verdict
    };
    // 31.8 and its interval, which reaches beyond 32 without the number of states.
    assert_eq!(verdict(0.5, 0.0), Verdict::Confirmed);
    assert_eq!(verdict(0.5, 0.02), Verdict::NotConverged("cut was still learning in 5 of 5 runs".into()));
    let told = "hrm is no better than no adapter (gain −0.1000, −0.1000 to −0.1000)";
    assert_eq!(verdict(0.1, 0.0), Verdict::NoComparison(told.into()));
}

/// The predictor of one symbol is on record in the metric of its task, whatever the first task has, and on the validation split.
#[test]
fn every_task_has_its_predictor_of_one_symbol() {
    let claim = claim(
        "measure = { of = \"accuracy\", row = \"hrm\", against = \"lora\", by = \"task\" }\nexpect = { above = 0.0 }",
    );
    let one = |task: &str, seed: u32, bits: f64| {
        let mut cell = cell(64, seed, &[("lora", 0.5), ("hrm", 0.55 + 0.001 * f64::from(seed))]);
        cell.id.axes.push(("task".into(), task.into()));
        let result = cell.result.as_mut().unwrap();
        if task == "text" {
            result.task.primary_metric = "bits_per_character".into();
            result.task.baselines = BTreeMap::from([("order_1".into(), 3.9)]);
            for row in &mut result.rows {
                row.validation.metrics.insert("bits_per_character".into(), bits);
                row.test = Some(row.validation.clone());
                row.test.as_mut().unwrap().metrics.insert("bits_per_character".into(), 3.0);
            }
        }
        cell
    };
    let verdict = |bits: f64| {
        let cells: Vec<Cell> =
            ["dfa", "text"].iter().flat_map(|task| (0..3).map(move |seed| one(task, seed, bits))).collect();
        claim.evaluate_alone(&cells, &[]).verdict
    };
    assert_eq!(verdict(3.8), Verdict::Confirmed);
    let told = ["hrm", "lora"].map(|name| {
        format!("{name} is no better than `order_1` at length 64, task text (gain −0.1000, −0.1000 to −0.1000)")
    });
    assert_eq!(verdict(4.0), Verdict::NoComparison(told.join("; ")));
}

/// What truncation ruins is refuted, not left without a comparison.
#[test]
fn truncation_may_ruin_a_row() {
    let cost = claim("measure = { of = \"accuracy\", row = \"cut\", against = \"hrm\" }\nexpect = { above = -0.003 }");
    let cells = [0, 1, 2].map(|seed| {
        let mut cell = cell(64, seed, &[("hrm", 0.6), ("cut", 0.1 + 0.01 * f64::from(seed))]);
        let cut = &mut cell.result.as_mut().unwrap().rows[2];
        (cut.truncated_from, cut.training) = (Some("hrm".into()), None);
        cell
    });
    assert_eq!(cost.evaluate_alone(&cells, &[]).verdict.name(), "not confirmed");
}

/// Runs beside those planned do not count, and a row that some runs lack tells nothing.
#[test]
fn what_was_planned_counts_and_all_of_it() {
    let all = cells(&[(64, &[0.02, 0.021, 0.019, -0.5, -0.6])]);
    let axes = |seed: u32| vec![("length".into(), "64".into()), ("seed".into(), seed.to_string())];
    let planned = (0..3).map(axes).collect();
    let plan =
        Plan { experiment: "e".into(), scale: Some("small".into()), cells: planned, text: None, shares_rate: false };
    let of = claim(AHEAD);
    let outcome = of.evaluate_alone(&all, std::slice::from_ref(&plan));
    assert_eq!((outcome.measured.groups[0].summary.n, outcome.verdict), (3, Verdict::Confirmed));
    let mut fewer = all[..3].to_vec();
    fewer[1].result.as_mut().unwrap().rows.retain(|row| row.name != "lora");
    let verdict = of.evaluate_alone(&fewer, &[plan]).verdict;
    assert_eq!(verdict, Verdict::NotMeasured("2 of 3 runs have lora".into()));
}

/// Orders at the top of their range agree with each other whatever they are of.
#[test]
fn an_agreement_that_any_two_figures_have_is_none() {
    let agree = claim(
        "measure = { of = \"order\", row = \"cut\", against = \"hrm\", against_of = \"least_order\", combine = \"ratio\" }\n\
         expect = { within = [0.5, 2.0] }",
    );
    let verdict = |orders: [usize; 3]| {
        let one = |seed: u32| {
            let mut cell = cell(64, seed, &[("hrm", 0.6), ("cut", 0.6)]);
            let order = orders[seed as usize];
            let rows = &mut cell.result.as_mut().unwrap().rows[1..];
            for (row, order) in rows.iter_mut().zip([order, order + seed as usize]) {
                row.layers = vec![hankel_trainer::results::LayerResult { order, ..Default::default() }];
            }
            cell.result.as_mut().unwrap().rows[2].truncated_from = Some("hrm".into());
            cell
        };
        agree.evaluate_alone(&[0, 1, 2].map(one), &[]).verdict
    };
    assert_eq!(verdict([4, 16, 32]), Verdict::Confirmed);
    assert!(matches!(verdict([20, 24, 32]), Verdict::Undecided(why) if why.contains("any two agree")));
}
