//! Products with quantised weights and their rows, against the oracle's matrix.

use crate::common;
use teeny_core::quant::{GROUP, Part, packed_parts};
use teeny_core::{DType, DeviceRef, ErrorKind, QuantTensor, QuantType, Reference, Result, Tensor};
use teeny_wgpu::{Options, Wgpu};

/// Numbers from 0 on, below the limit of each call: splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % n as u64) as usize
    }

    /// Bytes of scales that are finite, and x: (m, columns).
    fn operands(&mut self, parts: &[Part], m: usize, columns: usize) -> (Vec<u8>, Vec<f32>) {
        let [_, bytes] = packed_parts(parts, columns).unwrap();
        let blocks = (0..bytes).map(|_| self.below(0x3c) as u8).collect();
        let x = (0..m * columns).map(|_| self.below(2001) as f32 / 1000.0 - 1.0).collect();
        (blocks, x)
    }
}

/// The weight with `blocks`, which begin `offset` bytes after the first of their storage.
fn weight(
    blocks: &[u8],
    parts: &[Part],
    columns: usize,
    offset: usize,
    device: &DeviceRef,
) -> Result<QuantTensor> {
    let bytes = [&vec![255; offset][..], blocks].concat();
    let all = Tensor::from_bytes(&bytes, bytes.len(), DType::U8, device)?;
    QuantTensor::from_packed(&all.slice(0, offset as isize..)?, parts, columns)
}

/// Compares the product and all rows of a weight with its matrix on the oracle; reads `most` rows
/// at a time.
fn compare(
    gpu: &DeviceRef,
    dice: &mut Dice,
    parts: &[Part],
    [m, columns]: [usize; 2],
    most: usize,
) {
    let oracle = Reference::new() as DeviceRef;
    let (offset, before) = ([0, 4, 16, 3][dice.below(4)], [0, 4, 5][dice.below(3)]);
    let case = format!("({m}, {columns}), {parts:?}, bytes from {offset} on");
    let (blocks, x) = dice.operands(parts, m, columns);
    let run = || {
        let matrix = weight(&blocks, parts, columns, 0, &oracle)?.dequantize()?.to_vec::<f32>()?;
        let own = weight(&blocks, parts, columns, offset, gpu)?;
        let n = own.shape()[0];
        let wide = Tensor::from_vec([&vec![7.0; before][..], &x].concat(), before + x.len(), gpu)?;
        let x = wide.slice(0, before as isize..)?.reshape((m, columns))?;
        let y = own.linear(&x)?.to_vec::<f32>()?; // (m, n)
        let index: Vec<i32> = (0..n as i32).rev().chain([0, 0]).collect();
        let read = |index| own.index_select(&Tensor::new(index, gpu)?)?.to_vec::<f32>();
        let rows = index.chunks(most).map(read).collect::<Result<Vec<_>>>()?.concat();
        Ok::<_, teeny_core::Error>((matrix, y, index, rows))
    };
    let (matrix, y, index, rows) = run().map_err(|e| e.note(case.clone())).unwrap();
    let n = matrix.len() / columns;
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let terms =
            || (0..columns).map(|k| f64::from(x[i * columns + k] * matrix[j * columns + k]));
        let (want, scale) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let error = (f64::from(y[i * n + j]) - want).abs();
        // MXFP4's two least scales are subnormal, and a GPU may take 12 times each of them as 0
        let lost: f64 = x[i * columns..][..columns].iter().map(|x| f64::from(x.abs())).sum();
        let bound = (8.0 + columns as f64) * scale * 2f64.powi(-24) + lost * 2f64.powi(-123);
        assert!(error <= bound, "{case}: y[{i}, {j}] is {}, not {want}", y[i * n + j]);
    }
    for (at, &row) in index.iter().enumerate() {
        let want = &matrix[row as usize * columns..][..columns];
        let got = &rows[at * columns..][..columns];
        // subnormal scales may be flushed
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-30;
        assert!(got.iter().zip(want).all(close), "{case}: row {row} at {at}");
    }
}

/// How often the kernels of this family have run.
fn launches(gpu: &Wgpu, family: &str) -> u64 {
    gpu.profile().families.iter().filter(|f| f.name == family).map(|f| f.launches).sum()
}

#[test]
fn every_type_is_multiplied_by_its_own_kernel() {
    if common::gpu().is_none() {
        return;
    }
    let gpu = Wgpu::with_options(&Options::new().with_profile(true)).unwrap();
    let device: DeviceRef = gpu.clone();
    let mut dice = Dice(1);
    for kind in QuantType::ALL {
        let before = ["quant_matmul", "quant_rows", "matmul"].map(|name| launches(&gpu, name));
        compare(&device, &mut dice, &[Part { kind, rows: 37 }], [3, 512], 64);
        let after = ["quant_matmul", "quant_rows", "matmul"].map(|name| launches(&gpu, name));
        assert_eq!(after, [before[0] + 1, before[1] + 1, before[2]], "{kind}");
    }
}

#[test]
fn products_and_rows_of_random_weights_are_those_of_their_matrices() {
    let Some(gpu) = common::gpu() else { return };
    let gpu: DeviceRef = gpu;
    let mut dice = Dice(2);
    for _ in 0..60 {
        let (unit, kinds) = [(32, &QuantType::ALL[..7]), (256, &QuantType::ALL[..])][dice.below(2)];
        let columns = unit * (1 + dice.below(if unit == 32 { 9 } else { 3 }));
        let part = |dice: &mut Dice| {
            let most = [150, 40, 40, 40][dice.below(4)];
            let rows = dice.below(most);
            Part { kind: kinds[dice.below(kinds.len())], rows }
        };
        let mut parts: Vec<Part> = (0..1 + dice.below(3)).map(|_| part(&mut dice)).collect();
        parts[0].rows += 1;
        let most = [9, 70][dice.below(2)];
        let m = 1 + dice.below(most);
        compare(&gpu, &mut dice, &parts, [m, columns], 1000);
    }
}

#[test]
fn weights_larger_than_a_binding_are_multiplied_in_pieces() {
    if common::gpu().is_none() {
        return;
    }
    let options = Options::new().with_max_binding(Some(8192)).with_max_workgroups(Some(64));
    let gpu = Wgpu::with_options(&options).unwrap() as DeviceRef;
    let mut dice = Dice(3);
    // the last has groups that are larger than a binding
    for (kind, columns) in [
        (QuantType::Q4_0, 128),
        (QuantType::Q8_0, 256),
        (QuantType::Q4K, 512),
        (QuantType::Q8_0, 512),
    ] {
        let parts = [Part { kind, rows: 130 }, Part { kind: QuantType::Q4_0, rows: GROUP + 1 }];
        compare(&gpu, &mut dice, &parts, [2, columns], 3);
    }
}

#[test]
fn a_row_that_a_quantised_weight_lacks_is_an_index_error() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let gpu: DeviceRef = gpu;
    let parts =
        [(QuantType::Q4_0, 3), (QuantType::Q8_0, 4)].map(|(kind, rows)| Part { kind, rows });
    let blocks = Dice(4).operands(&parts, 0, 64).0;
    let own = weight(&blocks, &parts, 64, 0, &gpu)?;
    for wrong in [7, -1] {
        let error = own.index_select(&Tensor::new([6, wrong, 0], &gpu)?)?.to_vec::<f32>();
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Index, "{error}");
        assert!(error.to_string().contains(&wrong.to_string()), "{error}");
    }
    Ok(())
}
