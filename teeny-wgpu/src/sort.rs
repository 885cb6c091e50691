//! Stable sorting by ranks: each element counts how many precede it and goes there. First within
//! blocks of 256, then two sorted runs become one, each element finding its place in the other run
//! by bisection, until one run is the line.
//!
//! No two threads write one place and nothing is exchanged, so the result does not depend on
//! timing. Elements travel with their former positions, which decide between equals.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Layout, Result, StorageRef, Tensor};

const THREADS: usize = 128;
/// Elements that are sorted by counting.
const BLOCK: usize = 256;
/// Words 0..: elements, length of a line, then what each shader needs.
const HEAD: usize = 4;

/// `less(a, b)`: whether a belongs before b, positions left out. NaN is the largest.
fn order(dtype: DType, descending: bool) -> String {
    let ty = types::value(wide::wide(dtype));
    let body = if wide::wide(dtype).is_float() {
        format!(
            "if is_nan_{ty}(x) {{ return false; }} if is_nan_{ty}(y) {{ return true; }} return x < y;"
        )
    } else {
        "return x < y;".to_string()
    };
    let (x, y) = if descending { ("b", "a") } else { ("a", "b") };
    format!("fn less(a: {ty}, b: {ty}) -> bool {{ let x = {x}; let y = {y}; {body} }}\n")
}

/// Blocks of lines of x, sorted, with their positions; views over the lines: x.
pub(crate) fn block_wgsl(rank: usize, dtype: DType, descending: bool) -> String {
    let ty = types::value(wide::wide(dtype));
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    text.push_str(&wide::output(1, "values", dtype));
    text.push_str("@group(0) @binding(2) var<storage, read_write> places: array<i32>;\n");
    text.push_str(&order(dtype, descending));
    let load = wide::widened(dtype, &types::load(dtype, "source", "p"));
    let (length, step) = (generator::param(1), generator::param(2));
    let _ = writeln!(
        text,
        "fn element(a: u32, r: u32) -> {ty} {{ let p = a + r * {step}; return {load}; }}"
    );
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(
        text,
        "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}",
        generator::param(0)
    );
    let _ = writeln!(text, "    let line = n / {length}; let r = n % {length};");
    let x = HEAD + rank;
    text.push_str(&wide::addresses(
        rank,
        "line",
        HEAD,
        &[("a".to_string(), generator::param(x), x + 1)],
    ));
    let _ = writeln!(
        text,
        "    let low = r / {BLOCK}u * {BLOCK}u;\n    let high = min(low + {BLOCK}u, {length});\n    let mine = element(a, r);\n    var before = 0u;\n    \
         for (var i = low; i < high; i++) {{\n        let other = element(a, i);\n        \
         if less(other, mine) || (i < r && !less(mine, other)) {{ before += 1u; }}\n    }}\n    let to = line * {length} + low + before;\n    \
         values[to] = mine;\n    places[to] = i32(r);\n}}"
    );
    text
}

/// Pairs of sorted runs of `width` elements become runs of twice that.
pub(crate) fn merge_wgsl(dtype: DType, descending: bool) -> String {
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "values", wide::wide(dtype)));
    text.push_str(&wide::input(1, "places", DType::I32));
    text.push_str(&wide::output(2, "new_values", dtype));
    text.push_str("@group(0) @binding(3) var<storage, read_write> new_places: array<i32>;\n");
    text.push_str(&order(dtype, descending));
    text.push_str(&wide::main(THREADS));
    let (length, width) = (generator::param(1), generator::param(2));
    let _ = writeln!(
        text,
        "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}\n    let base = n / {length} * {length};\n    let r = n - base;\n    \
         let width = {width};\n    let pair = r / (2u * width) * (2u * width);\n    let middle = min(pair + width, {length});\n    \
         let left = r < middle;\n    let mine = values[n];\n    var low = select(pair, middle, left);\n    \
         var high = select(middle, min(pair + 2u * width, {length}), left);\n    let start = low;\n    \
         // Of equals those of the left run come first: it counts the smaller ones on the right, the
         // right run also the equal ones on the left.\n \
         while low < high {{\n        let half = (low + high) / 2u;\n        let other = values[base + half];\n        \
         let precedes = select(!less(mine, other), less(other, mine), left);\n        \
         if precedes {{ low = half + 1u; }} else {{ high = half; }}\n    }}\n    let own = select(r - middle, r - pair, left);\n    \
         let to = base + pair + own + (low - start);\n    new_values[to] = mine;\n    new_places[to] = places[n];\n}}",
        generator::param(0)
    );
    text
}

impl Wgpu {
    pub(crate) fn sort_along(
        &self,
        x: &Tensor,
        axis: usize,
        descending: bool,
    ) -> Result<(StorageRef, StorageRef)> {
        let dtype = x.dtype();
        self.require(dtype, "sorting")?;
        let (numel, length) = (x.numel(), x.shape()[axis]);
        if self.is_large(x)
            || self.exceeds(numel, wide::wide(dtype))
            || self.exceeds(numel, DType::I32)
        {
            let types = [dtype, DType::I32];
            let [values, places] = self.by_halves(&[x], axis, types, length, |parts, axis| {
                let (values, places) = self.sort_along(parts[0], axis, descending)?;
                Ok([values, places])
            })?;
            return Ok((values, places));
        }
        let fresh = || {
            Ok::<_, teeny_core::Error>((
                self.allocate(numel, wide::wide(dtype))?,
                self.allocate(numel, DType::I32)?,
            ))
        };
        let (mut values, mut places) = fresh()?;
        if numel == 0 {
            return Ok((self.narrow(values, dtype, x)?, places));
        }
        let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
        let walk = Walk::over(x.shape(), &[x.layout()], &others)?.padded();
        let rank = walk.sizes.len();
        let mut slot = Params::new();
        slot.counts(&[numel, length]);
        slot.strides(&[x.layout().strides()[axis], 0]);
        slot.counts(&walk.sizes);
        slot.int(x.layout().offset() as isize);
        slot.strides(&walk.strides[0]);
        let groups = self.fold(numel.div_ceil(THREADS) as u64)?;
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("sort block", [rank as u32, dtype as u32, descending as u32]),
                wgsl: &|| Ok(block_wgsl(rank, dtype, descending)),
            },
            inputs: &[self.part(x)?],
            outputs: &[self.whole(&values)?, self.whole(&places)?],
            params: &slot,
            groups,
        })?;
        let mut width = BLOCK;
        while width < length {
            let (new_values, new_places) = fresh()?;
            let mut slot = Params::new();
            slot.counts(&[numel, length, width, 0]);
            self.dispatch(&Launch {
                program: Program {
                    key: Key::new("sort merge", [wide::wide(dtype) as u32, descending as u32]),
                    wgsl: &|| Ok(merge_wgsl(dtype, descending)),
                },
                inputs: &[self.whole(&values)?, self.whole(&places)?],
                outputs: &[self.whole(&new_values)?, self.whole(&new_places)?],
                params: &slot,
                groups,
            })?;
            (values, places) = (new_values, new_places);
            width *= 2;
        }
        // Lines lie one after another here; back to the axis they came from.
        let order: Vec<usize> = others.iter().copied().chain([axis]).collect();
        let sizes: Vec<usize> = order.iter().map(|&a| x.shape()[a]).collect();
        let lines = Layout::contiguous(teeny_core::Shape::new(&sizes)?);
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(i, &a)| back[a] = i);
        let view = |storage: StorageRef, dtype: DType| {
            Tensor::from_parts(storage, lines.permute(&back), dtype, x.device().clone())
        };
        let straight = axis + 1 == x.ndim();
        let values = self.narrow(values, dtype, x)?;
        if straight {
            return Ok((values, places));
        }
        Ok((self.packed(&view(values, dtype)?)?, self.packed(&view(places, DType::I32)?)?))
    }
}
