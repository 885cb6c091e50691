//! The names of layers in the files of Hugging Face, for adapters.

use super::origin::Origin;
use super::{Clip, Decoder, Encoder, Head, ImageEncoder, Task};
use crate::lora::{LayerNames, LoraModel};
use std::path::Path;
use teeny_formats::Mapping;
use teeny_nn::store::Store;

macro_rules! lora_model {
    ($($model:ty: |$own:ident| $names:expr;)*) => {
        $(impl LoraModel for $model {
            fn store(&self) -> &Store {
                &self.store
            }

            fn names(&self) -> LayerNames {
                let $own = self;
                $names
            }
        })*
    };
}
lora_model! {
    Decoder: |own| own.names.clone();
    Encoder: |own| own.names.clone();
    ImageEncoder: |own| of_origin(&own.origin, own.head.as_ref());
    Clip: |own| of_origin(&own.origin, None);
}

fn of_origin(origin: &Origin, head: Option<&Head>) -> LayerNames {
    names(origin.mapping.clone(), &origin.folder, head)
}

/// Names of files at `path`, of a model with this head or without.
pub(super) fn names(mapping: Mapping, path: &Path, head: Option<&Head>) -> LayerNames {
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
