//! The numbers that a dispatch gives to its shader: sizes, strides, offsets and scalars, as 32-bit
//! words of one uniform slot.
//!
//! Slots lie behind each other in one ring buffer, written once per batch; a dispatch selects its
//! slot by a dynamic offset. Uploads of the queue are ordered after the batches submitted before,
//! so one ring serves all batches.

use crate::adapter::Capabilities;
use crate::error;
use teeny_core::{DType, Error, Result, Scalar};

/// The largest size and the most elements of a launch. Shaders number threads with 32 bits, and a
/// folded grid may have up to 65,535 workgroups of 512 elements more than are needed: their numbers
/// must not wrap around to the first ones.
pub(crate) const MAX_COUNT: usize = u32::MAX as usize - (1 << 26);

/// The bytes that a shader may declare for its parameters.
pub(crate) const SLOT_BYTES: u64 = 1024;
/// The bytes of parameters in a batch.
const RING_BYTES: u64 = 64 << 10;

/// The parameters of one dispatch, in the order in which the shader declares them.
#[derive(Clone, Default)]
pub(crate) struct Params {
    words: Vec<u32>,
    /// A count beyond [`MAX_COUNT`].
    beyond: Option<usize>,
}

impl Params {
    pub fn new() -> Params {
        Params { words: Vec::with_capacity(32), beyond: None }
    }

    /// Whether all counts are within [`MAX_COUNT`]; tested by every launch.
    ///
    /// # Errors
    /// If not.
    pub fn check(&self) -> Result<()> {
        self.beyond.map_or(Ok(()), |count| Err(error::beyond(count)))
    }

    /// The next word: a size, or a number of elements or workgroups.
    pub fn count(&mut self, count: usize) -> usize {
        if count > MAX_COUNT {
            self.beyond.get_or_insert(count);
        }
        self.push(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// The next words: a count each.
    pub fn counts<'a>(&mut self, counts: impl IntoIterator<Item = &'a usize>) {
        counts.into_iter().for_each(|&count| _ = self.count(count));
    }

    /// The next words: a stride each.
    pub fn strides<'a>(&mut self, strides: impl IntoIterator<Item = &'a isize>) {
        strides.into_iter().for_each(|&stride| _ = self.int(stride));
    }

    /// The next word; returns its number.
    pub fn push(&mut self, word: u32) -> usize {
        self.words.push(word);
        self.words.len() - 1
    }

    /// The next word: a stride or an offset, modulo 2^32. Index arithmetic wraps likewise, and
    /// every address that it arrives at is below 2^32, since no binding is larger: so negative
    /// strides and those of axes that are never stepped along are right.
    pub fn int(&mut self, value: isize) -> usize {
        self.push(value as u32)
    }

    /// The next word or two: a number as `dtype` computes it; bool as 0 or 1, 64-bit types with the
    /// low word first.
    pub fn scalar(&mut self, value: Scalar, dtype: DType) -> usize {
        let value = value.cast(dtype.compute());
        let at = self.words.len();
        match dtype.compute() {
            DType::Bool => self.words.push(value.to_bool() as u32),
            DType::U8 | DType::U16 | DType::U32 => self.words.push(value.to_u64_wrapping() as u32),
            DType::I8 | DType::I16 | DType::I32 => self.words.push(value.to_i64_wrapping() as u32),
            DType::F32 | DType::F16 | DType::BF16 => {
                self.words.push((value.to_f64() as f32).to_bits())
            }
            DType::U64 => self.wide(value.to_u64_wrapping()),
            DType::I64 => self.wide(value.to_i64_wrapping() as u64),
            DType::F64 => self.wide(value.to_f64().to_bits()),
        }
        at
    }

    /// Zeros up to and including word number `at`; returns that number.
    pub fn pad(&mut self, at: usize) -> usize {
        let len = self.words.len();
        self.words.resize(len.max(at + 1), 0);
        at
    }

    /// Changes a word to a count.
    pub fn set_count(&mut self, at: usize, count: usize) {
        if count > MAX_COUNT {
            self.beyond.get_or_insert(count);
        }
        self.words[at] = u32::try_from(count).unwrap_or(u32::MAX);
    }

    /// The next two words, low one first.
    pub fn wide(&mut self, value: u64) {
        self.words.extend([value as u32, (value >> 32) as u32]);
    }
}

/// The ring of one device and the batch's slots that were not written to it yet.
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
            size: RING_BYTES + SLOT_BYTES,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let whole = wgpu::BufferBinding {
            buffer: &buffer,
            offset: 0,
            size: std::num::NonZeroU64::new(SLOT_BYTES),
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

    /// True if `params` fit behind the slots of this batch.
    pub fn has_room(&self, params: &Params) -> bool {
        self.bytes.len().next_multiple_of(self.alignment) + params.words.len() * 4
            <= RING_BYTES as usize
    }

    /// The offset of a new slot with `params`.
    ///
    /// # Errors
    /// If there are more parameters than a slot holds.
    pub fn push(&mut self, params: &Params) -> Result<u32> {
        if params.words.len() * 4 > SLOT_BYTES as usize {
            return Err(Error::unsupported(format!(
                "a kernel with {} words of parameters; the GPU takes {}",
                params.words.len(),
                SLOT_BYTES / 4
            )));
        }
        let offset = self.bytes.len().next_multiple_of(self.alignment);
        self.bytes.resize(offset, 0);
        self.bytes.extend_from_slice(bytemuck::cast_slice(&params.words));
        Ok(offset as u32)
    }

    /// Writes the batch's slots and begins anew.
    pub fn write(&mut self, queue: &wgpu::Queue) {
        if !self.bytes.is_empty() {
            queue.write_buffer(&self.buffer, 0, &self.bytes);
            self.bytes.clear();
        }
    }
}
