//! Saves a model as a GGUF file: the type of each tensor, and its quantisation error.

use super::write::{Writer, described};
use super::{TensorSource, Value};
use crate::element_type::ElementType;
use std::collections::BTreeMap;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{DType, DeviceRef, Error, QuantTensor, Result, Tensor, ToDevice, options};

options! {
    /// The types of the tensors of a GGUF file that [`save`] writes.
    ///
    /// Matrices whose rows are not whole blocks of their type get
    /// [`teeny_core::QuantType::fitting`]. Vectors are not quantised.
    #[derive(Clone, Debug)]
    pub struct WriteOptions {
        /// The type of matrices, except of positions; none keeps the type of each.
        matrices: Option<ElementType> = None, with_matrices(ElementType);
        /// The types of tensors whose names contain a text, such as `output` or `blk.0.`. The last
        /// one whose text a name contains counts.
        tensors: Vec<(String, ElementType)> = Vec::new(), with_tensors;
    }
}

impl WriteOptions {
    /// Adds a type of tensors whose names contain `part`.
    pub fn with_tensor(mut self, part: &str, of: ElementType) -> WriteOptions {
        self.tensors.push((part.to_string(), of));
        self
    }

    /// The type of a tensor that has the type `own`.
    fn element_type(&self, name: &str, shape: &[usize], own: ElementType) -> ElementType {
        let chosen = self.tensors.iter().rev().find(|(part, _)| name.contains(part.as_str()));
        let of = match (chosen, shape) {
            (Some((_, of)), _) => Some(*of),
            // a row of a table of positions is added as it is
            (None, [_, _]) if !name.starts_with("position_embd") => self.matrices,
            _ => None,
        };
        let of = match (of, shape) {
            (Some(ElementType::Quantized(kind)), &[_, columns]) => {
                kind.fitting(columns).map(ElementType::Quantized)
            }
            // a vector cannot be quantised
            (Some(ElementType::Quantized(_)), _) => None,
            (of, _) => of,
        };
        of.unwrap_or(own)
    }
}

/// A tensor that [`save`] has encoded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Written {
    /// The name.
    pub name: String,
    /// The sizes of the axes, outermost first.
    pub shape: Vec<usize>,
    /// The type in the source, and in the file.
    pub types: [ElementType; 2],
    /// The bytes in the source, and in the file.
    pub bytes: [u64; 2],
    /// The error of the new type: the root of the mean square of the differences, divided by that
    /// of the elements.
    pub error: f64,
}

/// Writes a GGUF file of the tensors of `source`, which are read and encoded one at a time, or
/// leaves what is at `path` as it is. `each` is called for every tensor.
///
/// # Errors
/// If a tensor cannot be read or written in its type, an element that is quantised is not finite,
/// or the file cannot be written.
///
/// # Example
/// ```no_run
/// use teeny_core::QuantType;
/// use teeny_formats::gguf::{ElementType, Gguf, WriteOptions, save};
/// # fn main() -> teeny_core::Result<()> {
/// # let device = teeny_nn::device::device("cpu")?;
/// let file = Gguf::open("model.gguf")?;
/// let options = WriteOptions::new()
///     .with_matrices(ElementType::Quantized(QuantType::Q4K))
///     .with_tensor("output", ElementType::Quantized(QuantType::Q6K));
/// save("smaller.gguf", file.metadata(), &file, &options, &device, |tensor| {
///     println!("{} {}: {:.1e}", tensor.name, tensor.types[1], tensor.error);
/// })?;
/// # Ok(()) }
/// ```
#[track_caller]
pub fn save(
    path: impl AsRef<Path>,
    metadata: &BTreeMap<String, Value>,
    source: &dyn TensorSource,
    options: &WriteOptions,
    device: impl ToDevice,
    mut each: impl FnMut(&Written),
) -> Result<()> {
    let _op = enter("gguf::save");
    if let Some((_, error)) = source.unreadable().into_iter().next() {
        return Err(error);
    }
    let device = device.to_device();
    let mut types = BTreeMap::new();
    let mut sums: BTreeMap<String, (u64, ElementType)> = BTreeMap::new();
    for (name, shape) in source.shapes() {
        let own = source.element_type(&name).unwrap_or(ElementType::Plain(DType::F32));
        let of = options.element_type(&name, &shape, own);
        let sum = sums.entry(of.to_string()).or_insert((0, of));
        let elements = shape.iter().fold(1u64, |n, size| n.saturating_mul(*size as u64));
        sum.0 = sum.0.saturating_add(elements);
        types.insert(name, (shape, own, of));
    }
    let most = sums.into_values().max_by_key(|(elements, _)| *elements).map(|(_, of)| of);
    let mut metadata = metadata.clone();
    metadata.insert("general.quantization_version".to_string(), Value::Unsigned(2));
    if let Some(number) = options.matrices.or(most).and_then(file_type) {
        metadata.insert("general.file_type".to_string(), Value::Unsigned(number));
    }
    let mut writer = Writer::new(metadata);
    for (name, (shape, _, of)) in &types {
        writer.add(name, shape, *of)?;
    }
    writer.write(path, |name| {
        let (shape, own, of) =
            types.remove(name).ok_or_else(|| Error::internal("a tensor without type"))?;
        let (bytes, error) = encoded(source, name, of, &device)?;
        let elements = shape.iter().product::<usize>() as u64;
        let (_, sizes) = described(own)?;
        let before = elements / sizes.elements as u64 * sizes.bytes as u64;
        let (types, sizes) = ([own, of], [before, bytes.len() as u64]);
        each(&Written { name: name.to_string(), shape, types, bytes: sizes, error });
        Ok(bytes)
    })
}

/// The bytes of tensor `name` in the type `of`, and [`Written::error`].
fn encoded(
    source: &dyn TensorSource,
    name: &str,
    of: ElementType,
    device: &DeviceRef,
) -> Result<(Vec<u8>, f64)> {
    let blocks = |weight: &QuantTensor| -> Result<Vec<u8>> {
        Ok(weight.to_blocks()?.into_iter().flat_map(|(_, blocks)| blocks).collect())
    };
    let same = |weight: &QuantTensor| {
        weight.parts().iter().all(|part| ElementType::Quantized(part.kind) == of)
    };
    let x = match source.read_quantized(name, device)? {
        Some(weight) if same(&weight) => return Ok((blocks(&weight)?, 0.0)),
        Some(weight) => weight.dequantize()?,
        None => source.read(name, device)?,
    };
    let (bytes, y) = match of {
        ElementType::Plain(dtype) if dtype == x.dtype() => return Ok((x.to_bytes()?, 0.0)),
        ElementType::Plain(dtype) => {
            let y = x.cast(dtype)?;
            (y.to_bytes()?, y.cast(DType::F32)?)
        }
        ElementType::Quantized(kind) => {
            let weight = QuantTensor::quantize(&x, kind)?;
            (blocks(&weight)?, weight.dequantize()?)
        }
    };
    let x = x.cast(DType::F32)?;
    let square = |x: &Tensor| x.mul(x)?.sum_all()?.item::<f32>();
    let (lost, all) = (square(&y.sub(&x)?)?, square(&x)?);
    let error = if lost == 0.0 { 0.0 } else { f64::from(lost / all).sqrt() };
    Ok((bytes, error))
}

/// llama.cpp's number of a file most of whose weights have this type.
fn file_type(of: ElementType) -> Option<u64> {
    const NUMBERS: [(&str, u64); 11] = [
        ("F32", 0),
        ("F16", 1),
        ("Q4_0", 2),
        ("Q4_1", 3),
        ("Q8_0", 7),
        ("Q5_0", 8),
        ("Q5_1", 9),
        ("Q4_K", 14),
        ("Q5_K", 16),
        ("Q6_K", 18),
        ("BF16", 32),
    ];
    let name = of.to_string();
    NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}
