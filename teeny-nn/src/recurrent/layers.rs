//! Stacks of recurrent layers.

use super::padding::{Lengths, Padding};
use super::{HiddenState, RnnKind, RnnNonlinearity, Weights, run};
use crate::dropout::Dropout;
use crate::init::Init;
use crate::module::{Module, require_type};
use crate::options::options;
use crate::store::{Param, Path};
use teeny_core::calls;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// The order of the axes of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SequenceLayout {
    /// (B, T, C), as everywhere in this library: PyTorch's `batch_first=True`.
    #[default]
    BatchFirst,
    /// (T, B, C): PyTorch's `batch_first=False`.
    TimeFirst,
}

options! {
    /// Options of [`Rnn`], [`Gru`] and [`Lstm`]; the defaults are PyTorch's, except for the layout.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RecurrentOptions {
        /// The number of stacked layers; the states of each are the input of the next; 1.
        num_layers: usize = 1, with_num_layers;
        /// Whether there are biases; true.
        bias: bool = true, with_bias;
        /// The order of the axes of x and y; (B, T, C).
        layout: SequenceLayout = SequenceLayout::BatchFirst, with_layout;
        /// The probability of dropping a value between layers, in training; 0.
        dropout: f64 = 0.0, with_dropout;
        /// Whether each layer also has a network that reads backwards; the states of both are
        /// concatenated; false.
        bidirectional: bool = false, with_bidirectional;
    }
}

/// The parameters of one layer in one direction.
#[derive(Clone, Debug)]
pub(super) struct Params {
    w_ih: Param,
    w_hh: Param,
    bias: Option<(Param, Param)>,
}

impl Params {
    /// Parameters with names that end in `suffix`, uniform within `1 / sqrt(hidden)` as in PyTorch.
    pub fn new(
        path: &Path,
        suffix: &str,
        gates: usize,
        inputs: usize,
        hidden: usize,
        bias: bool,
    ) -> Result<Params> {
        let init = Init::torch_bias(hidden);
        let param =
            |name: &str, sizes: &[usize]| path.param(&format!("{name}{suffix}"), sizes, init);
        // sizes that memory cannot hold are an error of the allocation
        let rows = gates.saturating_mul(hidden);
        let w_ih = param("weight_ih", &[rows, inputs])?; // (G, C)
        let w_hh = param("weight_hh", &[rows, hidden])?; // (G, H)
        // (G), (G)
        let bias = if bias {
            Some((param("bias_ih", &[rows])?, param("bias_hh", &[rows])?))
        } else {
            None
        };
        Ok(Params { w_ih, w_hh, bias })
    }

    /// The weights, for an input x; an error if it has a higher float type.
    pub fn values(&self, x: &Tensor) -> Result<Weights> {
        require_type(x, &self.w_ih)?;
        Ok(Weights {
            w_ih: self.w_ih.value(),
            w_hh: self.w_hh.value(),
            bias: self.bias.as_ref().map(|(a, b)| (a.value(), b.value())),
        })
    }
}

/// Layers of one kind.
#[derive(Clone, Debug)]
struct Stack {
    kind: RnnKind,
    inputs: usize,
    hidden: usize,
    /// By layer, and within a layer forwards before backwards.
    params: Vec<Params>,
    dropout: Dropout,
    options: RecurrentOptions,
}

impl Stack {
    fn new(
        kind: RnnKind,
        path: &Path,
        inputs: usize,
        hidden: usize,
        options: RecurrentOptions,
    ) -> Result<Stack> {
        if options.num_layers == 0 || hidden == 0 {
            let text = format!(
                "{} layers of {hidden} hidden values: both must be at least 1",
                options.num_layers
            );
            return Err(
                Error::value(text).help("num_layers is often 1; hidden is the state's size")
            );
        }
        let directions = 1 + options.bidirectional as usize;
        let mut params = Vec::new();
        for layer in 0..options.num_layers {
            let inputs = if layer == 0 { inputs } else { hidden.saturating_mul(directions) };
            for suffix in ["", "_reverse"].iter().take(directions) {
                params.push(Params::new(
                    path,
                    &format!("_l{layer}{suffix}"),
                    kind.gates(),
                    inputs,
                    hidden,
                    options.bias,
                )?);
            }
        }
        Ok(Stack {
            kind,
            inputs,
            hidden,
            params,
            dropout: Dropout::new(path, options.dropout)?,
            options,
        })
    }

    /// x (B, T, C), the lengths of padded sequences, and the initial states (layers directions, B,
    /// H) → (B, T, directions H) and the final states.
    fn forward(
        &self,
        x: &Tensor,
        lengths: Option<Lengths<'_>>,
        start: Option<(&Tensor, Option<&Tensor>)>,
    ) -> Result<(Tensor, HiddenState)> {
        if x.ndim() != 3 || x.shape()[2] != self.inputs {
            let order = match self.options.layout {
                SequenceLayout::BatchFirst => "(B, T",
                SequenceLayout::TimeFirst => "(T, B",
            };
            let error = Error::shape(format!(
                "the input must be {order}, {}), not {}",
                self.inputs,
                x.shape()
            ));
            return Err(error.help(if x.ndim() == 2 {
                "x.unsqueeze(0)? is a batch of one"
            } else {
                "build the layer for this many inputs"
            }));
        }
        // (T, B, C)
        let batch_first = self.options.layout == SequenceLayout::BatchFirst;
        let mut x = if batch_first { x.transpose(0, 1)? } else { x.clone() };
        let batch = x.shape()[1];
        let expected = [self.params.len(), batch, self.hidden];
        if let Some(bad) = start
            .iter()
            .flat_map(|(h, c)| [Some(*h), *c])
            .flatten()
            .find(|s| s.shape()[..] != expected)
        {
            return Err(Error::shape(format!(
                "an initial state must be (layers directions, B, H) = {expected:?}, not {}",
                bad.shape()
            ))
            .help("None is zeros"));
        }
        let padding = lengths.map(|lengths| Padding::new(lengths, &x)).transpose()?;
        x = padding.as_ref().map_or(Ok(x.clone()), |padding| padding.zeroed(&x))?; // (T, B, C)
        let directions = 1 + self.options.bidirectional as usize;
        let mut last: Vec<HiddenState> = Vec::new();
        for (layer, params) in self.params.chunks(directions).enumerate() {
            if layer > 0 {
                x = self.dropout.forward(&x)?; // (T, B, directions H)
            }
            let mut outputs = Vec::new();
            for (backwards, params) in [false, true].into_iter().zip(params) {
                let i = last.len() as isize;
                // (B, H) each
                let state = start
                    .map(|(h, c)| Ok::<_, Error>((h.at(0, i)?, c.map(|c| c.at(0, i)).transpose()?)))
                    .transpose()?;
                // (T, B, H)
                let weights = params.values(&x)?;
                let (y, state) = run(self.kind, backwards, &x, &weights, state, padding.as_ref())?;
                outputs.push(y);
                last.push(state);
            }
            x = match &outputs[..] {
                [y] => y.clone(),
                all => Tensor::cat(all, -1)?, // (T, B, 2H)
            };
        }
        // (layers directions, B, H)
        let h = Tensor::stack(&last.iter().map(|(h, _)| h).collect::<Vec<_>>(), 0)?;
        let cells: Vec<&Tensor> = last.iter().filter_map(|(_, c)| c.as_ref()).collect();
        // (layers directions, B, H)
        let c = if cells.is_empty() { None } else { Some(Tensor::stack(&cells, 0)?) };
        let y = if batch_first { x.transpose(0, 1)? } else { x };
        calls::result(y.shape());
        Ok((y, (h, c)))
    }

    fn describe(&self, name: &str) -> String {
        format!("{name}({} -> {})", self.inputs, self.hidden)
    }
}

macro_rules! layer {
    ($(#[$doc:meta])* $name:ident $kind:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Stack);

        impl $name {
            /// One layer at `path` with PyTorch's initial weights.
            ///
            /// # Errors
            /// If the names are taken or `hidden` is 0.
            #[track_caller]
            pub fn new(path: &Path, inputs: usize, hidden: usize) -> Result<$name> {
                let _op = enter(concat!(stringify!($name), "::new"));
                $name::with_options(path, inputs, hidden, RecurrentOptions::default())
            }

            /// Layers at `path` with `options`.
            ///
            /// # Errors
            /// If the names are taken, the number of layers or hidden values is 0, or dropout is
            /// outside `0..=1`.
            #[track_caller]
            pub fn with_options(
                path: &Path,
                inputs: usize,
                hidden: usize,
                options: RecurrentOptions,
            ) -> Result<$name> {
                let make = || Ok($name(Stack::new(RnnKind::$kind, path, inputs, hidden, options)?));
                path.build(concat!(stringify!($name), "::with_options"), make)
            }
        }

        impl Module for $name {
            /// The states of the last layer after every step; the initial states are zeros.
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let _op = enter(self.0.kind.op());
                Ok(self.0.forward(x, None, None)?.0)
            }

            fn describe(&self) -> String {
                self.0.describe(stringify!($name))
            }
        }
    };
}

/// `$given` and `$states` are the types of initial and final states; `$from` makes (h, c) of the
/// former, which becomes the latter as `$last => $result`.
macro_rules! forward_with {
    ($name:ident $text:literal $given:ty, $from:expr; $last:pat => $result:expr, $states:ty) => {
        impl $name {
            /// Returns the states of the last layer after every step (B, T, directions H) and
            #[doc = $text]
            /// of all layers after the last step, (layers directions, B, H) each. The initial
            /// `state` has the latter shape; None is zeros.
            ///
            /// # Errors
            /// If a shape does not fit.
            #[track_caller]
            pub fn forward_with(
                &self,
                x: &Tensor,
                state: Option<$given>,
            ) -> Result<(Tensor, $states)> {
                let _op = enter(self.0.kind.op());
                let (y, $last) = self.0.forward(x, None, state.map($from))?;
                Ok((y, $result))
            }

            /// [`Self::forward_with`] of sequences that are padded at the end: `lengths[i]` steps
            /// of sequence i are real. The states after its end are zeros, the final states are
            /// those after its last real step, and the second direction begins there. The padding
            /// may hold anything; no gradient reaches it.
            ///
            /// # Errors
            /// If a shape does not fit, or a length is not in `1..=T`.
            ///
            /// Equivalent: `pack_padded_sequence(enforce_sorted=False)` before and
            /// `pad_packed_sequence(total_length=T)` after the layer.
            #[doc(alias = "pack_padded_sequence", alias = "pad_packed_sequence")]
            #[track_caller]
            pub fn forward_lengths<'l>(
                &self,
                x: &Tensor,
                lengths: impl Into<Lengths<'l>>,
                state: Option<$given>,
            ) -> Result<(Tensor, $states)> {
                let _op = enter(self.0.kind.op());
                let (y, $last) = self.0.forward(x, Some(lengths.into()), state.map($from))?;
                Ok((y, $result))
            }
        }
    };
}

layer! {
    /// Elman's recurrent network: `h' = tanh(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)`.
    ///
    /// Shapes: x (B, T, C) → (B, T, directions H). Parameters of layer k: `weight_ih_lk` (H, C),
    /// `weight_hh_lk` (H, H), `bias_ih_lk`, `bias_hh_lk` (H), and the same with `_reverse` for the
    /// second direction, as PyTorch's.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{DType, Tensor};
    /// use teeny_nn::{Store, device::device, recurrent::Rnn};
    /// # fn main() -> teeny_core::Result<()> {
    /// let store = Store::new(&device("cpu")?);
    /// let rnn = Rnn::new(&store.at("rnn"), 10, 20)?;
    /// let x = Tensor::randn((2, 5, 10), DType::F32, store.device())?; // (2, 5, 10)
    /// let (y, h) = rnn.forward_with(&x, None)?; // (2, 5, 20), (1, 2, 20)
    /// assert_eq!(y.at(1, -1)?.to_vec::<f32>()?, h.at(0, 0)?.to_vec::<f32>()?);
    /// # Ok(()) }
    /// ```
    /// Source: Elman 1990. Equivalent: `torch.nn.RNN`.
    Rnn Tanh
}
forward_with!(Rnn "h" &Tensor, |h| (h, None); (h, _) => h, Tensor);

impl Rnn {
    /// The same layers with this nonlinearity.
    pub fn with_nonlinearity(mut self, nonlinearity: RnnNonlinearity) -> Rnn {
        self.0.kind = nonlinearity.kind();
        self
    }
}

layer! {
    /// Gated recurrent units: `h' = (1 - z) n + z h` with `r = σ(x_r + h_r)`, `z = σ(x_z + h_z)`,
    /// `n = tanh(x_n + r h_n)`.
    ///
    /// Shapes and names as [`Rnn`] with 3H for H in the parameters: r, z, n in this order.
    ///
    /// Source: Cho et al. 2014, arXiv:1406.1078. Equivalent: `torch.nn.GRU`.
    Gru Gru
}
forward_with!(Gru "h" &Tensor, |h| (h, None); (h, _) => h, Tensor);

layer! {
    /// Long short-term memory: `c' = σ(f) c + σ(i) tanh(g)`, `h' = σ(o) tanh(c')`.
    ///
    /// Shapes and names as [`Rnn`] with 4H for H in the parameters: i, f, g, o in this order.
    ///
    /// Sequences of several lengths are a padded batch with their lengths, instead of PyTorch's
    /// packed sequences: [`Lstm::forward_lengths`].
    ///
    /// # Example
    /// ```
    /// use teeny_core::{DType, Tensor};
    /// use teeny_nn::recurrent::{Lstm, RecurrentOptions};
    /// use teeny_nn::{Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// let store = Store::new(&device("cpu")?);
    /// let options = RecurrentOptions::new().with_num_layers(2).with_bidirectional(true);
    /// let lstm = Lstm::with_options(&store.at("lstm"), 10, 20, options)?;
    /// let x = Tensor::randn((2, 5, 10), DType::F32, store.device())?; // (2, 5, 10)
    /// let (y, state) = lstm.forward_with(&x, None)?; // (2, 5, 40), twice (4, 2, 20)
    /// let (y, _) = lstm.forward_with(&x, Some((&state.0, &state.1)))?; // (2, 5, 40), continued
    /// # let _ = y; Ok(()) }
    /// ```
    /// Source: Hochreiter & Schmidhuber 1997; Gers, Schmidhuber & Cummins 2000. Equivalent:
    /// `torch.nn.LSTM`.
    Lstm Lstm
}

forward_with! {
    Lstm "(h, c)" (&Tensor, &Tensor), |(h, c)| (h, Some(c));
    (h, c) => (h, c.ok_or_else(|| Error::internal("an lstm has no cells"))?), (Tensor, Tensor)
}
