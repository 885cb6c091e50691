//! Fused operations of neural networks.

mod softmax;

mod norm;

mod attention;
