//! A stream kind in the registry.

use super::{SiteContext, SiteSettings, Stream, StreamKind};
use crate::adapters::config::AdapterConfig;
use crate::adapters::kind::{AnyKind, Context, Kind, Sites};
use crate::adapters::shared::SharedParameters;
use crate::adapters::{AdapterSet, Placement};
use crate::settings::{self, Key, SettingsError, Table};
use crate::weights;
use hankel_core::{Error, Result};
use serde_json::Value;
use std::any::TypeId;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// [`StreamKind`] without its types.
pub(crate) struct StreamEntry<K>(PhantomData<fn() -> K>);

impl<K: StreamKind> StreamEntry<K> {
    const ENTRY: &'static Self = &StreamEntry(PhantomData);

    pub(crate) fn kind() -> Kind {
        Kind(Self::ENTRY)
    }

    /// The kind's own settings and those of its sites, from a table of both.
    fn read(table: &Table) -> std::result::Result<(K::Settings, SiteSettings), SettingsError> {
        let common = SiteSettings::keys();
        let own = |key: &String| !common.iter().any(|known| known.name == *key);
        let (own, common): (Table, Table) = table.clone().into_iter().partition(|(key, _)| own(key));
        Ok((settings::read(&own)?, settings::read(&common)?))
    }

    fn write(own: &K::Settings, common: &SiteSettings) -> std::result::Result<Table, SettingsError> {
        let mut all = settings::write(common)?;
        all.extend(settings::write(own)?);
        Ok(all)
    }
}

impl<K: StreamKind> AnyKind for StreamEntry<K> {
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
        Sites::Stream
    }

    fn size(&self) -> Option<&'static str> {
        K::SIZE
    }

    fn required(&self) -> &'static [&'static str] {
        K::REQUIRED
    }

    fn keys(&self) -> Vec<Key> {
        [K::keys(), SiteSettings::keys()].concat()
    }

    fn complete(&self, given: &Table, context: &Context<'_>) -> std::result::Result<Table, SettingsError> {
        let mut all = settings::write(&K::defaults(given, context))?;
        if context.pretrained {
            all.extend(K::OUTPUT_STD.map(|key| (key.to_owned(), Value::from(0.0_f64))));
        }
        all.extend(given.clone());
        // What is read by default may depend on the kind's own settings.
        let mut table = settings::write(&SiteSettings::default())?;
        table.extend(all.clone());
        let (own, _) = Self::read(&table)?;
        let output_std = K::OUTPUT_STD.and_then(|key| all.get(key)?.as_f64());
        let sites = if context.pretrained && output_std == Some(0.0) {
            SiteSettings::identity()
        } else {
            K::site_defaults(&own, context.pretrained)
        };
        let mut table = settings::write(&sites)?;
        table.extend(all);
        let (own, common) = Self::read(&table)?;
        Self::write(&own, &common)
    }

    fn check(&self, settings: &Table, context: &Context<'_>) -> std::result::Result<(), SettingsError> {
        let (own, common) = Self::read(settings)?;
        common.check(&context.placement.stream)?;
        K::check(&own)?;
        // What only the kind itself can judge is found by making one.
        let shared = SharedParameters::default();
        let d_model = context.placement.d_model;
        let site = SiteContext::new(K::KIND, [0, d_model, context.length], common.sites[0], 0, &shared);
        let made = super::make::<K>(&own, &site);
        made.map(|_| ()).map_err(|error| SettingsError::new("kind", format!("cannot be made as configured: {error}")))
    }

    fn open(&self, settings: &Table, _: &Context<'_>) -> &'static [&'static str] {
        Self::read(settings).map_or(&[], |(own, _)| K::open(&own))
    }

    fn idle(&self, settings: &Table) -> Vec<(&'static str, &'static str)> {
        Self::read(settings).map_or_else(|_| Vec::new(), |(own, _)| K::idle(&own))
    }

    fn begins_from(&self, settings: &Table) -> Option<Table> {
        let (own, common) = Self::read(settings).ok()?;
        Self::write(&K::begins_from(&own)?, &common).ok()
    }

    fn size_step(&self, settings: &Table) -> usize {
        Self::read(settings).map_or(1, |(own, _)| K::size_step(&own))
    }

    fn with_size(&self, settings: &Table, size: usize) -> std::result::Result<Table, SettingsError> {
        let mut all = settings.clone();
        all.extend(K::SIZE.map(|key| (key.to_owned(), size.into())));
        Ok(all)
    }

    fn count(&self, config: &AdapterConfig, placement: &Placement) -> Result<u64> {
        let (own, common) = Self::read(config.settings()).map_err(|e| Error::invalid(K::KIND, e.to_string()))?;
        if let Some(count) = K::count(&own, placement.d_model) {
            let at_a_site = count + usize::from(common.train_gate);
            return Ok((at_a_site * common.sites.len() * placement.layers) as u64);
        }
        // Layers are alike, but may have parameters in common.
        let of = |layers: usize| {
            let few = Placement { layers, ..placement.clone() };
            AdapterSet::new(config, &few, 0).map(|set| set.trainable_count() as u64)
        };
        let layers = placement.layers as u64;
        if layers < 2 { of(placement.layers) } else { Ok(of(1)? + (layers - 1) * (of(2)? - of(1)?)) }
    }

    fn describe(&self, settings: &Table) -> String {
        let Ok((own, common)) = Self::read(settings) else { return K::KIND.to_owned() };
        let sites: Vec<&str> = common.sites.iter().map(|site| site.name()).collect();
        let own = K::describe(&own);
        format!("{own}{}{}", if own.is_empty() { "" } else { ", " }, sites.join(" + "))
    }

    fn attach(&self, set: &mut AdapterSet, config: &AdapterConfig, placement: &Placement, seed: u64) -> Result<()> {
        let refuse = |error: SettingsError| Error::invalid(K::KIND, error.to_string());
        let (own, common) = Self::read(config.settings()).map_err(refuse)?;
        common.check(&placement.stream).map_err(refuse)?;
        K::check(&own).map_err(refuse)?;
        let shared = SharedParameters::default();
        for (layer, adapters) in set.layers.iter_mut().enumerate() {
            for &site in &common.sites {
                let sizes = [layer, placement.d_model, config.length()];
                let context = SiteContext::new(K::KIND, sizes, site, seed, &shared);
                let adapter = Arc::new(super::make::<K>(&own, &context)?);
                adapters.stream.insert(site, Stream::new(adapter, &common, &context)?);
            }
        }
        Ok(())
    }

    fn owns(&self, file: &Table) -> bool {
        file.get("peft_type").is_some_and(Value::is_string) && K::owns(file)
    }

    fn save(
        &self,
        set: &AdapterSet,
        config: &AdapterConfig,
        directory: &Path,
        base_model: Option<&str>,
    ) -> weights::Result<()> {
        K::save(set, config, directory, base_model)
    }

    fn load(
        &self,
        directory: &Path,
        file: &Table,
        placement: &Placement,
        length: usize,
    ) -> weights::Result<AdapterSet> {
        K::load(directory, file, placement, length)
    }
}
