//! Whether planes are pooled in groups, and in which passes and bands: pure functions of sizes.
//!
//! A pass reduces one axis, a band is some rows of the first axis. Its windows overlap the next
//! band's, whose elements are transposed again. Next: `groups`, which runs the passes.

use crate::Cpu;
use crate::float::{Float, lanes};
use crate::window::{Geometry, Range};

/// Most bytes of the buffers of a band: a quarter of a second-level cache.
const MAX_BYTES: usize = 256 << 10;
/// Most windows along an axis: spans of a longer row are fast.
const MAX_WINDOWS: usize = 4096;
/// Values and positions, each of a pass and of the one before.
pub(super) const BUFFERS: usize = 4;

/// The reduction of one axis of a plane.
pub(super) struct Pass {
    /// The product of the axes between the first and this one.
    pub(super) outer: usize,
    /// The product of the later axes, which have been reduced.
    pub(super) inner: usize,
    /// Elements of the axis, and the distance between elements of a window.
    pub(super) input: usize,
    pub(super) step: usize,
    pub(super) windows: Vec<Range>,
}

impl Pass {
    /// Elements of all windows.
    fn steps(&self) -> usize {
        let each: usize = self.windows.iter().map(|window| window.count).sum();
        self.outer * self.inner * each
    }

    fn results(&self) -> usize {
        self.outer * self.inner * self.windows.len()
    }
}

/// Some results of the first axis, and the elements of it that their windows see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) top: usize,
    pub(super) bottom: usize,
    pub(super) first: usize,
    pub(super) end: usize,
}

impl Band {
    fn new(windows: &[Range], step: usize, top: usize, bottom: usize) -> Band {
        let seen = windows[top..bottom].iter().filter(|window| window.count > 0);
        let ends = seen.map(|w| (w.first, w.first + (w.count - 1) * step + 1));
        let (first, end) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
        Band { top, bottom, first, end }
    }

    pub(super) fn rows(&self) -> usize {
        self.end - self.first
    }
}

/// The sizes from which the cost of groups and of spans is estimated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) planes: usize,
    /// Elements of a plane that are transposed, some of them for two bands, and the results of a
    /// plane.
    pub(super) cells: usize,
    pub(super) pixels: usize,
    /// Elements of all windows, axis by axis and all at once.
    pub(super) steps: usize,
    reads: usize,
    /// Spans of all taps.
    spans: usize,
    /// Lanes of a vector.
    pub(super) lanes: usize,
}

impl Sizes {
    /// Whether groups are faster than spans, in cycles of one core.
    fn are_faster_in_groups(&self) -> bool {
        let groups = self.planes.div_ceil(self.lanes);
        let moved = self.lanes * (self.cells + 2 * self.pixels);
        let group = moved + 5 * self.steps + 100;
        let plane = 20 * self.spans + self.reads;
        groups.saturating_mul(group) < self.planes.saturating_mul(plane)
    }
}

/// How groups of planes are pooled.
pub(super) struct Groups {
    /// One per axis, the last one first.
    pub(super) passes: Vec<Pass>,
    pub(super) bands: Vec<Band>,
    /// Elements of a row of the first axis, before and after it is reduced.
    pub(super) row: usize,
    pub(super) pixels_of_row: usize,
    /// Vectors of each buffer.
    pub(super) buffers: [usize; BUFFERS],
    pub(super) sizes: Sizes,
    pub(super) plane: usize,
}

impl Groups {
    /// Groups of `planes` planes, if they are faster than spans.
    pub(super) fn new<T: Float>(cpu: &Cpu, geometry: &Geometry, planes: usize) -> Option<Groups> {
        let (plane, pixels) = (geometry.plane(), geometry.pixels());
        let is_long = geometry.output.iter().any(|&size| size > MAX_WINDOWS);
        if planes == 0 || plane == 0 || pixels == 0 || plane > i32::MAX as usize || is_long {
            return None;
        }
        let axes = geometry.input.len();
        let mut passes = Vec::with_capacity(axes);
        let mut inner = 1;
        for axis in (0..axes).rev() {
            let (step, windows) = geometry.ranges(axis);
            let input = geometry.input[axis];
            let outer = geometry.input[..axis].iter().skip(1).product();
            passes.push(Pass { outer, inner, input, step, windows });
            inner *= geometry.output[axis];
        }
        let (last, others) = passes.split_last()?;
        let row = plane / last.input;
        let pixels_of_row = last.inner;
        let lanes = lanes::<T>(cpu.level);
        // Vectors of the buffers for these rows of the first axis, before and after.
        let buffers = |rows: usize, results: usize| {
            let mut sizes = [rows * row, 0, 0, 0];
            for (i, pass) in others.iter().enumerate() {
                let to = usize::from(i % 2 == 0);
                sizes[to] = sizes[to].max(rows * pass.results());
                sizes[2 + to] = sizes[2 + to].max(rows * pass.results());
            }
            let to = usize::from(others.len() % 2 == 0);
            sizes[to] = sizes[to].max(results * pixels_of_row);
            sizes[2 + to] = sizes[2 + to].max(results * pixels_of_row);
            sizes
        };
        let height = last.windows.len();
        let most = MAX_BYTES / (lanes * size_of::<T>());
        let fits = |rows: usize| {
            let band = (0..height).step_by(rows).map(|top| {
                Band::new(&last.windows, last.step, top, (top + rows).min(height)).rows()
            });
            let sizes = buffers(band.max().unwrap_or(0), rows);
            (sizes.iter().sum::<usize>() <= most).then_some((rows, sizes))
        };
        // More bands until a cache holds one.
        let counts = std::iter::successors(Some(1usize), |&n| Some((n * 5 / 4).max(n + 1)));
        let counts = counts.take_while(|&n| n < height).chain([height]);
        let (rows, buffers) = counts.map(|n| height.div_ceil(n)).find_map(fits)?;
        let bands: Vec<Band> = (0..height)
            .step_by(rows)
            .map(|top| Band::new(&last.windows, last.step, top, (top + rows).min(height)))
            .collect();
        let read: usize = bands.iter().map(Band::rows).sum();
        let sizes = Sizes {
            planes,
            cells: read * row,
            pixels,
            steps: last.steps() + read * others.iter().map(Pass::steps).sum::<usize>(),
            reads: pixels.saturating_mul(geometry.taps()),
            spans: geometry.rows(0, pixels).saturating_mul(geometry.taps()),
            lanes,
        };
        let groups = Groups { passes, bands, row, pixels_of_row, buffers, sizes, plane };
        sizes.are_faster_in_groups().then_some(groups)
    }

    /// The windows of a pass over a band: the product of the axes before, and the element of the
    /// axis at which the band begins.
    #[inline(always)]
    pub(super) fn windows<'a>(&'a self, number: usize, band: &Band) -> (usize, usize, &'a [Range]) {
        let pass = &self.passes[number];
        match number + 1 == self.passes.len() {
            true => (1, band.first, &pass.windows[band.top..band.bottom]),
            false => (band.rows() * pass.outer, 0, &pass.windows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuOptions, Level};
    use teeny_core::Window;

    /// The bands of planes of (n, n) with windows of (k, k), if they are pooled in groups.
    fn bands(level: Level, planes: usize, n: usize, k: usize, stride: usize) -> Option<usize> {
        let cpu = Cpu::with_options(CpuOptions::new().with_level(level));
        let window = Window::new(2).stride(stride).padding(k / 2);
        let size = (n + 2 * (k / 2) - k) / stride + 1;
        let geometry = Geometry::new(&[n; 2], &[k; 2], &[size; 2], &window);
        Groups::new::<f32>(&cpu, &geometry, planes).map(|groups| groups.bands.len())
    }

    #[test]
    fn planes_are_lanes_where_there_are_enough() {
        let cpu = Cpu::new();
        if lanes::<f32>(cpu.level) != 16 {
            return;
        }
        for (planes, n, k, stride, want) in [
            // Most lanes would be empty.
            (1, 8, 3, 1, None),
            (1, 112, 3, 2, None),
            (2, 112, 3, 2, None),
            (16, 4, 3, 2, Some(1)),
            (2560, 8, 3, 1, Some(1)),
            (2560, 14, 7, 1, Some(1)),
            (64, 64, 3, 1, Some(5)),
            (64, 112, 3, 2, Some(8)),
        ] {
            assert_eq!(bands(cpu.level, planes, n, k, stride), want, "{planes} {n} {k} {stride}");
        }
    }

    #[test]
    fn bands_see_what_their_windows_see() {
        let window = Window::new(1).stride(2).padding(1);
        let geometry = Geometry::new(&[9], &[3], &[5], &window);
        let (step, windows) = geometry.ranges(0);
        let seen = |top, bottom| {
            let band = Band::new(&windows, step, top, bottom);
            [band.first, band.end]
        };
        assert_eq!([seen(0, 1), seen(1, 3), seen(3, 5)], [[0, 2], [1, 6], [5, 9]]);
        // Windows of padding see nothing.
        let apart = Window::new(1).stride(3).padding(2).dilation(20);
        let (_, windows) = Geometry::new(&[9], &[2], &[3], &apart).ranges(0);
        assert_eq!(windows.iter().map(|w| w.count).collect::<Vec<_>>(), [0, 1, 1]);
    }
}
