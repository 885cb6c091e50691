//! Row A49, convolution and pooling layers over one to three axes: results and gradients against
//! PyTorch's (`golden/windows.json`).

mod common;

use common::*;
use serde_json::Value;
use teeny_autograd::Grad;
use teeny_core::{Averaging, DType, Result, Tensor, Window};
use teeny_nn::{
    AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, Conv, Conv1d, Conv3d, ConvTranspose,
    ConvTranspose2d, MaxPool, Module, Store,
};

fn layer<const N: usize>(case: &Value, store: &Store) -> Result<Box<dyn Module>> {
    let number = |name: &str, default: usize| {
        case.get(name).map_or(default, |v| v.as_u64().unwrap() as usize)
    };
    let list = |name: &str| -> [usize; N] { sizes(&case[name]).try_into().unwrap() };
    let flag = |name: &str, default: bool| case.get(name).map_or(default, |v| v.as_bool().unwrap());
    let (path, bias) = (store.root(), flag("bias", true));
    let stride = |default: usize| number("stride", default);
    let window = |default: usize| {
        Window::new(N)
            .stride(stride(default))
            .padding(number("padding", 0))
            .dilation(number("dilation", 1))
            .groups(number("groups", 1))
    };
    let channels = || (number("inputs", 0), number("outputs", 0));
    Ok(match case["layer"].as_str().unwrap() {
        "conv" => Box::new(Conv::with_window(
            &path,
            channels().0,
            channels().1,
            list("kernel"),
            window(1),
            bias,
        )?),
        "transpose" => {
            let conv = ConvTranspose::with_window(
                &path,
                channels().0,
                channels().1,
                list("kernel"),
                window(1),
                bias,
            )?;
            Box::new(conv.output_padding([number("output_padding", 0); N]))
        }
        "max" => {
            let pool = MaxPool::with_window(list("size"), window(list("size")[0]));
            Box::new(if flag("ceil_mode", false) { pool.ceil() } else { pool })
        }
        "avg" => {
            let by = Averaging {
                ceil: flag("ceil_mode", false),
                count_padding: flag("count_include_pad", true),
                divisor: None,
            };
            Box::new(AvgPool::with_window(list("size"), window(list("size")[0])).averaging(by))
        }
        "adaptive_max" => Box::new(AdaptiveMaxPool::new(list("size"))),
        "adaptive_avg" => Box::new(AdaptiveAvgPool::new(list("size"))),
        other => panic!("{other}"),
    })
}

#[test]
fn convolution_and_pooling_layers_agree_with_pytorch_in_result_and_gradients() {
    for case in parse(include_str!("golden/windows.json"))["cases"].as_array().unwrap() {
        let store = Store::with_dtype(&autograd(), DType::F64);
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
    let window = |n: usize| Window::new(n).stride(2).padding(1);
    check_module(
        |s| Ok(Box::new(Conv1d::with_window(&s.root(), 2, 3, [3], window(1), true)?)),
        &[2, 2, 5],
    );
    check_module(|s| Ok(Box::new(Conv3d::new(&s.root(), 1, 2, 2)?)), &[1, 1, 2, 3, 2]);
    check_module(
        |s| {
            Ok(Box::new(
                ConvTranspose2d::with_window(&s.root(), 2, 1, [2, 3], window(2), true)?
                    .output_padding([1, 0]),
            ))
        },
        &[1, 2, 2, 2],
    );
}

#[test]
fn a_transposed_convolution_undoes_the_sizes_of_a_convolution() {
    let store = Store::new(&device());
    let down =
        Conv1d::with_window(&store.at("down"), 1, 2, [4], Window::new(1).stride(3), true).unwrap();
    let up = |extra: usize| {
        ConvTranspose::<1>::with_window(&store.at(extra), 2, 1, [4], Window::new(1).stride(3), true)
            .unwrap()
            .output_padding([extra])
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
    let store = Store::new(&device());
    let window = Window::new(1).groups(2);
    let error =
        Conv1d::with_window(&store.root(), 3, 4, [1], window, true).unwrap_err().to_string();
    assert!(error.contains("2 groups do not divide 3 input and 4 output channels"), "{error}");
    let conv = ConvTranspose2d::new(&store.root(), 2, 3, 2).unwrap();
    let image = Tensor::zeros((1, 3, 2, 2), DType::F32, store.device()).unwrap(); // (1, 3, 2, 2)
    let error = conv.forward(&image).unwrap_err().to_string();
    assert!(error.starts_with("conv_transpose2d at ") && error.contains("windows.rs"), "{error}");
    assert!(
        conv.output_padding([2, 0]).forward(&image.slice(1, ..2).unwrap()).is_err(),
        "as much as the stride"
    );
}
