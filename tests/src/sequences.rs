//! Several documents in one sequence, and one document in several parts, for any backbone.

use crate::gradients::relative_error;
use crate::largest_difference;
use hankel_core::{DType, Gradients, Random, Tensor, no_grad};
use hankel_models::adapters::Dora;
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Parameter, Pass, State, StepKey};
use hankel_ops::Targets;

/// Bounds what rounding in doubles leaves of two gradients that are equal.
const EQUAL: f64 = 1e-11;

/// The same without dropout, whose masks depend on where a token stands.
pub fn without_dropout(config: AdapterConfig) -> AdapterConfig {
    if config.settings().contains_key("dropout") { config.with("dropout", 0.0) } else { config }
}

fn ids(name: &str, shape: [usize; 2], vocabulary: usize) -> Tensor {
    let random = Random::new(6, name, 0);
    let ids = (0..(shape[0] * shape[1]) as u64).map(|i| random.below(i, vocabulary) as u32).collect();
    Tensor::from_vec(ids, shape).unwrap()
}

/// `[1, T]` of steps `first..first + steps` of a sequence.
fn part(ids: &Tensor, first: usize, steps: usize) -> Tensor {
    Tensor::from_vec(ids.data::<u32>().unwrap()[first..first + steps].to_vec(), [1, steps]).unwrap()
}

fn loss(model: &dyn Backbone, adapters: &AdapterSet, tokens: &Tensor, pass: &mut Pass) -> hankel_core::Result<Tensor> {
    // Every token predicts itself: enough for a gradient. Every third one does not count.
    let shape = tokens.shape().clone();
    let weights = (0..tokens.elements()).map(|i| if i % 3 == 2 { 0.0 } else { 1.0 + (i % 5) as f64 }).collect();
    let weights: Tensor = Tensor::from_vec::<f64>(weights, shape).unwrap();
    let targets = Targets { tokens, weights: &weights, smoothing: 0.0, normalizer: 10.0 };
    model.loss(tokens, targets, adapters, pass)
}

fn training(recompute: bool) -> Pass<'static> {
    Pass { recompute, ..Pass::training(StepKey { seed: 1, step: 2 }) }
}

fn compare(name: &str, adapters: &AdapterSet, a: &Gradients, b: &Gradients) {
    for parameter in adapters.parameters() {
        let [a, b] = [a, b].map(|g| g.get(&parameter.tensor()).map(Tensor::to_f64_vec).unwrap_or_default());
        let scale = a.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
        let worst = largest_difference(&a, &b);
        assert!(worst <= EQUAL * scale, "{name}: {} differs by {worst:e} of {scale:e}", parameter.name());
    }
}

/// Documents of 3, 1 and 7 tokens end to end have the loss and the gradients that they have one by one.
pub fn packed_documents_are_apart(name: &str, model: &dyn Backbone, adapters: &AdapterSet) {
    model.to_dtype(DType::F64).unwrap();
    adapters.to_dtype(DType::F64).unwrap();
    let all = ids("packed", [1, 11], model.vocabulary());
    let pieces = [(0, 3), (3, 1), (4, 7)];
    let mut apart = Gradients::default();
    let mut sum = 0.0;
    for (first, steps) in pieces {
        let weights = (first..first + steps).map(|i| if i % 3 == 2 { 0.0 } else { 1.0 + (i % 5) as f64 }).collect();
        let weights = Tensor::from_vec::<f64>(weights, [1, steps]).unwrap();
        let tokens = part(&all, first, steps);
        let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer: 10.0 };
        let loss = model.loss(&tokens, targets, adapters, &mut training(false)).unwrap();
        sum += loss.to_f64_vec()[0];
        apart.accumulate(loss.backward().unwrap()).unwrap();
    }
    for recompute in [false, true] {
        let mut pass = Pass { documents: Some([0, 3, 4].into()), ..training(recompute) };
        let packed = loss(model, adapters, &all, &mut pass).unwrap();
        let value = packed.to_f64_vec()[0];
        assert!((value - sum).abs() < EQUAL * sum, "{name}: {value} packed, {sum} apart");
        compare(name, adapters, &apart, &packed.backward().unwrap());
    }
    let whole = loss(model, adapters, &all, &mut training(false)).unwrap().to_f64_vec()[0];
    assert!((whole - sum).abs() > 1e-6, "{name}: borders make a difference");
    for documents in [vec![1], vec![0, 11], vec![0, 4, 4], vec![]] {
        let mut pass = Pass { documents: Some(documents.into()), ..training(false) };
        assert!(loss(model, adapters, &all, &mut pass).is_err());
    }
}

/// A sequence in parts of 4 and 7 tokens has the loss of the whole, and the gradient of the second part is that of its
/// loss with the state before it held fixed.
pub fn parts_carry_their_state(name: &str, model: &dyn Backbone, adapters: &AdapterSet) {
    model.to_dtype(DType::F64).unwrap();
    adapters.to_dtype(DType::F64).unwrap();
    let all = ids("parts", [1, 11], model.vocabulary());
    let (head, tail) = (part(&all, 0, 4), part(&all, 4, 7));
    let mut state = State::default();
    no_grad(|| model.hidden(&head, adapters, &mut Pass::streaming(&mut state))).unwrap();

    let hidden = no_grad(|| model.hidden(&all, adapters, &mut Pass::evaluation())).unwrap().to_f64_vec();
    let mut copy = state.clone();
    let streamed = model.hidden(&tail, adapters, &mut Pass { state: Some(&mut copy), ..training(true) }).unwrap();
    let streamed = streamed.to_f64_vec();
    let expected = &hidden[hidden.len() - streamed.len()..];
    let worst = largest_difference(&streamed, expected);
    assert!(worst < 1e-10, "{name}: the second part differs from the whole by {worst:e}");

    let second = |recompute: bool| {
        let mut copy = state.clone();
        let loss = loss(model, adapters, &tail, &mut Pass { state: Some(&mut copy), ..training(recompute) });
        (loss.unwrap(), copy)
    };
    let ((plain, after), (again, after_again)) = (second(false), second(true));
    assert_eq!((after.position, after_again.position), (11, 11), "{name}");
    compare(name, adapters, &plain.backward().unwrap(), &again.backward().unwrap());
    // What was left behind is the same, too: a third part says so.
    let third = |mut state: State| no_grad(|| model.hidden(&head, adapters, &mut Pass::streaming(&mut state))).unwrap();
    assert_eq!(third(after).to_f64_vec(), third(after_again).to_f64_vec(), "{name}");

    differences_agree(name, adapters, || {
        let mut copy = state.clone();
        loss(model, adapters, &tail, &mut Pass { state: Some(&mut copy), ..training(true) })
    });
}

/// The gradient of `loss` by the adapters is that of central differences.
fn differences_agree(name: &str, adapters: &AdapterSet, loss: impl Fn() -> hankel_core::Result<Tensor>) {
    for (_, adapter) in adapters.linears() {
        // Constants of the backward pass must be constants of the differences too.
        if let Some(dora) = adapter.downcast_ref::<Dora>() {
            dora.hold_norms(true);
        }
    }
    let trained: Vec<Parameter> = adapters.parameters().into_iter().filter(Parameter::is_trainable).collect();
    let values: Vec<Tensor> = trained.iter().map(Parameter::tensor).collect();
    let error = relative_error(&values, 5, |x| {
        trained.iter().zip(x).for_each(|(p, x)| p.update(|value| *value = x.clone()));
        loss()
    });
    let error = error.unwrap();
    // Differences of random models are off by up to 4e-6 by their own rounding and curvature.
    assert!(error < 1e-5, "{name}: relative error of the gradient {error:e}");
    trained.iter().zip(values).for_each(|(p, x)| p.update(|value| *value = x));
}

/// Two documents of 5 and 6 tokens in turns of 3, 2 and 1, 5 tokens: every turn reads what stream adapters remember of its
/// document, and nothing else of it. The gradient flows back over the turns.
pub fn turns_are_known_by_memory_alone(name: &str, model: &dyn Backbone, adapters: &AdapterSet) {
    model.to_dtype(DType::F64).unwrap();
    adapters.to_dtype(DType::F64).unwrap();
    let all = ids("turns", [1, 11], model.vocabulary());
    let (documents, turns) = ([0, 5], [0, 3, 5, 6]);
    let divided =
        |recompute| Pass { documents: Some(documents.into()), turns: Some(turns.into()), ..training(recompute) };
    let mut streamed = Vec::new();
    let mut state = State::default();
    for (index, &first) in turns.iter().enumerate() {
        let end = turns.get(index + 1).copied().unwrap_or(11);
        if documents.contains(&first) {
            state = State::default();
        }
        state.begin_turn();
        let pass = &mut Pass::streaming(&mut state);
        streamed
            .extend(no_grad(|| model.hidden(&part(&all, first, end - first), adapters, pass)).unwrap().to_f64_vec());
    }
    let batch = model.hidden(&all, adapters, &mut divided(false)).unwrap().to_f64_vec();
    let worst = largest_difference(&batch, &streamed);
    assert!(worst < 1e-10, "{name}: a stream of turns differs by {worst:e}");
    let apart = Pass { documents: Some(turns.into()), ..training(false) };
    let apart = model.hidden(&all, adapters, &mut { apart }).unwrap().to_f64_vec();
    if adapters.streams().next().is_none() {
        assert_eq!(apart, batch, "{name}: nothing remembers");
    }

    let loss = |recompute| loss(model, adapters, &all, &mut divided(recompute));
    compare(name, adapters, &loss(false).unwrap().backward().unwrap(), &loss(true).unwrap().backward().unwrap());
    differences_agree(name, adapters, || loss(true));
    // A document begins within a turn; turns that do not divide the sequence.
    for turns in [vec![0, 3], vec![5], vec![0, 5, 11]] {
        let mut pass = Pass { turns: Some(turns.into()), ..divided(false) };
        assert!(model.hidden(&all, adapters, &mut pass).is_err(), "{name}");
    }
}
