//! The definitions of the operations on quantised matrices: blocks to numbers with operations on
//! bytes, then the operation on numbers.

use crate::dtype::DType::{F32, I32};
use crate::error::Result;
use crate::kernel::build::Expr;
use crate::quant::{GROUP, IQ4_NL, MXFP4, Part, QuantType, packed_parts};
use crate::tensor::{Tensor, map};

/// The matrix (rows, columns) of `parts` in `blocks`.
pub(crate) fn dequantized(blocks: &Tensor, parts: &[Part], columns: usize) -> Result<Tensor> {
    packed_parts(parts, columns)?;
    let (mut all, mut start) = (Vec::new(), 0);
    for part in parts {
        let end = start + part.bytes(columns)?;
        let blocks = groups(&blocks.slice(0, start..end)?, part.kind, columns)?;
        let values = values(&blocks, part.kind)?; // (groups, GROUP, columns)
        all.push(values.flatten(0, 1)?.slice(0, ..part.rows)?);
        start = end;
    }
    match &all[..] {
        [one] => Ok(one.clone()),
        all => Tensor::cat(all, 0),
    }
}

/// The rows `index` of the matrix.
pub(crate) fn rows(
    blocks: &Tensor,
    index: &Tensor,
    parts: &[Part],
    columns: usize,
) -> Result<Tensor> {
    let [part] = parts else { return dequantized(blocks, parts, columns)?.index_select(0, index) };
    // the groups of the rows alone, and of each the one row
    let blocks = groups(blocks, part.kind, columns)?;
    let flat = index.reshape(-1)?; // (n)
    let n = flat.numel();
    // zeros; the gather checks the positions
    let inside = Tensor::zeros(1, I32, &blocks)?.expand(part.rows)?.gather(0, &flat)?;
    let flat = map([&flat, &inside], |[i, zero]| i.cast(I32) + zero)?;
    let group = map([&flat], |[i]| i.floor_div(GROUP as i64))?;
    let lane = map([&flat], |[i]| i.rem(GROUP as i64))?;
    let values = values(&blocks.index_select(0, &group)?, part.kind)?; // (n, GROUP, columns)
    let lane = lane.reshape((n, 1, 1))?.expand((n, 1, columns))?;
    let rows = values.gather(1, &lane)?; // (n, 1, columns)
    rows.reshape(index.shape().with_axis(index.ndim(), columns)?)
}

/// The blocks reshaped to (groups, blocks per row, bytes of GROUP blocks).
fn groups(blocks: &Tensor, kind: QuantType, columns: usize) -> Result<Tensor> {
    let (count, bytes) = (columns / kind.block_elements(), GROUP * kind.block_bytes());
    blocks.reshape((blocks.numel() / (count * bytes), count, bytes))
}

/// [`groups`] as numbers (groups, GROUP, columns).
fn values(groups: &Tensor, kind: QuantType) -> Result<Tensor> {
    let (g, count) = (groups.shape()[0], groups.shape()[1]);
    let field = |i: usize| -> Result<Tensor> {
        let field = kind.fields()[i];
        let bytes = groups.slice(-1, GROUP * field.at..GROUP * (field.at + field.len))?;
        let units = bytes.reshape((g, count, field.len / field.unit, GROUP, field.unit))?;
        units.permute([0, 3, 1, 2, 4])?.reshape((GROUP * g, count, field.len))
    }; // (rows, blocks, bytes)
    let values = match kind {
        QuantType::Q8_0 => map([&half(&field(0)?)?, &field(1)?], |[d, q]| d * signed(q))?,
        QuantType::Q4_0 => {
            map([&half(&field(0)?)?, &nibbles(&field(1)?)?], |[d, q]| d * (q.cast(F32) - 8.0))?
        }
        QuantType::Q5_0 => {
            let q = five_bits(&field(1)?, &field(2)?)?;
            map([&half(&field(0)?)?, &q], |[d, q]| d * (q.cast(F32) - 16.0))?
        }
        QuantType::Q4_1 => with_minimum(&field(0)?, &field(1)?, &nibbles(&field(2)?)?)?,
        QuantType::Q5_1 => {
            with_minimum(&field(0)?, &field(1)?, &five_bits(&field(2)?, &field(3)?)?)?
        }
        QuantType::Iq4Nl => {
            map([&half(&field(0)?)?, &nibbles(&field(1)?)?], |[d, q]| d * looked_up(q, &IQ4_NL))?
        }
        QuantType::Mxfp4 => map([&field(0)?, &nibbles(&field(1)?)?], |[e, q]| {
            half_of_power(e.cast(I32)) * looked_up(q, &MXFP4)
        })?,
        QuantType::Q4K => {
            let q = paired(&field(3)?)?; // (rows, blocks, 8, 32)
            sub_blocks(&field(0)?, &field(1)?, &field(2)?, &q)?
        }
        QuantType::Q5K => {
            let high = bits(&field(3)?.unsqueeze(2)?, 8, 1)?; // (rows, blocks, 8, 32)
            let q = map([&paired(&field(4)?)?, &high], |[q, high]| q + high * 16)?;
            sub_blocks(&field(0)?, &field(1)?, &field(2)?, &q)?
        }
        QuantType::Q6K => {
            let (rows, blocks) = (GROUP * g, count);
            let low = field(0)?.reshape((rows, blocks, 2, 1, 2, 32))?; // half, -, group of two
            let low = halves(&low, 3)?.reshape((rows, blocks, 2, 4, 32))?;
            let high = bits(&field(1)?.reshape((rows, blocks, 2, 1, 32))?, 4, 2)?;
            let q = map([&low, &high], |[low, high]| low + high * 16)?;
            let q = q.reshape((rows, blocks, 16, 16))?;
            let (d, s) = (half(&field(3)?)?.unsqueeze(-1)?, field(2)?.unsqueeze(-1)?);
            map([&d, &s, &q], |[d, s, q]| d * signed(s) * (q.cast(F32) - 32.0))?
        }
    };
    values.reshape((g, GROUP, count * kind.block_elements()))
}

/// Two bytes as the 16-bit float that they are, of finite ones.
fn half(bytes: &Tensor) -> Result<Tensor> {
    let [low, high] = [0usize, 1].map(|i| bytes.slice(-1, i..i + 1));
    map([&low?, &high?], |[low, high]| {
        let bits = low.cast(I32) + high.cast(I32) * 256;
        let (m, e) = (bits.and(0x3ff), bits.shr(10).and(31));
        let one = m.cast(F32).like(1.0);
        // 2^e, in factors that are exact
        let power = (0..5).fold(one, |power, i| {
            let set = e.and(1 << i).ne(0);
            power * set.where_cond(one.like(f64::from(1 << (1 << i))), one)
        });
        let m = m.cast(F32);
        let normal = (m + 1024.0) * 2f64.powi(-25) * power;
        let x = e.eq(0).where_cond(m * 2f64.powi(-24), normal);
        bits.lt(0x8000).where_cond(x, -x)
    })
}

/// `2^(e - 128)`.
fn half_of_power(e: Expr<'_>) -> Expr<'_> {
    let one = e.cast(F32).like(1.0);
    let bit = |i: i32, on: f64, off: f64| {
        let set = e.and(1 << i).ne(0);
        set.where_cond(one.like(on), one.like(off))
    };
    let low = (0..7).fold(one * 2f64.powi(-64), |p, i| p * bit(i, 2f64.powi(1 << i), 1.0));
    low * bit(7, 2f64.powi(64), 2f64.powi(-64))
}

/// A byte as the number with a sign that it is.
fn signed(byte: Expr<'_>) -> Expr<'_> {
    let x = byte.cast(F32);
    x.lt(128.0).where_cond(x, x - 256.0)
}

/// `table[q]`
fn looked_up<'b>(q: Expr<'b>, table: &[i8; 16]) -> Expr<'b> {
    let (x, last) = (q.cast(F32), f64::from(table[15]));
    (0..15).fold(x.like(last), |value, i| {
        q.eq(i as i64).where_cond(x.like(f64::from(table[i])), value)
    })
}

/// The low and the high four bits of bytes, beside each other along `axis`, of size 1.
fn halves(bytes: &Tensor, axis: isize) -> Result<Tensor> {
    let low = map([bytes], |[q]| q.and(15))?;
    let high = map([bytes], |[q]| q.shr(4))?;
    Tensor::cat(&[&low, &high], axis)
}

/// The numbers of 4 bits of 32 elements: (.., 16) to (.., 32).
fn nibbles(bytes: &Tensor) -> Result<Tensor> {
    halves(bytes, -1)
}

/// [`nibbles`] with the bits of `high` (.., 4) above them.
fn five_bits(high: &Tensor, bytes: &Tensor) -> Result<Tensor> {
    let high = bits(&high.unsqueeze(-2)?, 8, 1)?.transpose(-1, -2)?.flatten(-2, -1)?; // (.., 32)
    map([&nibbles(bytes)?, &high], |[q, high]| q + high * 16)
}

/// The numbers of `width` bits in bytes (.., 1, n): (.., count, n), the lowest first.
fn bits(bytes: &Tensor, count: usize, width: i64) -> Result<Tensor> {
    let part = |i: usize| map([bytes], |[q]| q.shr(width * i as i64).and((1i64 << width) - 1));
    let parts = (0..count).map(part).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts, -2)
}

/// `d q + m`
fn with_minimum(d: &Tensor, m: &Tensor, q: &Tensor) -> Result<Tensor> {
    map([&half(d)?, &half(m)?, q], |[d, m, q]| d * q.cast(F32) + m)
}

/// The numbers of 4 bits of eight sub-blocks: (.., 128) to (.., 8, 32).
fn paired(bytes: &Tensor) -> Result<Tensor> {
    let pairs = bytes.unflatten(-1, [4, 1, 32])?; // two sub-blocks in 32 bytes
    halves(&pairs, -2)?.flatten(-3, -2)
}

/// `d s q - e t` of sub-blocks, whose numbers s and t have 6 bits each, in 12 bytes.
fn sub_blocks(d: &Tensor, e: &Tensor, codes: &Tensor, q: &Tensor) -> Result<Tensor> {
    let [a, b, c] = [0usize, 4, 8].map(|i| codes.slice(-1, i..i + 4));
    let (a, b, c) = (a?, b?, c?);
    let low = |x: &Tensor| map([x], |[x]| x.and(63));
    let rest = |x: &Tensor, from: i64| map([&c, x], |[c, x]| c.shr(from).and(15) + x.shr(6) * 16);
    let s = Tensor::cat(&[&low(&a)?, &rest(&a, 0)?], -1)?.unsqueeze(-1)?; // (rows, blocks, 8, 1)
    let t = Tensor::cat(&[&low(&b)?, &rest(&b, 4)?], -1)?.unsqueeze(-1)?;
    let [d, e] = [half(d)?.unsqueeze(-1)?, half(e)?.unsqueeze(-1)?];
    map([&d, &e, &s, &t, q], |[d, e, s, t, q]| (d * s.cast(F32)) * q.cast(F32) - e * t.cast(F32))
}
