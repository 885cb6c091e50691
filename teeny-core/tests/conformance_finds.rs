//! The suite must notice what it is for: devices with one mistake each, the oracle in everything
//! else.
#![cfg(feature = "conformance")]

use std::any::Any;
use std::sync::Arc;
use teeny_core::conformance::{Cell, Suite, fuzz};
use teeny_core::device::{Device, DeviceInfo, Outputs, ReduceOp, ScanOp, ScatterMode};
use teeny_core::random::{Distribution, Key};
use teeny_core::{
    DType, Error, Kernel, Layout, Reference, Result, Scalar, Shape, StorageRef, Tensor,
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
struct Flawed(Arc<Reference>, Mistake);

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
}

impl Device for Flawed {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "flawed".into(), description: format!("{:?}", self.1) }
    }
    fn as_any(&self) -> &dyn Any {
        self
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
    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        let seen = inputs.iter().map(|x| self.seen(x)).collect::<Result<Vec<_>>>()?;
        self.0.elementwise(kernel, &seen.iter().collect::<Vec<_>>(), params, shape)
    }
    fn elementwise_over(
        &self,
        kernel: &Arc<Kernel>,
        storage: &mut StorageRef,
        number: usize,
        other: Option<&Tensor>,
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<bool> {
        let (WritesOverTheWrongOperand, Some(other)) = (self.1, other) else { return Ok(false) };
        let dtype = kernel.inputs()[number];
        let given =
            Tensor::from_parts(storage.clone(), Layout::contiguous(*shape), dtype, self.0.clone())?;
        let inputs = if number == 0 { [other, &given] } else { [&given, other] };
        *storage =
            self.0.elementwise(kernel, &inputs, params, shape)?.into_first().expect("one output");
        Ok(true)
    }
    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        let x = &self.seen(x)?;
        if self.1 == Panics && op == ReduceOp::Prod {
            panic!("a device should not, but it may");
        }
        if self.1 == ForgetsNan
            && matches!(op, ReduceOp::Max | ReduceOp::Min)
            && x.dtype().is_float()
        {
            let zeros =
                Tensor::from_result(self.0.contiguous(x)?, *x.shape(), x.dtype(), self.0.clone())?;
            let tame = zeros.is_nan()?.select(0, &zeros)?.cast(x.dtype())?;
            return self.0.reduce(op, &tame, axes);
        }
        if self.1 == SumsAllButTheLast && op == ReduceOp::Sum && x.shape()[axes[0]] > 600 {
            return self.0.reduce(op, &x.slice(axes[0] as isize, ..-1)?, axes);
        }
        self.0.reduce(op, x, axes)
    }
    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        self.0.scan(op, &self.seen(x)?, axis)
    }
    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        self.0.matmul(&self.seen(lhs)?, &self.seen(rhs)?)
    }
    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        let x = self.seen(x)?;
        if self.1 == TrustsIndices {
            let on_oracle = Tensor::from_vec(
                index.to_scalars()?.iter().map(|s| s.to_i64_wrapping()).collect(),
                index.shape(),
                &self.0,
            )?;
            let last = x.shape()[axis].max(1) as i64 - 1;
            return self.0.gather(&x, axis, &on_oracle.clamp(0, last)?);
        }
        self.0.gather(&x, axis, index)
    }
    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        if self.1 == FirstArrivalWins {
            return self.0.scatter(mode, x, axis, &index.flip(axis)?, &src.flip(axis)?);
        }
        self.0.scatter(mode, &self.seen(x)?, axis, &self.seen(index)?, &self.seen(src)?)
    }
    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        self.0.copy_into(dst, view, &self.seen(src)?)
    }
    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        if self.1 == SortsUnstably && descending {
            let (values, places) = self.0.sort(x, axis, false)?;
            let turn = |storage, dtype| {
                let t = Tensor::from_result(storage, *x.shape(), dtype, self.0.clone())?;
                t.flip(axis)?.copy().map(|t| t.storage().clone())
            };
            return Ok((turn(values, x.dtype())?, turn(places, DType::I32)?));
        }
        self.0.sort(&self.seen(x)?, axis, descending)
    }
    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Key,
    ) -> Result<StorageRef> {
        self.0.random(distribution, shape, dtype, key)
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

fn device(mistake: Mistake) -> Arc<Flawed> {
    Arc::new(Flawed(Reference::new(), mistake))
}

/// The operations that fail because of `mistake`.
fn failing(mistake: Mistake) -> Vec<&'static str> {
    let report = Suite::new(&device(mistake)).dtypes(&[DType::I32, DType::F32]).run();
    let failed = |cells: &[Cell]| cells.iter().any(|c| matches!(c, Cell::Failed(_)));
    report.rows().iter().filter(|(_, cells)| failed(cells)).map(|(op, _)| *op).collect()
}

#[test]
fn each_mistake_fails_in_the_operations_that_have_it() {
    assert_eq!(failing(None), [""; 0]);
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
    assert_eq!(failing(SortsUnstably), ["sort", "topk"]);
    assert_eq!(failing(FirstArrivalWins), ["scatter", "assign by index"]);
    assert_eq!(failing(TrustsIndices), ["index outside"]);
    assert_eq!(failing(Panics), ["prod"]);
    assert_eq!(
        failing(WritesOverTheWrongOperand),
        ["sub over its left side", "sub over its right side"]
    );
}

#[test]
fn random_graphs_find_ignored_strides_and_print_the_way_to_them() {
    let story = fuzz(&device(IgnoresStrides), 200, 1).expect_err("strides are ignored");
    assert!(story.contains("of seed 1: element") && story.contains("%0 = "), "{story}");
    assert!(fuzz(&device(DropsOffsets), 200, 1).is_err());
    fuzz(&device(None), 200, 1).unwrap();
}

#[test]
fn what_a_device_refuses_is_reported_and_not_failed() {
    let report = Suite::new(&device(RefusesF64)).only("exp").run();
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
    assert!(!Suite::new(&device(TrustsIndices)).only("index").trusts_indices().run().passed());
}
