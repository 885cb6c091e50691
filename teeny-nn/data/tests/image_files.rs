//! PNG and JPEG files (`golden/image_files`, by `make_image_files.py`), and folders of them.

use crate::common::{Dice, Folder, device, flat, parse, values};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use teeny_core::{DType, Result, Tensor};
use teeny_data::images::{
    ImageFolder, ImageSize, ImageTransform, ImageTransforms, Resample, read_image, write_png,
};
use teeny_data::{DataLoader, Dataset};

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/image_files")
}

#[test]
fn files_have_pillows_pixels() {
    let all = parse(&fs::read_to_string(golden().join("expected.json")).unwrap());
    let (device, files) = (device(), all.as_object().unwrap());
    assert_eq!(files.len(), 11);
    for (name, want) in files {
        let image = read_image(golden().join(name), &device).unwrap();
        assert_eq!((image.dtype(), &image.shape()[..]), (DType::U8, &[3, 13, 17][..]));
        let got = values(&image.permute([1, 2, 0]).unwrap());
        let errors: Vec<f64> =
            got.iter().zip(flat(want)).map(|(got, want)| (got - want).abs()).collect();
        let (most, mean) = (
            errors.iter().copied().fold(0.0, f64::max),
            errors.iter().sum::<f64>() / errors.len() as f64,
        );
        // a decoder may round, and interpolate colours, in another way
        let (limit, mean_limit) = match name.as_str() {
            "subsampled.jpg" => (30.0, 2.0),
            name if name.ends_with("jpg") => (3.0, 0.5),
            _ => (0.0, 0.0),
        };
        assert!(most <= limit && mean <= mean_limit, "{name}: {most} at most, {mean} on average");
    }
}

#[test]
fn written_images_are_read_again() {
    let (folder, mut dice, device) = (Folder::new("write-png"), Dice(5), device());
    for case in 0..20 {
        let (h, w) = (1 + dice.below(20), 1 + dice.below(20));
        let bytes: Vec<u8> = (0..3 * h * w).map(|_| dice.below(256) as u8).collect();
        let image = Tensor::from_vec(bytes.clone(), (3, h, w), &device).unwrap();
        let path = folder.0.join(format!("{case}.png"));
        write_png(&path, &image).unwrap();
        assert_eq!(read_image(&path, &device).unwrap().to_vec::<u8>().unwrap(), bytes);
    }
    let path = folder.0.join("no.png");
    let bad = |x: &Tensor| write_png(&path, x).unwrap_err().to_string();
    let floats = Tensor::zeros((3, 2, 2), DType::F32, &device).unwrap();
    assert!(bad(&floats).contains("expected u8, got f32"));
    let cure = "x.mul(255.0)?.round()?.cast(DType::U8)? of values of 0 to 1";
    assert!(bad(&floats).contains(cure), "{}", bad(&floats));
    let bytes = floats.mul(255.0).unwrap().round().unwrap().cast(DType::U8).unwrap();
    assert!(write_png(folder.0.join("floats.png"), &bytes).is_ok());
    let ints = Tensor::zeros((3, 2, 2), DType::I32, &device).unwrap();
    assert!(bad(&ints).contains("x.cast(DType::U8)? of values of 0 to 255"));
    let grey = Tensor::zeros((1, 2, 2), DType::U8, &device).unwrap();
    assert!(bad(&grey).contains("expected (3, H, W), got (1, 2, 2)"), "{}", bad(&grey));
    assert!(bad(&Tensor::zeros((3, 0, 2), DType::U8, &device).unwrap()).contains("(3, 0, 2)"));
    assert!(!path.exists());
}

#[test]
fn files_that_end_too_early_are_errors_with_their_path() {
    let (folder, device) = (Folder::new("damaged-images"), device());
    let path = folder.0.join("x");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read_image(&path, &device)
    };
    for name in ["rgb.png", "palette.png", "rgb.jpg", "progressive.jpg", "grey.jpg"] {
        let bytes = fs::read(golden().join(name)).unwrap();
        // behind the pixels, bytes may be left out
        for end in (0..bytes.len() - 24).step_by(7) {
            let error = read(&bytes[..end]).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }
    // 60,000 x 60,000 pixels in a few bytes
    let mut huge = fs::read(golden().join("grey.png")).unwrap();
    huge[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    assert!(read(&huge).is_err());
    assert!(read(b"GIF89a").unwrap_err().to_string().contains("neither PNG nor JPEG"));
    assert!(read(b"").is_err());
    let error = read_image(folder.0.join("none.png"), &device).unwrap_err().to_string();
    assert!(error.contains("none.png") && error.contains("cannot read"), "{error}");
}

/// Pillow 13.0 reads a PNG whose rows are all there: the end of its compressed data, checksums and
/// IEND, at least 20 bytes, may be missing.
#[test]
fn files_without_what_follows_the_pixels_are_read() -> Result<()> {
    let (folder, device) = (Folder::new("image-ends"), device());
    let path = folder.0.join("x");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read_image(&path, &device)
    };
    let mut files: Vec<(String, Vec<u8>)> = ["rgb", "rgba", "palette", "grey", "grey_alpha"]
        .into_iter()
        .chain(["bits", "deep"])
        .map(|name| (name.to_string(), fs::read(golden().join(format!("{name}.png"))).unwrap()))
        .collect();
    let mut dice = Dice(11);
    for [width, height] in [[13, 17], [1, 1], [3, 1], [1, 5], [4, 2], [16, 9]] {
        let pixels: Vec<u8> = (0..3 * width * height).map(|_| dice.below(256) as u8).collect();
        let bytes = interlaced_png([width, height], &pixels);
        let planes = read(&bytes)?.permute([1, 2, 0])?.to_vec::<u8>()?.to_vec();
        assert_eq!(planes, pixels, "{width} x {height}");
        files.push((format!("interlaced {width} x {height}"), bytes));
    }
    for (name, bytes) in files {
        let want = read(&bytes)?.to_vec::<u8>()?;
        for missing in 1..=20 {
            let got = read(&bytes[..bytes.len() - missing]);
            let got = got.unwrap_or_else(|e| panic!("{name} without {missing} bytes: {e}"));
            assert_eq!(got.to_vec::<u8>()?, want, "{name} without {missing} bytes");
        }
        for missing in (25..bytes.len()).step_by(3) {
            assert!(read(&bytes[..bytes.len() - missing]).is_err(), "{name} without {missing}");
        }
        assert_eq!(read(&[&bytes[..], b"more"].concat())?.to_vec::<u8>()?, want, "{name}");
        // chunks behind the pixels are not needed
        let end = bytes.len() - 12;
        let text = [&4u32.to_be_bytes()[..], b"tEXt", b"a\0bc", &7u32.to_be_bytes()].concat();
        let longer = [&bytes[..end], &text, &bytes[end..]].concat();
        assert_eq!(read(&longer)?.to_vec::<u8>()?, want, "{name}");
    }
    Ok(())
}

/// A PNG of RGB in the seven passes of Adam7, each row without a filter.
fn interlaced_png([width, height]: [usize; 2], pixels: &[u8]) -> Vec<u8> {
    let passes = [
        [0, 0, 8, 8],
        [4, 0, 8, 8],
        [0, 4, 4, 8],
        [2, 0, 4, 4],
        [0, 2, 2, 4],
        [1, 0, 2, 2],
        [0, 1, 1, 2],
    ];
    let mut rows = Vec::new();
    for [x, y, dx, dy] in passes {
        for y in (y..height).step_by(dy).filter(|_| x < width) {
            rows.push(0);
            for x in (x..width).step_by(dx) {
                rows.extend(&pixels[3 * (width * y + x)..][..3]);
            }
        }
    }
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut encoder, &rows).unwrap();
    let sizes = [width, height].map(|n| (n as u32).to_be_bytes()).concat();
    let header = [&sizes[..], &[8, 2, 0, 0, 1]].concat();
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in
        [(b"IHDR", header), (b"IDAT", encoder.finish().unwrap()), (b"IEND", Vec::new())]
    {
        let mut crc = flate2::Crc::new();
        crc.update(kind);
        crc.update(&data);
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend([&kind[..], &data[..], &crc.sum().to_be_bytes()].concat());
    }
    bytes
}

/// A folder of 8 x 8 images: `counts[c]` of class c, each of one grey.
fn write_classes(root: &Path, counts: &[(&str, usize)]) {
    let device = device();
    for (c, (class, count)) in counts.iter().enumerate() {
        fs::create_dir_all(root.join(class)).unwrap();
        for i in 0..*count {
            let grey = (50 * c + i) as f64;
            let image = Tensor::full((3, 8, 8), grey, DType::U8, &device).unwrap();
            write_png(root.join(class).join(format!("{i:02}.png")), &image).unwrap();
        }
    }
}

#[test]
fn a_folder_is_a_data_set_of_its_files() {
    let (folder, device) = (Folder::new("image-folder"), device());
    write_classes(&folder.0, &[("cat", 5), ("ant", 3), ("bee", 4)]);
    fs::write(folder.0.join("cat/notes.txt"), "no image").unwrap();
    fs::write(folder.0.join("readme.png"), "not in a class").unwrap();
    fs::create_dir(folder.0.join(".cache")).unwrap();
    let images = ImageFolder::open(&folder.0, &device).unwrap();
    assert_eq!(images.classes(), ["ant", "bee", "cat"]);
    assert_eq!(images.len(), 12);
    let labels: Vec<usize> = images.files().iter().map(|(_, label)| *label).collect();
    assert_eq!(labels, [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    let (x, y) = images.batch(&[7, 2, 3], 0).unwrap();
    assert_eq!((x.dtype(), &x.shape()[..], y.dtype()), (DType::F32, &[3, 3, 8, 8][..], DType::I32));
    assert_eq!(values(&y), [2.0, 0.0, 1.0]);
    let firsts: Vec<f64> =
        values(&x).into_iter().step_by(192).map(|x| (255.0 * x).round()).collect();
    assert_eq!(firsts, [0.0, 52.0, 100.0]); // cat 00, ant 02, bee 00
    assert!(images.batch(&[12], 0).unwrap_err().to_string().contains("no item 12"));
    // augmentation: other numbers in each epoch, and the same with threads
    let crop = ImageTransform::RandomCrop { size: [8, 8], padding: 4 };
    let images = images.with_transforms(ImageTransforms::new(3, [crop]).unwrap());
    let [train, test] = images.random_split([0.75, 0.25], 1).unwrap();
    assert_eq!((train.len(), test.len()), (9, 3));
    let loader = Arc::new(DataLoader::new(train, 4).unwrap().shuffle(1));
    let epoch = |n: u64, threads: usize| -> Vec<f64> {
        let batches: Result<Vec<_>> = loader.prefetch(n, 0, threads).collect();
        batches.unwrap().iter().flat_map(|(x, _)| values(x)).collect()
    };
    assert_eq!(epoch(2, 0), epoch(2, 3));
    assert_ne!(epoch(2, 0), epoch(3, 0));
}

/// As torchvision's `ImageFolder`, which walks down from the folder of a class.
#[test]
fn images_in_folders_of_a_class_belong_to_it() {
    let (folder, device) = (Folder::new("nested-image-folder"), device());
    let classes = [("cat/old/b", 2), ("cat", 1), ("cat/new", 1), ("ant/only", 1), ("cat/.no", 1)];
    write_classes(&folder.0, &classes);
    #[cfg(unix)] // a circle of links has an end
    std::os::unix::fs::symlink(&folder.0, folder.0.join("cat/old/up")).unwrap();
    let images = ImageFolder::open(&folder.0, &device).unwrap();
    assert_eq!(images.classes(), ["ant", "cat"]);
    let of = |(path, label): &(std::path::PathBuf, usize)| {
        (path.strip_prefix(&folder.0).unwrap().to_string_lossy().replace('\\', "/"), *label)
    };
    let files: Vec<(String, usize)> = images.files().iter().map(of).collect();
    let expected = [
        ("ant/only/00.png", 0),
        ("cat/00.png", 1),
        ("cat/new/00.png", 1),
        ("cat/old/b/00.png", 1),
        ("cat/old/b/01.png", 1),
    ];
    assert_eq!(files, expected.map(|(path, label)| (path.to_string(), label)));
}

#[test]
fn a_folder_that_is_no_data_set_says_why() {
    let (folder, device) = (Folder::new("bad-image-folder"), device());
    let says = |path: &Path, text: &str| {
        let error = ImageFolder::open(path, &device).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("ImageFolder::open at"), "{error}");
    };
    says(&folder.0.join("none"), "none");
    says(&folder.0, "has no subfolders");
    fs::create_dir(folder.0.join("cat")).unwrap();
    says(&folder.0, "cat has no image");
    write_classes(&folder.0, &[("cat", 2)]);
    says(&folder.0.join("cat/00.png"), "not a folder");
    let large = Tensor::zeros((3, 9, 8), DType::U8, &device).unwrap();
    write_png(folder.0.join("cat/02.png"), &large).unwrap();
    fs::write(folder.0.join("cat/03.png"), "broken").unwrap();
    let images = ImageFolder::open(&folder.0, &device).unwrap();
    let error = images.batch(&[0, 1, 2], 0).unwrap_err().to_string();
    for text in ["00.png is 8 x 8", "02.png is 9 x 8", "help:", "resize"] {
        assert!(error.contains(text), "{text}: {error}");
    }
    let error = images.batch(&[1, 3], 0).unwrap_err().to_string();
    assert!(error.contains("03.png") && error.contains("neither PNG nor JPEG"), "{error}");
    let size = ImageSize::Exact([4, 4]);
    let resize = ImageTransform::Resize { size, filter: Resample::Bilinear };
    let images = images.with_transforms(ImageTransforms::new(0, [resize]).unwrap());
    assert_eq!(images.batch(&[0, 1, 2], 0).unwrap().0.shape()[..], [3, 3, 4, 4]);
}
