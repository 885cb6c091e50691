//! [`QuantTensor`]: a weight of 4 to 8 bits an element.

mod dequantize;

use super::Tensor;
use super::one_device::pair;
use crate::context::enter;
use crate::device::{DeviceRef, ToDevice};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory;
use crate::op::Op;
use crate::quant::{GROUP, Part, QuantType, packed_parts};
use crate::shape::Shape;
pub(crate) use dequantize::{dequantized, rows};
use std::fmt;
use std::sync::Arc;

/// A quantised matrix (rows, columns), the weight of a linear layer or of an embedding.
///
/// Rows are blocks of small integers with scales, each row by itself, as in GGUF files
/// ([`QuantType`] has the types); rows of several types can be one matrix. Two operations read it:
/// [`QuantTensor::linear`] and [`QuantTensor::index_select`]. For everything else,
/// [`QuantTensor::dequantize`] makes it a [`Tensor`].
///
/// # Example
/// ```
/// use teeny_core::{DType, QuantTensor, QuantType, Reference, Tensor};
/// # fn main() -> teeny_core::Result<()> {
/// let device = Reference::new();
/// let weight = Tensor::randn((24, 64), DType::F32, &device)?;
/// let small = QuantTensor::quantize(&weight, QuantType::Q8_0)?;
/// let x = Tensor::randn((3, 64), DType::F32, &device)?;
/// let y = small.linear(&x)?; // (3, 24), x @ weightᵀ
/// let exact = x.matmul(&weight.t()?)?;
/// assert!(y.sub(&exact)?.abs()?.max(..)?.item::<f32>()? < 0.5);
/// assert_eq!(small.blocks().numel(), 32 * 64 * 34 / 32); // bytes; rows in groups of 16
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct QuantTensor {
    /// The bytes of the parts, u8.
    blocks: Tensor,
    parts: Arc<[Part]>,
    shape: [usize; 2],
    exact: bool,
}

impl QuantTensor {
    /// The matrix whose rows are `blocks`, one after another, as a GGUF file has them.
    ///
    /// # Errors
    /// If rows are not whole blocks, the number of bytes is another, or a scale is not finite.
    #[track_caller]
    pub fn from_blocks(
        blocks: &[u8],
        kind: QuantType,
        [rows, columns]: [usize; 2],
        device: impl ToDevice,
    ) -> Result<QuantTensor> {
        let _op = enter("QuantTensor::from_blocks");
        let wanted = kind.row_bytes(columns)?.saturating_mul(rows);
        if blocks.len() != wanted {
            return Err(Error::value(format!(
                "got {} bytes for {rows} rows of {columns} elements of {kind}, which have {wanted}",
                blocks.len()
            ))
            .help("rows follow each other without gaps, each of whole blocks"));
        }
        QuantTensor::from_blocks_with(kind, [rows, columns], device, |at, part| {
            part.copy_from_slice(&blocks[at..at + part.len()]);
            Ok(())
        })
    }

    /// [`QuantTensor::from_blocks`] of bytes that `fill(at, rows)` writes: the bytes from `at` on,
    /// whole rows. Several threads fill rows at once, in any order, and the host has a few of them
    /// at a time if the device can.
    ///
    /// # Errors
    /// As `fill` and [`QuantTensor::from_blocks`].
    #[track_caller]
    pub fn from_blocks_with(
        kind: QuantType,
        [rows, columns]: [usize; 2],
        device: impl ToDevice,
        fill: impl Fn(usize, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<QuantTensor> {
        let _op = enter("QuantTensor::from_blocks_with");
        let (part, row, device) =
            (Part { kind, rows }, kind.row_bytes(columns)?, device.to_device());
        let (bytes, group) = (part.bytes(columns)?, row.saturating_mul(GROUP));
        // groups of rows are as long as the rows, and begin where these do
        let pack = |at: usize, to: &mut [u8]| {
            if !at.is_multiple_of(group) || !to.len().is_multiple_of(group) {
                return Err(Error::internal("a part is not whole groups of rows"));
            }
            let mut rows = memory::filled(0, group)?;
            for (i, to) in to.chunks_exact_mut(group).enumerate() {
                let at = at + i * group;
                let own = &mut rows[..group.min(part.rows * row - at)];
                fill(at, own)?;
                kind.check(own, at / kind.block_bytes())?;
                part.pack_group(own, columns, to)?;
            }
            Ok(())
        };
        let blocks = device.upload_with(bytes, DType::U8, group, &pack).map_err(Error::placed)?;
        let blocks = Tensor::from_result(blocks, Shape::new(&[bytes])?, DType::U8, device)?;
        QuantTensor::from_packed(&blocks, &[part], columns)
    }

    /// The matrix with these blocks, as [`QuantTensor::blocks`] returns them.
    ///
    /// # Errors
    /// If they are not the bytes of these parts (u8).
    #[track_caller]
    pub fn from_packed(blocks: &Tensor, parts: &[Part], columns: usize) -> Result<QuantTensor> {
        let _op = enter("QuantTensor::from_packed").on([("blocks", Some(blocks))]);
        let [rows, bytes] = packed_parts(parts, columns)?;
        if blocks.dtype() != DType::U8 || blocks.shape()[..] != [bytes] {
            let (other, dtype) = (blocks.shape(), blocks.dtype());
            let text = format!("the blocks are ({bytes},) of u8, not {other} of {dtype}");
            return Err(Error::shape(text).help("QuantTensor::from_blocks takes rows of a file"));
        }
        let (blocks, shape) = (blocks.contiguous()?, [rows, columns]);
        Ok(QuantTensor { blocks, parts: parts.into(), shape, exact: false })
    }

    /// Quantises a matrix of floats. Its device keeps the result.
    ///
    /// # Errors
    /// If `x` is not a matrix of floats, its rows are not whole blocks of `kind`, an element is not
    /// finite, or the type is only read.
    #[track_caller]
    pub fn quantize(x: &Tensor, kind: QuantType) -> Result<QuantTensor> {
        let _op = enter("QuantTensor::quantize").on([("x", Some(x))]);
        let [rows, columns] = x.shape()[..] else {
            return Err(Error::shape(format!("x is {}, not a matrix", x.shape()))
                .help("quantise the weights of linear layers and embeddings"));
        };
        x.require_float()?;
        let values = x.cast(DType::F32)?.to_vec::<f32>()?;
        let bytes = kind.row_bytes(columns)?.checked_mul(rows);
        let bytes = bytes.ok_or_else(|| {
            Error::value("the bytes of the matrix overflow").help("quantise fewer rows")
        })?;
        let mut blocks = memory::filled(0, bytes)?;
        kind.encode(&values, &mut blocks)?;
        QuantTensor::from_blocks(&blocks, kind, [rows, columns], x)
    }

    /// Concatenates the rows of several matrices, such as the projections to queries, keys and
    /// values.
    ///
    /// # Errors
    /// If `weights` is empty, their columns differ, or they are on different devices.
    #[track_caller]
    pub fn join(weights: &[&QuantTensor]) -> Result<QuantTensor> {
        let _op = enter("QuantTensor::join");
        let Some(first) = weights.first() else {
            return Err(Error::value("expected a matrix, got none").help("pass at least one"));
        };
        if let Some(other) = weights.iter().find(|w| w.shape[1] != first.shape[1]) {
            let text = format!("rows of {} and of {} elements", first.shape[1], other.shape[1]);
            return Err(Error::shape(text).help("all matrices must have as many columns"));
        }
        let blocks = Tensor::cat(&weights.iter().map(|w| &w.blocks).collect::<Vec<_>>(), 0)?;
        let mut parts: Vec<Part> = Vec::new();
        for part in weights.iter().flat_map(|w| w.parts.iter()) {
            match parts.last_mut() {
                // whole groups of one type are one part
                Some(last) if last.kind == part.kind && last.rows.is_multiple_of(GROUP) => {
                    last.rows += part.rows;
                }
                _ => parts.push(*part),
            }
        }
        let joined = QuantTensor::from_packed(&blocks, &parts, first.shape[1])?;
        Ok(joined.with_exact(first.exact))
    }

    /// The rows `index` as a matrix: their blocks move as they are. For rows as floats there is
    /// [`QuantTensor::index_select`].
    ///
    /// # Errors
    /// If `index` is empty, or an index is out of range.
    #[track_caller]
    pub fn select_rows(&self, index: &[usize]) -> Result<QuantTensor> {
        let _op = enter("QuantTensor::select_rows");
        let ([rows, columns], blocks) = (self.shape, self.to_blocks()?);
        // the part of each row, and its place there
        let places =
            blocks.iter().flat_map(|(part, bytes)| (0..part.rows).map(move |i| (i, bytes)));
        let kinds = self.parts.iter().flat_map(|part| std::iter::repeat_n(part.kind, part.rows));
        let all: Vec<_> = kinds.zip(places).collect();
        let mut runs: Vec<(Part, Vec<u8>)> = Vec::new();
        for (at, &row) in index.iter().enumerate() {
            let Some(&(kind, (i, bytes))) = all.get(row) else {
                let text = format!("index[{at}] is {row}, but there are {rows} rows");
                return Err(Error::index(text).help("rows are counted from 0"));
            };
            let size = kind.row_bytes(columns)?;
            if runs.last().is_none_or(|(part, _)| part.kind != kind) {
                runs.push((Part { kind, rows: 0 }, Vec::new()));
            }
            if let Some((part, run)) = runs.last_mut() {
                part.rows += 1;
                run.extend_from_slice(&bytes[i * size..][..size]);
            }
        }
        let matrix = |(part, bytes): &(Part, Vec<u8>)| {
            QuantTensor::from_blocks(bytes, part.kind, [part.rows, columns], self.device())
        };
        let matrices = runs.iter().map(matrix).collect::<Result<Vec<_>>>()?;
        let joined = QuantTensor::join(&matrices.iter().collect::<Vec<_>>())?;
        Ok(joined.with_exact(self.exact))
    }

    /// The numbers of rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The types of the rows, in their order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The bytes as the device has them (u8): 16 rows are interleaved. See [`Part`].
    pub fn blocks(&self) -> &Tensor {
        &self.blocks
    }

    /// The device.
    pub fn device(&self) -> &DeviceRef {
        self.blocks.device()
    }

    /// Sets whether [`QuantTensor::linear`] multiplies the elements of x as they are; false, as at
    /// first, leaves it to the device to quantise them to 8 bits.
    pub fn with_exact(mut self, exact: bool) -> QuantTensor {
        self.exact = exact;
        self
    }

    /// The same matrix with other bytes, such as the bytes of a file.
    ///
    /// # Errors
    /// If `blocks` are not as many bytes (u8).
    #[track_caller]
    pub fn with_blocks(&self, blocks: &Tensor) -> Result<QuantTensor> {
        let _op = enter("QuantTensor::with_blocks").on([("blocks", Some(blocks))]);
        let other = QuantTensor::from_packed(blocks, &self.parts, self.shape[1])?;
        Ok(other.with_exact(self.exact))
    }

    /// The matrix on another device.
    ///
    /// # Errors
    /// If the device has no memory.
    #[track_caller]
    pub fn to(&self, device: impl ToDevice) -> Result<QuantTensor> {
        let _op = enter("to");
        Ok(QuantTensor { blocks: self.blocks.to(device.to_device())?, ..self.clone() })
    }

    /// The rows of each part as a GGUF file has them.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    #[track_caller]
    pub fn to_blocks(&self) -> Result<Vec<(Part, Vec<u8>)>> {
        let _op = enter("to_blocks");
        let bytes = self.blocks.to_bytes()?;
        let (columns, mut rest) = (self.shape[1], &bytes[..]);
        let part = |part: &Part| {
            let (own, others) = rest.split_at(part.bytes(columns)?);
            rest = others;
            Ok((*part, part.unpack(own, columns)?))
        };
        self.parts.iter().map(part).collect()
    }

    /// The matrix as f32 (rows, columns).
    ///
    /// # Errors
    /// If allocation fails.
    #[track_caller]
    pub fn dequantize(&self) -> Result<Tensor> {
        let _op = enter("dequantize");
        dequantized(&self.blocks, &self.parts, self.shape[1])
    }

    /// `x @ selfᵀ`: (.., columns) to (.., rows), of the type of x. Equivalent:
    /// `torch.nn.functional.linear(x, weight)`.
    ///
    /// A device may quantise x to 8 bits, blocks of 32 elements with a scale each: that is off by
    /// about 0.5 % of the norm of a row divided by the root of its length, and its bits are those
    /// of every instruction set and number of threads. [`QuantTensor::with_exact`] prevents it.
    ///
    /// # Errors
    /// If x is not (.., columns) of floats.
    #[track_caller]
    pub fn linear(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("linear").on([("x", Some(x))]);
        x.require_float()?;
        let [rows, columns] = self.shape;
        if x.shape().last() != Some(&columns) {
            return Err(Error::shape(format!(
                "the weight is ({rows}, {columns}), so x must be (.., {columns}), not {}",
                x.shape()
            ))
            .help("the weight of a linear layer is (outputs, inputs)"));
        }
        let wide = x.cast(DType::F32)?;
        let (x32, blocks) = pair(&wide, &self.blocks)?;
        let (parts, exact) = (&*self.parts, self.exact);
        let y = Op::QuantMatmul { x: &x32, blocks: &blocks, parts, exact }.tensor(x32.device())?;
        y.cast(x.dtype())
    }

    /// The rows `index` as f32: the shape of `index`, and the columns. Equivalent:
    /// `torch.nn.functional.embedding(index, weight)`.
    ///
    /// # Errors
    /// If `index` is not an integer tensor, or an index is out of range.
    #[doc(alias = "embedding")]
    #[track_caller]
    pub fn index_select(&self, index: &Tensor) -> Result<Tensor> {
        let _op = enter("index_select").on([("index", Some(index))]);
        index.require_int("index")?;
        let (index, blocks) = pair(index, &self.blocks)?;
        let (parts, columns) = (&*self.parts, self.shape[1]);
        Op::QuantRows { blocks: &blocks, index: &index, parts, columns }.tensor(blocks.device())
    }
}

impl QuantTensor {
    /// The shape and the types, such as `(960, 576) Q4_K` or `(960, 576) 768 Q4_K, 192 Q6_K`.
    pub fn describe(&self) -> String {
        let [rows, columns] = self.shape;
        let types = match &*self.parts {
            [one] => one.kind.to_string(),
            parts => {
                let each = parts.iter().map(|part| format!("{} {}", part.rows, part.kind));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        format!("({rows}, {columns}) {types}")
    }
}

/// [`QuantTensor::describe`], and the device.
impl fmt::Debug for QuantTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuantTensor {} on {}", self.describe(), self.device().info().name)
    }
}
