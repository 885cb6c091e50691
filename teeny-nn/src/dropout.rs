//! Dropout.

use crate::module::Module;
use crate::store::{Path, Store};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, map};

/// In training, sets each element to 0 with probability `p` and scales the others by `1 / (1 - p)`;
/// otherwise the identity.
///
/// Shapes: any → the same. The store that the layer was built from knows whether it is in training
/// mode: [`Store::set_training`].
///
/// Source: Srivastava et al. 2014. Equivalent: `torch.nn.Dropout`.
#[derive(Clone, Debug)]
pub struct Dropout {
    p: f64,
    store: Store,
}

impl Dropout {
    /// A layer that drops with probability `p`. It has no parameters; `path` is any path of the
    /// store.
    ///
    /// # Errors
    /// If `p` is outside `0..=1`.
    #[track_caller]
    pub fn new(path: &Path, p: f64) -> Result<Dropout> {
        let _op = enter("Dropout::new");
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::value(format!("p is {p}, but a probability must be within 0..=1"))
                .help("p is the probability of dropping: 0.1 drops a tenth"));
        }
        Ok(Dropout { p, store: path.store().clone() })
    }

    /// Whether the layer drops elements: `p` is above 0 and the store is in training mode.
    pub fn drops(&self) -> bool {
        self.p > 0.0 && self.store.is_training()
    }
}

impl Module for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("dropout");
        if !self.drops() {
            return Ok(x.clone());
        }
        let keep = Tensor::bernoulli(1.0 - self.p, *x.shape(), x)?;
        let scale = if self.p < 1.0 { 1.0 / (1.0 - self.p) } else { 0.0 };
        // a dropped element is 0 even where x is infinite
        map([x, &keep], |[x, keep]| keep.where_cond(x * scale, 0.0).cast(x.dtype()))
    }

    fn describe(&self) -> String {
        format!("Dropout({})", self.p)
    }
}
