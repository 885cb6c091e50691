//! Reductions and scans.

mod reductions;

mod scan;
