//! Elementwise shaders: a [`Kernel`] with the loads and stores for the layout of its operands.
//!
//! | access     | when                                        | the shader reads                  |
//! |------------|---------------------------------------------|-----------------------------------|
//! | scalar     | all strides 0                               | one element                       |
//! | whole      | row-major, from its binding's beginning on  | a group of elements: a vector     |
//! | group      | row-major, begins at a whole group          | the same, from an offset on       |
//! | row group  | rows are: a row for all rows, a wider array | the same, found by coordinates    |
//! | row scalar | one element for a row: a column             | one element, found by coordinates |
//! | strided    | otherwise                                   | elements one by one               |
//!
//! A thread computes one group: four elements, or eight. Coordinates refer to the merged axes. Rows
//! of the result are whole groups for the two accesses that are named after them.

use crate::codegen::generator::Generator;
use crate::codegen::params::Declaration;
use crate::codegen::shader::shader;
use crate::codegen::types;
use std::fmt::Write;
use teeny_core::{Kernel, Result};

/// Threads of a workgroup.
pub(crate) const THREADS: usize = 128;

/// How a shader finds the elements of an input; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Scalar = 0,
    Group = 1,
    Strided = 2,
    RowGroup = 3,
    RowScalar = 4,
    Whole = 5,
}

impl Access {
    /// All of them.
    #[cfg(test)]
    pub const ALL: [Access; 6] = [
        Access::Scalar,
        Access::Group,
        Access::Strided,
        Access::RowGroup,
        Access::RowScalar,
        Access::Whole,
    ];

    /// Whether the place of an element follows from its coordinates.
    pub fn has_strides(self) -> bool {
        matches!(self, Access::Strided | Access::RowGroup | Access::RowScalar)
    }
}

/// Everything that the text of a shader depends on, apart from the kernel.
#[derive(Clone, Debug)]
pub(crate) struct ElementwisePlan {
    /// The outputs that are computed, as a bit set.
    pub outputs: u32,
    /// The elements that a thread computes: [`types::LANES`] or [`types::OCTET`].
    pub lanes: usize,
    /// The merged axes, if any input is found by coordinates.
    pub axes: usize,
    /// For each input that these outputs need: its access and its binding.
    pub inputs: Vec<(Access, usize)>,
}

impl ElementwisePlan {
    /// The plan as the variant of a [`crate::device::launch::Key`].
    pub fn variant(&self) -> Vec<u32> {
        let inputs =
            self.inputs.iter().map(|&(access, binding)| (binding as u32) << 8 | access as u32);
        [self.outputs, self.lanes as u32, self.axes as u32].into_iter().chain(inputs).collect()
    }

    fn bindings(&self) -> usize {
        self.inputs.iter().map(|i| i.1 + 1).max().unwrap_or(0)
    }

    /// The parameters except the kernel's scalars: end and start of the range, all but the first
    /// size, and of each input offset and strides.
    fn declaration(&self) -> Declaration {
        let mut params = Declaration::default();
        params.member("end", "u32");
        params.member("start", "u32");
        (1..self.axes).for_each(|axis| params.member(&format!("sizes_{axis}"), "u32"));
        for (k, (access, _)) in self.inputs.iter().enumerate() {
            if *access != Access::Whole {
                params.member(&format!("offset_{k}"), "u32");
            }
            if access.has_strides() {
                (0..self.axes)
                    .for_each(|axis| params.member(&format!("strides_{k}_{axis}"), "u32"));
            }
        }
        params
    }

    /// The shader.
    ///
    /// # Errors
    /// If an operation does not exist on the GPU for its type.
    pub fn wgsl(&self, kernel: &Kernel) -> Result<String> {
        let mut params = self.declaration();
        let compute = Generator::new(kernel, self.outputs, &mut params)?;
        let mut bindings = String::new();
        for binding in 0..self.bindings() {
            // A binding shared by several inputs is read by elements; they have one type.
            let owner = self.inputs.iter().position(|i| i.1 == binding).unwrap_or_default();
            let dtype = kernel.inputs()[compute.inputs[owner]];
            let ty = match self.inputs[owner].0 {
                Access::Whole | Access::Group | Access::RowGroup => types::group(dtype, self.lanes),
                Access::Scalar | Access::Strided | Access::RowScalar => types::word(dtype),
            };
            let _ = writeln!(
                bindings,
                "@group(0) @binding({binding}) var<storage, read> in{binding}: array<{ty}>;"
            );
        }
        let outputs: Vec<usize> =
            (0..kernel.outputs().len()).filter(|i| self.outputs >> i & 1 == 1).collect();
        let mut stores = String::new();
        for (k, &i) in outputs.iter().enumerate() {
            let (binding, dtype) = (self.bindings() + k, kernel.output_dtype(i));
            let ty = types::group(dtype, self.lanes);
            let _ = writeln!(
                bindings,
                "@group(0) @binding({binding}) var<storage, read_write> out{i}: array<{ty}>;"
            );
            let y: Vec<String> = (0..self.lanes).map(|lane| format!("y{lane}.y{i}")).collect();
            let store = types::store_group(dtype, &format!("out{i}"), "t", &y);
            let _ = writeln!(stores, "    {store}");
        }
        let (loads, values) = self.loads(kernel, &compute.inputs);
        let arguments = (0..self.lanes)
            .map(|lane| values.iter().map(|v| v[lane].as_str()).collect::<Vec<_>>().join(", "));
        shader!("elementwise")
            .params(&params)
            .text("bindings", bindings)
            .text("compute", compute.text)
            .text("loads", loads)
            .text("stores", stores)
            .list("arguments", arguments)
            .number("threads", THREADS)
            .number("axes", self.axes)
            .number("lanes", self.lanes)
            .number("found", self.coordinates())
            .flag("strided", self.axes > 0)
            .render()
    }

    /// The lanes whose coordinates are computed.
    fn coordinates(&self) -> usize {
        let each = self.inputs.iter().any(|i| i.0 == Access::Strided);
        if each { self.lanes } else { 1 }
    }

    /// The address of the element of `lane` in input number `k`.
    fn address(&self, k: usize, lane: usize) -> String {
        (0..self.axes).fold(format!("params.offset_{k}"), |sum, axis| {
            format!("{sum} + c{axis}_{lane} * params.strides_{k}_{axis}")
        })
    }

    /// The loads of all inputs, and the names of their values, per lane.
    fn loads(&self, kernel: &Kernel, inputs: &[usize]) -> (String, Vec<Vec<String>>) {
        let mut text = String::new();
        let mut values = Vec::new();
        for (k, (&(access, binding), &input)) in self.inputs.iter().zip(inputs).enumerate() {
            let (dtype, array) = (kernel.inputs()[input], format!("in{binding}"));
            let offset = format!("params.offset_{k}");
            let names: Vec<String> =
                (0..self.lanes).map(|lane| format!("a{input}_{lane}")).collect();
            match access {
                Access::Scalar | Access::RowScalar => {
                    let load = types::load(dtype, &array, &format!("o{input}"));
                    let address = match access {
                        Access::RowScalar => self.address(k, 0),
                        _ => offset,
                    };
                    let _ = writeln!(text, "    let o{input} = {address};");
                    let _ = writeln!(text, "    let a{input} = {load};");
                    values.push(vec![format!("a{input}"); self.lanes]);
                    continue;
                }
                Access::Whole | Access::Group | Access::RowGroup => {
                    let (g, word) = (format!("g{input}"), format!("w{input}"));
                    let (load, lanes) = types::load_group(dtype, self.lanes, &array, &g, &word);
                    let group = match access {
                        Access::RowGroup => format!("({}) / {}u", self.address(k, 0), self.lanes),
                        Access::Group => format!("i0 / {}u + {offset}", self.lanes),
                        _ => "t".to_string(),
                    };
                    let _ = writeln!(text, "    let {g} = {group};\n    {load}");
                    for (name, lane) in names.iter().zip(&lanes) {
                        let _ = writeln!(text, "    let {name} = {lane};");
                    }
                }
                Access::Strided => {
                    for (lane, name) in names.iter().enumerate() {
                        let address = self.address(k, lane);
                        let load = types::load(dtype, &array, &format!("p{input}_{lane}"));
                        let _ = writeln!(text, "    let p{input}_{lane} = {address};");
                        let _ = writeln!(text, "    let {name} = {load};");
                    }
                }
            }
            values.push(names);
        }
        (text, values)
    }
}
