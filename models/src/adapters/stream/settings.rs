//! Settings that every kind on the stream has.

use crate::settings::{SettingsError, one_or_many, settings};
use crate::weights::{StreamInput, StreamSite};

settings! {
    /// Where adapters are on the stream, what they read, and their gates.
    pub struct SiteSettings {
        /// Sub-layers after which the adapters are: `"mlp"`, `"attention"`, or both in a list.
        #[serde(deserialize_with = "one_or_many")]
        pub sites: Vec<StreamSite> = r#"`["mlp"]`"#,
        /// What is read: `"residual"`, the stream itself; `"norm"`, the normalised input of the sub-layer (of OLMo 2, which has no norm
        /// there, the stream divided by its root mean square); `"sublayer"`, its output before the sum.
        pub input: StreamInput = r#"`"residual"`; `"norm"` on a pretrained backbone where `c_std` is 0; HRM: that of `preset`"#,
        /// Initial gate.
        pub gate_init: f64 = "0.1; 1 on a pretrained backbone where `c_std` is 0; HRM: that of `preset`",
        /// Whether the gate is trained.
        pub train_gate: bool = "true",
    }
}

impl Default for SiteSettings {
    fn default() -> Self {
        SiteSettings { sites: vec![StreamSite::Mlp], input: StreamInput::Residual, gate_init: 0.1, train_gate: true }
    }
}

impl SiteSettings {
    /// For an adapter whose output is 0 at first, as that of LoRA is by its B: it reads the normalised input of the sub-layer, whose size
    /// is the same in every model, behind a gate of 1, through which the gradient passes whole.
    pub fn identity() -> Self {
        SiteSettings { input: StreamInput::Norm, gate_init: 1.0, ..Self::default() }
    }

    /// At least one site, each once, all of the backbone's.
    pub(crate) fn check(&self, available: &[StreamSite]) -> Result<(), SettingsError> {
        let sites = &self.sites;
        SettingsError::unless(!sites.is_empty(), "sites", || "must name `mlp`, `attention` or both".to_owned())?;
        let mut sorted = sites.clone();
        sorted.sort_unstable();
        sorted.dedup();
        SettingsError::unless(sites.len() == sorted.len(), "sites", || "names a site twice".to_owned())?;
        SettingsError::unless(sites.iter().all(|site| available.contains(site)), "sites", || {
            "names a site that the backbone does not have".to_owned()
        })?;
        // Gates are in single precision.
        SettingsError::unless((self.gate_init as f32).is_finite(), "gate_init", || {
            format!("must be finite in single precision, found {:?}", self.gate_init)
        })
    }
}
