//! Convolution and its two gradients as matrix products whose operands are read straight out of the
//! images: no patch is ever stored.
//!
//! ```text
//!                  rows        columns              k                      per group
//! forward          C_out/G     N places             C_in/G kernel          weight @ patches of x
//! gradient of x    C_in/G      N pixels             C_out/G kernel         weight' @ what of g a pixel went into
//! of the weight    C_out/G     C_in/G kernel        N places               g @ patches of x'
//! ```
//!
//! The tile is that of `matmul`. A thread takes its four columns apart into image and place once;
//! each k is taken apart by one thread for the whole tile, two steps ahead. Groups of fewer than
//! eight rows (depthwise convolutions) get a thread per result instead. The weight's gradient, a
//! small matrix with a long k, is cut along k.

mod shader;

use crate::device::{Launch, Wgpu};
use crate::matmul::{HEAD, Shape as Tile};
use crate::params::{MAX_COUNT, Params};
use crate::pipeline::{Key, Program};
use crate::pooling::countable;
use crate::profile;
use crate::wide;
pub(crate) use shader::wgsl;
use shader::{Geometry, THREADS};
use teeny_core::{DType, ReduceOp, Result, Shape, StorageRef, Tensor, Window, validate};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Forward,
    InputGrad,
    WeightGrad,
}

/// Which kernel: a tile per workgroup, or a thread per result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tiled(Tile),
    Single,
}

/// The sizes of one convolution.
struct Sizes<'a> {
    kind: Kind,
    dtype: DType,
    /// (N, C_in, spatial..), (C_out, C_in / G, kernel..), (N, C_out, places..).
    x: &'a Shape,
    weight: &'a Shape,
    y: &'a Shape,
    window: &'a Window,
}

impl Sizes<'_> {
    fn spatial(shape: &Shape) -> usize {
        shape[2..].iter().product()
    }

    /// Rows, columns and k of each group's product.
    fn product(&self) -> (usize, usize, usize) {
        let (inputs, outputs) = (self.weight[1], self.weight[0] / self.window.groups);
        let (kernel, n) = (Self::spatial(self.weight), self.x[0]);
        match self.kind {
            Kind::Forward => (outputs, n * Self::spatial(self.y), inputs * kernel),
            Kind::InputGrad => (inputs, n * Self::spatial(self.x), outputs * kernel),
            Kind::WeightGrad => (outputs, inputs * kernel, n * Self::spatial(self.y)),
        }
    }

    /// True if shaders can count to k, and reach every pixel of the padded images by signed
    /// coordinates.
    fn are_countable(&self, k: usize) -> bool {
        let window = self.window;
        k <= MAX_COUNT
            && (2..self.x.ndim())
                .all(|axis| countable(self.x[axis], self.weight[axis], window, axis - 2))
    }

    fn result(&self) -> &Shape {
        match self.kind {
            Kind::Forward => self.y,
            Kind::InputGrad => self.x,
            Kind::WeightGrad => self.weight,
        }
    }
}

impl Wgpu {
    /// The convolution of `x` by `weight`, or nothing if some tensor is too large for a kernel.
    pub(crate) fn convolution(
        &self,
        x: &Tensor,
        weight: &Tensor,
        window: &Window,
    ) -> Result<Option<StorageRef>> {
        let y = validate::conv_shape(x.shape(), weight.shape(), window)?;
        let sizes = Sizes {
            kind: Kind::Forward,
            dtype: x.dtype(),
            x: x.shape(),
            weight: weight.shape(),
            y: &y,
            window,
        };
        self.convolve(&sizes, weight, x)
    }

    /// Its gradient for `x`.
    pub(crate) fn convolution_input_grad(
        &self,
        g: &Tensor,
        weight: &Tensor,
        window: &Window,
        x: &Shape,
    ) -> Result<Option<StorageRef>> {
        let sizes = Sizes {
            kind: Kind::InputGrad,
            dtype: g.dtype(),
            x,
            weight: weight.shape(),
            y: g.shape(),
            window,
        };
        self.convolve(&sizes, weight, g)
    }

    /// Its gradient for the weight.
    pub(crate) fn convolution_weight_grad(
        &self,
        g: &Tensor,
        x: &Tensor,
        window: &Window,
        weight: &Shape,
    ) -> Result<Option<StorageRef>> {
        let sizes = Sizes {
            kind: Kind::WeightGrad,
            dtype: g.dtype(),
            x: x.shape(),
            weight,
            y: g.shape(),
            window,
        };
        self.convolve(&sizes, g, x)
    }

    fn convolve(
        &self,
        sizes: &Sizes<'_>,
        left: &Tensor,
        right: &Tensor,
    ) -> Result<Option<StorageRef>> {
        let dtype = sizes.dtype;
        self.require(dtype, "convolution")?;
        let (count, wide) = (sizes.result().numel(), wide::wide(dtype));
        let (rows, columns, k) = sizes.product();
        let _work = self.describe(
            &[left, right],
            sizes.result(),
            dtype,
            profile::flops(&[sizes.window.groups, rows, columns, k]),
        );
        if count == 0 {
            return Ok(Some(self.allocate(0, dtype)?));
        }
        if self.hides(&[left, right]) {
            return self.convolve(sizes, &self.seen(left)?, &self.seen(right)?);
        }
        if k == 0
            || left.numel() == 0
            || right.numel() == 0
            || self.is_large(left)
            || self.is_large(right)
            || self.exceeds(count, wide)
            || !sizes.are_countable(k)
        {
            return Ok(None);
        }
        let (groups, busy) = (sizes.window.groups, self.busy());
        let tiles = |tile: Tile| (rows.div_ceil(tile.tall()), columns.div_ceil(tile.wide()));
        let large = tiles(Tile::Large);
        let way = match () {
            () if rows < 8 => Way::Single,
            () if wide.size() == 4 && rows > 64 && groups * large.0 * large.1 >= busy => {
                Way::Tiled(Tile::Large)
            }
            () if wide.size() == 4 && rows <= 32 && columns > 64 => Way::Tiled(Tile::Flat),
            () => Way::Tiled(Tile::Small),
        };
        let ((down, across), splits) = match way {
            Way::Single => ((0, 0), 1),
            Way::Tiled(tile) => {
                let (down, across) = tiles(tile);
                ((down, across), (busy / (groups * down * across)).min(k / 256).clamp(1, 64))
            }
        };
        let out = self.allocate(splits * count, wide)?;
        let mut slot = Params::new();
        let head = [
            rows,
            k,
            columns,
            0,
            0,
            0,
            0,
            left.layout().offset(),
            right.layout().offset(),
            groups,
            down,
            across,
            splits,
            k.div_ceil(splits),
        ];
        slot.counts(&head);
        debug_assert_eq!(head.len(), HEAD);
        let geometry = Geometry::of(sizes.x.ndim() - 2);
        slot.strides(left.strides().iter().chain(right.strides()));
        let (x, y, window) = (&sizes.x[2..], &sizes.y[2..], sizes.window);
        let lists = [x, y, &sizes.weight[2..], &window.stride, &window.padding, &window.dilation];
        slot.counts(lists.iter().flat_map(|list| list.iter()));
        slot.counts(&[sizes.weight[1], sizes.weight[0] / groups]);
        let (kind, ndim) = (sizes.kind, geometry.ndim);
        let variant = match way {
            Way::Single => 0,
            Way::Tiled(tile) => 1 + tile as u32,
        };
        let workgroups = match way {
            Way::Single => count.div_ceil(THREADS),
            Way::Tiled(_) => splits * groups * down * across,
        };
        self.dispatch(&Launch {
            program: Program {
                key: Key::new("conv", [kind as u32, ndim as u32, dtype as u32, variant]),
                wgsl: &|| Ok(wgsl(kind, way, ndim, dtype)),
            },
            inputs: &[self.part(left)?, self.part(right)?],
            outputs: &[self.whole(&out)?],
            params: &slot,
            groups: self.fold(workgroups as u64)?,
        })?;
        let sum = if splits == 1 {
            out
        } else {
            let slices = self.tensor(out, Shape::new(&[splits, count])?, wide, left)?;
            self.fold_axes(ReduceOp::Sum, &slices, &[0])?
        };
        Ok(Some(self.narrow(sum, dtype, left)?))
    }
}
