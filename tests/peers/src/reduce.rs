//! Balanced truncation of every layer of an adapter.

use crate::protocol::{Program, Report, Tensors};
use anyhow::Result;
use hankel_core::{Random, Tensor};
use hankel_models::lti::{LinearSystem, OrderRule, Reduced, methods, reduce};
use hankel_models::reduce::{LayerAnalysis, OrderChoice, ReduceOptions, analyse, reduce_adapter};
use hankel_models::weights::arrays::Precision;
use hankel_models::weights::{HrmAdapterFile, HrmConfigFile, HrmDynamics, HrmLayerFile, HrmPreset, StreamSite};
use rayon::prelude::*;
use serde::Deserialize;

/// What is run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    layers: usize,
    states: usize,
    width: usize,
    /// States that are kept.
    order: usize,
}

/// An adapter and the order that is asked for.
pub struct Reduction {
    adapter: HrmAdapterFile,
    order: usize,
}

impl Reduction {
    /// Everything is drawn from fixed seeds.
    pub fn new(settings: &Settings) -> Self {
        let &Settings { layers, states, width, order } = settings;
        let layer = |layer: usize| {
            let normal = |name| Random::new(layer as u64, name, 0).normal_vec::<f64>(states * width, 0.02);
            // Poles from 0.5 to 1 - 1/4096, as at the start of training with sequences of that length.
            let (fast, slow) = (0.7_f64.ln(), (1.0_f64 / 4096.0).ln());
            let log_a = |i: usize| fast + (slow - fast) * i as f64 / (states - 1).max(1) as f64;
            HrmLayerFile {
                layer,
                site: StreamSite::Mlp,
                state_dim: states,
                width,
                b: normal("b").into(),
                c: normal("c").into(),
                gate: 1.0,
                dynamics: HrmDynamics::Diagonal { log_a: (0..states).map(log_a).collect(), log_dt: vec![0.0; states] },
            }
        };
        let adapter = HrmAdapterFile {
            config: HrmConfigFile::new(HrmPreset::Paper, states),
            layers: (0..layers).map(layer).collect(),
            precision: Precision::F64,
        };
        Reduction { adapter, order }
    }

    fn reduce(&self) -> Result<(Vec<LayerAnalysis>, Vec<Reduced>)> {
        let layers = analyse(&self.adapter)?;
        let truncate =
            |layer: &LayerAnalysis| Ok(reduce(&layer.system, &layer.spectrum, methods::bt::METHOD, self.order)?);
        let reduced = layers.par_iter().map(truncate).collect::<Result<_>>()?;
        Ok((layers, reduced))
    }
}

/// The matrices of a system under names that end in the layer's number.
fn put(all: &mut Tensors, layer: usize, system: &LinearSystem) -> Result<()> {
    let a = system.a().to_dense();
    for (name, m) in [("a", a.as_ref()), ("b", system.b()), ("c", system.c())] {
        let values = (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect();
        all.insert(format!("{name}.{layer}"), Tensor::from_vec::<f64>(values, [m.nrows(), m.ncols()])?);
    }
    Ok(())
}

impl Program for Reduction {
    fn inputs(&self) -> Result<Tensors> {
        let mut all = Tensors::new();
        for (number, layer) in analyse(&self.adapter)?.iter().enumerate() {
            put(&mut all, number, &layer.system)?;
        }
        Ok(all)
    }

    fn outputs(&mut self) -> Result<Tensors> {
        let (layers, reduced) = self.reduce()?;
        let mut all = Tensors::new();
        for (number, (layer, reduced)) in layers.iter().zip(&reduced).enumerate() {
            let sigma = layer.spectrum.values();
            all.insert(format!("sigma.{number}"), Tensor::from_vec(sigma.to_vec(), [sigma.len()])?);
            put(&mut all, number, &reduced.system)?;
        }
        Ok(all)
    }

    fn run(&mut self, report: &mut Report) -> Result<()> {
        report.time("reduce", || self.reduce())?;
        let orders = OrderChoice::PerLayer(OrderRule::Order(self.order));
        let options = ReduceOptions { orders, ..ReduceOptions::default() };
        report.time("reduce, with modal form and certificate", || reduce_adapter(&self.adapter, &options))?;
        Ok(())
    }
}
