//! Fused operations of neural networks: a device may run each in one pass. Without a kernel for it,
//! its definition in primitives runs ([`crate::definition`]).

mod softmax;

mod norm;

mod rows;

mod attention;
