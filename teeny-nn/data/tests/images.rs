//! Transforms of images: results of small images by hand, and the statistics of random ones.

use crate::common::{Dice, assert_close, device, values};
use std::collections::BTreeMap;
use teeny_core::{DType, DeviceRef, Key, Result, Tensor};
use teeny_data::images::{ImageSize, ImageTransform, ImageTransforms, Resample, mixup};
use teeny_data::{DataLoader, Dataset};

/// The image whose pixel (y, x) is (10 y + x, 100 + x, 200 + y), `count` times: (count, 3, h, w).
fn images(count: usize, h: usize, w: usize, device: &DeviceRef) -> Tensor {
    let plane = |c: usize| {
        (0..h * w).map(move |i| {
            let (y, x) = (i / w, i % w);
            [10 * y + x, 100 + x, 200 + y][c] as u8
        })
    };
    let one: Vec<u8> = (0..3).flat_map(plane).collect();
    Tensor::from_vec(one.repeat(count), (count, 3, h, w), device).unwrap()
}

fn transforms(seed: u64, steps: &[ImageTransform]) -> ImageTransforms {
    ImageTransforms::new(seed, steps.iter().copied()).unwrap()
}

/// The bytes of each image after `steps`, in epoch `epoch`, and the size of an image.
fn apply(
    steps: &[ImageTransform],
    (count, h, w): (usize, usize, usize),
    epoch: u64,
) -> (Vec<Vec<u8>>, [usize; 2]) {
    let (device, indices) = (device(), (0..count).collect::<Vec<_>>());
    let x = transforms(7, steps).batch(&images(count, h, w, &device), &indices, epoch).unwrap();
    assert_eq!((x.dtype(), &x.shape()[..2]), (DType::F32, &[count, 3][..]));
    let size = [x.shape()[2], x.shape()[3]];
    let bytes: Vec<u8> = values(&x).iter().map(|x| (255.0 * x).round() as u8).collect();
    (bytes.chunks(3 * size[0] * size[1]).map(<[u8]>::to_vec).collect(), size)
}

/// The red plane that the part of the image at `start` has; 0 outside.
fn part([top, left]: [isize; 2], [h, w]: [isize; 2], own: [isize; 2]) -> Vec<u8> {
    let pixel = |y: isize, x: isize| match (0..own[0]).contains(&y) && (0..own[1]).contains(&x) {
        true => (10 * y + x) as u8,
        false => 0,
    };
    (top..top + h).flat_map(|y| (left..left + w).map(move |x| pixel(y, x))).collect()
}

#[test]
fn flips_exchange_columns_and_rows() {
    let (x, _) = apply(&[ImageTransform::FlipHorizontal { p: 1.0 }], (1, 2, 3), 0);
    let want = [2, 1, 0, 12, 11, 10, 102, 101, 100, 102, 101, 100, 200, 200, 200, 201, 201, 201];
    assert_eq!(x[0], want);
    let (x, _) = apply(&[ImageTransform::FlipVertical { p: 1.0 }], (1, 2, 3), 0);
    assert_eq!(x[0][..6], [10, 11, 12, 0, 1, 2]);
    assert_eq!(x[0][12..], [201, 201, 201, 200, 200, 200]);
    let (same, _) = apply(&[ImageTransform::FlipVertical { p: 0.0 }], (1, 2, 3), 0);
    assert_eq!(same, apply(&[], (1, 2, 3), 0).0);
    let (x, _) = apply(&[ImageTransform::FlipHorizontal { p: 0.3 }], (2000, 1, 2), 5);
    let flipped = x.iter().filter(|x| x[0] == 1).count() as f64;
    assert!((flipped - 600.0).abs() < 5.0 * 20.5, "{flipped}");
}

#[test]
fn a_centre_crop_is_around_the_centre_and_black_outside() {
    for (own, size, start) in [
        ([4, 6], [2, 2], [1, 2]),
        ([5, 7], [2, 2], [2, 2]), // halves to the even number: 1.5 and 2.5
        ([3, 3], [3, 3], [0, 0]),
        ([2, 3], [5, 4], [-1, 0]),
        ([2, 2], [6, 1], [-2, 0]),
    ] {
        let steps = [ImageTransform::CenterCrop(size)];
        let (x, got) = apply(&steps, (1, own[0], own[1]), 0);
        let [h, w] = size.map(|x| x as isize);
        assert_eq!(got, size);
        let want = part(start, [h, w], own.map(|x| x as isize));
        assert_eq!(x[0][..want.len()], want, "{own:?} to {size:?}");
    }
}

#[test]
fn every_place_of_a_random_crop_is_equally_likely() {
    let steps = [ImageTransform::RandomCrop { size: [3, 2], padding: 1 }];
    let (x, size) = apply(&steps, (3000, 3, 4), 2);
    assert_eq!(size, [3, 2]);
    let mut counts = BTreeMap::new();
    for image in &x {
        *counts.entry(image[..6].to_vec()).or_insert(0) += 1;
    }
    let mut places = Vec::new();
    (-1..=1).for_each(|y| places.extend((-1..=3).map(|x| part([y, x], [3, 2], [3, 4]))));
    assert_eq!(counts.len(), 15);
    for place in places {
        let count = f64::from(counts[&place]);
        assert!((count - 200.0).abs() < 5.0 * 14.0, "{count} times {place:?}");
    }
}

#[test]
fn a_resized_crop_has_the_shares_and_ratios_of_its_ranges() {
    // the whole image: as Resize
    let (size, filter) = ([6, 4], Resample::Bilinear);
    let all = |scale, ratio| ImageTransform::RandomResizedCrop { size, scale, ratio, filter };
    let whole = apply(&[all([1.0, 1.0], [1.0, 1.0])], (1, 10, 10), 0);
    let resize = ImageTransform::Resize { size: ImageSize::Exact(size), filter };
    assert_eq!(whole, apply(&[resize], (1, 10, 10), 0));
    // no part of a square has this ratio and the whole area: the centre does
    let centre = apply(&[all([1.0, 1.0], [2.0, 2.0])], (1, 10, 10), 0);
    assert_eq!(centre, apply(&[ImageTransform::CenterCrop([5, 10]), resize], (1, 10, 10), 0));
    let tall = apply(&[all([1.0, 1.0], [0.5, 0.5])], (1, 10, 10), 0);
    assert_eq!(tall, apply(&[ImageTransform::CenterCrop([10, 5]), resize], (1, 10, 10), 0));
    // a quarter of the area at any place: 5 x 5 pixels, whose size remains
    let same = ImageTransform::RandomResizedCrop {
        size: [5, 5],
        scale: [0.25, 0.25],
        ratio: [1.0, 1.0],
        filter: Resample::Nearest,
    };
    let (x, _) = apply(&[same], (500, 10, 10), 0);
    let mut starts = BTreeMap::new();
    for image in &x {
        let start = [image[0] / 10, image[0] % 10].map(isize::from);
        assert_eq!(image[..25], part(start, [5, 5], [10, 10]));
        *starts.entry(start).or_insert(0) += 1;
    }
    assert_eq!(starts.len(), 36);
    // random shares: from the first pixel and the last one, the size of the part
    let free = ImageTransform::RandomResizedCrop {
        size: [20, 20],
        scale: [0.2, 0.6],
        ratio: [0.5, 2.0],
        filter: Resample::Nearest,
    };
    let (x, _) = apply(&[free], (400, 20, 20), 0);
    let parts: Vec<(f64, f64)> = x
        .iter()
        .map(|image| {
            // the green plane has 100 + x, the blue one 200 + y
            let side = |plane: usize| f64::from(image[plane + 399] - image[plane]) + 1.0;
            (side(800) * side(400) / 400.0, side(400) / side(800))
        })
        .collect();
    // sides are rounded to pixels
    assert!(parts.iter().all(|(share, ratio)| *share > 0.15 && *share < 0.66 && *ratio < 2.4));
    let mean = parts.iter().map(|(share, _)| share).sum::<f64>() / 400.0;
    assert!((mean - 0.4).abs() < 0.03, "{mean}");
    let wide = parts.iter().filter(|(_, ratio)| *ratio > 1.0).count();
    assert!((120..280).contains(&wide), "{wide}");
}

#[test]
fn colours_change_by_factors_of_their_ranges() {
    let jitter = |brightness, contrast, saturation| {
        [ImageTransform::ColorJitter { brightness, contrast, saturation }]
    };
    let (plain, _) = apply(&[], (1, 2, 2), 0);
    assert_eq!(apply(&jitter(0.0, 0.0, 0.0), (1, 2, 2), 0).0, plain);
    let (x, _) = apply(&jitter(0.4, 0.0, 0.0), (1000, 2, 2), 0);
    let mut sum = 0.0;
    for image in &x {
        // the factor that the brightest byte below 256 / 1.4 has
        let factor = (f64::from(image[5]) + 0.5) / 101.0;
        assert!((0.59..1.41).contains(&factor), "{factor}");
        for (new, old) in image.iter().zip(&plain[0]) {
            let want = (factor * f64::from(*old)).min(255.0);
            assert!((f64::from(*new) - want).abs() <= 2.1, "{new} {old} {factor}");
        }
        sum += factor;
    }
    assert!((sum / 1000.0 - 1.0).abs() < 5.0 * 0.23 / 1000f64.sqrt(), "{sum}");
    // contrast keeps the mean grey, saturation the grey of each pixel
    let grey = |image: &[u8], i: usize| {
        [0.2989, 0.587, 0.114].iter().zip(0..).map(|(w, c)| w * f64::from(image[4 * c + i])).sum()
    };
    let mean = |image: &[u8]| (0..4).map(|i| -> f64 { grey(image, i) }).sum::<f64>() / 4.0;
    let (x, _) = apply(&jitter(0.0, 0.2, 0.0), (50, 2, 2), 0);
    // more contrast makes the smallest bytes 0, which raises the mean
    let kept = x.iter().filter(|image| !image[..4].contains(&0)).map(|image| mean(image));
    assert!(
        kept.clone().count() > 10 && kept.into_iter().all(|m| (m - mean(&plain[0])).abs() < 2.5)
    );
    assert!(x.iter().any(|image| image[8] > plain[0][8] + 10));
    assert!(x.iter().any(|image| image[8] < plain[0][8] - 10));
    let (x, _) = apply(&jitter(0.0, 0.0, 0.3), (50, 2, 2), 0);
    for image in x.iter().filter(|image| !image[..4].contains(&0)) {
        let changes = (0..4).map(|i| -> f64 { grey(image, i) - grey(&plain[0], i) });
        assert!(changes.into_iter().all(|change| change.abs() < 2.5));
    }
}

#[test]
fn a_rectangle_is_erased_with_its_probability() {
    let erase = ImageTransform::RandomErasing {
        p: 0.5,
        scale: [0.1, 0.3],
        ratio: [0.5, 2.0],
        value: [7, 8, 9],
    };
    let (plain, _) = apply(&[], (1, 10, 10), 0);
    let (x, _) = apply(&[erase], (400, 10, 10), 0);
    let mut erased = 0;
    for image in &x {
        let changed: Vec<usize> =
            (0..100).filter(|i| image[200 + i] != plain[0][200 + i]).collect();
        let Some((first, last)) = changed.first().zip(changed.last()) else { continue };
        erased += 1;
        let [h, w] = [last / 10 - first / 10 + 1, last % 10 - first % 10 + 1];
        assert_eq!(changed.len(), h * w, "a rectangle");
        assert!((6..=36).contains(&(h * w)) && h * 5 >= 2 * w && w * 5 >= 2 * h, "{h} x {w}");
        assert!(changed.iter().all(|i| [image[*i], image[100 + i], image[200 + i]] == [7, 8, 9]));
    }
    assert!((erased as f64 - 200.0).abs() < 50.0, "{erased}");
    // no rectangle fits: nothing changes
    let wide = ImageTransform::RandomErasing {
        p: 1.0,
        scale: [1.0, 1.0],
        ratio: [1.0, 1.0],
        value: [0; 3],
    };
    assert_eq!(apply(&[wide], (1, 10, 10), 0).0, plain);
}

#[test]
fn numbers_are_normalised_by_channel() {
    let (device, mean, std) = (device(), [0.5, 0.25, 0.0], [0.5, 0.1, 2.0]);
    let plan = transforms(0, &[]).with_normalize(mean, std).unwrap();
    let x = plan.batch(&images(2, 2, 3, &device), &[0, 1], 0).unwrap();
    let bytes = values(&images(2, 2, 3, &device));
    let want = bytes.iter().enumerate().map(|(i, byte)| {
        let c = i / 6 % 3;
        (byte / 255.0 - f64::from(mean[c])) / f64::from(std[c])
    });
    assert_close(&values(&x), &want.collect::<Vec<_>>(), 1e-6, &"normalised");
}

#[test]
fn draws_depend_on_the_epoch_and_the_item_alone() {
    let steps = [
        ImageTransform::FlipHorizontal { p: 0.5 },
        ImageTransform::RandomCrop { size: [4, 4], padding: 2 },
        ImageTransform::ColorJitter { brightness: 0.2, contrast: 0.2, saturation: 0.2 },
    ];
    let device = device();
    let data = |seed| {
        let plan = transforms(seed, &steps);
        let labels = Tensor::zeros(20, DType::I32, &device).unwrap();
        (images(20, 4, 4, &device), labels)
            .map(move |(x, _), indices, epoch| plan.batch(&x, indices, epoch))
    };
    let all = |seed, batch, epoch| -> Vec<f64> {
        let loader = DataLoader::new(data(seed), batch).unwrap();
        let batches: Result<Vec<Tensor>> = loader.epoch(epoch).collect();
        batches.unwrap().iter().flat_map(values).collect()
    };
    assert_eq!(all(1, 20, 3), all(1, 3, 3));
    assert_ne!(all(1, 20, 3), all(1, 20, 4));
    assert_ne!(all(1, 20, 3), all(2, 20, 3));
    let one = data(1).batch(&[13], 3).unwrap();
    assert_eq!(values(&one), all(1, 20, 3)[13 * 48..14 * 48]);
    let part = data(1).subset(vec![5, 13]).unwrap().batch(&[1], 3).unwrap();
    assert_eq!(values(&part), values(&one));
    let loader = std::sync::Arc::new(DataLoader::new(data(1), 3).unwrap());
    let ahead: Vec<f64> = loader.prefetch(3, 0, 3).flat_map(|x| values(&x.unwrap())).collect();
    assert_eq!(ahead, all(1, 20, 3));
}

#[test]
fn images_and_transforms_that_do_not_fit_are_refused() {
    let filter = Resample::Bilinear;
    let erase = |p, scale, ratio| ImageTransform::RandomErasing { p, scale, ratio, value: [0; 3] };
    let jitter =
        |brightness| ImageTransform::ColorJitter { brightness, contrast: 0.0, saturation: 0.0 };
    for step in [
        ImageTransform::FlipHorizontal { p: 1.5 },
        ImageTransform::FlipVertical { p: f64::NAN },
        ImageTransform::CenterCrop([0, 3]),
        ImageTransform::RandomCrop { size: [3, 0], padding: 0 },
        ImageTransform::Resize { size: ImageSize::ShortestEdge(0), filter },
        jitter(-0.1),
        jitter(f64::INFINITY),
        erase(0.5, [0.3, 0.2], [1.0, 1.0]),
        erase(0.5, [0.0, 0.2], [1.0, 1.0]),
        erase(0.5, [0.1, 1.2], [1.0, 1.0]),
        erase(0.5, [0.1, 0.2], [-1.0, 1.0]),
        erase(-0.5, [0.1, 0.2], [1.0, 1.0]),
    ] {
        let error = ImageTransforms::new(0, [step]).unwrap_err().to_string();
        assert!(error.contains("ImageTransforms::new at") && error.contains("help:"), "{error}");
    }
    assert!(transforms(0, &[]).with_normalize([0.0; 3], [1.0, 0.0, 1.0]).is_err());
    let device = device();
    let crop = transforms(0, &[ImageTransform::RandomCrop { size: [9, 4], padding: 2 }]);
    let two = images(2, 4, 4, &device);
    let error = crop.batch(&two, &[0, 1], 0).unwrap_err().to_string();
    assert!(error.contains("cannot crop 9 x 4 from images of 4 x 4 with 2 pixels"), "{error}");
    let plan = transforms(0, &[]);
    assert!(plan.batch(&two, &[0], 0).unwrap_err().to_string().contains("2 images of u8, 1 ind"));
    let floats = two.cast(DType::F32).unwrap();
    assert!(plan.batch(&floats, &[0, 1], 0).unwrap_err().to_string().contains("of f32"));
    let grey = two.slice(1, ..1).unwrap();
    assert!(plan.batch(&grey, &[0, 1], 0).unwrap_err().to_string().contains("(2, 1, 4, 4)"));
    assert!(plan.batch(&two.slice(2, ..0).unwrap(), &[0, 1], 0).is_err());
    let huge = transforms(0, &[ImageTransform::CenterCrop([usize::MAX, usize::MAX])]);
    assert!(huge.batch(&two, &[0, 1], 0).is_err());
    let huge = transforms(0, &[ImageTransform::RandomCrop { size: [1, 1], padding: usize::MAX }]);
    assert!(huge.batch(&two, &[0, 1], 0).is_err());
}

#[test]
fn random_lists_of_transforms_have_the_size_of_the_last_one() {
    let mut dice = Dice(4);
    for case in 0..200 {
        let (mut steps, mut size) = (Vec::new(), [1 + dice.below(9), 1 + dice.below(9)]);
        let own = size;
        for _ in 0..dice.below(6) {
            let new = [1 + dice.below(9), 1 + dice.below(9)];
            let filter = [Resample::Nearest, Resample::Bicubic][dice.below(2)];
            let (scale, ratio) = ([0.1, 0.9], [0.3, 3.0]);
            steps.push(match dice.below(7) {
                0 => ImageTransform::Resize { size: ImageSize::Exact(new), filter },
                1 => ImageTransform::CenterCrop(new),
                2 => ImageTransform::RandomCrop { size: new, padding: 5 },
                3 => ImageTransform::RandomResizedCrop { size: new, scale, ratio, filter },
                4 => ImageTransform::FlipHorizontal { p: 0.5 },
                5 => ImageTransform::RandomErasing { p: 0.9, scale, ratio, value: [1, 2, 3] },
                _ => {
                    ImageTransform::ColorJitter { brightness: 2.0, contrast: 2.0, saturation: 2.0 }
                }
            });
            if matches!(
                steps.last(),
                Some(
                    ImageTransform::Resize { .. }
                        | ImageTransform::CenterCrop(_)
                        | ImageTransform::RandomCrop { .. }
                        | ImageTransform::RandomResizedCrop { .. }
                )
            ) {
                size = new;
            }
        }
        assert_eq!(apply(&steps, (3, own[0], own[1]), case).1, size, "{steps:?}");
    }
}

/// Random images (n, 3, h, w), and the mask (n, h, w) that is [`class`] of their pixels.
fn random_images(
    [n, h, w]: [usize; 3],
    dtype: DType,
    dice: &mut Dice,
    device: &DeviceRef,
) -> (Tensor, Tensor) {
    let bytes: Vec<u8> = (0..n * 3 * h * w).map(|_| dice.below(256) as u8).collect();
    let images = Tensor::from_vec(bytes, (n, 3, h, w), device).unwrap();
    let mask = Tensor::from_vec(classes(&images), (n, h, w), device).unwrap();
    (images, mask.cast(dtype).unwrap())
}

/// A class of each pixel of bytes (n, 3, h, w); black has class 2.
fn classes(images: &Tensor) -> Vec<i32> {
    let area = images.shape()[2] * images.shape()[3];
    let bytes: Vec<i32> = values(images).iter().map(|byte| *byte as i32).collect();
    let class = |planes: &[i32], i: usize| {
        (planes[i] + 3 * planes[area + i] + 7 * planes[2 * area + i] + 2) % 5
    };
    bytes.chunks(3 * area).flat_map(|planes| (0..area).map(|i| class(planes, i))).collect()
}

/// A random geometric change.
fn geometric(dice: &mut Dice, filter: Resample) -> ImageTransform {
    let size = [1 + dice.below(12), 1 + dice.below(12)];
    match dice.below(7) {
        0 => ImageTransform::Resize { size: ImageSize::Exact(size), filter },
        1 => ImageTransform::Resize { size: ImageSize::ShortestEdge(size[0]), filter },
        2 => ImageTransform::CenterCrop(size),
        3 => ImageTransform::RandomCrop { size, padding: 6 },
        4 => {
            let (scale, ratio) = ([0.1, 0.9], [0.3, 3.0]);
            ImageTransform::RandomResizedCrop { size, scale, ratio, filter }
        }
        5 => ImageTransform::FlipHorizontal { p: 0.5 },
        _ => ImageTransform::FlipVertical { p: 0.5 },
    }
}

#[test]
fn a_mask_that_is_a_function_of_the_image_remains_one() {
    let (mut dice, device, mut changed) = (Dice(11), device(), 0);
    for case in 0..300 {
        let sizes = [dice.below(4), 1 + dice.below(12), 1 + dice.below(12)];
        let dtype = [DType::U8, DType::I32, DType::I64, DType::I16][dice.below(4)];
        let (images, masks) = random_images(sizes, dtype, &mut dice, &device);
        let steps: Vec<_> =
            (0..dice.below(5)).map(|_| geometric(&mut dice, Resample::Nearest)).collect();
        let plan = transforms(case, &steps).with_mask_fill(2);
        let indices: Vec<usize> = (0..sizes[0]).map(|_| dice.below(1000)).collect();
        let (x, y) = plan.batch_with_masks(&images, &masks, &indices, case).unwrap();
        assert_eq!(values(&x), values(&plan.batch(&images, &indices, case).unwrap()));
        assert_eq!(
            (y.dtype(), &y.shape()[..]),
            (dtype, &[x.shape()[0], x.shape()[2], x.shape()[3]][..])
        );
        let bytes = x.mul(255.0).unwrap().add(0.5).unwrap().floor().unwrap();
        let want = if sizes[0] == 0 { Vec::new() } else { classes(&bytes) };
        assert_eq!(y.cast(DType::I32).unwrap().to_vec::<i32>().unwrap(), want, "{steps:?}");
        changed += usize::from(values(&y) != values(&masks));
    }
    assert!(changed > 150, "{changed}");
}

#[test]
fn colours_and_erasing_leave_masks_and_no_filter_makes_new_classes() {
    let (mut dice, device) = (Dice(12), device());
    let (scale, ratio) = ([0.1, 0.3], [0.5, 2.0]);
    let colours = [
        ImageTransform::ColorJitter { brightness: 0.4, contrast: 0.4, saturation: 0.4 },
        ImageTransform::RandomErasing { p: 0.9, scale, ratio, value: [9, 9, 9] },
    ];
    for case in 0..100 {
        let (h, w) = (2 + dice.below(11), 2 + dice.below(11));
        let (images, masks) = random_images([3, h, w], DType::I32, &mut dice, &device);
        // only even classes
        let masks = masks.mul(2).unwrap();
        let filter = [Resample::Bilinear, Resample::Bicubic, Resample::Lanczos][dice.below(3)];
        let mut steps: Vec<_> = (0..3).map(|_| geometric(&mut dice, filter)).collect();
        let (_, plain) = transforms(case, &steps)
            .with_mask_fill(-1)
            .batch_with_masks(&images, &masks, &[5, 6, 7], 1)
            .unwrap();
        steps.extend(colours);
        let plan = transforms(case, &steps).with_mask_fill(-1);
        let (x, y) = plan.batch_with_masks(&images, &masks, &[5, 6, 7], 1).unwrap();
        assert_eq!(values(&x), values(&plan.batch(&images, &[5, 6, 7], 1).unwrap()));
        assert_eq!(values(&y), values(&plain), "{steps:?}");
        let there = values(&masks);
        assert!(values(&y).iter().all(|class| *class == -1.0 || there.contains(class)));
        // the size alone: the nearest pixel, as of an image
        let size = [1 + dice.below(20), 1 + dice.below(20)];
        let resize = [ImageTransform::Resize { size: ImageSize::Exact(size), filter }];
        let (_, y) =
            transforms(0, &resize).batch_with_masks(&images, &masks, &[0, 1, 2], 0).unwrap();
        for i in 0..3 {
            let mask = masks.at(0, i).unwrap().cast(DType::U8).unwrap().unsqueeze(-1).unwrap();
            let mask = mask.expand((h, w, 3)).unwrap().contiguous().unwrap();
            let want = Resample::Nearest.resize(&mask, size).unwrap().at(2, 0).unwrap();
            assert_eq!(values(&y.at(0, i).unwrap()), values(&want));
        }
    }
}

#[test]
fn masks_that_do_not_fit_are_refused_with_a_remedy() {
    let device = device();
    let two = images(2, 4, 5, &device);
    let plan = transforms(0, &[ImageTransform::CenterCrop([6, 6])]);
    let text = |plan: &ImageTransforms, masks: &Tensor| {
        let error = plan.batch_with_masks(&two, masks, &[0, 1], 0).unwrap_err().to_string();
        assert!(error.contains("ImageTransforms::batch_with_masks at"), "{error}");
        error
    };
    let masks = Tensor::ones((2, 4, 5), DType::U8, &device).unwrap();
    let error = text(&plan, &masks.cast(DType::F32).unwrap());
    assert!(error.contains("integers, not f32") && error.contains("cast(DType::I32)"), "{error}");
    let error = text(&plan, &masks.unsqueeze(1).unwrap());
    assert!(error.contains("masks (2, 1, 4, 5) do not fit images (2, 3, 4, 5)"), "{error}");
    assert!(error.contains("help: masks.squeeze(1)?"), "{error}");
    let error = text(&plan, &masks.transpose(1, 2).unwrap());
    assert!(error.contains("help: images (B, 3, H, W) need masks (B, H, W)"), "{error}");
    let error = text(&plan.clone().with_mask_fill(-100), &masks);
    assert!(error.contains("cannot fill masks of u8 with -100\n"), "{error}");
    let grey = two.slice(1, ..1).unwrap();
    let error = plan.batch_with_masks(&grey, &masks, &[0, 1], 0).unwrap_err().to_string();
    assert!(error.contains("(2, 1, 4, 5)") && error.contains("images (B, 3, H, W)"), "{error}");
    assert!(plan.batch_with_masks(&two.at(0, 0).unwrap(), &masks, &[0], 0).is_err());
    assert!(plan.batch_with_masks(&two, &masks, &[0], 0).is_err());
    // booleans, and views of other tensors
    let flags = masks.cast(DType::Bool).unwrap().flip(2).unwrap();
    let (_, y) = plan.batch_with_masks(&two, &flags, &[0, 1], 0).unwrap();
    assert_eq!((y.dtype(), values(&y).iter().sum::<f64>()), (DType::Bool, 40.0));
    let huge = transforms(0, &[ImageTransform::CenterCrop([usize::MAX / 4, 1])]);
    assert!(huge.batch_with_masks(&two, &masks, &[0, 1], 0).is_err());
}

#[test]
fn mixed_batches_are_convex_and_their_share_is_that_of_beta() {
    let device = device();
    let x = Tensor::from_vec(vec![1f32, 2.0, 4.0], (3, 1), &device).unwrap();
    let labels = Tensor::from_vec(vec![0i32, 1, 1], 3, &device).unwrap();
    for alpha in [0.2, 1.0, 3.0] {
        let mut shares = Vec::new();
        for draw in 0..2000 {
            let (x, y) = mixup(&x, &labels, 2, alpha, Key { seed: 3, draw }).unwrap();
            let (x, y) = (values(&x), values(&y));
            let l = (4.0 - x[0]) / 3.0; // l 1 + (1 - l) 4
            let want = [l + 4.0 * (1.0 - l), 2.0 * l + 1.0 - l, 4.0 * l + 2.0 * (1.0 - l)];
            assert_close(&x, &want, 1e-5, &"images");
            assert_close(&y, &[l, 1.0 - l, 1.0 - l, l, 0.0, 1.0], 1e-5, &"classes");
            shares.push(l);
        }
        let mean = shares.iter().sum::<f64>() / 2000.0;
        let variance = shares.iter().map(|l| (l - 0.5) * (l - 0.5)).sum::<f64>() / 2000.0;
        let want = 1.0 / (4.0 * (2.0 * alpha + 1.0)); // of Beta(alpha, alpha)
        assert!((mean - 0.5).abs() < 5.0 * (want / 2000.0).sqrt(), "{alpha}: mean {mean}");
        assert!((variance / want - 1.0).abs() < 0.15, "{alpha}: {variance} {want}");
    }
    let key = Key { seed: 1, draw: 1 };
    let (a, b) = (mixup(&x, &labels, 2, 1.0, key).unwrap(), mixup(&x, &labels, 2, 1.0, key));
    assert_eq!(values(&a.0), values(&b.unwrap().0));
    let tiny = mixup(&x, &labels, 2, 1e-300, key).unwrap().0;
    assert!(values(&tiny).iter().all(|x| x.is_finite()));
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(mixup(&x, &labels, 2, alpha, key).is_err());
    }
    assert!(mixup(&x, &labels, 1, 1.0, key).is_err(), "a label that is no class");
    assert!(mixup(&x.cast(DType::U8).unwrap(), &labels, 2, 1.0, key).is_err());
    let error = mixup(&x, &labels.slice(0, ..2).unwrap(), 2, 1.0, key).unwrap_err().to_string();
    assert!(error.contains("images (3, 1) of f32 with labels (2,)"), "{error}");
}
