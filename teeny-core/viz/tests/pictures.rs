//! Pictures are well-formed files that show every finite value and refuse what they cannot show.

use crate::xml::read_xml;
use flate2::read::ZlibDecoder;
use std::io::Read;
use teeny_core::{DType, DeviceRef, Error, Reference, Scalar, Tensor};
use teeny_viz::{Heatmap, Histograms, Image, Plot, decision_boundary, scatter};

fn device() -> DeviceRef {
    Reference::new()
}

fn f64s(values: Vec<f64>, shape: &[usize], device: &DeviceRef) -> Tensor {
    Tensor::from_vec(values, shape, device).unwrap()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(Scalar::to_f64).collect()
}

fn text<T>(result: Result<T, Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// The pixels of a PNG of 8-bit RGB lines without filters, and its width.
fn read_png(png: &[u8]) -> (usize, Vec<[u8; 3]>) {
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let (mut rest, mut data, mut size, mut kinds) = (&png[8..], Vec::new(), [0; 2], Vec::new());
    while !rest.is_empty() {
        let number = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        let n = number(0) as usize;
        let (kind, body) = (&rest[4..8], &rest[8..8 + n]);
        // the checksum bit by bit, as the specification of PNG has it
        let mut crc = u32::MAX;
        for byte in &rest[4..8 + n] {
            crc ^= u32::from(*byte);
            (0..8).for_each(|_| crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 });
        }
        assert_eq!(number(8 + n), !crc);
        match kind {
            b"IHDR" => {
                size = [0, 4].map(|at| u32::from_be_bytes(body[at..at + 4].try_into().unwrap()));
                assert_eq!(body[8..], [8, 2, 0, 0, 0]);
            }
            b"IDAT" => data.extend(body),
            _ => {}
        }
        kinds.push(String::from_utf8(kind.to_vec()).unwrap());
        rest = &rest[12 + n..];
    }
    assert_eq!(kinds, ["IHDR", "IDAT", "IEND"]);
    let (mut lines, width) = (Vec::new(), size[0] as usize);
    ZlibDecoder::new(&data[..]).read_to_end(&mut lines).unwrap();
    assert_eq!(lines.len(), (1 + 3 * width) * size[1] as usize);
    let rows = lines.chunks(1 + 3 * width).inspect(|line| assert_eq!(line[0], 0));
    let pixels = rows.flat_map(|line| line[1..].chunks(3)).map(|p| p.try_into().unwrap());
    (width, pixels.collect())
}

#[test]
fn a_grid_of_images_is_a_png_with_every_pixel() {
    let device = device();
    let values = vec![0.0, 1.0, 2.0, 3.0, 4.0, f64::NAN, 4.0, 2.0, 0.0, 1.0, 4.0, 0.0];
    let x = f64s(values, &[3, 1, 2, 2], &device).cast(DType::F32).unwrap();
    let image = Image::grid(&x, 2).unwrap();
    assert_eq!((image.width(), image.height()), (7, 7));
    let (width, pixels) = read_png(&image.png());
    assert_eq!((width, &pixels[..]), (7, image.pixels()));
    let at = |x: usize, y: usize| pixels[y * 7 + x][0];
    assert_eq!([at(1, 1), at(2, 1), at(1, 2), at(2, 2)], [0, 64, 128, 191], "the first image");
    assert_eq!([at(4, 1), at(5, 1), at(0, 0), at(5, 5)], [255, 128, 128, 128], "NaN and gaps");
    let large = image.enlarged(3).unwrap();
    assert_eq!((large.width(), large.pixels()[3 * 21 + 8]), (21, [64; 3]));
    // three channels are red, green and blue
    let x = f64s(vec![1.0, 0.0, 0.5], &[1, 3, 1, 1], &device);
    assert_eq!(Image::grid(&x, 9).unwrap().pixels()[4], [255, 0, 128]);
    // each filter has its own range; channels other than 1 or 3 are separate images
    let w = f64s((0..16).map(|i| f64::from(i * i)).collect(), &[2, 2, 2, 2], &device);
    let filters = Image::filters(&w, 4).unwrap();
    assert_eq!((filters.width(), filters.height()), (13, 4));
    let corners: Vec<u8> = (0..4).map(|i| filters.pixels()[2 * 13 + 2 + 3 * i][0]).collect();
    assert_eq!(corners, [255; 4]);
}

#[test]
fn images_that_cannot_be_made_say_why() {
    let device = device();
    let of = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &device).unwrap();
    assert!(text(Image::grid(&of(&[2, 2]), 1)).contains("(N, 1, H, W) or (N, 3, H, W)"));
    let two = of(&[2, 2, 3, 4]);
    let error = text(Image::grid(&two, 1));
    assert!(error.contains("not (2, 2, 3, 4)"), "{error}");
    assert!(
        error.contains("x.reshape((-1, 1, 3, 4))? shows each channel, x.slice(1, ..1)? the first"),
        "{error}"
    );
    assert!(Image::grid(&two.reshape((-1, 1, 3, 4)).unwrap(), 1).is_ok());
    assert!(Image::grid(&two.slice(1, ..1).unwrap(), 1).is_ok());
    let help = |shape: &[usize]| text(Image::grid(&of(shape), 1));
    assert!(help(&[2, 5, 4, 3]).contains("x.permute((0, 3, 1, 2))? moves the channels"));
    assert!(help(&[2, 3, 4]).contains("x.unsqueeze(1)?"));
    assert!(help(&[2, 12]).contains("x.reshape((n, 1, h, w))?"));
    assert!(text(Image::grid(&of(&[0, 1, 3, 3]), 1)).contains("none of 0 values is finite"));
    assert!(text(Image::filters(&of(&[0, 4, 3, 3]), 1)).contains("none of 0 values"));
    assert!(text(Image::filters(&of(&[]), 1)).contains("images must be"));
    let image = Image::grid(&of(&[1, 1, 9, 9]), 1).unwrap();
    assert!(text(image.enlarged(usize::MAX)).contains("too large"));
    assert!(text(image.save("/no/such/folder/x.png")).contains("/no/such/folder"));
}

#[test]
fn a_heatmap_has_its_labels_scale_and_every_cell() {
    let device = device();
    let x = f64s(vec![-1.0, 0.0, 4.0, f64::INFINITY, 2.0, 1.0], &[2, 3], &device);
    let map = Heatmap::new("a < b", &x).unwrap();
    let map = map.labels(&["one", " words "], &[]).unwrap().axes("query", "key");
    let svg = map.svg();
    let tags = read_xml(&svg);
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("image ")).count(), 2, "cells and scale");
    for name in ["a &lt; b", "one", "·words·", "0", "1", "2", "query", "key", "-4", "4"] {
        assert!(svg.contains(&format!(">{name}</text>")), "{name}: {svg}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    let error = text(Heatmap::new("", &x).unwrap().labels(&["one"], &[]));
    assert!(error.contains("1 names for 2 rows"), "{error}");
    assert!(text(Heatmap::new("", &x.reshape(-1).unwrap())).contains("(rows, columns), not (6,)"));
    let empty = Tensor::zeros((0, 4), DType::F32, &device).unwrap();
    assert!(text(Heatmap::new("", &empty)).contains("none of 0 values is finite"));
    // one value, and more rows than labels have room for
    let same = Tensor::ones((1000, 2), DType::F32, &device).unwrap();
    let labels = read_xml(&Heatmap::new("", &same).unwrap().svg());
    assert!(labels.iter().filter(|tag| tag.starts_with("text ")).count() < 60);
}

#[test]
fn a_confusion_matrix_is_coloured_by_the_share_of_a_class() {
    let counts = [[1u64, 1], [0, 1]];
    let matrix = |names: &[&str]| {
        Heatmap::confusion("animals", 2, |target, guess| counts[target][guess], names)
    };
    let svg = matrix(&["cat", "dog"]).unwrap().svg();
    read_xml(&svg);
    assert_eq!((svg.matches(">1</text>").count(), svg.matches(">0</text>").count()), (4, 2));
    assert_eq!((svg.matches(">cat</text>").count(), svg.contains(">prediction</text>")), (2, true));
    assert!(text(matrix(&["cat"])).contains("1 names for 2 rows"));
    assert!(text(Heatmap::confusion("", 0, |_, _| 0, &[])).contains("without classes"));
}

#[test]
fn points_have_the_colours_of_their_classes_over_those_of_the_predictions() {
    let device = device();
    let values = vec![0.0, 0.0, 2.0, 1.0, 4.0, f64::NAN, 4.0, 2.0];
    let points = f64s(values, &[4, 2], &device).cast(DType::F32).unwrap();
    let classes = Tensor::new([0i64, 1, 1, 0], &device).unwrap();
    let svg = scatter("t", &points, &classes, &["a", "b"]).unwrap().svg();
    let tags = read_xml(&svg);
    let circles = |colour: &str| {
        tags.iter().filter(|tag| tag.starts_with("circle ") && tag.contains(colour)).count()
    };
    assert_eq!((circles("#0072b2"), circles("#d55e00")), (2, 1), "without the point that is NaN");
    assert!(!svg.contains("<polyline") && svg.contains(">a</text>") && !svg.contains("NaN"));
    // one logit per point, above 0 to the right of 2
    let mut asked = 0;
    let plot = decision_boundary("t", &points, &classes, &[], |grid| {
        asked = grid.shape()[0];
        assert_eq!((grid.dtype(), values_of(grid, 0)), (DType::F32, (0.0, 4.0)));
        grid.slice(1, 0..1)?.sub(2.0)
    });
    let svg = plot.unwrap().svg();
    read_xml(&svg);
    assert!(svg.contains("<image ") && svg.contains(">1</text>") && asked == 180 * 120);

    let wrong = decision_boundary("t", &points, &classes, &[], |grid| grid.slice(0, 0..3));
    assert!(text(wrong).contains("logits of points"));
    assert!(text(scatter("t", &points, &classes, &["a"])).contains("classes[1] is 1"));
    let none = Tensor::zeros((0, 2), DType::F32, &device).unwrap();
    let nothing = Tensor::zeros((0,), DType::I64, &device).unwrap();
    assert!(text(scatter("t", &none, &nothing, &[])).contains("N of at least 1"));
    assert!(text(scatter("t", &classes, &classes, &[])).contains("(N, 2) and (N)"));
}

/// The smallest and the largest element of a column, rounded.
fn values_of(grid: &Tensor, column: isize) -> (f64, f64) {
    let all = values(&grid.slice(1, column..column + 1).unwrap());
    let fold = |f: fn(f64, f64) -> f64, first: f64| all.iter().copied().fold(first, f).round();
    (fold(f64::min, f64::INFINITY), fold(f64::max, f64::NEG_INFINITY))
}

#[test]
fn histograms_have_a_plot_for_each_layer_over_all_steps() {
    let device = device();
    let folder = std::env::temp_dir().join(format!("teeny-viz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut all = Histograms::new();
    for step in [0, 10, 20] {
        let x = f64s(vec![-1.0, 0.0, 1.0 + step as f64, f64::NAN], &[4], &device);
        all.record(step, "fc & co", &x).unwrap();
    }
    all.record(5, "nothing", &f64s(vec![f64::NAN], &[1], &device)).unwrap();
    all.record(5, "large", &f64s(vec![f64::MAX], &[1], &device)).unwrap();
    all.record(5, "same", &f64s(vec![3.0, 3.0], &[2], &device)).unwrap();
    let plots = all.plots().unwrap();
    assert_eq!(plots.len(), 2, "of the values that have a place");
    let svg = plots[0].svg();
    read_xml(&svg);
    assert!(svg.contains(">fc &amp; co</text>") && svg.contains("<image "), "{svg}");
    assert!(svg.contains(">20</text>") && !svg.contains("NaN"), "{svg}");
    all.save(folder.join("all.svg")).unwrap();
    let svg = std::fs::read_to_string(folder.join("all.svg")).unwrap();
    assert_eq!(read_xml(&svg).iter().filter(|tag| tag.starts_with("image ")).count(), 2);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn pictures_follow_the_colours_of_the_page() {
    let svg = Plot::new("\u{1}title", "x", "y").curve("a", &[(0.0, 1.0), (1.0, 2.0)]).svg();
    read_xml(&svg);
    assert!(svg.contains("@media(prefers-color-scheme:dark)"));
    assert!(!svg.contains("black") && !svg.contains("\"white\"") && !svg.contains('\u{1}'));
}
