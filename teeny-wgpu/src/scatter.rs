//! Scatter, without atomics on values: every element of the result collects its own arrivals, in
//! row-major order, so results are deterministic and all types are served. Two ways, chosen by the
//! sizes:
//!
//! ```text
//! pull   each element looks through all arrivals of its line                         few arrivals: one launch
//! sort   keys   line * size + index of every arrival; along axes on which the index is constant (the columns of an embedding's gradient) one key serves all
//!        order  a stable radix sort of the keys            (order.rs)
//!        bounds where the arrivals of each place begin
//!        joined runs of 256 arrivals at one place as one   (only for long lines: a popular place is no longer than N / 256 + 512 steps)
//!        each element goes through its run                 neighbouring threads have neighbouring columns
//! ```
//!
//! Sorting makes the work near linear in arrivals and elements, whatever the indices are. Lines
//! larger than a binding are scattered by halves of their arrivals, one after the other, and of
//! their places.

use crate::device::{Launch, Wgpu};
use crate::fault;
use crate::generator::{self, types};
use crate::index::{Reach, THREADS, strides_without, tested};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Layout, Result, ScatterMode, StorageRef, Tensor};

/// Words 0..: elements of the result, the reach, the slot for faults, arrivals of a line, columns;
/// then sizes and strides.
const HEAD: usize = 7;
/// Arrivals at one place that are joined before.
const RUN: usize = 256;
/// Lines shorter than this never have runs that are worth joining.
const LONG: usize = 1024;
/// Arrivals of a line that are looked through, and work that is too little to be worth a sort.
const FEW: usize = 24;
const LITTLE: usize = 1 << 19;

/// How the value `v` of an arrival changes the element `value`.
fn update(mode: ScatterMode, dtype: DType) -> String {
    let ty = types::value(wide::wide(dtype));
    let best = |name: &str, sign: &str| match dtype.is_float() {
        true => format!("{name}_{ty}(value, v)"),
        false => format!("select(v, value, value {sign} v)"),
    };
    match mode {
        ScatterMode::Set => "v".to_string(),
        ScatterMode::Add => "value + v".to_string(),
        ScatterMode::Max => best("max", ">"),
        ScatterMode::Min => best("min", "<"),
    }
}

/// Statements that leave in `covered` whether index reaches element `n` of x on the axes other than
/// the one that is scattered along.
fn covered(rank: usize, bounds: usize) -> String {
    let mut text = String::from("    var covered = true;\n    { var rest = n;");
    for axis in (0..rank).rev() {
        let (size, bound) = (generator::param(HEAD + axis), generator::param(bounds + axis));
        let _ = writeln!(
            text,
            "    covered = covered && rest % {size} < {bound}; rest = rest / {size};"
        );
    }
    text.push_str("    }\n");
    text
}

/// The shader that looks through the arrivals of a line. Views over the result: x; index and src
/// without the axis; places in index.
pub(crate) fn pull_wgsl(rank: usize, dtype: DType, index: DType, mode: ScatterMode) -> String {
    let view = |i: usize| HEAD + rank + i * (rank + 2);
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    text.push_str(&wide::input(1, "index", index));
    text.push_str(&wide::input(2, "arrivals", dtype));
    text.push_str(&wide::output(3, "out", dtype));
    text.push_str(&fault::wgsl(4, index, &generator::param(4)));
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(
        text,
        "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}",
        generator::param(0)
    );
    let names = ["a", "b", "c", "place", "here"];
    let views: Vec<(String, String, usize)> = names
        .iter()
        .enumerate()
        .map(|(i, name)| (name.to_string(), generator::param(view(i)), view(i) + 2))
        .collect();
    text.push_str(&wide::addresses(rank, "n", HEAD, &views));
    let _ = writeln!(
        text,
        "    var value = {};",
        wide::widened(dtype, &types::load(dtype, "source", "a"))
    );
    text.push_str(&covered(rank, view(names.len())));
    let _ = writeln!(
        text,
        "    if covered {{\n    for (var r = 0u; r < {}; r++) {{",
        generator::param(5)
    );
    text.push_str(&tested(index, &types::load(index, "index", "b"), "place", 1));
    let load = wide::widened(dtype, &types::load(dtype, "arrivals", "c"));
    let _ = writeln!(
        text,
        "    if within && at == here {{ let v = {load}; value = {}; }}",
        update(mode, dtype)
    );
    let [b, c, place] = [1, 2, 3].map(|i| generator::param(view(i) + 1));
    let _ = writeln!(
        text,
        "    b += {b}; c += {c}; place += {place};\n    }}\n    }}\n    out[n] = value;\n}}"
    );
    text
}

/// The shader that makes the keys; views over the lines: index, places in it. Word 0 is the number
/// of arrivals, word 6 the key of those that go nowhere.
pub(crate) fn keys_wgsl(rank: usize, index: DType) -> String {
    let (b, place) = (HEAD + rank, HEAD + 2 * rank + 2);
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "index", index));
    text.push_str(&wide::output(1, "keys", DType::U32));
    text.push_str(&fault::wgsl(2, index, &generator::param(4)));
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(
        text,
        "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}",
        generator::param(0)
    );
    let _ = writeln!(text, "    let line = n / {0};\n    let r = n % {0};", generator::param(5));
    let views = [
        ("b".to_string(), generator::param(b), b + 2),
        ("place".to_string(), "0u".to_string(), place + 1),
    ];
    text.push_str(&wide::addresses(rank, "line", HEAD, &views));
    let _ = writeln!(
        text,
        "    b += r * {};\n    place += r * {};",
        generator::param(b + 1),
        generator::param(place)
    );
    text.push_str(&tested(index, &types::load(index, "index", "b"), "place", 1));
    let _ = writeln!(
        text,
        "    keys[n] = select({}, line * {} + at, within);\n}}",
        generator::param(6),
        generator::param(3)
    );
    text
}

/// The shader that finds where the keys from each number on begin. Words: keys, numbers.
pub(crate) fn bounds_wgsl() -> String {
    let (count, numbers) = (generator::param(0), generator::param(1));
    format!(
        "{}{}{}{}    let n = unit * {THREADS}u + thread;\n    if n >= {numbers} {{ return; }}\n    var low = 0u;\n    var high = {count};\n    \
         while low < high {{\n        let half = low + (high - low) / 2u;\n        if keys[half] < n {{ low = half + 1u; }} else {{ high = half; }}\n    }}\n    \
         bounds[n] = low;\n}}\n",
        generator::params_declaration(),
        wide::input(0, "keys", DType::U32),
        wide::output(1, "bounds", DType::U32),
        wide::main(THREADS)
    )
}

/// The shader that joins the runs that lie at one place; views of src: over the lines, over the
/// columns. Word 0 is the number of results, word 1 that of places of a line, word 2 that of lines
/// times places.
pub(crate) fn joined_wgsl(lines: usize, columns: usize, dtype: DType, mode: ScatterMode) -> String {
    let (c, e) = (HEAD + lines, HEAD + 2 * lines + 2);
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "keys", DType::U32));
    text.push_str(&wide::input(1, "order", DType::U32));
    text.push_str(&wide::input(2, "arrivals", dtype));
    text.push_str(&wide::output(3, "joined", dtype));
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(
        text,
        "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}\n    let low = n / {columns_word} * {RUN}u;\n    let column = n % {columns_word};\n    \
         let key = keys[low];\n    if key >= {} || keys[low + {}u] != key {{ return; }}\n    let line = key / {};\n    let first = line * {};",
        generator::param(0),
        generator::param(2),
        RUN - 1,
        generator::param(1),
        generator::param(5),
        columns_word = generator::param(6),
    );
    text.push_str(&wide::addresses(
        lines,
        "line",
        HEAD,
        &[("c".to_string(), generator::param(c), c + 2)],
    ));
    text.push_str(&wide::addresses(
        columns,
        "column",
        e,
        &[("e".to_string(), "c".to_string(), e + columns)],
    ));
    let load = |j: &str| {
        let load = wide::widened(dtype, &types::load(dtype, "arrivals", "p"));
        format!("let p = e + (order[{j}] - first) * {};", generator::param(c + 1))
            + &format!(" let v = {load};")
    };
    let ty = types::value(wide::wide(dtype));
    let _ = writeln!(text, "    var value: {ty};\n    {{ {} value = v; }}", load("low"));
    let _ = writeln!(
        text,
        "    for (var j = low + 1u; j < low + {RUN}u; j++) {{ {} value = {}; }}\n    joined[n] = value;\n}}",
        load("j"),
        update(mode, dtype)
    );
    text
}

/// The shader that goes through the arrivals of each element; views over the result: x, src without
/// axis; weights that make its key and its column.
pub(crate) fn collect_wgsl(rank: usize, dtype: DType, mode: ScatterMode, long: bool) -> String {
    let view = |i: usize| HEAD + rank + i * (rank + 2);
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    text.push_str(&wide::input(1, "arrivals", dtype));
    text.push_str(&wide::input(2, "order", DType::U32));
    text.push_str(&wide::input(3, "bounds", DType::U32));
    if long {
        text.push_str(&wide::input(4, "joined", wide::wide(dtype)));
    }
    text.push_str(&wide::output(if long { 5 } else { 4 }, "out", dtype));
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(
        text,
        "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}",
        generator::param(0)
    );
    let names = ["a", "c", "key", "column"];
    let views: Vec<(String, String, usize)> = names
        .iter()
        .enumerate()
        .map(|(i, name)| (name.to_string(), generator::param(view(i)), view(i) + 2))
        .collect();
    text.push_str(&wide::addresses(rank, "n", HEAD, &views));
    let _ = writeln!(
        text,
        "    var value = {};",
        wide::widened(dtype, &types::load(dtype, "source", "a"))
    );
    text.push_str(&covered(rank, view(names.len())));
    let (places, arrivals, columns, step) = (
        generator::param(3),
        generator::param(5),
        generator::param(6),
        generator::param(view(1) + 1),
    );
    let load = wide::widened(dtype, &types::load(dtype, "arrivals", "p"));
    let _ = writeln!(
        text,
        "    if covered {{\n    let first = key / {places} * {arrivals};\n    let end = bounds[key + 1u];\n    var j = bounds[key];"
    );
    match mode {
        ScatterMode::Set => {
            let _ = writeln!(
                text,
                "    if j < end {{ let p = c + (order[end - 1u] - first) * {step}; value = {load}; }}"
            );
        }
        ScatterMode::Add | ScatterMode::Max | ScatterMode::Min => {
            let update = update(mode, dtype);
            text.push_str("    while j < end {\n");
            if long {
                let _ = writeln!(
                    text,
                    "        if j % {RUN}u == 0u && end - j >= {RUN}u {{\n            let v = joined[j / {RUN}u * {columns} + column]; value = {update};\n            \
                     j += {RUN}u;\n            continue;\n        }}"
                );
            }
            let _ = writeln!(
                text,
                "        let p = c + (order[j] - first) * {step}; let v = {load}; value = {update};\n        j += 1u;\n    }}"
            );
        }
    }
    text.push_str("    }\n    out[n] = value;\n}\n");
    text
}

/// The words of a view: where it begins, its step along the axis, its strides.
fn push_view(
    slot: &mut Params,
    start: usize,
    step: isize,
    strides: impl IntoIterator<Item = isize>,
) {
    slot.int(start as isize);
    slot.int(step);
    strides.into_iter().for_each(|s| _ = slot.int(s));
}

impl Wgpu {
    pub(crate) fn scatter_along(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        self.require(x.dtype(), "scatter")?;
        self.require(index.dtype(), "scatter")?;
        if x.shape()[axis] == 0 {
            // No launch would look at the indices.
            self.first_outside(index, axis, x.shape())?;
        }
        let out = self.scatter_reach(mode, x, axis, index, src, Reach::all(x.shape()[axis]))?;
        self.found_outside(index, axis, x.shape())?;
        Ok(out)
    }

    /// The scatter of the arrivals in `reach`, of which `x` is that part.
    fn scatter_reach(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
        reach: Reach,
    ) -> Result<StorageRef> {
        if x.numel() == 0 || index.numel() == 0 {
            return self.packed(x);
        }
        let large = [x, index, src].iter().any(|x| self.is_large(x))
            || self.exceeds(x.numel(), wide::wide(x.dtype()));
        if large {
            return self.scatter_pieces(mode, x, axis, index, src, reach);
        }
        let arrivals = index.shape()[axis];
        if arrivals <= FEW || x.numel().saturating_mul(arrivals) <= LITTLE {
            return self.scatter_pulled(mode, x, axis, index, src, reach);
        }
        let (lines, columns) = lines_and_columns(index, axis);
        let count = lines.iter().map(|&a| index.shape()[a]).product::<usize>() * arrivals;
        let places =
            lines.iter().map(|&a| index.shape()[a]).product::<usize>().saturating_mul(reach.len);
        if self.exceeds(count.max(places.saturating_add(1)), DType::U32) {
            return self.scatter_pieces(mode, x, axis, index, src, reach);
        }
        self.scatter_sorted(mode, x, axis, index, src, reach, &lines, &columns)
    }

    fn scatter_pulled(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
        reach: Reach,
    ) -> Result<StorageRef> {
        let (dtype, rank) = (x.dtype(), x.ndim());
        let out = self.allocate(x.numel(), wide::wide(dtype))?;
        let (fault, at) = self.fault(reach.size, reach.whole.then_some(index.shape()));
        let mut slot = Params::new();
        slot.count(x.numel());
        reach.push(&mut slot);
        slot.push(at);
        slot.counts(&[index.shape()[axis], 0]);
        slot.counts(x.shape().iter());
        push_view(&mut slot, x.layout().offset(), 0, x.layout().strides().iter().copied());
        for view in [index.layout(), src.layout(), &Layout::contiguous(*index.shape())] {
            push_view(&mut slot, view.offset(), view.strides()[axis], strides_without(view, axis));
        }
        push_view(&mut slot, 0, 0, (0..rank).map(|a| (a == axis) as isize));
        bounds_of(x, axis, index).for_each(|n| _ = slot.int(n));
        self.dispatch(&Launch {
            program: Program {
                key: Key::new(
                    "scatter",
                    [rank as u32, dtype as u32, index.dtype() as u32, mode as u32],
                ),
                wgsl: &|| Ok(pull_wgsl(rank, dtype, index.dtype(), mode)),
            },
            inputs: &[self.part(x)?, self.part(index)?, self.part(src)?],
            outputs: &[self.whole(&out)?, fault],
            params: &slot,
            groups: self.fold(x.numel().div_ceil(THREADS) as u64)?,
        })?;
        self.narrow(out, dtype, x)
    }

    #[allow(clippy::too_many_arguments)]
    fn scatter_sorted(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
        reach: Reach,
        lines: &[usize],
        columns: &[usize],
    ) -> Result<StorageRef> {
        let (dtype, rank, arrivals) = (x.dtype(), x.ndim(), index.shape()[axis]);
        let flat = Layout::contiguous(*index.shape());
        let down =
            Walk::over(index.shape(), &[index.layout(), &flat, src.layout()], lines)?.padded();
        let across = Walk::over(index.shape(), &[src.layout()], columns)?.padded();
        let size = |axes: &[usize]| axes.iter().map(|&a| index.shape()[a]).product::<usize>();
        let (count, places, width) =
            (size(lines) * arrivals, size(lines) * reach.len, size(columns));

        // The key of every arrival, and their order by key.
        let keys = self.allocate(count, DType::U32)?;
        let (fault, at) = self.fault(reach.size, reach.whole.then_some(index.shape()));
        let mut slot = Params::new();
        slot.count(count);
        reach.push(&mut slot);
        slot.push(at);
        slot.counts([arrivals, places].iter().chain(&down.sizes));
        push_view(
            &mut slot,
            index.layout().offset(),
            index.layout().strides()[axis],
            down.strides[0].iter().copied(),
        );
        slot.int(flat.strides()[axis]);
        slot.strides(&down.strides[1]);
        let depth = down.sizes.len();
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("scatter keys", [depth as u32, index.dtype() as u32]),
                wgsl: &|| Ok(keys_wgsl(depth, index.dtype())),
            },
            inputs: &[self.part(index)?],
            outputs: &[self.whole(&keys)?, fault],
            params: &slot,
            groups: self.fold(count.div_ceil(THREADS) as u64)?,
        })?;
        let (keys, order) = self.ordered(keys, count, places)?;
        let bounds = self.allocate(places + 1, DType::U32)?;
        let mut slot = Params::new();
        slot.counts(&[count, places + 1]);
        self.dispatch(&Launch {
            program: Program { key: Key::new("scatter bounds", []), wgsl: &|| Ok(bounds_wgsl()) },
            inputs: &[self.whole(&keys)?],
            outputs: &[self.whole(&bounds)?],
            params: &slot,
            groups: self.fold((places + 1).div_ceil(THREADS) as u64)?,
        })?;

        // Long runs joined.
        let runs = count / RUN * width;
        let long = arrivals >= LONG && mode != ScatterMode::Set;
        let joined = self.allocate(if long { runs } else { 0 }, wide::wide(dtype))?;
        if long {
            let mut slot = Params::new();
            slot.counts([runs, reach.len, places, 0, 0, arrivals, width].iter().chain(&down.sizes));
            push_view(
                &mut slot,
                src.layout().offset(),
                src.layout().strides()[axis],
                down.strides[2].iter().copied(),
            );
            slot.counts(&across.sizes);
            slot.strides(&across.strides[0]);
            let breadth = across.sizes.len();
            self.dispatch(&Launch {
                program: Program {
                    key: Key::new(
                        "scatter joined",
                        [depth as u32, breadth as u32, dtype as u32, mode as u32],
                    ),
                    wgsl: &|| Ok(joined_wgsl(depth, breadth, dtype, mode)),
                },
                inputs: &[self.whole(&keys)?, self.whole(&order)?, self.part(src)?],
                outputs: &[self.whole(&joined)?],
                params: &slot,
                groups: self.fold(runs.div_ceil(THREADS) as u64)?,
            })?;
        }

        // Every element through its arrivals.
        let out = self.allocate(x.numel(), wide::wide(dtype))?;
        let mut slot = Params::new();
        slot.count(x.numel());
        reach.push(&mut slot);
        slot.counts([0, arrivals, width].iter().chain(x.shape().iter()));
        push_view(&mut slot, x.layout().offset(), 0, x.layout().strides().iter().copied());
        push_view(
            &mut slot,
            src.layout().offset(),
            src.layout().strides()[axis],
            strides_without(src.layout(), axis),
        );
        let weights = |axes: &[usize], unit: usize| {
            let mut weights = vec![0; rank];
            let mut step = unit;
            for &a in axes.iter().rev() {
                weights[a] = step as isize;
                step *= index.shape()[a];
            }
            weights
        };
        let mut key = weights(lines, reach.len);
        key[axis] = 1;
        push_view(&mut slot, 0, 0, key);
        push_view(&mut slot, 0, 0, weights(columns, 1));
        bounds_of(x, axis, index).for_each(|n| _ = slot.int(n));
        let mut inputs =
            vec![self.part(x)?, self.part(src)?, self.whole(&order)?, self.whole(&bounds)?];
        if long {
            inputs.push(self.whole(&joined)?);
        }
        self.dispatch(&Launch {
            program: Program {
                key: Key::new(
                    "scatter collect",
                    [rank as u32, dtype as u32, mode as u32, long as u32],
                ),
                wgsl: &|| Ok(collect_wgsl(rank, dtype, mode, long)),
            },
            inputs: &inputs,
            outputs: &[self.whole(&out)?],
            params: &slot,
            groups: self.fold(x.numel().div_ceil(THREADS) as u64)?,
        })?;
        self.narrow(out, dtype, x)
    }

    /// A scatter that one launch cannot see: only the part that index covers, then halves along
    /// another axis; of a single line halves of the arrivals, one after the other, and halves of
    /// the places.
    fn scatter_pieces(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
        reach: Reach,
    ) -> Result<StorageRef> {
        let dtype = x.dtype();
        self.room(x.numel(), dtype)?;
        if self.hides(&[x, index, src]) {
            return self.scatter_reach(
                mode,
                &self.seen(x)?,
                axis,
                &self.seen(index)?,
                &self.seen(src)?,
                reach,
            );
        }
        let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
        if others.iter().any(|&a| index.shape()[a] != x.shape()[a]) {
            let part = others
                .iter()
                .try_fold(x.clone(), |x, &a| x.slice(a as isize, 0..index.shape()[a] as isize))?;
            let y = self.scatter_reach(mode, &part, axis, index, src, reach)?;
            let y = self.tensor(y, *part.shape(), dtype, x)?;
            let view = others.iter().fold(Layout::contiguous(*x.shape()), |view, &a| {
                view.slice(a, 0, index.shape()[a], 1)
            });
            let whole = self.packed(x)?;
            self.write_view(&whole, &view, &y)?;
            return Ok(whole);
        }
        let length = index.shape()[axis];
        let single = index.numel() == length;
        if self.exceeds(length, DType::U32)
            || single && (self.is_large(index) || self.is_large(src))
        {
            let y = [(0, length / 2), (length / 2, length)].into_iter().try_fold(
                x.clone(),
                |y, (low, high)| {
                    let (index, src) =
                        (self.piece(index, axis, low, high)?, self.piece(src, axis, low, high)?);
                    let y = self.scatter_reach(mode, &y, axis, &index, &src, reach.of_piece())?;
                    self.tensor(y, *x.shape(), dtype, x)
                },
            )?;
            return Ok(y.storage().clone());
        }
        if !single {
            let run = |parts: &[&Tensor], axis: usize| {
                Ok([self.scatter_reach(
                    mode,
                    parts[0],
                    axis,
                    parts[1],
                    parts[2],
                    reach.of_piece(),
                )?])
            };
            let [y] = self.by_halves(&[x, index, src], axis, [dtype], x.shape()[axis], run)?;
            return Ok(y);
        }
        let [low, high] = reach.halves().map(|(from, to, half)| {
            self.scatter_reach(mode, &self.piece(x, axis, from, to)?, axis, index, src, half)
        });
        self.join(&[low?, high?], dtype, x)
    }
}

/// The axes of index other than `axis` along which it varies, and those along which it is constant.
fn lines_and_columns(index: &Tensor, axis: usize) -> (Vec<usize>, Vec<usize>) {
    (0..index.ndim())
        .filter(|&a| a != axis)
        .partition(|&a| index.shape()[a] > 1 && index.layout().strides()[a] != 0)
}

/// How far index reaches into x along every axis.
fn bounds_of<'a>(
    x: &'a Tensor,
    axis: usize,
    index: &'a Tensor,
) -> impl Iterator<Item = isize> + 'a {
    (0..x.ndim())
        .map(move |a| if a == axis { x.shape()[a] as isize } else { index.shape()[a] as isize })
}
