//! Writing WGSL.
//!
//! ```text
//! template      {{holes}}, #if, #for: filled and checked
//! shader        a template of shaders/ with parameters, bindings and accessors
//! params        the parameters of a shader as one struct on both sides
//! types         how element types are stored and computed in WGSL
//! elementwise   a Kernel with the loads and stores for the layout of its operands
//! elementwise_many  the same for many small tensors in one launch
//! rows          a row program
//! epilogue      the end of a product: stores the result, or runs a Kernel on it
//! generator     a Kernel as the WGSL function `compute`; expressions: one per operation and type
//! prelude       the functions of shaders/prelude that a text names
//! ```
//!
//! Depends on no tensor and no launch; of `device` it uses the words of parameters.

pub(crate) mod elementwise;
pub(crate) mod elementwise_many;
pub(crate) mod epilogue;
pub(crate) mod expressions;
pub(crate) mod generator;
pub(crate) mod params;
pub(crate) mod prelude;
pub(crate) mod rows;
pub(crate) mod shader;
pub(crate) mod template;
pub(crate) mod types;
