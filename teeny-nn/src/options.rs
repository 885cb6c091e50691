//! Options structs of layers, and [`PerAxis`] for the sizes in them.
//!
//! A layer has two constructors: `new` with PyTorch's defaults, and `with_options` with an options
//! struct. Options structs are `#[non_exhaustive]`: make one with `new()` or `default()` and chain
//! `with_…` methods.

/// Declares an options struct: public fields with their defaults, and a `with_…` method for each.
macro_rules! options {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr, $with:ident;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* }
            }
        }

        impl $name {
            /// The defaults.
            pub fn new() -> $name {
                $name::default()
            }

            $(
                #[doc = concat!("Sets [`", stringify!($name), "::", stringify!($field), "`].")]
                pub fn $with(mut self, $field: $type) -> $name {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(crate) use options;

/// One number for each of N spatial axes: an array, or a single number for all axes.
pub trait PerAxis<const N: usize> {
    /// The numbers.
    fn per_axis(self) -> [usize; N];
}

impl<const N: usize> PerAxis<N> for usize {
    fn per_axis(self) -> [usize; N] {
        [self; N]
    }
}

impl<const N: usize> PerAxis<N> for [usize; N] {
    fn per_axis(self) -> [usize; N] {
        self
    }
}
