//! Random tensors: uniform, normal, integers, Bernoulli, permutations. The numbers come from
//! [`crate::random`] and are equal on all devices.

use super::host_data::{PIECE, upload};
use crate::context::enter;
use crate::device::ToDevice;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory;
use crate::op::Op;
use crate::random::{self, Distribution, Key};
use crate::shape::{IntoShape, Shape, index_end};
use crate::tensor::Tensor;

impl Tensor {
    /// Uniform in [0, 1). Equivalent: `torch.rand`.
    #[track_caller]
    pub fn rand(shape: impl IntoShape, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("rand");
        Tensor::random(
            Distribution::Uniform { low: 0.0, high: 1.0 },
            shape,
            dtype,
            random::next_key(),
            device,
        )
    }

    /// Normal with mean 0 and standard deviation 1. Equivalent: `torch.randn`.
    #[track_caller]
    pub fn randn(shape: impl IntoShape, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("randn");
        Tensor::random(
            Distribution::Normal { mean: 0.0, std: 1.0 },
            shape,
            dtype,
            random::next_key(),
            device,
        )
    }

    /// [`Tensor::rand`] in the shape and type of self, on its device. Equivalent:
    /// `torch.rand_like`.
    ///
    /// # Errors
    /// If the type is not a float.
    #[track_caller]
    pub fn rand_like(&self) -> Result<Tensor> {
        let _op = enter("rand_like").on([("x", Some(self))]);
        Tensor::rand(self.shape(), self.dtype(), self)
    }

    /// [`Tensor::randn`] in the shape and type of self, on its device. Equivalent:
    /// `torch.randn_like`.
    ///
    /// # Errors
    /// If the type is not a float.
    #[track_caller]
    pub fn randn_like(&self) -> Result<Tensor> {
        let _op = enter("randn_like").on([("x", Some(self))]);
        Tensor::randn(self.shape(), self.dtype(), self)
    }

    /// Uniform in `[low, high)`.
    #[track_caller]
    pub fn uniform(
        low: f64,
        high: f64,
        shape: impl IntoShape,
        dtype: DType,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("uniform");
        let uniform = Distribution::Uniform { low, high };
        Tensor::random(uniform, shape, dtype, random::next_key(), device)
    }

    /// Normal with the given mean and standard deviation.
    #[track_caller]
    pub fn normal(
        mean: f64,
        std: f64,
        shape: impl IntoShape,
        dtype: DType,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("normal");
        Tensor::random(Distribution::Normal { mean, std }, shape, dtype, random::next_key(), device)
    }

    /// Integers in `low..high`. Equivalent: `torch.randint`.
    #[track_caller]
    pub fn randint(
        low: i64,
        high: i64,
        shape: impl IntoShape,
        dtype: DType,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("randint");
        let integers = Distribution::Integer { low, high };
        Tensor::random(integers, shape, dtype, random::next_key(), device)
    }

    /// True with probability `p`, a bool tensor.
    #[track_caller]
    pub fn bernoulli(p: f64, shape: impl IntoShape, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("bernoulli");
        Tensor::random(
            Distribution::Bernoulli { p },
            shape,
            DType::Bool,
            random::next_key(),
            device,
        )
    }

    /// The numbers `0..n` in random order, `I32`. Equivalent: `torch.randperm`.
    #[track_caller]
    pub fn randperm(n: usize, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("randperm");
        let shape = Shape::new(&[n])?;
        let mut order = memory::collected(0..index_end(n)?)?;
        if n > PIECE {
            // The device allocates before the shuffle, which takes longer.
            let _ = Tensor::zeros(shape, DType::I32, &device)?;
        }
        shuffle(&mut order, random::next_key());
        upload(&order, shape, device)
    }

    /// A draw from `distribution` under an explicit key; the other random constructors take the
    /// next key of [`crate::random`].
    #[track_caller]
    pub fn random(
        distribution: Distribution,
        shape: impl IntoShape,
        dtype: DType,
        key: Key,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("random");
        let shape = shape.shape()?;
        random::check(distribution, dtype)?;
        let device = device.to_device();
        Op::Random { distribution, shape: &shape, dtype, key }.tensor(&device)
    }
}

/// The numbers `0..n` in the random order of `key`: Fisher and Yates' shuffle. `n` is the length of
/// something the host holds; [`Tensor::randperm`] takes any.
pub fn permutation(n: usize, key: Key) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    shuffle(&mut order, key);
    order
}

fn shuffle<T>(order: &mut [T], key: Key) {
    for i in (1..order.len()).rev() {
        let w = random::philox(key, i as u64);
        order.swap(i, random::integer_below(w[0], w[1], i as u128 + 1) as usize);
    }
}
