//! Convolution and pooling layers over one to three axes: results and gradients against
//! PyTorch's (`golden/windows.json`).

use crate::common::*;
use serde_json::Value;
use teeny_autograd::Grad;
use teeny_core::{DType, Result, Tensor};
use teeny_nn::conv::{
    Conv, Conv1dOptions, ConvOptions, ConvTranspose, ConvTranspose1d, ConvTranspose1dOptions,
    ConvTranspose2d, ConvTranspose2dOptions, ConvTransposeOptions,
};
use teeny_nn::pool::{
    AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, AvgPoolOptions, MaxPool, MaxPoolOptions,
};
use teeny_nn::{Conv1d, Conv3d, Module, Store};

fn layer<const N: usize>(case: &Value, store: &Store) -> Result<Box<dyn Module>> {
    let number = |name: &str, default: usize| {
        case.get(name).map_or(default, |v| v.as_u64().unwrap() as usize)
    };
    let list = |name: &str| -> [usize; N] { sizes(&case[name]).try_into().unwrap() };
    let flag = |name: &str, default: bool| case.get(name).map_or(default, |v| v.as_bool().unwrap());
    let (path, bias) = (store.root(), flag("bias", true));
    let (stride, padding) = (case.get("stride").map(|_| number("stride", 0)), number("padding", 0));
    let (dilation, groups) = (number("dilation", 1), number("groups", 1));
    let channels = || (number("inputs", 0), number("outputs", 0));
    Ok(match case["layer"].as_str().unwrap() {
        "conv" => {
            let options = ConvOptions::new()
                .with_stride(stride.unwrap_or(1))
                .with_padding(padding)
                .with_dilation(dilation)
                .with_groups(groups)
                .with_bias(bias);
            let (inputs, outputs) = channels();
            Box::new(Conv::with_options(&path, inputs, outputs, list("kernel"), options)?)
        }
        "transpose" => {
            let options = ConvTransposeOptions::new()
                .with_stride(stride.unwrap_or(1))
                .with_padding(padding)
                .with_output_padding(number("output_padding", 0))
                .with_dilation(dilation)
                .with_groups(groups)
                .with_bias(bias);
            let (inputs, outputs) = channels();
            Box::new(ConvTranspose::with_options(&path, inputs, outputs, list("kernel"), options)?)
        }
        "max" => {
            let mut options = MaxPoolOptions::new()
                .with_padding(padding)
                .with_dilation(dilation)
                .with_ceil_mode(flag("ceil_mode", false));
            options.stride = stride.map(|stride| [stride; N]);
            Box::new(MaxPool::with_options(list("size"), options))
        }
        "avg" => {
            let mut options = AvgPoolOptions::new()
                .with_padding(padding)
                .with_ceil_mode(flag("ceil_mode", false))
                .with_count_include_pad(flag("count_include_pad", true));
            options.stride = stride.map(|stride| [stride; N]);
            Box::new(AvgPool::with_options(list("size"), options))
        }
        "adaptive_max" => Box::new(AdaptiveMaxPool::new(list("size"))),
        "adaptive_avg" => Box::new(AdaptiveAvgPool::new(list("size"))),
        other => panic!("{other}"),
    })
}

#[test]
fn convolution_and_pooling_layers_agree_with_pytorch_in_result_and_gradients() {
    for case in parse(include_str!("golden/windows.json"))["cases"].as_array().unwrap() {
        let store = Store::with_dtype(autograd(), DType::F64);
        let x = tensor(&case["x"], store.device()).requires_grad().unwrap();
        let layer = match x.ndim() {
            3 => layer::<1>(case, &store),
            4 => layer::<2>(case, &store),
            _ => layer::<3>(case, &store),
        };
        let layer = layer.unwrap();
        for (name, value) in case["state"].as_object().unwrap() {
            store.get(name).unwrap().set(&tensor(value, store.device())).unwrap();
        }
        let y = layer.forward(&x).unwrap();
        assert_eq!(y.shape()[..], sizes(&case["result"]["shape"]), "{case}");
        assert_close(&values(&y), &numbers(&case["result"]["data"]), 1e-12, case);
        let grads = backward(&y);
        assert_close(&values(grads.get(&x).unwrap()), &numbers(&case["grad_x"]), 1e-10, case);
        for param in store.trainable() {
            assert_close(
                &values(grads.get(&param.value()).unwrap()),
                &numbers(&case["grads"][param.name()]),
                1e-10,
                case,
            );
        }
    }
}

#[test]
fn convolution_layers_pass_gradcheck_twice() {
    let one = Conv1dOptions::new().with_stride(2).with_padding(1);
    let two = ConvTranspose2dOptions::new().with_stride(2).with_padding(1);
    let two = two.with_output_padding([1, 0]);
    check_module(|s| Ok(Box::new(Conv1d::with_options(&s.root(), 2, 3, 3, one)?)), &[2, 2, 5]);
    check_module(|s| Ok(Box::new(Conv3d::new(&s.root(), 1, 2, 2)?)), &[1, 1, 2, 3, 2]);
    check_module(
        |s| Ok(Box::new(ConvTranspose2d::with_options(&s.root(), 2, 1, [2, 3], two)?)),
        &[1, 2, 2, 2],
    );
}

#[test]
fn a_transposed_convolution_undoes_the_sizes_of_a_convolution() {
    let store = Store::new(device());
    let down =
        Conv1d::with_options(&store.at("down"), 1, 2, 4, Conv1dOptions::new().with_stride(3))
            .unwrap();
    let up = |extra: usize| {
        let options = ConvTranspose1dOptions::new().with_stride(3).with_output_padding(extra);
        ConvTranspose1d::with_options(&store.at(extra), 2, 1, 4, options).unwrap()
    };
    for length in 10..13 {
        // (1, 1, length)
        let x = Tensor::zeros((1, 1, length), DType::F32, store.device()).unwrap();
        let small = down.forward(&x).unwrap();
        assert_eq!(small.shape()[..], [1, 2, 3]);
        assert_eq!(up(length - 10).forward(&small).unwrap().shape(), x.shape());
    }
    assert_eq!(down.describe(), "Conv1d(1 -> 2, 4)");
    assert_eq!(
        ConvTranspose2d::new(&store.at("t"), 3, 5, 2).unwrap().describe(),
        "ConvTranspose2d(3 -> 5, 2x2)"
    );
}

#[test]
fn windows_that_do_not_fit_are_explained() {
    let store = Store::new(device());
    let options = Conv1dOptions::new().with_groups(2);
    let error = Conv1d::with_options(&store.root(), 3, 4, 1, options).unwrap_err().to_string();
    assert!(error.contains("2 groups do not divide 3 input and 4 output channels"), "{error}");
    let options = ConvTranspose2dOptions::new().with_stride(2).with_output_padding([2, 0]);
    let conv = ConvTranspose2d::with_options(&store.root(), 2, 3, 2, options).unwrap();
    let image = Tensor::zeros((1, 3, 2, 2), DType::F32, store.device()).unwrap(); // (1, 3, 2, 2)
    let error = conv.forward(&image).unwrap_err().to_string();
    assert!(error.starts_with("conv_transpose2d at ") && error.contains("windows.rs"), "{error}");
    assert!(conv.forward(&image.slice(1, ..2).unwrap()).is_err(), "as much as the stride");
}
