//! Reductions, which remove axes, and scans, which keep them.

mod reductions;

mod keepdim;

mod scan;

pub(crate) use scan::cum_max;
