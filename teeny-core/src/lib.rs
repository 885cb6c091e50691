//! Strided tensors, scalar programs, and the interface to everything that computes: the [`Device`]
//! trait.
//!
//! ```text
//! Tensor { storage, layout, dtype, device }     tensor/   checks, infers, dispatches
//!     │ views: layout → layout                  layout    never touches the device
//!     ▼
//! Op { name, operands, outputs, cost }          op/       a request as data
//!     ▼
//! trait Device { execute(&mut Op) .. }          device    five required methods
//!     ▲ Op::Elementwise { kernel, .. }          kernel/   typed scalar programs for every backend
//! ```
//!
//! This crate has neither backends nor gradients. [`Reference`] is a naive device that defines
//! every operation; the suite of the crate `teeny-conformance` compares other devices with it.
#![forbid(unsafe_code)]

pub mod attention;
pub mod calls;
pub mod clock;
pub mod context;
pub mod definition;
pub mod device;
mod dispatch;
mod dtype;
mod element;
mod error;
pub mod file;
pub mod kernel;
mod layout;
mod lazy;
pub mod linalg;
pub mod memory;
mod messages;
pub mod op;
mod options;
pub mod picture;
pub mod quant;
pub mod random;
mod reference;
pub mod registry;
mod scalar;
mod shape;
pub mod storage;
mod tensor;
pub mod validate;
pub mod wrappers;

pub use device::{Device, DeviceInfo, DeviceRef, Fill, ReadFuture, Stats, ToDevice, WaitFuture};
pub use dtype::DType;
pub use element::Element;
pub use error::{Error, ErrorKind, Result};
pub use half::{bf16, f16};
pub use kernel::build::{Builder, Expr};
pub use kernel::{
    Arithmetic, Bitwise, Comparison, FloatFunction, Kernel, OpCode, OpNode, Rounding, RowFunction,
    SignFunction,
};
pub use layout::Layout;
pub use lazy::{Capture, Lazy, LazyOptions, LazyStats};
pub use op::{
    Attention, AttentionInputs, Cost, Extremum, LinalgOp, Op, Outputs, ReduceOp, ScanOp,
    ScatterMode, SortOrder, TensorSpec, Triangle, Window,
};
pub use quant::{Part as QuantPart, QuantType};
pub use random::{Distribution, Key, manual_seed};
pub use reference::Reference;
pub use scalar::Scalar;
pub use shape::{IntoAxes, IntoShape, MAX_NDIM, Shape, Size};
pub use storage::{Storage, StorageRef};
pub use tensor::{
    Averaging, BagMode, Ellipsis, Interpolation, IntoIndex, MatrixNorm, Nested, NewAxis, Operand,
    Outside, PadMode, Pca, QuantTensor, QuantileMethod, Sampling, ScatterReduce, Side, SliceRange,
    Subscript, Tensor, map, map_n, map_rows, map_sum, permutation,
};

/// The program of the crate's README must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
