//! Texts with classes and pairs of texts: what is read from files, and what encoders learn of it.

use crate::common::*;
use crate::pretrained_texts::encoder_folder;
use std::fs;
use std::path::Path;
use teeny_core::{DeviceRef, Result, Tensor, random};
use teeny_models::lora::{Lora, LoraOptions};
use teeny_models::{Encoder, LabeledTexts, OpenOptions, Task, TextPairs};
use teeny_nn::data::{DataLoader, Dataset};
use teeny_nn::optim::{AdamW, Optimizer};
use teeny_nn::{Grad, Param};

/// A folder with a small BERT, and how it is opened.
fn folder(name: &str) -> (Folder, OpenOptions) {
    let (folder, mapping, ..) = encoder_folder(name);
    (folder, OpenOptions::new().with_mapping(mapping))
}

fn open(path: &Path, options: &OpenOptions, device: &DeviceRef) -> Result<Encoder> {
    random::with_seed(7, || Encoder::open_with(path, options, device))
}

const REVIEWS: [(&str, &str); 8] = [
    ("the cat sat", "cats"),
    ("a cat on the mat", "cats"),
    ("cat, cat and cat", "cats"),
    ("on a mat sat the cat", "cats"),
    ("the dog sat", "dogs"),
    ("a dog on the mat", "dogs"),
    ("dog, \"dog\" and dog", "dogs"),
    ("on a mat\nsat the dog", "dogs"),
];

/// The texts of [`REVIEWS`] as CSV.
fn csv(header: &str) -> String {
    let rows = REVIEWS
        .iter()
        .map(|(text, label)| format!("\"{}\",{label}\r\n", text.replace('"', "\"\"")));
    header.to_string() + &rows.collect::<String>()
}

#[test]
fn texts_with_classes_are_the_same_from_every_format() -> Result<()> {
    let (folder, options) = folder("labeled");
    let at = |name: &str| folder.0.join(name);
    fs::write(at("a.csv"), csv("\u{feff}text,label\r\n")).unwrap();
    let labels = LabeledTexts::labels(at("a.csv"))?;
    assert_eq!(labels, ["cats", "dogs"]);
    let encoder = open(&folder.0, &options.with_labels(labels), &device())?;
    let (want, report) = LabeledTexts::open(at("a.csv"), &encoder, 20)?;
    let said = report.to_string();
    assert!(said.ends_with("tokens; \"cats\" 4, \"dogs\" 4"), "{said}");
    let line = |(text, label): &(&str, &str)| {
        let text = serde_json::to_string(text).unwrap();
        format!("{{\"label\": \"{label}\", \"id\": 3, \"text\": {text}}}\n")
    };
    fs::write(at("b.jsonl"), REVIEWS.iter().map(line).collect::<String>() + "\n").unwrap();
    fs::write(at("c.csv"), csv("")).unwrap();
    let order = csv("").lines().collect::<Vec<_>>().join("\n");
    fs::write(at("d.tsv"), order.replace("\",", "\"\t")).unwrap();
    let swapped =
        REVIEWS.map(|(text, label)| format!("x,{label},\"{}\"\n", text.replace('"', "\"\"")));
    fs::write(at("e.csv"), format!("id, label,text \n{}", swapped.concat())).unwrap();
    for name in ["b.jsonl", "c.csv", "d.tsv", "e.csv"] {
        let (texts, own) = LabeledTexts::open(at(name), &encoder, 20)?;
        assert_eq!((texts.texts(), &own), (want.texts(), &report), "{name}");
    }
    // what is empty is left out, what is long is cut, what is there twice is said
    let long = "the cat ".repeat(20);
    let more = format!("text,label\n{long},cats\n ,cats\n\na dog,dogs\na dog,dogs\nthe,\n");
    fs::write(at("f.csv"), more).unwrap();
    let (texts, report) = LabeledTexts::open(at("f.csv"), &encoder, 12)?;
    assert_eq!([report.samples, report.duplicates, report.cut, report.left_out], [3, 1, 1, 2]);
    assert_eq!(texts.texts()[0].tokens.len(), 12);
    let tokens: usize = texts.texts().iter().map(|text| text.tokens.len()).sum();
    assert_eq!(report.tokens, tokens);
    let said = report.to_string();
    assert!(said.contains("1 twice") && said.contains("1 texts cut") && said.contains("2 left"));
    // classes may be numbers
    fs::write(
        at("g.jsonl"),
        "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": false}",
    )
    .unwrap();
    assert_eq!(LabeledTexts::labels(at("g.jsonl"))?, ["1", "false"]);

    // batches are what the model takes, and each row has the logits that it has alone
    let batch = want.batch(&[1, 4], 0)?;
    assert_eq!(batch.labels.to_vec::<i32>()?, [0, 1]);
    assert!(batch.texts.mask.is_some());
    let logits = encoder.logits(&batch.texts.inputs())?;
    let alone = encoder.classify_texts(&[REVIEWS[1].0, REVIEWS[4].0])?;
    assert_close(&values(&logits), &values(&alone), 1e-5, &"logits");
    assert!(want.batch(&[8], 0).unwrap_err().to_string().contains("no item 8"));
    let (train, test) = want.clone().split(0.25, 3)?;
    assert_eq!((train.len(), test.len()), (6, 2));
    assert_eq!(want.clone().split(0.25, 3)?.1.texts(), test.texts());
    assert!(want.split(1.0, 3).is_err());
    Ok(())
}

#[test]
fn rows_that_cannot_be_read_are_named_with_their_line() -> Result<()> {
    let (folder, options) = folder("bad-rows");
    let with_labels = options.clone().with_labels(["good", "bad"]);
    let encoder = open(&folder.0, &with_labels, &device())?;
    let error = |name: &str, text: &str| {
        fs::write(folder.0.join(name), text).unwrap();
        let error = LabeledTexts::open(folder.0.join(name), &encoder, 20).err().unwrap();
        let error = without_line(&error);
        assert!(error.contains(name) && error.contains("help: "), "{text:?}: {error}");
        error
    };
    for (name, text, says) in [
        ("a.jsonl", "{\"text\": \"a\", \"label\": \"bad\"}\n{\"text\": 3}", "line 2: no string"),
        ("a.jsonl", "\n{\"text\": \"a\"}", "line 2: no string \"label\""),
        ("a.jsonl", "{\"text\": \"a\", \"label\": null}", "line 1: no string \"label\""),
        ("a.jsonl", "{\"text\": \"a\", \"label\": [1]}", "line 1: no string \"label\""),
        ("a.jsonl", "{\"text\": \"\\ud800\", \"label\": 1}", "in \"text\""),
        ("a.jsonl", "{\"text\": \"a\", \"label\": \"\\udfff\"}", "in \"label\""),
        ("a.jsonl", "[]", "not a JSON object"),
        ("a.csv", "text,label\na,bad\n\"b,good\n", "line 3: a quote is not closed"),
        ("a.csv", "text,label\n\"a\nb\"c,good\n", "line 2: text follows"),
        ("a.csv", "text,label\na,good\na,b,c\n", "line 3: 3 columns, but the first line has 2"),
        ("a.tsv", "text\tlabel\na good\n", "line 2: 1 columns"),
        ("a.csv", "text,class\na,good\n", "line 1: the first line has \"text\", \"class\""),
        ("a.csv", "review\na\n", "the first line has \"review\""),
        ("a.csv", "a,good\nb,fine\n", "line 2: the model has no class \"fine\""),
        ("a.csv", "text,label\n", "nothing to learn in 0 rows"),
        ("a.csv", "", "nothing to learn"),
        ("a.csv", " ,good\n", "nothing to learn in 1 rows"),
        ("a.txt", "a", "not a .jsonl, .csv or .tsv file"),
    ] {
        let error = error(name, text);
        assert!(error.contains(says), "{text:?}: {error}");
    }
    let path = folder.0.join("a.csv");
    fs::write(&path, b"a,good\n\xff,bad\n").unwrap();
    let error = LabeledTexts::labels(&path).unwrap_err().to_string();
    assert!(error.contains("line 2: not UTF-8"), "{error}");
    assert!(LabeledTexts::labels(folder.0.join("none.csv")).is_err());
    fs::write(&path, "a,good\nb,good\n").unwrap();
    let error = LabeledTexts::labels(&path).unwrap_err().to_string();
    assert!(error.contains("all texts are of class \"good\""), "{error}");
    for length in [1, 25] {
        assert!(LabeledTexts::open(&path, &encoder, length).is_err());
    }
    // a model that cannot learn classes
    let plain = open(&folder.0, &options, &device())?;
    let error = LabeledTexts::open(&path, &plain, 20).unwrap_err().to_string();
    assert!(error.contains("no head") && error.contains("with_labels"), "{error}");
    // pairs have other columns
    let pairs = |text: &str| {
        fs::write(&path, text).unwrap();
        TextPairs::open(&path, &plain, 20)
    };
    for (text, says) in [
        ("anchor,negative\na,b\n", "the first line has \"anchor\", \"negative\""),
        ("a\n", "the first line has \"a\""),
        ("a,\n", "nothing to learn"),
    ] {
        let error = pairs(text).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("anchor and positive"), "{error}");
    }
    let (three, report) = pairs("anchor,positive,negative\na,b,c\na,b,\n,b,c\na,b,\n")?;
    assert_eq!([report.samples, report.left_out, report.duplicates], [3, 1, 1]);
    assert!(three.pairs()[0].negative.is_some() && three.pairs()[1].negative.is_none());
    assert_eq!(pairs("a,b,c\n")?.0.pairs(), &three.pairs()[..1]);
    assert!(pairs("a,b\n")?.0.pairs()[0].negative.is_none());
    fs::write(
        folder.0.join("a.jsonl"),
        "{\"anchor\": \"a\", \"positive\": \"b\", \"negative\": \"c\"}\n\
         {\"anchor\": \"a\", \"positive\": \"b\", \"negative\": null}\n\
         {\"anchor\": \"a\", \"positive\": \"b\"}",
    )
    .unwrap();
    let (lines, _) = TextPairs::open(folder.0.join("a.jsonl"), &plain, 20)?;
    assert_eq!(lines.pairs(), three.pairs());
    let batch = lines.batch(&[1, 0, 2], 0)?;
    assert_eq!(batch.negatives.unwrap().tokens.shape()[0], 1);
    assert!(lines.batch(&[1], 0)?.negatives.is_none());
    Ok(())
}

/// Trains `params` by `loss` of each batch of `data`. Returns the loss of the first and of the last
/// epoch.
fn train<D: Dataset>(
    data: D,
    params: Vec<Param>,
    (lr, epochs): (f64, u64),
    loss: impl Fn(&D::Batch) -> Result<Tensor>,
) -> Result<[f64; 2]> {
    let loader = DataLoader::new(data, 8)?.shuffle(2);
    let mut optimizer = AdamW::new(params, lr);
    let (mut first, mut last) = (0.0, 0.0);
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch) {
            let loss = loss(&batch?)?;
            last = values(&loss)[0];
            if epoch == 0 {
                first = last;
            }
            optimizer.step(&loss.backward()?)?;
        }
    }
    Ok([first, last])
}

fn classes(encoder: &Encoder) -> Result<Vec<i32>> {
    let logits = encoder.classify_texts(&REVIEWS.map(|(text, _)| text))?; // (8, 2)
    logits.argmax(1)?.cast(teeny_core::DType::I32)?.to_vec()
}

#[test]
fn a_new_head_for_classes_is_learned_with_adapters_and_saved_with_its_names() -> Result<()> {
    let (folder, options) = folder("classes");
    let path = folder.0.join("reviews.csv");
    fs::write(&path, csv("text,label\n")).unwrap();
    let options = options.with_labels(LabeledTexts::labels(&path)?);
    let encoder = open(&folder.0, &options, &autograd())?;
    let head = encoder.head.as_ref().unwrap();
    assert!(head.task() == Task::Sequence && head.labels == ["cats", "dogs"]);
    let (texts, _) = LabeledTexts::open(&path, &encoder, 20)?;
    let base = || -> Vec<Vec<f64>> {
        let all = encoder.store.all().into_iter();
        let own =
            all.filter(|p| !p.name().starts_with("head.") && !p.name().starts_with("pooler."));
        own.map(|param| values(&param.value())).collect()
    };
    let before = base();
    let adapters = LoraOptions::new().with_rank(4);
    let lora = random::with_seed(5, || Lora::attach(&encoder, adapters))?;
    // the file has no pooler: it is as new as the head
    let saved = &lora.options().modules_to_save;
    assert!(saved.iter().any(|own| own == "pooler") && saved.iter().any(|own| own == "classifier"));
    let [first, last] = train(texts, lora.trainable(), (2e-2, 60), |batch| batch.loss(&encoder))?;
    assert!(first > 0.6 && last < 0.1, "{first} {last}");
    assert_eq!(classes(&encoder)?, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert!(before == base(), "the base is frozen");
    let texts = REVIEWS.map(|(text, _)| text);
    let want = values(&encoder.classify_texts(&texts)?);

    // the adapters fit the base, whose head is drawn again
    lora.save(folder.0.join("adapter"))?;
    let other = random::with_seed(99, || Encoder::open_with(&folder.0, &options, autograd()))?;
    let opened = Lora::open(&other, folder.0.join("adapter"))?;
    assert_close(&values(&other.classify_texts(&texts)?), &want, 1e-5, &"adapters");
    opened.detach()?;

    // the whole model
    lora.merge_into_base()?;
    let saved = folder.0.join("saved");
    encoder.save(&saved)?;
    let config: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(saved.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"], serde_json::json!(["BertForSequenceClassification"]));
    assert_eq!(config["id2label"], serde_json::json!({"0": "cats", "1": "dogs"}));
    assert_eq!(config["label2id"], serde_json::json!({"cats": 0, "dogs": 1}));
    let again = Encoder::open(&saved, device())?;
    assert_close(&values(&again.classify_texts(&texts)?), &want, 1e-4, &"saved");
    assert_eq!(again.head.as_ref().unwrap().labels, ["cats", "dogs"]);
    // with the same classes the head is read, with others it is new
    let same = OpenOptions::new().with_labels(["cats", "dogs"]);
    let same = Encoder::open_with(&saved, &same, device())?;
    assert_close(&values(&same.classify_texts(&texts)?), &want, 1e-4, &"the same classes");
    for labels in [&["dogs", "cats"][..], &["x", "y", "z"]] {
        let other = OpenOptions::new().with_labels(labels.iter().copied());
        let other = open(&saved, &other, &device())?;
        let logits = other.classify_texts(&texts)?;
        assert_eq!(logits.shape()[..], [8, labels.len()]);
        assert!(values(&logits).iter().all(|x| x.abs() < 0.5), "{logits}");
        let pooler =
            |encoder: &Encoder| values(&encoder.store.get("pooler.weight").unwrap().value());
        assert_eq!(pooler(&other), pooler(&again), "the pooler is that of the file");
    }
    Ok(())
}

#[test]
fn pairs_become_nearest_neighbours() -> Result<()> {
    let pairs = [
        ("the cat sat", "a dog"),
        ("on a mat", "and the"),
        ("dog and dog", "cat on cat"),
        ("sat, sat", "the mat and a mat"),
        ("a a a", "dog sat on"),
        ("and on the", "mat"),
    ];
    let (folder, options) = folder("pairs");
    let path = folder.0.join("pairs.tsv");
    let line = |(a, b): &(&str, &str)| format!("{a}\t{b}\n");
    fs::write(&path, pairs.iter().map(line).collect::<String>()).unwrap();
    let encoder = open(&folder.0, &options, &autograd())?;
    let (data, report) = TextPairs::open(&path, &encoder, 20)?;
    assert_eq!((report.samples, data.len()), (6, 6));
    // the losses of a batch equal the losses of its embeddings
    let batch = data.batch(&[0, 1, 2, 3, 4, 5], 0)?;
    let found = || -> Result<usize> {
        let anchors = encoder.embed_texts(&pairs.map(|(a, _)| a))?; // (6, E)
        let positives = encoder.embed_texts(&pairs.map(|(_, b)| b))?;
        let unit = |x: &Tensor| x.div(&x.vector_norm(2.0, 1)?.unsqueeze(1)?);
        let nearest = unit(&anchors)?.matmul(&unit(&positives)?.t()?)?.argmax(1)?;
        let nearest = values(&nearest);
        Ok(nearest.iter().enumerate().filter(|(i, at)| *i == **at as usize).count())
    };
    let before = found()?;
    let lora = random::with_seed(5, || Lora::attach(&encoder, LoraOptions::new().with_rank(4)))?;
    let [first, last] =
        train(data, lora.trainable(), (2e-2, 80), |batch| batch.loss(&encoder, 20.0))?;
    assert!(before < 6 && first > 1.0 && last < 0.3, "{before}: {first} {last}");
    assert_eq!(found()?, 6);
    assert!(values(&batch.loss(&encoder, 20.0)?)[0] < 0.3);
    Ok(())
}
