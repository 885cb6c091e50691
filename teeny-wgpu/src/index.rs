//! Gather and scatter. Both are computed per element of the result, without atomics on values, so they are deterministic and know every type.
//!
//! Scatter *pulls*: each element of the result looks through the arrivals of its line in order and takes those that point at it. That is exact and simple
//! and fast for short lines; its work grows with the product of both lengths.
//!
//! Positions outside the axis are never used as addresses: gather gives 0 for them, scatter ignores them, and the first one is noted. With
//! [`Shaders::Checked`] each call waits and returns the error itself; with trusted shaders waiting would cost more than the work, and
//! [`teeny_core::Device::synchronize`] reports it.
//!
//! REGRET: embedding tables of many rows make scatter-add slow; sorting the positions first and summing segments would cure it.

use crate::adapter::Shaders;
use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::stream::Part;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Error, ErrorKind, Layout, Result, ScatterMode, Shape, StorageRef, Tensor};

const THREADS: usize = 128;

/// Words 0..: elements of the result, size of the axis, arrivals of a line; then sizes and strides.
const HEAD: usize = 3;

/// `k` (a load of type `index`) tested against the axis: statements that leave `inside` and the position `at`.
fn tested(index: DType, load: &str) -> String {
    let size = generator::param(1);
    let (negative, end) = match types::value(index) {
        "u32" => ("false".to_string(), format!("k < {size}")),
        "i32" => ("k < 0".to_string(), format!("u32(k) < {size}")),
        "u64" => ("false".to_string(), format!("k < u64({size})")),
        _ => ("k < 0li".to_string(), format!("k < i64({size})")),
    };
    format!("    let k = {load};\n    let inside = !({negative}) && ({end});\n    let at = select(0u, u32(k), inside);\n")
}

/// The shader that gathers elements of type `dtype` along an axis; views: x without the axis, index.
pub(crate) fn gather_wgsl(rank: usize, dtype: DType, index: DType) -> String {
    let (sizes, x, i) = (HEAD, HEAD + rank, HEAD + 2 * rank + 2);
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    text.push_str(&wide::input(1, "index", index));
    text.push_str(&wide::output(2, "out", dtype));
    text.push_str("@group(0) @binding(3) var<storage, read_write> fault: array<atomic<u32>>;\n");
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(text, "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}", generator::param(0));
    let views = [("a".to_string(), generator::param(x), x + 2), ("b".to_string(), generator::param(i), i + 1)];
    text.push_str(&wide::addresses(rank, "n", sizes, &views));
    text.push_str(&tested(index, &types::load(index, "index", "b")));
    let value = types::load(dtype, "source", "a");
    let _ = writeln!(
        text,
        "    if !inside {{ atomicMin(&fault[0], n); out[n] = {}; return; }}\n    a += at * {};\n    out[n] = {};\n}}",
        types::zero(wide::wide(dtype)),
        generator::param(x + 1),
        wide::widened(dtype, &value),
    );
    text
}

/// The shader that scatters; views over the result: x, and index and src without the axis.
pub(crate) fn scatter_wgsl(rank: usize, dtype: DType, index: DType, mode: ScatterMode) -> String {
    let (sizes, x, i, s) = (HEAD, HEAD + rank, HEAD + 2 * rank + 1, HEAD + 3 * rank + 3);
    let wide_type = wide::wide(dtype);
    let ty = types::value(wide_type);
    let best = |name: &str, sign: &str| match wide_type.is_float() {
        true => format!("{name}_{ty}(value, v)"),
        false => format!("select(v, value, value {sign} v)"),
    };
    let update = match mode {
        ScatterMode::Set => "v".to_string(),
        ScatterMode::Add => "value + v".to_string(),
        ScatterMode::Max => best("max", ">"),
        ScatterMode::Min => best("min", "<"),
    };
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    text.push_str(&wide::input(1, "index", index));
    text.push_str(&wide::input(2, "arrivals", dtype));
    text.push_str(&wide::output(3, "out", dtype));
    text.push_str("@group(0) @binding(4) var<storage, read_write> fault: array<atomic<u32>>;\n");
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(text, "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}", generator::param(0));
    let here = HEAD + 4 * rank + 5;
    let views = [
        ("a".to_string(), generator::param(x), x + 1),
        ("b".to_string(), generator::param(i), i + 2),
        ("c".to_string(), generator::param(s), s + 2),
        // The position along the axis, and what lies outside the part of x that index covers: sums of indices with weights of their own.
        ("here".to_string(), "0u".to_string(), here),
    ];
    text.push_str(&wide::addresses(rank, "n", sizes, &views));
    let _ = writeln!(text, "    var value = {};", wide::widened(dtype, &types::load(dtype, "source", "a")));
    // The other axes of index may be shorter than those of x.
    let _ = writeln!(text, "    var covered = true;\n    {{ var rest = n;");
    for axis in (0..rank).rev() {
        let (size, bound) = (generator::param(sizes + axis), generator::param(here + rank + axis));
        let _ = writeln!(text, "    covered = covered && rest % {size} < {bound}; rest = rest / {size};");
    }
    let _ = writeln!(text, "    }}\n    if covered {{\n    for (var r = 0u; r < {}; r++) {{", generator::param(2));
    text.push_str(&tested(index, &types::load(index, "index", "b")));
    let load = wide::widened(dtype, &types::load(dtype, "arrivals", "c"));
    let _ = writeln!(
        text,
        "    if !inside {{ atomicMin(&fault[0], r); }}\n    if inside && at == here {{ let v = {load}; value = {update}; }}\n    \
         b += {}; c += {};\n    }}\n    }}\n    out[n] = value;\n}}",
        generator::param(i + 1),
        generator::param(s + 1),
    );
    text
}

fn strides_without(layout: &Layout, axis: usize) -> Vec<isize> {
    layout.strides().iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
}

impl Wgpu {
    pub(crate) fn gather_along(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        let (dtype, rank) = (x.dtype(), index.ndim());
        self.require(dtype, "gather")?;
        self.require(index.dtype(), "gather")?;
        if self.is_large(x) || self.is_large(index) || self.exceeds(index.numel(), wide::wide(dtype)) {
            let shared = (0..rank).filter(|&a| a != axis).try_fold(x.clone(), |x, a| x.slice(a as isize, 0..index.shape()[a] as isize))?;
            let [y] = self
                .by_halves(&[index, &shared], axis, [dtype], index.shape()[axis], |parts, axis| Ok([self.gather_along(parts[1], axis, parts[0])?]))?;
            return Ok(y);
        }
        let out = self.allocate(index.numel(), wide::wide(dtype))?;
        let mut slot = Params::new();
        [index.numel(), x.shape()[axis], 0].into_iter().chain(index.shape().iter().copied()).for_each(|n| _ = slot.int(n as isize));
        slot.int(x.layout().offset() as isize);
        slot.int(x.layout().strides()[axis]);
        strides_without(x.layout(), axis).into_iter().for_each(|s| _ = slot.int(s));
        slot.int(index.layout().offset() as isize);
        index.layout().strides().iter().for_each(|&s| _ = slot.int(s));
        let fault = self.fault()?;
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("gather", [rank as u32, dtype as u32, index.dtype() as u32]),
                wgsl: &|| Ok(gather_wgsl(rank, dtype, index.dtype())),
            },
            inputs: &[self.part(x)?, self.part(index)?],
            outputs: &[self.whole(&out)?, fault],
            params: &slot,
            groups: self.fold(index.numel().div_ceil(THREADS) as u64)?,
        })?;
        self.found_outside(index, axis, x.shape())?;
        self.narrow(out, dtype, x)
    }

    pub(crate) fn scatter_along(&self, mode: ScatterMode, x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<StorageRef> {
        let (dtype, rank) = (x.dtype(), x.ndim());
        self.require(dtype, "scatter")?;
        self.require(index.dtype(), "scatter")?;
        let covers = (0..rank).all(|a| a == axis || index.shape()[a] == x.shape()[a]);
        if covers && ([x, index, src].iter().any(|x| self.is_large(x)) || self.exceeds(x.numel(), wide::wide(dtype))) {
            let run = |parts: &[&Tensor], axis: usize| Ok([self.scatter_along(mode, parts[0], axis, parts[1], parts[2])?]);
            let [y] = self.by_halves(&[x, index, src], axis, [dtype], x.shape()[axis], run)?;
            return Ok(y);
        }
        let out = self.allocate(x.numel(), wide::wide(dtype))?;
        let mut slot = Params::new();
        [x.numel(), x.shape()[axis], index.shape()[axis]].into_iter().chain(x.shape().iter().copied()).for_each(|n| _ = slot.int(n as isize));
        slot.int(x.layout().offset() as isize);
        x.layout().strides().iter().for_each(|&s| _ = slot.int(s));
        for view in [index, src] {
            slot.int(view.layout().offset() as isize);
            slot.int(view.layout().strides()[axis]);
            strides_without(view.layout(), axis).into_iter().for_each(|s| _ = slot.int(s));
        }
        (0..rank).for_each(|a| _ = slot.int((a == axis) as isize));
        (0..rank).for_each(|a| _ = slot.int(if a == axis { x.shape()[a] } else { index.shape()[a] } as isize));
        let fault = self.fault()?;
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("scatter", [rank as u32, dtype as u32, index.dtype() as u32, mode as u32]),
                wgsl: &|| Ok(scatter_wgsl(rank, dtype, index.dtype(), mode)),
            },
            inputs: &[self.part(x)?, self.part(index)?, self.part(src)?],
            outputs: &[self.whole(&out)?, fault],
            params: &slot,
            groups: self.fold(x.numel().div_ceil(THREADS) as u64)?,
        })?;
        self.found_outside(index, axis, x.shape())?;
        self.narrow(out, dtype, x)
    }

    /// The word where kernels note a position outside its axis.
    fn fault(&self) -> Result<Part<'_>> {
        let buffer = self.fault.get_or_init(|| {
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            let buffer =
                self.device.create_buffer(&wgpu::BufferDescriptor { label: Some("teeny fault"), size: 32, usage, mapped_at_creation: false });
            self.queue.write_buffer(&buffer, 0, &[0xff; 32]);
            buffer
        });
        Ok(Part { buffer, offset: 0, bytes: 32 })
    }

    /// Whether a position outside its axis was noted since the last time; forgets it.
    pub(crate) fn take_fault(&self) -> Result<bool> {
        let Some(buffer) = self.fault.get() else { return Ok(false) };
        let found = pollster::block_on(self.read_buffer(buffer, 0, 4, true))? != [0xff; 4];
        if found {
            self.queue.write_buffer(buffer, 0, &[0xff; 32]);
        }
        Ok(found)
    }

    /// With checked shaders: waits, and names the first position of `index` outside the axis.
    fn found_outside(&self, index: &Tensor, axis: usize, shape: &Shape) -> Result<()> {
        if self.shaders == Shaders::Trusted || !self.take_fault()? {
            return Ok(());
        }
        let size = shape[axis];
        let bytes =
            self.download_bytes(&Tensor::from_parts(self.packed(index)?, Layout::contiguous(*index.shape()), index.dtype(), index.device().clone()))?;
        for (flat, bytes) in bytes.chunks(index.dtype().size()).enumerate() {
            let mut word = [if index.dtype().is_signed_int() && bytes[bytes.len() - 1] > 127 { 0xff } else { 0 }; 16];
            word[..bytes.len()].copy_from_slice(bytes);
            let position = i128::from_le_bytes(word);
            if position < 0 || position >= size as i128 {
                let mut place = vec![0; index.ndim()];
                let mut rest = flat;
                for a in (0..index.ndim()).rev() {
                    place[a] = rest % index.shape()[a];
                    rest /= index.shape()[a];
                }
                return Err(Error::index(format!("index{place:?} is {position}, but axis {axis} of {shape} has size {size}")));
            }
        }
        Ok(())
    }

    /// The error of a position outside its axis that was not reported by the call itself.
    pub(crate) fn check_fault(&self) -> Result<()> {
        match self.take_fault()? {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Index, "a gather or scatter since the last synchronize had a position outside its axis")
                .hint("run with TEENY_WGPU_CHECKED=1 to get the error from the call that made it")),
        }
    }
}
