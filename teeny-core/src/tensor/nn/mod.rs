//! Fused operations of neural networks: attention, normalisation.

mod attention;
mod norm;
