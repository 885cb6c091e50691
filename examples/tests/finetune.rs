//! `finetune`, then `chat` with what it made, on tiny models with random weights.

use crate::common::*;
use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use teeny_core::{DType, Tensor, file::replace, random};
use teeny_formats::write;

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A random Qwen 3 (rotary positions, norms of queries and keys, grouped queries, RMS norms) with
/// the tokenizer of SmolLM, 343 tokens.
fn model(name: &str, layers: usize, width: usize) -> Folder {
    let folder = Folder::new(name);
    let (heads, kv, head, hidden) = (4, 2, width / 4, 2 * width);
    let device = teeny_nn::device("cpu").unwrap();
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: &[usize]| {
        let value = match shape {
            [n] => Tensor::ones(*n, DType::F32, &device),
            _ => Tensor::randn(shape, DType::F32, &device).and_then(|x| x.mul(0.05)),
        };
        tensors.push((name, value.unwrap()));
    };
    random::with_seed(5, || {
        add("model.embed_tokens.weight".into(), &[343, width]);
        add("model.norm.weight".into(), &[width]);
        for i in 0..layers {
            for (part, shape) in [
                ("input_layernorm", vec![width]),
                ("post_attention_layernorm", vec![width]),
                ("self_attn.q_norm", vec![head]),
                ("self_attn.k_norm", vec![head]),
                ("self_attn.q_proj", vec![heads * head, width]),
                ("self_attn.k_proj", vec![kv * head, width]),
                ("self_attn.v_proj", vec![kv * head, width]),
                ("self_attn.o_proj", vec![width, heads * head]),
                ("mlp.gate_proj", vec![hidden, width]),
                ("mlp.up_proj", vec![hidden, width]),
                ("mlp.down_proj", vec![width, hidden]),
            ] {
                add(format!("model.layers.{i}.{part}.weight"), &shape);
            }
        }
    });
    let path = folder.0.join("model.safetensors");
    replace(&path, |writer| write(writer, &tensors, &Default::default())).unwrap();
    let config = format!(
        r#"{{"model_type": "qwen3", "vocab_size": 343, "hidden_size": {width},
        "intermediate_size": {hidden}, "num_hidden_layers": {layers}, "num_attention_heads": {heads},
        "num_key_value_heads": {kv}, "head_dim": {head}, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": true, "eos_token_id": 342}}"#
    );
    fs::write(folder.at("config.json"), config).unwrap();
    fs::copy(
        golden("../../../text/tests/golden/tokenizers/smollm.json"),
        folder.at("tokenizer.json"),
    )
    .unwrap();
    let tokens = r#"{"eos_token": "<|im_end|>"}"#;
    fs::write(folder.at("tokenizer_config.json"), tokens).unwrap();
    fs::write(folder.at("chat_template.jinja"), TEMPLATE).unwrap();
    folder
}

const ANIMALS: [&str; 10] = ["cat", "dog", "fox", "owl", "bee", "cow", "hen", "pig", "ant", "bat"];
const COLORS: [&str; 5] = ["red", "blue", "grey", "green", "black"];

/// A file of conversations: 200 questions about ten animals, each with its own colour.
fn conversations(folder: &Folder, lines: usize) -> String {
    let line = |i: usize| {
        let (animal, color) = (ANIMALS[i % 10], COLORS[(i % 10) % 5]);
        let question = ["what color is the", "the color of the", "tell me of the", "how looks the"]
            [(i / 10) % 4];
        format!(
            r#"{{"messages": [{{"role": "user", "content": "{question} {animal}"}},
            {{"role": "assistant", "content": "the {animal} is {color}"}}]}}"#
        )
        .replace('\n', " ")
    };
    let path = folder.at("chats.jsonl");
    fs::write(&path, (0..lines).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    path
}

fn finetune(folder: &Folder, more: &[&str]) -> Output {
    let path = folder.at("");
    let args = [&["--model", &path, "--device", "cpu", "--threads", "2"], more].concat();
    command(env!("CARGO_BIN_EXE_finetune"), &args).output().unwrap()
}

/// The answer of `chat`.
fn answer(model: &str, more: &[&str], question: &str) -> String {
    let args =
        [&["--model", model, "--temperature", "0", "--tokens", "20", "--device", "cpu"], more];
    let mut child = command(env!("CARGO_BIN_EXE_chat"), &args.concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{question}\n").as_bytes()).unwrap();
    let text = succeed(child.wait_with_output().unwrap());
    let answer = text.split(question).nth(1).unwrap_or_default();
    answer.split('[').next().unwrap().trim().to_string()
}

#[test]
fn a_model_trained_from_nothing_answers_what_it_has_learned() {
    let folder = model("from-nothing", 4, 48);
    let data = conversations(&folder, 200);
    let out = folder.at("trained");
    let text = succeed(finetune(
        &folder,
        &[
            "--data",
            &data,
            "--full",
            "--output",
            &out,
            "--epochs",
            "12",
            "--batch",
            "10",
            "--lr",
            "3e-3",
            "--held-out",
            "0",
            "--report",
            "60",
            "--prompt",
            "what color is the owl",
        ],
    ));
    assert!(text.contains("200 texts") && text.contains("160 twice in the file"), "{text}");
    assert!(text.contains("parameters are trained"), "{text}");
    assert!(number_after(&text, "loss ") < 0.05, "{text}");
    assert!(text.contains("what color is the owl -> the owl is green"), "{text}");
    assert_eq!(answer(&out, &[], "what color is the cat"), "the cat is red");
    assert_eq!(answer(&out, &[], "tell me of the bee"), "the bee is black");
}

#[test]
fn an_adapter_is_trained_continued_after_a_stop_and_used() {
    let folder = model("adapter", 2, 32);
    let data = conversations(&folder, 40);
    let args = |out: &str| {
        let (out, log) = (folder.at(out), folder.at(&format!("{out}.csv")));
        [
            "--data",
            &data,
            "--output",
            &out,
            "--epochs",
            "6",
            "--batch",
            "4",
            "--lr",
            "1e-2",
            "--dropout",
            "0.1",
            "--held-out",
            "0.1",
            "--report",
            "9",
            "--log",
            &log,
        ]
        .map(str::to_string)
    };
    let run = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        succeed(finetune(&folder, &args))
    };
    let text = run(&args("whole"));
    assert!(text.contains("14 adapters of rank 8"), "{text}");
    assert!(text.contains("4 held out") && text.contains("held-out loss"), "{text}");
    let adapter =
        |of: &str| fs::read(folder.at(&format!("{of}/adapter_model.safetensors"))).unwrap();

    // Ctrl-C somewhere in the run, or a kill after the first report; then --resume: the same losses
    // and the same adapter, to the bit
    let losses = |of: &str| fs::read_to_string(folder.at(&format!("{of}.csv"))).unwrap();
    for (signal, lines) in [("-INT", 3), ("-KILL", 14)] {
        let parts = format!("parts{signal}");
        let checkpoint = folder.at(&format!("{parts}.safetensors"));
        let resumed = [args(&parts).to_vec(), vec!["--resume".into(), checkpoint]].concat();
        let path = folder.at("");
        let mut child = command(
            env!("CARGO_BIN_EXE_finetune"),
            &["--model", &path, "--device", "cpu", "--threads", "2"],
        )
        .args(&resumed)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        let (start, log) = (Instant::now(), folder.at(&format!("{parts}.csv")));
        while fs::read_to_string(&log).map_or(0, |text| text.lines().count()) < lines
            && start.elapsed() < Duration::from_secs(60)
            && child.try_wait().unwrap().is_none()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let id = child.id().to_string();
        let _ = std::process::Command::new("kill").args([signal, &id]).status();
        let output = child.wait_with_output().unwrap();
        let first = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() || signal == "-KILL", "{first}");
        let text = run(&resumed);
        if first.contains("stopped") {
            assert!(first.contains("--resume") && text.contains("resumed"), "{first} {text}");
        }
        assert_eq!(adapter("whole"), adapter(&parts), "{signal}");
        assert_eq!(losses("whole"), losses(&parts), "{signal}");
    }

    let (model, out) = (folder.at(""), folder.at("whole"));
    let question = "what color is the dog";
    let with = answer(&model, &["--adapter", &out], question);
    assert_ne!(with, answer(&model, &[], question));
    // an adapter goes on from where it was
    let epoch = |more: &[&str]| {
        let out = folder.at("more");
        let args = ["--data", &data, "--epochs", "1", "--lr", "1e-9", "--output", &out];
        number_after(&succeed(finetune(&folder, &[&args, more].concat())), "  loss ")
    };
    assert!(epoch(&["--adapter", &out]) < epoch(&[]) - 0.5);
    // the base may be quantised
    let quantised = succeed(finetune(
        &folder,
        &["--data", &data, "--quantize", "q8_0", "--epochs", "1", "--output", &folder.at("q8")],
    ));
    assert!(quantised.contains("saved"), "{quantised}");
    answer(&model, &["--adapter", &folder.at("q8"), "--quantize", "q8_0"], question);
}

#[test]
fn what_cannot_work_is_said_before_it_costs_anything() {
    let folder = model("refused", 1, 32);
    let data = conversations(&folder, 12);
    let error = |more: &[&str]| {
        let out = folder.at("refused");
        let output = finetune(&folder, &[&["--output", &out], more].concat());
        assert!(!output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stdout));
        refuse(output)
    };
    assert!(error(&[]).contains("--data FILE"));
    assert!(error(&["--data", &folder.at("none.jsonl")]).contains("none.jsonl"));
    fs::write(folder.at("bad.jsonl"), "{\"txt\": 1}").unwrap();
    let bad = error(&["--data", &folder.at("bad.jsonl")]);
    assert!(bad.contains("bad.jsonl, line 1") && bad.contains("\"messages\""), "{bad}");
    let target = error(&["--data", &data, "--targets", "q_prj"]);
    assert!(target.contains("q_prj") && target.contains("q_proj"), "{target}");
    let quantised = error(&["--data", &data, "--full", "--quantize", "q8_0"]);
    assert!(quantised.contains("not trained"), "{quantised}");
    let memory = error(&["--data", &data, "--memory", "0.1MB"]);
    assert!(memory.contains("limit") && memory.contains("--memory"), "{memory}");
    assert!(error(&["--data", &data, "--memory", "much"]).contains("4GB"));
    let nan =
        error(&["--data", &data, "--lr", "1e30", "--epochs", "9", "--output", &folder.at("nan")]);
    assert!(nan.contains("loss") && nan.contains("NaN"), "{nan}");
    fs::write(folder.at("file"), "").unwrap();
    let full = error(&["--data", &data, "--output", &folder.at("file"), "--epochs", "1"]);
    assert!(full.contains("file"), "{full}");
    // an adapter of another model
    let small = succeed(finetune(
        &folder,
        &["--data", &data, "--epochs", "1", "--output", &folder.at("small")],
    ));
    assert!(small.contains("saved"), "{small}");
    let other = model("other-base", 2, 48);
    let (path, adapter) = (other.at(""), folder.at("small"));
    let args = ["--model", &path, "--adapter", &adapter, "--prompt", "a", "--device", "cpu"];
    let error = refuse(command(env!("CARGO_BIN_EXE_generate"), &args).output().unwrap());
    assert!(error.contains("lora_A") || error.contains("q_proj"), "{error}");
}

#[test]
fn steps_are_divided_to_fit_into_the_memory() {
    let folder = model("memory", 4, 48);
    let data = conversations(&folder, 40);
    let run = |more: &[&str]| {
        let args = [
            &[
                "--data",
                &data,
                "--epochs",
                "0.5",
                "--batch",
                "20",
                "--output",
                &folder.at("memory"),
            ],
            more,
        ];
        succeed(finetune(&folder, &args.concat()))
    };
    let free = run(&[]);
    let most = number_after(&free, "longest texts, ");
    assert!(free.contains("20 texts (20 at a time"), "{free}");
    let limit = format!("{}MB", (most * 1000.0 * 0.5) as usize);
    let limited = run(&["--memory", &limit]);
    assert!(limited.contains("computed again") || !limited.contains("(20 at a time"), "{limited}");
    assert!(number_after(&limited, "longest texts, ") <= most * 0.5 + 0.01, "{free} {limited}");
    // the same losses up to the order of sums
    let [a, b] = [&free, &limited].map(|text| number_after(text, "held-out loss "));
    assert!((a - b).abs() < 1e-3, "{a} {b}");
}

/// A golden BERT.
fn bert(name: &str) -> Folder {
    encoder(name, "bert", ["a", "cat", "dog", "sat", "ran", "the"])
}

#[test]
fn an_encoder_learns_classes_that_classify_then_names() {
    let folder = bert("classes");
    let row = |i: usize| {
        let (animal, verb) = (["cat", "dog"][i % 2], ["sat", "ran"][i / 2 % 2]);
        format!("the {animal} {verb},{}", ["feline", "canine"][i % 2])
    };
    let rows: Vec<String> = (0..16).map(row).collect();
    fs::write(folder.at("data.csv"), format!("text,label\n{}\n", rows.join("\n"))).unwrap();
    let (data, out) = (folder.at("data.csv"), folder.at("out"));
    let text = succeed(finetune(
        &folder,
        &[
            "--data",
            &data,
            "--task",
            "classes",
            "--output",
            &out,
            "--epochs",
            "20",
            "--batch",
            "8",
            "--lr",
            "1e-2",
            "--held-out",
            "0.2",
            "--prompt",
            "a dog sat",
        ],
    ));
    assert!(text.contains("a dog sat -> canine"), "{text}");
    assert!(number_after(&text, "held-out loss ") < 0.1, "{text}");
    fs::write(folder.at("lines.txt"), "a cat\na dog\n").unwrap();
    let args = ["--model", &out, &folder.at("lines.txt"), "--device", "cpu"];
    let named = succeed(command(env!("CARGO_BIN_EXE_classify"), &args).output().unwrap());
    assert!(named.contains("feline") && named.contains("canine"), "{named}");
    let pairs = refuse(finetune(&folder, &["--data", &data, "--task", "pairs"]));
    assert!(pairs.contains("\"text\", \"label\"") && pairs.contains("anchor"), "{pairs}");
    fs::write(folder.at("one.csv"), "text,label\na cat,feline\nthe cat,feline\n").unwrap();
    let one = ["--data", &folder.at("one.csv"), "--task", "classes", "--output", &folder.at("one")];
    let error = refuse(finetune(&folder, &one));
    assert!(error.contains("class") && error.contains("feline"), "{error}");
}

#[test]
fn an_encoder_learns_which_texts_belong_together() {
    let folder = bert("pairs");
    let pairs =
        [("the cat", "a cat sat"), ("the dog", "a dog ran"), ("sat", "a sat"), ("ran", "the ran")];
    let lines: Vec<String> = (0..12)
        .map(|i| {
            let (anchor, positive) = pairs[i % 4];
            format!("{{\"anchor\": \"{anchor}\", \"positive\": \"{positive}\"}}")
        })
        .collect();
    fs::write(folder.at("data.jsonl"), lines.join("\n")).unwrap();
    let (data, out) = (folder.at("data.jsonl"), folder.at("out"));
    let text = succeed(finetune(
        &folder,
        &[
            "--data",
            &data,
            "--task",
            "pairs",
            "--output",
            &out,
            "--epochs",
            "30",
            "--batch",
            "4",
            "--lr",
            "1e-2",
            "--held-out",
            "0",
            "--report",
            "30",
        ],
    ));
    let first = text.lines().find(|line| line.starts_with("epoch")).unwrap();
    assert!(number_after(&text, "  loss ") < number_after(first, "  loss "), "{text}");
    let file = folder.at("lines.txt");
    fs::write(&file, "a dog ran\na cat sat\n").unwrap();
    let args = ["--model", &out, &file, "--query", "the cat", "--device", "cpu"];
    let ranked = succeed(command(env!("CARGO_BIN_EXE_embed"), &args).output().unwrap());
    let at = |text: &str| ranked.find(text).unwrap_or_else(|| panic!("no {text} in {ranked}"));
    assert!(at("a cat sat") < at("a dog ran"), "{ranked}");
}
