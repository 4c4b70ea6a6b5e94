//! The figures that claims are about, from cells.

use crate::bootstrap;
use crate::quantity::{quantity, range};
use crate::statistics::{CONFIDENCE, Estimate, Summary, slope, slope_pseudo_values, spearman};
use crate::units::Unit;
use crate::{Cell, SEED};
use hankel_trainer::results::{RunResult, metric};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A figure of every cell: of a row, or of one row against another.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// A metric, or what else [`quantity`] knows.
    pub of: String,
    /// The row; of several, the best on average.
    #[serde(deserialize_with = "one_or_many")]
    pub row: Vec<String>,
    /// The row it is compared with in the same cell, or the cell that `against_where` names.
    #[serde(default, deserialize_with = "one_or_many")]
    pub against: Vec<String>,
    /// What is taken of that row, where it is not the same.
    #[serde(default)]
    pub against_of: Option<String>,
    /// How they are compared.
    #[serde(default)]
    pub combine: Combine,
    /// Cells that count: values of axes.
    #[serde(default, rename = "where", deserialize_with = "values")]
    pub filter: BTreeMap<String, Vec<String>>,
    /// Values of axes in which the partner's cell differs.
    #[serde(default)]
    pub against_where: BTreeMap<String, String>,
    /// Axes by whose values cells are evaluated apart. All groups have to show what is expected.
    #[serde(default, deserialize_with = "one_or_many")]
    pub by: Vec<String>,
    /// Axis along which the slope of the figure is taken, per doubling.
    #[serde(default)]
    pub trend: Option<String>,
    /// Axis with which the figure's rank correlation is taken (Spearman's).
    #[serde(default)]
    pub spearman: Option<String>,
    /// Row, or predictor without training, on whose `of` the figure is regressed over the outermost units.
    #[serde(default)]
    pub on: Option<String>,
    /// Axes over which runs repeat each other, the outermost first: `["table", "seed"]` for seeds within tables. Cells that agree in the outermost
    /// count once.
    #[serde(default = "seeds", deserialize_with = "one_or_many")]
    pub units: Vec<String>,
}

impl Measure {
    /// Whether it is a figure, or a difference of two, by itself: no ratio, spread, slope or correlation.
    pub(crate) fn is_plain(&self) -> bool {
        let regressed = self.trend.is_some() || self.on.is_some() || self.spearman.is_some();
        self.combine == Combine::Difference && !regressed
    }
}

/// The share of cells that diverged, as what is measured.
pub(crate) const DIVERGED: &str = "diverged";

fn seeds() -> Vec<String> {
    vec![SEED.to_owned()]
}

/// How two rows are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// The row less the other.
    #[default]
    Difference,
    /// The row over the other.
    Ratio,
    /// The row's distance from its mean over the runs less that of the other from its own, as Levene tests variances.
    Spread,
}

/// One string, or several.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::One(one) => vec![one],
        Either::Many(many) => many,
    })
}

fn values<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Values(#[serde(deserialize_with = "one_or_many")] Vec<String>);
    let map = BTreeMap::<String, Values>::deserialize(deserializer)?;
    Ok(map.into_iter().map(|(axis, Values(values))| (axis, values)).collect())
}

/// What a claim's measure gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// One per value of the axes it is evaluated by, or a single one without a label.
    pub groups: Vec<Group>,
    /// Labels of those for which there are cells, but no figures.
    pub missing: Vec<String>,
    /// Cells that diverged, and figures that are not finite: they are left out.
    pub diverged: usize,
}

/// Cells that are evaluated together.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// `length 64`; empty when there is one group.
    pub label: String,
    /// The figures, one of each cell or line of cells.
    pub values: Vec<f64>,
    /// The same by the units that repeat each other.
    pub units: Unit,
    /// The means of the outermost units together.
    pub summary: Summary,
    /// The row and what it is compared with, when there is such.
    pub sides: Option<[(String, Summary); 2]>,
    /// Cells that diverged, or whose partner did, and figures that are not finite.
    pub diverged: usize,
    /// Rivals among which the best one was chosen on the figures that are compared; 1 where there was one, or another split to choose on.
    pub choices: usize,
    /// The paired difference of losses, where another metric of both rows is compared.
    pub losses: Option<Unit>,
    /// What no figure can go beyond, and so no interval of their mean: -1 and 1 of correlations, 0 and the number of states of orders.
    pub range: (f64, f64),
}

impl Group {
    /// The mean with its uncertainty, tested against `limit`; `None` for a single figure.
    pub fn estimate(&self, limit: f64) -> Option<Estimate> {
        let estimate = Estimate::of_units(&self.units, limit)?;
        let (low, high) = estimate.interval;
        Some(Estimate { interval: (low.max(self.range.0), high.min(self.range.1)), ..estimate })
    }

    /// Whether the units are all the same, but for rounding.
    pub(crate) fn is_constant(&self) -> bool {
        self.estimate(0.0).is_some_and(|estimate| estimate.interval.0 == estimate.interval.1)
    }

    /// Interval of the hierarchical bootstrap for the mean.
    pub fn bootstrap(&self) -> (f64, f64) {
        bootstrap::interval(&self.units, CONFIDENCE)
    }

    /// The largest figure; NaN if there is such.
    pub fn largest(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, |a, b| if a.is_nan() || a > b { a } else { b })
    }
}

/// The cells that count: those with the values of axes that the measure asks for.
fn counted<'a>(measure: &Measure, cells: &[&'a Cell]) -> Vec<&'a Cell> {
    let allowed = |cell: &&&Cell| {
        measure.filter.iter().all(|(axis, values)| {
            let own = cell.id.axis(axis);
            // An axis that this scale does not have cannot exclude a cell.
            own.is_none_or(|own| values.iter().any(|value| value == own))
        })
    };
    cells.iter().filter(allowed).copied().collect()
}

/// The cells that a measure is about: those that count, and their partners.
pub(crate) fn concerned<'a>(measure: &Measure, cells: &[&'a Cell]) -> Vec<&'a Cell> {
    let counted = counted(measure, cells);
    let is_one = |cell: &&&Cell| counted.iter().any(|own| is_partner(measure, own, cell) || own.id == cell.id);
    cells.iter().filter(is_one).copied().collect()
}

/// The figures of a measure on cells of one experiment and scale.
pub(crate) fn measure(measure: &Measure, cells: &[&Cell]) -> Measured {
    let counted = counted(measure, cells);
    let mut groups: Vec<(Vec<Option<&str>>, Vec<&Cell>)> = Vec::new();
    for &cell in &counted {
        let key: Vec<Option<&str>> = measure.by.iter().map(|axis| cell.id.axis(axis)).collect();
        match groups.iter_mut().find(|(own, _)| *own == key) {
            Some((_, members)) => members.push(cell),
            None => groups.push((key, vec![cell])),
        }
    }
    let label = |key: &[Option<&str>]| {
        let parts = measure.by.iter().zip(key.iter().copied());
        let part = |(axis, value): (&String, Option<&str>)| Some(format!("{} {}", axis.replace('-', " "), value?));
        parts.filter_map(part).collect::<Vec<_>>().join(", ")
    };
    let mut made: Vec<(Vec<f64>, Result<Group, String>)> = groups
        .iter()
        .map(|(key, members)| {
            let order = key.iter().map(|value| value.and_then(|v| v.parse().ok()).unwrap_or(0.0)).collect();
            let with_loss = |group: Group| {
                let lost = members.iter().filter(|cell| {
                    let partner = cells.iter().find(|other| is_partner(measure, cell, other));
                    is_lost(&measure.row, cell) || partner.is_some_and(|partner| is_lost(&measure.against, partner))
                });
                let not_finite = group.values.iter().filter(|value| !value.is_finite()).count();
                Group { diverged: lost.count() + not_finite, ..group }
            };
            (order, group(measure, label(key), members, cells).map(with_loss).ok_or_else(|| label(key)))
        })
        .collect();
    made.sort_by(|a, b| {
        a.0.iter().zip(&b.0).map(|(x, y)| x.total_cmp(y)).find(|o| o.is_ne()).unwrap_or(a.0.len().cmp(&b.0.len()))
    });
    let all_lost = counted.iter().filter(|cell| is_lost(&measure.row, cell)).count();
    let mut measured = Measured::default();
    for (_, group) in made {
        match group {
            Ok(group) => {
                measured.diverged += group.diverged;
                measured.groups.push(group);
            }
            Err(label) => measured.missing.push(label),
        }
    }
    measured.diverged = measured.diverged.max(all_lost);
    measured
}

fn group<'a>(measure: &Measure, label: String, members: &[&'a Cell], all: &[&'a Cell]) -> Option<Group> {
    if measure.of == DIVERGED {
        let diverged = |cell: &&'a Cell| (*cell, f64::from(u8::from(is_lost(&measure.row, cell))));
        return finish(measure, label, &members.iter().map(diverged).collect::<Vec<_>>(), None);
    }
    let (row, of_rows) = best(measure, &measure.row, members)?;
    if measure.against.is_empty() {
        let points = members.iter().filter_map(|cell| Some((*cell, value(cell, row, &measure.of)?)));
        return finish(measure, label, &regressed(measure, along(measure, points.collect())), None);
    }
    let partner = |cell: &Cell| all.iter().copied().find(|other| is_partner(measure, cell, other));
    let partners: Vec<&Cell> = members.iter().filter_map(|cell| partner(cell)).collect();
    let (against, of_rivals) = best(measure, &measure.against, &partners)?;
    let against_of = measure.against_of.as_ref().unwrap_or(&measure.of);
    let pairs: Vec<(&'a Cell, f64, f64)> = members
        .iter()
        .filter_map(|cell| Some((*cell, value(cell, row, &measure.of)?, value(partner(cell)?, against, against_of)?)))
        .collect();
    let side = |name: &str, pick: fn(&(&Cell, f64, f64)) -> f64| {
        Some((name.to_owned(), Summary::of(&pairs.iter().map(pick).collect::<Vec<_>>())?))
    };
    let sides = [side(row, |pair| pair.1)?, side(against, |pair| pair.2)?];
    let combined = |&(cell, own, other): &(&'a Cell, f64, f64)| match measure.combine {
        Combine::Difference => own - other,
        Combine::Ratio => own / other,
        Combine::Spread => {
            let [own_mean, other_mean] = means_of_point(measure, cell, &pairs);
            (own - own_mean).abs() - (other - other_mean).abs()
        }
    };
    let points = pairs.iter().map(|pair| (pair.0, combined(pair))).collect();
    let group = finish(measure, label, &regressed(measure, along(measure, points)), Some(sides))?;
    let is_other_metric =
        measure.against_of.is_none() && measure.of != metric::LOSS && is_metric(members, row, &measure.of);
    let losses = || -> Option<Vec<(&Cell, f64)>> {
        let loss = |cell: &Cell, name: &str| value(cell, name, metric::LOSS);
        pairs.iter().map(|(cell, ..)| Some((*cell, loss(cell, row)? - loss(partner(cell)?, against)?))).collect()
    };
    let losses = (measure.is_plain() && is_other_metric).then(losses).flatten();
    Some(Group { choices: of_rows * of_rivals, losses: losses.map(|points| nested(measure, &points)), ..group })
}

/// Both sides' means over the runs that repeat that of `cell`.
fn means_of_point(measure: &Measure, cell: &Cell, pairs: &[(&Cell, f64, f64)]) -> [f64; 2] {
    let repeated: Vec<&str> = measure.units.iter().map(String::as_str).collect();
    let of_it = || pairs.iter().filter(|(other, ..)| other.id.describe(&repeated) == cell.id.describe(&repeated));
    let mean = |pick: fn(&(&Cell, f64, f64)) -> f64| of_it().map(pick).sum::<f64>() / of_it().count() as f64;
    [mean(|pair| pair.1), mean(|pair| pair.2)]
}

/// Whether `of` is a metric of this row.
fn is_metric(cells: &[&Cell], row: &str, of: &str) -> bool {
    let rows = cells.iter().filter_map(|cell| cell.result.as_ref()).flat_map(|result| &result.rows);
    rows.filter(|found| found.name == row).any(|row| row.validation.metrics.contains_key(of))
}

fn finish(
    measure: &Measure,
    label: String,
    points: &[(&Cell, f64)],
    sides: Option<[(String, Summary); 2]>,
) -> Option<Group> {
    let units = nested(measure, points);
    let values = points.iter().map(|point| point.1).collect();
    let results: Vec<&RunResult> = points.iter().filter_map(|(cell, _)| cell.result.as_ref()).collect();
    let range = match (&measure.spearman, &measure.trend, &measure.row[..]) {
        (Some(_), ..) => (-1.0, 1.0),
        (None, None, [row]) if measure.against.is_empty() => range(&results, row, &measure.of),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    let summary = Summary::of(&units.means())?;
    Some(Group { label, values, summary, units, sides, diverged: 0, choices: 1, losses: None, range })
}

/// Figures by the units that repeat each other; those that are not finite are left out.
fn nested(measure: &Measure, points: &[(&Cell, f64)]) -> Unit {
    let units = units(measure, points);
    let key = |cell: &Cell| units.iter().map(|axis| cell.id.axis(axis).unwrap_or("").to_owned()).collect();
    let finite = points.iter().filter(|point| point.1.is_finite());
    Unit::nested(&finite.map(|(cell, value)| (key(cell), *value)).collect::<Vec<_>>())
}

/// The axes over which these cells repeat each other. A level of units that an experiment has at one scale only is none at the others.
fn units<'a>(measure: &'a Measure, points: &[(&Cell, f64)]) -> Vec<&'a String> {
    measure.units.iter().filter(|axis| points.iter().any(|(cell, _)| cell.id.axis(axis).is_some())).collect()
}

/// The figures themselves; or, where they are regressed, for the first cell of each outermost unit its pseudo-value of the slope.
fn regressed<'a>(measure: &Measure, points: Vec<(&'a Cell, f64)>) -> Vec<(&'a Cell, f64)> {
    let Some(predictor) = &measure.on else { return points };
    let axis = units(measure, &points).first().copied();
    let mut line: Vec<(Option<&str>, &Cell, Vec<(f64, f64)>)> = Vec::new();
    for (cell, y) in points {
        let Some(x) = value(cell, predictor, &measure.of) else { continue };
        let unit = axis.and_then(|axis| cell.id.axis(axis));
        match line.iter_mut().find(|(own, ..)| *own == unit) {
            Some((.., points)) => points.push((x, y)),
            None => line.push((unit, cell, vec![(x, y)])),
        }
    }
    let mean =
        |points: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let means: Vec<(f64, f64)> =
        line.iter().map(|(.., points)| (mean(points, |point| point.0), mean(points, |point| point.1))).collect();
    line.iter().map(|(_, cell, _)| *cell).zip(slope_pseudo_values(&means).unwrap_or_default()).collect()
}

/// The figures themselves; or, for the cells that differ only along the axis of a trend or of a rank correlation, that of the first with the slope
/// per doubling, or with the correlation.
fn along<'a>(measure: &Measure, points: Vec<(&'a Cell, f64)>) -> Vec<(&'a Cell, f64)> {
    let Some(axis) = measure.trend.as_ref().or(measure.spearman.as_ref()) else { return points };
    let mut lines: Vec<(String, &Cell, Vec<(f64, f64)>)> = Vec::new();
    for (cell, value) in points {
        let Some(x) = cell.id.axis(axis).and_then(|x| x.parse::<f64>().ok()).filter(|x| *x > 0.0) else { continue };
        let key = cell.id.describe(&[axis]);
        match lines.iter_mut().find(|(own, ..)| *own == key) {
            Some((.., line)) => line.push((x.log2(), value)),
            None => lines.push((key, cell, vec![(x.log2(), value)])),
        }
    }
    let figure = |line: &[(f64, f64)]| if measure.trend.is_some() { slope(line) } else { spearman(line) };
    lines.iter().filter_map(|(_, cell, line)| Some((*cell, figure(line)?))).collect()
}

fn value(cell: &Cell, row: &str, of: &str) -> Option<f64> {
    quantity(cell.result.as_ref()?, row, of)
}

/// Whether one of these rows of the cell came to a non-finite value, or was made of one that did.
fn is_lost(names: &[String], cell: &Cell) -> bool {
    let is_there = |name: &String| {
        let result = cell.result.as_ref();
        result.is_some_and(|result| {
            result.rows.iter().any(|row| row.name == *name) || result.task.baselines.contains_key(name)
        })
    };
    cell.diverged.is_some() || (!cell.diverged_rows.is_empty() && !names.iter().all(is_there))
}

/// Whether `other` is `cell` itself, or what the measure compares it with.
fn is_partner(measure: &Measure, cell: &Cell, other: &Cell) -> bool {
    let wanted = |axis: &str| measure.against_where.get(axis).map(String::as_str).or(cell.id.axis(axis));
    other.id.axes.len() == cell.id.axes.len()
        && measure.against_where.keys().all(|axis| other.id.axis(axis).is_some())
        && other.id.axes.iter().all(|(axis, value)| wanted(axis) == Some(value))
}

/// The row of `names` that is best on average, among those that are there: by the loss on the validation split where the figures are of
/// another split, else by the figures themselves. Also the number of rows it was chosen among on the compared figures, 1 in the first case.
fn best<'a>(measure: &Measure, names: &'a [String], cells: &[&Cell]) -> Option<(&'a str, usize)> {
    let there: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| cells.iter().any(|cell| value(cell, name, &measure.of).is_some()))
        .collect();
    if let [only] = there[..] {
        return Some((only, 1));
    }
    let mean = |name: &str, of: &dyn Fn(&Cell, &str) -> Option<f64>| {
        let values: Vec<f64> = cells.iter().filter_map(|cell| of(cell, name)).collect();
        Summary::of(&values).map(|summary| summary.mean)
    };
    let elsewhere = |cell: &Cell, name: &str| {
        let row = cell.result.as_ref()?.rows.iter().find(|row| row.name == name)?;
        row.test.as_ref()?.get(metric::LOSS).map(|loss| -loss)
    };
    let sign = if metric::larger_is_better(&measure.of) { 1.0 } else { -1.0 };
    let figure = |cell: &Cell, name: &str| value(cell, name, &measure.of).map(|value| sign * value);
    let by = |of: &dyn Fn(&Cell, &str) -> Option<f64>| -> Option<Vec<(&'a str, f64)>> {
        there.iter().map(|name| Some((*name, mean(name, of)?))).collect()
    };
    let (known, choices) = match by(&elsewhere) {
        Some(known) => (known, 1),
        None => (by(&figure)?, there.len()),
    };
    known.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| (name, choices))
}

/// The axes of `cells` that have several values, seeds apart, with their values in order of appearance.
pub(crate) fn axes(cells: &[&Cell]) -> Vec<(String, Vec<String>)> {
    let mut axes: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in cells.iter().flat_map(|cell| &cell.id.axes).filter(|(name, _)| name != SEED) {
        match axes.iter_mut().find(|(own, _)| own == name) {
            Some((_, values)) if !values.contains(value) => values.push(value.clone()),
            Some(_) => {}
            None => axes.push((name.clone(), vec![value.clone()])),
        }
    }
    axes.retain(|(_, values)| values.len() > 1);
    axes
}
