//! One case: an operation, its operands and parameters, as a line of JSON and as a call.

use teeny_core::{DType, DeviceRef, Result, Tensor};

/// How an operand's elements are placed in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// Row-major.
    Packed,
    /// The last two axes exchanged.
    Transposed,
    /// The middle half of the last axis of a larger tensor.
    Sliced,
    /// The first axis expanded from one element.
    Expanded,
}

/// The contents of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Normal random numbers; of integers, uniform ones in 0..100.
    Normal,
    /// Uniform random numbers in 0.1..2; of integers, in 1..9.
    Positive,
    /// Uniform random numbers in -0.9..0.9.
    Unit,
    /// Integers (`I32` here, 64 bits where a library wants them) below the number.
    Index(usize),
    /// Random bools.
    Mask,
    /// A positive definite matrix.
    Definite,
}

/// One operand.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its layout.
    pub layout: Layout,
    /// Its elements.
    pub fill: Fill,
    /// The type of its elements, unless `fill` decides.
    pub dtype: DType,
}

impl Input {
    /// Whether a gradient is requested.
    pub fn has_grad(&self, dtype: DType) -> bool {
        dtype.is_float() && !matches!(self.fill, Fill::Index(_) | Fill::Mask)
    }

    /// The operand on `device`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn on(&self, device: &DeviceRef) -> Result<Tensor> {
        let mut shape = self.shape.clone();
        let last = shape.len().wrapping_sub(1);
        match self.layout {
            Layout::Packed => {}
            Layout::Transposed => shape.swap(last - 1, last),
            Layout::Sliced => shape[last] *= 2,
            Layout::Expanded => shape[0] = 1,
        }
        let x = self.packed(&shape, device)?;
        match self.layout {
            Layout::Packed => Ok(x),
            Layout::Transposed => x.t(),
            Layout::Sliced => {
                let n = self.shape[last];
                x.slice(-1, n / 2..n / 2 + n)
            }
            Layout::Expanded => x.expand(&self.shape[..]),
        }
    }

    fn packed(&self, shape: &[usize], device: &DeviceRef) -> Result<Tensor> {
        let float = self.dtype.is_float();
        match self.fill {
            Fill::Index(end) => Tensor::randint(0, end as i64, shape, DType::I32, device),
            Fill::Mask => Tensor::randint(0, 2, shape, DType::I32, device)?.cast(DType::Bool),
            Fill::Normal if self.dtype == DType::Bool => {
                Tensor::randint(0, 2, shape, DType::I32, device)?.cast(DType::Bool)
            }
            Fill::Normal if float => Tensor::randn(shape, DType::F32, device)?.cast(self.dtype),
            Fill::Positive if float => {
                Tensor::uniform(0.1, 2.0, shape, DType::F32, device)?.cast(self.dtype)
            }
            Fill::Unit => Tensor::uniform(-0.9, 0.9, shape, DType::F32, device)?.cast(self.dtype),
            Fill::Positive => Tensor::randint(1, 9, shape, DType::I32, device)?.cast(self.dtype),
            Fill::Normal => Tensor::randint(0, 100, shape, DType::I32, device)?.cast(self.dtype),
            Fill::Definite => {
                let n = shape[shape.len() - 1];
                let a = Tensor::randn(shape, self.dtype, device)?;
                a.matmul(&a.t()?)?.add(&Tensor::eye(n, self.dtype, device)?.mul(n as f64)?)
            }
        }
    }

    fn json(&self) -> String {
        let fill = match self.fill {
            Fill::Index(end) => format!("index:{end}"),
            fill => format!("{fill:?}").to_lowercase(),
        };
        let layout = format!("{:?}", self.layout).to_lowercase();
        let dtype = self.dtype;
        format!(
            r#"{{"shape":{:?},"layout":"{layout}","fill":"{fill}","dtype":"{dtype}"}}"#,
            self.shape
        )
    }
}

/// The call of an operation: the device for operations without operands.
pub type Call = Box<dyn Fn(&DeviceRef, &[Tensor]) -> Result<Tensor>>;

/// An operation with its operands and parameters.
pub struct Case {
    /// The operation.
    pub op: &'static str,
    /// The type of the case.
    pub dtype: DType,
    /// Whether the gradients of the operands are part of the work.
    pub grad: bool,
    /// The operands.
    pub inputs: Vec<Input>,
    /// The parameters, as JSON, in the order of the other library's function.
    pub args: Vec<String>,
    /// The call.
    pub call: Call,
}

impl Case {
    /// The fields of the line of JSON, without braces.
    pub fn line(&self) -> String {
        let Case { op, dtype, grad, .. } = self;
        let inputs = self.inputs.iter().map(Input::json).collect::<Vec<_>>().join(",");
        let args = self.args.join(",");
        format!(
            r#""op":"{op}","dtype":"{dtype}","grad":{grad},"inputs":[{inputs}],"args":[{args}]"#
        )
    }
}
