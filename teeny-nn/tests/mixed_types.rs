//! Floats of a higher type than a layer's parameters, or than predictions, are an error: they would
//! turn the rest of the network into that type. Lower types are mixed precision and stay allowed.

use crate::common::autograd;
use teeny_core::{DType, ErrorKind, Result, Tensor};
use teeny_nn::attention::AttentionOptions;
use teeny_nn::conv::ConvTranspose2d;
use teeny_nn::loss::{self, CrossEntropy, Reduction, cross_entropy};
use teeny_nn::norm::{GroupNorm, InstanceNorm, RmsNorm};
use teeny_nn::recurrent::{GruCell, LstmCell, RnnCell};
use teeny_nn::{
    BatchNorm, Conv2d, Gru, LayerNorm, Linear, Lstm, Module, MultiheadAttention, PRelu, Rnn, Store,
};

type Call = Box<dyn Fn(DType) -> Result<Tensor>>;

/// Every layer with floats as input, applied to ones of a dtype.
fn layers(store: &Store) -> Result<Vec<(&'static str, Call)>> {
    let path = |name: &str| store.at(name);
    let ones = {
        let store = store.clone();
        move |shape: &[usize], dtype| Tensor::ones(shape, dtype, store.device())
    };
    let mut all: Vec<(&'static str, Call)> = Vec::new();
    let mut add = |name: &'static str, shape: &'static [usize], layer: Box<dyn Module>| {
        let ones = ones.clone();
        all.push((name, Box::new(move |dtype| layer.forward(&ones(shape, dtype)?))));
    };
    add("linear", &[2, 4], Box::new(Linear::new(&path("linear"), 4, 4)?));
    add("conv2d", &[2, 4, 5, 5], Box::new(Conv2d::new(&path("conv"), 4, 4, 3)?));
    let transpose = ConvTranspose2d::new(&path("transpose"), 4, 4, 3)?;
    add("conv_transpose2d", &[2, 4, 5, 5], Box::new(transpose));
    add("batch_norm", &[2, 4], Box::new(BatchNorm::new(&path("batch"), 4)?));
    add("group_norm", &[2, 4, 5], Box::new(GroupNorm::new(&path("group"), 2, 4)?));
    let options = teeny_nn::norm::InstanceNormOptions::new().with_affine(true);
    let instance = InstanceNorm::with_options(&path("instance"), 4, options)?;
    add("instance_norm", &[2, 4, 5], Box::new(instance));
    add("layer_norm", &[2, 4], Box::new(LayerNorm::new(&path("layer"), 4)?));
    add("rms_norm", &[2, 4], Box::new(RmsNorm::new(&path("rms"), 4)?));
    add("prelu", &[2, 4], Box::new(PRelu::new(&path("prelu"))?));
    add("multihead_attention", &[2, 3, 4], Box::new(MultiheadAttention::new(&path("mha"), 4, 2)?));
    add("rnn", &[2, 3, 4], Box::new(Rnn::new(&path("rnn"), 4, 4)?));
    add("gru", &[2, 3, 4], Box::new(Gru::new(&path("gru"), 4, 4)?));
    add("lstm", &[2, 3, 4], Box::new(Lstm::new(&path("lstm"), 4, 4)?));
    let h = ones(&[2, 4], store.root().param("h", 1, teeny_nn::Init::ZEROS)?.value().dtype())?;
    let (rnn, gru) = (RnnCell::new(&path("a"), 4, 4)?, GruCell::new(&path("b"), 4, 4)?);
    let lstm = LstmCell::new(&path("c"), 4, 4)?;
    let (x, state) = (ones.clone(), h.clone());
    all.push(("rnn", Box::new(move |dtype| rnn.step(&x(&[2, 4], dtype)?, &state))));
    let (x, state) = (ones.clone(), h.clone());
    all.push(("gru", Box::new(move |dtype| gru.step(&x(&[2, 4], dtype)?, &state))));
    let (x, state) = (ones.clone(), h.clone());
    all.push((
        "lstm",
        Box::new(move |dtype| Ok(lstm.step(&x(&[2, 4], dtype)?, &state, &state)?.0)),
    ));
    let cross = MultiheadAttention::new(&path("cross"), 4, 2)?;
    let own = h.dtype();
    all.push((
        "multihead_attention",
        Box::new(move |dtype| {
            let (x, context) = (ones(&[2, 3, 4], own)?, ones(&[2, 3, 4], dtype)?);
            cross.attend_to(&x, &context, AttentionOptions::default())
        }),
    ));
    Ok(all)
}

#[test]
fn an_input_of_a_higher_float_type_than_the_weight() {
    for (own, higher, lower) in [
        (DType::F32, &[DType::F64][..], &[DType::F16, DType::BF16, DType::F32][..]),
        (DType::BF16, &[DType::F32, DType::F64], &[DType::BF16]),
        (DType::F64, &[], &[DType::F16, DType::F32, DType::F64]),
    ] {
        let store = Store::with_dtype(autograd(), own);
        for (name, layer) in layers(&store).unwrap() {
            for &dtype in lower {
                let y = layer(dtype).unwrap_or_else(|e| panic!("{name} {own} {dtype}: {e}"));
                assert_eq!(y.dtype(), own, "{name} of {dtype}");
            }
            for dtype in higher {
                let error = layer(*dtype).map(|_| ()).expect_err(name);
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::DType, "{text}");
                assert!(text.starts_with(&format!("{name} at ")), "{text}");
                assert!(text.contains(&format!("is {own}, but its input {dtype}")), "{text}");
                assert!(text.contains(".cast(DType::"), "{text}");
            }
        }
    }
}

#[test]
fn targets_of_a_higher_float_type_than_the_predictions() {
    let device = autograd();
    let of = |dtype| Tensor::full((2, 3), 0.5, dtype, &device).unwrap(); // (2, 3)
    type Loss = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let losses: [Loss; 10] = [
        |x, t| loss::mse(x, t, Reduction::Mean),
        |x, t| loss::l1(x, t, Reduction::Mean),
        |x, t| loss::huber(x, t, 1.0, Reduction::Mean),
        |x, t| loss::bce_with_logits(x, t, Reduction::Mean),
        |x, t| loss::bce(x, t, Reduction::Mean),
        |x, t| loss::kl_div(x, t, Reduction::Mean),
        |x, t| loss::poisson_nll(x, t, Reduction::Mean),
        |x, t| loss::hinge(x, t, Reduction::Mean),
        cross_entropy,
        |x, t| CrossEntropy::new().nll(x, t),
    ];
    for loss in losses {
        let error = loss(&of(DType::F32), &of(DType::F64)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("targets are f64, but predictions f32"), "{text}");
        assert!(text.contains("targets.cast(DType::F32)?"), "{text}");
        for (x, target) in [(DType::F64, DType::F32), (DType::F32, DType::BF16)] {
            assert_eq!(loss(&of(x), &of(target)).unwrap().dtype(), x);
        }
    }
    // counts as targets are not floats
    let counts = Tensor::ones((2, 3), DType::I64, &device).unwrap();
    let _ = loss::poisson_nll(&of(DType::F32), &counts, Reduction::Mean).unwrap();
}
