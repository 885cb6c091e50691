//! The parametric ReLU: an activation with learnt slopes. Activations without parameters are in
//! [`crate::Activation`].

use crate::init::Init;
use crate::module::{Module, require_type};
use crate::options::options;
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

options! {
    /// Options of a [`PRelu`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct PReluOptions {
        /// The number of slopes: 1 for all channels together, or the number of channels; 1.
        num_parameters: usize = 1, with_num_parameters;
        /// The initial slopes; 0.25.
        init: Init = Init::Constant(0.25), with_init;
    }
}

/// `y = x` where x is positive, `weight * x` elsewhere: a leaky ReLU with learnt slopes.
///
/// Shapes: x of any shape with one slope, (N, C) or (N, C, ..) with C slopes → the same; weight (1)
/// or (C). The gradient at 0 is the negative side's, as in PyTorch. Weight decay pulls slopes
/// toward 0, so keep them in a [`crate::optim::ParamGroup`] without it.
///
/// Source: He et al. 2015, arXiv:1502.01852. Equivalent: `torch.nn.PReLU`.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::{Module, PRelu, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(device("cpu")?);
/// let act = PRelu::new(&store.at("act"))?;
/// let x = Tensor::new([-2.0f32, 3.0], store.device())?; // (2)
/// assert_eq!(act.forward(&x)?.to_vec::<f32>()?, [-0.5, 3.0]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PRelu {
    /// The slopes: (1) or (C).
    pub weight: Param,
}

impl PRelu {
    /// A layer at `path` with PyTorch's defaults: one slope, 0.25 at first.
    ///
    /// # Errors
    /// If the name is taken.
    #[track_caller]
    pub fn new(path: &Path) -> Result<PRelu> {
        let _op = enter("PRelu::new");
        PRelu::with_options(path, PReluOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If there are 0 slopes, or the name is taken.
    #[track_caller]
    pub fn with_options(path: &Path, options: PReluOptions) -> Result<PRelu> {
        path.build("PRelu::with_options", || {
            if options.num_parameters == 0 {
                return Err(Error::value("num_parameters is 0, but must be at least 1")
                    .help("1 is one slope for all channels; or pass the number of channels"));
            }
            Ok(PRelu { weight: path.param("weight", options.num_parameters, options.init)? }) // (C)
        })
    }
}

impl Module for PRelu {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("prelu");
        require_type(x, &self.weight)?;
        let weight = self.weight.value(); // (C)
        let channels = weight.numel();
        let mut shape = vec![1; x.ndim()];
        if channels > 1 {
            if x.shape().get(1) != Some(&channels) {
                return Err(Error::shape(format!(
                    "{} is {}, so its input must be (N, {channels}) or (N, {channels}, ..), not {}",
                    self.weight.name(),
                    weight.shape(),
                    x.shape()
                ))
                .help("PRelu::new has one slope for all channels"));
            }
            shape[1] = channels;
        }
        x.leaky_relu(weight.reshape(shape)?) // by (1, C, 1, ..)
    }

    fn describe(&self) -> String {
        format!("PRelu({})", self.weight.value().numel())
    }
}
