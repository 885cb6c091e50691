//! Attention and its gradients: sizes around tiles, layouts, masks, causal limits, a cache, grouped
//! heads, queries that see nothing.

use super::{Arrangement, Case, Domain, Input, Sink, stepwise};
use teeny_core::{Attention, AttentionInputs, DType, DeviceRef, Op, Result, Tensor};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Which mask a case has.
#[derive(Clone, Copy, Debug)]
enum Mask {
    None,
    /// Bool (T, S), a row of it false.
    Bool,
    /// Float (lead, 1, S): a bias per key, the last key hidden by -inf.
    Bias,
}

/// Leading axes, T, S, hs, hv.
type Sizes = (&'static [usize], [usize; 4]);

pub fn each(sink: Sink<'_>) {
    let small: Sizes = (&[2, 3], [5, 7, 6, 4]);
    for dtype in FLOATS {
        for (i, arrangement) in Arrangement::ALL.into_iter().enumerate() {
            let other = Arrangement::ALL[(i + 3) % 7];
            case(sink, dtype, small, [arrangement, other, other], Mask::None, Attention::full());
            case(sink, dtype, small, [other, other, arrangement], Mask::Bool, Attention::causal(2));
            case(
                sink,
                dtype,
                small,
                [other, arrangement, other],
                Mask::Bias,
                Attention::causal(3).window(3).scale(0.5),
            );
            let capped = Attention::causal(2).softcap(0.25);
            case(sink, dtype, small, [arrangement, other, other], Mask::Bias, capped);
        }
        let packed = [Arrangement::Packed; 3];
        let sizes: [Sizes; 11] = [
            (&[], [3, 4, 5, 2]),
            (&[2], [1, 40, 8, 8]),
            (&[2], [1, 700, 16, 16]),
            (&[1], [70, 70, 32, 32]),
            (&[1], [33, 65, 64, 64]),
            (&[1], [49, 49, 33, 100]),
            (&[1], [5, 6, 200, 256]),
            (&[1], [5, 6, 300, 3]),
            (&[1, 2, 1, 1], [3, 4, 5, 6]),
            (&[2], [4, 0, 3, 2]),
            (&[0], [4, 5, 3, 2]),
        ];
        for (lead, [t, s, hs, hv]) in sizes {
            case(sink, dtype, (lead, [t, s, hs, hv]), packed, Mask::None, Attention::full());
            case(
                sink,
                dtype,
                (lead, [t, s, hs, hv]),
                packed,
                Mask::None,
                Attention::causal(s.saturating_sub(t)),
            );
        }
        case(
            sink,
            dtype,
            (&[1], [70, 140, 8, 8]),
            packed,
            Mask::None,
            Attention::causal(70).window(40),
        );
        case(sink, dtype, (&[1], [70, 100, 8, 8]), packed, Mask::Bool, Attention::full());
        case(sink, dtype, (&[1], [70, 100, 8, 8]), packed, Mask::Bias, Attention::causal(1));
        // No query sees a key: the window has passed the last one.
        case(
            sink,
            dtype,
            (&[1], [4, 3, 8, 8]),
            packed,
            Mask::None,
            Attention::causal(20).window(5),
        );
        special(sink, dtype);
        // Queries in groups that share keys and values: stride 0 along the group.
        grouped(sink, dtype);
    }
}

/// Values of every layout around 0 and small enough that no score decides alone.
fn operand(
    lead: &[usize],
    rows: usize,
    columns: usize,
    dtype: DType,
    arrangement: Arrangement,
    seed: u64,
) -> Input {
    Input::new([lead, &[rows, columns]].concat(), dtype, arrangement, Domain::Small, seed)
}

fn case(
    sink: Sink<'_>,
    dtype: DType,
    (lead, [t, s, hs, hv]): Sizes,
    layouts: [Arrangement; 3],
    mask: Mask,
    options: Attention,
) {
    let inputs = || {
        vec![
            operand(lead, t, hs, dtype, layouts[0], 70),
            operand(lead, s, hs, dtype, layouts[1], 71),
            operand(lead, s, hv, dtype, layouts[2], 72),
            operand(lead, t, hv, dtype, layouts[1], 73),
        ]
    };
    // A quarter of the scale keeps scores within some units, whatever the head size.
    let options =
        if options.scale.is_none() { options.scale(0.25 * options.factor(hs)) } else { options };
    add(
        sink,
        dtype,
        inputs,
        mask,
        options,
        format!("{t} queries {s} keys {mask:?} {options:?}"),
        |x| Ok(x.to_vec()),
    );
}

/// Numbers that are not finite, where some queries do not see them: they reach no other query.
fn special(sink: Sink<'_>, dtype: DType) {
    for [t, s] in [[5, 7], [1, 7], [70, 70]] {
        for (which, name) in [(0, "q"), (1, "k"), (2, "v"), (3, "g")] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                // An infinite key or query makes scores that its sign decides.
                if value.is_infinite() && (which < 2 || t != 5) {
                    continue;
                }
                let inputs = || {
                    let rows = |i: usize| if i == 0 || i == 3 { t } else { s };
                    let mut inputs: Vec<Input> = (0..4)
                        .map(|i| {
                            let seed = 80 + i as u64;
                            operand(&[2], rows(i), 8, dtype, Arrangement::Packed, seed)
                        })
                        .collect();
                    inputs[which] = inputs[which].with_last(8, value);
                    inputs
                };
                let kinds = [
                    (Mask::None, Attention::causal((s - t).saturating_sub(1))),
                    (Mask::None, Attention::causal(s - t).window(3)),
                    (Mask::Bool, Attention::full()),
                    (Mask::Bias, Attention::full()),
                ];
                // One mask kind at the size beyond a tile: the oracle takes 0.1 s per kind.
                let kinds = if t == 70 { &kinds[..1] } else { &kinds };
                for &(mask, options) in kinds {
                    add(
                        sink,
                        dtype,
                        inputs,
                        mask,
                        options.scale(0.25),
                        format!(
                            "{t} queries {s} keys {mask:?} {options:?}, {name} ends in {value}"
                        ),
                        |x| Ok(x.to_vec()),
                    );
                }
            }
        }
    }
}

fn grouped(sink: Sink<'_>, dtype: DType) {
    let inputs = || {
        let layout = Arrangement::Transposed;
        vec![
            operand(&[2, 3], 5, 4, dtype, layout, 74),
            operand(&[2, 1], 6, 4, dtype, layout, 75),
            operand(&[2, 1], 6, 3, dtype, layout, 76),
            operand(&[2, 3], 5, 3, dtype, layout, 77),
        ]
    };
    add(sink, dtype, inputs, Mask::Bool, Attention::causal(1), "grouped".to_string(), |x| {
        Ok(vec![x[0].clone(), x[1].expand((2, 3, 6, 4))?, x[2].expand((2, 3, 6, 3))?, x[3].clone()])
    });
}

/// The forward and the backward case on q, k, v and g as `view` sees the inputs.
fn add(
    sink: Sink<'_>,
    dtype: DType,
    inputs: impl Fn() -> Vec<Input>,
    mask: Mask,
    options: Attention,
    detail: String,
    view: fn(&[Tensor]) -> Result<Vec<Tensor>>,
) {
    let forward = move |_: &DeviceRef, x: &[Tensor]| {
        let x = view(x)?;
        let mask = prepared(mask, &x)?;
        let (y, lse) = run(&operands(&x, mask.as_ref(), options))?;
        Ok(vec![y, lse])
    };
    let backward = move |_: &DeviceRef, x: &[Tensor]| {
        let x = view(x)?;
        let mask = prepared(mask, &x)?;
        let inputs = operands(&x, mask.as_ref(), options);
        let (y, lse) = run(&inputs)?;
        let mut all = Vec::new();
        let parts = [[true; 3], [true, false, false], [false, true, false], [false, false, true]];
        // The oracle is slow at sizes beyond tiles: the parts alone in one type.
        let large = y.numel() * x[1].numel() > 100_000;
        for &needs in if large && dtype != DType::F32 { &parts[..1] } else { &parts[..] } {
            let op = Op::AttentionGrad { inputs, y: &y, lse: &lse, g: &x[3], needs };
            all.extend(op.tensor_list(x[0].device())?);
        }
        Ok(all)
    };
    // Means of numbers below 4; scores are sums of products with errors of some places, which the
    // exponential passes on.
    let tolerance = stepwise(dtype, 24.0, 4.0);
    sink(Case {
        op: "attention",
        dtype,
        inputs: inputs(),
        tolerance,
        detail: detail.clone(),
        body: Box::new(forward),
    });
    // Sums over up to 70 queries of products up to 4 · 4 · 4.
    let tolerance = stepwise(dtype, 24.0, 32.0);
    sink(Case {
        op: "attention_grad",
        dtype,
        inputs: inputs(),
        tolerance,
        detail,
        body: Box::new(backward),
    });
}

fn operands<'a>(
    x: &'a [Tensor],
    mask: Option<&'a Tensor>,
    options: Attention,
) -> AttentionInputs<'a> {
    AttentionInputs { q: &x[0], k: &x[1], v: &x[2], mask, options }
}

/// y and the logsumexp.
fn run(inputs: &AttentionInputs<'_>) -> Result<(Tensor, Tensor)> {
    let [y, lse] = Op::Attention { inputs: *inputs }.tensors(inputs.q.device())?;
    Ok((y, lse))
}

/// The mask stretched over the scores of q and k.
fn prepared(mask: Mask, x: &[Tensor]) -> Result<Option<Tensor>> {
    let n = x[0].ndim();
    let (t, s) = (x[0].shape()[n - 2], x[1].shape()[n - 2]);
    let scores = x[0].shape().with_size(n - 1, s);
    Ok(match mask {
        Mask::None => None,
        Mask::Bool => {
            let seen = (0..t * s).map(|i| i / s != 1 && i * 7 % 5 != 0).collect::<Vec<bool>>();
            Some(Tensor::from_vec(seen, (t, s), &x[0])?.expand(scores)?)
        }
        Mask::Bias => {
            let bias = (0..s)
                .map(|j| if j + 1 == s { f32::NEG_INFINITY } else { j as f32 * 0.125 - 0.5 })
                .collect::<Vec<f32>>();
            Some(Tensor::from_vec(bias, s, &x[0])?.cast(x[0].dtype())?.expand(scores)?)
        }
    })
}
