//! Reverse-mode automatic differentiation.
//!
//! An operator's output holds a node: the operator's name, the nodes of its tracked inputs and a rule, a closure that
//! turns the gradient of the output into gradients of the inputs. Nodes are numbered as they are made, so going through
//! them by falling number is a reverse topological order: [`Tensor::backward`] is a loop over a heap, visits only nodes on
//! a path to a leaf, and drops each rule, with the tensors it saved, as soon as it has run.

use crate::{DType, Error, Result, Shape, Tensor, precision, with_precision};
use std::cell::{Cell, RefCell};
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

type Rule = Box<dyn FnOnce(Tensor, &mut Wanted) -> Result<Vec<Option<Tensor>>> + Send>;
type RecomputeRule = Box<dyn FnOnce(Tensor, &mut Gradients) -> Result<Vec<Option<Tensor>>> + Send>;

/// Which gradients a rule is asked for, by input: a slice of flags.
pub struct Wanted<'a> {
    flags: Vec<bool>,
    parents: &'a [Option<Arc<Node>>],
    pending: &'a mut Gradients,
    taken: Vec<bool>,
}

impl Wanted<'_> {
    /// What other operators have added to the gradient of this input so far. A rule that takes it returns the sum of it and its own
    /// gradient, which saves a pass over memory where a kernel can add as it writes.
    ///
    /// # Panics
    /// When there is no such input; the backward pass panics when a rule has taken a sum and returns no gradient.
    pub fn take_sum(&mut self, input: usize) -> Option<Tensor> {
        let sum = self.pending.0.remove(&self.parents[input].as_ref()?.id)?;
        self.taken[input] = true;
        Some(sum)
    }
}

impl std::ops::Deref for Wanted<'_> {
    type Target = [bool];
    fn deref(&self) -> &[bool] {
        &self.flags
    }
}

enum Kind {
    Leaf,
    Operator(Rule),
    Recompute(RecomputeRule),
    /// The output of a region that is only being probed, or of a rule that has run.
    Spent,
}

/// A vertex of the graph.
pub(crate) struct Node {
    id: u64,
    operator: &'static str,
    leaf: bool,
    /// Those of the tensor, which its gradient has, too.
    shape: Shape,
    dtype: DType,
    parents: Vec<Option<Arc<Node>>>,
    kind: Mutex<Kind>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Node {
    fn new(output: &Tensor, operator: &'static str, parents: Vec<Option<Arc<Node>>>, kind: Kind) -> Arc<Self> {
        let leaf = matches!(kind, Kind::Leaf);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (shape, dtype) = (output.shape().clone(), output.dtype());
        Arc::new(Node { id, operator, leaf, shape, dtype, parents, kind: Mutex::new(kind) })
    }

    pub(crate) fn leaf(of: &Tensor) -> Arc<Self> {
        Self::new(of, "leaf", Vec::new(), Kind::Leaf)
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.leaf
    }

    fn take(&self) -> Kind {
        std::mem::replace(&mut *self.kind.lock().expect("a backward rule panicked"), Kind::Spent)
    }
}

impl Drop for Node {
    /// Frees a long chain of nodes without recursion.
    fn drop(&mut self) {
        let mut pending: Vec<Arc<Node>> = self.parents.drain(..).flatten().collect();
        while let Some(node) = pending.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                pending.extend(node.parents.drain(..).flatten());
            }
        }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
impl Eq for Node {}
impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Node {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.id.cmp(&other.id)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Record,
    Off,
    /// Outputs know that they are tracked, but no rule is kept: the first pass through a recomputed region.
    Probe,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Record) };
    static SEARCHING: Cell<bool> = const { Cell::new(false) };
    /// The operator whose rule is running.
    static BACKWARD: Cell<Option<&'static str>> = const { Cell::new(None) };
    static SCOPES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn with_cell<V: Copy, R>(
    key: &'static std::thread::LocalKey<Cell<V>>,
    value: V,
    f: impl FnOnce() -> R,
) -> R {
    struct Restore<V: Copy + 'static>(&'static std::thread::LocalKey<Cell<V>>, V);
    impl<V: Copy> Drop for Restore<V> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _restore = Restore(key, key.replace(value));
    f()
}

/// Runs `f` without recording: nothing computed inside is tracked.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with_cell(&MODE, Mode::Off, f)
}

/// Whether operators on tracked tensors are being recorded.
pub(crate) fn is_recording() -> bool {
    MODE.get() != Mode::Off
}

/// Whether the backward pass will want the gradient of `tensor`. An operator saves what only that gradient needs if so.
pub fn needs_gradient(tensor: &Tensor) -> bool {
    MODE.get() == Mode::Record && tensor.is_tracked()
}

/// Runs `f` inside a named scope; errors name the scopes, such as `layers.2.mlp`.
pub fn scope<R>(name: impl Into<String>, f: impl FnOnce() -> R) -> R {
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            SCOPES.with_borrow_mut(Vec::pop);
        }
    }
    SCOPES.with_borrow_mut(|scopes| scopes.push(name.into()));
    let _pop = Pop;
    f()
}

fn scope_path() -> String {
    SCOPES.with_borrow(|scopes| if scopes.is_empty() { "model".to_owned() } else { scopes.join(".") })
}

/// The current scope or operator, for messages.
pub(crate) fn place() -> String {
    let scopes = SCOPES.with_borrow(|scopes| scopes.join("."));
    match (scopes.is_empty(), BACKWARD.get()) {
        (true, None) => "a tensor".to_owned(),
        (true, Some(operator)) => format!("the backward pass of {operator}"),
        (false, None) => scopes,
        (false, Some(_)) => format!("the backward pass of {scopes}"),
    }
}

/// Runs `f` and fails with [`Error::NonFinite`] at the first operator whose output is not finite, forward or backward.
/// Slow: every output is read once more. Meant for a second run of a step that went wrong.
pub fn find_non_finite<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    with_cell(&SEARCHING, true, f)
}

pub(crate) fn record(output: Tensor, operator: &'static str, inputs: &[Option<&Tensor>], rule: Rule) -> Result<Tensor> {
    let searching = SEARCHING.get();
    if searching && !output.is_finite() {
        return Err(Error::NonFinite { scope: scope_path(), operator, phase: "forward" });
    }
    let mode = MODE.get();
    if mode == Mode::Off || inputs.iter().flatten().all(|input| !input.is_tracked()) {
        return Ok(output);
    }
    if mode == Mode::Probe {
        let node = Node::new(&output, operator, Vec::new(), Kind::Spent);
        return Ok(output.with_node(node));
    }
    let parents = inputs.iter().map(|input| input.and_then(Tensor::node).cloned()).collect();
    let rule: Rule = if searching {
        let scope = scope_path();
        Box::new(move |gradient, wanted| {
            let gradients = rule(gradient, wanted)?;
            if gradients.iter().flatten().any(|gradient| !gradient.is_finite()) {
                return Err(Error::NonFinite { scope, operator, phase: "backward" });
            }
            Ok(gradients)
        })
    } else {
        rule
    };
    let node = Node::new(&output, operator, parents, Kind::Operator(rule));
    Ok(output.with_node(node))
}

/// Computes `f(inputs)` now without keeping what its gradient needs, and computes it again during the backward pass.
///
/// Tracked leaves (parameters) may be captured by `f` freely; tracked results of operators must come in through `inputs`.
/// `f` must give the same result both times: random operators are keyed by (seed, name, step), so they do.
///
/// The inputs are kept until the backward pass, in the element type `kept` if there is one, `bf16` say. Both times `f` then sees
/// the rounded values, in the type of the inputs; the gradient passes through the rounding unchanged.
///
/// # Errors
/// Those of `f`, and when inputs do not convert to `kept`; during the backward pass [`Error::CapturedOutside`].
pub fn checkpoint(
    kept: Option<DType>,
    inputs: &[&Tensor],
    f: impl Fn(&[Tensor]) -> Result<Tensor> + Send + 'static,
) -> Result<Tensor> {
    if MODE.get() != Mode::Record {
        // In the first run of an outer checkpoint the inputs have to be rounded here, as they will be in its second run.
        let kept = kept.filter(|_| MODE.get() == Mode::Probe);
        let seen = |input: &&Tensor| match kept {
            Some(dtype) => {
                let rounded = input.to_dtype(dtype)?.to_dtype(input.dtype())?;
                if input.is_tracked() { rounded.parameter() } else { Ok(rounded) }
            }
            None => Ok((*input).clone()),
        };
        return f(&inputs.iter().map(seen).collect::<Result<Vec<_>>>()?);
    }
    // What is kept of each input, its own type, and whether it is tracked.
    let keep = |input: &&Tensor| -> Result<(Tensor, DType, bool)> {
        let detached = kept.map_or_else(|| Ok(input.detach()), |dtype| input.to_dtype(dtype))?;
        Ok((detached, input.dtype(), input.is_tracked()))
    };
    let saved: Vec<(Tensor, DType, bool)> = inputs.iter().map(keep).collect::<Result<_>>()?;
    let leaves = move || -> Result<Vec<Tensor>> {
        let leaf = |(input, dtype, tracked): &(Tensor, DType, bool)| {
            let input = input.to_dtype(*dtype)?;
            if *tracked { input.parameter() } else { Ok(input) }
        };
        saved.iter().map(leaf).collect()
    };
    let probe = leaves()?;
    let output = with_cell(&MODE, Mode::Probe, || f(&probe))?;
    drop(probe);
    if !output.is_tracked() {
        return Ok(output);
    }
    let precision = precision();
    let rule: RecomputeRule = Box::new(move |gradient, gradients| {
        let again = leaves()?;
        let first_inside = NEXT_ID.load(Ordering::Relaxed);
        let output = with_precision(precision, || with_cell(&MODE, Mode::Record, || f(&again)))?;
        run(&output, gradient, gradients, first_inside)?;
        Ok(again.iter().map(|input| gradients.take(input)).collect())
    });
    let parents = inputs.iter().map(|input| input.node().cloned()).collect();
    let node = Node::new(&output, "checkpoint", parents, Kind::Recompute(rule));
    Ok(output.detach().with_node(node))
}

/// Gradients of leaves.
#[derive(Default)]
pub struct Gradients(HashMap<u64, Tensor>);

impl Gradients {
    /// The gradient of `leaf`; `None` if the loss does not depend on it.
    pub fn get(&self, leaf: &Tensor) -> Option<&Tensor> {
        self.0.get(&leaf.node()?.id)
    }

    /// As [`Gradients::get`], giving up the memory.
    pub fn take(&mut self, leaf: &Tensor) -> Option<Tensor> {
        self.0.remove(&leaf.node()?.id)
    }

    /// Adds `other`, for example that of another part of the batch.
    ///
    /// # Errors
    /// When gradients of the same leaf have different shapes.
    pub fn accumulate(&mut self, other: Gradients) -> Result<()> {
        other.0.into_iter().try_for_each(|(id, gradient)| self.add(id, gradient))
    }

    fn add(&mut self, id: u64, gradient: Tensor) -> Result<()> {
        let sum = match self.0.remove(&id) {
            Some(sum) => sum.accumulate(&gradient)?,
            None => gradient,
        };
        self.0.insert(id, sum);
        Ok(())
    }
}

impl Tensor {
    /// The gradients of this single element with respect to every leaf it depends on. Frees the graph as it goes.
    ///
    /// # Errors
    /// When there is more than one element, nothing is tracked, or the graph was used before.
    pub fn backward(&self) -> Result<Gradients> {
        if self.elements() != 1 {
            return Err(Error::NotScalar(self.shape().clone()));
        }
        self.backward_with(self.full_like(self.shape(), 1.0)?)
    }

    /// As [`Tensor::backward`], for the sum of the elements weighted by `seed`, which has this tensor's shape.
    ///
    /// # Errors
    /// As [`Tensor::backward`], and when shapes, element types or devices differ.
    pub fn backward_with(&self, seed: Tensor) -> Result<Gradients> {
        if seed.shape() != self.shape() || seed.dtype() != self.dtype() {
            let seed = format!("seed {} {} for {} {}", seed.dtype(), seed.shape(), self.dtype(), self.shape());
            return Err(Error::shape("backward", seed));
        }
        if seed.device() != self.device() {
            let problem = format!("the seed is on {}, expected on {}", seed.device(), self.device());
            return Err(Error::Placement { operator: "backward", problem });
        }
        let mut gradients = Gradients::default();
        // Rules write into what they get, if nobody else holds it.
        let seed = if seed.is_tracked() { seed.detach() } else { seed };
        no_grad(|| run(self, seed, &mut gradients, 0))?;
        Ok(gradients)
    }
}

/// Propagates `seed` from `output` to the leaves. Operator nodes numbered below `first_inside` are out of bounds.
fn run(output: &Tensor, seed: Tensor, gradients: &mut Gradients, first_inside: u64) -> Result<()> {
    let mut heap = BinaryHeap::new();
    let mut pending = Gradients::default();
    let node = output.node().ok_or(Error::NotTracked)?;
    pending.add(node.id, seed)?;
    heap.push(node.clone());
    while let Some(node) = heap.pop() {
        let gradient = pending.0.remove(&node.id).expect("a node is pushed with its first gradient");
        if node.leaf {
            gradients.add(node.id, gradient)?;
            continue;
        }
        if node.id < first_inside {
            return Err(Error::CapturedOutside(node.operator));
        }
        let mut wanted = Wanted {
            flags: node.parents.iter().map(Option::is_some).collect(),
            taken: vec![false; node.parents.len()],
            parents: &node.parents,
            pending: &mut pending,
        };
        let results = with_cell(&BACKWARD, Some(node.operator), || match node.take() {
            Kind::Operator(rule) => rule(gradient, &mut wanted),
            Kind::Recompute(rule) => rule(gradient, gradients),
            Kind::Leaf | Kind::Spent => Err(Error::Consumed(node.operator)),
        })?;
        let taken = wanted.taken;
        if results.len() != node.parents.len() {
            let problem = format!("the rule gives {} gradients for {} inputs", results.len(), node.parents.len());
            return Err(Error::invalid(node.operator, problem));
        }
        // Those whose sum was taken are on the heap already; a node may be there as another parent, too.
        let of_taken = node.parents.iter().zip(&taken).filter(|(_, taken)| **taken);
        let on_the_heap: Vec<u64> = of_taken.filter_map(|(parent, _)| Some(parent.as_ref()?.id)).collect();
        for ((parent, result), taken) in node.parents.iter().zip(results).zip(taken) {
            if let (Some(parent), Some(result)) = (parent, result) {
                if result.shape() != &parent.shape || result.dtype() != parent.dtype {
                    let [got, input] = [(result.dtype(), result.shape()), (parent.dtype, &parent.shape)]
                        .map(|(dtype, shape)| format!("{dtype} {shape}"));
                    let problem = format!("the rule gives a gradient {got} for an input {input}");
                    return Err(Error::invalid(node.operator, problem));
                }
                if !on_the_heap.contains(&parent.id) && !pending.0.contains_key(&parent.id) {
                    heap.push(parent.clone());
                }
                pending.add(parent.id, result)?;
            } else {
                assert!(!taken, "the rule of {} took a sum and did not return it", node.operator);
            }
        }
    }
    Ok(())
}
