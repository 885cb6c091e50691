//! Every differentiable operation once, checked against finite differences and a second time for
//! second derivatives, and device against device.
//!
//! Only with the feature `conformance`. A device crate compares the gradients of [`all`] on its
//! device with the gradients on another by [`Case::gradients`].

use crate::Grad;
use teeny_core::{
    Attention, Averaging, DType, Expr, Extremum, Interpolation, IntoShape, MatrixNorm, NewAxis,
    PadMode, Result, SortOrder, Tensor, ToDevice, Triangle, Window, map, map_rows, map_sum, s,
};

/// One operation on inputs of given shapes.
pub struct Case {
    /// The name in reports.
    pub name: &'static str,
    /// The operation.
    pub f: fn(&[Tensor]) -> Result<Tensor>,
    /// The shapes of its inputs.
    pub shapes: &'static [&'static [usize]],
    /// True if it is defined for positive numbers only.
    pub positive: bool,
}

impl Case {
    /// Inputs in the case's shapes, or in the shapes `base` makes of them: of f64.
    ///
    /// # Panics
    /// If the device returns an error.
    pub fn inputs(
        &self,
        device: impl ToDevice,
        base: impl Fn(&[usize]) -> Vec<usize>,
    ) -> Vec<Tensor> {
        let fill = |shape: &&[usize]| {
            if self.positive {
                positive(base(shape), &device)
            } else {
                values(base(shape), &device)
            }
        };
        self.shapes.iter().map(fill).collect()
    }

    /// The gradients of the sum of the squared result by the inputs it depends on, computed in
    /// `dtype` on an autograd device. With `transposed`, the operation sees its inputs through
    /// transposed views.
    ///
    /// # Errors
    /// If the device fails.
    pub fn gradients(
        &self,
        device: impl ToDevice,
        dtype: DType,
        transposed: bool,
    ) -> Result<Vec<Vec<f64>>> {
        let base =
            |s: &[usize]| if transposed { s.iter().rev().copied().collect() } else { s.to_vec() };
        // Made in f64 elsewhere: the device may lack the type.
        let inputs = self.inputs(teeny_core::Reference::new(), base);
        let leaves = inputs
            .iter()
            .map(|x| x.cast(dtype)?.to(&device)?.requires_grad())
            .collect::<Result<Vec<_>>>()?;
        let view = |x: &Tensor| {
            if transposed {
                x.permute((0..x.ndim()).rev().collect::<Vec<_>>())
            } else {
                Ok(x.clone())
            }
        };
        let y = (self.f)(&leaves.iter().map(view).collect::<Result<Vec<_>>>()?)?;
        let grads = y.square()?.sum_all()?.backward()?;
        let read =
            |x: &Tensor| Ok(grads.get(x)?.to_scalars()?.into_iter().map(|v| v.to_f64()).collect());
        leaves.iter().filter(|x| grads.contains(x)).map(read).collect()
    }
}

/// Distinct values of both signs, none near 0, 1 or an integer, in no order:
/// `((i * 7 + 3) % 11 - 5 + 0.3 + i/100) / 4`.
///
/// # Panics
/// If the device refuses.
pub fn values(shape: impl IntoShape, device: impl ToDevice) -> Tensor {
    let shape = shape.shape().unwrap();
    let all = (0..shape.numel())
        .map(|i| (((i * 7 + 3) % 11) as f64 - 5.0 + 0.3 + i as f64 / 100.0) / 4.0);
    Tensor::from_vec(all.collect::<Vec<f64>>(), shape, device).unwrap()
}

/// The same, all positive.
///
/// # Panics
/// If the device refuses.
pub fn positive(shape: impl IntoShape, device: impl ToDevice) -> Tensor {
    values(shape, device).abs().unwrap().add(0.3).unwrap()
}

macro_rules! cases {
    ($shapes:expr, $positive:expr; $($name:literal $f:expr;)*) => { vec![$(Case { name: $name, f: $f, shapes: $shapes, positive: $positive }),*] };
}

fn index(x: &Tensor, positions: &[i64], shape: &[usize]) -> Result<Tensor> {
    Tensor::from_slice(positions, shape, x)
}

const PAIR: &[usize] = &[2, 3];

/// All of them.
pub fn all() -> Vec<Case> {
    [
        elementwise(),
        positives(),
        binaries(),
        reductions(),
        rows(),
        products(),
        indexing(),
        arrangements(),
        windows(),
        attention(),
        matrices(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn elementwise() -> Vec<Case> {
    cases! { &[&[3, 5]], false;
        "neg" |x| x[0].neg(); "abs" |x| x[0].abs(); "sign" |x| x[0].sign(); "recip" |x| x[0].recip(); "square" |x| x[0].square();
        "exp" |x| x[0].exp(); "exp2" |x| x[0].exp2(); "expm1" |x| x[0].expm1();
        "sin" |x| x[0].sin(); "cos" |x| x[0].cos(); "tan" |x| x[0].mul(0.5)?.tan(); "atan" |x| x[0].atan(); "tanh" |x| x[0].tanh();
        "asin" |x| x[0].mul(0.5)?.asin(); "acos" |x| x[0].mul(0.5)?.acos(); "sinh" |x| x[0].sinh(); "cosh" |x| x[0].cosh(); "erf" |x| x[0].erf();
        "floor" |x| x[0].floor(); "ceil" |x| x[0].ceil(); "round" |x| x[0].round(); "trunc" |x| x[0].trunc();
        "sigmoid" |x| x[0].sigmoid(); "relu" |x| x[0].relu(); "relu6" |x| x[0].mul(6)?.relu6(); "selu" |x| x[0].selu();
        "gelu" |x| x[0].gelu(); "gelu_tanh" |x| x[0].gelu_tanh(); "silu" |x| x[0].silu(); "softplus" |x| x[0].softplus();
        "log_sigmoid" |x| x[0].log_sigmoid(); "mish" |x| x[0].mish(); "softsign" |x| x[0].softsign(); "hardsigmoid" |x| x[0].mul(3)?.hardsigmoid();
        "hardswish" |x| x[0].mul(3)?.hardswish(); "hardtanh" |x| x[0].hardtanh(); "leaky_relu" |x| x[0].leaky_relu(0.1); "elu" |x| x[0].elu(0.7);
        "clamp" |x| x[0].clamp(-0.6, 0.7); "number_left" |x| Ok((2.0 / &x[0]) - (1.5 - &x[0])); "pow_int" |x| x[0].pow(3); "pow_zero" |x| x[0].pow(0);
        "masked_fill" |x| x[0].masked_fill(&x[0].gt(0.1)?, 2.0); "copy" |x| x[0].copy(); "fused" |x| map([&x[0]], |[x]| (x.sin() * x.exp()).tanh());
    }
}

fn positives() -> Vec<Case> {
    cases! { &[&[3, 5]], true;
        "sqrt" |x| x[0].sqrt(); "rsqrt" |x| x[0].rsqrt(); "log" |x| x[0].log(); "log2" |x| x[0].log2(); "log1p" |x| x[0].log1p(); "pow_number" |x| x[0].pow(1.7);
    }
}

fn binaries() -> Vec<Case> {
    let mut all = cases! { &[&[3, 5], &[3, 5]], false;
        "add" |x| x[0].add(&x[1]); "sub" |x| x[0].sub(&x[1]); "mul" |x| x[0].mul(&x[1]); "div" |x| x[0].div(&x[1].add(3)?);
        "maximum" |x| x[0].maximum(&x[1].neg()?); "minimum" |x| x[0].minimum(&x[1].neg()?);
        "rem" |x| x[0].rem(&x[1].add(2.5)?); "floor_div" |x| x[0].floor_div(&x[1].add(2.5)?);
        "where_cond" |x| x[0].gt(0.1)?.where_cond(&x[0], &x[1]); "lerp" |x| x[0].lerp(&x[1], 0.3); "same_operand_twice" |x| x[0].mul(&x[0])?.add(&x[1]);
        "cat" |x| Tensor::cat(&[&x[0], &x[1]], 1); "stack" |x| Tensor::stack(&[&x[0], &x[1]], 0);
    };
    all.extend(cases! { &[&[3, 5], &[3, 5]], true; "pow" |x| x[0].pow(&x[1]); });
    all.extend(cases! { &[&[3, 5], &[3, 5], &[3, 5]], false;
        "lerp_tensor" |x| x[0].lerp(&x[1], &x[2]); "three" |x| map([&x[0], &x[1], &x[2]], |[a, b, c]| (a * b + c).sigmoid() * b);
    });
    all.extend(cases! { &[PAIR; 8], false; "eight_inputs" |x| {
        map([&x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &x[6], &x[7]], |[a, b, c, d, e, f, g, h]: [Expr<'_>; 8]| (a * b + c * d + e * f - g * h).sin())
    }; });
    all
}

fn reductions() -> Vec<Case> {
    cases! { &[&[3, 4, 5]], false;
        "sum" |x| x[0].sum(1); "sum_two_axes" |x| x[0].sum([0, 2]); "sum_all" |x| x[0].sum_all(); "sum_keepdim" |x| x[0].sum_keepdim(0);
        "map_sum" |x| map_sum([&x[0], &x[0].mean_keepdim(1)?], [0, 2], |[x, m]| (x - m).tanh() * x); "mean" |x| x[0].mean(-1); "prod" |x| x[0].prod(1); "prod_two_axes" |x| x[0].prod([0, 2]); "max" |x| x[0].max(1); "max_all" |x| x[0].max_all();
        "min" |x| x[0].min([0, 1]); "var" |x| x[0].var(1, 1); "std" |x| x[0].std([0, 2], 0); "logsumexp" |x| x[0].logsumexp(2);
        "cumsum" |x| x[0].cumsum(1); "cumprod" |x| x[0].cumprod(-1); "softmax" |x| x[0].softmax(1); "log_softmax" |x| x[0].log_softmax(-1);
        "sort" |x| Ok(x[0].sort(1, SortOrder::Descending)?.0); "topk" |x| Ok(x[0].topk(2, -1, Extremum::Largest)?.0); "tril" |x| x[0].tril(0); "roll" |x| x[0].roll(1, 2);
        "repeat" |x| x[0].repeat([2, 1, 1]); "pad" |x| x[0].pad(&[(0, 0), (1, 2), (0, 1)], 0.5); "unfold" |x| x[0].unfold(2, 3, 1);
        "cross_entropy" |x| x[0].flatten(0, 1)?.cross_entropy(&Tensor::new([0, 4, 2, -1, 3, 3, 1, 0, -1, 2, 2, 4], x[0].device())?, Some(-1));
        "overlapping_windows_squared" |x| x[0].unfold(1, 2, 1)?.square(); "diagonal" |x| x[0].diagonal(1, 1, 2);
    }
}

fn rows() -> Vec<Case> {
    let mut all = cases! { &[&[3, 5]], false;
        "rows_softmax" |x| map_rows([&x[0]], -1, |[x]| { let e = (x - x.max()).exp(); e / e.sum() });
        "rows_logsumexp" |x| map_rows([&x[0]], 0, |[x]| x.logsumexp() - x.min()); "rows_length" |x| map_rows([&x[0]], [0, 1], |[x]| x.sum() / x.length() * x);
        "rows_unit" |x| map_rows([&x[0]], -1, |[x]| x / (x.square().sum() + 0.1).sqrt()); "rows_standard" |x| map_rows([&x[0]], -1, |[x]| (x - x.mean()) * (x.var(1) + 0.1).rsqrt());
        "rows_prod" |x| map_rows([&x[0]], -1, |[x]| x * x.prod()); "rows_index" |x| map_rows([&x[0]], 0, |[x]| (x * x.index()).sum().sin() + x.at(2) * x);
        "rows_choice" |x| map_rows([&x[0]], -1, |[x]| x.gt(x.mean() - x.mean() + 0.31).where_cond(x.exp() * x.max(), x.mean() - x)); "rows_sigmoid" |x| map_rows([&x[0]], -1, |[x]| x.sum().sigmoid() * x.sigmoid() + x.sum().gelu());
    };
    all.extend(cases! { &[&[3, 5], &[3, 1], &[5]], false;
        "rows_scaled" |x| map_rows([&x[0], &x[1], &x[2]], -1, |[x, t, w]| ((x * t).softmax() * w).sum() + t * x + w);
        "rows_one_value" |x| map_rows([&x[0], &x[1], &x[2]], -1, |[x, t, w]| (x + t).sum() * t + (w * t).exp().mean());
    });
    all.extend(cases! { &[&[2, 3, 2], &[3, 1]], false;
        "rows_groups" |x| map_rows([&x[0], &x[1]], [0, 2], |[x, w]| (x - x.mean()) * (x.var(0) + 0.1).rsqrt() * w);
        "rows_attended" |x| map_rows([&x[0], &x[1]], 1, |[x, w]| ((x * w).log_softmax() * x).sum() + x.max());
    });
    all
}

fn products() -> Vec<Case> {
    let mut all =
        cases! { &[&[2, 3, 4], &[2, 4, 5]], false; "matmul_batched" |x| x[0].matmul(&x[1]); };
    all.extend(cases! { &[&[3, 4], &[4, 5]], false; "matmul" |x| x[0].matmul(&x[1]); });
    all.extend(
        cases! { &[&[2, 3, 4], &[4, 5]], false; "matmul_shared_rhs" |x| x[0].matmul(&x[1]); },
    );
    all.extend(
        cases! { &[&[3, 4], &[2, 4, 5]], false; "matmul_shared_lhs" |x| x[0].matmul(&x[1]); },
    );
    all.extend(cases! { &[&[2, 1, 3, 4], &[3, 4, 2]], false; "matmul_both_shared" |x| x[0].matmul(&x[1]); });
    all.extend(cases! { &[&[2, 3, 4], &[4, 3, 5]], false; "einsum" |x| Tensor::einsum("bij,jik->bk", &[&x[0], &x[1]]); });
    all.extend(cases! { &[&[4, 4]], false; "matmul_self" |x| x[0].matmul(&x[0].t()?); });
    all
}

fn indexing() -> Vec<Case> {
    let mut all = cases! { &[&[4, 3]], false;
        "gather" |x| x[0].gather(0, &index(&x[0], &[0, 3, 3, 1, 1, 1], &[2, 3])?); "index_select" |x| x[0].index_select(0, &index(&x[0], &[3, 0, 3], &[3])?);
        "index_basic" |x| x[0].index(s![1..;2, NewAxis, ..;-1]); "index_rows" |x| x[0].index([3, 0, 3]);
        "index_pairs" |x| x[0].index(([3, 0, 3, 3], [1, 2, 1, 0])); "index_mask" |x| x[0].index(x[0].gt(0.1)?);
        "index_grid" |x| x[0].index((index(&x[0], &[0, 3, -1], &[3, 1])?, [1, -1]));
    };
    all.extend(cases! { &[&[2, 3, 4]], false;
        "index_apart" |x| x[0].index(s![[1, 0, 1], 1.., [3, 3, 0]]); "index_joined" |x| x[0].index(s![.., [1, 0, 1], [3, 3, 0]]);
        "index_masked_axes" |x| x[0].index((1, x[0].at(0, 0)?.gt(-0.2)?));
    });
    all.extend(cases! { &[&[4, 3], &[3, 3]], false;
        "scatter" |x| x[0].scatter(0, &index(&x[0], &[0, 3, 3, 1, 1, 1, 0, 2, 3], &[3, 3])?, &x[1]);
        "scatter_add" |x| x[0].scatter_add(0, &index(&x[0], &[0, 3, 3, 1, 1, 1, 0, 2, 3], &[3, 3])?, &x[1]);
        "scatter_max" |x| x[0].scatter_max(0, &index(&x[0], &[0, 3, 3, 1, 1, 1, 0, 2, 3], &[3, 3])?, &x[1].neg()?);
        "scatter_min" |x| x[0].scatter_min(0, &index(&x[0], &[0, 3, 3, 1, 1, 1, 0, 2, 3], &[3, 3])?, &x[1].neg()?);
        "slice_assign" |x| x[0].contiguous()?.slice_assign(0, 1.., &x[1]);
        "assign" |x| x[0].contiguous()?.assign_view(|x| x.flip(0)?.slice(0, ..3), &x[1]);
        "assign_index" |x| x[0].contiguous()?.assign(s![1..;-1, ..], &x[1]);
        "assign_rows" |x| x[0].clone().assign([0, 3, 3], &x[1]); "assign_pairs" |x| x[0].clone().assign(([3, 0, 3], [1, 2, 1]), x[1].at(0, 0)?);
        "assign_mask" |x| x[0].clone().assign(x[0].gt(0.1)?, x[1].sum_all()?); "assign_part_rows" |x| x[0].contiguous()?.assign(s![[1, -1], 1..], x[1].slice(0, 1..)?.slice(1, 1..)?);
        "assign_masked_rows" |x| x[0].contiguous()?.assign([true, false, true, true], &x[1]);
        "assign_to_constant" |x| Tensor::zeros((4, 3), x[0].dtype(), &x[0])?.slice_assign(0, ..3, &x[1])?.mul(&x[0]);
    });
    all
}

fn arrangements() -> Vec<Case> {
    let mut all = cases! { &[&[4, 3]], false;
        "pad_reflect" |x| x[0].pad_mode(&[(2, 3), (1, 0)], PadMode::Reflect); "pad_replicate" |x| x[0].pad_mode(&[(0, 2), (3, 1)], PadMode::Replicate);
        "pad_circular" |x| x[0].pad_mode(&[(4, 1), (0, 2)], PadMode::Circular); "pad" |x| x[0].pad(&[(-1, 2), (1, -1)], 3.0);
        "repeat" |x| x[0].repeat((2, 1, 2)); "repeat_interleave" |x| x[0].repeat_interleave(1, 2); "roll" |x| x[0].roll(0, -1);
        "repeat_each" |x| x[0].repeat_each(0, &index(&x[0], &[2, 0, 1, 1], &[4])?); "rot90" |x| x[0].rot90(1, 0, 1); "diff" |x| x[0].diff(0, 2);
        "tril" |x| x[0].tril(-1); "triu" |x| x[0].triu(1); "diag_embed" |x| x[0].diag_embed(1); "trace" |x| x[0].trace();
        "cummax" |x| Ok(x[0].cummax(0)?.0); "cummin" |x| Ok(x[0].cummin(1)?.0); "take" |x| x[0].take(&index(&x[0], &[0, -1, 5, 5], &[2, 2])?);
        "take_along" |x| x[0].take_along(0, &x[0].argsort(0, SortOrder::Descending)?); "masked_select" |x| x[0].masked_select(&x[0].gt(0.1)?);
        "unique_slices" |x| Ok(x[0].unique_slices(0)?.0); "topk" |x| Ok(x[0].topk(2, 0, Extremum::Largest)?.0); "movedim" |x| x[0].movedim(0, 1)?.mul(&x[0].t()?);
    };
    all.extend(cases! { &[&[4, 3], &[2, 3]], false;
        "index_add" |x| x[0].index_add(0, &index(&x[0], &[2, 2], &[2])?, &x[1]); "kron" |x| x[0].kron(&x[1]); "outer" |x| x[0].at(1, 0)?.outer(&x[1].at(0, 0)?);
        "cdist" |x| x[0].cdist(&x[1].add(5.5)?, 2.0); "cdist_1" |x| x[0].cdist(&x[1].add(5.5)?, 1.0); "cdist_inf" |x| x[0].cdist(&x[1].mul(1.37)?.add(5.5)?, f64::INFINITY);
        "cdist_3" |x| x[0].cdist(&x[1].add(5.5)?, 3.0);
    });
    all.extend(cases! { &[&[2, 3, 3], &[3, 4], &[4, 3, 2]], false;
        "einsum_diagonal" |x| Tensor::einsum("bii,ij->bj", &[&x[0], &x[1]]); "einsum_trace" |x| Tensor::einsum("bii->b", &[&x[0]]);
        "einsum_dots" |x| Tensor::einsum("...ij,jk->...k", &[&x[0], &x[1]]); "einsum_sums" |x| Tensor::einsum("bij,jk", &[&x[0], &x[1]]);
        "einsum_three" |x| Tensor::einsum("bij,jk,kil->bl", &[&x[0], &x[1], &x[2]]); "einsum_dots_both" |x| Tensor::einsum("...i,...i->...", &[&x[0], &x[0].at(0, 0)?]);
        "einsum_self" |x| Tensor::einsum("bij,bji->b", &[&x[0], &x[0]]);
    });
    all
}

fn windows() -> Vec<Case> {
    let mut all = cases! { &[&[2, 4, 5, 6], &[4, 2, 3, 2]], false;
        "conv2d" |x| x[0].conv(&x[1], &Window::new(2).stride(2).padding(1).groups(2));
        "conv2d_dilated" |x| x[0].conv(&x[1], &Window::new(2).dilation(2).padding(2).groups(2));
    };
    all.extend(cases! { &[&[2, 4, 3, 3]], false;
        "im2col" |x| x[0].im2col(&[2, 2], &Window::new(2).padding(1)); "col2im" |x| x[0].reshape((2, 4, 9))?.col2im(&[4, 4], &[2, 2], &Window::new(2));
        "pixel_shuffle" |x| x[0].pixel_shuffle(2); "channel_shuffle" |x| x[0].channel_shuffle(2);
    });
    all.extend(cases! { &[&[2, 2, 6], &[3, 2, 2]], false; "conv_same" |x| x[0].conv_same(&x[1], &Window::new(1)); });
    all.extend(cases! { &[&[1, 3, 4], &[3, 2, 3]], false; "conv_transpose_extra" |x| x[0].conv_transpose(&x[1], &Window::new(1).dilation(3).padding(2), &[8]); });
    all.extend(cases! { &[&[2, 2, 6], &[3, 2, 3]], false; "conv1d" |x| x[0].conv(&x[1], &Window::new(1)); });
    all.extend(cases! { &[&[1, 3, 4], &[3, 2, 3]], false; "conv_transpose" |x| x[0].conv_transpose(&x[1], &Window::new(1).stride(2), &[9]); });
    all.extend(cases! { &[&[2, 3, 4], &[2, 2, 6]], false;
        "conv_weight_grad" |x| x[0].conv_weight_grad(&x[1], &Window::new(1), &teeny_core::Shape::new(&[3, 2, 3])?);
    });
    all.extend(cases! { &[&[2, 3, 5], &[5], &[5]], false;
        "layer_norm" |x| x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-3); "layer_norm_weight" |x| x[0].layer_norm(1, Some(&x[1]), None, 1e-3);
        "layer_norm_bias" |x| x[0].layer_norm(1, None, Some(&x[2]), 1e-3); "rms_norm" |x| x[0].rms_norm(1, Some(&x[1]), 1e-3);
        "rms_norm_plain" |x| x[0].rms_norm(2, None, 1e-3);
    });
    all.extend(cases! { &[&[2, 5, 6]], false;
        "max_pool" |x| x[0].max_pool(&[2, 3], &Window::new(2).stride(2).padding(1)); "avg_pool" |x| x[0].avg_pool(&[2, 3], &Window::new(2).stride(2).padding(1));
        "max_pool_ceil" |x| Ok(x[0].max_pool_ceil(&[2, 2], &Window::new(2).stride(3))?.0); "adaptive_max_pool" |x| Ok(x[0].adaptive_max_pool(&[3, 4])?.0);
        "avg_pool_ceil" |x| x[0].avg_pool_with(&[2, 3], &Window::new(2).stride(2).padding(1), Averaging::new().with_ceil(true).with_count_padding(false));
        "adaptive_avg_pool" |x| x[0].adaptive_avg_pool(&[3, 4]); "lp_pool" |x| x[0].abs()?.add(0.2)?.lp_pool(3.0, &[2, 2], &Window::new(2));
        "max_unpool" |x| { let (y, at) = x[0].max_pool_indices(&[2, 2], &Window::new(2).stride(2))?; y.max_unpool(&at, &[5, 6]) };
        "interpolate_linear" |x| x[0].interpolate(&[7, 4], Interpolation::Linear { align_corners: false });
        "interpolate_cubic" |x| x[0].interpolate(&[3, 8], Interpolation::Cubic { align_corners: true });
        "interpolate_nearest" |x| x[0].interpolate(&[8, 3], Interpolation::NearestExact);
        "avg_pool_apart" |x| x[0].avg_pool(&[2, 3], &Window::new(2).stride([2, 3])); "avg_pool_narrow" |x| x[0].avg_pool(&[3], &Window::new(1).stride(3));
        "avg_pool_overlapping" |x| x[0].avg_pool(&[3], &Window::new(1)); "max_pool_overlapping" |x| x[0].max_pool(&[3], &Window::new(1));
    });
    all
}

fn attention() -> Vec<Case> {
    /// Query 0 sees no key, the others all but key 1.
    fn seen(x: &Tensor) -> Result<Tensor> {
        Tensor::new(
            [[false, false, false, false], [true, false, true, true], [true, false, true, true]],
            x,
        )
    }
    let mut all = cases! { &[&[2, 3, 5], &[2, 4, 5], &[2, 4, 2]], false;
        "attention" |x| x[0].attention(&x[1], &x[2], None, &Attention::full());
        "attention_causal" |x| x[0].attention(&x[1], &x[2], None, &Attention::causal(1).scale(0.7));
        "attention_window" |x| x[0].attention(&x[1], &x[2], None, &Attention::causal(2).window(2));
        "attention_softcap" |x| x[0].attention(&x[1], &x[2], None, &Attention::causal(1).softcap(0.6));
        "attention_masked" |x| x[0].attention(&x[1], &x[2], Some(&seen(&x[0])?), &Attention::full());
    };
    all.extend(cases! { &[&[2, 2, 3, 5], &[2, 1, 3, 5]], false;
        "attention_grouped" |x| x[0].attention(&x[1], &x[1], None, &Attention::causal(0));
        "attention_constant_keys" |x| x[0].attention(&values((2, 2, 3, 5), &x[0]), &x[1], None, &Attention::full());
    });
    all.extend(cases! { &[&[2, 3, 5], &[2, 4, 5], &[2, 4, 2], &[3, 4]], false;
        "attention_bias" |x| x[0].attention(&x[1], &x[2], Some(&x[3]), &Attention::causal(1));
        "attention_bias_softcap" |x| x[0].attention(&x[1], &x[2], Some(&x[3]), &Attention::full().softcap(0.4));
    });
    all
}

/// Well-conditioned matrices of the input: its elements are at most 1.5 or so.
fn regular(x: &Tensor) -> Result<Tensor> {
    let n = x.shape()[x.ndim() - 1];
    let diagonal = Tensor::linspace(5.0, 8.0, n, x.dtype(), x)?.diag(0)?;
    x.mul(0.5)?.add(&diagonal)
}

fn symmetric(x: &Tensor) -> Result<Tensor> {
    let x = regular(x)?;
    x.add(&x.transpose(-2, -1)?)
}

/// Columns and rows that are independent for any input.
fn full_rank(x: &Tensor) -> Result<Tensor> {
    let (m, n) = (x.shape()[x.ndim() - 2], x.shape()[x.ndim() - 1]);
    let diagonal = Tensor::linspace(4.0, 7.0, n, x.dtype(), x)?
        .mul(&Tensor::eye(m.max(n), x.dtype(), x)?.slice(0, ..m)?.slice(1, ..n)?)?;
    x.mul(0.5)?.add(&diagonal)
}

/// Products that do not depend on the signs that a factorisation chooses.
fn unsigned(parts: &[&Tensor]) -> Result<Tensor> {
    let flat = parts.iter().map(|x| x.square()?.reshape(-1)).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&flat, 0)
}

fn matrices() -> Vec<Case> {
    let mut all = cases! { &[&[2, 3, 3], &[3, 2]], false;
        "solve" |x| regular(&x[0])?.solve(&x[1]); "solve_lower" |x| regular(&x[0])?.solve_triangular(&x[1], Triangle::Lower);
        "solve_upper" |x| regular(&x[0])?.solve_triangular(&x[1], Triangle::Upper); "solve_unit_lower" |x| x[0].solve_triangular(&x[1], Triangle::UnitLower);
        "solve_unit_upper" |x| x[0].solve_triangular(&x[1], Triangle::UnitUpper);
    };
    all.extend(cases! { &[&[2, 3, 3]], false;
        "inv" |x| regular(&x[0])?.inv(); "det" |x| regular(&x[0])?.mul(0.2)?.det(); "slogdet" |x| Ok(regular(&x[0])?.slogdet()?.1);
        "cholesky" |x| symmetric(&x[0])?.cholesky(); "eigvalsh" |x| symmetric(&x[0])?.eigvalsh();
        "eigh" |x| { let (w, v) = symmetric(&x[0])?.eigh()?; unsigned(&[&w.sqrt()?, &v]) };
    });
    all.extend(cases! { &[&[2, 4, 3]], false;
        "qr" |x| { let (q, r) = full_rank(&x[0])?.qr()?; unsigned(&[&q, &r]) }; "svd" |x| { let (u, s, vt) = full_rank(&x[0])?.svd()?; unsigned(&[&u, &s, &vt]) };
        "pinv" |x| full_rank(&x[0])?.pinv(None); "matrix_norm" |x| x[0].matrix_norm(MatrixNorm::Frobenius); "vector_norm" |x| x[0].vector_norm(3.0, 1);
        "nuclear_norm" |x| full_rank(&x[0])?.matrix_norm(MatrixNorm::Nuclear); "spectral_norm" |x| full_rank(&x[0])?.matrix_norm(MatrixNorm::Spectral);
    });
    all.extend(cases! { &[&[2, 3, 4]], false;
        "qr_wide" |x| { let (q, r) = full_rank(&x[0])?.qr()?; unsigned(&[&q, &r]) }; "svd_wide" |x| { let (u, s, vt) = full_rank(&x[0])?.svd()?; unsigned(&[&u, &s, &vt]) };
        "pinv_wide" |x| full_rank(&x[0])?.pinv(None);
    });
    all.extend(cases! { &[&[4, 3], &[4]], false; "lstsq" |x| full_rank(&x[0])?.lstsq(&x[1]); });
    all.extend(
        cases! { &[&[3, 4], &[3, 2]], false; "lstsq_wide" |x| full_rank(&x[0])?.lstsq(&x[1]); },
    );
    all
}
