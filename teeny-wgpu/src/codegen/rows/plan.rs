//! The choices that the shader of a row program depends on besides the program.

use crate::codegen::params::{Declaration, Field, Sizes, Strides, shader_params};
use teeny_core::Kernel;
use teeny_core::kernel::Extent;

shader_params! {
    /// Parameters of `rows.wgsl`. Then follow [`AtParams`], the offset and the strides (kept axes,
    /// row) of each input and of element results, the kernel's scalars and the lengths of the row.
    pub(crate) struct RowsParams(kept: usize, along: usize) {
        rows: usize,
        /// Groups of elements of a row.
        groups: usize,
        kept_sizes: Sizes[kept],
        along_sizes: Sizes[along],
    }
}

shader_params! {
    /// Parameters of reads at a position.
    pub(crate) struct AtParams() {
        axis_size: usize,
        range_low: usize,
        range_length: usize,
        error_record: u32,
    }
}

/// How a shader finds the elements of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// One element for a row.
    Row = 0,
    /// Elements one by one.
    Strided = 1,
    /// Whole groups of four neighbours.
    Quads = 2,
}

/// Everything that the text of the shader depends on, apart from the program.
#[derive(Clone, Debug)]
pub(crate) struct RowsPlan {
    /// Merged axes that are kept, and merged axes of the row: at least one.
    pub kept: usize,
    pub along: usize,
    /// Threads of a workgroup, and threads that share a row: all or 1.
    pub threads: usize,
    pub team: usize,
    /// Elements that are read at once: 1 or [`LANES`].
    pub lanes: usize,
    /// Groups of elements that a thread keeps in registers; 0 if it reads them once a level.
    pub held: usize,
    /// Whether whole workgroups combine their values by subgroup operations.
    pub subgroups: bool,
    /// The access of each input that the program reads, ascending.
    pub inputs: Vec<Access>,
}

impl RowsPlan {
    /// The plan as the variant of a [`crate::device::launch::Key`].
    pub fn variant(&self) -> Vec<u32> {
        let inputs = self.inputs.iter().fold(1, |code, &access| code << 2 | access as u32);
        let sizes = [self.kept, self.along, self.threads, self.team, self.lanes, self.held];
        sizes.iter().map(|&n| n as u32).chain([self.subgroups.into(), inputs]).collect()
    }

    /// Whether output `o` is written in its own type, in groups of four.
    pub fn writes_groups(&self, program: &Kernel, o: usize) -> bool {
        self.lanes > 1 && program.output_extent(o) == Extent::Element
    }

    pub(super) fn declare_view(&self, name: &str, has_offset: bool, params: &mut Declaration) {
        if has_offset {
            isize::declare(&format!("{name}_offset"), (), params);
        }
        Strides::declare(&format!("{name}_kept_strides"), self.kept, params);
        Strides::declare(&format!("{name}_along_strides"), self.along, params);
    }
}
