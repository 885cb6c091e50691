//! The forms `.._keepdim` of reductions that have no faster one: the reduction, then a view with
//! the axes of size 1.

use crate::context::enter;
use crate::error::Result;
use crate::shape::IntoAxes;
use crate::tensor::Tensor;

macro_rules! keepdim {
    ($($name:ident: $of:ident($($before:ident: $t:ty,)*; $($after:ident: $u:ty),*);)*) => {
        impl Tensor {$(
            #[doc = concat!("[`Tensor::", stringify!($of), "`] that leaves the axes with size 1.")]
            ///
            /// # Errors
            /// As without `_keepdim`.
            #[track_caller]
            pub fn $name(
                &self, $($before: $t,)* axes: impl IntoAxes $(, $after: $u)*
            ) -> Result<Tensor> {
                let _op = enter(stringify!($name)).on([("x", Some(self))]);
                let axes = axes.axes(self.shape())?;
                let shape = self.shape().reduced(&axes, true);
                self.$of($($before,)* axes $(, $after)*)?.reshape(shape)
            }
        )*}
    };
}

keepdim! {
    prod_keepdim: prod(;);
    any_keepdim: any(;);
    all_keepdim: all(;);
    var_keepdim: var(; correction: usize);
    std_keepdim: std(; correction: usize);
    logsumexp_keepdim: logsumexp(;);
    vector_norm_keepdim: vector_norm(p: f64,;);
    nansum_keepdim: nansum(;);
    nanmean_keepdim: nanmean(;);
}

impl Tensor {
    /// [`Tensor::argmax`] that leaves the axis with size 1.
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    #[track_caller]
    pub fn argmax_keepdim(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("argmax_keepdim").on([("x", Some(self))]);
        self.argmax(axis)?.unsqueeze(axis)
    }

    /// [`Tensor::argmin`] that leaves the axis with size 1.
    ///
    /// # Errors
    /// As [`Tensor::argmin`].
    #[track_caller]
    pub fn argmin_keepdim(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("argmin_keepdim").on([("x", Some(self))]);
        self.argmin(axis)?.unsqueeze(axis)
    }
}
