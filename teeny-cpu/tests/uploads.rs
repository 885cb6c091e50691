//! Bytes that are written where a device keeps them: `Tensor::from_bytes_with` and
//! `QuantTensor::from_blocks_with`.

use crate::common::Draw;
use std::panic::{AssertUnwindSafe, catch_unwind};
use teeny_core::{
    DType, Device, DeviceRef, Error, ErrorKind, Lazy, QuantTensor, QuantType, Reference, Result,
    Tensor,
};
use teeny_cpu::Cpu;

fn devices() -> Result<Vec<DeviceRef>> {
    let cpu = Cpu::new();
    let trace = teeny_core::wrappers::Trace::new(&cpu);
    Ok(vec![Reference::new(), cpu.clone(), Lazy::new(&cpu), trace])
}

/// Copies a part of `bytes`.
fn part_of(bytes: &[u8]) -> impl Fn(usize, &mut [u8]) -> Result<()> + Sync {
    |at, part| {
        part.copy_from_slice(&bytes[at..at + part.len()]);
        Ok(())
    }
}

#[test]
fn bytes_arrive_whatever_their_number_type_and_device() -> Result<()> {
    let mut dice = Draw(41);
    for device in devices()? {
        for dtype in [DType::F32, DType::F64, DType::I16, DType::Bool, DType::U8] {
            for len in [0, 1, 7, 100_000 + dice.below(1000), 1_400_003] {
                let bytes: Vec<u8> = (0..len * dtype.size()).map(|i| (i * 7 % 61) as u8).collect();
                let x = Tensor::from_bytes_with(len, dtype, &device, part_of(&bytes))?;
                let same = Tensor::from_bytes(&bytes, len, dtype, &device)?;
                assert!(x.to_bytes()? == same.to_bytes()?, "{len} of {dtype} on {device:?}");
            }
        }
        for kind in QuantType::ALL {
            let (rows, columns) = (1 + dice.below(90), 256 * (1 + dice.below(60)));
            // scales of small numbers, which are finite
            let bytes: Vec<u8> =
                (0..kind.row_bytes(columns)? * rows).map(|i| (i * 11 % 59) as u8).collect();
            let x = QuantTensor::from_blocks_with(kind, [rows, columns], &device, part_of(&bytes))?;
            let rows_back = x.to_blocks()?.into_iter().flat_map(|(_, rows)| rows);
            assert!(rows_back.eq(bytes), "{rows} {columns} {kind} on {device:?}");
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_written_is_an_error_and_keeps_no_memory() -> Result<()> {
    let cpu = Cpu::new();
    let live = cpu.stats().live_bytes;
    let broken = |at: usize, part: &mut [u8]| match at + part.len() > 3_000_000 {
        true => Err(Error::io("the disk is gone")),
        false => Ok(()),
    };
    let error = Tensor::from_bytes_with(1 << 20, DType::F32, &cpu, broken).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let text = error.to_string();
    assert!(text.starts_with("from_bytes_with at teeny-cpu/tests/uploads.rs"), "{text}");
    assert!(text.contains("the disk is gone"), "{text}");

    // the last of 256 rows of 2,048 blocks
    let mut bytes = vec![0u8; 256 * 2048 * 34];
    let last = bytes.len() - 34;
    bytes[last + 1] = 0x7c;
    let [rows, columns] = [256, 2048 * 32];
    let error = QuantTensor::from_blocks(&bytes, QuantType::Q8_0, [rows, columns], &cpu);
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with("QuantTensor::from_blocks at teeny-cpu/tests/uploads.rs"), "{text}");
    assert!(text.contains("a scale of block 524287 of Q8_0 is not finite"), "{text}");

    let panics = |at: usize, _: &mut [u8]| if at > 0 { panic!("in a part") } else { Ok(()) };
    let made = || Tensor::from_bytes_with(1 << 20, DType::F32, &cpu, panics);
    assert!(catch_unwind(AssertUnwindSafe(made)).is_err());
    assert_eq!(cpu.stats().live_bytes, live);
    let x = Tensor::from_bytes_with(1 << 20, DType::U8, &cpu, |_, part| {
        part.fill(3);
        Ok(())
    })?;
    assert_eq!(x.cast(DType::I32)?.sum(..)?.item::<i64>()?, 3 << 20);

    // a bool from a device's own caller is 0 or 1
    let two = |_: usize, part: &mut [u8]| {
        part.fill(2);
        Ok(())
    };
    assert!(cpu.upload_with(5, DType::Bool, 1, &two).is_err());
    let error = Tensor::from_bytes_with(usize::MAX / 16, DType::F64, &cpu, two).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    Ok(())
}
