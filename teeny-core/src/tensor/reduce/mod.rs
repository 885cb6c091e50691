//! Reductions, which remove axes, and scans, which keep them.

mod reductions;

mod scan;

pub(crate) use scan::cum_max;
