//! A page that trains a network in a browser tab, on the CPU engine or by WebGPU.
//!
//! ```text
//! page/index.html, page.js   the page: controls, plots, drawing; computes nothing
//!         │ messages
//! page/worker.js             a Web Worker: calls one function of this library after another and
//!         │                  gives way to its messages in between
//! session                    the functions that JavaScript calls, as a class `Session`
//! ├─ digits                  a classifier of digits, trained a few milliseconds at a time
//! │  └─ file                 its checkpoint files
//! ├─ names                   a generator of names, likewise
//! └─ doctor                  the conformance suite and what happens at limits, as a report
//! ```
//!
//! Everything that reads from a device is awaited: in a browser nothing can wait for a GPU. The
//! library is for wasm32; for other targets it is empty.

#[cfg(target_arch = "wasm32")]
mod digits;
#[cfg(target_arch = "wasm32")]
mod doctor;
#[cfg(target_arch = "wasm32")]
mod file;
#[cfg(target_arch = "wasm32")]
mod names;
#[cfg(target_arch = "wasm32")]
mod session;
#[cfg(target_arch = "wasm32")]
mod slot;
