//! The memory that writing a GGUF file takes.

use crate::common::device;
use std::fs;
use teeny_core::{DType, Tensor};
use teeny_formats::gguf::{WriteOptions, save};
use teeny_models::GgufModel;

/// A model of a folder becomes a file without being in memory: the matrices of one layer are.
#[test]
fn a_folder_is_written_one_tensor_at_a_time() {
    let folder = std::env::temp_dir().join(format!("teeny-one-tensor-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    // the reference device takes much memory for some operations
    let device = device();
    let width = 256;
    let matrix = Tensor::ones((width, width), DType::F32, &device).unwrap();
    let vector = matrix.at(0, 0).unwrap().contiguous().unwrap();
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_string(), matrix.clone()),
        ("model.norm.weight".to_string(), vector.clone()),
    ];
    let layers = 12;
    for i in 0..layers {
        let attention = ["q", "k", "v", "o"].map(|name| format!("self_attn.{name}_proj"));
        let mlp = ["gate", "up", "down"].map(|name| format!("mlp.{name}_proj"));
        for (names, value) in [
            (attention.to_vec(), &matrix),
            (mlp.to_vec(), &matrix),
            (vec!["input_layernorm".into(), "post_attention_layernorm".into()], &vector),
        ] {
            tensors.extend(
                names
                    .into_iter()
                    .map(|name| (format!("model.layers.{i}.{name}.weight"), value.clone())),
            );
        }
    }
    let config = format!(
        r#"{{"model_type": "llama", "hidden_size": {width}, "intermediate_size": {width},
            "vocab_size": {width}, "num_hidden_layers": {layers}, "num_attention_heads": 4,
            "tie_word_embeddings": true}}"#
    );
    fs::write(folder.join("config.json"), config).unwrap();
    let mut file = fs::File::create(folder.join("model.safetensors")).unwrap();
    teeny_formats::write(&mut file, &tensors, &Default::default()).unwrap();
    drop(tensors);
    let to = folder.join("out.gguf");
    let (written, peak) = crate::files::peak_of(|| {
        let model = GgufModel::open(&folder, &device)?;
        save(&to, model.metadata(), &model, &WriteOptions::new(), &device, |_| {})
    });
    written.unwrap();
    let bytes = fs::metadata(&to).unwrap().len() as usize;
    fs::remove_dir_all(&folder).unwrap();
    assert!(bytes > 7 * layers * 4 * width * width, "{bytes}");
    assert!(peak < bytes / 4, "{peak} of {bytes} bytes");
}
