//! Sites: the places of a backbone where adapters can be attached.

use crate::weights::HrmSite as StreamSite;
use hankel_core::{Error, Result};

/// A projection of every layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearSite {
    /// `q_proj`, `up_proj` ...
    pub name: String,
    /// The module it is in, in files: `self_attn` or `mlp`.
    pub module: &'static str,
    /// Width of the input.
    pub inputs: usize,
    /// Width of the output.
    pub outputs: usize,
}

impl LinearSite {
    pub(crate) fn new(name: &str, module: &'static str, [inputs, outputs]: [usize; 2]) -> Self {
        LinearSite { name: name.to_owned(), module, inputs, outputs }
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

impl Placement {
    /// The projections that `targets` name; `all-linear` names every one.
    ///
    /// # Errors
    /// When a target matches nothing.
    pub fn resolve(&self, targets: &[String]) -> Result<Vec<&LinearSite>> {
        let mut found: Vec<&LinearSite> = Vec::new();
        for target in targets {
            let matches = self.linear.iter().filter(|site| target == "all-linear" || site.name == *target);
            let before = found.len();
            found.extend(matches);
            if found.len() == before {
                let names: Vec<&str> = self.linear.iter().map(|site| site.name.as_str()).collect();
                let problem =
                    format!("target {target:?} matches no projection; there are {}, or all-linear", names.join(", "));
                return Err(Error::invalid("adapter", problem));
            }
        }
        found.sort_by_key(|site| self.linear.iter().position(|other| other == *site));
        found.dedup();
        Ok(found)
    }
}
