//! The names of layers in the files of Hugging Face, for adapters.

use super::{Clip, Decoder, Encoder, Head, ImageEncoder, Task};
use crate::lora::{LayerNames, LoraModel};
use crate::state::Mapping;
use crate::store::Store;
use std::path::Path;

impl LoraModel for Decoder {
    fn store(&self) -> &Store {
        &self.store
    }

    fn names(&self) -> LayerNames {
        self.names.clone()
    }
}

impl LoraModel for Encoder {
    fn store(&self) -> &Store {
        &self.store
    }

    fn names(&self) -> LayerNames {
        self.names.clone()
    }
}

impl LoraModel for ImageEncoder {
    fn store(&self) -> &Store {
        &self.store
    }

    fn names(&self) -> LayerNames {
        let origin = &self.origin;
        names(origin.mapping.clone(), &origin.folder, self.head.as_ref())
    }
}

impl LoraModel for Clip {
    fn store(&self) -> &Store {
        &self.store
    }

    fn names(&self) -> LayerNames {
        names(self.origin.mapping.clone(), &self.origin.folder, None)
    }
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
