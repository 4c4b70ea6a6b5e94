//! A linear kind in the registry.

use super::{LinearContext, LinearKind, check_targets, peft};
use crate::adapters::config::AdapterConfig;
use crate::adapters::kind::{AnyKind, Context, Kind, Sites};
use crate::adapters::{AdapterSet, Placement};
use crate::settings::{self, Key, SettingsError, Table};
use crate::weights;
use hankel_core::{Error, Result};
use std::any::TypeId;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// [`LinearKind`] without its types.
pub(crate) struct LinearEntry<K>(PhantomData<fn() -> K>);

impl<K: LinearKind> LinearEntry<K> {
    const ENTRY: &'static Self = &LinearEntry(PhantomData);

    pub(crate) fn kind() -> Kind {
        Kind(Self::ENTRY)
    }

    fn read(settings: &Table) -> Result<K::Settings> {
        settings::read(settings).map_err(|error| Error::invalid(K::KIND, error.to_string()))
    }
}

impl<K: LinearKind> AnyKind for LinearEntry<K> {
    fn name(&self) -> &'static str {
        K::KIND
    }

    fn id(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn about(&self) -> &'static str {
        K::ABOUT
    }

    fn sites(&self) -> Sites {
        Sites::Linear
    }

    fn size(&self) -> Option<&'static str> {
        K::SIZE
    }

    fn required(&self) -> &'static [&'static str] {
        K::REQUIRED
    }

    fn keys(&self) -> Vec<Key> {
        K::keys()
    }

    fn complete(&self, given: &Table, context: &Context<'_>) -> std::result::Result<Table, SettingsError> {
        let mut all = settings::write(&K::defaults(given, context))?;
        all.extend(given.clone());
        settings::write(&settings::read::<K::Settings>(&all)?)
    }

    fn check(&self, settings: &Table, context: &Context<'_>) -> std::result::Result<(), SettingsError> {
        let settings = settings::read::<K::Settings>(settings)?;
        K::check(&settings)?;
        check_targets(K::targets(&settings), context.placement)
    }

    fn open(&self, settings: &Table, context: &Context<'_>) -> &'static [&'static str] {
        settings::read::<K::Settings>(settings).map_or(&[], |settings| K::open(&settings, context))
    }

    fn size_step(&self, _: &Table) -> usize {
        1
    }

    fn with_size(&self, settings: &Table, size: usize) -> std::result::Result<Table, SettingsError> {
        let mut all = settings.clone();
        all.extend(K::SIZE.map(|key| (key.to_owned(), size.into())));
        let mut settings = settings::read::<K::Settings>(&all)?;
        K::fit_size(&mut settings);
        settings::write(&settings)
    }

    fn count(&self, config: &AdapterConfig, placement: &Placement) -> Result<u64> {
        let settings = Self::read(config.settings())?;
        let sites = placement.select(K::targets(&settings))?;
        Ok(sites.into_iter().map(|(layer, site)| K::count(&settings, layer, site) as u64).sum())
    }

    fn describe(&self, settings: &Table) -> String {
        settings::read(settings).map_or_else(|error| error.to_string(), |settings| K::describe(&settings))
    }

    fn attach(&self, set: &mut AdapterSet, config: &AdapterConfig, placement: &Placement, seed: u64) -> Result<()> {
        let settings = Self::read(config.settings())?;
        let refuse = |error: SettingsError| Error::invalid(K::KIND, error.to_string());
        K::check(&settings).map_err(refuse)?;
        let targets = K::targets(&settings);
        check_targets(targets, placement).map_err(refuse)?;
        let mut adapters = Vec::new();
        for (layer, site) in placement.select(targets)? {
            let adapter = Arc::new(K::new(&settings, &LinearContext::new(layer, site, seed))?);
            set.layers[layer].linear.insert(site.name.clone(), adapter.clone());
            adapters.push(adapter);
        }
        set.training = K::training(&settings, adapters);
        Ok(())
    }

    fn owns(&self, file: &Table) -> bool {
        file.get("peft_type").and_then(serde_json::Value::as_str) == Some(K::PEFT_TYPE) && K::owns(file)
    }

    fn save(
        &self,
        set: &AdapterSet,
        config: &AdapterConfig,
        directory: &Path,
        base_model: Option<&str>,
    ) -> weights::Result<()> {
        peft::save::<K>(set, config, directory, base_model)
    }

    fn load(&self, directory: &Path, file: &Table, placement: &Placement, _: usize) -> weights::Result<AdapterSet> {
        peft::load::<K>(directory, file, placement)
    }
}
