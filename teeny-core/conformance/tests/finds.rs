//! The suite notices mistakes: devices with one mistake each, the oracle in everything else.

use std::sync::Arc;
use teeny_conformance::{Cell, Report, Suite, fuzz};
use teeny_core::{
    DType, Device, DeviceInfo, DeviceRef, Error, Layout, Op, Outputs, ReduceOp, Reference, Result,
    SortOrder, StorageRef, Tensor,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    DropsOffsets,
    IgnoresStrides,
    ForgetsNan,
    SumsAllButTheLast,
    SortsUnstably,
    FirstArrivalWins,
    TrustsIndices,
    RefusesF64,
    Panics,
    WritesOverTheWrongOperand,
}

use Mistake::*;

#[derive(Debug)]
struct Flawed(DeviceRef, Mistake);

impl Flawed {
    /// The view as the mistake sees it.
    fn seen(&self, x: &Tensor) -> Result<Tensor> {
        let l = x.layout();
        let len = x.storage().len();
        match self.1 {
            DropsOffsets => x.with_layout(Layout::strided(*l.shape(), l.strides(), 0, len)?),
            IgnoresStrides if l.numel() <= len => x.with_layout(Layout::contiguous(*l.shape())),
            _ => Ok(x.clone()),
        }
    }

    /// `x` on the oracle.
    fn on_oracle(&self, x: &Tensor) -> Result<Tensor> {
        Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), self.0.clone())
    }
}

impl Device for Flawed {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "flawed".into(), description: format!("{:?}", self.1) }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        if self.1 == RefusesF64 && dtype == DType::F64 {
            return Err(Error::unsupported("this device has no f64"));
        }
        self.0.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.0.download(x)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        op.outputs()?;
        match (self.1, &mut *op) {
            (
                WritesOverTheWrongOperand,
                &mut Op::ElementwiseInPlace {
                    kernel,
                    ref mut storage,
                    input_index,
                    other: Some(other),
                    params,
                    shape,
                },
            ) => {
                let (layout, dtype) = (Layout::contiguous(*shape), storage.dtype());
                let own = Tensor::from_parts(storage.clone(), layout, dtype, self.0.clone())?;
                let inputs = if input_index == 0 { &[other, &own] } else { &[&own, other] };
                let y = Op::Elementwise { kernel, inputs, params, shape }.tensor(&self.0)?;
                **storage = y.storage().clone();
                return Ok(Some(Outputs::new()));
            }
            (Panics, Op::Reduce { op: ReduceOp::Prod, .. }) => {
                panic!("a device should not, but it may")
            }
            (ForgetsNan, &mut Op::Reduce { op: op @ (ReduceOp::Max | ReduceOp::Min), x, axes })
                if x.dtype().is_float() =>
            {
                let x = self.on_oracle(x)?;
                let tame = x.is_nan()?.where_cond(0, &x)?.cast(x.dtype())?;
                return Op::Reduce { op, x: &tame, axes }.run(&self.0).map(Some);
            }
            (SumsAllButTheLast, &mut Op::Reduce { op: op @ ReduceOp::Sum, x, axes })
                if x.shape()[axes[0]] > 600 =>
            {
                let x = x.slice(axes[0] as isize, ..-1)?;
                return Op::Reduce { op, x: &x, axes }.run(&self.0).map(Some);
            }
            (TrustsIndices, &mut Op::Gather { x, axis, index }) => {
                let index = index.to_scalars()?.iter().map(|s| s.to_i64_wrapping()).collect();
                let index = Tensor::from_vec(index, op.outputs()?[0].0, &self.0)?;
                let last = x.shape()[axis].max(1) as i64 - 1;
                let index = index.clamp(0, last)?;
                return Op::Gather { x, axis, index: &index }.run(&self.0).map(Some);
            }
            (FirstArrivalWins, &mut Op::Scatter { mode, x, axis, index, src }) => {
                let (index, src) = (&index.flip(axis)?, &src.flip(axis)?);
                return Op::Scatter { mode, x, axis, index, src }.run(&self.0).map(Some);
            }
            (SortsUnstably, &mut Op::Sort { x, axis, order: SortOrder::Descending }) => {
                let (values, places) =
                    self.on_oracle(x)?.sort(axis as isize, SortOrder::Ascending)?;
                let reversed = |y: &Tensor| Ok(y.flip(axis)?.copy()?.storage().clone());
                let outputs: [Result<StorageRef>; 2] = [reversed(&values), reversed(&places)];
                return outputs.into_iter().collect::<Result<_>>().map(Some);
            }
            _ => {}
        }
        if !op.is_primitive() {
            return Ok(Option::None);
        }
        op.run_mapped(&self.0, &|x| self.seen(x)).map(Some)
    }
    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
}

fn device(mistake: Mistake) -> Arc<Flawed> {
    Arc::new(Flawed(Reference::new(), mistake))
}

/// The operations that fail because of each of `mistakes`, without the rows that have all of them.
fn failures(mistakes: &[Mistake]) -> Vec<Vec<&'static str>> {
    let devices: Vec<DeviceRef> = mistakes.iter().map(|&m| device(m) as DeviceRef).collect();
    let suite = Suite::new(&devices[0]).dtypes(&[DType::I32, DType::F32]);
    let reports = suite.without("request").without("random operation").run_on(&devices);
    let failed = |cells: &[Cell]| cells.iter().any(|c| matches!(c, Cell::Failed(_)));
    let ops = |report: &Report| {
        let rows = report.rows().iter().filter(|(_, cells)| failed(cells));
        rows.map(|(op, _)| *op).collect()
    };
    reports.iter().map(ops).collect()
}

#[test]
fn each_mistake_fails_in_the_operations_that_have_it() {
    let mistakes = [
        None,
        DropsOffsets,
        IgnoresStrides,
        ForgetsNan,
        SumsAllButTheLast,
        SortsUnstably,
        FirstArrivalWins,
        TrustsIndices,
        Panics,
        WritesOverTheWrongOperand,
    ];
    let all = failures(&mistakes);
    let failing = |mistake| &all[mistakes.iter().position(|&m| m == mistake).unwrap()];
    assert_eq!(*failing(None), [""; 0]);
    for mistake in [DropsOffsets, IgnoresStrides] {
        let failed = failing(mistake);
        let everywhere = [
            "copy", "exp", "add", "cast", "sum", "argmax", "cumsum", "matmul", "gather", "scatter",
            "sort", "softmax", "conv", "max_pool",
        ];
        assert!(everywhere.iter().all(|op| failed.contains(op)), "{mistake:?}: {failed:?}");
    }
    assert!(failing(ForgetsNan).contains(&"max") && !failing(ForgetsNan).contains(&"sum"));
    assert!(failing(SumsAllButTheLast).contains(&"sum"));
    assert_eq!(*failing(SortsUnstably), ["sort", "topk"]);
    assert_eq!(*failing(FirstArrivalWins), ["scatter", "assign by index"]);
    assert_eq!(*failing(TrustsIndices), ["index outside"]);
    assert_eq!(*failing(Panics), ["prod"]);
    assert_eq!(
        *failing(WritesOverTheWrongOperand),
        ["sub over its left side", "sub over its right side"]
    );
}

#[test]
fn random_graphs_find_ignored_strides_and_print_the_way_to_them() {
    let story = fuzz(device(IgnoresStrides), 200, 1).expect_err("strides are ignored");
    assert!(story.contains("of seed 1: element") && story.contains("\n  %"), "{story}");
    assert!(fuzz(device(DropsOffsets), 200, 1).is_err());
    fuzz(device(None), 200, 1).unwrap();
}

#[test]
fn what_a_device_refuses_is_reported_and_not_failed() {
    let report = Suite::new(device(RefusesF64)).only("exp").run();
    assert!(report.passed());
    let (_, cells) = &report.rows()[0];
    assert!(
        matches!(&cells[DType::F64 as usize], Cell::Unsupported(why) if why.contains("no f64"))
    );
    assert!(matches!(cells[DType::F32 as usize], Cell::Passed(_)));
    assert!(
        report
            .markdown()
            .lines()
            .any(|line| line.starts_with("| exp |") && line.ends_with("| ok | no |")),
        "{}",
        report.markdown()
    );
    // A device that may report an index late must still report it: this one never does.
    assert!(!Suite::new(device(TrustsIndices)).only("index").trusts_indices().run().passed());
}
