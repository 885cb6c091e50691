//! Structs of options, for all crates of the library, and enums whose variants have names. A later
//! version may add a field: such a struct is `#[non_exhaustive]`, and is built by `new` and a
//! method for each field.

/// Declares a struct of options with its defaults and a method `with_..` for each field, which may
/// take another type and say how it becomes the field's: `with_stride(usize) => |s| Some([s; 2])`.
/// Parameters of the struct follow its name, as they are declared and as they are used:
/// `Name [const N: usize] [N]`. Derives are the caller's.
#[doc(hidden)]
#[macro_export]
macro_rules! options {
    (
        $(#[$doc:meta])*
        pub struct $name:ident $([$($declared:tt)+] [$($used:tt)+])? {
            $(
                $(#[$field_doc:meta])*
                $field:ident: $type:ty = $default:expr,
                    $with:ident $(($set:ty))? $(=> |$x:ident| $value:expr)?;
            )*
        }
    ) => {
        $(#[$doc])*
        #[non_exhaustive]
        pub struct $name $(<$($declared)+>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $(<$($declared)+>)? Default for $name $(<$($used)+>)? {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        impl $(<$($declared)+>)? $name $(<$($used)+>)? {
            /// The defaults.
            pub fn new() -> Self {
                Self::default()
            }

            $(
                #[doc = concat!("Sets [`", stringify!($name), "::", stringify!($field), "`].")]
                pub fn $with(mut self, $field: $crate::options!(@ $type $(, $set)?)) -> Self {
                    self.$field = $crate::options!(@value $field $(, $x, $value)?);
                    self
                }
            )*
        }
    };
    (@value $field:ident) => { $field.into() };
    (@value $field:ident, $x:ident, $value:expr) => {{ let $x = $field; $value }};
    (@ $type:ty) => { $type };
    (@ $type:ty, $set:ty) => { $set };
}

/// Declares methods that set a field of an options struct. A list that begins with `self;` may use
/// `self` in its values.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($this:ident; $($(#[$doc:meta])* $with:ident($x:ident: $t:ty) => $f:ident = $set:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $with(mut $this, $x: $t) -> Self {
                $this.$f = $set;
                $this
            }
        )*
    };
    ($($all:tt)*) => { $crate::setters! { self; $($all)* } };
}

/// Declares an enum with the list of its variants and a name for each. Derives are the caller's.
macro_rules! named {
    (
        $(#[$doc:meta])*
        pub enum $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:expr,)* }
    ) => {
        $(#[$doc])*
        pub enum $type { $($(#[$variant_doc])* $variant,)* }

        impl $type {
            /// Every variant, in the order of the enum.
            pub const ALL: [$type; [$($type::$variant),*].len()] = [$($type::$variant),*];

            /// The name, as printed.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }
        }
    };
}
pub(crate) use named;
