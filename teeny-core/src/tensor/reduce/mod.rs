//! Reductions and scans.

mod reductions;
