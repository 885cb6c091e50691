//! The numbers that a dispatch passes to its shader: sizes, strides, offsets and scalars, as 32-bit
//! words of one range of a uniform buffer.
//!
//! The parameters of a batch follow each other in one ring buffer, written once per batch; a
//! dispatch selects its own by a dynamic offset. Uploads of the queue are ordered after the batches
//! submitted before, so one ring serves all batches.

use crate::device::adapter::Capabilities;
use crate::device::error;
use crate::device::limits::{MAX_COUNT, PARAM_BYTES};
use teeny_core::{DType, Element, Error, Result, Scalar};

/// The bytes of parameters in a batch.
const RING_BYTES: u64 = 64 << 10;

/// The parameters of one dispatch, in the order in which the shader declares them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Params {
    words: Vec<u32>,
    /// A count beyond [`MAX_COUNT`].
    beyond: Option<usize>,
}

impl Params {
    pub fn new() -> Params {
        Params { words: Vec::with_capacity(32), beyond: None }
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether all counts are within [`MAX_COUNT`]; tested by every launch.
    ///
    /// # Errors
    /// If not.
    pub fn check(&self) -> Result<()> {
        self.beyond.map_or(Ok(()), |count| Err(error::beyond(count)))
    }

    /// The next word: a size, or a number of elements or workgroups.
    pub fn count(&mut self, count: usize) {
        if count > MAX_COUNT {
            self.beyond.get_or_insert(count);
        }
        self.push(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// The next word.
    pub fn push(&mut self, word: u32) {
        self.words.push(word);
    }

    /// The next word: a stride or an offset, modulo 2^32. Index arithmetic wraps likewise, and
    /// every resulting address is below 2^32, since no binding is larger. So negative strides, and
    /// the strides of axes that are never stepped along, are right.
    pub fn int(&mut self, value: isize) {
        self.push(value as u32);
    }

    /// The next word or two: a number as `dtype` computes it; bool as 0 or 1, 64-bit types with the
    /// low word first.
    pub fn scalar(&mut self, value: Scalar, dtype: DType) {
        let value = value.cast(dtype.compute());
        match dtype.compute() {
            DType::Bool => self.words.push(value.to_bool() as u32),
            DType::U8 | DType::U16 | DType::U32 => self.words.push(value.to_u64_wrapping() as u32),
            DType::I8 | DType::I16 | DType::I32 => self.words.push(value.to_i64_wrapping() as u32),
            DType::F32 | DType::F16 | DType::BF16 => {
                self.words.push(f32::from_scalar(value).to_bits())
            }
            DType::U64 => self.two_words(value.to_u64_wrapping()),
            DType::I64 => self.two_words(value.to_i64_wrapping() as u64),
            DType::F64 => self.two_words(value.to_f64().to_bits()),
        }
    }

    /// The next two words, low one first.
    pub fn two_words(&mut self, value: u64) {
        self.words.extend([value as u32, (value >> 32) as u32]);
    }
}

/// The ring of one device and the batch's parameters that were not written to it yet.
pub(crate) struct Ring {
    pub buffer: wgpu::Buffer,
    pub group: wgpu::BindGroup,
    bytes: Vec<u8>,
    alignment: usize,
}

impl Ring {
    pub fn new(
        device: &wgpu::Device,
        layout: &wgpu::BindGroupLayout,
        capabilities: &Capabilities,
    ) -> Ring {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("teeny parameters"),
            size: RING_BYTES + PARAM_BYTES,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let whole = wgpu::BufferBinding {
            buffer: &buffer,
            offset: 0,
            size: std::num::NonZeroU64::new(PARAM_BYTES),
        };
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("teeny parameters"),
            layout,
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(whole),
            }],
        });
        Ring {
            buffer,
            group,
            bytes: Vec::with_capacity(RING_BYTES as usize),
            alignment: capabilities.uniform_alignment.max(16) as usize,
        }
    }

    /// True if `params` fit after the parameters of this batch.
    pub fn fits(&self, params: &Params) -> bool {
        self.bytes.len().next_multiple_of(self.alignment) + params.words.len() * 4
            <= RING_BYTES as usize
    }

    /// Appends `params`; returns their offset.
    ///
    /// # Errors
    /// If there are more parameters than a shader may declare.
    pub fn push(&mut self, params: &Params) -> Result<u32> {
        if params.words.len() * 4 > PARAM_BYTES as usize {
            return Err(Error::unsupported(format!(
                "a kernel has {} words of parameters, the GPU takes {}",
                params.words.len(),
                PARAM_BYTES / 4
            )));
        }
        let offset = self.bytes.len().next_multiple_of(self.alignment);
        self.bytes.resize(offset, 0);
        self.bytes.extend_from_slice(bytemuck::cast_slice(&params.words));
        Ok(offset as u32)
    }

    /// Writes the batch's parameters and clears them.
    pub fn write(&mut self, queue: &wgpu::Queue) {
        if !self.bytes.is_empty() {
            queue.write_buffer(&self.buffer, 0, &self.bytes);
            self.bytes.clear();
        }
    }
}
