//! Makemore: known losses on names.txt, the sizes of the models, and runs of the program.

use crate::common::*;
use examples::makemore::bigrams::Bigrams;
use examples::makemore::{Arch, Examples, Model};
use std::path::Path;
use std::process::Output;
use teeny_autograd::{Autograd, Grad, no_grad};
use teeny_core::{DType, Key, Reference, Result, Tensor, random};
use teeny_nn::Store;
use teeny_nn::device::device;
use teeny_nn::loss::Reduction;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_text::names::{self, Names};

fn makemore(args: &[&str]) -> Output {
    command(env!("CARGO_BIN_EXE_makemore"), args).output().unwrap()
}

/// The folder that has names.txt, itself or in `text/`: `TEENY_DATA`, or `shared/datasets` beside
/// the repository. If it is missing, prints that the test is skipped and returns `None`.
fn data() -> Option<String> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/datasets").to_string();
    let found = std::env::var("TEENY_DATA").into_iter().chain([beside]).find(|dir| {
        let dir = Path::new(dir);
        dir.join("names.txt").is_file() || dir.join("text/names.txt").is_file()
    });
    if found.is_none() {
        eprintln!("SKIPPED: names.txt is missing; set TEENY_DATA to the folder that has it");
    }
    found
}

fn real_names() -> Option<Names> {
    let dir = data()?;
    let text = std::fs::read_to_string(Path::new(&dir).join("text/names.txt"))
        .or_else(|_| std::fs::read_to_string(Path::new(&dir).join("names.txt")));
    Some(Names::parse(&text.unwrap()).unwrap())
}

#[test]
fn counting_pairs_gives_the_known_likelihoods() {
    let Some(names) = real_names() else { return };
    let pairs = Bigrams::of(&names, 27, &device("cpu").unwrap()).unwrap();
    assert_eq!((names.len(), names.longest(), pairs.total()), (32_033, 15, 228_146.0));
    let count = |a: char, b: char| {
        let [a, b] = [a, b].map(|c| names.tokenizer().token(c).unwrap() as isize);
        pairs.counts.at(0, a).unwrap().at(0, b).unwrap().item::<f32>().unwrap()
    };
    assert_eq!((count('.', 'a'), count('n', '.')), (4410.0, 6763.0));
    assert_eq!(pairs.counts.max_all().unwrap().item::<f32>().unwrap(), 6763.0);
    for (smooth, wanted) in
        [(0.0, 2.4540144892), (1.0, 2.4545768201), (5.0, 2.4576826792), (1e15, 27f64.ln())]
    {
        let loss = pairs.loss(&pairs, smooth);
        assert!((loss - wanted).abs() < 1e-9, "{smooth}: {loss} {wanted}");
    }
}

#[test]
fn the_bigram_network_follows_the_known_curve() {
    let Some(names) = real_names() else { return };
    let wanted = [
        (0, 3.295836866),
        (1, 3.050877211),
        (10, 2.605127778),
        (50, 2.487806350),
        (99, 2.470475585),
        (199, 2.461736416),
        (499, 2.456810812),
    ];
    for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F64, 1e-9)] {
        let store = Store::with_dtype(Autograd::new(device("cpu").unwrap()), dtype);
        let _model = Model::new(&store, Arch::Bigram, 27, 16).unwrap();
        let pairs = Bigrams::of(&names, 27, store.device()).unwrap();
        let mut sgd = Sgd::new(store.trainable(), 50.0);
        for step in 0..500 {
            let loss = pairs.loss_of(&store.get("logits.weight").unwrap().value()).unwrap(); // ()
            if let Some((_, wanted)) = wanted.iter().find(|(k, _)| *k == step) {
                let loss = loss.cast(DType::F64).unwrap().item::<f64>().unwrap();
                assert!((loss - wanted).abs() < tolerance, "{dtype} step {step}: {loss} {wanted}");
            }
            sgd.step(&loss.backward().unwrap()).unwrap();
        }
    }
}

#[test]
fn the_loss_of_the_table_is_that_of_the_model_on_every_pair() {
    let names = Names::parse(names::BUILTIN).unwrap();
    let store = Store::with_dtype(device("cpu").unwrap(), DType::F64);
    let model = Model::new(&store, Arch::Bigram, 27, 16).unwrap();
    let w = Tensor::randn((27, 27), DType::F64, store.device()).unwrap(); // (27, 27)
    store.get("logits.weight").unwrap().set(&w).unwrap();
    let (x, y) = names.windows(1, store.device()).unwrap(); // (N, 1), (N)
    let one_by_one = model.loss(&x, &y, Reduction::Mean).unwrap().item::<f64>().unwrap();
    let at_once = Bigrams::of(&names, 27, store.device())
        .unwrap()
        .loss_of(&w)
        .unwrap()
        .item::<f64>()
        .unwrap();
    assert!((one_by_one - at_once).abs() < 1e-6, "{one_by_one} {at_once}");
}

#[test]
fn ten_generated_names_have_an_end() {
    for arch in ["count", "bigram"] {
        let text = succeed(makemore(&["--data", "builtin", "--arch", arch, "--samples", "10"]));
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .filter(|line| !line.starts_with("help: "))
            .collect();
        assert!(
            names.len() == 10
                && names.iter().all(|name| name.ends_with('.') && !name.ends_with("..")),
            "{text}"
        );
        assert!(text.contains("10 generated: "), "{text}");
    }
}

#[test]
fn models_have_the_known_numbers_of_parameters() {
    let counts = [
        (Arch::Bigram, 729),
        (Arch::Mlp, 11_897),
        (Arch::MlpBn, 12_097),
        (Arch::Deep, 47_024),
        (Arch::WavenetSmall, 22_397),
        (Arch::Wavenet, 76_579),
        (Arch::Bow, 12_827),
        (Arch::Mlp16, 69_147),
        (Arch::Rnn, 11_803),
        (Arch::Gru, 28_315),
        (Arch::Lstm, 36_571),
        (Arch::Transformer, 204_544),
    ];
    assert_eq!(counts.len(), Arch::ALL.len());
    for (arch, wanted) in counts {
        let store = Store::new(device("cpu").unwrap());
        let model = Model::new(&store, arch, 27, 16).unwrap();
        assert_eq!(store.count(), wanted, "{arch:?}");
        // (2, context)
        let x = Tensor::zeros((2, model.context), DType::I32, store.device()).unwrap();
        let wanted: &[usize] = if arch.window().is_some() { &[2, 27] } else { &[2, 16, 27] };
        assert_eq!(model.logits(&x).unwrap().shape()[..], *wanted, "{arch:?}");
    }
}

#[test]
fn sequence_models_do_not_see_what_comes_later() {
    let store = Store::new(device("cpu").unwrap());
    for (i, (name, arch)) in
        Arch::ALL.iter().filter(|(_, arch)| arch.window().is_none()).enumerate()
    {
        let store = Store::new(store.device());
        let model = random::with_seed(i as u64, || Model::new(&store, *arch, 27, 16)).unwrap();
        store.set_training(false); // drops nothing
        let scores = |last: i32| {
            let mut row = vec![0, 5, 13, 13, 1, 3, 8];
            row.push(last);
            let x = Tensor::from_vec(row, (1, 8), store.device()).unwrap(); // (1, 8)
            model.logits(&x).unwrap().at(0, 0).unwrap() // (8, 27)
        };
        let (a, b) = (scores(9), scores(20));
        let difference = |t: isize| {
            a.at(0, t)
                .unwrap()
                .sub(b.at(0, t).unwrap())
                .unwrap()
                .abs()
                .unwrap()
                .max_all()
                .unwrap()
                .item::<f32>()
                .unwrap()
        };
        assert!((0..7).all(|t| difference(t) == 0.0) && difference(7) > 1e-4, "{name}");
        // and the first character changes the prediction at the end
        let start = |first: i32| {
            // (1, 5)
            let x = Tensor::from_vec(vec![0, first, 13, 13, 1], (1, 5), store.device()).unwrap();
            model.logits(&x).unwrap().at(1, -1).unwrap().to_vec::<f32>().unwrap()
        };
        assert_ne!(start(5), start(1), "{name}");
    }
}

#[test]
fn manual_backprop_equals_autograd() -> Result<()> {
    let store = Store::with_dtype(Autograd::new(Reference::new()), DType::F64);
    let model = random::with_seed(5, || Model::new(&store, Arch::MlpBn, 27, 16))?;
    let names = Names::parse(names::BUILTIN)?;
    let examples = Examples::of(&names, &model, store.device())?;
    let (x, y) = random::with_seed(6, || examples.draw(32))?; // (32, 3), (32, 1)
    // larger weights, so that no gradient is small
    let draw = |shape: &[usize], draw: u64| {
        Tensor::random(
            teeny_core::Distribution::Normal { mean: 0.0, std: 0.3 },
            shape,
            DType::F64,
            Key { seed: 9, draw },
            &x,
        )
    };
    for (i, param) in store.trainable().into_iter().enumerate() {
        let shift = draw(param.value().shape(), i as u64)?;
        param.set(&param.value().add(shift)?)?;
    }
    let grads = model.loss(&x, &y, Reduction::Mean)?.backward()?;

    let by_hand = no_grad(|| -> Result<Vec<(&str, Tensor)>> {
        let value = |name: &str| -> Result<Tensor> { store.get(name)?.value().detach() };
        let (c, w1, gain, bias, w2, b2) = (
            value("wte.weight")?,
            value("fc1.weight")?,
            value("bn1.weight")?,
            value("bn1.bias")?,
            value("fc2.weight")?,
            value("fc2.bias")?,
        );
        let n = 32.0;
        let embedded = c.index_select(0, &x)?.reshape((32, 30))?; // (32, 30)
        let before = embedded.matmul(&w1.t()?)?; // (32, 200)
        let centred = before.sub(before.mean_keepdim(0)?)?; // (32, 200)
        let inverse = centred.square()?.mean_keepdim(0)?.add(1e-5)?.rsqrt()?; // (1, 200)
        let normed = centred.mul(&inverse)?; // (32, 200)
        let h = normed.mul(&gain)?.add(&bias)?.tanh()?; // (32, 200)
        let logits = h.matmul(&w2.t()?)?.add(&b2)?; // (32, 27)

        // (32, 27)
        let d_logits = logits.softmax(1)?.sub(y.reshape(-1)?.one_hot(27, DType::F64)?)?.div(n)?;
        let d_w2 = d_logits.t()?.matmul(&h)?; // (27, 200)
        let d_b2 = d_logits.sum(0)?; // (27)
        let d_pre = d_logits.matmul(&w2)?.mul(h.square()?.neg()?.add(1.0)?)?; // (32, 200)
        let d_gain = d_pre.mul(&normed)?.sum(0)?; // (200)
        let d_bias = d_pre.sum(0)?; // (200)
        let centre = d_bias.add(normed.mul(&d_gain)?)?.div(n)?; // (32, 200)
        let d_before = d_pre.sub(centre)?.mul(&inverse)?.mul(&gain)?; // (32, 200)
        let d_w1 = d_before.t()?.matmul(&embedded)?; // (200, 30)
        let d_rows = d_before.matmul(&w1)?.reshape((96, 10))?; // (96, 10)
        let index = x.reshape((96, 1))?.expand((96, 10))?; // (96, 10)
        let d_c = c.zeros_like()?.scatter_add(0, &index, &d_rows)?; // (27, 10)
        Ok(vec![
            ("wte.weight", d_c),
            ("fc1.weight", d_w1),
            ("bn1.weight", d_gain),
            ("bn1.bias", d_bias),
            ("fc2.weight", d_w2),
            ("fc2.bias", d_b2),
        ])
    })?;
    assert_eq!(by_hand.len(), store.trainable().len());
    for (name, by_hand) in by_hand {
        let grad = grads.get(&store.get(name)?.value())?.to_vec::<f64>()?;
        let (mut worst, mut largest) = (0f64, 0f64);
        for (a, b) in grad.iter().zip(by_hand.to_vec::<f64>()?) {
            (worst, largest) = (worst.max((a - b).abs()), largest.max(b.abs()));
        }
        assert!(
            worst < 1e-8 && largest > 1e-4,
            "{name} differs by {worst}, its largest gradient is {largest}"
        );
    }
    Ok(())
}

#[test]
fn the_plain_network_starts_certain_and_wrong_and_careful_first_values_cure_it() {
    let first = |arch: &str| {
        number_after(
            &succeed(makemore(&[
                "--data",
                "builtin",
                "--arch",
                arch,
                "--steps",
                "1",
                "--samples",
                "1",
            ])),
            "(first ",
        )
    };
    assert!(first("mlp") > 15.0);
    for arch in ["mlp_bn", "deep", "wavenet"] {
        assert!((first(arch) - 27f64.ln()).abs() < 0.1, "{arch}");
    }
}

#[test]
fn the_loss_of_every_model_falls() {
    for (name, arch) in Arch::ALL {
        let steps = if arch == Arch::Transformer { "40" } else { "60" };
        let text = succeed(makemore(&[
            "--data",
            "builtin",
            "--arch",
            name,
            "--steps",
            steps,
            "--samples",
            "2",
        ]));
        let last = text.lines().rfind(|line| line.starts_with("step ")).unwrap();
        let (first, last) = (number_after(last, "(first "), number_after(last, "loss "));
        assert!(last < 0.97 * first, "{name}: {first} to {last}");
        assert!(text.lines().last().unwrap().starts_with("dev loss "), "{text}");
    }
}

#[test]
fn every_model_beats_counted_pairs() {
    let Some(data) = data() else { return };
    for (name, arch) in Arch::ALL.into_iter().filter(|(_, arch)| *arch != Arch::Bigram) {
        let steps = match arch {
            Arch::Mlp => "15000",
            Arch::MlpBn | Arch::Deep => "2000",
            Arch::WavenetSmall | Arch::Wavenet => "600",
            _ => "150",
        };
        let text = succeed(makemore(&[
            "--data",
            &data,
            "--arch",
            name,
            "--steps",
            steps,
            "--samples",
            "1",
        ]));
        let (dev, counted) =
            (number_after(&text, "dev loss "), number_after(&text, "counting pairs: dev "));
        assert!((counted - 2.457).abs() < 1e-3 && dev < counted - 0.01, "{name}: {dev} {counted}");
    }
}

#[test]
fn weights_that_are_kept_make_up_the_same_names() {
    let folder = Folder::new("makemore");
    let (weights, checkpoint) = (folder.at("gru.safetensors"), folder.at("gru.checkpoint"));
    let shared =
        ["--data", "builtin", "--arch", "gru", "--steps", "30", "--samples", "3", "--seed", "4"];
    let made = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with("  ") || line.starts_with("dev"))
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    let trained =
        succeed(makemore(&[&shared[..], &["--save", &weights, "--resume", &checkpoint]].concat()));
    let loaded = succeed(makemore(&[&shared[..], &["--load", &weights, "--sample-only"]].concat()));
    assert_eq!(made(&loaded), made(&trained));
    assert!(trained.contains("trained 30 steps") && !loaded.contains("trained"), "{loaded}");
    // no steps are left
    let resumed = succeed(makemore(&[&shared[..], &["--resume", &checkpoint]].concat()));
    assert_eq!(made(&resumed), made(&trained));
    assert!(resumed.contains("resumed") && !resumed.contains("trained"), "{resumed}");
    // the most likely name does not depend on the seed
    let best = |seed: &str| {
        made(&succeed(makemore(&[
            "--data",
            "builtin",
            "--arch",
            "gru",
            "--load",
            &weights,
            "--sample-only",
            "--top-k",
            "1",
            "--samples",
            "1",
            "--seed",
            seed,
        ])))
    };
    assert_eq!(best("1"), best("2"));
}

#[test]
fn a_resumed_run_continues_where_it_was() {
    let folder = Folder::new("makemore-resume");
    let run = |name: &str, steps: &str, checkpoint: &[&str]| {
        let log = folder.at(&format!("{name}.csv"));
        succeed(makemore(
            &[
                &["--data", "builtin", "--arch", "bigram", "--steps", steps, "--log", &log],
                checkpoint,
            ]
            .concat(),
        ));
        std::fs::read_to_string(log).unwrap()
    };
    let checkpoint = folder.at("bigram.checkpoint");
    let whole = run("whole", "40", &[]);
    assert!(whole.starts_with(&run("parts", "20", &["--resume", &checkpoint])));
    assert_eq!(run("parts", "40", &["--resume", &checkpoint]), whole);
}

#[test]
fn mistakes_on_the_command_line_are_explained() {
    let text = refuse(makemore(&["--arch", "resnet"]));
    assert!(
        text.contains(
            "--arch is count or one of bigram mlp mlp_bn deep wavenet_small wavenet \
             bow mlp16 rnn gru lstm transformer, not resnet"
        ),
        "{text}"
    );
    let folder = Folder::new("makemore-data");
    let file = folder.at("list.txt");
    std::fs::write(&file, "emma\nst. john\n").unwrap();
    let text = refuse(makemore(&["--data", &file]));
    assert!(text.contains("line 2 is \"st. john\""), "{text}");
    let text = refuse(makemore(&["--data", "builtin", "--arch", "rnn", "--load", "/no/such/file"]));
    assert!(text.starts_with("error: load \"/no/such/file\" at "), "{text}");
}

#[cfg(feature = "wgpu")]
#[test]
fn the_losses_on_the_gpu_are_those_on_the_cpu() {
    let folder = Folder::new("makemore-wgpu");
    for arch in ["mlp", "mlp_bn", "wavenet", "bow", "gru", "lstm", "transformer"] {
        let losses = |device: &str| -> Vec<f64> {
            let log = folder.at(&format!("{arch}-{device}.csv"));
            succeed(makemore(&[
                "--data",
                "builtin",
                "--arch",
                arch,
                "--steps",
                "4",
                "--samples",
                "1",
                "--device",
                device,
                "--log",
                &log,
            ]));
            let text = std::fs::read_to_string(log).unwrap();
            text.lines()
                .skip(1)
                .map(|line| line.split(',').nth(1).unwrap().parse().unwrap())
                .collect()
        };
        let (cpu, gpu) = (losses("cpu"), losses("wgpu"));
        assert_eq!((cpu.len(), gpu.len()), (4, 4));
        for (a, b) in cpu.iter().zip(&gpu) {
            assert!((a - b).abs() < 1e-3 * a.max(1.0), "{arch}: {cpu:?} {gpu:?}");
        }
    }
}

/// Architectures of all kinds: a constant of all pairs, statistics of batches, recurrence, dropout.
#[test]
fn captured_steps_have_the_losses_of_eager_ones() {
    let folder = Folder::new("makemore-captured");
    for arch in ["bigram", "mlp_bn", "gru", "transformer"] {
        let losses = |more: &[&str]| {
            let log = folder.at("log.csv");
            let options = ["--device", "cpu", "--data", "builtin", "--arch", arch, "--steps", "6"];
            succeed(makemore(&[&options[..], &["--samples", "1", "--log", &log], more].concat()));
            std::fs::read_to_string(log).unwrap()
        };
        let eager = losses(&[]);
        assert_eq!(eager.lines().count(), 7, "{eager}");
        for more in ["--lazy", "--captured"] {
            assert_eq!(losses(&[more]), eager, "{arch} {more}");
        }
    }
}
