//! The GPU that tests run on. Without one they say so and pass, unless `TEENY_REQUIRE_GPU=1`.

use std::sync::Arc;
use teeny_wgpu::Wgpu;

/// A new device for each test, so that its counters are the test's.
pub fn gpu() -> Option<Arc<Wgpu>> {
    match Wgpu::new() {
        Ok(gpu) => Some(gpu),
        Err(error) if std::env::var("TEENY_REQUIRE_GPU").is_ok_and(|v| v == "1") => {
            panic!("{error}")
        }
        Err(error) => {
            eprintln!("SKIPPED: no GPU: {error}");
            None
        }
    }
}
