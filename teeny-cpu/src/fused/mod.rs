//! Composite operations that gain from one pass over a row in L1. Core defines what they mean in primitives.

pub(crate) mod attention;
pub(crate) mod softmax;
