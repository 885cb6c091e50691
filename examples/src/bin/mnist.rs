//! Trains MNIST.
fn main() {}
