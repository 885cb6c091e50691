//! Every misuse of a public operation is reported with the operation's name, the caller's line, the
//! operands and a line of help.
//!
//! The first test calls each operation wrongly and reads the errors. The other two read the
//! sources: every public operation that can fail is among the misuses, and every error has a help
//! line where it is made.

use crate::awaited;
use std::fs;
use std::panic::Location;
use teeny_core::random::{Key, next_key};
use teeny_core::{
    Attention, Averaging, BagMode, Builder, DType, Distribution, Error, ErrorKind as K, Extremum,
    Interpolation, IntoAxes, IntoShape, Kernel, Layout, MatrixNorm, Outside, PadMode, Pca,
    QuantPart, QuantTensor, QuantType, QuantileMethod, Reference, Result, Sampling, Scalar,
    ScatterReduce, Shape, Side, SortOrder, Tensor, Triangle, Window, device, map, map_n, map_rows,
    map_sum, memory, registry, s,
};

/// A wrong call and what came of it.
struct Misuse {
    op: &'static str,
    kind: K,
    line: u32,
    /// Whether a tensor is among the arguments.
    operand: bool,
    error: Option<Error>,
}

#[derive(Default)]
struct Misuses(Vec<Misuse>);

impl Misuses {
    /// A wrong call of `op` with a tensor among its arguments, written on the caller's line.
    #[track_caller]
    fn of<T>(&mut self, op: &'static str, kind: K, result: Result<T>) {
        self.0.push(Misuse {
            op,
            kind,
            line: Location::caller().line(),
            operand: true,
            error: result.err(),
        });
    }

    /// A wrong call without a tensor.
    #[track_caller]
    fn bare<T>(&mut self, op: &'static str, kind: K, result: Result<T>) {
        self.0.push(Misuse {
            op,
            kind,
            line: Location::caller().line(),
            operand: false,
            error: result.err(),
        });
    }
}

/// Operands to misuse, all on one device but `far`.
struct Operands {
    device: std::sync::Arc<Reference>,
    /// f32 (2, 3).
    x: Tensor,
    /// f32 (4, 5).
    y: Tensor,
    /// f32 (3).
    v: Tensor,
    /// f32 ().
    scalar: Tensor,
    /// f32 (0, 3).
    empty: Tensor,
    /// i32 (2, 3), all 9.
    i: Tensor,
    /// bool (2, 3).
    b: Tensor,
    /// f16 (2, 2).
    half: Tensor,
    /// f32 (2, 2), of zeros.
    square: Tensor,
    /// f32 (1, 2, 4, 4).
    image: Tensor,
    /// f32 (2, 3, 4, 4).
    batch: Tensor,
    /// f32 (1, 1, 1, 1, 1, 1, 1, 1).
    deep: Tensor,
    /// f32 (2^50) in the memory of one element.
    huge: Tensor,
    /// As `x`, on another device.
    far: Tensor,
}

impl Operands {
    fn new() -> Result<Operands> {
        let device = Reference::new();
        let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &device);
        Ok(Operands {
            x: zeros(&[2, 3])?,
            y: zeros(&[4, 5])?,
            v: zeros(&[3])?,
            scalar: zeros(&[])?,
            empty: zeros(&[0, 3])?,
            i: Tensor::full((2, 3), 9, DType::I32, &device)?,
            b: Tensor::ones((2, 3), DType::Bool, &device)?,
            half: Tensor::ones((2, 2), DType::F16, &device)?,
            square: zeros(&[2, 2])?,
            image: zeros(&[1, 2, 4, 4])?,
            batch: zeros(&[2, 3, 4, 4])?,
            deep: zeros(&[1; 8])?,
            huge: zeros(&[])?.expand(1usize << 50)?,
            far: Tensor::zeros((2, 3), DType::F32, Reference::new())?,
            device,
        })
    }
}

fn constructors(m: &mut Misuses, o: &Operands) {
    let (d, f32, i32) = (&o.device, DType::F32, DType::I32);
    m.bare("new", K::Shape, Tensor::new([vec![1.0f32, 2.0], vec![3.0]], d));
    m.bare("new", K::Shape, Tensor::new([[[[[[[[[1.0f32]]]]]]]]], d));
    m.bare("from_slice", K::Shape, Tensor::from_slice(&[1.0f32, 2.0], 3, d));
    m.bare("from_vec", K::Shape, Tensor::from_vec(vec![1.0f32, 2.0], (2, 2), d));
    m.bare("from_vec", K::Shape, Tensor::from_vec(vec![1.0f32, 2.0], -2, d));
    m.bare("from_bytes", K::Shape, Tensor::from_bytes(&[0, 0, 0], 2, f32, d));
    let broken =
        |_: usize, _: &mut [u8]| Err(Error::io("the file is cut off").help("download it again"));
    m.bare("from_bytes_with", K::Io, Tensor::from_bytes_with(2, f32, d, broken));
    m.bare("from_scalars", K::Shape, Tensor::from_scalars(&[Scalar::Int(1)], 2, f32, d));
    m.bare("full", K::Shape, Tensor::full((2, -3), 1, f32, d));
    m.bare("zeros", K::Shape, Tensor::zeros([1; 9], f32, d));
    m.bare("zeros", K::OutOfMemory, Tensor::zeros(1usize << 50, f32, d));
    m.bare("ones", K::Value, Tensor::ones((1usize << 40, 1usize << 40), f32, d));
    m.of("zeros_like", K::OutOfMemory, o.huge.zeros_like());
    m.of("ones_like", K::OutOfMemory, o.huge.ones_like());
    m.of("full_like", K::OutOfMemory, o.huge.full_like(3));
    m.bare("arange", K::Value, Tensor::arange(0, 10, -1, d));
    m.bare("arange", K::Value, Tensor::arange(0.0f32, 10.0, 0.0, d));
    m.bare("linspace", K::DType, Tensor::linspace(0.0, 1.0, 3, i32, d));
    m.bare("eye", K::Value, Tensor::eye(1 << 40, f32, d));
    m.bare("rand", K::DType, Tensor::rand(3, i32, d));
    m.bare("rand", K::Shape, Tensor::rand(-3, f32, d));
    m.bare("randn", K::DType, Tensor::randn(3, i32, d));
    m.of("rand_like", K::DType, Tensor::zeros(3, i32, d).and_then(|x| x.rand_like()));
    m.of("randn_like", K::DType, Tensor::zeros(3, i32, d).and_then(|x| x.randn_like()));
    m.bare("uniform", K::DType, Tensor::uniform(0.0, 1.0, 3, DType::Bool, d));
    m.bare("uniform", K::Value, Tensor::uniform(1.0, 0.0, 3, f32, d));
    m.bare("normal", K::Value, Tensor::normal(0.0, -1.0, 3, f32, d));
    m.bare("randint", K::DType, Tensor::randint(0, 10, 3, f32, d));
    m.bare("randint", K::Value, Tensor::randint(10, 0, 3, i32, d));
    m.bare("randint", K::Value, Tensor::randint(0, 1000, 3, DType::U8, d));
    m.bare("bernoulli", K::Value, Tensor::bernoulli(1.5, 3, d));
    m.bare("randperm", K::Value, Tensor::randperm(1 << 40, d));
    m.bare(
        "random",
        K::DType,
        Tensor::random(Distribution::Bernoulli { p: 0.5 }, 3, f32, next_key(), d),
    );
    let key = Key { seed: 0, draw: 0 };
    m.bare(
        "random",
        K::Value,
        Tensor::random(Distribution::Normal { mean: f64::NAN, std: 1.0 }, 3, f32, key, d),
    );
}

fn views(m: &mut Misuses, o: &Operands) {
    let Operands { x, y, scalar, deep, huge, far, .. } = o;
    m.of("size", K::Axis, x.size(2));
    m.of("reshape", K::Shape, x.reshape((4, 2)));
    m.of("reshape", K::Shape, x.reshape((-1, -1)));
    m.of("reshape", K::Shape, x.reshape((-2, 3)));
    m.of("reshape", K::Shape, x.reshape((-1, 4)));
    m.of("reshape", K::Shape, x.reshape((-1, 0)));
    m.of("reshape", K::Shape, x.reshape([1usize << 40; 4]));
    let turned = x.transpose(0, 1).expect("two axes");
    m.of("view", K::Shape, turned.view(6));
    m.of("view", K::Shape, x.view(7));
    m.of("flatten", K::Axis, x.flatten(0, 2));
    m.of("flatten", K::Axis, x.flatten(1, 0));
    m.of("unflatten", K::Axis, x.unflatten(-3, (1, 2)));
    m.of("unflatten", K::Shape, x.unflatten(1, (2, 2)));
    m.of("permute", K::Axis, x.permute([0, 2]));
    m.of("permute", K::Axis, x.permute([0, 0]));
    m.of("permute", K::Axis, x.permute(0));
    m.of("transpose", K::Axis, x.transpose(0, 2));
    m.of("transpose", K::Axis, scalar.transpose(0, 1));
    m.of("expand", K::Shape, x.expand((4, 3)));
    m.of("expand", K::Shape, x.expand(3));
    m.of("expand", K::Shape, x.expand((-1, 2, 3)));
    m.of("expand", K::Value, x.expand((1usize << 61, 2, 3)));
    m.of("expand", K::Shape, x.expand([1; 9]));
    m.of("expand_as", K::Shape, x.expand_as(y));
    m.of("slice", K::Axis, x.slice(2, ..));
    m.of("slice_step", K::Axis, x.slice_step(2, .., 2));
    m.of("slice_step", K::Value, x.slice_step(0, .., 0));
    m.of("at", K::Axis, x.at(2, 0));
    m.of("at", K::Index, x.at(1, -4));
    m.of("at", K::Index, o.empty.at(0, 0));
    m.of("flip", K::Axis, x.flip(2));
    m.of("flip", K::Axis, x.flip([0, -2]));
    m.of("squeeze", K::Axis, x.squeeze(2));
    m.of("squeeze", K::Shape, x.squeeze(0));
    m.of("unsqueeze", K::Axis, x.unsqueeze(3));
    m.of("unsqueeze", K::Shape, deep.unsqueeze(0));
    m.of("diagonal", K::Axis, x.diagonal(0, 0, 2));
    m.of("diagonal", K::Axis, x.diagonal(0, 1, -1));
    m.of("unfold", K::Axis, x.unfold(2, 1, 1));
    m.of("unfold", K::Value, x.unfold(1, 4, 1));
    m.of("unfold", K::Value, x.unfold(1, 2, 0));
    m.of("as_strided", K::Shape, x.as_strided((2, 3), &[1], 0));
    m.of("as_strided", K::Index, x.as_strided((2, 3), &[3, 1], 1));
    m.of("as_strided", K::Shape, x.as_strided(-1, &[1], 0));
    m.of("contiguous", K::OutOfMemory, huge.contiguous());
    m.of("copy", K::OutOfMemory, huge.copy());
    m.of("slice_assign", K::Axis, x.clone().slice_assign(2, .., x));
    m.of("slice_assign", K::Shape, x.clone().slice_assign(0, ..1, y));
    m.of("slice_assign", K::Device, x.clone().slice_assign(0, .., far));
    let wide = scalar.expand(3).expect("a scalar expands");
    m.of("slice_assign", K::Value, wide.clone().slice_assign(0, .., scalar));
    m.of("assign_view", K::Value, x.clone().assign_view(|_| Ok(y.clone()), x));
    m.of("assign_view", K::Shape, x.clone().assign_view(|x| x.at(0, 0), y));
    m.of(
        "assign_view",
        K::Device,
        x.clone().assign_view(|x| x.at(0, 0), &far.at(0, 0).expect("a row")),
    );
    let past = Layout::contiguous(Shape::new(&[7]).expect("a shape"));
    m.of("with_layout", K::Index, x.with_layout(past));
    m.bare(
        "from_parts",
        K::Index,
        Tensor::from_parts(x.storage().clone(), past, DType::F32, x.device().clone()),
    );
    m.bare(
        "from_parts",
        K::DType,
        Tensor::from_parts(x.storage().clone(), *x.layout(), DType::I32, x.device().clone()),
    );
}

fn parts(m: &mut Misuses, o: &Operands) {
    let Operands { device, x, y, i, far, .. } = o;
    m.of("index", K::Index, x.index((0, 0, 0)));
    m.of("index", K::Index, x.index(s![..., 0, ...]));
    m.of("index", K::Index, x.index(2));
    m.of("index", K::Index, x.index((.., [0, 5])));
    m.of("index", K::Index, x.index(vec![true]));
    m.of("index", K::Value, x.index(s![..;0]));
    m.of("index", K::DType, x.index(y));
    m.of("index", K::Index, x.index(i));
    m.of("index", K::Index, x.index(y.gt(0).expect("a mask")));
    m.of("index", K::Shape, x.index(([0, 1], [0, 1, 2])));
    m.of("assign", K::Index, x.clone().assign(2, y));
    m.of("assign", K::Shape, x.clone().assign(0, y));
    m.of("assign", K::Shape, x.clone().assign([0, 1], y));
    m.of("assign", K::Device, x.clone().assign(.., far));
    m.of("assign", K::Index, x.clone().assign(5, 1.0f32));
    m.of("gather", K::Axis, x.gather(2, i));
    m.of("gather", K::DType, x.gather(0, x));
    m.of("gather", K::Shape, x.gather(0, &i.at(0, 0).expect("a row")));
    m.of("gather", K::Index, x.gather(0, i));
    m.of("gather", K::Device, far.gather(0, i));
    m.of("index_select", K::Axis, x.index_select(2, i));
    m.of("index_select", K::DType, x.index_select(0, x));
    m.of("index_select", K::Index, x.index_select(0, i));
    m.of("index_select", K::Device, far.index_select(0, i));
    m.of("take_along", K::Axis, x.take_along(2, i));
    m.of("take_along", K::DType, x.take_along(0, x));
    m.of("take_along", K::Shape, y.take_along(0, i));
    m.of("take_along", K::Index, x.take_along(0, i));
    m.of("take", K::DType, x.take(x));
    m.of("take", K::Index, x.take(i));
    let (one, ids) = (
        Tensor::ones((), DType::F32, device).expect("one"),
        Tensor::new([7], device).expect("a vector"),
    );
    m.of("index_add", K::Axis, x.index_add(2, &ids, &one));
    m.of("index_add", K::DType, x.index_add(0, &o.v, &one));
    m.of("index_add", K::Shape, x.index_add(0, i, &one));
    m.of("index_add", K::Shape, x.index_add(0, &ids, y));
    m.of("index_add", K::Index, x.index_add(0, &ids, &one));
    m.of("scatter", K::Axis, x.scatter(2, i, &one));
    m.of("scatter", K::DType, x.scatter(0, x, &one));
    m.of("scatter", K::Shape, x.scatter(0, &ids, &one));
    m.of("scatter", K::Shape, x.scatter(0, i, y));
    m.of("scatter", K::Index, x.scatter(0, i, &one));
    m.of("scatter", K::Device, x.scatter(0, i, far));
    m.of("scatter_add", K::DType, o.b.scatter_add(0, i, &one));
    m.of("scatter_add", K::Axis, x.scatter_add(2, i, &one));
    m.of("scatter_max", K::Index, x.scatter_max(0, i, &one));
    m.of("scatter_min", K::Shape, x.scatter_min(0, i, y));
}

fn elementwise(m: &mut Misuses, o: &Operands) {
    let Operands { x, y, v, b, far, .. } = o;
    m.of("neg", K::DType, b.neg());
    m.of("not", K::DType, x.not());
    m.of("add", K::Shape, x.add(y));
    m.of("add", K::Shape, y.add(y.at(1, 0).expect("a column")));
    m.of("add", K::Device, x.add(far));
    m.of("sub", K::DType, b.sub(b));
    m.of("sub", K::Shape, x.sub(y));
    m.of("mul", K::Shape, x.mul(y));
    m.of("div", K::Shape, x.div(y));
    m.of("pow", K::DType, b.pow(b));
    m.of("pow", K::Shape, x.pow(y));
    m.of("rem", K::Shape, x.rem(y));
    m.of("floor_div", K::Shape, x.floor_div(y));
    m.of("maximum", K::Shape, x.maximum(y));
    m.of("minimum", K::Shape, x.minimum(y));
    m.of("lt", K::Shape, x.lt(y));
    m.of("le", K::Shape, x.le(y));
    m.of("gt", K::Shape, x.gt(y));
    m.of("ge", K::Shape, x.ge(y));
    m.of("eq", K::Shape, x.eq(y));
    m.of("ne", K::Shape, x.ne(y));
    m.of("and", K::DType, x.and(x));
    m.of("or", K::DType, x.or(x));
    m.of("xor", K::DType, x.xor(x));
    m.of("shl", K::DType, x.shl(x));
    m.of("shr", K::DType, b.shr(b));
    m.of("leaky_relu", K::Shape, x.leaky_relu(y));
    m.of("elu", K::Shape, x.elu(y));
    m.of("cast", K::OutOfMemory, o.huge.cast(DType::F64));
    m.of("clamp", K::Value, x.clamp(1, 0));
    m.of("lerp", K::Shape, x.lerp(y, 0.5f32));
    m.of("lerp", K::Device, x.lerp(far, 0.5f32));
    m.of("where_cond", K::Shape, b.where_cond(x, y));
    m.of("masked_fill", K::Shape, y.masked_fill(b, 0));
    m.of("map", K::Shape, map([x, y], |[x, y]| x + y));
    m.of("map", K::DType, map([x], |[x]| x.not()));
    m.of("map_n", K::Shape, map_n([x, y], |[x, y]| [x + y, x - y]));
    m.of("map_n", K::Value, map_n([x], |[x]| [x; 40]));
    m.of("map_sum", K::Axis, map_sum([x, v], 2, |[x, v]| x * v));
    m.of("map_rows", K::Axis, map_rows([x], 2, |[x]| x.sum()));
    m.of("map_rows", K::Value, map_rows([x], 1, |[x]| x + 1.0));
    m.of("map_sum", K::Shape, map_sum([x, y], 0, |[x, y]| x * y));
}

fn reductions(m: &mut Misuses, o: &Operands) {
    let Operands { x, empty, i, b, huge, .. } = o;
    m.of("sum", K::Axis, x.sum(7));
    m.of("sum", K::Axis, x.sum([0, -2]));
    m.of("sum", K::Axis, o.scalar.sum(0));
    m.of("sum_keepdim", K::Axis, x.sum_keepdim(2));
    m.of("prod", K::Axis, x.prod(2));
    m.of("mean", K::Axis, x.mean(-3));
    m.of("mean_keepdim", K::Axis, x.mean_keepdim(2));
    m.of("max", K::Axis, x.max(2));
    m.of("max", K::Shape, empty.max(0));
    m.of("max_keepdim", K::Axis, x.max_keepdim(2));
    m.of("max_keepdim", K::Shape, empty.max_keepdim(0));
    m.of("max_all", K::Shape, empty.max_all());
    m.of("min", K::Axis, x.min(2));
    m.of("min", K::Shape, empty.min(0));
    m.of("min_keepdim", K::Axis, x.min_keepdim(2));
    m.of("min_all", K::Shape, empty.min_all());
    m.of("argmax", K::Axis, x.argmax(2));
    m.of("argmax", K::Shape, empty.argmax(0));
    m.of("argmax", K::Value, huge.argmax(0));
    m.of("argmin", K::Axis, x.argmin(2));
    m.of("argmin", K::Shape, empty.argmin(0));
    m.of("any", K::Axis, b.any(2));
    m.of("all", K::Axis, b.all([0, 0]));
    m.of("var", K::Axis, x.var(5, 1));
    m.of("var", K::DType, i.var(0, 1));
    m.of("std", K::Axis, x.std(5, 1));
    m.of("std", K::DType, i.std(0, 1));
    m.of("logsumexp", K::Axis, x.logsumexp(2));
    m.of("logsumexp", K::DType, i.logsumexp(0));
    m.of("cumsum", K::Axis, x.cumsum(2));
    m.of("cumprod", K::Axis, x.cumprod(2));
    m.of("cummax", K::Axis, x.cummax(2));
    m.of("cummin", K::Axis, x.cummin(2));
    m.of("cummin", K::Value, huge.cummin(0));
    m.of("sort", K::Axis, x.sort(2, SortOrder::Ascending));
    m.of("sort", K::Value, huge.sort(0, SortOrder::Ascending));
    m.of("argsort", K::Axis, x.argsort(2, SortOrder::Ascending));
    m.of("topk", K::Axis, x.topk(1, 2, Extremum::Largest));
    m.of("topk", K::Value, x.topk(4, 1, Extremum::Largest));
    m.of("nonzero", K::Value, huge.nonzero());
    m.of("masked_select", K::Shape, o.y.masked_select(b));
    m.of("unique", K::Value, huge.unique());
    m.of("unique_slices", K::Axis, x.unique_slices(2));
    m.of("unique_consecutive", K::OutOfMemory, huge.unique_consecutive());
    m.of("searchsorted", K::Shape, o.scalar.searchsorted(x, Side::Left));
    m.of("searchsorted", K::Shape, x.searchsorted(&o.y, Side::Left));
    m.of("bincount", K::DType, x.bincount(None, 0));
    m.of("bincount", K::Shape, i.bincount(Some(&o.v), 0));
    m.of("bincount", K::Index, i.neg().expect("integers").bincount(None, 0));
    m.of("histogram", K::DType, i.histogram(4, None));
    m.of("histogram", K::Value, x.histogram(0, None));
    m.of("histogram", K::Value, x.histogram(4, Some((1.0, 1.0))));
    m.of("softmax", K::Axis, x.softmax(2));
    m.of("softmax", K::DType, i.softmax(1));
    m.of("log_softmax", K::Axis, x.log_softmax(2));
    m.of("log_softmax", K::DType, b.log_softmax(1));
    let targets = Tensor::new([9, 9], &o.device).expect("a vector");
    m.of("cross_entropy", K::DType, i.cross_entropy(&targets, None));
    m.of("cross_entropy", K::DType, x.cross_entropy(&o.v, None));
    m.of("cross_entropy", K::Shape, o.y.cross_entropy(&targets, None));
    m.of("cross_entropy", K::Index, x.cross_entropy(&targets, None));
    m.of("cross_entropy", K::Device, o.far.cross_entropy(&targets, None));
    m.of("vector_norm", K::Axis, x.vector_norm(2.0, 2));
    m.of("vector_norm", K::DType, i.vector_norm(2.0, 0));
    m.of("vector_norm", K::Shape, empty.vector_norm(f64::INFINITY, 0));
    m.of("matrix_norm", K::Shape, o.v.matrix_norm(MatrixNorm::Frobenius));
    m.of("matrix_norm", K::DType, i.matrix_norm(MatrixNorm::Frobenius));
    m.of("layer_norm", K::DType, i.layer_norm(1, None, None, 1e-5));
    m.of("layer_norm", K::Shape, x.layer_norm(3, None, None, 1e-5));
    m.of("layer_norm", K::Shape, x.layer_norm(1, Some(&o.y), None, 1e-5));
    m.of("layer_norm", K::Device, x.layer_norm(2, Some(&o.far), None, 1e-5));
    m.of("rms_norm", K::DType, i.rms_norm(1, None, 1e-5));
    m.of("rms_norm", K::Shape, x.rms_norm(0, None, 1e-5));
}

fn arrangements(m: &mut Misuses, o: &Operands) {
    let Operands { device, x, y, v, i, scalar, .. } = o;
    m.bare("cat", K::Value, Tensor::cat::<Tensor>(&[], 0));
    m.of("cat", K::Axis, Tensor::cat(&[x, x], 2));
    m.of("cat", K::Shape, Tensor::cat(&[x, y], 0));
    m.of("cat", K::Device, Tensor::cat(&[x, &o.far], 0));
    m.bare("stack", K::Value, Tensor::stack::<Tensor>(&[], 0));
    m.of("stack", K::Axis, Tensor::stack(&[x, x], 4));
    m.of("stack", K::Shape, Tensor::stack(&[x, y], 0));
    m.of("split", K::Axis, x.split(2, 1));
    m.of("split", K::Value, x.split(0, 0));
    m.of("split_sizes", K::Axis, x.split_sizes(2, &[1]));
    m.of("split_sizes", K::Shape, x.split_sizes(0, &[1, 2]));
    m.of("chunk", K::Axis, x.chunk(2, 2));
    m.of("chunk", K::Value, x.chunk(0, 0));
    m.of("tril", K::Shape, v.tril(0));
    m.of("triu", K::Shape, scalar.triu(0));
    m.of("one_hot", K::DType, x.one_hot(10, DType::F32));
    m.of("one_hot", K::Index, i.one_hot(5, DType::F32));
    m.of("meshgrid", K::Shape, Tensor::meshgrid(&[v, x]));
    m.of("pad", K::Axis, x.pad(&[(0, 0), (0, 0), (1, 1)], 0));
    m.of("pad", K::Value, x.pad(&[(-2, -2)], 0));
    m.of("pad_mode", K::Axis, x.pad_mode(&[(0, 0), (0, 0), (1, 1)], PadMode::Reflect));
    m.of("pad_mode", K::Value, x.pad_mode(&[(3, 0)], PadMode::Reflect));
    m.of("pad_mode", K::Value, x.pad_mode(&[(4, 0)], PadMode::Circular));
    m.of("pad_mode", K::Value, o.empty.pad_mode(&[(1, 0), (0, 0)], PadMode::Replicate));
    m.of("repeat", K::Shape, x.repeat(2));
    m.of("repeat", K::Shape, x.repeat((2, -1)));
    m.of("repeat", K::Value, x.repeat((1usize << 61, 2)));
    m.of("repeat_interleave", K::Axis, x.repeat_interleave(2, 2));
    m.of("repeat_interleave", K::Value, x.repeat_interleave(0, 1 << 60));
    m.of("roll", K::Axis, x.roll(2, 1));
    m.of("repeat_each", K::Axis, x.repeat_each(2, &i.at(0, 0).expect("a row")));
    m.of("repeat_each", K::DType, x.repeat_each(1, v));
    m.of("repeat_each", K::Shape, x.repeat_each(0, &i.at(0, 0).expect("a row")));
    m.of(
        "repeat_each",
        K::Value,
        x.repeat_each(0, &Tensor::new([1, -1], device).expect("a vector")),
    );
    m.of(
        "repeat_each",
        K::Value,
        x.repeat_each(0, &Tensor::new([i64::MAX, 1], device).expect("a vector")),
    );
    m.of("tile", K::Shape, x.tile(-1));
    m.of("movedim", K::Axis, x.movedim(2, 0));
    m.of("movedim", K::Axis, x.movedim((0, 1), 0));
    m.of("rot90", K::Axis, x.rot90(1, 0, 2));
    m.of("rot90", K::Axis, x.rot90(1, 1, -1));
    m.of("diff", K::Axis, x.diff(2, 1));
    m.of("diag", K::Shape, o.image.diag(0));
    m.of("diag_embed", K::Axis, scalar.diag_embed(0));
    m.of("trace", K::Shape, v.trace());
    m.of("to_vec", K::DType, x.to_vec::<i32>());
    m.of("to_bytes", K::OutOfMemory, o.huge.to_bytes());
    m.of("to_scalars", K::OutOfMemory, o.huge.to_scalars());
    m.of("item", K::DType, x.item::<i32>());
    m.of("item", K::Shape, x.item::<f32>());
    m.of("to", K::OutOfMemory, o.huge.to(&o.far));
    m.of("to_vec_async", K::DType, awaited::run(x.to_vec_async::<i32>()));
    m.of("to_bytes_async", K::OutOfMemory, awaited::run(o.huge.to_bytes_async()));
    m.of("to_scalars_async", K::OutOfMemory, awaited::run(o.huge.to_scalars_async()));
    m.of("item_async", K::DType, awaited::run(x.item_async::<i32>()));
    m.of("item_async", K::Shape, awaited::run(x.item_async::<f32>()));
    m.of("to_async", K::OutOfMemory, awaited::run(o.huge.to_async(&o.far)));
}

fn products(m: &mut Misuses, o: &Operands) {
    let Operands { device, x, y, v, scalar, i, b, square, half, .. } = o;
    m.of("matmul", K::Shape, x.matmul(x));
    m.of("matmul", K::Shape, x.matmul(y));
    m.of("matmul", K::Shape, x.matmul(scalar));
    m.of("matmul", K::Shape, o.image.matmul(&o.batch));
    m.of("matmul", K::DType, b.matmul(&b.t().expect("two axes")));
    m.of("matmul", K::Device, x.matmul(&o.far));
    m.of("dot", K::Shape, x.dot(v));
    m.of("dot", K::Shape, v.dot(&y.at(0, 0).expect("a row")));
    m.of("outer", K::Shape, v.outer(x));
    m.of("kron", K::Shape, o.deep.kron(x));
    m.of("cdist", K::Shape, x.cdist(y, 2.0));
    m.of("cdist", K::DType, i.cdist(x, 2.0));
    m.of("cdist", K::Value, x.cdist(x, -1.0));
    m.bare("einsum", K::Value, Tensor::einsum::<Tensor>("ij->i", &[]));
    m.of("einsum", K::Value, Tensor::einsum("ij,jk->ik", &[x]));
    m.of("einsum", K::Value, Tensor::einsum("i3->i", &[x]));
    m.of("einsum", K::Value, Tensor::einsum("ijk->i", &[x]));
    m.of("einsum", K::Shape, Tensor::einsum("ij,jk->ik", &[x, y]));
    m.of("einsum", K::Value, Tensor::einsum("ij->ii", &[x]));
    m.of("einsum", K::Value, Tensor::einsum("ij->k", &[x]));
    m.of("solve", K::Shape, x.solve(v));
    m.of("solve", K::Shape, square.solve(v));
    m.of("solve", K::Shape, square.solve(scalar));
    m.of("solve", K::DType, half.solve(half));
    m.of("solve_triangular", K::Shape, x.solve_triangular(v, Triangle::Lower));
    m.of("inv", K::Shape, x.inv());
    m.of("inv", K::DType, half.inv());
    m.of("det", K::Shape, x.det());
    m.of("slogdet", K::Shape, v.slogdet());
    m.of("pinv", K::Value, x.pinv(Some(-1.0)));
    m.of("pinv", K::Shape, v.pinv(None));
    m.of("lstsq", K::Shape, x.lstsq(v));
    m.of("lstsq", K::Shape, o.image.lstsq(&o.batch));
    m.of("cholesky", K::Shape, x.cholesky());
    m.of("qr", K::Shape, v.qr());
    m.of("qr", K::DType, i.qr());
    m.of("qr_complete", K::Shape, v.qr_complete());
    m.of("eigh", K::Shape, x.eigh());
    m.of("eigvalsh", K::Shape, x.eigvalsh());
    m.of("eig", K::Shape, x.eig());
    m.of("eigvals", K::Shape, x.eigvals());
    m.of("svd", K::Shape, v.svd());
    m.of("svd", K::DType, half.svd());
    m.of("svd_full", K::Shape, v.svd_full());
    m.of("svdvals", K::Shape, v.svdvals());
    m.of("matrix_rank", K::Shape, v.matrix_rank(None));
    m.of("matrix_rank", K::Value, x.matrix_rank(Some(f64::NAN)));
    m.of("cond", K::Shape, v.cond());
    m.of("pca", K::Shape, v.pca(1));
    m.of("pca", K::Value, x.pca(3));
    let pca = Pca {
        mean: v.clone(),
        components: x.clone(),
        singular_values: x.clone(),
        variance: x.clone(),
    };
    m.of("Pca::transform", K::Shape, pca.transform(y));
    m.of("Pca::inverse", K::Shape, pca.inverse(x));
    numeric(m, o, device);
}

/// Matrices that have no such result.
#[cfg(feature = "linalg")]
fn numeric(m: &mut Misuses, o: &Operands, device: &std::sync::Arc<Reference>) {
    let square = &o.square;
    let nan = square.full_like(f32::NAN).expect("a matrix");
    m.of("solve", K::Value, square.solve(square));
    m.of("solve_triangular", K::Value, square.solve_triangular(square, Triangle::Upper));
    m.of("inv", K::Value, square.inv());
    m.of("cholesky", K::Value, square.cholesky());
    m.of("eigh", K::Value, nan.eigh());
    m.of("svd", K::Value, nan.svd());
    m.of("pinv", K::Value, nan.pinv(None));
    let turn = Tensor::new([[0.0f32, -1.0], [1.0, 0.0]], device).expect("a matrix");
    m.of("eig", K::Unsupported, turn.eig());
}

#[cfg(not(feature = "linalg"))]
fn numeric(m: &mut Misuses, o: &Operands, _: &std::sync::Arc<Reference>) {
    m.of("solve", K::Unsupported, o.square.solve(&o.square));
}

fn attention(m: &mut Misuses, o: &Operands) {
    let Operands { x, y, v, i, square, .. } = o;
    let full = Attention::full();
    m.of("attention", K::Shape, v.attention(v, v, None, &full));
    m.of("attention", K::Shape, x.attention(y, y, None, &full));
    m.of("attention", K::Shape, x.attention(x, &x.slice(0, ..1).expect("a row"), None, &full));
    m.of("attention", K::Shape, o.image.attention(&o.batch, &o.image, None, &full));
    m.of("attention", K::DType, i.attention(i, i, None, &full));
    m.of("attention", K::DType, x.attention(x, x, Some(&i.slice(1, ..2).expect("a part")), &full));
    m.of("attention", K::Shape, x.attention(x, x, Some(y), &full));
    m.of("attention", K::Value, x.attention(x, x, None, &Attention::causal(0).window(0)));
    m.of("attention", K::Value, x.attention(x, x, None, &Attention::full().window(2)));
    m.of("attention", K::Device, x.attention(&o.far, x, None, &full));
    m.of("attention_weights", K::Shape, x.attention_weights(square, None, &full));
    m.of("attention_weights", K::DType, i.attention_weights(i, None, &full));
}

fn windows(m: &mut Misuses, o: &Operands) {
    let Operands { device, x, image, .. } = o;
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, device).expect("small");
    let (w, w2, plain) = (zeros(&[6, 2, 3, 3]), zeros(&[6, 4, 3, 3]), Window::new(2));
    let ints = Tensor::zeros((1, 2, 4, 4), DType::I32, device).expect("small");
    m.of("conv", K::Shape, x.conv(&w, &plain));
    m.of("conv", K::Shape, image.conv(&w2, &plain));
    m.of("conv", K::Shape, image.conv(&w, &Window::new(2).groups(4)));
    m.of("conv", K::Shape, image.conv(&zeros(&[6, 2, 5, 5]), &plain));
    m.of("conv", K::Value, image.conv(&w, &Window::new(1)));
    m.of("conv", K::Value, image.conv(&w, &Window::new(2).stride(0)));
    m.of("conv", K::Value, image.conv(&w, &Window::new(2).padding(-1)));
    m.of("conv", K::Shape, image.conv(&w, &Window::new(2).dilation(1i64 << 40)));
    m.of("conv", K::DType, ints.conv(&ints, &plain));
    m.of("conv", K::Device, image.conv(&o.far, &plain));
    m.of("conv_same", K::Value, image.conv_same(&w, &Window::new(2).stride(2)));
    m.of("conv_same", K::Value, image.conv_same(&w, &Window::new(1)));
    m.of("conv_same", K::Shape, image.conv_same(&w2, &plain));
    m.of("conv_transpose", K::DType, ints.conv_transpose(&ints, &plain, &[4, 4]));
    m.of("conv_transpose", K::Shape, image.conv_transpose(&w, &plain, &[4]));
    m.of("conv_transpose", K::Shape, image.conv_transpose(&w, &plain, &[6, 6]));
    m.of("conv_transpose", K::Shape, image.conv_transpose(&zeros(&[2, 6, 3, 3]), &plain, &[9, 9]));
    m.of("conv_weight_grad", K::Shape, image.conv_weight_grad(image, &plain, w.shape()));
    m.of(
        "conv_weight_grad",
        K::DType,
        ints.conv_weight_grad(&ints, &plain, &Shape::new(&[2, 2, 1, 1]).expect("a shape")),
    );
    m.of("im2col", K::Shape, x.im2col(&[2, 2], &plain));
    m.of("im2col", K::Shape, image.im2col(&[5, 5], &plain));
    m.of("im2col", K::Value, image.im2col(&[0, 1], &plain));
    m.of("col2im", K::Shape, x.col2im(&[4, 4], &[2, 2], &plain));
    m.of("col2im", K::Shape, zeros(&[1, 8, 5]).col2im(&[4, 4], &[2, 2], &plain));
    m.bare(
        "Window::transposed_size",
        K::Value,
        Window::new(1).transposed_size(image.shape(), w.shape(), 0),
    );
    m.bare("Window::transposed_size", K::Shape, plain.transposed_size(x.shape(), w.shape(), 0));
    m.bare(
        "Window::transposed_size",
        K::Shape,
        Window::new(2).padding(9).transposed_size(image.shape(), w.shape(), 0),
    );
    m.of("max_pool", K::Shape, image.max_pool(&[5, 5], &plain));
    m.of("max_pool", K::Shape, o.v.max_pool(&[2, 2], &plain));
    m.of("max_pool", K::Value, image.max_pool(&[2, 2], &Window::new(2).padding(2)));
    m.of("max_pool", K::Value, image.max_pool(&[2, 2], &Window::new(2).stride(0)));
    m.of("max_pool", K::Value, image.max_pool(&[2, 2], &Window::new(1)));
    m.of("max_pool", K::DType, o.b.max_pool(&[1], &Window::new(1)));
    m.of("max_pool_indices", K::Shape, image.max_pool_indices(&[], &Window::new(0)));
    m.of("max_pool_ceil", K::Shape, o.v.max_pool_ceil(&[2, 2], &plain));
    m.of("max_pool_ceil", K::Value, image.max_pool_ceil(&[0, 2], &plain));
    m.of("avg_pool", K::DType, ints.avg_pool(&[2, 2], &plain));
    m.of("avg_pool", K::Shape, image.avg_pool(&[5, 5], &plain));
    m.of(
        "avg_pool_with",
        K::Value,
        image.avg_pool_with(&[2, 2], &plain, Averaging::new().with_divisor(Some(0))),
    );
    m.of("avg_pool_with", K::DType, ints.avg_pool_with(&[2, 2], &plain, Averaging::default()));
    m.of("lp_pool", K::Value, image.lp_pool(0.0, &[2, 2], &plain));
    m.of("lp_pool", K::Shape, image.lp_pool(2.0, &[5, 5], &plain));
    m.of("adaptive_avg_pool", K::Shape, image.adaptive_avg_pool(&[0, 1]));
    m.of("adaptive_avg_pool", K::DType, ints.adaptive_avg_pool(&[1, 1]));
    m.of("adaptive_max_pool", K::Shape, o.v.adaptive_max_pool(&[1, 1]));
    m.of("max_unpool", K::Shape, image.max_unpool(x, &[8, 8]));
    m.of("max_unpool", K::Index, x.max_unpool(&o.i, &[2]));
    m.of("interpolate", K::Shape, image.interpolate(&[0, 4], Interpolation::Nearest));
    m.of(
        "interpolate",
        K::DType,
        ints.interpolate(&[2, 2], Interpolation::Linear { align_corners: false }),
    );
    m.of("interpolate_by", K::Shape, o.v.interpolate_by(&[2.0, 2.0], Interpolation::Nearest));
    m.of("interpolate_by", K::Shape, image.interpolate_by(&[0.1, 0.1], Interpolation::Nearest));
    m.of("pixel_shuffle", K::Shape, image.pixel_shuffle(2));
    m.of("pixel_shuffle", K::Shape, x.pixel_shuffle(2));
    m.of("pixel_unshuffle", K::Shape, image.pixel_unshuffle(3));
    m.of("channel_shuffle", K::Shape, image.channel_shuffle(3));
    m.of("channel_shuffle", K::Shape, o.v.channel_shuffle(1));
}

fn files(m: &mut Misuses, o: &Operands) {
    let bf16 = o.x.cast(DType::BF16).expect("a cast");
    let path = std::env::temp_dir().join(format!("teeny-error-texts-{}.npy", std::process::id()));
    let name =
        |verb: &str| -> &'static str { format!("{verb} {:?}", path.display().to_string()).leak() };
    m.of(name("save"), K::DType, bf16.save_npy(&path));
    m.bare(name("load"), K::Io, Tensor::load_npy(&path, &o.device));
    m.of("write_npy", K::DType, bf16.write_npy(&mut Vec::new()));
    let npy = |header: &str, data: &[u8]| {
        let header = format!("{{{header}}}");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data]
            .concat()
    };
    m.bare("from_npy", K::Format, Tensor::from_npy(b"PK", &o.device));
    m.bare("from_npy", K::Format, Tensor::from_npy(b"\x93NUMPY\x01", &o.device));
    m.bare("from_npy", K::Format, Tensor::from_npy(b"\x93NUMPY\x07\x00\x00\x00", &o.device));
    m.bare(
        "from_npy",
        K::Format,
        Tensor::from_npy(b"\x93NUMPY\x02\x00\xff\xff\xff\xff", &o.device),
    );
    m.bare("from_npy", K::Format, Tensor::from_npy(&npy("no dictionary", &[]), &o.device));
    m.bare(
        "from_npy",
        K::DType,
        Tensor::from_npy(
            &npy("'descr': '<c8', 'fortran_order': False, 'shape': (1,), ", &[0; 8]),
            &o.device,
        ),
    );
    m.bare(
        "from_npy",
        K::Format,
        Tensor::from_npy(
            &npy("'descr': '<f4', 'fortran_order': No, 'shape': (1,), ", &[0; 4]),
            &o.device,
        ),
    );
    m.bare(
        "from_npy",
        K::Format,
        Tensor::from_npy(
            &npy("'descr': '<f4', 'fortran_order': False, 'shape': (a,), ", &[0; 4]),
            &o.device,
        ),
    );
    m.bare(
        "from_npy",
        K::Format,
        Tensor::from_npy(
            &npy("'descr': '<f4', 'fortran_order': False, 'shape': (2,), ", &[0; 4]),
            &o.device,
        ),
    );
}

/// Calls without a tensor operand, and calls that devices and kernels are written with.
fn foundations(m: &mut Misuses, o: &Operands) {
    let shape = *o.x.shape();
    m.bare("Shape::new", K::Shape, Shape::new(&[1; 9]));
    m.bare("Shape::new", K::Value, Shape::new(&[1 << 40, 1 << 40]));
    m.bare("Shape::axis", K::Axis, shape.axis(2));
    m.bare("Shape::resized", K::Value, shape.resized(0, 1 << 61));
    m.bare("Shape::with_axis", K::Value, shape.with_axis(0, 1 << 61));
    m.bare("Shape::with_axis", K::Shape, o.deep.shape().with_axis(0, 1));
    m.bare("IntoShape::shape", K::Shape, IntoShape::shape(&(2, -1)));
    m.bare("IntoShape::shape", K::Value, IntoShape::shape(&[1usize << 40; 3]));
    m.bare("Shape::axis", K::Axis, IntoAxes::axes(&[0, 2], &shape));
    m.bare("IntoAxes::axes", K::Axis, IntoAxes::axes(&[0, -2], &shape));
    m.bare("Layout::strided", K::Shape, Layout::strided(shape, &[1], 0, 6));
    m.bare("Layout::strided", K::Index, Layout::strided(shape, &[3, 1], 1, 6));
    m.bare("device", K::Device, registry::device("tpu"));
    m.bare("device::common", K::Device, device::common(o.x.device(), o.far.device()));
    m.bare("memory::reserved", K::OutOfMemory, memory::reserved::<f64>(usize::MAX));
    m.bare("memory::filled", K::OutOfMemory, memory::filled(0.0f64, usize::MAX));
    m.bare("Kernel::build", K::DType, Kernel::build([DType::F32], [], |[x], []| [x.not()]));
    let builder = Builder::new();
    let (x, other) = (builder.input(DType::F32), Builder::new());
    m.bare("Builder::finish", K::Value, builder.finish(&[]));
    m.bare("Builder::finish", K::Value, other.finish(&[x]));
    m.bare("Builder::finish_pruned", K::Value, other.finish_pruned(&[x]));
    let refused = x.shl(1);
    m.bare("Builder::finish", K::DType, builder.finish(&[refused]));
    m.bare("Builder::finish_pruned", K::DType, builder.finish_pruned(&[refused]));
    let kernel = std::sync::Arc::new(
        Kernel::build([DType::F32; 2], [], |[x, y], []| [x + y]).expect("a kernel"),
    );
    m.of("Kernel::run", K::Value, kernel.run(&[&o.x], &[]));
    m.of("Kernel::run", K::DType, kernel.run(&[&o.x, &o.i], &[]));
    m.of("Kernel::run", K::Shape, kernel.run(&[&o.x, &o.y], &[]));
    let right: (&[&Tensor], &[Scalar]) = (&[&o.x, &o.x], &[]);
    m.of("Kernel::run_many", K::Value, kernel.run_many(&[right, (&[&o.x], &[])]));
    m.of("Kernel::run_many", K::Value, kernel.run_many(&[right, (&[], &[])]));
    m.of("Kernel::run_many", K::DType, kernel.run_many(&[right, (&[&o.x, &o.i], &[])]));
    m.of("Kernel::run_many", K::Shape, kernel.run_many(&[right, (&[&o.x, &o.y], &[])]));
}

fn quantized(m: &mut Misuses, o: &Operands) {
    let kind = QuantType::Q8_0;
    let of = |columns| {
        let x = Tensor::ones((2, columns), DType::F32, &o.device).expect("a matrix");
        QuantTensor::quantize(&x, kind).expect("a weight")
    };
    let (small, wide) = (of(32), of(64));
    let parts = [QuantPart { kind, rows: 3 }];
    let blocks = [0u8; 68];
    m.bare(
        "QuantTensor::from_blocks",
        K::Shape,
        QuantTensor::from_blocks(&blocks, kind, [2, 33], &o.device),
    );
    m.bare(
        "QuantTensor::from_blocks",
        K::Value,
        QuantTensor::from_blocks(&blocks, kind, [3, 32], &o.device),
    );
    m.bare(
        "QuantTensor::from_blocks",
        K::Value,
        QuantTensor::from_blocks(&[255; 34], kind, [1, 32], &o.device),
    );
    let broken =
        |_: usize, _: &mut [u8]| Err(Error::io("the file is cut off").help("download it again"));
    m.bare(
        "QuantTensor::from_blocks_with",
        K::Io,
        QuantTensor::from_blocks_with(kind, [2, 32], &o.device, broken),
    );
    m.of("QuantTensor::from_packed", K::Shape, QuantTensor::from_packed(&o.x, &parts, 32));
    m.of("QuantTensor::quantize", K::Shape, QuantTensor::quantize(&o.v, kind));
    m.of("QuantTensor::quantize", K::DType, QuantTensor::quantize(&o.i, kind));
    m.of("QuantTensor::quantize", K::Shape, QuantTensor::quantize(&o.x, kind));
    m.bare("QuantTensor::join", K::Value, QuantTensor::join(&[]));
    m.bare("QuantTensor::join", K::Shape, QuantTensor::join(&[&small, &wide]));
    m.bare("QuantTensor::select_rows", K::Index, small.select_rows(&[0, 99]));
    m.of("QuantTensor::with_blocks", K::Shape, small.with_blocks(&o.x));
    m.of("linear", K::Shape, small.linear(&o.x));
    m.of("linear", K::DType, small.linear(&o.i));
    m.of("index_select", K::DType, small.index_select(&o.x));
    m.of("index_select", K::Index, small.index_select(&o.i));
}

/// Functions that are composites of others.
fn composites(m: &mut Misuses, o: &Operands) {
    let Operands { x, y, v, i, b, far, image, scalar, huge, .. } = o;
    m.of("logaddexp", K::Shape, x.logaddexp(y));
    m.of("logaddexp2", K::Shape, x.logaddexp2(y));
    m.of("xlogy", K::Shape, x.xlogy(y));
    m.of("atan2", K::Shape, x.atan2(y));
    m.of("hypot", K::Shape, x.hypot(y));
    m.of("fmod", K::Shape, x.fmod(y));
    m.of("div_trunc", K::Shape, x.div_trunc(y));
    m.of("copysign", K::Shape, x.copysign(y));
    m.of("gcd", K::DType, x.gcd(y));
    m.of("lcm", K::DType, x.lcm(y));
    m.of("heaviside", K::Shape, x.heaviside(y));
    m.of("celu", K::Shape, x.celu(y));
    m.of("hardshrink", K::Shape, x.hardshrink(y));
    m.of("softshrink", K::Shape, x.softshrink(y));
    m.of("nan_to_num", K::OutOfMemory, huge.nan_to_num(0.0, None, None));
    m.of("threshold", K::OutOfMemory, huge.threshold(0.0, 1.0));
    m.of("glu", K::Shape, x.glu(1));
    m.of("glu", K::Axis, x.glu(2));
    let (linear, zeros) = (Sampling::Linear, Outside::Zeros);
    m.of("grid_sample", K::Shape, image.grid_sample(x, linear, zeros, false));
    m.of("grid_sample", K::DType, i.grid_sample(x, linear, zeros, false));
    let (volume, places) = (image.unsqueeze(2), Tensor::zeros((1, 1, 1, 1, 3), DType::F32, x));
    let (volume, places) = (volume.expect("five axes"), places.expect("places"));
    m.of("grid_sample", K::Value, volume.grid_sample(&places, Sampling::Cubic, zeros, false));
    m.of("affine_grid", K::Shape, x.affine_grid(&[2, 2], false));
    m.of("median", K::Axis, x.median(2));
    m.of("nanmedian", K::Axis, x.nanmedian(2));
    m.of("median", K::Shape, o.empty.median(0));
    m.of("kthvalue", K::Value, x.kthvalue(4, 1));
    m.of("mode", K::Axis, x.mode(2));
    m.of("mode", K::Shape, o.empty.mode(0));
    m.of("quantile", K::Value, x.quantile(&[2.0], 1, QuantileMethod::Linear));
    m.of("quantile", K::Value, x.quantile(&[], 1, QuantileMethod::Linear));
    m.of("nanquantile", K::DType, i.nanquantile(&[0.5], 1, QuantileMethod::Linear));
    m.of("nansum", K::Axis, x.nansum(2));
    m.of("nanmean", K::Axis, x.nanmean(2));
    m.of("aminmax", K::Axis, x.aminmax(2));
    m.of("bucketize", K::Shape, x.bucketize(y, Side::Left));
    m.of("isin", K::OutOfMemory, huge.isin(v));
    m.of("unbind", K::Axis, x.unbind(2));
    m.of("tensor_split", K::Value, x.tensor_split(1, 0));
    m.of("hstack", K::Shape, Tensor::hstack(&[x, y]));
    m.of("vstack", K::Shape, Tensor::vstack(&[x, y]));
    m.of("dstack", K::Shape, Tensor::dstack(&[x, y]));
    m.of("view_as", K::Shape, x.view_as(y));
    m.of("masked_scatter", K::Shape, y.masked_scatter(b, x));
    m.of("masked_scatter", K::Index, x.masked_scatter(b, scalar));
    m.of("normalize", K::Axis, x.normalize(2.0, 2, 1e-12));
    m.of("cosine_similarity", K::Shape, x.cosine_similarity(y, 1, 1e-8));
    m.of("cross", K::Shape, x.cross(x, 0));
    m.of("cross", K::Shape, x.cross(y, 0));
    m.of("tensordot", K::Shape, x.tensordot(y, &[0], &[1]));
    m.of("tensordot", K::Shape, x.tensordot(x, &[0], &[0, 1]));
    m.of("tensordot", K::Axis, x.tensordot(x, &[0, 0], &[0, 0]));
    m.of("cov", K::Shape, image.cov(1, None, None));
    m.of("cov", K::Shape, x.cov(1, Some(y), None));
    m.of("corrcoef", K::Shape, image.corrcoef());
    m.of("logcumsumexp", K::Axis, x.logcumsumexp(2));
    m.of("argmax_keepdim", K::Axis, x.argmax_keepdim(2));
    m.of("argmin_keepdim", K::Axis, x.argmin_keepdim(2));
    m.of("matrix_power", K::Shape, x.matrix_power(2));
    m.of("matrix_exp", K::Shape, x.matrix_exp());
    m.of("cholesky_solve", K::Shape, x.cholesky_solve(y, Triangle::Lower));
    m.of("multi_dot", K::Shape, Tensor::multi_dot(&[x, y]));
    m.of("multi_dot", K::Shape, Tensor::multi_dot(&[x, v, y]));
    m.of("vander", K::Axis, scalar.vander(3));
    m.of("scatter_reduce", K::Index, x.scatter_reduce(0, i, x, ScatterReduce::Prod, true));
    m.of("scatter_reduce", K::Shape, x.scatter_reduce(0, i, y, ScatterReduce::Mean, false));
    m.of("assign_add", K::Index, x.assign_add(5, 1.0f32));
    m.of("assign_add", K::Shape, x.assign_add(0, y));
    m.of("embedding_bag", K::Shape, x.embedding_bag(v, None, BagMode::Mean));
    m.of("embedding_bag", K::Index, x.embedding_bag(i, None, BagMode::Max));
    m.of("isin", K::Device, x.isin(far));
}

fn misuses() -> Vec<Misuse> {
    let (mut m, o) = (Misuses::default(), Operands::new().expect("operands"));
    let all = [
        constructors,
        views,
        parts,
        elementwise,
        reductions,
        arrangements,
        products,
        attention,
        windows,
        files,
        quantized,
        foundations,
        composites,
    ];
    all.iter().for_each(|group| group(&mut m, &o));
    m.0
}

/// The faults of a misuse's error, in words; empty for a good error.
fn faults(misuse: &Misuse) -> Vec<&'static str> {
    let Some(error) = &misuse.error else { return vec!["accepted"] };
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().collect();
    // The call begins on the line of the misuse or, where it is wrapped, a few lines below.
    let lines_of_call = misuse.line..misuse.line + 10;
    let here =
        error.location().is_some_and(|l| l.file() == file!() && lines_of_call.contains(&l.line()));
    let help = lines.iter().find_map(|line| line.strip_prefix("  help: ")).unwrap_or("");
    let described = lines[1..]
        .iter()
        .any(|line| DType::ALL.iter().any(|t| line.contains(&format!("{t} on reference"))));
    let first = lines[0];
    let longest = 160 + std::env::temp_dir().as_os_str().len(); // of a path in the message
    let checks = [
        (error.kind() != misuse.kind, "another kind"),
        (error.op() != Some(misuse.op), "another op"),
        (!here, "another line"),
        (misuse.operand && !described, "no operand"),
        (help.is_empty(), "no help"),
        (!help.is_empty() && error.message().contains(help), "help repeats the message"),
        (
            !first.starts_with(misuse.op) || !first.ends_with(error.message()),
            "incomplete first line",
        ),
        (error.message().trim().len() < 10, "no message"),
        (lines.iter().any(|line| line.chars().count() > longest), "a line above 160 characters"),
        (text.contains(['{', '}']), "an unformatted part"),
    ];
    checks.iter().filter(|(wrong, _)| *wrong).map(|(_, what)| *what).collect()
}

#[test]
fn every_misuse_is_named_placed_and_helped() {
    let misuses = misuses();
    assert!(misuses.len() >= 180, "only {} misuses", misuses.len());
    let mut report = String::new();
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for misuse in &misuses {
        let faults = faults(misuse);
        faults.iter().for_each(|fault| *counts.entry(fault).or_default() += 1);
        if !faults.is_empty() {
            let text = misuse.error.as_ref().map_or(String::new(), Error::to_string);
            report += &format!(
                "{} on line {}: {}\n    {}\n",
                misuse.op,
                misuse.line,
                faults.join(", "),
                text.replace('\n', "\n    ")
            );
        }
    }
    assert!(report.is_empty(), "of {} misuses {counts:?}:\n{report}", misuses.len());
}

/// Operations that report nothing that a user could do otherwise, and why.
const CANNOT_FAIL: [(&str, &str); 8] = [
    ("dequantize", "takes any quantised matrix"),
    ("to_blocks", "takes any quantised matrix"),
    ("t", "exchanges the last two axes of any tensor, and returns one without two axes"),
    ("sum_all", "reduces all axes of any type"),
    ("mean_all", "reduces all axes of any type"),
    ("from_result", "for devices: a wrong result is a bug of the device"),
    ("checked", "for operations that check an argument: it fails as the argument does"),
    ("(unary)", "functions of one element take every type, but for those among the misuses"),
];

/// The sources of one folder, or one file.
fn sources(of: &str) -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(of);
    let read = |path: &std::path::Path| {
        (path.display().to_string(), fs::read_to_string(path).expect("a source"))
    };
    match fs::read_dir(&root) {
        Ok(entries) => entries
            .flat_map(|entry| {
                sources(&format!("{of}/{}", entry.expect("an entry").file_name().display()))
            })
            .collect(),
        Err(_) => vec![read(&root)],
    }
}

/// The public functions of `text` that return a `Result`, including those made by a macro:
/// two-operand functions by name, the others as `(unary)`.
fn fallible(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices("pub fn ") {
        let signature = &text[at + 7..];
        let signature = &signature[..signature.find(" {\n").unwrap_or(signature.len())];
        if let Some((_, result)) = signature.rsplit_once("->")
            && result.contains("Result<")
        {
            names.extend(
                signature
                    .split(['(', '<'])
                    .next()
                    .filter(|name| !name.starts_with('$'))
                    .map(str::to_string),
            );
        }
    }
    // The functions of two operands: rows `name;` of the macro, rows `Variant name;` of the table.
    let list = |from: &str| text.split_once(from).map_or("", |(_, rows)| rows);
    let rows = |of| list(of).split("\n}").next().unwrap_or("");
    let composites = [rows("\nbinary! {\n"), rows("\nbinary_methods! {\n")].concat();
    let table = list("\n            binary {\n").split("\n            }").next().unwrap_or("");
    names.extend(
        composites
            .lines()
            .chain(table.lines())
            .filter_map(|line| line.trim().strip_suffix(';'))
            .map(|row| row.rsplit(' ').next().unwrap_or(row).to_string())
            .filter(|name| name.starts_with(char::is_lowercase) && !name.ends_with("_tables")),
    );
    if text.contains("\nunary! {") {
        names.push("(unary)".to_string());
    }
    names
}

#[test]
fn no_operation_is_forgotten() {
    let called: Vec<&str> =
        misuses().iter().map(|m| m.op.rsplit("::").next().unwrap_or(m.op)).collect();
    let known = |name: &str| called.contains(&name) || CANNOT_FAIL.iter().any(|(n, _)| *n == name);
    // Both are called `save "PATH"` and `load "PATH"` in their errors.
    let files = ["save_npy", "load_npy"];
    let mut missing = Vec::new();
    let mut count = 0;
    for (path, text) in
        ["tensor", "kernel/ops.rs", "op/window.rs", "registry.rs"].map(sources).concat()
    {
        let names = fallible(&text);
        count += names.len();
        missing.extend(
            names
                .into_iter()
                .filter(|name| !known(name) && !files.contains(&name.as_str()))
                .map(|name| format!("{path}: {name}")),
        );
    }
    assert!(count > 200, "only {count} operations found: do the sources look different?");
    assert!(missing.is_empty(), "operations without a misuse:\n{}", missing.join("\n"));
}

/// The end of the call whose opening bracket is before `start`.
fn end_of_call(text: &str, start: usize) -> usize {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (i, c) in text[start..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return start + i + 1;
        }
    }
    text.len()
}

/// The kinds of errors that a program causes, and cures.
const KINDS: [&str; 8] =
    ["shape", "axis", "dtype", "device", "index", "value", "unsupported", "out_of_memory"];

/// The errors of these kinds that are made in `sources`, and those after which `has_help` is false
/// of the text that follows.
fn errors_of(
    sources: &[(String, String)],
    has_help: impl Fn(&str) -> bool,
) -> (usize, Vec<String>) {
    let (mut count, mut helpless) = (0, Vec::new());
    for (path, text) in sources {
        for kind in KINDS {
            for (at, found) in text.match_indices(&format!("Error::{kind}(")) {
                count += 1;
                let end = end_of_call(text, at + found.len());
                if !has_help(&text[end..]) {
                    let line = text[..at].lines().count();
                    helpless.push(format!("{path}:{line}: {}", &text[at..end]));
                }
            }
        }
    }
    (count, helpless)
}

#[test]
fn every_error_has_help_where_it_is_made() {
    let files = [
        "messages.rs",
        "shape.rs",
        "layout/mod.rs",
        "device.rs",
        "random",
        "memory",
        "registry.rs",
        "op/window.rs",
        "op/conv_shape.rs",
        "reference.rs",
        "file.rs",
    ];
    let folders = ["tensor", "validate", "kernel", "linalg"].map(sources).concat();
    let all = [folders, files.map(sources).concat()].concat();
    let (count, helpless) = errors_of(&all, |rest| rest.trim_start().starts_with(".help("));
    assert!(count > 100, "only {count} errors found: do the sources look different?");
    assert!(helpless.is_empty(), "{count} errors, without help:\n{}", helpless.join("\n"));
}

/// Errors of layers, losses, optimizers, data and training. The help may follow a name or a note,
/// or be chosen by what was wrong.
#[test]
fn every_error_of_a_training_program_has_help() {
    let folders = [
        "attention",
        "../data/src",
        "loss",
        "../models/src/lora",
        "norm",
        "optim",
        "recurrent",
        "store",
        "../text/src/names.rs",
        "../text/src/sample.rs",
        "train",
        "transformer",
        "conv.rs",
        "device.rs",
        "dropout.rs",
        "embedding.rs",
        "functional.rs",
        "init.rs",
        "linear.rs",
        "module.rs",
        "pool.rs",
        "prelu.rs",
        "schedule.rs",
        "summary.rs",
    ];
    let mut all = folders.map(|of| sources(&format!("../../teeny-nn/src/{of}"))).concat();
    all.iter_mut().for_each(|(_, text)| {
        text.truncate(text.find("#[cfg(test)]").unwrap_or(text.len()));
    });
    let near = |rest: &str| rest.char_indices().nth(500).map_or(rest.len(), |(at, _)| at);
    let (count, helpless) = errors_of(&all, |rest| rest[..near(rest)].contains(".help("));
    assert!(count > 150, "only {count} errors found: do the sources look different?");
    assert!(helpless.is_empty(), "{count} errors, without help:\n{}", helpless.join("\n"));
}
