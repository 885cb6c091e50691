//! Attention against its formula in plain loops, and what it refuses.

use crate::support::refused;
use teeny_core::{Attention, DType, ErrorKind, Reference, Tensor};

/// Values of both signs in no order.
fn values(shape: &[usize], seed: usize, device: &std::sync::Arc<Reference>) -> Tensor {
    let all: Vec<f64> = (0..shape.iter().product())
        .map(|i: usize| ((i * 7919 + seed * 31) % 101) as f64 / 40.0 - 1.25)
        .collect();
    Tensor::from_vec(all, shape, device).unwrap()
}

/// One head by the formula; `bias(i, j)` is -inf where query i may not see key j.
fn formula(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    [t, s, hs, hv]: [usize; 4],
    options: &Attention,
    bias: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let scale = options.scale.unwrap_or(1.0 / (hs as f64).sqrt());
    let mut y = vec![0.0; t * hv];
    for i in 0..t {
        let weights: Vec<f64> = (0..s)
            .map(|j| {
                let s = (0..hs).map(|c| q[i * hs + c] * k[j * hs + c]).sum::<f64>() * scale;
                (options.softcap.map_or(s, |c| c * (s / c).tanh()) + bias(i, j)).exp()
            })
            .collect();
        let sum: f64 = weights.iter().sum();
        for (j, w) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
            (0..hv).for_each(|c| y[i * hv + c] += w / sum * v[j * hv + c]);
        }
    }
    y
}

const HIDDEN: f64 = f64::NEG_INFINITY;

/// Compares one head of 4 queries and 6 keys with the formula.
fn compare(mask: Option<Tensor>, options: Attention, bias: impl Fn(usize, usize) -> f64) {
    let device = Reference::new();
    let sizes @ [t, s, hs, hv] = [4, 6, 5, 3];
    let (q, k, v) =
        (values(&[t, hs], 1, &device), values(&[s, hs], 2, &device), values(&[s, hv], 3, &device));
    let mask = mask.map(|m| m.to(&device).unwrap());
    let y = q.attention(&k, &v, mask.as_ref(), &options).unwrap().to_vec::<f64>().unwrap();
    let vec = |x: &Tensor| x.to_vec::<f64>().unwrap();
    let want = formula(&vec(&q), &vec(&k), &vec(&v), sizes, &options, bias);
    y.iter()
        .zip(&want)
        .for_each(|(y, want)| assert!((y - want).abs() < 1e-14, "{y} is not {want}"));
}

#[test]
fn attention_is_the_softmax_of_scaled_scores_times_the_values() {
    compare(None, Attention::full(), |_, _| 0.0);
    compare(None, Attention::full().scale(2.0), |_, _| 0.0);
    compare(None, Attention::full().softcap(0.5), |_, _| 0.0);
}

#[test]
fn a_causal_query_sees_the_keys_up_to_its_own_position() {
    compare(None, Attention::causal(0), |i, j| if j <= i { 0.0 } else { HIDDEN });
    compare(None, Attention::causal(2), |i, j| if j <= i + 2 { 0.0 } else { HIDDEN });
    compare(None, Attention::causal(2).window(2), |i, j| {
        if j == i + 2 || j == i + 1 { 0.0 } else { HIDDEN }
    });
}

#[test]
fn masks_are_bool_or_added_and_join_the_limits() {
    let device = Reference::new();
    let seen: Vec<bool> = (0..24).map(|i| i % 5 != 1).collect();
    let mask = Tensor::from_slice(&seen, (4, 6), &device).unwrap();
    compare(
        Some(mask.clone()),
        Attention::full(),
        |i, j| if seen[i * 6 + j] { 0.0 } else { HIDDEN },
    );
    compare(Some(mask), Attention::causal(1), |i, j| {
        if seen[i * 6 + j] && j <= i + 1 { 0.0 } else { HIDDEN }
    });
    let bias = [0.5, -1.0, HIDDEN, 0.0, 0.25, 2.0];
    let mask = Some(Tensor::new(bias, &device).unwrap());
    compare(mask.clone(), Attention::full(), |_, j| bias[j]);
    compare(mask, Attention::full().softcap(0.3), |_, j| bias[j]);
}

#[test]
fn a_query_that_sees_no_key_gives_zeros() {
    let device = Reference::new();
    let (q, k) = (values(&[2, 3], 1, &device), values(&[4, 3], 2, &device));
    let mask = Tensor::new([[false], [true]], &device).unwrap();
    let y = q.attention(&k, &k, Some(&mask), &Attention::full()).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(y[..3], [0.0; 3]);
    assert!(y[3..].iter().all(|y| *y != 0.0));
    let none = Tensor::zeros((0, 3), DType::F64, &device).unwrap();
    assert_eq!(
        q.attention(&none, &none, None, &Attention::full()).unwrap().to_vec::<f64>().unwrap(),
        [0.0; 6]
    );
}

/// Beyond the last key a larger offset changes nothing but the place of a window.
#[test]
fn a_causal_offset_may_be_any_number() {
    for offset in [5, 6, i32::MAX as usize, 1 << 31, usize::MAX >> 8, usize::MAX - 1, usize::MAX] {
        compare(None, Attention::causal(offset), |_, _| 0.0);
        let all = Attention::causal(offset);
        let full: Vec<_> = (0..3).map(|_| 0..4).collect();
        assert!((0..3).map(|i| all.keys(i, 4)).eq(full.clone()), "{offset}");
        let (shift, window) = all.band(3, 4);
        for (i, keys) in full.into_iter().enumerate() {
            let seen = |j: usize| (i + shift).checked_sub(j).is_some_and(|d| d < window);
            assert!(keys.into_iter().all(seen), "{offset}");
        }
        let none = Attention::causal(offset).window(1);
        assert!(none.keys(1, 4).is_empty(), "{offset}");
        let (shift, window) = none.band(3, 4);
        assert!((0..4).all(|j| (1 + shift) - j >= window), "{offset}");
    }
}

#[test]
fn grouped_queries_share_keys_by_broadcasting() {
    let device = Reference::new();
    let (q, k, v) = (
        values(&[2, 3, 4, 5], 1, &device),
        values(&[2, 1, 6, 5], 2, &device),
        values(&[2, 1, 6, 2], 3, &device),
    );
    let y = q.attention(&k, &v, None, &Attention::causal(2)).unwrap(); // (2, 3, 4, 2)
    let copied = q
        .attention(
            &k.repeat([1, 3, 1, 1]).unwrap(),
            &v.repeat([1, 3, 1, 1]).unwrap(),
            None,
            &Attention::causal(2),
        )
        .unwrap();
    assert_eq!(y.to_vec::<f64>().unwrap(), copied.to_vec::<f64>().unwrap());
    assert_eq!(y.shape()[..], [2, 3, 4, 2]);
}

#[test]
fn what_attention_refuses_it_names() {
    let device = Reference::new();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &device).unwrap();
    let (q, k) = (zeros(&[2, 4, 8]), zeros(&[2, 6, 8]));
    let full = Attention::full();
    let text = |error: teeny_core::Error, kind: ErrorKind| {
        assert_eq!((error.kind(), error.op()), (kind, Some("attention")));
        error.to_string()
    };
    let e = text(refused(q.attention(&zeros(&[2, 6, 7]), &k, None, &full)), ErrorKind::Shape);
    assert!(e.contains("queries (2, 4, 8), keys (2, 6, 7) and values (2, 6, 8) do not fit: queries have heads of 8, keys of 7"), "{e}");
    let e = text(refused(q.attention(&k, &zeros(&[2, 5, 8]), None, &full)), ErrorKind::Shape);
    assert!(e.contains("6 keys meet 5 values"), "{e}");
    let e = text(refused(q.attention(&zeros(&[3, 6, 8]), &k, None, &full)), ErrorKind::Shape);
    assert!(e.contains("the leading axes do not broadcast"), "{e}");
    let e = text(refused(zeros(&[8]).attention(&k, &k, None, &full)), ErrorKind::Shape);
    assert!(e.contains("at least two axes"), "{e}");
    let e = text(refused(q.attention(&k, &k, Some(&zeros(&[4, 5])), &full)), ErrorKind::Shape);
    assert!(e.contains("a mask of (4, 5) does not broadcast to the scores (2, 4, 6)"), "{e}");
    let numbers = Tensor::zeros((4, 6), DType::I32, &device).unwrap();
    let e = text(refused(q.attention(&k, &k, Some(&numbers), &full)), ErrorKind::DType);
    assert!(e.contains("a mask is bool (true: may attend) or float"), "{e}");
    let e = text(refused(numbers.attention(&numbers, &numbers, None, &full)), ErrorKind::DType);
    assert!(e.contains("needs floats"), "{e}");
    let e = text(refused(q.attention(&k, &k, None, &full.window(3))), ErrorKind::Value);
    assert!(e.contains("Attention::causal(offset).window(n)"), "{e}");
    let e =
        text(refused(q.attention(&k, &k, None, &Attention::causal(0).window(0))), ErrorKind::Value);
    assert!(e.contains("a window of 0 keys"), "{e}");
    for c in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let e = text(refused(q.attention(&k, &k, None, &full.softcap(c))), ErrorKind::Value);
        assert!(e.contains(&format!("expected a positive finite cap of scores, got {c}")), "{e}");
    }
}
