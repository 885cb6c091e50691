//! The layers of a model as a table: [`Store::summary`].

use crate::module::SEQUENTIAL;
use crate::store::reads::{self, Read};
use crate::store::{Param, Role, Store};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use teeny_core::calls::{self, Call};
use teeny_core::{Result, Shape};
use teeny_formats::names::{grouped, listed};

/// A model's layers in the order of their calls, and its parameters: the result of
/// [`Store::summary`]. It prints as a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// The calls: layers, and operations with a cost or between layers of a chain.
    pub layers: Vec<LayerSummary>,
    /// The elements of all parameters that were read, each counted once.
    pub params: usize,
    /// The elements of the trainable ones.
    pub trainable: usize,
    /// The bytes of the parameters that were read.
    pub bytes: usize,
    /// The floating-point operations of one call, by [`Op::cost`](teeny_core::Op::cost).
    pub flops: u64,
    /// The names of the store's parameters that were not read.
    pub unused: Vec<String>,
}

/// A row of a [`Summary`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LayerSummary {
    /// The path of its parameters, e.g. `encoder.0`; empty without parameters.
    pub path: String,
    /// The operation, e.g. `linear`.
    pub op: &'static str,
    /// How many rows it is inside of: 1 for a layer of a chain.
    pub depth: usize,
    /// The shape of the result.
    pub output: Option<Shape>,
    /// The elements of its parameters, except parameters of layers before it.
    pub params: usize,
    /// Whether it shares all of its parameters with layers before it.
    pub is_shared: bool,
    /// The floating-point operations, of those inside it too.
    pub flops: u64,
    /// Whether the layers inside it are rows too.
    pub is_group: bool,
}

impl Store {
    /// The layers that `forward` calls, with the shapes of their results, their parameters and
    /// floating-point operations. It runs once, in evaluation mode and without gradients
    /// ([`Store::evaluate`]).
    ///
    /// A custom layer is a row if it names itself, as the layers of this crate do:
    /// `let _op = teeny_nn::context::enter("my_layer");`.
    ///
    /// # Errors
    /// If `forward` fails.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{DType, Tensor};
    /// use teeny_nn::{Activation, Linear, Module, Sequential, Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// let store = Store::new(&device("cpu")?);
    /// let model = Sequential::new()
    ///     .then(Linear::new(&store.at("fc1"), 784, 128)?)
    ///     .then(Activation::Relu)
    ///     .then(Linear::new(&store.at("fc2"), 128, 10)?);
    /// let x = Tensor::zeros((32, 784), DType::F32, store.device())?; // (32, 784)
    /// let summary = store.summary(|| model.forward(&x))?;
    /// println!("{summary}");
    /// # let table = "\
    /// # operation   layer  output     parameters    FLOP
    /// # ------------------------------------------------
    /// # sequential         (32, 10)      101,770  6.51 M
    /// #   linear    fc1    (32, 128)     100,480  6.43 M
    /// #   relu             (32, 128)              4.10 k
    /// #   linear    fc2    (32, 10)        1,290  82.2 k
    /// # ------------------------------------------------
    /// # 101,770 parameters, 407 kB, all trainable; 6.51 MFLOP a call
    /// # ";
    /// # assert_eq!(summary.to_string(), table);
    /// # Ok(()) }
    /// ```
    /// prints
    /// ```text
    /// operation   layer  output     parameters    FLOP
    /// ------------------------------------------------
    /// sequential         (32, 10)      101,770  6.51 M
    ///   linear    fc1    (32, 128)     100,480  6.43 M
    ///   relu             (32, 128)              4.10 k
    ///   linear    fc2    (32, 10)        1,290  82.2 k
    /// ------------------------------------------------
    /// 101,770 parameters, 407 kB, all trainable; 6.51 MFLOP a call
    /// ```
    #[doc(alias = "torchinfo")]
    pub fn summary<T>(&self, forward: impl FnOnce() -> Result<T>) -> Result<Summary> {
        let (recorded, reads) = reads::record(|| calls::record(|| self.evaluate(forward)));
        let (result, calls) = recorded;
        result?;
        let mut rows = Rows::default();
        Tree::new(&calls, &reads).rows(0..calls.len(), 0, &mut rows);
        let (all, mut seen) = (self.all(), HashSet::new());
        let read = distinct(reads.iter().map(|read| &read.param), &mut seen);
        let trainable = read.iter().filter(|param| param.is_trainable());
        let unused = distinct(&all, &mut seen);
        Ok(Summary {
            layers: rows.layers,
            params: elements(&read),
            trainable: elements(&trainable.copied().collect::<Vec<_>>()),
            bytes: read.iter().map(|param| param.bytes()).sum(),
            flops: calls.iter().map(|call| call.flops).sum(),
            unused: unused.iter().map(|param| param.name().to_string()).collect(),
        })
    }
}

/// The calls of a forward pass and the parameters that they read.
struct Tree<'a> {
    calls: &'a [Call],
    /// By call: the call after those inside it.
    ends: Vec<usize>,
    /// By call: whether there are layers inside it, calls that read parameters themselves.
    is_group: Vec<bool>,
    /// The parameters in the order of their reads, each with the call that has it.
    params: Vec<(usize, &'a Param)>,
}

/// The rows of the table while they are added.
#[derive(Default)]
struct Rows {
    layers: Vec<LayerSummary>,
    /// The parameters of these rows.
    seen: HashSet<usize>,
}

impl<'a> Tree<'a> {
    fn new(calls: &'a [Call], reads: &'a [Read]) -> Tree<'a> {
        let mut ends = vec![calls.len(); calls.len()];
        let mut parents = vec![None; calls.len()];
        let mut open: Vec<usize> = Vec::new();
        for (i, call) in calls.iter().enumerate() {
            open.drain(call.depth.min(open.len())..).for_each(|ended| ends[ended] = i);
            parents[i] = open.last().copied();
            open.push(i);
        }
        let mut is_group: Vec<bool> = calls.iter().map(|call| call.op == SEQUENTIAL).collect();
        for read in reads {
            let mut around = read.caller.and_then(|caller| parents[caller]);
            while let Some(call) = around {
                is_group[call] = true;
                around = parents[call];
            }
        }
        let mut tree = Tree { calls, ends, is_group, params: Vec::new() };
        tree.params =
            reads.iter().filter_map(|read| Some((tree.owner(read)?, &read.param))).collect();
        tree
    }

    /// The call that has the parameter: the layer that reads it; without one, the next call with a
    /// cost, which excludes views.
    fn owner(&self, read: &Read) -> Option<usize> {
        if let Some(caller) = read.caller.filter(|&caller| !self.is_group[caller]) {
            return Some(caller);
        }
        let end = read.caller.map_or(self.calls.len(), |caller| self.ends[caller]);
        let mut next = read.next;
        while next < end && self.flops(next) == 0 {
            next = self.ends[next];
        }
        if next < end { Some(next) } else { read.caller }
    }

    /// The floating-point operations of call `i` with those inside it.
    fn flops(&self, i: usize) -> u64 {
        self.calls[i..self.ends[i]].iter().map(|call| call.flops).sum()
    }

    /// The rows of `range`: the calls inside one call, or all.
    fn rows(&self, range: Range<usize>, depth: usize, rows: &mut Rows) {
        let around = range.start.checked_sub(1);
        let is_chain = around.is_some_and(|i| self.calls[i].op == SEQUENTIAL);
        let (mut i, mut output) = (range.start, None);
        while i < range.end {
            let (call, inside, flops) = (&self.calls[i], i..self.ends[i], self.flops(i));
            let own = self.params.iter().filter(|(owner, _)| inside.contains(owner));
            let params: Vec<&Param> = own.map(|(_, param)| *param).collect();
            // a view gets a row only in a chain
            if is_chain || flops > 0 || !params.is_empty() {
                // a layer that returns its input makes no tensor
                output = call.result.as_deref().or(output);
                let new = distinct(params.iter().copied(), &mut rows.seen.clone());
                rows.layers.push(LayerSummary {
                    path: common_path(&params),
                    op: call.op,
                    depth,
                    output: output.and_then(|sizes| Shape::new(sizes).ok()),
                    params: elements(&new),
                    is_shared: new.is_empty() && !params.is_empty(),
                    flops,
                    is_group: self.is_group[i],
                });
                if self.is_group[i] {
                    self.rows(i + 1..inside.end, depth + 1, rows);
                }
                rows.seen.extend(new.iter().map(|param| param.id()));
            }
            i = inside.end;
        }
    }
}

/// The parameters whose numbers are not in `seen`, each once.
fn distinct<'a>(
    params: impl IntoIterator<Item = &'a Param>,
    seen: &mut HashSet<usize>,
) -> Vec<&'a Param> {
    params
        .into_iter()
        .filter(|param| param.role() != Role::Buffer && seen.insert(param.id()))
        .collect()
}

fn elements(params: &[&Param]) -> usize {
    params.iter().map(|param| param.shape().numel()).sum()
}

/// The path that all of these parameters are below: `fc1` of `fc1.weight` and `fc1.bias`. A
/// parameter without a path has its own name.
fn common_path(params: &[&Param]) -> String {
    let path = |param: &&Param| -> Vec<String> {
        let mut parts: Vec<String> = param.name().split('.').map(str::to_string).collect();
        if parts.len() > 1 {
            parts.pop();
        }
        parts
    };
    let mut all = params.iter().map(path);
    let first = all.next().unwrap_or_default();
    let common = all.fold(first, |common, other| {
        let same = common.iter().zip(&other).take_while(|(a, b)| a == b);
        same.map(|(part, _)| part.clone()).collect()
    });
    common.join(".")
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = |layer: &LayerSummary| {
            let params = match layer.is_shared {
                true => "shared".to_string(),
                false if layer.params == 0 => String::new(),
                false => grouped(layer.params),
            };
            let flops = if layer.flops == 0 { String::new() } else { scaled(layer.flops as f64) };
            let output = layer.output.map(|shape| shape.to_string()).unwrap_or_default();
            let op = "  ".repeat(layer.depth) + layer.op;
            [op, layer.path.clone(), output, params, flops.trim_end().to_string()]
        };
        let head = ["operation", "layer", "output", "parameters", "FLOP"].map(str::to_string);
        let rows: Vec<[String; 5]> =
            std::iter::once(head).chain(self.layers.iter().map(cells)).collect();
        let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        let line = "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
        for (i, [op, path, output, params, flops]) in rows.iter().enumerate() {
            let [a, b, c, d, e] = widths;
            let row = format!("{op:<a$}  {path:<b$}  {output:<c$}  {params:>d$}  {flops:>e$}");
            writeln!(f, "{}", row.trim_end())?;
            if i == 0 {
                writeln!(f, "{line}")?;
            }
        }
        let trainable = match self.params - self.trainable {
            0 => "all trainable".to_string(),
            _ => format!("{} trainable", grouped(self.trainable)),
        };
        let (bytes, flops) = (scaled(self.bytes as f64), scaled(self.flops as f64));
        writeln!(
            f,
            "{line}\n{} parameters, {bytes}B, {trainable}; {flops}FLOP a call",
            grouped(self.params)
        )?;
        if !self.unused.is_empty() {
            let names: Vec<&str> = self.unused.iter().map(String::as_str).collect();
            writeln!(f, "not read: {}", listed(&names))?;
        }
        Ok(())
    }
}

/// Three digits and the prefix of the unit: `12.8 M`.
fn scaled(value: f64) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let mut at = 0;
    let mut value = value;
    while value >= 999.5 && at + 1 < prefixes.len() {
        (value, at) = (value / 1000.0, at + 1);
    }
    let digits = match (at, value) {
        (0, _) | (_, 100.0..) => 0,
        (_, 10.0..) => 1,
        _ => 2,
    };
    format!("{value:.digits$} {}", prefixes[at])
}
