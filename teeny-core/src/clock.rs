//! The clock of profiles and progress reports: `std::time::Instant`, and `performance.now()` where
//! the standard library has no clock, in a browser or Node.js.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use std::time::Instant;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use web_time::Instant;
