//! Joining, splitting and repeating.
