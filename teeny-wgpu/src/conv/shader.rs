//! The text of the convolution kernels: how k, rows and columns turn into places in the images.
//! Strides and geometry are words of the parameter slot.

use super::{Kind, Way};
use crate::generator::{self, types};
use crate::matmul::{HEAD, template};
use crate::wide;
use std::fmt::Write;
use teeny_core::DType;

/// Threads of a workgroup where each makes one result.
pub(super) const THREADS: usize = 64;

/// The words of a convolution over `ndim` spatial axes, behind the head that all products have.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    pub ndim: usize,
}

impl Geometry {
    pub fn of(ndim: usize) -> Geometry {
        Geometry { ndim }
    }

    fn word(self, at: usize) -> String {
        generator::param(HEAD + at)
    }

    /// The stride of the left operand along its axis.
    fn left(self, axis: usize) -> String {
        self.word(axis)
    }

    /// The stride of the right operand along its axis.
    fn right(self, axis: usize) -> String {
        self.word(2 + self.ndim + axis)
    }

    /// List 0: sizes of x, 1: of the result, 2: of the kernel, 3: stride, 4: padding, 5: dilation;
    /// for a spatial axis.
    fn list(self, list: usize, axis: usize) -> String {
        self.word(2 * (2 + self.ndim) + list * self.ndim + axis)
    }

    /// Channels of a group: of x, of the result.
    fn channels(self, result: bool) -> String {
        self.word(2 * (2 + self.ndim) + 6 * self.ndim + result as usize)
    }

    /// Statements that take the number `rest` apart into indices `i0, i1, ..` over the sizes of
    /// `list`; `rest` keeps what is left in front.
    fn apart(self, list: usize) -> String {
        (0..self.ndim).rev().fold(String::new(), |mut text, axis| {
            let size = self.list(list, axis);
            let _ = writeln!(text, "    let i{axis} = rest % {size};\n    rest = rest / {size};");
            text
        })
    }

    /// The sum over the spatial axes of index times stride.
    fn sum(self, strides: impl Fn(usize) -> String) -> String {
        (0..self.ndim)
            .map(|axis| format!("i{axis} * {}", strides(axis)))
            .collect::<Vec<_>>()
            .join(" + ")
    }

    /// The product of the sizes of a list.
    fn product(self, list: usize) -> String {
        (0..self.ndim).map(|axis| self.list(list, axis)).collect::<Vec<_>>().join(" * ")
    }
}

/// The functions that know the images. A column and a k are taken apart once; together they name an
/// element of the right operand.
fn operands(kind: Kind, ndim: usize, dtype: DType) -> String {
    let geometry = Geometry::of(ndim);
    let value = types::value(wide::wide(dtype));
    let zero = types::zero(wide::wide(dtype));
    let at = |set: &str| (0..ndim).map(|axis| format!(" {set}{axis}: i32,")).collect::<String>();
    let mut text = String::new();
    let _ = writeln!(
        text,
        "struct Column {{ base: u32,{} }}\nstruct Inner {{ left: u32, right: u32,{} }}\nvar<private> unit_group: u32;",
        at("a"),
        at("a")
    );
    let (inputs, outputs) = (geometry.channels(false), geometry.channels(true));
    let (left, right) = (|axis| geometry.left(axis), |axis| geometry.right(axis));
    let each = |f: &dyn Fn(usize) -> String| {
        (0..ndim).map(|axis| format!(", {}", f(axis))).collect::<String>()
    };
    let from_place = |axis: usize| {
        format!("i32(i{axis} * {}) - i32({})", geometry.list(3, axis), geometry.list(4, axis))
    };
    let step = |axis: usize| format!("i32(i{axis} * {})", geometry.list(5, axis));
    let offset = generator::param(8);
    // What a column is, what a k is; rows of the left operand and of the result.
    let (column, inner, row, channels) = match kind {
        Kind::Forward => (
            format!(
                "{}    return Column({offset} + rest * {}{});",
                geometry.apart(1),
                right(0),
                each(&from_place)
            ),
            format!(
                "{}    return Inner(rest * {} + {}, (unit_group * {inputs} + rest) * {}{});",
                geometry.apart(2),
                left(1),
                geometry.sum(|axis| left(2 + axis)),
                right(1),
                each(&step)
            ),
            format!("(unit_group * {outputs} + row) * {}", left(0)),
            outputs.clone(),
        ),
        Kind::InputGrad => (
            format!(
                "{}    return Column({offset} + rest * {}{});",
                geometry.apart(0),
                right(0),
                each(&|axis| format!("i32(i{axis} + {})", geometry.list(4, axis)))
            ),
            format!(
                "{}    return Inner((unit_group * {outputs} + rest) * {} + {}, (unit_group * {outputs} + rest) * {}{});",
                geometry.apart(2),
                left(0),
                geometry.sum(|axis| left(2 + axis)),
                right(1),
                each(&step)
            ),
            format!("row * {}", left(1)),
            inputs.clone(),
        ),
        Kind::WeightGrad => (
            format!(
                "{}    return Column({offset} + (unit_group * {inputs} + rest) * {}{});",
                geometry.apart(2),
                right(1),
                each(&|axis| format!("{} - i32({})", step(axis), geometry.list(4, axis)))
            ),
            format!(
                "{}    return Inner(rest * {} + {}, rest * {}{});",
                geometry.apart(1),
                left(0),
                geometry.sum(|axis| left(2 + axis)),
                right(0),
                each(&|axis| format!("i32(i{axis} * {})", geometry.list(3, axis)))
            ),
            format!("(unit_group * {outputs} + row) * {}", left(1)),
            outputs.clone(),
        ),
    };
    let _ = writeln!(
        text,
        "fn column_of(column: u32) -> Column {{\n    var rest = column;\n{column}\n}}"
    );
    let _ = writeln!(text, "fn inner_of(k: u32) -> Inner {{\n    var rest = k;\n{inner}\n}}");
    let _ = writeln!(
        text,
        "fn left_at(row: u32, k: Inner) -> {value} {{\n    let p = {} + {row} + k.left;\n    return {};\n}}",
        generator::param(7),
        types::load(dtype, "lhs", "p")
    );
    let _ = writeln!(
        text,
        "fn right_at(k: Inner, column: Column) -> {value} {{\n    var p = column.base + k.right;"
    );
    for axis in 0..ndim {
        let (size, stride) =
            (geometry.list(if kind == Kind::InputGrad { 1 } else { 0 }, axis), right(2 + axis));
        match kind {
            Kind::InputGrad => {
                // A pixel meets a place only where the step between them is a whole number of
                // strides.
                let step = geometry.list(3, axis);
                let _ = writeln!(
                    text,
                    "    let h{axis} = column.a{axis} - k.a{axis};\n    let q{axis} = u32(max(h{axis}, 0)) / {step};\n    \
                     if h{axis} < 0 || q{axis} * {step} != u32(h{axis}) || q{axis} >= {size} {{ return {zero}; }}\n    p += q{axis} * {stride};"
                );
            }
            Kind::Forward | Kind::WeightGrad => {
                let _ = writeln!(
                    text,
                    "    let h{axis} = column.a{axis} + k.a{axis};\n    if h{axis} < 0 || h{axis} >= i32({size}) {{ return {zero}; }}\n    \
                     p += u32(h{axis}) * {stride};"
                );
            }
        }
    }
    let _ = writeln!(text, "    return {};\n}}", types::load(dtype, "rhs", "p"));
    // Where a result goes: the images of the result lie behind each other, its channels within
    // them.
    match kind {
        Kind::WeightGrad => {
            let columns = generator::param(2);
            let _ = writeln!(
                text,
                "fn row_part(matrix: u32, row: u32) -> u32 {{ return (matrix * {channels} + row) * {columns}; }}"
            );
            text.push_str("fn column_part(column: u32) -> u32 { return column; }\n");
        }
        Kind::Forward | Kind::InputGrad => {
            let (places, groups) =
                (geometry.product(if kind == Kind::Forward { 1 } else { 0 }), generator::param(9));
            let _ = writeln!(
                text,
                "fn row_part(matrix: u32, row: u32) -> u32 {{ return (matrix * {channels} + row) * ({places}); }}"
            );
            let _ = writeln!(
                text,
                "fn column_part(column: u32) -> u32 {{\n    let places = {places};\n    \
                 return column / places * ({groups} * {channels} * places) + column % places;\n}}"
            );
        }
    }
    text
}

/// The shader over `ndim` spatial axes.
pub(crate) fn wgsl(kind: Kind, way: Way, ndim: usize, dtype: DType) -> String {
    let value = types::value(wide::wide(dtype));
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "lhs", dtype));
    text.push_str(&wide::input(1, "rhs", dtype));
    text.push_str(&wide::output(2, "out", dtype));
    let mut operands = operands(kind, ndim, dtype);
    let (rows, inner, columns) = (generator::param(0), generator::param(1), generator::param(2));
    match way {
        Way::Tiled(tile) => {
            // Left: four rows at one k. Right: four columns, taken apart before the loop, at one k.
            // What each k is lies in workgroup memory, for this step of the loop and the next.
            let depth = tile.depth();
            let _ = writeln!(
                operands,
                "var<workgroup> steps: array<Inner, {}>;\nvar<private> slice_low: u32;",
                2 * depth
            );
            let _ = writeln!(
                operands,
                "fn step_of(k: u32) -> u32 {{ return (k - slice_low) % {}u; }}",
                2 * depth
            );
            for i in 0..4 {
                let _ = writeln!(operands, "var<private> held{i}: Column;");
            }
            let (left_k, left_quad) = tile.left_slot(false);
            let (right_k, right_quad) = tile.right_slot(true);
            let lanes = ["x", "y", "z", "w"];
            let left: Vec<String> = (0..4)
                .map(|i| {
                    format!(
                        "    if at + {i}u < {rows} {{ v.{} = left_at(at + {i}u, k); }}\n",
                        lanes[i]
                    )
                })
                .collect();
            let right: Vec<String> = (0..4)
                .map(|i| {
                    format!(
                        "    if at + {i}u < {columns} {{ v.{} = right_at(k, held{i}); }}\n",
                        lanes[i]
                    )
                })
                .collect();
            for (name, k, quad, most, body) in [
                ("left", left_k, left_quad, tile.tall() / 4, left.concat()),
                ("right", right_k, right_quad.clone(), tile.wide() / 4, right.concat()),
            ] {
                let _ = writeln!(
                    operands,
                    "fn fetch_{name}(start: u32, k0: u32, end: u32, thread: u32) -> vec4<{value}> {{\n    let number = k0 + {k};\n    \
                     let at = start + 4u * ({quad});\n    var v = vec4<{value}>();\n    if number >= end || {quad} >= {most}u {{ return v; }}\n    \
                     let k = steps[step_of(number)];\n{body}    return v;\n}}"
                );
            }
            let mut setup = "    unit_group = matrix;\n    slice_low = low;\n".to_string();
            for i in 0..4 {
                let _ = writeln!(
                    setup,
                    "    held{i} = column_of(column0 + 4u * ({right_quad}) + {i}u);"
                );
            }
            let _ = writeln!(
                setup,
                "    if thread < {0}u {{ steps[thread] = inner_of(low + thread); }}\n    workgroupBarrier();",
                2 * depth
            );
            let ahead = format!(
                "        if thread < {depth}u {{ let later = k0 + {}u + thread; steps[step_of(later)] = inner_of(later); }}",
                2 * depth
            );
            text.push_str(&template(tile, value, &operands, [&setup, &ahead], [false, true]));
        }
        Way::Single => {
            text.push_str(&operands);
            text.push_str(&wide::main(THREADS));
            let groups = generator::param(9);
            let _ = writeln!(
                text,
                "    let n = unit * {THREADS}u + thread;\n    if n >= {groups} * {rows} * {columns} {{ return; }}\n    let line = n / {columns};\n    \
                 unit_group = line / {rows};\n    let row = line % {rows};\n    let column = column_of(n % {columns});\n    var sum = {value}(0);\n    \
                 for (var number = 0u; number < {inner}; number += 1u) {{\n        let k = inner_of(number);\n        \
                 sum += left_at(row, k) * right_at(k, column);\n    }}\n    out[row_part(unit_group, row) + column_part(n % {columns})] = sum;\n}}"
            );
        }
    }
    text
}
