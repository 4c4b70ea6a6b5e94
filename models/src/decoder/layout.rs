//! The modules of a model and their tensors: one description for reading, drawing, merging, quantising and adapters.

use super::config::{DecoderConfig, Positions, QkNorm};
use crate::adapters::LinearSite;
use crate::linear::NormKind;

/// Names of the modules, as the family's files have them. A module that has no name does not exist.
#[derive(Debug)]
pub struct Names {
    /// What all names but the head's begin with, and some files leave out.
    pub prefix: &'static str,
    /// The token embedding.
    pub embedding: &'static str,
    /// The learned positions.
    pub positions: &'static str,
    /// The list of layers.
    pub layers: &'static str,
    /// The last normalisation.
    pub norm: &'static str,
    /// The head, where it is not the embedding.
    pub head: &'static str,
    /// The attention in its layer.
    pub attention: &'static str,
    /// The projections of queries, keys and values in it: one by one, or all three in one.
    pub qkv: &'static [&'static str],
    /// The projection of its output.
    pub output: &'static str,
    /// The MLP in its layer.
    pub mlp: &'static str,
    /// The projections into it.
    pub up: Up,
    /// The projection out of it.
    pub down: &'static str,
    /// Normalisations of the layer: of the attention's input and output, of the MLP's input and output.
    pub norms: [Option<&'static str>; 4],
    /// Whether weights of layers are stored as `[in, out]`.
    pub transposed: bool,
}

/// The projections into an MLP.
#[derive(Debug, Clone, Copy)]
pub enum Up {
    /// Gate and value apart.
    Gated([&'static str; 2]),
    /// Gate, then value, in one.
    Fused(&'static str),
    /// No gate.
    Plain(&'static str),
}

impl Up {
    /// Their names.
    pub fn names(&self) -> &[&'static str] {
        match self {
            Up::Gated(names) => names,
            Up::Fused(name) | Up::Plain(name) => std::slice::from_ref(name),
        }
    }
}

impl Names {
    /// Those of Llama, which most families took over.
    pub const LLAMA: Names = Names {
        prefix: "model.",
        embedding: "model.embed_tokens",
        positions: "",
        layers: "model.layers",
        norm: "model.norm",
        head: "lm_head",
        attention: "self_attn",
        qkv: &["q_proj", "k_proj", "v_proj"],
        output: "o_proj",
        mlp: "mlp",
        up: Up::Gated(["gate_proj", "up_proj"]),
        down: "down_proj",
        norms: [Some("input_layernorm"), None, Some("post_attention_layernorm"), None],
        transposed: false,
    };
}

/// What a module is in its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    /// One of the four normalisations in [`Names::norms`].
    Norm(usize),
    /// One of the projections in [`Names::qkv`].
    Qkv(usize),
    /// The normalisation of queries (0) or keys (1).
    QkNorm(usize),
    /// The projection of the attention's output.
    Output,
    /// One of the projections into the MLP.
    Up(usize),
    /// The projection out of the MLP.
    Down,
}

/// A module of a layer.
pub(crate) struct Module {
    pub slot: Slot,
    /// The module it is in; empty for the layer itself.
    pub parent: &'static str,
    pub name: &'static str,
    /// Width of a normalisation, or inputs and outputs of a projection.
    pub sizes: Vec<usize>,
    pub bias: bool,
}

/// What a tensor is, which decides how it starts and whether it can be quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorKind {
    /// A table of rows, or the head: never quantised.
    Embedding,
    /// A projection of a layer.
    Projection,
    /// A gain of a normalisation, read in f32; it starts at 1.
    Gain,
    /// As [`TensorKind::Gain`], but 1 is added to it: it starts at 0.
    GainBelowOne,
    /// A bias, read in f32; it starts at 0.
    Bias,
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the family's files.
    pub name: String,
    /// Its shape in memory; projections are `[out, in]`.
    pub shape: Vec<usize>,
    /// What it is.
    pub kind: TensorKind,
    /// Whether files hold it transposed.
    pub transposed: bool,
}

impl TensorSpec {
    pub(crate) fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>, kind: TensorKind) -> Self {
        TensorSpec { name: name.into(), shape: shape.into(), kind, transposed: false }
    }

    /// Its shape in files.
    pub fn stored_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if self.transposed {
            shape.reverse();
        }
        shape
    }

    /// Whether quantisation applies to it: the projections, all of them inside layers.
    pub fn is_quantized(&self) -> bool {
        self.kind == TensorKind::Projection
    }
}

impl DecoderConfig {
    /// The modules of a layer, in the order of the forward pass.
    pub(crate) fn modules(&self) -> Vec<Module> {
        let names = &self.family.names;
        let (d, f) = (self.d_model, self.d_ff);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let shifts = self.norm == NormKind::LayerNorm;
        let mut all = Vec::new();
        let norm = |index: usize| {
            let name = names.norms[index]?;
            Some(Module { slot: Slot::Norm(index), parent: "", name, sizes: vec![d], bias: shifts })
        };
        let linear =
            |slot, parent, name, sizes: [usize; 2], bias| Module { slot, parent, name, sizes: sizes.to_vec(), bias };
        all.extend(norm(0));
        let outputs: &[usize] = if names.qkv.len() == 1 { &[q + 2 * kv] } else { &[q, kv, kv] };
        for (index, (name, &width)) in names.qkv.iter().zip(outputs).enumerate() {
            all.push(linear(Slot::Qkv(index), names.attention, name, [d, width], self.biases.qkv));
        }
        if let Some(kind) = self.qk_norm {
            for (index, (name, width)) in [("q_norm", q), ("k_norm", kv)].into_iter().enumerate() {
                let width = if kind == QkNorm::Head { self.head_dim } else { width };
                let (slot, parent) = (Slot::QkNorm(index), names.attention);
                all.push(Module { slot, parent, name, sizes: vec![width], bias: false });
            }
        }
        all.push(linear(Slot::Output, names.attention, names.output, [q, d], self.biases.output));
        all.extend(norm(1));
        all.extend(norm(2));
        let width = if matches!(names.up, Up::Fused(_)) { 2 * f } else { f };
        for (index, name) in names.up.names().iter().enumerate() {
            all.push(linear(Slot::Up(index), names.mlp, name, [d, width], self.biases.mlp));
        }
        all.push(linear(Slot::Down, names.mlp, names.down, [f, d], self.biases.mlp));
        all.extend(norm(3));
        all
    }

    /// The tensors of `module` in layer `layer`: the weight, and the bias if there is one.
    pub(crate) fn tensors_of(&self, layer: usize, module: &Module) -> Vec<TensorSpec> {
        let name = self.path(layer, module);
        let weight = match module.sizes[..] {
            [inputs, outputs] => {
                let spec = TensorSpec::new(format!("{name}.weight"), [outputs, inputs], TensorKind::Projection);
                TensorSpec { transposed: self.family.names.transposed, ..spec }
            }
            _ => self.gain(&name, module.sizes[0]),
        };
        let width = weight.shape[0];
        let bias = module.bias.then(|| TensorSpec::new(format!("{name}.bias"), [width], TensorKind::Bias));
        std::iter::once(weight).chain(bias).collect()
    }

    /// Full name of a module in layer `layer`.
    pub(crate) fn path(&self, layer: usize, module: &Module) -> String {
        let dot = if module.parent.is_empty() { "" } else { "." };
        format!("{}.{layer}.{}{dot}{}", self.family.names.layers, module.parent, module.name)
    }

    fn gain(&self, name: &str, width: usize) -> TensorSpec {
        let kind = if self.norm_plus_one { TensorKind::GainBelowOne } else { TensorKind::Gain };
        TensorSpec::new(format!("{name}.weight"), [width], kind)
    }

    /// The tables before the layers: of tokens, and of positions if they are learned.
    pub(crate) fn tables(&self) -> Vec<TensorSpec> {
        let names = &self.family.names;
        let table = |name: &str, rows: usize| {
            TensorSpec::new(format!("{name}.weight"), [rows, self.d_model], TensorKind::Embedding)
        };
        let positions = (self.positions == Positions::Learned).then(|| table(names.positions, self.context));
        std::iter::once(table(names.embedding, self.vocabulary)).chain(positions).collect()
    }

    /// The tensors of the last normalisation.
    pub(crate) fn last_norm(&self) -> Vec<TensorSpec> {
        let name = self.family.names.norm;
        let bias = (self.norm == NormKind::LayerNorm)
            .then(|| TensorSpec::new(format!("{name}.bias"), [self.d_model], TensorKind::Bias));
        std::iter::once(self.gain(name, self.d_model)).chain(bias).collect()
    }

    /// The head, whether it is stored or not.
    pub(crate) fn head_tensor(&self) -> TensorSpec {
        let name = format!("{}.weight", self.family.names.head);
        TensorSpec::new(name, [self.vocabulary, self.d_model], TensorKind::Embedding)
    }

    /// Every tensor of a checkpoint, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut all = self.tables();
        let modules = self.modules();
        for layer in 0..self.layers {
            all.extend(modules.iter().flat_map(|module| self.tensors_of(layer, module)));
        }
        all.extend(self.last_norm());
        all.extend((!self.tied_embeddings).then(|| self.head_tensor()));
        all
    }

    /// The projections of a layer.
    pub(crate) fn sites(&self) -> Vec<LinearSite> {
        let site = |module: &Module| match module.sizes[..] {
            [inputs, outputs] => {
                let site = LinearSite::new(module.name, module.parent, [inputs, outputs]);
                Some(LinearSite { layers: self.family.names.layers, ..site })
            }
            _ => None,
        };
        self.modules().iter().filter_map(site).collect()
    }
}
