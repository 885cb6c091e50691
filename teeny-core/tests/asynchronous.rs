//! Reads and waits that are awaited: they return the same as blocking ones, through every wrapper,
//! and begin when they are called.

use crate::awaited::{Awaited, run};
use std::sync::Arc;
use teeny_core::wrappers::{Checked, Compare, Faulty, Lasting, Request, Trace};
use teeny_core::{DType, Device, DeviceRef, ErrorKind, Lazy, Reference, Tensor};

/// Every wrapper of this crate around `device`.
fn wrapped(device: &Arc<Awaited>) -> Vec<DeviceRef> {
    vec![
        Trace::new(device),
        Trace::asynchronous(device),
        Checked::new(device),
        Compare::new(device, Reference::new()),
        Faulty::new(device),
        Lazy::new(device),
        Lazy::new(Trace::new(Lazy::new(device))),
    ]
}

#[test]
fn a_read_that_is_awaited_gives_what_one_that_waits_gives() {
    for device in wrapped(&Awaited::new()) {
        let name = device.info().name;
        let x = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &device).unwrap(); // (2, 3)
        let y = x.t().unwrap().mul(2.0).unwrap().slice(0, 1..).unwrap(); // (2, 2)
        assert_eq!(run(y.to_vec_async::<f32>()).unwrap(), y.to_vec::<f32>().unwrap(), "{name}");
        assert_eq!(run(y.to_bytes_async()).unwrap(), y.to_bytes().unwrap(), "{name}");
        assert_eq!(run(y.to_scalars_async()).unwrap(), y.to_scalars().unwrap(), "{name}");
        let sum = y.sum_all().unwrap(); // ()
        assert_eq!(run(sum.item_async::<f32>()).unwrap(), 32.0, "{name}");
        let moved = run(y.to_async(&Reference::new())).unwrap();
        assert_eq!(moved.device().info().name, "reference");
        assert_eq!(moved.to_vec::<f32>().unwrap(), [4.0, 10.0, 6.0, 12.0], "{name}");
        let same = run(y.to_async(&device)).unwrap();
        assert!(Arc::ptr_eq(same.storage(), y.storage()), "{name}: nothing is copied");
    }
}

#[test]
fn every_wrapper_passes_on_reads_and_waits_that_are_awaited() {
    let inner = Awaited::new();
    for device in wrapped(&inner) {
        let name = device.info().name;
        let x = Tensor::new([1.0f32, 2.0], &device).unwrap().exp().unwrap(); // (2)
        device.synchronize().unwrap(); // a list that is recorded has run
        let before = inner.counts();
        run(x.to_vec_async::<f32>()).unwrap();
        run(device.synchronize_async()).unwrap();
        run(device.ready_async()).unwrap();
        let after = inner.counts();
        let made: Vec<usize> =
            after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(made[0], 0, "{name}: no read waits");
        assert_eq!(made[2..], [1, 1, 1], "{name}");
    }
}

#[test]
fn a_read_has_the_elements_of_its_call() {
    for device in wrapped(&Awaited::new()) {
        let mut x = Tensor::new([1.0f32, 2.0, 3.0], &device).unwrap(); // (3)
        let before = x.to_vec_async::<f32>();
        x = x.slice_assign(0, 1..2, &Tensor::new([9.0f32], &device).unwrap()).unwrap(); // (3)
        let after = x.to_vec_async::<f32>();
        drop(x);
        assert_eq!(run(after).unwrap(), [1.0, 9.0, 3.0]);
        assert_eq!(run(before).unwrap(), [1.0, 2.0, 3.0], "awaited last, begun first");
    }
}

#[test]
fn errors_of_reads_that_are_awaited_name_the_call() {
    let device = Awaited::new();
    let x = Tensor::new([1.0f32, 2.0], &device).unwrap(); // (2)
    let error = run(x.to_vec_async::<i32>()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType);
    assert!(error.to_string().starts_with("to_vec_async at teeny-core/tests/"), "{error}");
    assert!(error.to_string().contains("x: (2,) f32 on awaited"), "{error}");
    let error = run(x.item_async::<f32>()).unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Shape, Some("item_async")));
    device.fail();
    let reading = x.to_vec_async::<f32>();
    let line = line!() - 1;
    let error = run(reading).unwrap_err(); // late: when the device answers
    assert_eq!((error.kind(), error.op()), (ErrorKind::Device, Some("to_vec_async")));
    assert_eq!(error.location().unwrap().line(), line, "{error}");
    device.fail();
    assert_eq!(run(x.to_async(&Reference::new())).unwrap_err().op(), Some("to_async"));
}

#[test]
fn faults_are_injected_into_reads_and_waits_that_are_awaited() {
    let faulty = Faulty::new(Awaited::new());
    let x = Tensor::new([1.0f32], &faulty).unwrap(); // (1)
    faulty.fail(Request::Download, 0, ErrorKind::Device, Lasting::Once);
    assert!(run(x.to_vec_async::<f32>()).is_err());
    assert!(run(x.to_vec_async::<f32>()).is_ok());
    faulty.fail(Request::Synchronize, 0, ErrorKind::Device, Lasting::Once);
    assert!(run(faulty.synchronize_async()).is_err());
    assert!(run(faulty.synchronize_async()).is_ok());
}

#[test]
fn a_late_error_of_a_recorded_list_is_returned_by_the_wait_that_is_awaited() {
    let faulty = Faulty::new(Reference::new());
    let lazy = Lazy::new(faulty.clone());
    let x = Tensor::zeros((2,), DType::F32, &lazy).unwrap(); // (2)
    faulty.fail(Request::Execute, 0, ErrorKind::Device, Lasting::Forever);
    let y = x.exp().unwrap(); // (2), recorded
    assert!(run(lazy.synchronize_async()).is_err());
    assert!(run(y.to_vec_async::<f32>()).is_err());
}
