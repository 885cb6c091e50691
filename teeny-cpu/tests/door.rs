//! The door of the device: whoever calls a method of `Device` directly, with whatever, gets an
//! error or a result of the right size, and no access outside memory. In a separate test binary,
//! and so in a separate process.

use std::any::Any;
use std::sync::Arc;
use teeny_core::storage::Storage;
use teeny_core::{
    Attention, AttentionInputs, DType, Device, Distribution, ErrorKind, Kernel, Key, Layout,
    LinalgOp, Norm, ReduceOp, Reference, Result, Scalar, ScanOp, ScatterMode, Shape, StorageRef,
    Tensor, Window,
};
use teeny_cpu::Cpu;

fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).unwrap()
}

/// These sizes, or as much of them as a shape can have: far more elements than there is memory.
fn lying(sizes: &[usize]) -> Shape {
    let most = isize::MAX as usize / 8;
    let limit = |shape: &Shape| most / shape.iter().filter(|&&n| n != 0).product::<usize>();
    sizes.iter().enumerate().fold(shape(&vec![1; sizes.len()]), |shape, (axis, &n)| {
        shape.with_size(axis, n.min(limit(&shape)))
    })
}

fn zeros(sizes: &[usize], dtype: DType, device: &Arc<Cpu>) -> Tensor {
    Tensor::zeros(sizes, dtype, device).unwrap()
}

fn refused<T>(what: &str, result: Result<T>) {
    assert!(result.is_err(), "{what} was accepted");
}

fn add() -> Arc<Kernel> {
    Arc::new(Kernel::build([DType::F32, DType::F32], [], |[a, b], []| [a + b]).unwrap())
}

fn scaled() -> Arc<Kernel> {
    Arc::new(Kernel::build([DType::F32], [DType::F32], |[a], [s]| [a * s]).unwrap())
}

#[test]
fn programs_over_operands_that_they_are_not_for() {
    let cpu = Cpu::new();
    let x = zeros(&[4], DType::F32, &cpu);
    let (long, ints) = (zeros(&[1000], DType::F32, &cpu), zeros(&[4], DType::I64, &cpu));
    let elsewhere = Tensor::zeros(4, DType::F32, &Reference::new()).unwrap();
    let (wide, four, far) = (shape(&[1 << 20]), shape(&[4]), lying(&[1 << 62, 1 << 62]));
    refused("a larger shape", cpu.elementwise(&add(), &[&x, &x], &[], &wide));
    refused("a shape that wraps", cpu.elementwise(&add(), &[&x, &x], &[], &far));
    refused("too few inputs", cpu.elementwise(&add(), &[&x], &[], &four));
    refused("too many inputs", cpu.elementwise(&add(), &[&x, &x, &x], &[], &four));
    refused("inputs of two shapes", cpu.elementwise(&add(), &[&long, &x], &[], &shape(&[1000])));
    refused("an input of another type", cpu.elementwise(&add(), &[&x, &ints], &[], &four));
    refused("an input of another device", cpu.elementwise(&add(), &[&x, &elsewhere], &[], &four));
    refused("no parameter", cpu.elementwise(&scaled(), &[&x], &[], &four));
    refused("two parameters", cpu.elementwise(&scaled(), &[&x], &[Scalar::Float(1.0); 2], &four));
    for axes in [&[][..], &[1], &[0, 0], &[usize::MAX]] {
        refused("axes", cpu.reduce(ReduceOp::Sum, &x, axes));
        refused("axes", cpu.reduce_kernel(&add(), &[&x, &x], &[], &four, ReduceOp::Sum, axes));
    }
    refused(
        "a larger shape",
        cpu.reduce_kernel(&add(), &[&x, &x], &[], &wide, ReduceOp::Sum, &[0]),
    );
    refused(
        "a shape that wraps",
        cpu.reduce_kernel(&add(), &[&x, &x], &[], &far, ReduceOp::Sum, &[0]),
    );
    refused("too few inputs", cpu.reduce_kernel(&add(), &[&x], &[], &four, ReduceOp::Sum, &[0]));
    refused("no inputs", cpu.reduce_kernel(&add(), &[], &[], &four, ReduceOp::Sum, &[0]));
    refused("any of floats", cpu.reduce(ReduceOp::Any, &x, &[0]));
    refused(
        "the largest of nothing",
        cpu.reduce(ReduceOp::Max, &zeros(&[0, 3], DType::F32, &cpu), &[0]),
    );
    refused(
        "two axes of positions",
        cpu.reduce(ReduceOp::ArgMax, &zeros(&[2, 3], DType::F32, &cpu), &[0, 1]),
    );
    let bytes = zeros(&[1], DType::U8, &cpu).expand((1usize << 31) + 8).unwrap();
    refused("positions beyond i32", cpu.reduce(ReduceOp::ArgMax, &bytes, &[0]));
    refused("positions beyond i32", cpu.sort(&bytes, 0, false));
}

#[test]
fn writing_over_operands_that_are_not_the_result() {
    let cpu = Cpu::new();
    let own = |n: usize, dtype: DType| zeros(&[n], dtype, &cpu).into_parts().0;
    let (x, four) = (zeros(&[4], DType::F32, &cpu), shape(&[4]));
    let over = |mut storage: StorageRef, number: usize, other: Option<&Tensor>, shape: &Shape| {
        cpu.elementwise_over(&add(), &mut storage, number, other, &[], shape)
    };
    refused("a shorter storage", over(own(2, DType::F32), 0, Some(&x), &four));
    refused("a longer shape", over(own(4, DType::F32), 0, Some(&x), &shape(&[1 << 20])));
    refused("a storage of another type", over(own(4, DType::F64), 0, Some(&x), &four));
    refused("a missing input", over(own(4, DType::F32), 0, None, &four));
    refused("a third input", over(own(4, DType::F32), 2, Some(&x), &four));
    refused(
        "an input of another shape",
        over(own(4, DType::F32), 1, Some(&zeros(&[3], DType::F32, &cpu)), &four),
    );
    refused(
        "an input of another type",
        over(own(4, DType::F32), 1, Some(&zeros(&[4], DType::I32, &cpu)), &four),
    );
    assert!(over(own(4, DType::F32), 0, Some(&x), &four).unwrap());
}

#[test]
fn assignments_outside_and_twice() {
    let cpu = Cpu::new();
    let own = |n: usize, dtype: DType| zeros(&[n], dtype, &cpu).into_parts().0;
    let src = zeros(&[2, 3], DType::F32, &cpu);
    let view = |strides: &[isize], offset| {
        Layout::strided(shape(&[2, 3]), strides, offset, 1 << 20).unwrap()
    };
    refused("beyond the end", cpu.copy_into(own(6, DType::F32), &view(&[3, 1], 1), &src));
    refused("far beyond the end", cpu.copy_into(own(6, DType::F32), &view(&[1000, 1], 0), &src));
    refused("places named twice", cpu.copy_into(own(6, DType::F32), &view(&[0, 1], 0), &src));
    refused("places that overlap", cpu.copy_into(own(6, DType::F32), &view(&[1, 1], 0), &src));
    refused("a smaller type", cpu.copy_into(own(6, DType::U8), &view(&[3, 1], 0), &src));
    refused(
        "another shape",
        cpu.copy_into(own(6, DType::F32), &Layout::contiguous(shape(&[3, 2])), &src),
    );
    let elsewhere = Tensor::zeros(6, DType::F32, &Reference::new()).unwrap().into_parts().0;
    refused("another device's storage", cpu.copy_into(elsewhere, &view(&[3, 1], 0), &src));
    assert!(cpu.copy_into(own(6, DType::F32), &view(&[3, 1], 0), &src).is_ok());
}

#[test]
fn products_indices_and_rows_that_do_not_fit() {
    let cpu = Cpu::new();
    let z = |sizes: &[usize], dtype| zeros(sizes, dtype, &cpu);
    let f = |sizes: &[usize]| z(sizes, DType::F32);
    for (a, b) in [
        (&[2, 3][..], &[4, 5][..]),
        (&[3], &[3, 2]),
        (&[], &[]),
        (&[2, 2, 3], &[3, 3, 2]),
        (&[2, 3], &[2, 3, 4]),
    ] {
        refused("a product", cpu.matmul(&f(a), &f(b)));
    }
    refused("a product of two types", cpu.matmul(&f(&[2, 3]), &z(&[3, 2], DType::F64)));
    refused("a product of bools", cpu.matmul(&z(&[2, 2], DType::Bool), &z(&[2, 2], DType::Bool)));
    let (x, index) = (f(&[3, 4]), z(&[3, 4], DType::I64));
    refused("no such axis", cpu.gather(&x, 2, &index));
    refused("an index of floats", cpu.gather(&x, 0, &x));
    refused("an index of fewer axes", cpu.gather(&x, 0, &z(&[4], DType::I64)));
    refused("a longer index", cpu.gather(&x, 0, &z(&[3, 400], DType::I64)));
    refused(
        "a position outside",
        cpu.gather(&x, 0, &Tensor::full((3, 4), 3, DType::I64, &cpu).unwrap()),
    );
    for (axis, index, src) in [
        (2, &index, &x),
        (0, &z(&[3, 400], DType::I64), &f(&[3, 400])),
        (0, &index, &f(&[3, 5])),
        (0, &index, &z(&[3, 4], DType::F64)),
    ] {
        refused("a scatter", cpu.scatter(ScatterMode::Add, &x, axis, index, src));
    }
    refused(
        "a sum of bools",
        cpu.scatter(
            ScatterMode::Add,
            &z(&[3, 4], DType::Bool),
            0,
            &index,
            &z(&[3, 4], DType::Bool),
        ),
    );
    refused("no such axis", cpu.sort(&x, 2, true));
    refused("no such axis", cpu.scan(ScanOp::Sum, &x, 2));
    refused("bools", cpu.scan(ScanOp::Sum, &z(&[3], DType::Bool), 0));
    refused("no such axis", cpu.softmax(&x, 2));
    refused("a scalar", cpu.log_softmax(&f(&[]), 0));
    refused("integers", cpu.softmax(&index, 0));
    for g in [&f(&[3, 3]), &f(&[4]), &z(&[3, 4], DType::F64)] {
        refused("a gradient", cpu.softmax_grad(&x, g, 1));
        refused("a gradient", cpu.log_softmax_grad(&x, g, 1));
        refused("a gradient", cpu.norm_grad(Norm::Layer, &x, None, g, 1e-5));
    }
    let targets = z(&[3], DType::I64);
    for (x, targets) in
        [(&x, &z(&[2], DType::I64)), (&x, &f(&[3])), (&f(&[3]), &targets), (&index, &targets)]
    {
        refused("classes", cpu.cross_entropy(x, targets, None));
        refused("classes", cpu.cross_entropy_grad(x, targets, None, &f(&[3])));
    }
    refused("a gradient", cpu.cross_entropy_grad(&x, &targets, None, &f(&[2])));
    refused("a gradient", cpu.cross_entropy_grad(&x, &targets, None, &z(&[3], DType::F64)));
    for line in [&f(&[3]), &f(&[1, 4]), &z(&[4], DType::F64), &f(&[])] {
        refused("a weight", cpu.norm(Norm::Layer, &x, Some(line), None, 1e-5));
        refused("a weight", cpu.norm_grad(Norm::Rms, &x, Some(line), &x, 1e-5));
        refused("a bias", cpu.norm(Norm::Layer, &x, Some(&f(&[4])), Some(line), 1e-5));
    }
    refused("a bias alone", cpu.norm(Norm::Layer, &x, None, Some(&f(&[4])), 1e-5));
    refused("a scalar", cpu.norm(Norm::Layer, &f(&[]), None, None, 1e-5));
    refused("parts of another shape", cpu.cat(&[&x, &f(&[3, 5])], 0, &shape(&[6, 4])));
    refused("parts of two types", cpu.cat(&[&x, &z(&[3, 4], DType::U8)], 0, &shape(&[6, 4])));
    refused("a longer whole", cpu.cat(&[&x, &x], 0, &shape(&[7, 4])));
    refused("no parts", cpu.cat(&[], 0, &shape(&[0])));
    let far = lying(&[1 << 62, 8]);
    refused(
        "more draws than memory",
        cpu.random(
            Distribution::Uniform { low: 0.0, high: 1.0 },
            &far,
            DType::F32,
            Key { seed: 0, draw: 0 },
        ),
    );
    refused(
        "normal integers",
        cpu.random(
            Distribution::Normal { mean: 0.0, std: 1.0 },
            &shape(&[3]),
            DType::I32,
            Key { seed: 0, draw: 0 },
        ),
    );
    refused("half an element", cpu.upload(&[0; 7], DType::F32));
    refused("a bool of 2", cpu.upload(&[1, 2], DType::Bool));
    refused("one matrix", cpu.linalg(LinalgOp::Solve, &[&f(&[2, 2])]));
    refused("a vector", cpu.linalg(LinalgOp::Det, &[&f(&[2])]));
    refused("no square", cpu.linalg(LinalgOp::Cholesky, &[&f(&[2, 3])]));
}

#[test]
fn windows_that_do_not_fit() {
    let cpu = Cpu::new();
    let f = |sizes: &[usize]| zeros(sizes, DType::F32, &cpu);
    let (x, w, g) = (f(&[1, 2, 5, 5]), f(&[3, 2, 3, 3]), f(&[1, 3, 3, 3]));
    let plain = Window::new(2);
    let mut windows = vec![Window::new(1), Window::new(3)];
    for big in [0, usize::MAX, usize::MAX / 2, 1 << 63, (1 << 62) + 1] {
        windows.extend([
            Window { stride: vec![big; 2], ..plain.clone() },
            Window { dilation: vec![big; 2], ..plain.clone() },
        ]);
        windows.push(Window { groups: big, ..plain.clone() });
        if big > 0 {
            windows.push(Window { padding: vec![big; 2], ..plain.clone() });
        }
    }
    for window in &windows {
        let what = format!("{window:?}");
        // One huge stride is a window at the beginning: what it does is defined, and the result is
        // smaller than `g`.
        let legal = window.stride.len() == 2 && window.stride[0] > 1 && window.groups == 1;
        if legal {
            assert_eq!(cpu.conv(&x, &w, window).unwrap().len(), 3, "{what}");
            assert_eq!(cpu.max_pool(&x, &[3, 3], window).unwrap().0.len(), 2, "{what}");
            assert_eq!(cpu.avg_pool(&x, &[3, 3], window).unwrap().len(), 2, "{what}");
        } else {
            refused(&what, cpu.conv(&x, &w, window));
            if window.groups == 1 {
                refused(&what, cpu.max_pool(&x, &[3, 3], window));
                refused(&what, cpu.avg_pool(&x, &[3, 3], window));
            }
        }
        refused(&what, cpu.conv_input_grad(&g, &w, window, x.shape()));
        refused(&what, cpu.conv_weight_grad(&g, &x, window, w.shape()));
    }
    refused("no window", cpu.max_pool(&x, &[0, 3], &plain));
    refused("no sizes", cpu.max_pool(&x, &[], &Window::new(0)));
    refused("a larger window", cpu.max_pool(&x, &[6, 3], &plain));
    refused("more axes than x has", cpu.avg_pool(&x, &[1; 5], &Window::new(5)));
    refused("bools", cpu.max_pool(&zeros(&[4], DType::Bool, &cpu), &[2], &Window::new(1)));
    refused("integers", cpu.avg_pool(&zeros(&[4], DType::I32, &cpu), &[2], &Window::new(1)));
    refused("channels", cpu.conv(&x, &f(&[3, 3, 3, 3]), &plain));
    refused(
        "a weight of another type",
        cpu.conv(&x, &zeros(&[3, 2, 3, 3], DType::F64, &cpu), &plain),
    );
    refused("fewer axes", cpu.conv(&f(&[1, 2, 5]), &w, &plain));
    for x_shape in
        [shape(&[1, 2, 6, 6]), shape(&[2, 2, 5, 5]), shape(&[1, 2, 5]), lying(&[1 << 62, 2, 5, 5])]
    {
        refused("an input of another shape", cpu.conv_input_grad(&g, &w, &plain, &x_shape));
    }
    for w_shape in
        [shape(&[3, 2, 4, 4]), shape(&[4, 2, 3, 3]), shape(&[3, 2, 3]), lying(&[3, 1 << 62, 3, 3])]
    {
        refused("a weight of another shape", cpu.conv_weight_grad(&g, &x, &plain, &w_shape));
    }
    let at = |value: i32| Tensor::full((2, 3), value, DType::I32, &cpu).unwrap();
    let g = f(&[2, 3]);
    for (positions, x_shape, spatial) in [
        (at(5), shape(&[2, 5]), 1),
        (at(-2), shape(&[2, 5]), 1),
        (at(i32::MAX), shape(&[2, 5]), 1),
        (at(0), shape(&[3, 5]), 1),
        (at(0), shape(&[2, 5]), 0),
        (at(0), shape(&[2, 5]), 3),
        (at(0), lying(&[2, 1 << 63]), 1),
        (zeros(&[2, 3], DType::I64, &cpu), shape(&[2, 5]), 1),
        (zeros(&[2, 2], DType::I32, &cpu), shape(&[2, 5]), 1),
    ] {
        refused("positions", cpu.max_pool_grad(&g, &positions, &x_shape, spatial));
    }
}

#[test]
fn attention_over_operands_that_do_not_fit() {
    let cpu = Cpu::new();
    let f = |sizes: &[usize]| zeros(sizes, DType::F32, &cpu);
    let (q, k, v) = (f(&[2, 9, 8]), f(&[2, 7, 8]), f(&[2, 7, 6]));
    let (y, lse) = (f(&[2, 9, 6]), f(&[2, 9]));
    let full = Attention::full();
    let wrong: Vec<[Tensor; 3]> = vec![
        [f(&[2, 9, 4]), k.clone(), v.clone()],
        [q.clone(), f(&[2, 70, 8]), v.clone()],
        [q.clone(), k.clone(), f(&[1, 7, 6])],
        [f(&[9, 8]), k.clone(), v.clone()],
        [q.clone(), k.clone(), zeros(&[2, 7, 6], DType::F64, &cpu)],
        [f(&[]), f(&[]), f(&[])],
    ];
    for [q, k, v] in &wrong {
        let inputs = AttentionInputs { q, k, v, mask: None, options: full };
        refused("attention", cpu.attention(&inputs));
        refused("attention", cpu.attention_grad(&inputs, &y, &lse, &y, [true; 3]));
    }
    for mask in [
        f(&[2, 9, 6]),
        f(&[9, 7]),
        zeros(&[2, 9, 7], DType::I32, &cpu),
        zeros(&[2, 9, 7], DType::F64, &cpu),
        zeros(&[2, 7, 9], DType::Bool, &cpu),
    ] {
        refused(
            "a mask",
            cpu.attention(&AttentionInputs {
                q: &q,
                k: &k,
                v: &v,
                mask: Some(&mask),
                options: full,
            }),
        );
    }
    let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: None, options: full };
    refused(
        "a window of 0",
        cpu.attention(&AttentionInputs { options: Attention::causal(0).window(0), ..inputs }),
    );
    for (y, lse, g) in [
        (&q, &lse, &y),
        (&y, &f(&[2, 8]), &y),
        (&y, &zeros(&[2, 9], DType::F64, &cpu), &y),
        (&y, &lse, &q),
        (&y, &lse, &f(&[2, 9])),
    ] {
        refused("a gradient of attention", cpu.attention_grad(&inputs, y, lse, g, [true; 3]));
    }
    assert!(cpu.attention(&inputs).is_ok());
}

/// Storage that is not of this device, and says of itself what it likes.
struct Foreign(usize, DType);

impl Storage for Foreign {
    fn len(&self) -> usize {
        self.0
    }
    fn dtype(&self) -> DType {
        self.1
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[test]
fn storages_of_something_else() {
    let cpu = Cpu::new();
    let foreign = |n: usize, dtype: DType| -> StorageRef { Arc::new(Foreign(n, dtype)) };
    let tensor = |sizes: &[usize], dtype: DType| {
        Tensor::from_parts(
            foreign(1 << 40, dtype),
            Layout::contiguous(shape(sizes)),
            dtype,
            cpu.clone(),
        )
        .unwrap()
    };
    let (x, index) = (tensor(&[64, 64], DType::F32), tensor(&[64, 64], DType::I32));
    let internal = |what: &str, error: Option<teeny_core::Error>| {
        assert_eq!(
            error.unwrap_or_else(|| panic!("{what} was accepted")).kind(),
            ErrorKind::Internal,
            "{what}"
        );
    };
    internal("download", cpu.download(&x).err());
    internal("contiguous", cpu.contiguous(&x).err());
    internal("elementwise", cpu.elementwise(&add(), &[&x, &x], &[], x.shape()).err());
    internal("reduce", cpu.reduce(ReduceOp::Sum, &x, &[0]).err());
    internal("scan", cpu.scan(ScanOp::Sum, &x, 0).err());
    internal("matmul", cpu.matmul(&x, &x).err());
    internal("gather", cpu.gather(&x, 0, &index).err());
    internal("scatter", cpu.scatter(ScatterMode::Set, &x, 0, &index, &x).err());
    internal("sort", cpu.sort(&x, 0, false).err());
    internal("softmax", cpu.softmax(&x, 0).err());
    internal("norm", cpu.norm(Norm::Layer, &x, None, None, 1e-5).err());
    internal("max_pool", cpu.max_pool(&x, &[2], &Window::new(1)).err());
    let own = zeros(&[64, 64], DType::F32, &cpu);
    internal(
        "copy_into",
        cpu.copy_into(own.into_parts().0, &Layout::contiguous(shape(&[64, 64])), &x).err(),
    );
}

/// Numbers for the generated cases: a linear congruence, its upper bits.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
    fn sizes(&mut self) -> Vec<usize> {
        let ndim = self.pick(&[0, 1, 1, 2, 2, 2, 3, 4]);
        (0..ndim).map(|_| self.pick(&[0, 1, 2, 2, 3, 3, 3, 4, 7])).collect()
    }
    fn shape(&mut self) -> Shape {
        match self.below(12) {
            0 => lying(&[1 << 62, 4, 3]),
            1 => lying(&[usize::MAX, 2]),
            _ => shape(&self.sizes()),
        }
    }
    fn huge(&mut self) -> usize {
        self.pick(&[0, 1, 1, 1, 1, 1, 2, 2, 3, 5, 1 << 62, usize::MAX])
    }
    fn window(&mut self) -> Window {
        let ndim = self.pick(&[0, 1, 1, 2, 2, 2, 3]);
        let mut each = |least: usize| {
            (0..ndim).map(|_| if self.below(4) == 0 { self.huge() } else { least }).collect()
        };
        let (stride, padding, dilation) = (each(1), each(0), each(1));
        Window {
            stride,
            padding,
            dilation,
            groups: if self.below(8) == 0 { self.huge() } else { 1 },
        }
    }
}

/// One operand on both devices: a view of some arrangement.
fn operand(
    dice: &mut Dice,
    dtype: Option<DType>,
    devices: (&Arc<Cpu>, &Arc<Reference>),
) -> [Tensor; 2] {
    let dtype =
        dtype.unwrap_or(if dice.below(3) > 0 { DType::F32 } else { dice.pick(&DType::ALL) });
    let (sizes, seed, way) = (dice.sizes(), dice.below(50), dice.below(4));
    let numel = sizes.iter().product::<usize>();
    let values: Vec<i64> =
        (0..numel as i64).map(|i| (i + seed as i64) % 3 - i64::from(seed % 7 == 0)).collect();
    let make = |device: teeny_core::DeviceRef| {
        let x = Tensor::from_vec(values.clone(), &sizes[..], &device).unwrap().cast(dtype).unwrap();
        match way {
            0 if x.ndim() > 1 => x.transpose(0, -1).unwrap(),
            1 if x.ndim() > 0 => x.flip(0).unwrap(),
            2 if x.ndim() > 0 => x.slice_step(0, .., 2).unwrap(),
            _ => x,
        }
    };
    [make(devices.0.clone()), make(devices.1.clone())]
}

/// The results of a method: its storages, or none, as lengths and types.
type Outcome = Result<Vec<(usize, DType)>>;

fn forms(storages: impl IntoIterator<Item = StorageRef>) -> Vec<(usize, DType)> {
    storages.into_iter().map(|s| (s.len(), s.dtype())).collect()
}

#[test]
fn generated_calls_of_every_method_are_refused_or_carried_out_as_by_the_oracle() {
    let (cpu, oracle) = (Cpu::new(), Reference::new());
    let mut dice = Dice(17);
    let kernels = [
        add(),
        scaled(),
        Arc::new(Kernel::build([DType::F32; 3], [], |[a, b, c], []| [a * b + c, a - c]).unwrap()),
    ];
    let (mut done, mut refused) = (0, 0);
    for case in 0..6000 {
        let int = dice.pick(&[None, Some(DType::I64), Some(DType::I32), Some(DType::U8)]);
        let same = dice.below(2) == 0;
        let a = operand(&mut dice, None, (&cpu, &oracle));
        let other = |dice: &mut Dice, dtype| {
            if same { a.clone() } else { operand(dice, dtype, (&cpu, &oracle)) }
        };
        let (b, c) = (other(&mut dice, None), other(&mut dice, None));
        let index = operand(&mut dice, int, (&cpu, &oracle));
        let (method, axis, window) = (dice.below(26), dice.below(4), dice.window());
        let shape = if dice.below(2) == 0 { *a[0].shape() } else { dice.shape() };
        let axes: Vec<usize> = (0..dice.below(3))
            .map(|i| if dice.below(4) == 0 { dice.below(5) } else { i })
            .collect();
        let size: Vec<usize> =
            (0..dice.below(4)).map(|_| if dice.below(9) == 0 { dice.huge() } else { 2 }).collect();
        let reduction = dice.pick(&ReduceOp::ALL);
        let mode = dice.pick(&[ScatterMode::Set, ScatterMode::Add, ScatterMode::Max]);
        let kernel = &kernels[dice.below(3)];
        let params = vec![Scalar::Float(2.0); dice.below(3)];
        let count = dice.below(4);
        let causal = dice.below(2) == 0;
        let spatial = dice.below(4);
        let run = |i: usize| -> Outcome {
            let device: &dyn Device = if i == 0 { &*cpu } else { &*oracle };
            let (a, b, c, index) = (&a[i], &b[i], &c[i], &index[i]);
            let inputs = &[a, b, c][..count];
            let one = |result: Result<StorageRef>| result.map(|s| forms([s]));
            let two = |result: Result<(StorageRef, StorageRef)>| result.map(|(a, b)| forms([a, b]));
            let attention = AttentionInputs {
                q: a,
                k: b,
                v: c,
                mask: None,
                options: if causal { Attention::causal(1) } else { Attention::full() },
            };
            match method {
                0 => device.elementwise(kernel, inputs, &params, &shape).map(forms),
                1 => one(device.reduce(reduction, a, &axes)),
                2 => one(device.reduce_kernel(kernel, inputs, &params, &shape, reduction, &axes)),
                3 => one(device.scan(ScanOp::Sum, a, axis)),
                4 => one(device.matmul(a, b)),
                5 => one(device.gather(a, axis, index)),
                6 => one(device.scatter(mode, a, axis, index, b)),
                7 => one(device.copy_into(a.storage().clone(), b.layout(), c)),
                8 => two(device.sort(a, axis, true)),
                9 => one(device.random(
                    Distribution::Uniform { low: 0.0, high: 1.0 },
                    &shape,
                    a.dtype(),
                    Key { seed: 1, draw: 1 },
                )),
                10 => one(device.cat(inputs, axis, &shape)),
                11 => one(device.softmax(a, axis)),
                12 => one(device.log_softmax_grad(a, b, axis)),
                13 => one(device.cross_entropy(a, index, Some(-1))),
                14 => one(device.cross_entropy_grad(a, index, Some(-1), b)),
                15 => one(device.norm(Norm::Layer, a, Some(b), Some(c), 1e-5)),
                16 => one(device.norm_grad(Norm::Rms, a, None, b, 1e-5)),
                17 => one(device.conv(a, b, &window)),
                18 => one(device.conv_input_grad(a, b, &window, &shape)),
                19 => one(device.conv_weight_grad(a, b, &window, &shape)),
                20 => two(device.max_pool(a, &size, &window)),
                21 => one(device.max_pool_grad(a, index, &shape, spatial)),
                22 => one(device.avg_pool(a, &size, &window)),
                23 => two(device.attention(&attention)),
                24 => device
                    .attention_grad(&attention, a, b, c, [true; 3])
                    .map(|grads| forms(grads.into_iter().flatten())),
                _ => one(device.contiguous(a)),
            }
        };
        let (got, want) = (run(0), run(1));
        let what = || {
            format!(
                "case {case}, method {method}: {a:?} {b:?} {c:?} {index:?} {shape} {window:?} {size:?} {axes:?}"
            )
        };
        match (got, want) {
            (Ok(got), Ok(want)) => {
                assert_eq!(got, want, "{}", what());
                done += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            (got, want) => panic!("{got:?} and {want:?} in {}", what()),
        }
    }
    assert!(done > 600 && refused > 2000, "{done} carried out, {refused} refused");
}
