//! [`Op`] as data: what each variant says about itself, what an invalid one does, and how short
//! devices and wrappers become.

use crate::counter::Counter;
use crate::matmul_only::MatmulOnly;
use crate::samples;
use std::collections::BTreeSet;
use std::sync::Arc;
use teeny_conformance::Suite;
use teeny_core::storage::Storage;
use teeny_core::{
    Attention, AttentionInputs, Cost, DType, Device, DeviceInfo, DeviceRef, ErrorKind, Kernel,
    Layout, Op, Outputs, ReduceOp, Reference, Result, RowFunction, ScatterMode, Shape, SortOrder,
    StorageRef, Tensor, Window, map,
};

fn reference() -> DeviceRef {
    Reference::new()
}

/// The variants of [`Op`] in its source.
fn variants() -> BTreeSet<&'static str> {
    let source = include_str!("../../src/op/table.rs");
    let (_, rows) = source.split_once("requests! {\n").unwrap();
    let row = |line: &'static str| {
        let row = line.strip_prefix("    primitive ").or(line.strip_prefix("    fused "))?;
        row.strip_suffix(" {")
    };
    rows.lines().filter_map(row).chain(["ElementwiseInPlace"]).collect()
}

/// True if this build has no implementation of the op: matrices need the feature `linalg`.
fn is_missing(op: &Op<'_>) -> bool {
    cfg!(not(feature = "linalg")) && matches!(op, Op::Linalg { .. })
}

/// Runs the op. The bytes of its outputs, and of the storage that it overwrites.
fn bytes(op: &mut Op<'_>, device: &DeviceRef) -> Result<Vec<Vec<u8>>> {
    let specs = op.outputs()?;
    let mut storages: Vec<_> = op
        .run(device)?
        .into_iter()
        .zip(specs.iter())
        .map(|(storage, &(shape, dtype))| (storage, shape, dtype))
        .collect();
    if let Op::ElementwiseInPlace { storage, shape, .. } = op {
        storages.push((storage.clone(), **shape, storage.dtype()));
    }
    let download = |(storage, shape, dtype): (StorageRef, Shape, DType)| {
        device.download(&Tensor::from_result(storage, shape, dtype, device.clone())?)
    };
    storages.into_iter().map(download).collect()
}

#[test]
fn the_samples_have_every_variant() -> Result<()> {
    let (all, mut valid, mut invalid) = (variants(), BTreeSet::new(), BTreeSet::new());
    assert!(all.len() >= 30 && all.contains("Matmul"), "{all:?}");
    samples::valid(&reference(), |sample| valid.extend([sample.variant]))?;
    teeny_conformance::invalid_requests(&reference(), |variant, _| invalid.extend([variant]))?;
    assert_eq!(valid, all);
    invalid.insert("Contiguous"); // valid for every tensor
    assert_eq!(invalid, all);
    Ok(())
}

#[test]
fn an_op_knows_its_name_operands_and_outputs() -> Result<()> {
    let device = reference();
    samples::valid(&device, |sample| {
        let (name, mut op) = (sample.variant, sample.op);
        assert_eq!(op.name(), sample.name);
        assert!(format!("{op:?}").starts_with(op.name()), "{op:?}");
        let operands = op.operands();
        let named: Vec<_> = op.named_operands().collect();
        assert_eq!(named.iter().map(|(name, _)| *name).collect::<Vec<_>>(), sample.operands);
        assert_eq!(operands.len(), named.len(), "{name}");
        assert!(named.iter().zip(operands.iter()).all(|((_, a), b)| std::ptr::eq(*a, *b)));
        let specs = op.outputs().unwrap();
        let shapes: Vec<_> = specs.iter().map(|(shape, dtype)| (&shape[..], *dtype)).collect();
        assert_eq!(shapes, sample.outputs, "{name}");
        if is_missing(&op) {
            assert_eq!(op.run(&device).err().map(|e| e.kind()), Some(ErrorKind::Unsupported));
            return;
        }
        let outputs = op.run(&device).unwrap();
        let returned: Vec<_> = outputs.iter().map(|y| (y.len(), y.dtype())).collect();
        let wanted: Vec<_> = specs.iter().map(|(shape, dtype)| (shape.numel(), *dtype)).collect();
        assert_eq!(returned, wanted, "{name}");
    })
}

#[test]
fn an_op_on_the_same_or_on_copied_operands_is_the_same_op() -> Result<()> {
    let device = reference();
    let mut wanted = Vec::new();
    samples::valid(&device, |mut sample| {
        let missing = is_missing(&sample.op);
        wanted.push(if missing { vec![] } else { bytes(&mut sample.op, &device).unwrap() });
    })?;
    let mut expected = wanted.iter();
    samples::valid(&device, |mut sample| {
        let (operands, want) = (sample.op.operands(), expected.next().unwrap());
        if !is_missing(&sample.op) {
            let got = bytes(&mut sample.op.with_operands(&operands), &device).unwrap();
            assert_eq!(got, *want, "{}", sample.variant);
        }
    })?;
    let mut expected = wanted.iter();
    samples::valid(&device, |mut sample| {
        let copies: Vec<_> = sample.op.operands().iter().map(|x| x.copy().unwrap()).collect();
        let (copies, want) = (copies.iter().collect::<Vec<_>>(), expected.next().unwrap());
        if !is_missing(&sample.op) {
            let got = bytes(&mut sample.op.with_operands(&copies), &device).unwrap();
            assert_eq!(got, *want, "{}", sample.variant);
        }
    })
}

#[test]
#[should_panic(expected = "an op on 2 operands")]
fn other_numbers_of_operands_panic() {
    let x = Tensor::ones((2, 2), DType::F32, reference()).unwrap(); // (2, 2)
    Op::Matmul { lhs: &x, rhs: &x }.with_operands(&[&x]);
}

#[test]
fn the_reference_executes_exactly_the_primitives() -> Result<()> {
    let (device, mut primitives) = (reference(), BTreeSet::new());
    samples::valid(&device, |mut sample| {
        let executed = device.execute(&mut sample.op).unwrap().is_some();
        assert_eq!(executed, sample.op.is_primitive(), "{}", sample.variant);
        if executed {
            primitives.insert(sample.variant);
        }
    })?;
    assert_eq!(primitives.len(), 9, "{primitives:?}");
    Ok(())
}

#[test]
fn an_invalid_op_is_an_error_and_no_panic() -> Result<()> {
    let device = reference();
    teeny_conformance::invalid_requests(&device, |variant, mut op| {
        let _ = op.cost(); // may be wrong, must not panic
        assert!(!format!("{op:?}").is_empty());
        assert_eq!(op.named_operands().count(), op.operands().len(), "{variant}");
        let checked = op.outputs().map(|specs| specs.iter().copied().collect::<Vec<_>>());
        assert!(checked.is_err(), "{variant}: {op:?} has outputs {checked:?}");
        assert!(device.execute(&mut op).is_err(), "{variant}: {op:?} is executed");
        assert!(op.run(&device).is_err(), "{variant}: {op:?} runs");
    })
}

/// The storage of no device.
struct Foreign(usize, DType);

impl Storage for Foreign {
    fn len(&self) -> usize {
        self.0
    }
    fn dtype(&self) -> DType {
        self.1
    }
}

#[test]
fn operands_of_another_device_are_an_error_and_no_panic() -> Result<()> {
    let device = reference();
    let foreign = |x: &Tensor| {
        let storage: StorageRef = Arc::new(Foreign(x.storage().len(), x.dtype()));
        Tensor::from_parts(storage, *x.layout(), x.dtype(), device.clone())
    };
    samples::valid(&device, |mut sample| {
        if !sample.op.operands().is_empty() {
            assert!(sample.op.run_mapped(&device, &foreign).is_err(), "{}", sample.variant);
        }
    })
}

#[test]
fn a_destination_is_taken_once() -> Result<()> {
    let device = reference();
    let x = Tensor::new([1.0f32, 2.0], &device)?; // (2)
    let dst = Some(Tensor::zeros((2,), DType::F32, &device)?.storage().clone());
    let mut op = Op::CopyInto { dst, view: &Layout::contiguous(*x.shape()), src: &x };
    assert_eq!(op.run(&device)?.len(), 1);
    assert!(matches!(op, Op::CopyInto { dst: None, .. }));
    let errors = [op.outputs().err(), op.run(&device).err(), device.execute(&mut op).err()];
    for error in errors {
        let error = error.expect("the destination is gone");
        assert!(
            error.kind() == ErrorKind::Internal && error.message().contains("taken"),
            "{error}"
        );
    }
    Ok(())
}

#[test]
fn costs_are_those_of_the_definition() -> Result<()> {
    let device = reference();
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, &device)?.copy();
    let cost = |bytes, flops| Cost { bytes, flops };
    let (a, b) = (ones(&[2, 4, 3])?, ones(&[2, 3, 5])?);
    // 24 + 30 + 40 floats; 3 multiplications and additions for each of 40 elements
    assert_eq!(Op::Matmul { lhs: &a, rhs: &b }.cost()?, cost(4 * (24 + 30 + 40), 2 * 3 * 40));
    // a repeated row is read once
    let row = ones(&[1, 5])?.expand((8, 5))?; // (8, 5)
    let sum = Op::Reduce { op: ReduceOp::Sum, x: &row, axes: &[0] };
    assert_eq!(sum.cost()?, cost(4 * (5 + 5), 40));
    let kernel = Arc::new(Kernel::build([DType::F32; 2], [], |[a, b], []| [a * b + a.exp()])?);
    let (x, shape) = (ones(&[8, 5])?, Shape::new(&[8, 5])?);
    let op = Op::Elementwise { kernel: &kernel, inputs: &[&x, &row], params: &[], shape: &shape };
    assert_eq!(op.cost()?, cost(4 * (40 + 5 + 40), 3 * 40));
    let mut storage = x.storage().clone();
    let op = Op::ElementwiseInPlace {
        kernel: &kernel,
        storage: &mut storage,
        input_index: 0,
        other: Some(&row),
        params: &[],
        shape: &shape,
    };
    assert_eq!(op.cost()?, cost(4 * (40 + 5 + 40), 3 * 40));
    // of a destination only the view is written
    let (dst, src) = (Some(x.storage().clone()), ones(&[5])?);
    let view = Layout::contiguous(Shape::new(&[5])?);
    assert_eq!(Op::CopyInto { dst, view: &view, src: &src }.cost()?, cost(4 * (5 + 5), 0));
    let index = Tensor::zeros((2, 5), DType::I64, &device)?.copy()?; // (2, 5)
    let gather = Op::Gather { x: &x, axis: 0, index: &index };
    assert_eq!(gather.cost()?, cost(4 * 40 + 8 * 10 + 4 * 10, 0));
    let (mode, src) = (ScatterMode::Add, ones(&[2, 5])?);
    let scatter = Op::Scatter { mode, x: &x, axis: 0, index: &index, src: &src };
    assert_eq!(scatter.cost()?, cost(4 * 40 + 8 * 10 + 4 * 10 + 4 * 40, 10));
    // the largest, the difference, its exponential, their sum, the quotient
    let (program, shape) = (RowFunction::Softmax.program(&[DType::F32], 0)?, x.shape());
    let op = Op::Rows { program, inputs: &[&x], params: &[], shape, axes: &[1] };
    assert_eq!(op.cost()?, cost(4 * 80, 5 * 40));
    let (image, weight) = (ones(&[2, 6, 8, 8])?, ones(&[4, 3, 3, 3])?);
    let window = Window { groups: 2, ..Window::new(2).padding(1) };
    let conv = Op::Conv { x: &image, weight: &weight, window: &window };
    let numels = (2 * 6 + 2 * 4) * 64 + 4 * 27;
    assert_eq!(conv.cost()?, cost(4 * numels, 2 * 27 * (2 * 4 * 64)));
    let q = ones(&[2, 5, 4])?; // (heads, T, hs)
    let options = Attention::causal(0);
    let inputs = AttentionInputs { q: &q, k: &q, v: &q, mask: None, options };
    // 15 pairs a head, 4 + 4 products each and a softmax; y and a logsumexp per query
    let flops = 2 * 15 * (2 * 4 + 2 * 4 + 4);
    assert_eq!(Op::Attention { inputs }.cost()?, cost(4 * (4 * 40 + 10), flops));
    assert!(Op::Matmul { lhs: &a, rhs: &a }.cost().is_err());
    Ok(())
}

#[test]
fn a_device_that_only_multiplies_matrices_has_fewer_than_40_lines() {
    assert!(include_str!("op/matmul_only.rs").lines().count() < 40);
}

#[test]
fn a_device_that_only_multiplies_matrices_computes_everything() -> Result<()> {
    let device: DeviceRef = Arc::new(MatmulOnly(reference()));
    let x = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &device)?; // (2, 3)
    assert_eq!(x.matmul(&x.t()?)?.to_vec::<f32>()?, [14.0, 32.0, 32.0, 77.0]);
    let mean = x.softmax(1)?.sum_all()?;
    assert!((mean.item::<f32>()? - 2.0).abs() < 1e-6 && mean.device().info().name == "matmul_only");
    Ok(())
}

#[test]
fn a_device_that_only_multiplies_matrices_passes_the_suite() {
    let device = Arc::new(MatmulOnly(reference()));
    let n = 8; // what it does not do itself, the oracle does
    let report = Suite::new(&device).every(n).run();
    assert!(report.passed() && n * report.cases() > 10_000, "{report}");
}

/// Declines sorting, random numbers and maxima, which are primitives.
#[derive(Debug)]
struct Declining(Arc<Reference>);

impl Device for Declining {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "declining".into(), description: "lacks three primitives".into() }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.0.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.0.download(x)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        match op {
            Op::Sort { .. } | Op::Random { .. } | Op::Reduce { op: ReduceOp::Max, .. } => Ok(None),
            _ => self.0.execute(op),
        }
    }
    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
}

#[test]
fn a_declined_primitive_is_an_error_with_device_op_dtype_and_help() -> Result<()> {
    let device: DeviceRef = Arc::new(Declining(Reference::new()));
    let x = Tensor::new([[2.0f64, 1.0]], &device)?; // (1, 2)
    let errors = [
        (x.sort(1, SortOrder::Ascending).err(), "sort", "sort of f64"),
        (Tensor::rand((2,), DType::F32, &device).err(), "rand", "random of f32"),
        (x.softmax(1).err(), "softmax", "max of f64"), // by its definition
    ];
    for (error, called, op) in errors {
        let error = error.unwrap();
        assert_eq!((error.kind(), error.op()), (ErrorKind::Unsupported, Some(called)), "{error}");
        let wanted = format!("the device declining does not execute the primitive {op}");
        assert_eq!(error.message(), wanted);
        assert!(error.has_help() && error.to_string().contains("x.to(&device)?"), "{error}");
        assert_eq!(error.location().unwrap().file(), file!());
    }
    assert_eq!(x.sum_all()?.item::<f64>()?, 3.0, "the other primitives run");
    Ok(())
}

#[test]
fn a_wrapper_of_one_method_counts_ops() -> Result<()> {
    let counter = Arc::new(Counter::new(reference(), false));
    let x = Tensor::new([[1.0f32, -2.0], [3.0, 4.0]], &counter)?; // (2, 2)
    assert_eq!(counter.take(), []);
    let y = x.matmul(&x.t()?)?.relu()?.softmax(-1)?; // (2, 2)
    assert_eq!(counter.take(), [("matmul", 1), ("maximum", 1), ("softmax", 1)]);
    let _ = map([&x, &y], |[x, y]| x * y + 1.0)?;
    assert_eq!(counter.take(), [("kernel", 1)]);
    assert_eq!(
        y.sort(0, SortOrder::Descending)?.0.add(&y)?.device().info().name,
        "counter(reference)"
    );
    assert_eq!(counter.take(), [("add", 1), ("sort", 1)]);
    let wanted = Tensor::new([[1.0f32, -2.0], [3.0, 4.0]], reference())?; // (2, 2)
    let wanted = wanted.matmul(&wanted.t()?)?.relu()?.softmax(-1)?;
    assert_eq!(y.to_vec::<f32>()?, wanted.to_vec::<f32>()?);
    assert_eq!(counter.take(), [], "reading executes no op");
    Ok(())
}

#[test]
fn a_wrapper_that_declines_fused_ops_counts_their_definitions() -> Result<()> {
    let counter = Arc::new(Counter::new(reference(), true));
    let x = Tensor::new([[1.0f32, -2.0], [3.0, 4.0]], &counter)?; // (2, 2)
    let _ = x.softmax(-1)?;
    // max, exp(x - max), its sum, exp(x - max) / sum
    assert_eq!(counter.take(), [("kernel", 2), ("max", 1), ("sum", 1)]);
    let part = Tensor::cat(&[&x, &x], 0)?; // (4, 2)
    let counts = counter.take();
    assert!(counts.contains(&("copy_into", 2)), "{counts:?}");
    assert_eq!(part.to_vec::<f32>()?, [1.0, -2.0, 3.0, 4.0, 1.0, -2.0, 3.0, 4.0]);
    Ok(())
}

#[test]
fn every_op_passes_through_a_wrapper_unchanged() -> Result<()> {
    let inner = reference();
    let mut wanted = Vec::new();
    samples::valid(&inner, |mut sample| {
        let missing = is_missing(&sample.op);
        wanted.push(if missing { vec![] } else { bytes(&mut sample.op, &inner).unwrap() });
    })?;
    let counter = Arc::new(Counter::new(inner, false));
    let (device, mut expected): (DeviceRef, _) = (counter.clone(), wanted.iter());
    samples::valid(&device, |mut sample| {
        let want = expected.next().unwrap();
        counter.take();
        if !is_missing(&sample.op) {
            assert_eq!(bytes(&mut sample.op, &device).unwrap(), *want, "{}", sample.variant);
            assert_eq!(counter.take(), [(sample.name, 1)], "{}", sample.variant);
        }
    })
}
