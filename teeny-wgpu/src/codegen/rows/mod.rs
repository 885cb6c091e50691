//! The shader of a row program: `rows.wgsl`, filled for a program, the access of its inputs and the
//! mapping of rows to threads. Independent of tensors.
//!
//! The elements of level `l` are the function `level{l}` of single elements and values of the row,
//! which returns the values that are folded, stored, or needed by later levels where the row stays
//! in registers. Values of the row are variables of `main`, between the levels. Where all elements
//! are computed in f32 by operations that vectors have, `level{l}` takes and returns four at once.
//!
//! `plan` holds the choices that the text depends on besides the program, `reads` the properties of
//! the program alone, `body` the text of its levels.

mod body;
mod plan;
mod reads;

use crate::codegen::generator::Scalars;
use crate::codegen::shader::{Shader, Start, shader};
use crate::codegen::types::{self, LANES};
use body::{Body, Text};
pub(crate) use plan::{Access, AtParams, RowsParams, RowsPlan};
use reads::has_quads;
pub(crate) use reads::{
    Reads, element_operations, folds_by_subgroups, is_supported, lengths_of, visits,
};
use teeny_core::{DType, Kernel, Result};

impl RowsPlan {
    /// The shader. `axis_position` is the function of that name for indices of a type, with its
    /// binding.
    ///
    /// # Errors
    /// As [`crate::codegen::shader::Shader::render`].
    pub fn wgsl(
        &self,
        program: &Kernel,
        axis_position: fn(usize, DType) -> Shader,
    ) -> Result<String> {
        let mut params = RowsParams::declaration(self.kept, self.along);
        let reads = Reads::of(program);
        if reads.position.is_some() {
            params.append(AtParams::declaration());
        }
        let mut views: Vec<String> = reads.inputs.iter().map(|i| format!("x{i}")).collect();
        for name in &views {
            self.declare_view(name, true, &mut params);
        }
        if reads.has_element_outputs {
            views.push("y".to_string());
            self.declare_view("y", false, &mut params);
        }
        let scalars = Scalars::new(program, &mut params);
        let mut lengths = vec![String::new(); program.nodes().len()];
        for (id, dtype) in lengths_of(program) {
            lengths[id] = params.number(&format!("length_{id}"), dtype);
        }
        let extents = program.extents();
        let by_quads = self.lanes == LANES && has_quads(program, &extents);
        let levels = program.levels();
        let text = Text { plan: self, program, levels, extents, by_quads, scalars, lengths };
        let Body { functions, body, row_stores } = text.body()?;
        let starts = |start: Start| -> Vec<(&str, Start)> {
            let start_of = |name: &str| if name == "y" { Start::Zero } else { start };
            views.iter().map(|name| (name.as_str(), start_of(name))).collect()
        };
        let (kept, along) = (starts(Start::Offset), starts(Start::Zero));
        let mut shader = shader!("rows").params(&params);
        for (&i, &access) in reads.inputs.iter().zip(&self.inputs) {
            let (dtype, name) = (program.inputs()[i], format!("x{i}"));
            let load = match access {
                Access::Quads => types::load_of_quads(dtype, &name, "i"),
                _ => types::load(dtype, &name, "i"),
            };
            let ty = types::value(dtype);
            shader =
                shader.function(&format!("fn load_{name}(i: u32) -> {ty} {{ return {load}; }}\n"));
        }
        if let Some(position) = reads.position {
            let binding = reads.inputs.len() + program.outputs().len();
            shader = shader.include(axis_position(binding, position));
        }
        let words = reads.inputs.iter().zip(&self.inputs).map(|(&i, &access)| match access {
            Access::Quads => types::quad(program.inputs()[i]).to_string(),
            _ => types::word(program.inputs()[i]).to_string(),
        });
        let results = (0..program.outputs().len()).map(|o| {
            let dtype = program.output_dtype(o);
            match self.writes_groups(program, o) {
                true => types::quad(dtype).to_string(),
                false => types::accumulator(dtype).to_string(),
            }
        });
        shader
            .addresses("row", "kept_", self.kept, &kept)
            .addresses("along", "along_", self.along, &along)
            .text("functions", functions)
            .text("body", body)
            .text("row_stores", row_stores)
            .number("inputs", reads.inputs.len())
            .number("outputs", program.outputs().len())
            .number("threads", self.threads)
            .number("team", self.team)
            .number("lanes", self.lanes)
            .number("held", self.held)
            .list("names", reads.inputs.iter().map(|i| format!("x{i}")))
            .list("words", words)
            .list("results", results)
            .flag("whole", self.team == self.threads)
            .flag("subgroups", self.subgroups)
            .render()
    }
}
