//! Convolutions, pooling, interpolation.

use super::{Drawn, FLOATS, SweepOp};
use crate::bench::sweep::case::Fill;
use crate::bench::sweep::draw::{Draw, MAX_ELEMENTS};
use teeny_core::{Interpolation, Window};

/// The most multiplications of a case.
const FLOPS: usize = 1 << 30;

/// A convolution of images: channels in and out, side of the filter, stride, whether each channel
/// is convolved by itself, the number that divides the image's side.
type Layer = (usize, usize, usize, usize, bool, usize);

/// Layers of published networks.
const LAYERS: &[Layer] = &[
    // ResNet-18 and 34
    (3, 64, 7, 2, false, 1),
    (64, 64, 3, 1, false, 4),
    (64, 128, 3, 2, false, 4),
    (64, 128, 1, 2, false, 4),
    (128, 128, 3, 1, false, 8),
    (128, 256, 3, 2, false, 8),
    (256, 256, 3, 1, false, 16),
    (256, 512, 3, 2, false, 16),
    (512, 512, 3, 1, false, 32),
    // ResNet-50
    (256, 64, 1, 1, false, 4),
    (64, 256, 1, 1, false, 4),
    (512, 128, 1, 1, false, 8),
    (256, 1024, 1, 1, false, 16),
    (1024, 2048, 1, 2, false, 16),
    (512, 2048, 1, 1, false, 32),
    // VGG-16
    (3, 64, 3, 1, false, 1),
    (64, 128, 3, 1, false, 2),
    (128, 256, 3, 1, false, 4),
    (512, 512, 3, 1, false, 16),
    // AlexNet
    (3, 64, 11, 4, false, 1),
    (64, 192, 5, 1, false, 8),
    // MobileNetV2
    (3, 32, 3, 2, false, 1),
    (32, 32, 3, 1, true, 2),
    (96, 96, 3, 2, true, 2),
    (144, 144, 3, 1, true, 4),
    (144, 24, 1, 1, false, 4),
    (192, 192, 3, 2, true, 8),
    (384, 384, 3, 1, true, 16),
    (576, 96, 1, 1, false, 16),
    (960, 960, 3, 1, true, 32),
    // EfficientNet-B0
    (96, 96, 3, 2, true, 2),
    (144, 144, 5, 2, true, 4),
    (480, 480, 5, 1, true, 16),
    (672, 672, 5, 1, true, 16),
    (1152, 1152, 5, 1, true, 32),
    (1152, 192, 1, 1, false, 32),
    // ConvNeXt, tiny
    (3, 96, 4, 4, false, 1),
    (96, 96, 7, 1, true, 4),
    (192, 192, 7, 1, true, 8),
    (384, 384, 7, 1, true, 16),
    (768, 768, 7, 1, true, 32),
    (96, 192, 2, 2, false, 4),
    // U-Net
    (1, 32, 3, 1, false, 1),
    (32, 64, 3, 1, false, 2),
    (128, 64, 3, 1, false, 2),
    (256, 128, 3, 1, false, 4),
    (64, 2, 1, 1, false, 1),
    // DenseNet-121
    (256, 128, 1, 1, false, 4),
    (128, 32, 3, 1, false, 4),
    (512, 128, 1, 1, false, 8),
    // ViT: patches
    (3, 768, 16, 16, false, 1),
    (3, 384, 16, 16, false, 1),
    // LeNet, networks for MNIST and CIFAR
    (1, 6, 5, 1, false, 1),
    (6, 16, 5, 1, false, 2),
    (1, 32, 3, 1, false, 1),
    (32, 64, 3, 1, false, 1),
    // discriminator of DCGAN
    (3, 64, 4, 2, false, 1),
    (64, 128, 4, 2, false, 2),
    (256, 512, 4, 2, false, 8),
];

/// The largest batch for which the multiplications are not too many.
fn batch(draw: &mut Draw, elements: usize, multiplications: usize) -> usize {
    draw.batch(elements).min(FLOPS / multiplications.max(1)).max(1)
}

fn image_conv(draw: &mut Draw) -> Drawn {
    let (c_in, c_out, size, stride, depthwise, divisor) = if draw.chance(0.85) {
        draw.pick(LAYERS)
    } else {
        let (c_in, c_out) = (draw.log(1, 256), draw.log(1, 256));
        let size = draw.pick(&[1, 3, 3, 3, 5, 7]);
        (c_in, c_out, size, 1 + draw.below(2), false, draw.pick(&[1, 2, 4, 8, 16]))
    };
    let side: usize = draw.pick(&[28, 32, 64, 96, 128, 160, 224]);
    let side = side.div_ceil(divisor).max(size / 2 + 1);
    let groups = if depthwise { c_in } else { 1 };
    let padding = if size == stride { 0 } else { size / 2 };
    // A side that the filter does not fit into.
    let side = side.max(size);
    let out = (side + 2 * padding - size) / stride + 1;
    let per_image = out * out * size * size * c_in / groups * c_out;
    let n = batch(draw, side * side * c_in.max(c_out), per_image);
    let window = Window::new(2).stride(stride).padding(padding).groups(groups);
    let inputs = vec![
        (vec![n, c_in, side, side], Fill::Normal),
        (vec![c_out, c_in / groups, size, size], Fill::Normal),
    ];
    Drawn::of(inputs, move |x| x[0].conv(&x[1], &window))
        .arg(stride)
        .arg(padding)
        .arg(1)
        .arg(groups)
}

pub(super) fn rows(rows: &mut Vec<SweepOp>) {
    rows.push(SweepOp::new("conv2d", 16, FLOATS, |draw, _| image_conv(draw)));
    rows.push(SweepOp::new("conv1d", 3, FLOATS, |draw, _| {
        // Layers for sound and sequences: wav2vec, Whisper, WaveNet, TextCNN.
        let (c_in, c_out, size, stride, dilation) = draw.pick(&[
            (1, 512, 10, 5, 1),
            (512, 512, 3, 2, 1),
            (80, 384, 3, 1, 1),
            (384, 384, 3, 2, 1),
            (64, 64, 2, 1, 4),
            (128, 128, 3, 1, 2),
            (300, 100, 4, 1, 1),
            (32, 64, 5, 1, 1),
        ]);
        let length = draw.log(64, 4096);
        let n = batch(draw, length * c_in.max(c_out), length / stride * size * c_in * c_out);
        let padding = (size - 1) * dilation / 2;
        let window = Window::new(1).stride(stride).padding(padding).dilation(dilation);
        let inputs =
            vec![(vec![n, c_in, length], Fill::Normal), (vec![c_out, c_in, size], Fill::Normal)];
        Drawn::of(inputs, move |x| x[0].conv(&x[1], &window))
            .arg(stride)
            .arg(padding)
            .arg(dilation)
            .arg(1)
    }));
    rows.push(SweepOp::new("conv3d", 1, FLOATS, |draw, _| {
        let (c_in, c_out) = draw.pick(&[(1, 16), (3, 64), (32, 32), (64, 128), (128, 128)]);
        let (frames, side) = (draw.pick(&[4, 8, 16]), draw.pick(&[8, 14, 28, 32]));
        let points = frames * side * side;
        let n = batch(draw, points * c_in.max(c_out), points * 27 * c_in * c_out);
        let window = Window::new(3).padding(1);
        let inputs = vec![
            (vec![n, c_in, frames, side, side], Fill::Normal),
            (vec![c_out, c_in, 3, 3, 3], Fill::Normal),
        ];
        Drawn::of(inputs, move |x| x[0].conv(&x[1], &window)).arg(1).arg(1).arg(1).arg(1)
    }));
    rows.push(SweepOp::new("conv_transpose2d", 3, FLOATS, |draw, _| {
        // DCGAN's generator and the way up of U-Net.
        let (c_in, c_out, size, stride, padding, side) = draw.pick(&[
            (100, 512, 4, 1, 0, 1),
            (512, 256, 4, 2, 1, 4),
            (256, 128, 4, 2, 1, 8),
            (128, 64, 4, 2, 1, 16),
            (64, 3, 4, 2, 1, 32),
            (512, 256, 2, 2, 0, 8),
            (256, 128, 2, 2, 0, 16),
            (128, 64, 2, 2, 0, 32),
            (64, 32, 2, 2, 0, 64),
        ]);
        let out = (side - 1) * stride + size - 2 * padding;
        let n = batch(
            draw,
            (side * side * c_in).max(out * out * c_out),
            side * side * size * size * c_in * c_out,
        );
        let window = Window::new(2).stride(stride).padding(padding);
        let inputs = vec![
            (vec![n, c_in, side, side], Fill::Normal),
            (vec![c_in, c_out, size, size], Fill::Normal),
        ];
        Drawn::of(inputs, move |x| x[0].conv_transpose(&x[1], &window, &[out, out]))
            .arg(stride)
            .arg(padding)
    }));
    for (name, weight) in [("max_pool2d", 3), ("avg_pool2d", 3)] {
        rows.push(SweepOp::new(name, weight, FLOATS, move |draw, _| {
            let (size, stride, padding) = draw.pick(&[
                (2, 2, 0),
                (2, 2, 0),
                (3, 2, 1),
                (3, 1, 1),
                (3, 2, 0),
                (5, 1, 2),
                (7, 7, 0),
            ]);
            let mut shape = draw.images();
            for side in &mut shape[2..] {
                *side = (*side).max(size);
            }
            while shape.iter().product::<usize>() > MAX_ELEMENTS && shape[0] > 1 {
                shape[0] /= 2;
            }
            let window = Window::new(2).stride(stride).padding(padding);
            Drawn::one(shape, Fill::Normal, move |x| {
                if name == "max_pool2d" {
                    x.max_pool(&[size, size], &window)
                } else {
                    x.avg_pool(&[size, size], &window)
                }
            })
            .arg(size)
            .arg(stride)
            .arg(padding)
        }));
    }
    rows.push(SweepOp::new("global_avg_pool", 2, FLOATS, |draw, _| {
        Drawn::one(draw.images(), Fill::Normal, |x| x.adaptive_avg_pool(&[1, 1]))
    }));
    const NEAREST_AND_LINEAR: [(&str, Interpolation); 2] = [
        ("nearest", Interpolation::Nearest),
        ("bilinear", Interpolation::Linear { align_corners: false }),
    ];
    rows.push(SweepOp::new("interpolate", 1, &FLOATS[..2], |draw, _| {
        let mut shape = draw.images();
        shape[0] = (shape[0] / 4).max(1);
        let (side, (mode, interpolation)) = (2 * shape[2], draw.pick(&NEAREST_AND_LINEAR));
        Drawn::one(shape, Fill::Normal, move |x| x.interpolate(&[side, side], interpolation))
            .arg(side)
            .arg(mode)
    }));
}
