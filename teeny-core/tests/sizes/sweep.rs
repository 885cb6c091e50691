//! Every public method of `Tensor` that takes a size, an axis, a count, a step or a shape, called
//! with the numbers at which arithmetic overflows, on ordinary, empty, scalar and hugely expanded
//! tensors.
//!
//! Each call ends with a result, whose elements are inside its storage, or with an error that names
//! the method. A panic, an abort or a hang ends the process and is seen by the test that started
//! it.

use std::fmt::Write;
use teeny_core::*;

type Results = Result<Vec<Tensor>>;

/// A hash over all calls, equal in builds with and without overflow checks.
pub struct Sweep {
    pub cases: u64,
    pub digest: u64,
    pub faults: Vec<String>,
    /// Every n-th call is made.
    pub every: u64,
    log: bool,
}

const SIZES: [usize; 16] = [
    0,
    1,
    2,
    3,
    4,
    i32::MAX as usize,
    1 << 31,
    1 << 32,
    1 << 33,
    (1 << 59) + 1,
    1 << 60,
    1 << 62,
    isize::MAX as usize,
    1 << 63,
    usize::MAX - 1,
    usize::MAX,
];
const STEPS: [isize; 15] = [
    0,
    1,
    -1,
    2,
    -3,
    i32::MIN as isize,
    i32::MAX as isize,
    1 << 31,
    1 << 32,
    -(1 << 33),
    1 << 62,
    -(1 << 62),
    isize::MIN,
    isize::MIN + 1,
    isize::MAX,
];
const AXES: [isize; 8] = [0, 1, -1, 2, i32::MAX as isize, -(1 << 32), isize::MIN, isize::MAX];
/// Where every axis meets every pair of numbers, these do.
const SOME_AXES: [isize; 2] = [0, -1];

impl Sweep {
    fn new() -> Sweep {
        Sweep {
            cases: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            faults: Vec::new(),
            every: if std::env::var("TEENY_TESTS").is_ok_and(|v| v == "full") { 1 } else { 8 },
            log: std::env::var_os("TEENY_SWEEP_LOG").is_some(),
        }
    }

    /// One call. `name` is kept where a fault that ends the process leaves it to be read.
    fn case(
        &mut self,
        name: &str,
        arguments: &dyn std::fmt::Debug,
        call: impl FnOnce() -> Results,
    ) {
        self.cases += 1;
        if !self.cases.is_multiple_of(self.every) {
            return;
        }
        let name = format!("{name} {arguments:?}");
        if self.log {
            eprintln!("{name}");
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            call().map(|all| all.iter().map(probe).collect::<Vec<_>>())
        }));
        let mut text = name.clone();
        match outcome {
            Ok(Ok(probes)) => {
                for probe in probes {
                    match probe {
                        Ok(shape) => write!(text, " {shape}").expect("a string"),
                        Err(fault) => self.faults.push(format!("{name}: {fault}")),
                    }
                }
            }
            Ok(Err(error)) => {
                if error.op().is_none() {
                    self.faults.push(format!("{name}: {error:?} names no operation"));
                }
                if error.kind() == ErrorKind::Internal {
                    self.faults.push(format!("{name}: {error:?}"));
                }
                write!(text, " {:?} {}", error.kind(), error.message()).expect("a string");
            }
            Err(_) => self.faults.push(format!("{name}: panics")),
        }
        for byte in text.bytes() {
            self.digest = (self.digest ^ byte as u64).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// The shape, if it is one that memory can address, and every element is inside the storage.
fn probe(x: &Tensor) -> std::result::Result<Shape, String> {
    let product: u128 = x.shape().iter().filter(|&&n| n != 0).map(|&n| n as u128).product();
    if product > isize::MAX as u128 / 8 {
        return Err(format!("a tensor of {}", x.shape()));
    }
    if x.numel() == 0 {
        return Ok(*x.shape());
    }
    let reach = |ends: fn(i128) -> i128| -> i128 {
        let spans =
            x.shape().iter().zip(x.strides()).map(|(&n, &s)| ends((n as i128 - 1) * s as i128));
        x.layout().offset() as i128 + spans.sum::<i128>()
    };
    let (low, high) = (reach(|span| span.min(0)), reach(|span| span.max(0)));
    if low < 0 || high >= x.storage().len() as i128 {
        return Err(format!("{:?} over {} elements", x.layout(), x.storage().len()));
    }
    let mut last = x.clone();
    while last.ndim() > 0 {
        last = last.at(0, -1).map_err(|e| e.to_string())?;
    }
    match last.to_scalars() {
        Ok(values) if values.len() == 1 => Ok(*x.shape()),
        other => Err(format!("the last element is {other:?}")),
    }
}

fn one(x: Result<Tensor>) -> Results {
    Ok(vec![x?])
}
fn two(x: Result<(Tensor, Tensor)>) -> Results {
    let (a, b) = x?;
    Ok(vec![a, b])
}
fn three(x: Result<(Tensor, Tensor, Tensor)>) -> Results {
    let (a, b, c) = x?;
    Ok(vec![a, b, c])
}

/// The tensors that methods are called on. With `huge`, tensors that are larger than memory, by
/// axes of stride 0.
fn tensors(device: &DeviceRef, huge: bool) -> Result<Vec<(&'static str, Tensor)>> {
    let ones = |shape: &[usize], dtype| Tensor::ones(shape, dtype, device);
    let mut all = vec![
        ("matrix", Tensor::arange(0i32, 6, 1, device)?.cast(DType::F32)?.reshape((2, 3))?),
        ("integers", Tensor::arange(0i64, 4, 1, device)?),
        ("bytes", ones(&[3], DType::U8)?),
        ("bools", ones(&[2, 2], DType::Bool)?),
        ("scalar", ones(&[], DType::F32)?),
        ("empty", ones(&[0, 3], DType::F32)?),
        ("no columns", ones(&[2, 0], DType::F32)?),
        ("image", ones(&[1, 4, 3, 2], DType::F32)?),
        ("no channels", ones(&[1, 0, 2, 2], DType::F32)?),
        ("eight axes", ones(&[1, 2, 1, 1, 2, 1, 1, 1], DType::F32)?),
        ("stepped", ones(&[9], DType::F32)?.slice_step(0, .., -4)?),
        (
            "odd strides",
            ones(&[9], DType::F32)?.as_strided((1, 2, 1), &[isize::MAX, 3, isize::MIN], 1)?,
        ),
        (
            "odd empty",
            ones(&[9], DType::F32)?.as_strided((3, 0, 2), &[isize::MAX, 1 << 62, isize::MIN], 9)?,
        ),
    ];
    if huge {
        all.extend([
            ("huge", ones(&[1], DType::F32)?.expand(1usize << 40)?),
            ("beyond i32", ones(&[1], DType::U8)?.expand((1usize << 31) + 8)?),
            ("tall", ones(&[1, 1], DType::F32)?.expand((1usize << 40, 2))?),
            ("wide", ones(&[2, 1], DType::I64)?.expand((2, 1usize << 58))?),
            ("full", ones(&[1, 1], DType::Bool)?.expand((1usize << 30, 1usize << 29))?),
            (
                "huge image",
                ones(&[1, 1, 1, 1], DType::F32)?.expand((
                    1usize << 14,
                    1usize << 15,
                    1usize << 15,
                    1usize << 14,
                ))?,
            ),
            ("huge empty", ones(&[0, 1], DType::F32)?.expand((0, 1usize << 59))?),
        ]);
    }
    Ok(all)
}

/// Calls everything on `device`.
pub fn sweep(device: &DeviceRef, huge: bool) -> Result<Sweep> {
    let mut s = Sweep::new();
    let all = tensors(device, huge)?;
    creation(&mut s, device);
    for (name, x) in &all {
        views(&mut s, name, x);
        computed(&mut s, name, x);
        windows(&mut s, name, x);
        for (other, y) in &all {
            pairs(&mut s, &format!("{name}, {other}"), x, y);
        }
    }
    Ok(s)
}

macro_rules! calls {
    ($s:ident, $what:expr, $arguments:expr; $($name:literal => $call:expr;)*) => {
        $($s.case(&format!("{} of {}", $name, $what), &$arguments, || $call);)*
    };
}

fn creation(s: &mut Sweep, device: &DeviceRef) {
    for n in SIZES {
        let i = n as i64;
        calls! { s, "", n;
            "zeros" => one(Tensor::zeros(n, DType::F64, device));
            "ones" => one(Tensor::ones((n, 2), DType::U8, device));
            "full" => one(Tensor::full((n, 0, n), 1, DType::Bool, device));
            "eye" => one(Tensor::eye(n, DType::F32, device));
            "linspace" => one(Tensor::linspace(-1.0, f64::MAX, n, DType::F32, device));
            "randperm" => one(Tensor::randperm(n, device));
            "rand" => one(Tensor::rand(n, DType::F32, device));
            "randn" => one(Tensor::randn((n, 1), DType::F16, device));
            "bernoulli" => one(Tensor::bernoulli(0.5, n, device));
            "from_slice" => one(Tensor::from_slice(&[1.0f32; 3], n, device));
            "from_bytes" => one(Tensor::from_bytes(&[1; 16], (n, 2), DType::F64, device));
            "from_scalars" => one(Tensor::from_scalars(&[Scalar::Int(1)], n, DType::F64, device));
        }
        for m in SIZES {
            let j = m as i64;
            calls! { s, "", (n, m);
                "arange" => one(Tensor::arange(i, j, 1, device));
                "arange by steps" => one(Tensor::arange(0i64, i, j, device));
                "arange of u64" => one(Tensor::arange(0u64, n as u64, m as u64, device));
                "arange of f64" => one(Tensor::arange(0.0, n as f64, 1.0 / m as f64, device));
                "arange of i32" => one(Tensor::arange(i as i32, j as i32, 1 << 30, device));
                "zeros of two axes" => one(Tensor::zeros((n, m), DType::F32, device));
                "randint" => one(Tensor::randint(i, j, 3, DType::I64, device));
                "meshgrid" => {
                    let x = Tensor::ones(1, DType::F32, device)?;
                    Tensor::meshgrid(&[&x.expand(n)?, &x.expand(m)?])
                };
            }
        }
    }
}

fn views(s: &mut Sweep, name: &str, x: &Tensor) {
    for a in AXES {
        calls! { s, name, a;
            "size" => x.size(a).map(|_| Vec::new());
            "flip" => one(x.flip(a));
            "squeeze" => one(x.squeeze(a));
            "unsqueeze" => one(x.unsqueeze(a));
            "permute" => one(x.permute([a, 0]));
            "movedim" => one(x.movedim(a, 0));
            "unique_slices" => three(x.unique_slices(a));
        }
        for b in AXES {
            calls! { s, name, (a, b);
                "transpose" => one(x.transpose(a, b));
                "flatten" => one(x.flatten(a, b));
                "rot90" => one(x.rot90(isize::MIN, a, b));
            }
        }
        for i in STEPS {
            calls! { s, name, (a, i);
                "at" => one(x.at(a, i));
                "roll" => one(x.roll(a, i));
                "diagonal" => one(x.diagonal(i, a, -1));
            }
            for j in STEPS.into_iter().filter(|_| SOME_AXES.contains(&a)) {
                calls! { s, name, (a, i, j);
                    "slice" => one(x.slice(a, i..j));
                    "slice to" => one(x.slice(a, ..=j));
                    "slice_step" => one(x.slice_step(a, i.., j));
                }
            }
        }
        for n in SIZES {
            calls! { s, name, (a, n);
                "split" => x.split(a, n);
                "split_sizes" => x.split_sizes(a, &[n, 4]);
                "chunk" => x.chunk(a, n);
                "repeat_interleave" => one(x.repeat_interleave(a, n));
                "diff" => one(x.diff(a, n));
                "unflatten" => one(x.unflatten(a, (n, -1)));
                "slice_assign" => one(x.clone().slice_assign(a, n.., x));
            }
            for m in SIZES.into_iter().filter(|_| SOME_AXES.contains(&a)) {
                calls! { s, name, (a, n, m);
                    "unfold" => one(x.unfold(a, n, m));
                    "unflatten in two" => one(x.unflatten(a, (n, m)));
                }
            }
        }
    }
    for n in SIZES {
        calls! { s, name, n;
            "reshape" => one(x.reshape((n, -1)));
            "view" => one(x.view(n));
            "expand" => one(x.expand((n, -1, -1)));
            "repeat" => one(x.repeat((n, 1, 1, 1)));
            "tile" => one(x.tile(n));
            "pixel_shuffle" => one(x.pixel_shuffle(n));
            "pixel_unshuffle" => one(x.pixel_unshuffle(n));
            "channel_shuffle" => one(x.channel_shuffle(n));
            "index" => one(x.index(n));
            "index list" => one(x.index([n, 0]));
            "assign" => one(x.clone().assign(n.., 1));
        }
        for m in SIZES {
            calls! { s, name, (n, m);
                "expand to two" => one(x.expand((n, m)));
                "expand in front" => one(x.expand((n, m, -1, -1)));
                "reshape to two" => one(x.reshape((n, m)));
                "repeat two" => one(x.repeat((n, m)));
                "tile two" => one(x.tile((n, m)));
                "as_strided" => one(x.as_strided((n, m), &[m as isize, n as isize], 0));
                "as_strided from" => one(x.as_strided((2, n), &[m as isize, 1], m));
                "index by steps" => one(x.index(Subscript::stepped(n.., m)));
                "index two" => one(x.index((n..m, NewAxis, ..m)));
            }
        }
    }
    for i in STEPS {
        calls! { s, name, i;
            "diag" => one(x.diag(i));
            "diag_embed" => one(x.diag_embed(i));
            "tril" => one(x.tril(i as i32));
            "triu" => one(x.triu(i as i32));
            "rot90 by" => one(x.rot90(i, 0, 1));
            "index from the end" => one(x.index(i));
        }
        for j in STEPS {
            calls! { s, name, (i, j);
                "pad" => one(x.pad(&[(i, j)], 0));
                "pad reflect" => one(x.pad_mode(&[(i, j)], PadMode::Reflect));
                "pad replicate" => one(x.pad_mode(&[(i, j)], PadMode::Replicate));
                "pad circular" => one(x.pad_mode(&[(i, j)], PadMode::Circular));
                "pad twice" => one(x.pad(&[(i, j), (j, i)], 0));
                "index between" => one(x.index(s![i..j]));
                "index steps" => one(x.index(s![..;i, ..;j]));
            }
        }
    }
}

fn computed(s: &mut Sweep, name: &str, x: &Tensor) {
    for a in AXES {
        calls! { s, name, a;
            "sum" => one(x.sum(a));
            "prod" => one(x.prod([a, 0]));
            "mean" => one(x.mean(a));
            "max" => one(x.max(a));
            "argmax" => one(x.argmax(a));
            "argmin" => one(x.argmin(a));
            "any" => one(x.any(a));
            "cumsum" => one(x.cumsum(a));
            "cummax" => two(x.cummax(a));
            "sort" => two(x.sort(a, SortOrder::Ascending));
            "argsort" => one(x.argsort(a, SortOrder::Descending));
            "softmax" => one(x.softmax(a));
            "log_softmax" => one(x.log_softmax(a));
            "logsumexp" => one(x.logsumexp(a));
            "vector_norm" => one(x.vector_norm(2.0, a));
        }
        for n in SIZES {
            calls! { s, name, (a, n);
                "var" => one(x.var(a, n));
                "topk" => two(x.topk(n, a, Extremum::Largest));
            }
        }
        for counts in
            [[0i64, 1], [i64::MAX, i64::MAX], [1 << 62, 1 << 62], [1 << 31, 3], [i64::MIN, 1]]
        {
            s.case(&format!("repeat_each of {name}"), &(a, counts), || {
                one(x.repeat_each(a, &Tensor::new(counts, x)?))
            });
        }
        for place in [0i64, -1, i64::MAX, i64::MIN, 1 << 40] {
            calls! { s, name, (a, place);
                "gather" => one(x.gather(a, &Tensor::new([[place]], x)?));
                "index_select" => one(x.index_select(a, &Tensor::new([place], x)?));
                "index_select of many" => one(x.index_select(a, &Tensor::new([place], x)?.expand(1usize << 40)?));
                "take_along" => one(x.take_along(a, &Tensor::new([[place]], x)?.expand((1, 1usize << 40))?));
                "index_add" => one(x.index_add(a, &Tensor::new([place], x)?.expand(1usize << 40)?, x));
                "scatter" => one(x.scatter(a, &Tensor::new([[place]], x)?, x));
            }
        }
    }
    calls! { s, name, ();
        "nonzero" => one(x.nonzero());
        "masked_select" => one(x.masked_select(&x.cast(DType::Bool)?));
        "unique" => three(x.unique());
        "unique_consecutive" => three(x.unique_consecutive());
        "contiguous" => one(x.contiguous());
        "copy" => one(x.copy());
        "cast" => one(x.cast(DType::F64));
        "to_bytes" => x.to_bytes().map(|_| Vec::new());
        "to_scalars" => x.to_scalars().map(|_| Vec::new());
        "to_vec" => x.to_vec::<f32>().map(|_| Vec::new());
        "write_npy" => x.write_npy(&mut Vec::new()).map_err(|e| e.named("write_npy")).map(|_| Vec::new());
        "trace" => one(x.trace());
        "pca" => x.pca(usize::MAX).map(|_| Vec::new());
        "index of itself" => one(x.index(x));
        "index by a mask" => one(x.index(&x.cast(DType::Bool)?));
        "printing" => { let _ = format!("{x}"); Ok(Vec::new()) };
    }
    for n in SIZES {
        calls! { s, name, n;
            "one_hot" => one(x.one_hot(n, DType::F32));
            "bincount" => one(x.bincount(None, n));
            "histogram" => two(x.histogram(n, None));
            "histogram of all" => two(x.histogram(n, Some((f64::MIN, f64::MAX))));
            "histogram of little" => two(x.histogram(n, Some((0.0, 1e-310))));
            "layer_norm" => one(x.layer_norm(n, None, None, 1e-5));
            "adaptive_avg_pool" => one(x.adaptive_avg_pool(&[n]));
            "adaptive_avg_pool of two" => one(x.adaptive_avg_pool(&[n, 2]));
            "adaptive_max_pool" => two(x.adaptive_max_pool(&[n]));
            "adaptive_max_pool of two" => two(x.adaptive_max_pool(&[3, n]));
            "max_unpool" => one(x.max_unpool(&x.cast(DType::I32)?, &[n, n]));
        }
        for mode in [
            Interpolation::Nearest,
            Interpolation::Linear { align_corners: true },
            Interpolation::Cubic { align_corners: false },
            Interpolation::Area,
        ] {
            calls! { s, name, (n, mode);
                "interpolate" => one(x.interpolate(&[n], mode));
                "interpolate two" => one(x.interpolate(&[2, n], mode));
                "interpolate_by" => one(x.interpolate_by(&[n as f64], mode));
                "interpolate_by a part" => one(x.interpolate_by(&[1.0 / n as f64], mode));
            }
        }
        for m in SIZES {
            calls! { s, name, (n, m);
                "attention" => one(x.attention(x, x, None, &Attention::causal(n).window(m)));
                "attention_weights" => one(x.attention_weights(x, None, &Attention::causal(m)));
            }
        }
    }
}

fn windows(s: &mut Sweep, name: &str, x: &Tensor) {
    for n in SIZES {
        for (what, window) in [
            ("stride", Window::new(2).stride(n)),
            ("padding", Window::new(2).padding(n)),
            ("dilation", Window::new(2).dilation(n)),
            ("groups", Window::new(2).groups(n)),
            (
                "fields",
                Window { stride: vec![n; 2], padding: vec![n; 2], dilation: vec![n; 2], groups: n },
            ),
            (
                "stride and padding",
                Window { stride: vec![n; 2], padding: vec![1; 2], dilation: vec![1; 2], groups: 1 },
            ),
            (
                "padding field",
                Window { stride: vec![1; 2], padding: vec![n; 2], dilation: vec![1; 2], groups: 1 },
            ),
        ] {
            for size in [[1, 1], [2, 2], [n, 1], [n, n]] {
                calls! { s, name, (what, n, size);
                    "max_pool" => two(x.max_pool_indices(&size, &window));
                    "max_pool_ceil" => two(x.max_pool_ceil(&size, &window));
                    "avg_pool" => one(x.avg_pool(&size, &window));
                    "avg_pool_with" => one(x.avg_pool_with(&size, &window, Averaging::new().with_ceil(true).with_count_padding(false)));
                    "lp_pool" => one(x.lp_pool(2.0, &size, &window));
                    "im2col" => one(x.im2col(&size, &window));
                    "col2im" => one(x.col2im(&size, &[2, 2], &window));
                    "col2im of" => one(x.col2im(&[2, 2], &size, &window));
                    "conv" => one(x.conv(&Tensor::ones((4, 4, 1, 1), DType::F32, x)?.expand((4, 4, size[0], size[1]))?, &window));
                    "conv_same" => one(x.conv_same(&Tensor::ones((4, 4, 1, 1), DType::F32, x)?.expand((4, 4, size[0], size[1]))?, &window));
                    "conv_transpose" => one(x.conv_transpose(&Tensor::ones((4, 1, 2, 2), DType::F32, x)?, &window, &size));
                    "transposed_size" => {
                        let _op = context::enter("transposed_size");
                        window.transposed_size(x.shape(), &Shape::new(&[4, 1, size[0], size[1]])?, n).map(|_| Vec::new())
                    };
                }
            }
        }
    }
}

fn pairs(s: &mut Sweep, name: &str, x: &Tensor, y: &Tensor) {
    calls! { s, name, ();
        "add" => one(x.add(y));
        "add columns" => one(x.unsqueeze(-1)?.add(y));
        "matmul" => one(x.matmul(y));
        "matmul of t" => one(x.matmul(&y.t()?));
        "outer" => one(x.outer(y));
        "kron" => one(x.kron(y));
        "cdist" => one(x.cdist(y, 2.0));
        "cat" => one(Tensor::cat(&[x, y, x], 0));
        "cat of many" => one(Tensor::cat(&[x; 70], -1));
        "stack" => one(Tensor::stack(&[x, y], 0));
        "einsum outer" => one(Tensor::einsum("...i,...j->...ij", &[x, y]));
        "einsum of all" => one(Tensor::einsum("i,j,k->ijk", &[x, y, x]));
        "einsum" => one(Tensor::einsum("ij,jk->ik", &[x, y]));
        "where_cond" => one(x.where_cond(x, y));
        "searchsorted" => one(x.searchsorted(y, Side::Right));
        "masked_fill" => one(x.masked_fill(y, 1));
        "map_sum" => one(map_sum([x, &y.unsqueeze(-1)?], -1, |[x, y]| x.cast(DType::F32) + y.cast(DType::F32)));
        "repeat_each by" => one(x.repeat_each(0, y));
        "scatter_add" => one(x.scatter_add(0, y, x));
        "meshgrid" => Tensor::meshgrid(&[x, y]);
        "meshgrid of ten" => Tensor::meshgrid(&[x; 10]);
        "expand_as" => one(x.expand_as(y));
        "cross_entropy" => one(x.cross_entropy(y, Some(-100)));
        "attention of" => one(x.attention(y, y, None, &Attention::full()));
        "solve" => one(x.solve(y));
    }
}
