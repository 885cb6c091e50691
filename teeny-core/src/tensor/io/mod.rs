//! Host memory, other devices, NumPy files and text.
//!
//! `transfer` copies elements to the host or to another device, `npy` reads and writes NumPy files,
//! `display` prints.

mod transfer;

mod npy;

mod display;
