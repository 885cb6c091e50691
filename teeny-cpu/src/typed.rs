//! Raw memory as slices of a type, and the type of a dtype: memory of tensors is typed at run time,
//! loops at compile time.
//!
//! Independent of devices and operations. The loops over such slices are in `loops`.

/// Runs `$body` with `$t` the type that is listed for `$dtype`.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr; $($($name:ident)|+ => $type:ty),*; $($rest:pat => $other:expr)?) => {
        match $dtype {
            $($(DType::$name)|+ => {
                type $t = $type;
                $body
            })*
            $($rest => $other)?
        }
    };
}
pub(crate) use with_type;

/// Runs `$body` with `$t` the compute type of `$dtype`; bool counts as u8.
macro_rules! with_compute {
    ($dtype:expr, $t:ident => $body:expr) => {
        crate::typed::with_type!($dtype, $t => $body;
            Bool | U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32, I64 => i64,
            F16 | BF16 | F32 => f32, F64 => f64;)
    };
}
pub(crate) use with_compute;

/// As `with_compute` for operations with the same bits for signed and unsigned integers, such as
/// sums and products that wrap: both are compiled as unsigned.
macro_rules! with_wrapping {
    ($dtype:expr, $t:ident => $body:expr) => {
        crate::typed::with_type!($dtype, $t => $body;
            Bool | U8 | I8 => u8, U16 | I16 => u16, U32 | I32 => u32, U64 | I64 => u64, F16 | BF16 | F32 => f32, F64 => f64;)
    };
}
pub(crate) use with_wrapping;

/// As `with_compute` where `$dtype` is not a float.
macro_rules! with_int {
    ($dtype:expr, $t:ident => $body:expr) => {
        crate::typed::with_type!($dtype, $t => $body;
            Bool | U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32, I64 => i64;
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => unreachable!("a loop of integers over floats"))
    };
}
pub(crate) use with_int;

/// As `with_wrapping` where `$dtype` is not a float.
macro_rules! with_bits {
    ($dtype:expr, $t:ident => $body:expr) => {
        crate::typed::with_type!($dtype, $t => $body;
            Bool | U8 | I8 => u8, U16 | I16 => u16, U32 | I32 => u32, U64 | I64 => u64;
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => unreachable!("a loop of integers over floats"))
    };
}
pub(crate) use with_bits;

/// As `with_int` for integers of 64 bits.
macro_rules! with_long {
    ($dtype:expr, $t:ident => $body:expr) => {
        crate::typed::with_type!($dtype, $t => $body;
            U64 => u64, I64 => i64;
            _ => unreachable!("a loop of 64-bit integers"))
    };
}
pub(crate) use with_long;

/// `$body` with `$t` as the unsigned integer of `$size` bytes: for elements that are moved as bits.
macro_rules! with_unsigned {
    ($size:expr, $t:ident => $body:expr) => {
        match $size {
            1 => crate::typed::with_unsigned!(@ u8, $t => $body),
            2 => crate::typed::with_unsigned!(@ u16, $t => $body),
            4 => crate::typed::with_unsigned!(@ u32, $t => $body),
            _ => crate::typed::with_unsigned!(@ u64, $t => $body),
        }
    };
    (@ $u:ty, $t:ident => $body:expr) => {{
        type $t = $u;
        $body
    }};
}
pub(crate) use with_unsigned;

/// Slices over raw memory.
///
/// # Safety
/// `p` has `n` values, aligned; nothing writes to them while the slice lives.
pub(crate) unsafe fn slice<'a, T>(p: *const u8, n: usize) -> &'a [T] {
    // SAFETY: by contract; pooled memory is always initialised and every computed type takes any
    // bits.
    unsafe { std::slice::from_raw_parts(p.cast(), n) }
}

/// As `slice`, to write.
///
/// # Safety
/// `p` has `n` values, aligned, that nothing else touches while the slice lives.
pub(crate) unsafe fn slice_mut<'a, T>(p: *mut u8, n: usize) -> &'a mut [T] {
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts_mut(p.cast(), n) }
}
