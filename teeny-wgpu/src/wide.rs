//! Kernels that write one element at a time cannot write types below 32 bits without two threads
//! meeting in a word. They write the *wide* type of the element, the one it is computed in, and a
//! packing pass follows where the two differ.

use crate::device::Wgpu;
use crate::generator::{self, types};
use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use teeny_core::{DType, Error, Kernel, Result, Scalar, Shape, StorageRef, Tensor};

/// The type in which single elements of `dtype` can be written.
pub(crate) const fn wide(dtype: DType) -> DType {
    match dtype {
        DType::Bool | DType::U8 | DType::U16 => DType::U32,
        DType::I8 | DType::I16 => DType::I32,
        DType::F16 | DType::BF16 => DType::F32,
        DType::U32 | DType::U64 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => dtype,
    }
}

/// The value `v` of type `dtype`, as computed, in its wide type.
pub(crate) fn widened(dtype: DType, v: &str) -> String {
    if dtype == DType::Bool { format!("u32({v})") } else { v.to_string() }
}

/// The smallest (or largest) value of the wide type of `dtype`; infinite for floats.
pub(crate) fn extreme(dtype: DType, largest: bool) -> &'static str {
    match (wide(dtype), largest) {
        (DType::U32, false) => "0u",
        (DType::U32, true) => "0xffffffffu",
        (DType::I32, false) => "bitcast<i32>(0x80000000u)",
        (DType::I32, true) => "2147483647i",
        (DType::U64, false) => "0lu",
        (DType::U64, true) => "18446744073709551615lu",
        (DType::I64, false) => "(-9223372036854775807li - 1li)",
        (DType::I64, true) => "9223372036854775807li",
        (DType::F64, false) => "(-inf_f64())",
        (DType::F64, true) => "inf_f64()",
        (_, false) => "(-inf_f32())",
        (_, true) => "inf_f32()",
    }
}

/// The value of `dtype` that every other one beats: the smallest, or the largest where the smallest
/// wins.
pub(crate) fn worst(dtype: DType, largest: bool) -> Scalar {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => Scalar::Bool(largest),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
            Scalar::Float(if largest { f64::INFINITY } else { f64::NEG_INFINITY })
        }
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            Scalar::UInt(if largest { u64::MAX >> (64 - bits) } else { 0 })
        }
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            Scalar::Int(if largest { i64::MAX >> (64 - bits) } else { i64::MIN >> (64 - bits) })
        }
    }
}

/// Statements that turn the number `from` into addresses: one per view, named `names[v]`, over the
/// sizes at words `sizes..` and the strides at words `strides[v]..`; each begins at the expression
/// `starts[v]`.
pub(crate) fn addresses(
    rank: usize,
    from: &str,
    sizes: usize,
    views: &[(String, String, usize)],
) -> String {
    let mut text = String::new();
    for (name, start, _) in views {
        let _ = writeln!(text, "    var {name} = {start};");
    }
    let _ = writeln!(text, "    {{ var rest = {from};");
    for axis in (0..rank).rev() {
        let size = generator::param(sizes + axis);
        let index = if axis == 0 { "rest".to_string() } else { format!("(rest % {size})") };
        let _ = writeln!(text, "    {{ let along = {index};");
        for (name, _, strides) in views {
            let _ = writeln!(text, "    {name} += along * {};", generator::param(strides + axis));
        }
        let _ = writeln!(
            text,
            "    }}{}",
            if axis == 0 { String::new() } else { format!(" rest = rest / {size};") }
        );
    }
    text.push_str("    }\n");
    text
}

/// `array`'s declaration as input number `binding` with elements of type `dtype`.
pub(crate) fn input(binding: usize, name: &str, dtype: DType) -> String {
    format!(
        "@group(0) @binding({binding}) var<storage, read> {name}: array<{}>;\n",
        types::word(dtype)
    )
}

/// `array`'s declaration as an output with elements of the wide type of `dtype`.
pub(crate) fn output(binding: usize, name: &str, dtype: DType) -> String {
    format!(
        "@group(0) @binding({binding}) var<storage, read_write> {name}: array<{}>;\n",
        types::value(wide(dtype))
    )
}

/// The head of `main`: `unit` is the number of the workgroup, `thread` the thread in it.
pub(crate) fn main(threads: usize) -> String {
    format!(
        "@compute @workgroup_size({threads})\nfn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, \
         @builtin(local_invocation_index) thread: u32) {{\n    let unit = group.y * groups.x + group.x;\n"
    )
}

/// Statements that make one value, `whole`, known to every thread, of the values that `threads`
/// threads have put into the workgroup array `parts`: eight threads join an eighth each, then all
/// join the eighths. Two barriers; a tree would take one for each doubling.
pub(crate) fn joined(parts: &str, threads: usize, join: impl Fn(&str, &str) -> String) -> String {
    let eighth = threads / 8;
    format!(
        "    workgroupBarrier();\n    if thread < 8u {{\n        var part = {parts}[thread * {eighth}u];\n        \
         for (var i = 1u; i < {eighth}u; i++) {{ let other = {parts}[thread * {eighth}u + i]; part = {}; }}\n        \
         {parts}[thread * {eighth}u] = part;\n    }}\n    workgroupBarrier();\n    var whole = {parts}[0];\n    \
         for (var i = 1u; i < 8u; i++) {{ let other = {parts}[i * {eighth}u]; whole = {}; }}\n",
        join("part", "other"),
        join("whole", "other"),
    )
}

impl Wgpu {
    /// The elements of `storage`, of the wide type of `dtype`, as `dtype`.
    pub(crate) fn narrow(
        &self,
        storage: StorageRef,
        dtype: DType,
        like: &Tensor,
    ) -> Result<StorageRef> {
        static CASTS: [OnceLock<Arc<Kernel>>; DType::ALL.len()] =
            [const { OnceLock::new() }; DType::ALL.len()];
        if wide(dtype) == dtype {
            return Ok(storage);
        }
        let kernel = match CASTS[dtype as usize].get() {
            Some(kernel) => kernel,
            None => {
                let kernel = Arc::new(Kernel::build([wide(dtype)], [], |[x], []| [x.cast(dtype)])?);
                CASTS[dtype as usize].get_or_init(|| kernel)
            }
        };
        let shape = Shape::new(&[storage.len()])?;
        let x = self.tensor(storage, shape, wide(dtype), like)?;
        let mut outputs = self.map(kernel, &[&x], &[], &shape)?.into_iter();
        outputs.next().ok_or_else(|| Error::internal("a kernel gave no output"))
    }
}
