//! Gather: each element of the result follows its index. Also what scatter shares with it: testing
//! indices, and tensors larger than a binding.
//!
//! A kernel sees a *reach* of the axis: all of it, or, where one line is larger than a binding, a
//! part at a time. Indices outside the axis are noted (`fault`) and give 0; indices that are inside
//! but elsewhere give 0 and belong to another launch.

use crate::device::{Launch, Wgpu};
use crate::error;
use crate::fault;
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Layout, Result, StorageRef, Tensor};

pub(crate) const THREADS: usize = 128;

/// Words 0..5: elements of the result, then [`Reach`] and the slot for faults; then sizes and
/// strides.
const HEAD: usize = 5;

/// The part of an axis that a launch serves.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    /// The length of the whole axis.
    pub size: usize,
    /// Where the part begins.
    pub low: usize,
    /// How long it is.
    pub len: usize,
    /// True if the launch sees all of the index, so that its places are those the user knows.
    pub whole: bool,
}

impl Reach {
    /// All of an axis.
    pub fn all(size: usize) -> Reach {
        Reach { size, low: 0, len: size, whole: true }
    }

    /// The same part for a piece of the index.
    pub fn of_piece(self) -> Reach {
        Reach { whole: false, ..self }
    }

    /// Both halves of the part: where each begins in it and ends, and the part itself.
    pub fn halves(self) -> [(usize, usize, Reach); 2] {
        let mid = self.len / 2;
        [(0, mid), (mid, self.len)].map(|(from, to)| {
            (from, to, Reach { low: self.low + from, len: to - from, whole: false, ..self })
        })
    }

    /// Its words in the parameter slot.
    pub fn push(self, slot: &mut Params) {
        slot.counts(&[self.size, self.low, self.len]);
    }
}

/// Statements that test `load`, an index, whose place in the tensor of indices is `place`: they
/// note it if it is outside the axis, and leave `within` and the position `at` in the reach, whose
/// words begin at `reach`.
pub(crate) fn tested(index: DType, load: &str, place: &str, reach: usize) -> String {
    let [size, low, len] = [0, 1, 2].map(|i| generator::param(reach + i));
    let (negative, end) = match types::value(index) {
        "u32" => ("false".to_string(), format!("k < {size}")),
        "i32" => ("k < 0".to_string(), format!("u32(k) < {size}")),
        "u64" => ("false".to_string(), format!("k < u64({size})")),
        _ => ("k < 0li".to_string(), format!("k < i64({size})")),
    };
    format!(
        "    let k = {load};\n    let inside = !({negative}) && ({end});\n    if !inside {{ note({place}, k); }}\n    \
         let at = select(0u, u32(k), inside) - {low};\n    let within = inside && at < {len};\n"
    )
}

/// The shader that gathers elements of type `dtype` along an axis; views: x without the axis,
/// index.
pub(crate) fn gather_wgsl(rank: usize, dtype: DType, index: DType) -> String {
    let (sizes, x, i) = (HEAD, HEAD + rank, HEAD + 2 * rank + 2);
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    text.push_str(&wide::input(1, "index", index));
    text.push_str(&wide::output(2, "out", dtype));
    text.push_str(&fault::wgsl(3, index, &generator::param(4)));
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(
        text,
        "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}",
        generator::param(0)
    );
    let views = [
        ("a".to_string(), generator::param(x), x + 2),
        ("b".to_string(), generator::param(i), i + 1),
    ];
    text.push_str(&wide::addresses(rank, "n", sizes, &views));
    text.push_str(&tested(index, &types::load(index, "index", "b"), "n", 1));
    let value = types::load(dtype, "source", "a");
    let _ = writeln!(
        text,
        "    if !within {{ out[n] = {}; return; }}\n    a += at * {};\n    out[n] = {};\n}}",
        types::zero(wide::wide(dtype)),
        generator::param(x + 1),
        wide::widened(dtype, &value),
    );
    text
}

/// The strides with that of `axis` replaced by 0.
pub(crate) fn strides_without(layout: &Layout, axis: usize) -> Vec<isize> {
    layout.strides().iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
}

impl Wgpu {
    pub(crate) fn gather_along(
        &self,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
    ) -> Result<StorageRef> {
        self.require(x.dtype(), "gather")?;
        self.require(index.dtype(), "gather")?;
        let out = self.gather_reach(x, axis, index, Reach::all(x.shape()[axis]))?;
        self.found_outside(index, axis, x.shape())?;
        Ok(out)
    }

    /// The gather of what lies in `reach`, of which `x` is that part; 0 elsewhere.
    fn gather_reach(
        &self,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        reach: Reach,
    ) -> Result<StorageRef> {
        let (dtype, rank) = (x.dtype(), index.ndim());
        if self.is_large(x)
            || self.is_large(index)
            || self.exceeds(index.numel(), wide::wide(dtype))
        {
            return self.gather_pieces(x, axis, index, reach);
        }
        let out = self.allocate(index.numel(), wide::wide(dtype))?;
        let (fault, at) = self.fault(reach.size, reach.whole.then_some(index.shape()));
        let mut slot = Params::new();
        slot.count(index.numel());
        reach.push(&mut slot);
        slot.push(at);
        slot.counts(index.shape().iter());
        slot.int(x.layout().offset() as isize);
        slot.int(x.layout().strides()[axis]);
        slot.strides(&strides_without(x.layout(), axis));
        slot.int(index.layout().offset() as isize);
        slot.strides(index.layout().strides());
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("gather", [rank as u32, dtype as u32, index.dtype() as u32]),
                wgsl: &|| Ok(gather_wgsl(rank, dtype, index.dtype())),
            },
            inputs: &[self.part(x)?, self.part(index)?],
            outputs: &[self.whole(&out)?, fault],
            params: &slot,
            groups: self.fold(index.numel().div_ceil(THREADS) as u64)?,
        })?;
        self.narrow(out, dtype, x)
    }

    /// A gather that one launch cannot see: halves along another axis; of a single line, halves of
    /// the indices, then halves of what they choose from.
    fn gather_pieces(
        &self,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        reach: Reach,
    ) -> Result<StorageRef> {
        let dtype = x.dtype();
        self.room(index.numel(), dtype)?;
        if self.hides(&[x, index]) {
            return self.gather_reach(&self.seen(x)?, axis, &self.seen(index)?, reach);
        }
        let x = (0..x.ndim())
            .filter(|&a| a != axis)
            .try_fold(x.clone(), |x, a| x.slice(a as isize, 0..index.shape()[a] as isize))?;
        let length = index.shape()[axis];
        if index.numel() > length {
            let run = |parts: &[&Tensor], axis: usize| {
                Ok([self.gather_reach(parts[1], axis, parts[0], reach.of_piece())?])
            };
            let [y] = self.by_halves(&[index, &x], axis, [dtype], length, run)?;
            return Ok(y);
        }
        if self.is_large(index) || self.exceeds(length, wide::wide(dtype)) {
            let mid = Wgpu::cut(length, 1, dtype);
            let halves = [(0, mid), (mid, length)].map(|(low, high)| {
                self.gather_reach(&x, axis, &self.piece(index, axis, low, high)?, reach.of_piece())
            });
            let [low, high] = halves;
            return self.join(&[low?, high?], dtype, &x);
        }
        let [low, high] = reach.halves().map(|(from, to, half)| {
            let y = self.gather_reach(&self.piece(&x, axis, from, to)?, axis, index, half)?;
            Ok::<_, teeny_core::Error>((self.tensor(y, *index.shape(), dtype, &x)?, half))
        });
        let ((low, _), (high, half)) = (low?, high?);
        let middle = u32::try_from(half.low).map_err(|_| error::beyond(half.low))?;
        Ok(index.cast(DType::U32)?.lt(middle)?.select(&low, &high)?.storage().clone())
    }
}
