//! Copies that keep positions: overwriting a view in place.
//!
//! Types below 32 bits share words, and two elements of a view may share one with each other or
//! with elements outside it; they are put in by atomic operations that touch their own bits only,
//! so the result does not depend on the order.

use crate::device::{Launch, Wgpu};
use crate::elementwise::{THREADS, window};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::storage::Memory;
use crate::walk::Walk;
use std::fmt::Write;
use std::sync::Arc;
use teeny_core::storage::downcast;
use teeny_core::{DType, Error, Layout, Result, StorageRef, Tensor};

/// Contiguous copies of at least this many bytes leave the compute pass for the copy engine.
const PLAIN: u64 = 256 << 10;

impl Wgpu {
    pub(crate) fn overwrite(
        &self,
        mut dst: StorageRef,
        view: &Layout,
        src: &Tensor,
    ) -> Result<StorageRef> {
        let dtype = src.dtype();
        if Arc::get_mut(&mut dst).is_none() {
            dst = self.duplicate(&dst, dtype)?;
        }
        if src.numel() > 0 {
            self.write_view(&dst, view, src)?;
        }
        Ok(dst)
    }

    /// A storage with the same elements.
    fn duplicate(&self, storage: &StorageRef, dtype: DType) -> Result<StorageRef> {
        let copy = self.allocate(storage.len(), dtype)?;
        let bytes = self.room(storage.len(), dtype)?.next_multiple_of(4);
        if !storage.is_empty() {
            self.stream.copy(
                downcast::<Memory>(storage)?.buffer(),
                0,
                downcast::<Memory>(&copy)?.buffer(),
                0,
                bytes,
            );
        }
        Ok(copy)
    }

    /// Writes `src` to the places of `view` in `dst`, which nobody else holds.
    pub(crate) fn write_view(&self, dst: &StorageRef, view: &Layout, src: &Tensor) -> Result<()> {
        let size = src.dtype().size();
        let bytes = self.room(src.numel(), src.dtype())?;
        let (start, end) = ((src.layout().offset() * size) as u64, (view.offset() * size) as u64);
        let aligned = start % 4 == 0 && end % 4 == 0 && bytes.is_multiple_of(4);
        if bytes >= PLAIN && aligned && view.is_contiguous() && src.is_contiguous() {
            self.stream.copy(
                downcast::<Memory>(src.storage())?.buffer(),
                start,
                downcast::<Memory>(dst)?.buffer(),
                end,
                bytes,
            );
            return Ok(());
        }
        if self.hides(&[src]) {
            return self.write_view(dst, view, &self.seen(src)?);
        }
        let (low, high) = Walk::new(src.shape(), &[view]).reach(0, 0, src.numel());
        let target =
            window(dst, view.offset() as isize, size, low, high, self.capabilities.max_binding)?;
        let Some((target, to)) = target.filter(|_| !self.is_large(src)) else {
            // The source or the view reaches further than a kernel sees: half of it at a time.
            let axis =
                (0..src.ndim()).max_by_key(|&a| src.shape()[a]).filter(|&a| src.shape()[a] > 1);
            let Some(axis) = axis else {
                return Err(Error::internal("one element is larger than a binding"));
            };
            let (size, mid) = (src.shape()[axis], src.shape()[axis] / 2);
            for (low, high) in [(0, mid), (mid, size)] {
                self.write_view(
                    dst,
                    &view.slice(axis, low, high - low, 1),
                    &self.piece(src, axis, low, high)?,
                )?;
            }
            return Ok(());
        };
        // Bits are moved as integers of the element's width; 64-bit elements as pairs of words,
        // whether or not the adapter computes with them.
        let (unit, words) = match size {
            1 => (DType::U8, 1),
            2 => (DType::U16, 1),
            4 => (DType::U32, 1),
            _ => (DType::U32, 2),
        };
        let walk = Walk::new(src.shape(), &[src.layout(), view]).padded();
        let rank = walk.sizes.len();
        let mut params = Params::new();
        params.count(src.numel());
        params.int(src.layout().offset() as isize);
        params.int(to);
        params.counts(&walk.sizes);
        params.strides(walk.strides.iter().flatten());
        let source = self.part(src)?;
        let groups = self.fold(src.numel().div_ceil(THREADS) as u64)?;
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("copy_into", [rank as u32, unit as u32, words]),
                wgsl: &|| Ok(wgsl(rank, unit, words as usize)),
            },
            inputs: &[source],
            outputs: &[target],
            params: &params,
            groups,
        })
    }
}

/// The shader that writes elements of `words` words of type `unit` to the places of a view.
pub(crate) fn wgsl(rank: usize, unit: DType, words: usize) -> String {
    let target = if unit == DType::U32 { "u32" } else { "atomic<u32>" };
    let mut text = generator::params_declaration();
    let _ = write!(
        text,
        "@group(0) @binding(0) var<storage, read> src: array<u32>;\n@group(0) @binding(1) var<storage, read_write> dst: array<{target}>;\n\
         @compute @workgroup_size({THREADS})\nfn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, \
         @builtin(local_invocation_index) thread: u32) {{\n    var r = (group.y * groups.x + group.x) * {THREADS}u + thread;\n    \
         if r >= {} {{ return; }}\n    var source = {};\n    var place = {};\n",
        generator::param(0),
        generator::param(1),
        generator::param(2),
    );
    for axis in (0..rank).rev() {
        let (size, a, b) = (
            generator::param(3 + axis),
            generator::param(3 + rank + axis),
            generator::param(3 + 2 * rank + axis),
        );
        let _ = writeln!(
            text,
            "    {{ let c = r % {size}; r = r / {size}; source += c * {a}; place += c * {b}; }}"
        );
    }
    match unit {
        DType::U32 => {
            for word in 0..words {
                let _ = writeln!(
                    text,
                    "    dst[place * {words}u + {word}u] = src[source * {words}u + {word}u];"
                );
            }
        }
        _ => {
            let (shift, mask, per) = if unit == DType::U8 { (2, 255, 8) } else { (1, 65535, 16) };
            let value = types::load(unit, "src", "source");
            let _ = writeln!(
                text,
                "    let value = {value};\n    let at = (place & {}u) * {per}u;\n    atomicAnd(&dst[place >> {shift}u], ~({mask}u << at));\n    \
                 atomicOr(&dst[place >> {shift}u], value << at);",
                (1 << shift) - 1
            );
        }
    }
    text.push_str("}\n");
    text
}
