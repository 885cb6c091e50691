//! Inputs and targets in another order of axes than the layer or loss has: the help says which call
//! makes them fit.

use crate::common::device;
use teeny_core::{DType, Error, Tensor};
use teeny_nn::attention::{AttentionOptions, MultiheadAttention};
use teeny_nn::conv::ConvTranspose2d;
use teeny_nn::loss::{Reduction, bce_with_logits, cross_entropy, mse};
use teeny_nn::{Conv1d, Conv2d, Module, Store};

#[track_caller]
fn helps(error: Error, help: &str) {
    assert!(error.to_string().contains(help), "{error}");
}

#[test]
fn images_with_channels_on_the_last_axis() {
    let store = Store::new(device());
    let conv = Conv2d::new(&store.at("a"), 3, 8, 3).unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, store.device()).unwrap();
    let images = zeros(&[2, 16, 17, 3]); // (N, H, W, C)
    helps(conv.forward(&images).unwrap_err(), "x.permute([0, 3, 1, 2])?");
    let permuted = images.permute([0, 3, 1, 2]).unwrap(); // (N, C, H, W)
    assert_eq!(conv.forward(&permuted).unwrap().shape()[..], [2, 8, 14, 15]);
    let conv = Conv1d::new(&store.at("b"), 4, 8, 3).unwrap();
    helps(conv.forward(&zeros(&[2, 16, 4])).unwrap_err(), "x.permute([0, 2, 1])?");
    helps(conv.forward(&zeros(&[2, 5, 16])).unwrap_err(), "a weight of (8, 5, kernel..) fits");
}

#[test]
fn targets_with_an_axis_of_size_one() {
    let device = device();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &device).unwrap();
    let classes = Tensor::zeros((5, 1), DType::I64, &device).unwrap(); // (5, 1)
    let logits = zeros(&[5, 3]);
    helps(cross_entropy(&logits, &classes).unwrap_err(), "targets.squeeze(1)? has that shape");
    let one_hot = Tensor::zeros((5, 3), DType::I64, &device).unwrap(); // (5, 3)
    helps(cross_entropy(&logits, &one_hot).unwrap_err(), "targets.argmax(1)?");
    let (row, column) = (zeros(&[5]), zeros(&[5, 1]));
    let error = mse(&row, &column, Reduction::Mean).unwrap_err();
    helps(error, "targets.squeeze(1)? has that shape");
    let error = bce_with_logits(&column, &row, Reduction::Mean).unwrap_err();
    helps(error, "predictions.squeeze(1)? has that shape");
}

#[test]
fn targets_of_bools_are_cast_to_classes() {
    let device = device();
    for shape in [&[5usize, 2][..], &[5, 2, 4, 4]] {
        let logits = Tensor::zeros(shape, DType::F32, &device).unwrap();
        let mask =
            Tensor::zeros([&shape[..1], &shape[2..]].concat(), DType::Bool, &device).unwrap();
        let help = "targets.cast(DType::I64)? makes classes 0 and 1";
        helps(cross_entropy(&logits, &mask).unwrap_err(), help);
        assert!(cross_entropy(&logits, &mask.cast(DType::I64).unwrap()).is_ok());
    }
}

#[test]
fn a_transposed_convolution_of_other_channels() {
    let store = Store::new(device());
    let up = ConvTranspose2d::new(&store.at("up"), 3, 2, 2).unwrap();
    let x = Tensor::zeros((1, 4, 8, 8), DType::F32, store.device()).unwrap(); // (1, 4, 8, 8)
    let error = up.forward(&x).unwrap_err();
    helps(error, "input (1, 4, 8, 8) has 4 channels; weight (3, 2, 2, 2) takes 3");
}

#[test]
fn classes_on_the_last_axis_of_a_sequence() {
    let device = device();
    let logits = Tensor::zeros((2, 7, 30), DType::F32, &device).unwrap();
    let targets = Tensor::zeros((2, 7), DType::I64, &device).unwrap();
    let error = cross_entropy(&logits, &targets).unwrap_err();
    helps(error, "logits.flatten(0, 1)?, targets.flatten(0, -1)?");
    let (logits, targets) = (logits.flatten(0, 1).unwrap(), targets.flatten(0, -1).unwrap());
    assert!(cross_entropy(&logits, &targets).is_ok());
}

#[test]
fn masks_and_contexts_of_other_sizes() {
    let store = Store::new(device());
    let attention = MultiheadAttention::new(&store.at("a"), 16, 4).unwrap();
    let zeros = |shape: &[usize], of| Tensor::zeros(shape, of, store.device()).unwrap();
    let (x, context) = (zeros(&[2, 7, 16], DType::F32), zeros(&[2, 5, 16], DType::F32));
    let mask = |shape: &[usize]| zeros(shape, DType::Bool);
    let to = |options: AttentionOptions<'_>| attention.attend_to(&x, &context, options);
    let options = AttentionOptions::default;
    for (shape, fits) in [([2, 5], true), ([1, 5], true), ([2, 1], true), ([2, 7], false)] {
        let result = to(options().with_key_mask(&mask(&shape)));
        assert_eq!(result.is_ok(), fits, "{shape:?}: {result:?}");
    }
    let error = to(options().with_key_mask(&mask(&[2, 7]))).unwrap_err();
    helps(error, "key_mask is (2, 7), but the keys are (2, 5)");
    let error = to(options().with_mask(&mask(&[2, 5]))).unwrap_err();
    assert!(
        error.to_string().contains("a mask of (2, 5) does not fit 7 queries and 5 keys"),
        "{error}"
    );
    helps(error, "with_key_mask takes a mask (B, S)");
    for shape in [&[7, 5][..], &[5], &[1, 5], &[7, 1], &[2, 1, 7, 5], &[4, 7, 5]] {
        assert!(to(options().with_mask(&mask(shape))).is_ok(), "{shape:?}");
    }
    let other = zeros(&[3, 5, 16], DType::F32);
    let error = attention.attend_to(&x, &other, options()).unwrap_err();
    helps(error, "x (2, 7, 16) and context (3, 5, 16) differ in batches");
    let error = attention.forward(&zeros(&[2, 5], DType::I64)).unwrap_err();
    assert!(error.to_string().contains("not (2, 5) of i64"), "{error}");
    helps(error, "an Embedding makes numbers of tokens");
}
