//! The time of a run: by the GPU's timestamps, or by the host's clock over many runs with one wait
//! at their end.

use std::time::{Duration, Instant};
use teeny_core::{DeviceRef, Result};
#[cfg(feature = "wgpu")]
use {std::sync::Arc, teeny_wgpu::Wgpu};

/// The runs of a sample take about this long.
const SAMPLE: f64 = 5e-3;

/// The clock of a device.
pub struct Timer {
    /// The device that runs the work.
    pub device: DeviceRef,
    /// The device again, if it measures its launches by timestamps.
    #[cfg(feature = "wgpu")]
    timestamps: Option<Arc<Wgpu>>,
}

impl Timer {
    /// The clock of `device`. A GPU that has timestamps is opened a second time with them.
    ///
    /// # Errors
    /// If the GPU cannot be opened again.
    pub fn new(device: DeviceRef) -> Result<Timer> {
        #[cfg(feature = "wgpu")]
        if device.downcast_ref::<Wgpu>().is_some() {
            let options = teeny_wgpu::Options::new().with_profile(true);
            let gpu = Wgpu::with_options(&options)?;
            if gpu.profile().by_gpu {
                return Ok(Timer { device: gpu.clone() as DeviceRef, timestamps: Some(gpu) });
            }
        }
        Ok(Timer {
            device,
            #[cfg(feature = "wgpu")]
            timestamps: None,
        })
    }

    /// The name of the clock.
    pub fn name(&self) -> &'static str {
        #[cfg(feature = "wgpu")]
        if self.timestamps.is_some() {
            return "GPU timestamps";
        }
        "host"
    }

    /// The least time of a run, in seconds, over samples of at least `min_time` in all. By
    /// timestamps it is the sum of the times of its launches, without the gaps between them.
    ///
    /// # Errors
    /// If the run fails.
    pub fn least(&self, min_time: Duration, run: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        self.sample(1, run)?;
        let one = self.sample(1, run)?;
        let group = ((SAMPLE / one.max(1e-9)).ceil() as usize).clamp(1, 1000);
        let (mut least, mut samples, start) = (f64::INFINITY, 0, Instant::now());
        while samples < 3 || start.elapsed() < min_time {
            least = least.min(self.sample(group, run)?);
            samples += 1;
        }
        Ok(least)
    }

    /// The time of each of `group` runs.
    fn sample(&self, group: usize, run: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let before = self.launched();
        let start = Instant::now();
        for _ in 0..group {
            run()?;
        }
        self.device.synchronize()?;
        let wall = start.elapsed().as_secs_f64();
        // copies of whole buffers do not count as launches
        let seconds = match self.launched() - before {
            launched if launched > 0.0 => launched,
            _ => wall,
        };
        Ok(seconds / group as f64)
    }

    /// The time of all launches by timestamps, in seconds; 0 without them.
    fn launched(&self) -> f64 {
        #[cfg(feature = "wgpu")]
        if let Some(gpu) = &self.timestamps {
            return gpu.profile().families.iter().map(|family| family.micros).sum::<f64>() / 1e6;
        }
        0.0
    }
}
