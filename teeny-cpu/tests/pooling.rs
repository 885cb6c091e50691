//! Pooling against the reference device at random: few and many planes, small ones whose lanes are
//! planes, larger ones in bands, and NaN and infinities among the elements.

use crate::common::*;
use teeny_core::{DType, DeviceRef, Reference, Result, Shape, Tensor, Window};
use teeny_cpu::Cpu;

impl Draw {
    /// A number from `from` to `to`.
    fn from(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }

    /// Few different numbers, so that many are equal; in some tensors also NaN and infinities.
    fn tensor_of_few(&mut self, shape: &[usize], dtype: DType) -> Tensor {
        let special = self.below(3) == 0;
        let element = |random: &mut Draw| match random.below(if special { 24 } else { 20 }) {
            20 => f32::NAN,
            21 => f32::NEG_INFINITY,
            22 => f32::INFINITY,
            23 => -0.0,
            n => n as f32 / 4.0 - 2.5,
        };
        let n = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|_| element(self)).collect();
        let shape = Shape::new(shape).unwrap();
        Tensor::from_slice(&values, shape, Reference::new()).unwrap().cast(dtype).unwrap()
    }
}

struct Case {
    x: Vec<usize>,
    kernel: Vec<usize>,
    window: Window,
}

/// One to three axes of windows that may overlap, be apart and reach beyond the input.
fn draw(random: &mut Draw) -> Case {
    let spatial = [1, 2, 2, 2, 3][random.below(5)];
    let planes = [1, 3, 7, 16, 17, 33, 50][random.below(7)];
    let most = [40, 14, 5][spatial - 1];
    let (mut x, mut kernel) = (vec![planes], Vec::new());
    let [mut stride, mut padding, mut dilation] = [vec![], vec![], vec![]];
    for axis in 0..spatial {
        let size = match (axis, random.below(10)) {
            (0, 0) => random.from(most, 6 * most),
            _ => random.from(1, most),
        };
        let k = random.from(1, size.min(7));
        let apart = if k > 1 { ((size - 1) / (k - 1)).clamp(1, 2) } else { 2 };
        dilation.push(random.from(1, apart));
        stride.push(random.from(1, k + 1));
        padding.push(random.below(k / 2 + 1));
        x.push(size);
        kernel.push(k);
    }
    let window = Window::new(spatial).stride(stride).padding(padding).dilation(dilation);
    Case { x, kernel, window }
}

/// Values and positions of the maxima and the means, as f64.
fn pooled(x: &Tensor, case: &Case) -> Result<[Vec<f64>; 3]> {
    let numbers = |t: Tensor| t.cast(DType::F64)?.to_vec::<f64>();
    let (y, at) = x.max_pool_indices(&case.kernel, &case.window)?;
    Ok([numbers(y)?, numbers(at)?, numbers(x.avg_pool(&case.kernel, &case.window)?)?])
}

fn is_near(a: f64, b: f64, tolerance: f64) -> bool {
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance
}

#[test]
fn maxima_positions_and_means_are_those_of_the_definition() -> Result<()> {
    let mut random = Draw(11);
    let devices = devices();
    for number in 0..400 {
        let case = draw(&mut random);
        let dtype = [DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16][number % 5];
        let x = random.tensor_of_few(&case.x, dtype);
        let [values, positions, means] = pooled(&x, &case)?;
        // Means of bf16 are rounded to eight bits.
        let tolerance = [1e-5, 2e-2][usize::from(dtype.is_half())];
        for device in &devices {
            let what = format!("{dtype} {:?} {:?} {:?}", case.x, case.kernel, case.window);
            let on = x.to(device)?;
            let layouts = layouts(&on);
            let (layout, x) = &layouts[number % layouts.len()];
            let got = pooled(x, &case)?;
            for (got, want, tolerance) in
                [(&got[0], &values, 0.0), (&got[1], &positions, 0.0), (&got[2], &means, tolerance)]
            {
                assert_eq!(got.len(), want.len());
                for (i, (&a, &b)) in got.iter().zip(want).enumerate() {
                    let near = is_near(a, b, tolerance);
                    assert!(near, "{what} {layout} on {device:?}: element {i} is {a}, not {b}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn results_have_the_same_bits_on_any_number_of_threads() -> Result<()> {
    let (device, mut random): (DeviceRef, _) = (Cpu::new(), Draw(13));
    let large = Case {
        x: vec![40, 150, 90],
        kernel: vec![5, 3],
        window: Window::new(2).stride([2, 1]).padding([2, 1]),
    };
    for case in (0..30).map(|_| draw(&mut random)).chain([large]).collect::<Vec<_>>() {
        let x = random.tensor_of_few(&case.x, DType::F32).to(&device)?;
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| pooled(&x, &case))
        };
        let (one, four) = (on(1)?, on(4)?);
        for (one, four) in one.iter().zip(&four) {
            let same = one.iter().zip(four).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{:?} {:?} {:?}", case.x, case.kernel, case.window);
        }
    }
    Ok(())
}
