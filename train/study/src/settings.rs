//! Which cells were run with the same settings: means over others would say nothing.

use crate::CellId;
use std::collections::BTreeMap;

/// An experiment at a scale, the names of its axes, and a part of the settings.
type Place = (String, Vec<String>, String);

/// The fingerprints of cells by what they are of, each with the name of the cell that had it first.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<Place, (String, String)>);

impl Seen {
    /// Adds a cell with its `settings`; one that has none on record adds nothing.
    pub(crate) fn add(&mut self, id: &CellId, settings: &BTreeMap<String, String>, name: &str) {
        for (part, fingerprint) in settings {
            self.0.entry(place(id, part)).or_insert_with(|| (fingerprint.clone(), name.to_owned()));
        }
    }

    /// The part in which a cell with these `settings` differs from one that was added, and the name of that one.
    pub(crate) fn difference(&self, id: &CellId, settings: &BTreeMap<String, String>) -> Option<(String, String)> {
        settings.iter().find_map(|(part, fingerprint)| {
            let (known, name) = self.0.get(&place(id, part))?;
            (known != fingerprint).then(|| (part.clone(), name.clone()))
        })
    }
}

fn place(id: &CellId, part: &str) -> Place {
    let mut axes: Vec<String> = id.axes.iter().map(|(name, _)| name.clone()).collect();
    axes.sort();
    (id.directory(), axes, part.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_the_same_axes_are_compared() {
        let id = |axis: &str| CellId { axes: vec![(axis.to_owned(), "1".to_owned())], ..CellId::default() };
        let settings = |own: &[(&str, &str)]| -> BTreeMap<String, String> {
            own.iter().map(|(part, fingerprint)| ((*part).to_owned(), (*fingerprint).to_owned())).collect()
        };
        let mut seen = Seen::default();
        seen.add(&id("seed"), &settings(&[("train", "a"), ("adapter.hrm", "b")]), "one");
        let difference = |axis: &str, own: &[(&str, &str)]| seen.difference(&id(axis), &settings(own));
        assert_eq!(difference("seed", &[("train", "c")]), Some(("train".to_owned(), "one".to_owned())));
        assert_eq!(difference("seed", &[("train", "a"), ("adapter.lora", "c")]), None);
        assert_eq!(difference("seed", &[]), None, "of an earlier version");
        assert_eq!(difference("length", &[("train", "c")]), None);
    }
}
