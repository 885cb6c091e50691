//! Parameters of a shader by name: one declaration makes the Rust struct that an operation fills
//! and the WGSL struct that the shader reads.
//!
//! ```text
//! shader_params! {                            struct Params {
//!     /// Parameters of `example.wgsl`.           rows: u32,
//!     struct ExampleParams(axes: usize) {         x_step: u32,
//!         rows: usize,                            sizes_0: u32, sizes_1: u32,
//!         x_step: isize,                          x_offset: u32,
//!         sizes: Sizes[axes],                     x_strides_0: u32, x_strides_1: u32,
//!         x: View[axes],                      }
//!     }                                       @group(1) @binding(0)
//! }                                           var<uniform> params: Params;
//! ```
//!
//! Every member is a 32-bit word, so the struct has no padding. Strides and offsets are words
//! modulo 2^32: see [`Params::int`].

use crate::codegen::types;
use crate::device::params::Params;
use std::fmt::Write;
use teeny_core::{DType, MAX_NDIM, Scalar};

/// The WGSL declaration of a shader's parameters.
#[derive(Default)]
pub(crate) struct Declaration {
    members: String,
    functions: String,
}

impl Declaration {
    /// The next word.
    pub fn member(&mut self, name: &str, ty: &str) {
        let _ = writeln!(self.members, "    {name}: {ty},");
    }

    /// The next word or two: a number of type `dtype`. The expression that reads it.
    pub fn number(&mut self, name: &str, dtype: DType) -> String {
        match types::value(dtype) {
            "bool" => {
                self.member(name, "u32");
                format!("(params.{name} != 0u)")
            }
            ty @ ("u32" | "i32" | "f32") => {
                self.member(name, ty);
                format!("params.{name}")
            }
            ty => {
                self.member(&format!("{name}_low"), "u32");
                self.member(&format!("{name}_high"), "u32");
                let bits = format!("(u64(params.{name}_low) | (u64(params.{name}_high) << 32u))");
                if ty == "u64" { bits } else { format!("bitcast<{ty}>({bits})") }
            }
        }
    }

    /// The members and functions of `other` after these.
    pub fn append(&mut self, other: Declaration) {
        self.members += &other.members;
        self.functions += &other.functions;
    }

    /// The declaration as WGSL.
    pub fn wgsl(&self) -> String {
        format!(
            "struct Params {{\n{}}}\n@group(1) @binding(0) var<uniform> params: Params;\n{}",
            self.members, self.functions
        )
    }
}

/// A field of a shader's parameters.
pub(crate) trait Field {
    /// The input of its declaration besides its name: the number of axes, a type, or nothing.
    type Extent;
    fn declare(name: &str, extent: Self::Extent, declaration: &mut Declaration);
    fn push(&self, params: &mut Params);
}

/// A size, or a number of elements or workgroups.
impl Field for usize {
    type Extent = ();
    fn declare(name: &str, (): (), declaration: &mut Declaration) {
        declaration.member(name, "u32");
    }
    fn push(&self, params: &mut Params) {
        params.count(*self);
    }
}

/// A stride or an offset.
impl Field for isize {
    type Extent = ();
    fn declare(name: &str, (): (), declaration: &mut Declaration) {
        declaration.member(name, "u32");
    }
    fn push(&self, params: &mut Params) {
        params.int(*self);
    }
}

/// A word.
impl Field for u32 {
    type Extent = ();
    fn declare(name: &str, (): (), declaration: &mut Declaration) {
        declaration.member(name, "u32");
    }
    fn push(&self, params: &mut Params) {
        params.push(*self);
    }
}

/// A float.
impl Field for f32 {
    type Extent = ();
    fn declare(name: &str, (): (), declaration: &mut Declaration) {
        declaration.member(name, "f32");
    }
    fn push(&self, params: &mut Params) {
        params.push(self.to_bits());
    }
}

/// Two words, the low one first: `name_low` and `name_high`.
impl Field for u64 {
    type Extent = ();
    fn declare(name: &str, (): (), declaration: &mut Declaration) {
        declaration.member(&format!("{name}_low"), "u32");
        declaration.member(&format!("{name}_high"), "u32");
    }
    fn push(&self, params: &mut Params) {
        params.two_words(*self);
    }
}

/// One value per axis: `name_0`, `name_1`, …
#[derive(Clone, Copy)]
pub(crate) struct PerAxis<T> {
    values: [T; MAX_NDIM],
    len: usize,
}

/// Sizes of axes.
pub(crate) type Sizes = PerAxis<usize>;
/// Strides along axes.
pub(crate) type Strides = PerAxis<isize>;

impl<T: Copy + Default> From<&[T]> for PerAxis<T> {
    fn from(values: &[T]) -> PerAxis<T> {
        values.iter().copied().collect()
    }
}

impl<T: Copy + Default> From<&Vec<T>> for PerAxis<T> {
    fn from(values: &Vec<T>) -> PerAxis<T> {
        values.as_slice().into()
    }
}

impl<T: Copy + Default> FromIterator<T> for PerAxis<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> PerAxis<T> {
        let mut axes = PerAxis { values: [T::default(); MAX_NDIM], len: 0 };
        for value in values {
            axes.values[axes.len] = value;
            axes.len += 1;
        }
        axes
    }
}

impl<T: Field<Extent = ()>> Field for PerAxis<T> {
    type Extent = usize;
    fn declare(name: &str, axes: usize, declaration: &mut Declaration) {
        (0..axes).for_each(|axis| T::declare(&format!("{name}_{axis}"), (), declaration));
    }
    fn push(&self, params: &mut Params) {
        self.values[..self.len].iter().for_each(|value| value.push(params));
    }
}

/// Where a view begins and its strides: `name_offset`, `name_strides_0`, …
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub offset: usize,
    pub strides: Strides,
}

impl View {
    pub fn new(offset: usize, strides: impl Into<Strides>) -> View {
        View { offset, strides: strides.into() }
    }
}

impl Field for View {
    type Extent = usize;
    fn declare(name: &str, axes: usize, declaration: &mut Declaration) {
        isize::declare(&format!("{name}_offset"), (), declaration);
        Strides::declare(&format!("{name}_strides"), axes, declaration);
    }
    fn push(&self, params: &mut Params) {
        params.int(self.offset as isize);
        self.strides.push(params);
    }
}

/// A number of an element type, which the shader reads by the function of its name.
#[derive(Clone, Copy)]
pub(crate) struct Number {
    pub value: Scalar,
    pub dtype: DType,
}

impl Field for Number {
    type Extent = DType;
    fn declare(name: &str, dtype: DType, declaration: &mut Declaration) {
        let expression = declaration.number(name, dtype);
        let ty = types::value(dtype);
        let _ = writeln!(declaration.functions, "fn {name}() -> {ty} {{ return {expression}; }}");
    }
    fn push(&self, params: &mut Params) {
        params.scalar(self.value, self.dtype);
    }
}

/// Declares the parameters of a shader; see the module.
macro_rules! shader_params {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident($($extent:ident: $extent_type:ty),*) {
            $($(#[$doc:meta])* $field:ident: $type:ty $([$of:expr])?,)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            /// The declaration of these parameters in WGSL.
            pub fn declaration($($extent: $extent_type),*) -> $crate::codegen::params::Declaration {
                let mut declaration = $crate::codegen::params::Declaration::default();
                $(<$type as $crate::codegen::params::Field>::declare(
                    stringify!($field), ($($of)?), &mut declaration,
                );)*
                declaration
            }

            /// The words of these parameters.
            #[allow(dead_code)]
            pub fn words(&self) -> $crate::device::params::Params {
                let mut params = $crate::device::params::Params::new();
                self.push_to(&mut params);
                params
            }

            /// Appends the words of these parameters.
            pub fn push_to(&self, params: &mut $crate::device::params::Params) {
                $($crate::codegen::params::Field::push(&self.$field, params);)*
            }
        }
    };
}
pub(crate) use shader_params;

#[cfg(test)]
mod tests {
    use super::*;

    shader_params! {
        /// One field of each kind.
        struct EveryKind(axes: usize, dtype: DType) {
            count: usize,
            step: isize,
            word: u32,
            scale: f32,
            seed: u64,
            sizes: Sizes[axes],
            x: View[axes],
            number: Number[dtype],
        }
    }

    fn filled(axes: usize, dtype: DType) -> EveryKind {
        EveryKind {
            count: 1,
            step: -2,
            word: 3,
            scale: 4.5,
            seed: 5 | 6 << 32,
            sizes: (0..axes).map(|axis| 10 + axis).collect(),
            x: View::new(20, &(0..axes).map(|axis| 30 + axis as isize).collect::<Vec<_>>()),
            number: Number { value: Scalar::Float(0.5), dtype },
        }
    }

    #[test]
    fn every_declared_member_has_its_word() {
        for axes in [0, 1, 2, 4, 8] {
            for dtype in [DType::F32, DType::F16, DType::I32, DType::F64, DType::U64] {
                let declaration = EveryKind::declaration(axes, dtype);
                let members = declaration.members.lines().count();
                assert_eq!(members, filled(axes, dtype).words().len(), "{axes} {dtype}");
            }
        }
    }

    #[test]
    fn members_are_declared_in_the_order_of_the_words() {
        let wgsl = EveryKind::declaration(2, DType::F64).wgsl();
        let names: Vec<&str> =
            wgsl.lines().filter_map(|line| line.strip_prefix("    ")?.split(':').next()).collect();
        assert_eq!(
            names,
            [
                "count",
                "step",
                "word",
                "scale",
                "seed_low",
                "seed_high",
                "sizes_0",
                "sizes_1",
                "x_offset",
                "x_strides_0",
                "x_strides_1",
                "number_low",
                "number_high"
            ]
        );
        let mut words = Params::new();
        [1, -2i32 as u32, 3, 4.5f32.to_bits(), 5, 6, 10, 11, 20, 30, 31]
            .into_iter()
            .for_each(|word| words.push(word));
        words.two_words(0.5f64.to_bits());
        assert_eq!(filled(2, DType::F64).words(), words);
        assert!(wgsl.contains("fn number() -> f64"), "{wgsl}");
    }
}
