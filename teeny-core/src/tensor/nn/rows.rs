//! Running the named row programs.

use crate::error::{Error, Result};
use crate::kernel::{Extent, RowFunction};
use crate::op::Op;
use crate::scalar::Scalar;
use crate::tensor::Tensor;

impl RowFunction {
    /// Runs the program on the rows of `inputs[0]` along `axes`, in ascending order. Other inputs
    /// broadcast to the shape of the first, or to size 1 along `axes` for one value a row. All are
    /// on one device.
    ///
    /// # Errors
    /// If the program has no such inputs or parameters, or they do not fit each other.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{Reference, RowFunction, Tensor};
    /// # fn main() -> teeny_core::Result<()> {
    /// let device = Reference::new();
    /// let x = Tensor::new([[1.0f32, 3.0], [5.0, 5.0]], &device)?; // (2, 2)
    /// let y = x.softmax(1)?; // (2, 2)
    /// let g = Tensor::new([[1.0f32, 1.0], [1.0, 0.0]], &device)?; // (2, 2)
    /// let d_x = RowFunction::SoftmaxGrad.run(&[&y, &g], &[], &[1])?; // (2, 2)
    /// let d_x = d_x.mul(1e4)?.round()?; // without the rounding errors
    /// assert_eq!(d_x.to_vec::<f32>()?, [0.0, 0.0, 2500.0, -2500.0]);
    /// # Ok(()) }
    /// ```
    pub fn run(self, inputs: &[&Tensor], params: &[Scalar], axes: &[usize]) -> Result<Tensor> {
        let Some(&x) = inputs.first() else {
            return Err(Error::value(format!("{} needs a tensor", self.name()))
                .help("the first input must vary along the row"));
        };
        let mut types = [x.dtype(); 8];
        let types = types.get_mut(..inputs.len()).unwrap_or(&mut []);
        types.iter_mut().zip(inputs).for_each(|(dtype, x)| *dtype = x.dtype());
        let program = self.program(types, params.len())?;
        let shape = x.shape();
        if inputs.len() == 1 {
            return Op::Rows { program, inputs, params, shape, axes }.tensor(x.device());
        }
        let one = shape.reduced(axes, true);
        let mut expanded = Vec::with_capacity(inputs.len());
        for (i, x) in inputs.iter().enumerate() {
            let of = if program.input_extent(i) == Extent::Element { shape } else { &one };
            expanded.push(if x.shape() == of { (*x).clone() } else { x.expand_to(of)? });
        }
        let inputs: Vec<&Tensor> = expanded.iter().collect();
        Op::Rows { program, inputs: &inputs, params, shape, axes }.tensor(x.device())
    }
}
