//! Recurrent cells: one step of a recurrent network, for loops written by the user.

use super::layers::Params;
use super::{HiddenState, RnnKind, RnnNonlinearity, run};
use crate::store::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

#[derive(Clone, Debug)]
struct Cell {
    kind: RnnKind,
    inputs: usize,
    hidden: usize,
    params: Params,
}

impl Cell {
    fn new(kind: RnnKind, path: &Path, inputs: usize, hidden: usize) -> Result<Cell> {
        if hidden == 0 {
            return Err(Error::value("hidden is 0, but there must be at least 1 hidden value")
                .help("hidden is the size of the state"));
        }
        Ok(Cell {
            kind,
            inputs,
            hidden,
            params: Params::new(path, "", kind.gates(), inputs, hidden, true)?,
        })
    }

    fn step(&self, x: &Tensor, h: &Tensor, c: Option<&Tensor>) -> Result<HiddenState> {
        if x.ndim() != 2 || x.shape()[1] != self.inputs {
            return Err(Error::shape(format!(
                "the input must be (B, {}), not {}",
                self.inputs,
                x.shape()
            ))
            .help("x.at(1, t)? is step t of a sequence (B, T, C)"));
        }
        if let Some(bad) = [Some(h), c]
            .into_iter()
            .flatten()
            .find(|s| s.shape()[..] != [x.shape()[0], self.hidden])
        {
            return Err(Error::shape(format!(
                "a state must be ({}, {}), not {}",
                x.shape()[0],
                self.hidden,
                bad.shape()
            ))
            .help("the usual initial state is zeros of that shape"));
        }
        Ok(run(
            self.kind,
            false,
            &x.unsqueeze(0)?,
            &self.params.values(x)?,
            Some((h.clone(), c.cloned())),
            None,
        )?
        .1)
    }
}

macro_rules! cell {
    ($(#[$doc:meta])* $name:ident $kind:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Cell);

        impl $name {
            /// A cell at `path` with PyTorch's initial weights: `weight_ih`, `weight_hh`,
            /// `bias_ih`, `bias_hh`.
            ///
            /// # Errors
            /// If the names are taken or `hidden` is 0.
            #[track_caller]
            pub fn new(path: &Path, inputs: usize, hidden: usize) -> Result<$name> {
                let make = || Ok($name(Cell::new(RnnKind::$kind, path, inputs, hidden)?));
                path.build(concat!(stringify!($name), "::new"), make)
            }
        }
    };
}

macro_rules! step_of_h {
    ($name:ident) => {
        impl $name {
            /// Returns the state after x (B, C), given the state `h` (B, H).
            ///
            /// # Errors
            /// If a shape does not fit.
            #[track_caller]
            pub fn step(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
                let _op = enter(self.0.kind.op());
                Ok(self.0.step(x, h, None)?.0)
            }
        }
    };
}

cell! {
    /// One step of [`super::Rnn`]. Equivalent: `torch.nn.RNNCell`.
    RnnCell Tanh
}
step_of_h!(RnnCell);

impl RnnCell {
    /// The same cell with this nonlinearity.
    pub fn with_nonlinearity(mut self, nonlinearity: RnnNonlinearity) -> RnnCell {
        self.0.kind = nonlinearity.kind();
        self
    }
}

cell! {
    /// One step of [`super::Gru`]. Equivalent: `torch.nn.GRUCell`.
    GruCell Gru
}
step_of_h!(GruCell);

cell! {
    /// One step of [`super::Lstm`]. Equivalent: `torch.nn.LSTMCell`.
    LstmCell Lstm
}

impl LstmCell {
    /// Returns the state and the cell after x (B, C), given the state `h` and the cell `c`, all (B,
    /// H).
    ///
    /// # Errors
    /// If a shape does not fit.
    #[track_caller]
    pub fn step(&self, x: &Tensor, h: &Tensor, c: &Tensor) -> Result<(Tensor, Tensor)> {
        let _op = enter("lstm");
        let (h, c) = self.0.step(x, h, Some(c))?;
        Ok((h, c.ok_or_else(|| Error::internal("an lstm has no cell"))?))
    }
}
