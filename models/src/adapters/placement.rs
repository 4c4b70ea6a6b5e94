//! Sites: the places of a backbone where adapters can be attached.

use crate::weights::StreamSite;
use hankel_core::{Error, Result};

/// A projection of every layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearSite {
    /// `q_proj`, `up_proj` ...
    pub name: String,
    /// The list of layers it is in, in files: `model.layers`.
    pub layers: &'static str,
    /// The module it is in, in files: `self_attn` or `mlp`; empty when the name says it.
    pub module: &'static str,
    /// Width of the input.
    pub inputs: usize,
    /// Width of the output.
    pub outputs: usize,
}

impl LinearSite {
    pub(crate) fn new(name: &str, module: &'static str, [inputs, outputs]: [usize; 2]) -> Self {
        LinearSite { name: name.to_owned(), layers: "model.layers", module, inputs, outputs }
    }
}

/// What a backbone offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Projections of each layer.
    pub linear: Vec<LinearSite>,
    /// Sites on the stream of each layer.
    pub stream: Vec<StreamSite>,
}

impl LinearSite {
    /// The projection's name in layer `layer`: `model.layers.2.self_attn.q_proj`.
    pub fn path(&self, layer: usize) -> String {
        let dot = if self.module.is_empty() { "" } else { "." };
        format!("{}.{layer}.{}{dot}{}", self.layers, self.module, self.name)
    }
}

impl Placement {
    /// The projections that `targets` name, as (layer, site), layer by layer. A target is a projection's name
    /// (`q_proj`), its path or the end of it from a dot on (`mlp.up_proj`, `layers.0.self_attn.q_proj`), or
    /// `all-linear`, which is every projection of every layer.
    ///
    /// # Errors
    /// When a target matches nothing.
    pub fn select(&self, targets: &[String]) -> Result<Vec<(usize, &LinearSite)>> {
        let all = || (0..self.layers).flat_map(|layer| self.linear.iter().map(move |site| (layer, site)));
        for target in targets {
            if !all().any(|(layer, site)| matches(target, &site.path(layer))) {
                let names: Vec<&str> = self.linear.iter().map(|site| site.name.as_str()).collect();
                let problem =
                    format!("target {target:?} matches no projection; there are {}, or all-linear", names.join(", "));
                return Err(Error::invalid("adapter", problem));
            }
        }
        let chosen = |layer, site: &LinearSite| {
            let path = site.path(layer);
            targets.iter().any(|target| matches(target, &path))
        };
        Ok(all().filter(|(layer, site)| chosen(*layer, site)).collect())
    }

    /// The default targets of PEFT: `names`, as in Llama. Where a family has no projection of such a name, the last one of a layer takes
    /// the place of `down_proj`, and the first one that of the others: `attn.c_attn` (GPT-2) or `qkv_proj` (Phi-3).
    pub(crate) fn usual(&self, names: &[&str]) -> Vec<String> {
        let mut targets: Vec<String> = Vec::new();
        for name in names {
            let other = if *name == "down_proj" { self.linear.last() } else { self.linear.first() };
            let is_here = self.linear.iter().any(|site| site.name == *name);
            let target = other.filter(|_| !is_here).map_or(*name, |site| &site.name);
            if targets.iter().all(|chosen| chosen != target) {
                targets.push(target.to_owned());
            }
        }
        targets
    }
}

/// Whether `target` names the projection at `path`: the rule of PEFT's lists.
pub(crate) fn matches(target: &str, path: &str) -> bool {
    let ends = |rest: &str| rest.is_empty() || rest.ends_with('.');
    target == ALL_LINEAR || path.strip_suffix(target).is_some_and(|rest| !target.is_empty() && ends(rest))
}

/// The target that is every projection.
pub(crate) const ALL_LINEAR: &str = "all-linear";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_targets_are_those_of_peft_in_every_family() {
        let usual = |names: &[&str], wanted: &[&str]| {
            let linear = names.iter().map(|name| LinearSite::new(name, "", [2, 2])).collect();
            Placement { layers: 1, d_model: 2, linear, stream: Vec::new() }.usual(wanted)
        };
        let llama = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
        let phi = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"];
        let gpt = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"];
        assert_eq!(usual(&llama, &["q_proj", "v_proj"]), ["q_proj", "v_proj"]);
        assert_eq!(usual(&phi, &["q_proj", "v_proj"]), ["qkv_proj"]);
        assert_eq!(usual(&gpt, &["q_proj", "v_proj"]), ["attn.c_attn"]);
        assert_eq!(usual(&phi, &["k_proj", "v_proj", "down_proj"]), ["qkv_proj", "down_proj"]);
        assert_eq!(usual(&gpt, &["k_proj", "v_proj", "down_proj"]), ["attn.c_attn", "mlp.c_proj"]);
        assert_eq!(usual(&[], &["q_proj"]), ["q_proj"]);
    }
}
