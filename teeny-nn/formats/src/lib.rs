//! Files of tensors: checkpoints of training, and the formats of other libraries.
//!
//! ```text
//! SafeTensors, write          safetensors files                          safetensors
//! Gguf                        GGUF files, of plain or quantised tensors  gguf/
//! npz::read, write            NumPy's .npz archives                      npz, zip
//! pt::read                    PyTorch's .pt files, read as data only     pt, pickle, zip
//! open_weights                files and folders of any of these formats  weights
//! State                       tensors and values by name                 state
//! TensorSource, Mapping       tensors of other names and layouts         source, mapping, mapped
//! config::Config, json::Json  keys and values of JSON files              config, keys, json
//! ```
//!
//! Files are replaced atomically ([`teeny_core::file`]). Every reader checks a header against the
//! bytes of the file before it uses it, and charges its memory to a [`teeny_core::file::Budget`].
//! An entry of an unsupported kind is an error that names it; the other entries can be read.
//!
//! The crate knows no layers: `teeny-nn` loads a `TensorSource` into its `Store`.
#![forbid(unsafe_code)]

pub mod config;
mod element_type;
mod file_kind;
pub mod gguf;
pub mod json;
mod key_mismatch;
pub mod keys;
mod mapped;
mod mapping;
pub mod names;
pub mod npz;
mod pickle;
pub mod pt;
mod safetensors;
mod source;
mod state;
mod weights;
mod zip;

pub use gguf::Gguf;
pub use key_mismatch::KeyMismatch;
pub use mapped::{Index, Mapped, Recipe};
pub use mapping::{Mapping, Target};
pub use safetensors::{COUNTER, Entry, SafeTensors, write, write_async};
pub use source::TensorSource;
pub use state::State;
pub use weights::{Weights, is_gguf, open_weights, resolve_path};
