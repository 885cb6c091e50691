//! The shader of one kernel on many small tensors; see `shaders/elementwise_many.wgsl`.

use crate::codegen::elementwise::THREADS;
use crate::codegen::generator::Generator;
use crate::codegen::params::Declaration;
use crate::codegen::shader::shader;
use crate::codegen::types;
use std::fmt::Write;
use teeny_core::{DType, Kernel, Result};

/// Everything that the shader's text depends on, apart from the kernel.
#[derive(Clone, Debug)]
pub(crate) struct ElementwiseManyPlan {
    /// The elements that a thread computes: [`types::LANES`] or [`types::OCTET`].
    pub lanes: usize,
    /// For each input that the kernel reads: the binding of each piece.
    pub inputs: Vec<Vec<usize>>,
    /// The types of the buffers that are written, each once, after the buffers that are read.
    pub written: Vec<DType>,
}

impl ElementwiseManyPlan {
    /// The plan as the variant of a [`crate::device::launch::Key`].
    pub fn variant(&self) -> Vec<u32> {
        let bindings = self.inputs.iter().flatten().map(|&binding| binding as u32);
        [self.lanes as u32, self.pieces() as u32].into_iter().chain(bindings).collect()
    }

    fn pieces(&self) -> usize {
        self.inputs.first().map_or(0, Vec::len)
    }

    fn read(&self) -> usize {
        self.inputs.iter().flatten().map(|binding| binding + 1).max().unwrap_or(0)
    }

    /// The parameters except the kernel's scalars: of each piece its first workgroup, its groups of
    /// elements, and where they begin in each input and output.
    fn declaration(&self, outputs: usize) -> Declaration {
        let mut params = Declaration::default();
        for p in 0..self.pieces() {
            params.member(&format!("first_{p}"), "u32");
            params.member(&format!("groups_{p}"), "u32");
            (0..self.inputs.len()).for_each(|k| params.member(&format!("offset_{k}_{p}"), "u32"));
            (0..outputs).for_each(|k| params.member(&format!("into_{k}_{p}"), "u32"));
        }
        params
    }

    /// The shader.
    ///
    /// # Errors
    /// If an operation does not exist on the GPU for its type.
    pub fn wgsl(&self, kernel: &Kernel) -> Result<String> {
        let outputs = kernel.outputs().len();
        let mut params = self.declaration(outputs);
        let compute = Generator::new(kernel, (1 << outputs) - 1, &mut params)?;
        let types: Vec<DType> = compute.inputs.iter().map(|&i| kernel.inputs()[i]).collect();
        let mut bindings = String::new();
        for binding in 0..self.read() {
            let owner = self.inputs.iter().position(|of| of.contains(&binding)).unwrap_or_default();
            let ty = types::group(types[owner], self.lanes);
            let _ = writeln!(
                bindings,
                "@group(0) @binding({binding}) var<storage, read> in{binding}: array<{ty}>;"
            );
        }
        for (k, &dtype) in self.written.iter().enumerate() {
            let (binding, ty) = (self.read() + k, types::group(dtype, self.lanes));
            let _ = writeln!(
                bindings,
                "@group(0) @binding({binding}) var<storage, read_write> out{k}: array<{ty}>;"
            );
        }
        let (mut loads, mut stores) = (String::new(), String::new());
        let lanes: Vec<_> =
            types.iter().enumerate().map(|(k, &dtype)| self.load(k, dtype, &mut loads)).collect();
        for i in 0..outputs {
            let dtype = kernel.output_dtype(i);
            let out = self.written.iter().position(|&t| t == dtype).unwrap_or_default();
            let y: Vec<String> = (0..self.lanes).map(|lane| format!("y{lane}.y{i}")).collect();
            let (array, place) = (format!("out{out}"), format!("t + into{i}"));
            let store = types::store_group(dtype, &array, &place, &y);
            let _ = writeln!(stores, "    {store}");
        }
        let arguments = (0..self.lanes)
            .map(|lane| lanes.iter().map(|of| of[lane].as_str()).collect::<Vec<_>>().join(", "));
        shader!("elementwise_many")
            .params(&params)
            .text("bindings", bindings)
            .text("compute", compute.text)
            .text("loads", loads)
            .text("stores", stores)
            .list("arguments", arguments)
            .number("threads", THREADS)
            .number("lanes", self.lanes)
            .number("pieces", self.pieces())
            .number("inputs", self.inputs.len())
            .number("outputs", outputs)
            .render()
    }

    /// Appends the load of a group of elements of input `k`; their values.
    fn load(&self, k: usize, dtype: DType, text: &mut String) -> Vec<String> {
        let of = &self.inputs[k];
        let (name, place) = (format!("g{k}"), format!("t + offset{k}"));
        let array = format!("in{}", of[0]);
        let (statement, values) = types::load_group(dtype, self.lanes, &array, &place, &name);
        if of.iter().all(|binding| *binding == of[0]) {
            let _ = writeln!(text, "    {statement}");
            return values;
        }
        let ty = types::group(dtype, self.lanes);
        let _ = writeln!(text, "    var {name}: {ty};\n    switch piece {{");
        for binding in 0..self.read() {
            let pieces: Vec<String> = (0..of.len())
                .filter(|&p| of[p] == binding)
                .map(|piece| format!("{piece}u"))
                .collect();
            if !pieces.is_empty() {
                let pieces = pieces.join(", ");
                let _ =
                    writeln!(text, "        case {pieces}: {{ {name} = in{binding}[{place}]; }}");
            }
        }
        let _ = writeln!(text, "        default: {{}}\n    }}");
        values
    }
}
