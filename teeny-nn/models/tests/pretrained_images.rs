//! Encoders of images and CLIP of folders (`golden/vision`, `golden/clip`, by `make_images.py`),
//! and images in other sizes.

use crate::common::{Dice, Folder, assert_close, flat, parse, sizes, values};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_models::{
    Clip, Encoder, ImageEncoder, ImageProcessor, ImageSize, OpenOptions, Resample, Task,
};
use teeny_nn::transformer::EncoderInputs;

const DTYPES: [DType; 3] = [DType::F32, DType::F64, DType::BF16];
const FILTERS: [Resample; 4] =
    [Resample::Nearest, Resample::Lanczos, Resample::Bilinear, Resample::Bicubic];

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn expected(name: &str) -> Value {
    parse(&fs::read_to_string(golden(name).join("expected.json")).unwrap())
}

/// One device for all tensors of a test.
fn device() -> DeviceRef {
    static DEVICE: OnceLock<DeviceRef> = OnceLock::new();
    DEVICE.get_or_init(crate::common::device).clone()
}

/// The image of `make_images.py` with this seed.
fn image(shape: &[usize], seed: u32) -> Tensor {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let bytes: Vec<u8> = (0..shape.iter().product()).map(next).collect();
    Tensor::from_vec(bytes, shape, device()).unwrap()
}

fn images(want: &Value) -> Vec<Tensor> {
    let all = want["sizes"].as_array().unwrap().iter().zip(0..);
    all.map(|(shape, seed)| image(&sizes(shape), seed)).collect()
}

/// The numbers of `v` as f32 with the shape of the nested lists.
fn floats(mut v: &Value) -> Tensor {
    let (all, mut shape) = (flat(v), Vec::new());
    while let Some(items) = v.as_array() {
        shape.push(items.len());
        v = &items[0];
    }
    let all: Vec<f32> = all.iter().map(|&x| x as f32).collect();
    Tensor::from_vec(all, &shape[..], device()).unwrap()
}

fn integers(v: &Value) -> Tensor {
    floats(v).cast(DType::I32).unwrap()
}

/// f32 results agree number by number, bf16 results in norm: two layers with large weights amplify
/// its rounding.
#[track_caller]
fn assert_near(got: &Tensor, want: &Value, what: &str) {
    let (dtype, got, want) = (got.dtype(), values(got), flat(want));
    if dtype != DType::BF16 {
        return assert_close(&got, &want, 1e-4, &what);
    }
    assert_eq!(got.len(), want.len(), "{what}");
    let norm = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>().sqrt();
    let error = norm(&mut got.iter().zip(&want).map(|(g, w)| g - w));
    let relative = error / norm(&mut want.iter().copied());
    assert!(relative < 0.1, "{what}: an error of {relative} in bf16");
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    u64::from(!crc)
}

#[test]
fn images_get_other_sizes_with_the_bits_of_pillow() {
    let cases = parse(&fs::read_to_string(golden("images.json")).unwrap());
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 240);
    for (case, seed) in cases.iter().zip(0..) {
        let case: Vec<u64> = case.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        let [filter, from @ .., sum] = &case[..] else { panic!("{case:?}") };
        let [h, w, height, width] = [0, 1, 2, 3].map(|i| from[i] as usize);
        let filter = FILTERS[*filter as usize];
        let resized = filter.resize(&image(&[h, w, 3], seed), [height, width]).unwrap();
        assert_eq!(resized.shape()[..], [height, width, 3]);
        let bytes = resized.to_vec::<u8>().unwrap();
        assert_eq!(checksum(&bytes), *sum, "{filter:?} {h} x {w} -> {height} x {width}");
    }
}

#[test]
fn processors_make_the_pixels_of_transformers() -> Result<()> {
    for name in
        ["vision/vit", "vision/vit-sides", "vision/vit-classes", "clip/clip", "clip/clip-old"]
    {
        let want = expected(name);
        let processor = ImageProcessor::open(golden(name))?;
        let pixels = processor.process(&images(&want), device())?;
        assert_eq!(pixels.dtype(), DType::F32);
        let want = floats(&want["pixel_values"]);
        assert_eq!(pixels.shape(), want.shape(), "{name}");
        assert!(pixels.to_vec::<f32>()? == want.to_vec::<f32>()?, "{name}: other bits");
    }
    Ok(())
}

#[test]
fn grey_images_have_three_equal_channels() -> Result<()> {
    let mut processor = ImageProcessor::vit();
    (processor.resize, processor.rescale, processor.normalize) = (None, None, None);
    let grey = image(&[4, 5], 1);
    let bytes: Vec<f64> = values(&grey);
    for image in [grey.clone(), grey.unsqueeze(-1)?] {
        let pixels = processor.process(&[image], device())?;
        assert_eq!(values(&pixels), bytes.repeat(3));
    }
    Ok(())
}

#[test]
fn files_of_processors_have_old_and_new_keys() {
    let folder = Folder::new("processors");
    let file = folder.0.join("preprocessor_config.json");
    let open = |text: &str| {
        fs::write(&file, text).unwrap();
        ImageProcessor::open(&folder.0)
    };
    assert_eq!(open("{}").unwrap(), ImageProcessor::vit());
    let clip = r#""feature_extractor_type": "CLIPFeatureExtractor""#;
    assert_eq!(open(&format!("{{{clip}}}")).unwrap(), ImageProcessor::clip());
    let old = open(&format!(r#"{{{clip}, "size": 30, "crop_size": 20, "resample": 2}}"#)).unwrap();
    assert_eq!(old.resize, Some((ImageSize::ShortestEdge(30), Resample::Bilinear)));
    assert_eq!(old.crop, Some([20, 20]));
    let new = open(
        r#"{"image_processor_type": "ViTImageProcessorFast", "size": {"height": 3, "width": 4},
            "do_normalize": false, "do_rescale": null, "do_center_crop": true,
            "crop_size": {"height": 5, "width": 6}, "resample": null}"#,
    )
    .unwrap();
    assert_eq!(new.resize, Some((ImageSize::Exact([3, 4]), Resample::Bilinear)));
    assert_eq!((new.crop, new.normalize), (Some([5, 6]), None));
    assert_eq!(new.rescale, Some(1.0 / 255.0));
    let edge = open(r#"{"size": {"shortest_edge": 9}, "do_resize": true}"#).unwrap();
    assert_eq!(edge.resize, Some((ImageSize::ShortestEdge(9), Resample::Bilinear)));
    assert_eq!(open(r#"{"do_resize": false, "size": [2, 3]}"#).unwrap().resize, None);
    for (text, part) in [
        (r#"{"image_processor_type": "BeitImageProcessor"}"#, "by \"BeitImageProcessor\""),
        (r#"{"resample": 7}"#, "\"resample\" is 7"),
        (r#"{"size": "large"}"#, "\"size\" is \"large\", not a size, or a height and a width"),
        (r#"{"size": {"height": 3}}"#, "not a size, or a height and a width"),
        (r#"{"size": {"shortest_edge": 3, "longest_edge": 4}}"#, "in \"size\": \"shortest_edge\""),
        (r#"{"crop_size": {"shortest_edge": 3}}"#, "\"crop_size\" has no \"height\""),
        (r#"{"image_mean": [0.5]}"#, "\"image_mean\" has 1 numbers"),
        (r#"{"image_std": "0.5"}"#, "\"image_std\" is \"0.5\", not a list of numbers"),
        (r#"{"image_std": [0.5, 0, 1]}"#, "\"image_std\" has a 0"),
        (r#"{"do_resize": 1}"#, "\"do_resize\" is 1, not true or false"),
        ("[", "not JSON"),
    ] {
        let said = open(text).unwrap_err().to_string();
        assert!(said.contains(part) && said.contains("preprocessor_config.json"), "{part}: {said}");
    }
    fs::remove_file(&file).unwrap();
    let said = ImageProcessor::open(&folder.0).unwrap_err().to_string();
    assert!(said.contains("preprocessor_config.json"), "{said}");
    let joined = folder.0.join("processor_config.json");
    fs::write(&joined, format!("{{\"image_processor\": {{{clip}}}}}")).unwrap();
    assert_eq!(ImageProcessor::open(&folder.0).unwrap(), ImageProcessor::clip());
    fs::write(&joined, "{}").unwrap();
    let said = ImageProcessor::open(&folder.0).unwrap_err().to_string();
    assert!(said.contains("\"image_processor\" is missing"), "{said}");
}

#[test]
fn images_that_do_not_fit_are_errors() {
    let says = |processor: &ImageProcessor, images: &[Tensor], part: &str| {
        let said = processor.process(images, device()).unwrap_err().to_string();
        assert!(said.contains(part), "{part}: {said}");
    };
    let clip = ImageProcessor::clip();
    let floats = Tensor::ones((4, 5, 3), DType::F32, device()).unwrap();
    let small = image(&[4, 5, 3], 0);
    says(&clip, &[], "expected at least one image, got none");
    says(&clip, &[small.clone(), floats], "image 1 is f32 of (4, 5, 3)");
    says(&clip, &[image(&[3, 4, 5], 0)], "image 0 is u8 of (3, 4, 5)");
    says(&clip, &[image(&[1, 4, 5, 3], 0)], "image 0 is u8 of (1, 4, 5, 3)");
    says(&clip, &[image(&[0, 5, 3], 0)], "image 0 is u8 of (0, 5, 3)");
    let mut other = ImageProcessor::clip();
    other.crop = None;
    says(
        &other,
        &[small.clone(), image(&[5, 4, 3], 0)],
        "image 0 becomes 224 x 280, but image 1 280",
    );
    for (size, part) in [([0, 3], "become one of 0 x 3"), ([1 << 40, 3], "cannot become")] {
        other.resize = Some((ImageSize::Exact(size), Resample::Bicubic));
        says(&other, std::slice::from_ref(&small), part);
        let said = Resample::Nearest.resize(&small, size).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    }
    other.resize = Some((ImageSize::Exact([1 << 20; 2]), Resample::Bicubic));
    says(&other, std::slice::from_ref(&small), "at most 268435456 pixels");
    other.resize = Some((ImageSize::ShortestEdge(usize::MAX), Resample::Nearest));
    says(&other, std::slice::from_ref(&small), "cannot become");
    other.resize = None;
    other.crop = Some([usize::MAX; 2]);
    says(&other, std::slice::from_ref(&small), "too large");
    let said = Resample::Bicubic.resize(&image(&[4, 5], 0), [2, 2]).unwrap_err().to_string();
    assert!(said.contains("got u8 of (4, 5)"), "{said}");
}

#[test]
fn encoders_of_images_compute_the_states_of_transformers() -> Result<()> {
    for name in ["vision/vit", "vision/vit-sides", "vision/vit-classes"] {
        let want = expected(name);
        for dtype in DTYPES {
            let options = OpenOptions::new().with_dtype(dtype);
            let encoder = ImageEncoder::open_with(golden(name), &options, device())?;
            let close =
                |got: &Tensor, key: &str| assert_near(got, &want[key], &format!("{name} {key}"));
            let pixels = floats(&want["pixel_values"]);
            let states = encoder.model.hidden(&pixels)?;
            assert_eq!(states.dtype(), dtype);
            close(&states, "states");
            let embedded = encoder.embed_images(&images(&want))?;
            assert_eq!(values(&embedded), values(&states.at(1, 0)?), "{name}");
            if want["pooled"].is_null() {
                let said = encoder.model.pooled(&states).unwrap_err().to_string();
                assert!(said.contains("no pooler"), "{said}");
            } else {
                close(&encoder.model.pooled(&states)?, "pooled");
            }
            let Some(head) = &encoder.head else {
                assert!(want["logits"].is_null(), "{name}");
                let said = encoder.classify_images(&images(&want)).unwrap_err().to_string();
                assert!(said.contains("no head for classes of images"), "{said}");
                continue;
            };
            assert_eq!(
                (head.task(), &head.labels[..]),
                (Task::Image, &["cat", "dog", "neither"].map(String::from)[..])
            );
            let logits = encoder.classify_images(&images(&want))?;
            close(&logits, "logits");
            assert_eq!(values(&logits), values(&encoder.logits(&pixels)?));
            let no_images = encoder.classify_images(&[])?;
            assert_eq!(no_images.shape()[..], [0, 3]);
        }
    }
    Ok(())
}

#[test]
fn clip_compares_images_and_texts_as_transformers_does() -> Result<()> {
    for name in ["clip/clip", "clip/clip-old"] {
        let want = expected(name);
        for dtype in DTYPES {
            let options = OpenOptions::new().with_dtype(dtype);
            let clip = Clip::open_with(golden(name), &options, device())?;
            let close =
                |got: &Tensor, key: &str| assert_near(got, &want[key], &format!("{name} {key}"));
            let tokens = integers(&want["input_ids"]);
            let inputs = EncoderInputs::new(&tokens);
            close(&clip.text.hidden(&inputs)?, "text_states");
            let pixels = floats(&want["pixel_values"]);
            close(&clip.vision.hidden(&pixels)?, "image_states");
            let texts = clip.embed_tokens(&inputs)?;
            close(&texts, "text_embeds");
            let embedded = clip.embed_images(&images(&want))?;
            close(&embedded, "image_embeds");
            close(&clip.logits_per_image(&embedded, &texts)?, "logits_per_image");
        }
    }
    Ok(())
}

/// A copy of the golden CLIP with a tokenizer of texts of at most 12 tokens.
fn with_tokenizer(name: &str) -> Folder {
    let folder = Folder::copy(name, &golden("clip/clip"));
    fs::copy(
        golden("../../../text/tests/golden/tokenizers/clip.json"),
        folder.0.join("tokenizer.json"),
    )
    .unwrap();
    let config = r#"{"model_max_length": 77, "pad_token": "<|endoftext|>"}"#;
    fs::write(folder.0.join("tokenizer_config.json"), config).unwrap();
    folder
}

#[test]
fn texts_become_the_embeddings_of_transformers() -> Result<()> {
    let (folder, want) = (with_tokenizer("clip-texts"), expected("clip/clip"));
    let clip = Clip::open(&folder.0, device())?;
    assert_eq!(clip.max_length(), 12);
    let texts: Vec<&str> =
        want["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let long = clip.tokenizer()?.encode_with(texts[2], &Default::default())?;
    assert!(long.len() > 12, "one text is truncated");
    let embedded = clip.embed_texts(&texts)?;
    assert_close(&values(&embedded), &flat(&want["text_embeds"]), 2e-5, &"in one batch");
    let rows = texts.iter().map(|text| clip.embed_texts(&[text])).collect::<Result<Vec<_>>>()?;
    let rows = Tensor::cat(&rows, 0)?;
    assert_close(&values(&rows), &flat(&want["text_embeds"]), 2e-5, &"each alone");
    let none = (clip.embed_texts(&[])?, clip.embed_images(&[])?);
    assert_eq!(
        (none.0.shape()[..].to_vec(), none.1.shape()[..].to_vec()),
        (vec![0, 5], vec![0, 5])
    );
    Ok(())
}

/// With the old rule, padding with a large number is not the end of a text.
#[test]
fn padding_is_not_the_end_of_a_text() -> Result<()> {
    let clip = Clip::open(golden("clip/clip-old"), device())?;
    let row = Tensor::new([[3i32, 4, 20]], device())?;
    let padded = Tensor::new([[3i32, 4, 20, 29, 29]], device())?;
    let mask = Tensor::new([[true, true, true, false, false]], device())?;
    let alone = clip.embed_tokens(&EncoderInputs::new(&row))?;
    let masked = clip.embed_tokens(&EncoderInputs::new(&padded).with_mask(&mask))?;
    assert_close(&values(&masked), &values(&alone), 1e-6, &"masked");
    Ok(())
}

#[test]
fn names_of_other_versions_are_read() -> Result<()> {
    let rename = |of: &str, name: &str, pairs: &[(&str, &str)]| {
        let folder = Folder::copy(name, &golden(of));
        let path = folder.0.join("model.safetensors");
        let file = teeny_formats::SafeTensors::open(&path).unwrap();
        let mut tensors: Vec<(String, Tensor)> = file
            .entries()
            .keys()
            .map(|name| {
                let renamed = pairs.iter().fold(name.clone(), |n, (a, b)| n.replace(a, b));
                (renamed, file.tensor(name, device()).unwrap())
            })
            .collect();
        let ids = Tensor::arange(0, 10, 1, device()).unwrap();
        tensors.push(("vision_model.embeddings.position_ids".to_string(), ids));
        let mut bytes = Vec::new();
        teeny_formats::write(&mut bytes, &tensors, &Default::default()).unwrap();
        fs::write(&path, bytes).unwrap();
        folder
    };
    let folder = rename("clip/clip-old", "clip-names", &[("pre_layrnorm", "pre_layernorm")]);
    let (a, b) = (Clip::open(&folder.0, device())?, Clip::open(golden("clip/clip-old"), device())?);
    let pixels = floats(&expected("clip/clip-old")["pixel_values"]);
    assert_eq!(values(&a.embed_pixels(&pixels)?), values(&b.embed_pixels(&pixels)?));
    let pairs = [
        ("encoder.layer.", "layers."),
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.attention.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
        ("intermediate.dense", "mlp.fc1"),
        ("output.dense", "mlp.fc2"),
    ];
    let folder = rename("vision/vit-classes", "vit-names", &pairs);
    let open = |path: &Path| ImageEncoder::open(path, device());
    let (a, b) = (open(&folder.0)?, open(&golden("vision/vit-classes"))?);
    let pixels = floats(&expected("vision/vit-classes")["pixel_values"]);
    assert_eq!(values(&a.logits(&pixels)?), values(&b.logits(&pixels)?));
    Ok(())
}

#[test]
fn folders_of_images_that_are_damaged_say_what_is_wrong() {
    let check = |of: &str,
                 section: &str,
                 cases: &[(&str, &str, &str)],
                 open: &dyn Fn(&Path) -> Option<String>| {
        let folder = Folder::copy(&format!("damaged-{}", of.replace('/', "-")), &golden(of));
        let config = folder.0.join("config.json");
        let text = fs::read_to_string(&config).unwrap();
        for (key, value, part) in cases {
            let mut all: Value = parse(&text);
            let place = if section.is_empty() { &mut all } else { &mut all[section] };
            place[*key] = parse(value);
            fs::write(&config, all.to_string()).unwrap();
            let said = open(&folder.0).unwrap_or_else(|| panic!("{key} {value} is no error"));
            assert!(said.contains(part), "{part}: {said}");
            assert!(said.contains(&format!("{config:?}")), "the file: {said}");
        }
        fs::write(&config, &text).unwrap();
        fs::remove_file(folder.0.join("model.safetensors")).unwrap();
        assert!(open(&folder.0).unwrap().contains("no weights in the folder"));
    };
    let vit = |path: &Path| ImageEncoder::open(path, device()).err().map(|e| e.to_string());
    let clip = |path: &Path| Clip::open(path, device()).err().map(|e| e.to_string());
    let sizes = [
        ("num_attention_heads", "5", "5 heads do not divide a width of 12"),
        ("num_attention_heads", "0", "0 heads do not divide"),
        ("hidden_size", "0", "do not divide a width of 0"),
        ("hidden_size", "24", "its rule is for 24 rows"),
        ("intermediate_size", "21", "linear1.weight is (20, 12), but should be (21, 12)"),
        ("num_hidden_layers", "3", "layers.2."),
        ("num_hidden_layers", "4000000000", "4000000000 layers, but the weights are"),
        ("image_size", "20", "embeddings.position is ("),
        ("image_size", "4000000000", "1000000000000000001"),
        ("image_size", "1", "images of [1, 1] have no patch of"),
        ("patch_size", "0", "have no patch of [0, 0]"),
        ("patch_size", "4000000000", "have no patch of"),
        ("patch_size", "[1, 2, 3]", "\"patch_size\" is [1,2,3], not a size, or a height and"),
        ("num_channels", "1", "\"num_channels\" is 1"),
        ("hidden_act", "\"snake\"", "\"hidden_act\" is \"snake\""),
    ];
    check("vision/vit", "", &sizes, &vit);
    check("clip/clip-old", "vision_config", &sizes, &clip);
    let whole = [
        ("model_type", "\"clip\"", "no image encoder of model_type \"clip\""),
        ("qkv_bias", "false", "unexpected keys"),
        ("pooler_output_size", "9", "pooler.weight is (7, 12), but should be (9, 12)"),
        ("quantization_config", "{\"quant_method\": \"gptq\"}", "quantization_config"),
    ];
    check("vision/vit", "", &whole, &vit);
    let texts = [
        ("num_attention_heads", "5", "in \"text_config\": 5 heads do not divide"),
        ("vocab_size", "31", "text.embeddings.word.weight is (30, 12), but should be (31, 12)"),
        ("eos_token_id", "[1]", "in \"text_config\": \"eos_token_id\" is [1], not a size"),
    ];
    check("clip/clip-old", "text_config", &texts, &clip);
    let whole = [
        ("projection_dim", "9", "is (8, 12), but should be (9, 12)"),
        ("vision_config", "7", "\"vision_config\" is 7, not an object"),
        // the part of 2022 replaces the other one: its defaults do not fit
        ("text_config_dict", "{\"vocab_size\": 30}", "its rule is for 512 rows"),
        ("vision_config", "null", "its rule is for 768 rows"),
    ];
    check("clip/clip-old", "", &whole, &clip);
    let said = Encoder::open(golden("vision/vit"), device()).err().unwrap().to_string();
    assert!(said.contains("no encoder of model_type \"vit\""), "{said}");
}

#[test]
fn pixels_that_do_not_fit_are_errors() -> Result<()> {
    let encoder = ImageEncoder::open(golden("vision/vit"), device())?;
    let says = |pixels: Tensor, part: &str| {
        let said = encoder.embed(&pixels).unwrap_err().to_string();
        assert!(said.contains(part), "{part}: {said}");
    };
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, device()).unwrap();
    says(zeros(&[1, 3, 12, 13], DType::F32), "must be (B, 3, 12, 12), not (1, 3, 12, 13)");
    says(zeros(&[3, 12, 12], DType::F32), "must be (B, 3, 12, 12), not (3, 12, 12)");
    says(zeros(&[1, 1, 12, 12], DType::F32), "must be (B, 3, 12, 12), not (1, 1, 12, 12)");
    says(zeros(&[1, 3, 12, 12], DType::U8), "pixels are floats, not u8");
    let clip = Clip::open(golden("clip/clip-old"), device())?;
    let said = clip.embed_texts(&["a"]).unwrap_err().to_string();
    assert!(said.contains("tokenizer"), "{said}");
    let tokens = Tensor::full((1, 11), 5, DType::I32, device())?;
    let said = clip.embed_tokens(&EncoderInputs::new(&tokens)).unwrap_err().to_string();
    assert!(said.contains("11 tokens are more than the context of 10"), "{said}");
    // without a processor, pixels can be given
    let folder = Folder::copy("no-processor", &golden("vision/vit"));
    fs::remove_file(folder.0.join("preprocessor_config.json")).unwrap();
    let encoder = ImageEncoder::open(&folder.0, device())?;
    assert_eq!(encoder.embed(&zeros(&[2, 3, 12, 12], DType::F32))?.shape()[..], [2, 12]);
    let said = encoder.embed_images(&[image(&[4, 5, 3], 0)]).unwrap_err().to_string();
    assert!(said.contains("preprocessor_config.json"), "{said}");
    Ok(())
}

#[test]
fn no_configuration_of_images_panics() {
    let mut dice = Dice(54_321);
    let others = r#"0|1|2|-1|3.5|1e30|4294967295|18446744073709551615|null|true|false|""|"relu"
        |[]|[1, 2]|[0, 0, 0]|{}|{"shortest_edge": 2}|{"height": 4294967295, "width": 0}"#;
    let others: Vec<&str> = others.split('|').collect();
    let (mut opened, mut refused) = (0, 0);
    let small = image(&[5, 6, 3], 0);
    for of in ["vision/vit-classes", "clip/clip-old"] {
        let folder = Folder::copy(&format!("config-{}", of.replace('/', "-")), &golden(of));
        let files = ["config.json", "preprocessor_config.json"].map(|name| folder.0.join(name));
        let whole = files.clone().map(|path| parse(&fs::read_to_string(path).unwrap()));
        for i in 0..600 {
            let which = i % 2;
            let mut changed = whole[which].clone();
            for _ in 0..1 + dice.below(2) {
                let mut place = &mut changed;
                loop {
                    let keys: Vec<String> = place.as_object().unwrap().keys().cloned().collect();
                    place = &mut place[&keys[dice.below(keys.len())]];
                    let inner = place.as_object().is_some_and(|inner| !inner.is_empty());
                    if !inner || dice.below(4) == 0 {
                        break;
                    }
                }
                *place = parse(others[dice.below(others.len())]);
            }
            fs::write(&files[which], changed.to_string()).unwrap();
            fs::write(&files[1 - which], whole[1 - which].to_string()).unwrap();
            let images = std::slice::from_ref(&small);
            let result = match of.starts_with("clip") {
                true => Clip::open(&folder.0, device()).and_then(|clip| clip.embed_images(images)),
                false => ImageEncoder::open(&folder.0, device())
                    .and_then(|encoder| encoder.classify_images(images)),
            };
            *(if result.is_ok() { &mut opened } else { &mut refused }) += 1;
        }
    }
    assert!(opened > 200 && refused > 200, "{opened} opened, {refused} refused");
}
