//! Printing tensors.
