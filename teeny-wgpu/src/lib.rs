//! The portable GPU engine of teeny: an implementation of [`teeny_core::Device`] on wgpu, every kernel a compute shader.
//!
//! This crate reserves the engine's place in the workspace. It exports nothing yet: a device that could not carry out the conformance suite would be
//! worse than none, and `teeny_nn::device::device("wgpu")` says that it is missing.
#![forbid(unsafe_code)]
