//! Reads and waits that are awaited, through the devices of this crate.

use crate::awaited::{Awaited, run};
use teeny_autograd::{Autograd, Forward, Grad};
use teeny_core::{DeviceRef, Tensor};

#[test]
fn autograd_and_forward_pass_on_reads_and_waits_that_are_awaited() {
    let inner = Awaited::new();
    let devices: [DeviceRef; 3] = [
        Autograd::new(&inner),
        Forward::new(&inner),
        Autograd::new(Autograd::new(Forward::new(&inner))),
    ];
    for device in devices {
        let x = Tensor::new([1.0f32, 2.0], &device).unwrap(); // (2)
        let before = inner.counts();
        assert_eq!(run(x.mul(2.0).unwrap().to_vec_async::<f32>()).unwrap(), [2.0, 4.0]);
        run(device.synchronize_async()).unwrap();
        run(device.ready_async()).unwrap();
        let after = inner.counts();
        let made: Vec<usize> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        assert_eq!(made, [0, 0, 1, 1, 1], "{}", device.info().name);
    }
}

#[test]
fn losses_and_gradients_are_read_while_the_next_step_is_recorded() {
    let device = Autograd::new(Awaited::new());
    let mut w = Tensor::new([3.0f64, -2.0], &device).unwrap(); // (2)
    let mut reads = Vec::new();
    let mut waited = Vec::new();
    for _ in 0..3 {
        let p = w.requires_grad().unwrap(); // (2)
        let loss = p.mul(&p).unwrap().sum_all().unwrap(); // ()
        let g = loss.backward().unwrap().take(&p).unwrap(); // (2)
        reads.push((loss.item_async::<f64>(), g.to_vec_async::<f64>()));
        waited.push((loss.item::<f64>().unwrap(), g.to_vec::<f64>().unwrap()));
        w = w.sub(g.mul(0.1).unwrap()).unwrap(); // (2)
    }
    for ((loss, g), expected) in reads.into_iter().zip(waited) {
        assert_eq!((run(loss).unwrap(), run(g).unwrap()), expected);
    }
}
