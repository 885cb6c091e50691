//! The recording device: when operations run, what never runs, and what happens when one fails.
//! Operations that run are counted by a `Trace` below.

use std::sync::Arc;
use teeny_core::wrappers::{Faulty, Lasting, Request, Trace};
use teeny_core::{
    DType, Device, DeviceInfo, DeviceRef, ErrorKind, Lazy, LazyOptions, Op, Outputs, Reference,
    Result, SortOrder, StorageRef, Tensor,
};

/// A recording device and the trace below it.
fn traced() -> (Arc<Lazy>, Arc<Trace>) {
    let trace = Trace::new(Reference::new());
    (Lazy::new(trace.clone()), trace)
}

fn ones(device: &Arc<Lazy>) -> Tensor {
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], device).unwrap();
    device.synchronize().unwrap();
    x
}

/// The operations that have run since the last call.
fn ran(trace: &Trace) -> Vec<&'static str> {
    let names = trace.spans().iter().map(|span| span.op).collect();
    trace.clear();
    names
}

#[test]
fn a_hundred_operations_run_nothing_until_a_result_is_read() {
    let (lazy, trace) = traced();
    let x = ones(&lazy);
    trace.clear();
    let before = lazy.stats();
    let mut y = x.clone();
    for _ in 0..50 {
        y = y.mul(0.5).unwrap().matmul(&x).unwrap();
    }
    assert!(ran(&trace).is_empty());
    assert_eq!(lazy.stats(), before, "nothing is allocated below");
    assert_eq!(lazy.counters().recorded, 100);
    let reference = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], Reference::new()).unwrap();
    let mut want = reference.clone();
    for _ in 0..50 {
        want = want.mul(0.5).unwrap().matmul(&reference).unwrap();
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap());
    assert_eq!(ran(&trace).iter().filter(|op| op.starts_with("matmul")).count(), 50);
    y.to_vec::<f32>().unwrap();
    assert!(!ran(&trace).iter().any(|op| *op != "download"), "a second read runs nothing");
}

#[test]
fn reading_synchronizing_unwrapping_a_boundary_and_limits_run_the_list() {
    let (lazy, trace) = traced();
    let device: DeviceRef = lazy.clone();
    let x = ones(&lazy);
    let executes = |trace: &Trace| ran(trace).iter().filter(|op| **op == "neg").count();
    executes(&trace);

    let y = x.neg().unwrap();
    y.sum_all().unwrap().item::<f32>().unwrap();
    assert_eq!(executes(&trace), 1, "item");
    let y = x.neg().unwrap();
    let _ = y.to(lazy.inner().unwrap()).unwrap();
    assert_eq!(executes(&trace), 1, "to the device below");
    let y = x.neg().unwrap();
    device.synchronize().unwrap();
    assert_eq!(executes(&trace), 1, "synchronize");
    let z = x.neg().unwrap();
    device.flush();
    assert_eq!(executes(&trace), 0, "a boundary waits for the next operation");
    let w = x.neg().unwrap();
    assert_eq!(executes(&trace), 1, "the operation behind a boundary");
    drop((y, z, w));
    let counters = lazy.counters();
    assert_eq!((counters.reads, counters.boundaries, counters.synchronizations), (2, 1, 1));

    let options = LazyOptions::new().with_max_nodes(3);
    let trace = Trace::new(Reference::new());
    let lazy = Lazy::with_options(trace.clone(), options);
    let mut y = ones(&lazy);
    executes(&trace);
    let next = |y: &mut Tensor| {
        *y = y.cumsum(0).unwrap();
        y.clone()
    };
    let all: Vec<Tensor> = (0..7).map(|_| next(&mut y)).collect();
    let scans = |trace: &Trace| ran(trace).iter().filter(|op| **op == "cumsum").count();
    assert_eq!(scans(&trace), 6);
    assert_eq!(lazy.counters().limits, 2);
    drop(all);
    let options = LazyOptions::new().with_max_bytes(32);
    let lazy = Lazy::with_options(trace.clone(), options);
    let mut y = ones(&lazy);
    executes(&trace);
    let all: Vec<Tensor> = (0..3).map(|_| next(&mut y)).collect();
    assert_eq!(scans(&trace), 2, "two results of 16 bytes");
    drop(all);
}

#[test]
fn what_nobody_holds_is_not_computed() {
    let (lazy, trace) = traced();
    let x = ones(&lazy);
    ran(&trace);
    let used = x.exp().unwrap();
    let dead = x.log().unwrap().sqrt().unwrap();
    drop(dead);
    let y = used.neg().unwrap();
    drop(used);
    let left: Vec<f32> = y.to_vec().unwrap();
    assert_eq!(left, [-1f32, -2.0, -3.0, -4.0].map(|v| -(-v).exp()));
    let names = ran(&trace);
    assert_eq!(names, ["kernel", "download"]);
    assert_eq!((lazy.counters().executed, lazy.counters().dropped), (1, 2));
}

/// Both readers of a value read one result; a list that ran is not run again.
#[test]
fn a_value_with_two_readers_is_computed_once() {
    let (lazy, trace) = traced();
    let x = ones(&lazy);
    ran(&trace);
    let shared = x.exp().unwrap();
    let (a, b) = (shared.neg().unwrap(), shared.square().unwrap());
    a.to_vec::<f32>().unwrap();
    b.to_vec::<f32>().unwrap();
    assert_eq!(ran(&trace).iter().filter(|op| **op == "exp").count(), 1);
}

/// A destination without another reader is written in place, any other is copied. Both have the
/// elements of an eager device.
#[test]
fn assignments_keep_what_other_tensors_hold() {
    let run = |device: &DeviceRef| -> Result<Vec<Vec<f32>>> {
        let x = Tensor::arange(0i32, 6, 1, device)?.cast(DType::F32)?; // (6)
        let (view, held) = (x.slice(0, 1..4)?, x.clone());
        let value = Tensor::full((2,), -1.0f32, DType::F32, device)?;
        let y = x.clone().slice_assign(0, 2..4, &value)?;
        let doubled = y.mul(2.0)?;
        let z = y.slice_assign(0, 0..2, &value)?;
        [view, held, doubled, z].iter().map(Tensor::to_vec).collect()
    };
    let (reference, (lazy, _)) = (Reference::new(), traced());
    let (eager, recorded): (DeviceRef, DeviceRef) = (reference, lazy);
    assert_eq!(run(&recorded).unwrap(), run(&eager).unwrap());
}

/// The line of this file that an error names.
fn names_line(text: &str, op: &str, line: u32) -> bool {
    text.contains(&format!("{op} at {}:{line}", file!()))
}

#[test]
fn an_error_names_the_recorded_operation_and_who_ran_it() {
    let (lazy, _) = traced();
    let x = ones(&lazy);
    let index = Tensor::new([[0i64, 1], [5, 0]], &lazy).unwrap();
    let line = line!() + 1;
    let y = x.gather(0, &index).unwrap();
    let good = x.neg().unwrap();
    let after = y.exp().unwrap();
    let text = y.to_vec::<f32>().unwrap_err().to_string();
    assert!(names_line(&text, "gather", line), "{text}");
    assert!(text.contains("it was recorded, and run by to_vec at"), "{text}");
    assert!(text.contains("x") && text.contains("(2, 2)"), "{text}");
    // Results computed from it fail with the same error; the others do not.
    let later = after.to_vec::<f32>().unwrap_err().to_string();
    assert!(names_line(&later, "gather", line), "{later}");
    assert_eq!(good.to_vec::<f32>().unwrap(), [-1.0, -2.0, -3.0, -4.0]);
    assert!(y.to_vec::<f32>().is_err(), "and fails again");
    let device: DeviceRef = lazy.clone();
    assert!(device.synchronize().is_err());
    device.synchronize().unwrap();
}

#[test]
fn shapes_fail_when_they_are_recorded() {
    let (lazy, _) = traced();
    let x = ones(&lazy);
    let line = line!() + 1;
    let error = x.matmul(&x.slice(0, 0..1).unwrap()).unwrap_err().to_string();
    assert!(names_line(&error, "matmul", line), "{error}");
}

#[test]
fn immediate_operations_fail_at_their_own_line() {
    let options = LazyOptions::new().with_immediate(true);
    let lazy = Lazy::with_options(Reference::new(), options);
    let x = ones(&lazy);
    let index = Tensor::new([[0i64, 1], [5, 0]], &lazy).unwrap();
    let line = line!() + 1;
    let text = x.gather(0, &index).unwrap_err().to_string();
    assert!(names_line(&text, "gather", line), "{text}");
    assert!(!text.contains("recorded"), "{text}");
    assert_eq!(x.neg().unwrap().to_vec::<f32>().unwrap(), [-1.0, -2.0, -3.0, -4.0]);
}

/// No memory in the middle of a list: the results that do not depend on that operation are there,
/// and what was held is as before.
#[test]
fn results_that_do_not_need_a_failed_operation_are_computed() {
    let faulty = Faulty::new(Reference::new());
    let lazy = Lazy::new(faulty.clone());
    let x = ones(&lazy);
    faulty.fail(Request::Execute, 1, ErrorKind::OutOfMemory, Lasting::Once);
    let (a, b, c) = (x.neg().unwrap(), x.cumsum(0).unwrap(), x.square().unwrap());
    let d = b.neg().unwrap();
    assert_eq!(a.to_vec::<f32>().unwrap(), [-1.0, -2.0, -3.0, -4.0]);
    assert_eq!(c.to_vec::<f32>().unwrap(), [1.0, 4.0, 9.0, 16.0]);
    assert_eq!(b.to_vec::<f32>().unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(d.to_vec::<f32>().unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

/// A chain of a million operations is recorded, run and dropped without recursion.
#[test]
fn a_long_chain_is_dropped_and_run() {
    let options = LazyOptions::new().with_max_nodes(usize::MAX);
    let lazy = Lazy::with_options(Reference::new(), options);
    let x = Tensor::new([1.0f32], &lazy).unwrap();
    let chain = |n: usize| (0..n).fold(x.clone(), |y, _| y.add(1.0).unwrap());
    drop(chain(1_000_000));
    assert_eq!(chain(1000).to_vec::<f32>().unwrap(), [1001.0]);
    assert_eq!(lazy.counters().dropped, 1_000_000);
}

/// Threads record into one list; each reads what it computed.
#[test]
fn threads_share_a_recording_device() {
    let (lazy, _) = traced();
    let x = ones(&lazy);
    std::thread::scope(|scope| {
        for t in 0..4 {
            let x = x.clone();
            scope.spawn(move || {
                for i in 0..50 {
                    let k = f64::from(t * 100 + i);
                    let y = x.mul(k).unwrap().add(&x).unwrap();
                    let want: Vec<f32> = (1..=4).map(|v| v as f32 * k as f32 + v as f32).collect();
                    assert_eq!(y.to_vec::<f32>().unwrap(), want);
                }
            });
        }
    });
}

#[test]
fn an_assignment_after_a_boundary_reads_what_was_recorded_before() {
    let (lazy, _) = traced();
    for limit in [false, true] {
        let options = LazyOptions::new().with_max_nodes(if limit { 2 } else { 100 });
        let lazy = if limit { Lazy::with_options(Reference::new(), options) } else { lazy.clone() };
        let nine = Tensor::full((1,), 9.0, DType::F32, &lazy).unwrap();
        let y = Tensor::arange(0.0f32, 4.0, 1.0, &lazy).unwrap().exp().unwrap();
        lazy.flush();
        let y = y.slice_assign(0, 0..1, &nine).unwrap();
        let want = [9.0, 1f32.exp(), 2f32.exp(), 3f32.exp()];
        assert_eq!(y.to_vec::<f32>().unwrap(), want, "limit {limit}");
    }
}

#[test]
fn assignments_on_two_threads_keep_their_values() {
    let lazy = Lazy::new(Reference::new());
    let work = |start: usize| {
        let nine = Tensor::full((1,), 9.0, DType::F32, &lazy).unwrap();
        for i in start..start + 5_000 {
            let y = Tensor::full((3,), i as f32, DType::F32, &lazy).unwrap().add(1.0).unwrap();
            let y = y.slice_assign(0, 0..1, &nine).unwrap().to_vec::<f32>().unwrap();
            assert_eq!(y, [9.0, i as f32 + 1.0, i as f32 + 1.0]);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(0));
        scope.spawn(|| work(10_000));
    });
}

#[derive(Debug)]
struct PanicsOnSort(Arc<Reference>);

impl Device for PanicsOnSort {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "panics".into(), description: "panics when it sorts".into() }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.0.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.0.download(x)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        assert!(!matches!(op, Op::Sort { .. }), "no sorting today");
        self.0.execute(op)
    }
    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
}

/// A device that panics is an error of the operation that ran there.
#[test]
fn a_device_that_panics_fails_one_operation() {
    let lazy = Lazy::new(Arc::new(PanicsOnSort(Reference::new())) as DeviceRef);
    let x = Tensor::new([2.0f32, 1.0], &lazy).unwrap();
    let before = x.add(1.0).unwrap();
    let sorted = x.sort(0, SortOrder::Ascending).unwrap().0;
    let after = x.mul(2.0).unwrap();
    let error = sorted.to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("sort at") && error.contains("panicked: no sorting today"), "{error}");
    assert_eq!(before.to_vec::<f32>().unwrap(), [3.0, 2.0]);
    assert_eq!(after.to_vec::<f32>().unwrap(), [4.0, 2.0]);
}

/// Plans take as long as their nodes are many: this took minutes when each held result was compared
/// with all others.
#[test]
fn a_plan_of_many_held_results_is_made_at_once() {
    let lazy = Lazy::with_options(Reference::new(), LazyOptions::new().with_max_nodes(1 << 20));
    let x = Tensor::ones((2,), DType::F32, &lazy).unwrap().exp().unwrap();
    let held: Vec<Tensor> = (0..40_000).map(|i| x.add(f64::from(i % 20_000)).unwrap()).collect();
    let last = held.iter().try_fold(x.clone(), |sum, y| sum.maximum(y)).unwrap();
    assert_eq!(last.to_vec::<f32>().unwrap()[0], held[19_999].to_vec::<f32>().unwrap()[0]);
}
