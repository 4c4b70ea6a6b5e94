//! Kinds with a mistake each, and what finds it.

use super::{Memory, Recurrence, SiteContext, StreamAdapter, StreamKind, VaryingSystem, conformance, last_states};
use crate::adapters::{AdapterConfig, AdapterSet, Placement, StreamSite};
use crate::parameter::{Parameter, Role};
use hankel_core::{Result, Tensor};
use hankel_ops::{Poles, ScanPath, add, linear, scale, scan};
use serde::{Deserialize, Serialize};

#[derive(Default, Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Mistake {
    #[default]
    None,
    TakenName,
    SameName,
    NotANumber,
    OtherRecurrence,
    OtherSystem,
    Double,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    mistake: Mistake,
}

/// `s_t = a s_{t-1} + B x_t`, `y_t = C s_t`.
struct Wrong {
    mistake: Mistake,
    a: Parameter,
    b: Parameter,
    c: Parameter,
}

const STATES: usize = 3;

impl StreamKind for Wrong {
    const KIND: &'static str = "wrong";
    type Settings = Settings;

    fn new(settings: &Settings, context: &SiteContext<'_>) -> Result<Self> {
        let mistake = settings.mistake;
        let a = if mistake == Mistake::TakenName { "gate" } else { "a" };
        let c = if mistake == Mistake::SameName { "b" } else { "c" };
        Ok(Wrong {
            mistake,
            a: context.parameter(a, Role::Vector, &Tensor::full([STATES], 0.5_f32))?,
            b: context.normal("b", [STATES, context.d_model], 0.3)?,
            c: context.normal(c, [context.d_model, STATES], 0.3)?,
        })
    }
}

impl Wrong {
    fn like(&self, mistake: Mistake) -> Result<Recurrence> {
        let factor = if self.mistake == mistake { 2.0 } else { 1.0 };
        let (b, c) = (self.b.tensor(), scale(&self.c.tensor(), factor)?);
        Ok(Recurrence { poles: Poles::Diagonal(self.a.tensor()), b, c, path: ScanPath::Sequential })
    }
}

impl StreamAdapter for Wrong {
    fn parameters(&self) -> Vec<Parameter> {
        vec![self.a.clone(), self.b.clone(), self.c.clone()]
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let before = memory.and_then(|memory| memory.first());
        let u = linear(x, &self.b.tensor(), None)?;
        let states = scan(&u, &Poles::Diagonal(self.a.tensor()), before, ScanPath::Sequential)?;
        let y = linear(&states, &self.c.tensor(), None)?;
        let y = if self.mistake == Mistake::NotANumber { scale(&y, f64::NAN)? } else { y };
        // A constant of one type, whatever that of x is.
        let y = if self.mistake == Mistake::Double { add(&y, &Tensor::full(y.shape(), 1.0_f64))? } else { y };
        Ok((y, vec![last_states(&states, before)?]))
    }

    fn recurrence(&self) -> Result<Option<Recurrence>> {
        self.like(Mistake::OtherRecurrence).map(Some)
    }

    fn system(&self, x: &Tensor) -> Result<Option<VaryingSystem>> {
        let [batch, steps, _] = [0, 1, 2].map(|i| x.shape()[i]);
        let shape = [batch, steps, STATES];
        let rates: Vec<f64> = self.a.tensor().to_f64_vec().iter().map(|a| -a.abs().max(1e-9).ln()).collect();
        let rate = Tensor::from_vec(rates.repeat(batch * steps), shape)?.to_dtype(x.dtype())?;
        let Recurrence { b, c, .. } = self.like(Mistake::OtherSystem)?;
        let ones = x.full_like(shape, 1.0)?;
        Ok(Some(VaryingSystem { rate, input: ones.clone(), output: ones, b, c }))
    }
}

#[test]
fn conformance_finds_each() {
    let of = |mistake| conformance::<Wrong>(&Settings { mistake }).map_err(|error| error.to_string());
    of(Mistake::None).unwrap();
    for (mistake, expected) in [
        (Mistake::TakenName, "a parameter is called gate, as one of the harness is"),
        (Mistake::SameName, "two parameters are called b"),
        (Mistake::NotANumber, "by NaN"),
        (Mistake::OtherRecurrence, "the output of `recurrence` differs"),
        (Mistake::OtherSystem, "the output of `system` differs"),
        (Mistake::Double, "in single precision: add"),
    ] {
        let message = of(mistake).unwrap_err();
        assert!(message.contains(expected), "{mistake:?}: {message}");
    }
}

#[test]
fn sets_refuse_taken_names_and_are_no_hrm() {
    let placement = Placement { layers: 2, d_model: 4, linear: Vec::new(), stream: vec![StreamSite::Mlp] };
    let set = |mistake| AdapterSet::new(&AdapterConfig::stream::<Wrong>(&Settings { mistake }), &placement, 0);
    for mistake in [Mistake::TakenName, Mistake::SameName] {
        assert!(set(mistake).err().unwrap().to_string().contains("called"), "{mistake:?}");
    }
    let set = set(Mistake::None).unwrap();
    assert!(set.is_recurrent().unwrap() && !set.is_reducible());
    assert!(set.check_layers(2).is_ok());
    let message = set.check_layers(3).unwrap_err().to_string();
    assert!(message.contains("for 2 layers, the model has 3"), "{message}");
}
