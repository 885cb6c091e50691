//! Requests with other elements: integers of the whole range and NaN in views, and positions around
//! the ends of their axis.

use super::changes::{changed, with_input};
use super::{Arrangement, Domain, Input, Request};
use teeny_core::op::recorded::Recorded;
use teeny_core::{DType, Kernel, RowFunction, Scalar};

/// Other values in other arrangements: integers of the whole range in views, and NaN in an operand.
pub(super) fn of_values(sample: &Request) -> Vec<Request> {
    use Arrangement::{Flipped, Sliced, Transposed};
    let is_copy = matches!(sample.attributes, Recorded::CopyInto { .. });
    let mut all = Vec::new();
    for (round, arrangement) in [Flipped, Sliced, Transposed].into_iter().enumerate() {
        let mut request = changed(sample, format!("operand 0 is {arrangement:?}"));
        for (i, x) in request.inputs.iter_mut().enumerate() {
            if x.is_small() && x.dtype().is_int() {
                *x = x.redrawn(Domain::Any);
            }
            // The destination of a copy is a storage.
            if i > 0 || !is_copy {
                *x = x.with_arrangement([Flipped, Sliced, Transposed][(round + i) % 3]);
            }
        }
        all.push(request);
    }
    // A device may multiply the padding of an image.
    if sample.variant.starts_with("Conv") {
        return all;
    }
    for (i, x) in sample.inputs.iter().enumerate().filter(|(_, x)| x.dtype().is_float()) {
        all.push(with_input(
            sample,
            i,
            x.with_last(1, f64::NAN),
            format!("operand {i} ends in NaN"),
        ));
    }
    all
}

/// Positions around the ends of their axis, of every integer type that has them.
pub(super) fn of_positions(sample: &Request) -> Vec<Request> {
    let sizes = sample.inputs.first().map(|x| x.shape().to_vec()).unwrap_or_default();
    let (size, dtypes) = match &sample.attributes {
        Recorded::Gather { axis } | Recorded::Scatter { axis, .. } => (sizes[*axis], &INTEGERS[..]),
        Recorded::Rows { program, .. } if has_targets(program) => (sizes[1], &INTEGERS[..]),
        Recorded::QuantRows { parts, .. } => {
            (parts.iter().map(|part| part.rows).sum(), &INTEGERS[..])
        }
        Recorded::MaxPoolGrad { x_shape, spatial } => {
            (x_shape[x_shape.ndim() - spatial..].iter().product(), &[DType::I32][..])
        }
        _ => return Vec::new(),
    };
    let n = size as i128;
    let far = [-1, -2, -n, n, n + 1, 127, 128, 255, 1 << 16, (1 << 32) + 1, 1 << 62];
    let ends = [i8::MIN.into(), i32::MIN.into(), i32::MAX.into(), i64::MIN.into(), u64::MAX.into()];
    let mut all = Vec::new();
    for &dtype in dtypes {
        for position in far.into_iter().chain(ends) {
            let scalar = match u64::try_from(position) {
                Ok(position) => Scalar::UInt(position),
                Err(_) => Scalar::Int(position as i64),
            };
            if !scalar.fits(dtype) {
                continue;
            }
            let numel = sample.inputs[1].shape().numel();
            // Among others, at a place that the number chooses.
            let place = position.unsigned_abs() as usize % numel;
            let values = (0..numel).map(|i| if i == place { scalar } else { Scalar::UInt(0) });
            let index = Input::of(values, *sample.inputs[1].shape(), dtype, Arrangement::Packed);
            let mut request = with_input(sample, 1, index, format!("{position} as {dtype}"));
            if let Recorded::Rows { program, .. } = &mut request.attributes {
                let types: Vec<DType> = request.inputs.iter().map(Input::dtype).collect();
                let own = program.row_function().map(|f| f.program(&types, request.params.len()));
                let Some(Ok(own)) = own else { continue };
                *program = own.clone();
            }
            all.push(request);
        }
    }
    all
}

/// Whether the second input of `program` is positions.
fn has_targets(program: &Kernel) -> bool {
    let function = program.row_function();
    matches!(function, Some(RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad))
}

const INTEGERS: [DType; 8] =
    [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64];
