//! Where the adapters of a PEFT directory are: `target_modules` and what narrows them.

use crate::adapters::Placement;
use crate::adapters::placement::{ALL_LINEAR, LinearSite, matches};
use crate::weights::{Result, WeightsError};
use fancy_regex::Regex;
use serde_json::{Map, Value};
use std::path::Path;

/// Modules outside layers that PEFT adapts and that get no adapter here.
const OUTSIDE: [&str; 2] = ["lm_head", "model.embed_tokens"];

pub(super) struct Targets<'a> {
    pub path: &'a Path,
    pub value: &'a Map<String, Value>,
    pub placement: &'a Placement,
}

/// Names of modules, or a regular expression that a whole path must match.
enum Pattern {
    Names(Vec<String>),
    Expression(Regex),
}

impl Pattern {
    fn matches(&self, path: &str) -> bool {
        match self {
            Pattern::Names(names) => names.iter().any(|name| matches(name, path)),
            // One that needs too many steps for a name of a few dozen letters matches nothing.
            Pattern::Expression(expression) => expression.is_match(path).unwrap_or(false),
        }
    }
}

impl Targets<'_> {
    fn fail(&self, reason: impl Into<String>) -> WeightsError {
        WeightsError::content(self.path, reason)
    }

    fn pattern(&self, key: &str) -> Result<Option<Pattern>> {
        match self.value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) if name.eq_ignore_ascii_case(ALL_LINEAR) => {
                Ok(Some(Pattern::Names(vec![ALL_LINEAR.to_owned()])))
            }
            Some(Value::String(text)) => match Regex::new(&format!("^(?:{text})$")) {
                Ok(expression) => Ok(Some(Pattern::Expression(expression))),
                Err(e) => Err(self.fail(format!("{key} = {text:?} is not a regular expression that can be used: {e}"))),
            },
            Some(Value::Array(list)) => {
                let names: Option<Vec<String>> = list.iter().map(|name| name.as_str().map(str::to_owned)).collect();
                let names = names.ok_or_else(|| self.fail(format!("{key} holds something that is not a name")))?;
                Ok((!names.is_empty()).then_some(Pattern::Names(names)))
            }
            Some(_) => Err(self.fail(format!("{key} is neither a list of names nor a string"))),
        }
    }

    /// What the model calls its list of layers: `layers`, or `h` in GPT-2.
    fn list_of_layers(&self) -> &'static str {
        let list = self.placement.linear.first().map_or("layers", |site| site.layers);
        list.rsplit('.').next().unwrap_or(list)
    }

    /// The layers of `layers_to_transform`.
    fn layers(&self) -> Result<Option<Vec<usize>>> {
        let wrong = || self.fail("layers_to_transform is neither a layer nor a list of layers");
        let index = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(wrong);
        let own = self.list_of_layers();
        let narrows = !matches!(self.value.get("layers_to_transform"), None | Some(Value::Null));
        match self.value.get("layers_pattern").filter(|_| narrows) {
            None | Some(Value::Null) => {}
            Some(Value::String(name)) if name.is_empty() || name == own => {}
            // One of several that is there is enough to PEFT.
            Some(Value::Array(names)) if names.is_empty() || names.iter().any(|name| name == own) => {}
            Some(other) => {
                return Err(self.fail(format!("layers_pattern = {other} is not in this model: its layers are {own:?}")));
            }
        }
        match self.value.get("layers_to_transform") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(list)) if list.is_empty() => Ok(None),
            Some(Value::Array(list)) => list.iter().map(index).collect::<Result<_>>().map(Some),
            Some(value) => index(value).map(|layer| Some(vec![layer])),
        }
    }

    /// The names that match a projection. A list may be for several families: PEFT takes of it what a model has.
    fn there(&self, key: &str, names: Vec<String>) -> Result<Vec<String>> {
        let is_there = |name: &String| self.placement.select(std::slice::from_ref(name)).is_ok();
        let (there, missing): (Vec<String>, Vec<String>) = names.into_iter().partition(is_there);
        match self.placement.select(&missing) {
            Err(e) if there.is_empty() => Err(self.fail(format!("{key}: {e}"))),
            _ => Ok(there),
        }
    }

    /// Refuses names of the head and the embedding.
    fn check_inside(&self, names: &[String]) -> Result<()> {
        let is_outside = |name: &&String| *name != ALL_LINEAR && OUTSIDE.iter().any(|path| matches(name, path));
        match names.iter().find(is_outside) {
            None => Ok(()),
            Some(name) => {
                let problem = "is outside the layers: adapters of the head and the embedding are not supported";
                Err(self.fail(format!("target_modules: {name:?} {problem}")))
            }
        }
    }

    /// The targets as [`Placement::select`] reads them.
    pub fn read(&self) -> Result<Vec<String>> {
        let pattern = self.pattern("target_modules")?.ok_or_else(|| self.fail("target_modules is missing or empty"))?;
        let (exclude, layers) = (self.pattern("exclude_modules")?, self.layers()?);
        match pattern {
            Pattern::Names(names) if exclude.is_none() && layers.is_none() => {
                self.check_inside(&names)?;
                self.there("target_modules", names)
            }
            pattern => self.list("target_modules", |layer, path| {
                let in_layer = layers.as_ref().is_none_or(|layers| layers.contains(&layer));
                in_layer && pattern.matches(path) && !exclude.as_ref().is_some_and(|exclude| exclude.matches(path))
            }),
        }
    }

    /// The targets of IA3 whose input is scaled.
    pub fn feedforward(&self) -> Result<Vec<String>> {
        match self.pattern("feedforward_modules")? {
            None => Ok(Vec::new()),
            Some(Pattern::Names(names)) => self.there("feedforward_modules", names),
            Some(pattern) => self.list("feedforward_modules", |_, path| pattern.matches(path)),
        }
    }

    /// Names of the chosen projections: short ones if every layer has the same, else paths.
    fn list(&self, key: &str, chosen: impl Fn(usize, &str) -> bool) -> Result<Vec<String>> {
        let layers = 0..self.placement.layers;
        let in_layer = |site: &LinearSite, layer: usize| chosen(layer, &site.path(layer));
        let mut names = Vec::new();
        let sites = &self.placement.linear;
        if sites.iter().all(|site| layers.clone().all(|layer| in_layer(site, layer) == in_layer(site, 0))) {
            names.extend(sites.iter().filter(|site| in_layer(site, 0)).map(|site| site.name.clone()));
        } else {
            for layer in layers {
                names.extend(sites.iter().filter(|site| in_layer(site, layer)).map(|site| site.path(layer)));
            }
        }
        if names.is_empty() { Err(self.fail(format!("{key} matches no projection"))) } else { Ok(names) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_of_layers_have_the_name_that_the_family_gives_them() {
        let read = |layers: &'static str, pattern: Value| {
            let site = LinearSite { layers, ..LinearSite::new("c_attn", "attn", [2, 2]) };
            let placement = Placement { layers: 2, d_model: 2, linear: vec![site], stream: Vec::new() };
            let value = json!({ "target_modules": ["c_attn"], "layers_to_transform": 1, "layers_pattern": pattern });
            let value = value.as_object().unwrap();
            Targets { path: Path::new("adapter"), value, placement: &placement }.read().map_err(|e| e.to_string())
        };
        for pattern in [json!("h"), json!(["h"]), json!(["layers", "h"]), json!([]), Value::Null] {
            assert_eq!(read("transformer.h", pattern).unwrap(), ["transformer.h.1.attn.c_attn"]);
        }
        assert_eq!(read("model.layers", json!("layers")).unwrap(), ["model.layers.1.attn.c_attn"]);
        let refused = read("transformer.h", json!("layers")).unwrap_err();
        assert!(refused.contains("layers_pattern") && refused.contains("\"h\""), "{refused}");
    }
}
