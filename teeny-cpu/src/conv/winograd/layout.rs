//! Bands of an image with their channels last.
//!
//! The naive form is `band[r][x][c] = image[c][r][x]`, zero where it is padding. Sixteen planes at
//! a time are transposed by blocks in registers, so that each plane is read along its rows.

use super::tiles::{Tiles, point_tiles};
use super::transforms::{Evaluate, Transform};
use super::{IN, OUT, Winograd, padded};
use crate::simd::{Level, prefetch};
use crate::transpose::transpose;

/// An image: a plane for each channel.
struct Planes<'a> {
    data: &'a [f32],
    channels: usize,
    /// Height and width.
    size: [usize; 2],
}

impl Planes<'_> {
    /// `rows` rows of `columns` elements, channels last, from row `at` of the image with zeros
    /// around it.
    fn channels_last(
        &self,
        level: Level,
        at: usize,
        padding: [usize; 2],
        [rows, columns]: [usize; 2],
        to: &mut [f32],
    ) {
        let ([height, width], channels) = (self.size, padded(self.channels));
        let (line, left) = (columns * channels, padding[1]);
        // Rows of the band that are in the image.
        let above = padding[0].saturating_sub(at).min(rows);
        let first = (at + above).saturating_sub(padding[0]).min(height);
        let inside = (height - first).min(rows - above);
        to[..above * line].fill(0.0);
        to[(above + inside) * line..rows * line].fill(0.0);
        for row in to[above * line..].chunks_exact_mut(line).take(inside) {
            row[..left * channels].fill(0.0);
            row[(left + width) * channels..].fill(0.0);
        }
        for c in (0..self.channels).step_by(16) {
            for r in 0..inside {
                let from = self.data[(c * height + first + r) * width..].as_ptr();
                let to = to[(above + r) * line + left * channels + c..].as_mut_ptr();
                let size = (width, (self.channels - c).min(16));
                let ahead = self.channels.saturating_sub(c + 16).min(16);
                for next in c + 16..c + 16 + ahead {
                    let row = &self.data[(next * height + first + r) * width..][..width];
                    row.chunks(16).for_each(|line| prefetch(line.as_ptr()));
                }
                // SAFETY: row `first + r` of these planes, and as many columns of the band.
                unsafe {
                    transpose(
                        level,
                        from,
                        (height * width) as isize,
                        to,
                        channels as isize,
                        size,
                        false,
                    )
                };
            }
        }
    }
}

impl Winograd {
    /// V of one band of an image.
    pub(super) fn evaluate(
        &self,
        image: &[f32],
        band: usize,
        rows: &mut [f32],
        points: &mut [f32],
    ) {
        let ([tiles_across, _], channels) = (self.tiles(), padded(self.in_channels));
        let columns = OUT * tiles_across + 2;
        let from = Planes { data: image, channels: self.in_channels, size: self.input };
        from.channels_last(self.level, band * OUT, self.padding, [IN, columns], rows);
        // SAFETY: a band of input and its tiles.
        unsafe {
            let input = Tiles {
                first: rows.as_ptr(),
                next: OUT * channels,
                row: columns * channels,
                column: channels,
            };
            Transform::<Evaluate, _, _>::run(
                self.level,
                tiles_across,
                channels,
                input,
                point_tiles(points.as_mut_ptr(), channels),
            );
        }
    }

    /// The pixels of a band of g, channels last, with zeros beyond.
    pub(super) fn pixels_of(&self, g: &[f32], band: usize, pixels: &mut [f32]) {
        let from = Planes { data: g, channels: self.out_channels, size: self.output };
        from.channels_last(self.level, band * OUT, [0, 0], [OUT, OUT * self.tiles()[0]], pixels);
    }

    /// Transposes the pixels of a band, channels last, to the planes at `y`.
    ///
    /// # Safety
    /// The band's rows of all planes are writable.
    pub(super) unsafe fn store_pixels(&self, pixels: &[f32], band: usize, y: *mut f32) {
        let ([tiles_across, _], channels, [height, width]) =
            (self.tiles(), padded(self.out_channels), self.output);
        for c in (0..self.out_channels).step_by(16) {
            for r in 0..OUT.min(height - band * OUT) {
                // SAFETY: by contract; the pixels belong to the band.
                unsafe {
                    let from = pixels.as_ptr().add(r * OUT * tiles_across * channels + c);
                    let to = y.add((c * height + band * OUT + r) * width);
                    transpose(
                        self.level,
                        from,
                        channels as isize,
                        to,
                        (height * width) as isize,
                        ((self.out_channels - c).min(16), width),
                        false,
                    );
                }
            }
        }
    }
}
