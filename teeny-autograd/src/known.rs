//! The derivatives of named row programs, which are named row programs.

use crate::symbolic::{Derivative, Part, Slot, Source, read};
use teeny_core::{DType, Kernel, Result, RowFunction};

/// The derivative of a named row program that is better than the derived one: from the result where
/// that is enough, and as a named program.
pub(crate) fn known(kernel: &Kernel, needs: u8) -> Result<Option<Derivative>> {
    let Some(function) = kernel.row_function() else { return Ok(None) };
    let (types, count) = (kernel.inputs(), kernel.inputs().len());
    let (x, g) = (Slot::Input(0), Slot::Grad(0));
    let mut out = Derivative {
        parts: Vec::new(),
        grads: (0..count).map(|_| Source::None).collect(),
        dtypes: types.to_vec(),
        extents: (0..count).map(|i| kernel.input_extent(i)).collect(),
        reach: vec![0],
        saved: Vec::new(),
    };
    let mut part = |i: usize, function: RowFunction, reads: &[Slot]| -> Result<()> {
        let dtype = |slot: &Slot| if let Slot::Input(i) = slot { types[*i] } else { types[0] };
        let types: Vec<DType> = reads.iter().map(dtype).collect();
        let kernel = function.program(&types, kernel.params().len())?.clone();
        out.grads[i] = Source::Part(out.parts.len(), 0);
        out.parts.push(Part { kernel, reads: reads.to_vec() });
        Ok(())
    };
    let needed = |i: usize| needs >> i & 1 == 1;
    let norm_grad = match function {
        RowFunction::Softmax => {
            part(0, RowFunction::SoftmaxGrad, &[Slot::Output(0), g])?;
            None
        }
        RowFunction::LogSoftmax => {
            part(0, RowFunction::LogSoftmaxGrad, &[Slot::Output(0), g])?;
            None
        }
        RowFunction::CrossEntropy => {
            part(0, RowFunction::CrossEntropyGrad, &[x, Slot::Input(1), g])?;
            None
        }
        RowFunction::LayerNorm => Some(RowFunction::LayerNormGrad),
        RowFunction::RmsNorm => Some(RowFunction::RmsNormGrad),
        _ => return Ok(None),
    };
    if let Some(norm_grad) = norm_grad {
        if needed(0) {
            let weight = (count > 1).then_some(Slot::Input(1));
            let reads: Vec<Slot> = [Some(x), weight, Some(g)].into_iter().flatten().collect();
            part(0, norm_grad, &reads)?;
        }
        if count > 1 && needed(1) {
            // The normalised values times the gradient.
            part(1, function, &[x, g])?;
        }
        if count > 2 && needed(2) {
            out.grads[2] = Source::Pass(0);
        }
    }
    let reached = |(i, source): (usize, &Source)| u8::from(!matches!(source, Source::None)) << i;
    out.reach[0] = out.grads.iter().enumerate().map(reached).fold(0, |a, b| a | b);
    out.saved = read(&out.parts);
    Ok(Some(out))
}
