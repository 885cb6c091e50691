//! The operations of the engine, one module for each family, named as on the CPU. Each is a
//! function of the device and plain arguments that core has checked.
//!
//! ```text
//! transfer                                    upload, download
//! elementwise/ copy                           kernels at every index; row-major copies, copy_into
//! transpose                                   row-major copies of permuted views
//! reduce/ scan sort gather scatter/ random    one family each
//! matmul/ conv/ pooling                       products, convolutions, windows
//! rows/ attention                             programs along rows, softmax and norms among them
//! cat                                         tensors one after another
//! quant/                                      products with quantised weights, and their rows
//! binding coalesce pieces accumulation        windows of buffers, merged axes, tensors larger than
//!                                             a binding, results below 32 bits
//! epilogue                                    kernels after products
//! software/                                   kernels of software adapters
//! radix_sort window                           steps that operations share
//! ```

pub(crate) mod accumulation;
pub(crate) mod attention;
pub(crate) mod binding;
pub(crate) mod cat;
pub(crate) mod coalesce;
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod elementwise;
pub(crate) mod epilogue;
pub(crate) mod gather;
pub(crate) mod indexing;
pub(crate) mod matmul;
pub(crate) mod pieces;
pub(crate) mod pooling;
pub(crate) mod quant;
pub(crate) mod radix_sort;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod software;
pub(crate) mod sort;
pub(crate) mod transfer;
pub(crate) mod transpose;
pub(crate) mod window;
