//! The names of layers in the files of Hugging Face, for adapters.

use super::head::{Head, layer_names};
use super::source_folder::SourceFolder;
use super::{Clip, Decoder, Encoder, ImageEncoder};
use crate::lora::{LayerNames, LoraModel};
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

fn of_origin(origin: &SourceFolder, head: Option<&Head>) -> LayerNames {
    layer_names(origin.mapping.clone(), &origin.folder, head)
}
