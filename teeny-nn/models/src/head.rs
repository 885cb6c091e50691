//! [`Head`]: classes of texts, tokens or images, or masked tokens, from the states of an encoder.
//!
//! ```text
//! states (B, T, E) ─ pooler, first token or all ─ dense ─ activation ─ norm ─ out ─ logits
//!                                                 └── those that the family has ──┘
//! ```

use super::model_files::differ;
use crate::lora::LayerNames;
use std::path::Path;
use teeny_core::{DeviceRef, Error, Result, Tensor};
use teeny_formats::config::Config;
use teeny_formats::{Mapping, TensorSource};
use teeny_nn::init::Init;
use teeny_nn::norm::{LayerNorm, LayerNormOptions};
use teeny_nn::store::{self, Param};
use teeny_nn::transformer::{Encoder, TransformerConfig};
use teeny_nn::{Activation, Dropout, Linear, LinearOptions, Module};

/// The task of a [`Head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// Classes of a text or of a pair of texts: logits (B, L).
    Sequence,
    /// Classes of each token: logits (B, T, L).
    Token,
    /// The tokens of the vocabulary in the place of each: logits (B, T, V).
    MaskedLm,
    /// Classes of an image: logits (B, L).
    Image,
}

/// The states that a head reads.
#[derive(Clone, Copy, PartialEq)]
enum Input {
    Pooler,
    First,
    All,
}

/// The layers of a head and their names in the file: a row of a table of each family.
pub(super) struct HeadFamily {
    task: Task,
    input: Input,
    /// The first layer, if any, and its activation if it differs from the model's.
    dense: Option<(&'static str, Option<Activation>)>,
    norm: Option<&'static str>,
    /// The last layer; of masked tokens its bias alone, the weight being the word embedding.
    out: &'static str,
}

const fn head(task: Task, input: Input, out: &'static str) -> HeadFamily {
    HeadFamily { task, input, dense: None, norm: None, out }
}

const TOKENS: HeadFamily = head(Task::Token, Input::All, "classifier");

pub(super) const BERT: [HeadFamily; 3] = [
    head(Task::Sequence, Input::Pooler, "classifier"),
    TOKENS,
    HeadFamily {
        dense: Some(("cls.predictions.transform.dense", None)),
        norm: Some("cls.predictions.transform.LayerNorm"),
        ..head(Task::MaskedLm, Input::All, "cls.predictions")
    },
];

pub(super) const ROBERTA: [HeadFamily; 3] = [
    HeadFamily {
        dense: Some(("classifier.dense", Some(Activation::Tanh))),
        ..head(Task::Sequence, Input::First, "classifier.out_proj")
    },
    TOKENS,
    HeadFamily {
        dense: Some(("lm_head.dense", Some(Activation::Gelu))),
        norm: Some("lm_head.layer_norm"),
        ..head(Task::MaskedLm, Input::All, "lm_head")
    },
];

pub(super) const DISTILBERT: [HeadFamily; 3] = [
    HeadFamily {
        dense: Some(("pre_classifier", Some(Activation::Relu))),
        ..head(Task::Sequence, Input::First, "classifier")
    },
    TOKENS,
    HeadFamily {
        dense: Some(("vocab_transform", None)),
        norm: Some("vocab_layer_norm"),
        ..head(Task::MaskedLm, Input::All, "vocab_projector")
    },
];

pub(super) const VIT: [HeadFamily; 1] = [head(Task::Image, Input::First, "classifier")];

/// The task of the model that `config` describes, if it has one.
pub(super) fn task(config: &Config) -> Option<Task> {
    let name = config.first_text("architectures")?;
    let ends = [
        ("ForSequenceClassification", Task::Sequence),
        ("ForTokenClassification", Task::Token),
        ("ForMaskedLM", Task::MaskedLm),
        ("ForImageClassification", Task::Image),
    ];
    ends.iter().find(|(end, _)| name.ends_with(end)).map(|(_, task)| *task)
}

impl HeadFamily {
    /// The row of `task`.
    pub fn of(rows: &'static [HeadFamily], task: Task) -> Option<&'static HeadFamily> {
        rows.iter().find(|row| row.task == task)
    }

    /// Whether the head reads the pooler of the encoder.
    pub fn reads_pooler(&self) -> bool {
        self.input == Input::Pooler
    }

    /// Adds the names of the head to the encoder's `mapping`.
    pub fn mapping(&self, mut mapping: Mapping) -> Mapping {
        let masked = self.task == Task::MaskedLm;
        if masked {
            // some files repeat the tied weights
            mapping = mapping
                .skip(&format!("{}.decoder.*", self.out))
                .skip(&format!("{}.weight", self.out));
        }
        let dense = self.dense.map(|(name, _)| (name, "head.dense"));
        let norm = self.norm.map(|name| (name, "head.norm"));
        let layers = [dense, norm, Some((self.out, "head.out"))];
        for (theirs, ours) in layers.into_iter().flatten() {
            for (end, own) in
                [("weight", "weight"), ("bias", "bias"), ("gamma", "weight"), ("beta", "bias")]
            {
                mapping = mapping.rename(&format!("{theirs}.{end}"), &format!("{ours}.{own}"));
            }
        }
        mapping
    }

    /// The name of the weight of a head for masked tokens that is not the word embedding; none, if
    /// `weights` do not have one.
    pub fn own(&self, weights: &dyn TensorSource, to: &DeviceRef) -> Result<Option<String>> {
        let shapes = weights.shapes();
        let word = shapes.iter().find(|(name, _)| name.ends_with("word_embeddings.weight"));
        let Some((word, _)) = word.filter(|_| self.task == Task::MaskedLm) else { return Ok(None) };
        for own in [".decoder", ""].map(|part| format!("{}{part}.weight", self.out)) {
            if differ(weights, [&own, word], to)? {
                return Ok(Some(own));
            }
        }
        Ok(None)
    }

    /// The layers at `path`, for a model with layers of these sizes and this vocabulary.
    pub fn build(
        &'static self,
        path: &store::Path,
        config: &Config,
        (layer, vocab): (&TransformerConfig, usize),
    ) -> Result<Head> {
        let width = layer.n_embd;
        if self.task == Task::MaskedLm && !config.flag("tie_word_embeddings", true)? {
            let text = "\"tie_word_embeddings\" is false: the head has a weight of its own";
            return Err(config.error(text.to_string()).help("heads of masked tokens are tied"));
        }
        let path = path.at("head");
        let linear = |name: &str, outputs: usize| {
            let options = LinearOptions::new().with_weight_init(Init::GPT2);
            Linear::with_options(&path.at(name), width, outputs, options)
        };
        let dense = match self.dense {
            Some((_, activation)) => {
                Some((linear("dense", width)?, activation.unwrap_or(layer.activation)))
            }
            None => None,
        };
        let options = LayerNormOptions::new().with_eps(layer.norm_eps);
        let norm = self.norm.map(|_| LayerNorm::with_options(&path.at("norm"), width, options));
        let labels = config.labels()?;
        let out = match self.task {
            Task::MaskedLm => Out::Tied(path.at("out").param("bias", (vocab,), Init::ZEROS)?),
            _ => Out::Linear(linear("out", labels.len())?),
        };
        let drop = match self.task {
            Task::Image => 0.0,
            _ => {
                config.probability(&["classifier_dropout", "seq_classif_dropout"], layer.dropout)?
            }
        };
        let multi_label = config.text("problem_type")? == Some("multi_label_classification");
        let dropout = Dropout::new(&path, drop)?;
        Ok(Head { family: self, dense, norm: norm.transpose()?, out, dropout, labels, multi_label })
    }
}

enum Out {
    Linear(Linear),
    /// (V), added to the products with the word embedding.
    Tied(Param),
}

/// The head of an encoder.
pub struct Head {
    family: &'static HeadFamily,
    dense: Option<(Linear, Activation)>,
    norm: Option<LayerNorm>,
    out: Out,
    dropout: Dropout,
    /// The names of the classes, `LABEL_0` and so on if the model has none.
    pub labels: Vec<String>,
    /// Whether a text may have several classes: probabilities are then the sigmoid of each logit,
    /// otherwise their softmax.
    pub multi_label: bool,
}

impl Head {
    /// The task of the head.
    pub fn task(&self) -> Task {
        self.family.task
    }

    /// Whether the logits depend on the pooler of the encoder.
    pub(super) fn reads_pooler(&self) -> bool {
        self.family.reads_pooler()
    }

    /// The logits of the classes of images with `states` (B, T, E) → (B, L).
    pub(super) fn image_logits(&self, states: &Tensor) -> Result<Tensor> {
        match &self.out {
            Out::Linear(out) => out.forward(&states.at(1, 0)?),
            Out::Tied(_) => Err(Error::internal("a head for images without a layer")),
        }
    }

    /// The logits of `states` (B, T, E) of `model` → (B, L), (B, T, L) or (B, T, V).
    ///
    /// # Errors
    /// If shapes do not fit.
    #[track_caller]
    pub fn logits(&self, model: &Encoder, states: &Tensor) -> Result<Tensor> {
        let mut x = match self.family.input {
            Input::Pooler => model.pooled(states)?,
            Input::First => states.at(1, 0)?,
            Input::All => states.clone(),
        };
        if let Some((dense, activation)) = &self.dense {
            x = activation.forward(&dense.forward(&x)?)?;
        }
        if let Some(norm) = &self.norm {
            x = norm.forward(&x)?;
        }
        match &self.out {
            Out::Linear(out) => out.forward(&self.dropout.forward(&x)?),
            Out::Tied(bias) => model.word().linear(&x)?.add(bias.value()),
        }
    }

    /// The probabilities of classes with `logits` (.., L) → the same, and of one class alone the
    /// sigmoid.
    ///
    /// # Errors
    /// If the device fails.
    pub fn probabilities(&self, logits: &Tensor) -> Result<Tensor> {
        let one = logits.shape().last() == Some(&1);
        if one || self.multi_label { logits.sigmoid() } else { logits.softmax(-1) }
    }
}

/// Names of files at `path`, of a model with this head or without.
pub(super) fn layer_names(mapping: Mapping, path: &Path, head: Option<&Head>) -> LayerNames {
    // peft trains the head of a new task, and names tasks so
    let (task, saved) = match head.map(Head::task) {
        None => (Some("FEATURE_EXTRACTION"), None),
        Some(Task::Sequence) => (Some("SEQ_CLS"), Some("classifier")),
        Some(Task::Token) => (Some("TOKEN_CLS"), Some("classifier")),
        Some(Task::Image) => (None, Some("classifier")),
        Some(Task::MaskedLm) => (None, None),
    };
    LayerNames::new()
        .with_mapping(mapping)
        .with_base_model(Some(path.display().to_string()))
        .with_head(None)
        .with_task(task.map(String::from))
        .with_modules_to_save(saved.map(String::from).into_iter().collect())
}
