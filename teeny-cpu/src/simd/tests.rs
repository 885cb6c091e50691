//! The vectors of the baseline agree: arrays and registers.

use super::*;

const TABLE: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, -15.5];

/// Results of `lookup`, `scale`, `split` and `rsqrt` for numbers of x and n, the last of f64 too.
struct Tables<'a> {
    x: &'a [f32],
    n: &'a [f32],
    out: [Vec<f32>; 6],
}

impl Work for Tables<'_> {
    type Out = [Vec<f32>; 6];
    #[inline(always)]
    fn run<V: F32s>(mut self) -> Self::Out {
        for i in (0..self.x.len()).step_by(V::LANES) {
            // SAFETY: all have as many numbers, a multiple of LANES.
            unsafe {
                let (x, n) = (V::load(self.x.as_ptr().add(i)), V::load(self.n.as_ptr().add(i)));
                let (e, m) = x.split();
                let near = V::splat(1.25).add(m.sub(m));
                let exact = V::narrow(x.widen().0.rsqrt(), x.widen().1.rsqrt());
                let all = [V::lookup(&TABLE, x.bits()), near.scale(n), e, m, x.rsqrt(), exact];
                for (y, out) in all.into_iter().zip(&mut self.out) {
                    y.store(out.as_mut_ptr().add(i));
                }
            }
        }
        self.out
    }
}

#[test]
fn lookups_scales_splits_and_roots_are_those_of_single_numbers() {
    let special = [0.0, -0.0, 1e-45, -1e-45, 1e-39, f32::MAX, f32::INFINITY, f32::NEG_INFINITY];
    let others = (0..1200u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)));
    let x: Vec<f32> = special.into_iter().chain(others).chain([f32::NAN; 8]).collect();
    let n: Vec<f32> = (0..x.len()).map(|i| (i % 505) as f32 - 252.0).collect();
    assert_eq!(x.len() % 16, 0);
    for level in Level::available() {
        let out = std::array::from_fn(|_| vec![0.0; x.len()]);
        let [found, scaled, e, m, root, exact] = level.run(Tables { x: &x, n: &n, out });
        for i in 0..x.len() {
            let (x, n, e, m) = (x[i], n[i], e[i], m[i]);
            let (want, got) = ((1.0 / f64::from(x).sqrt()) as f32, root[i]);
            let near = want.to_bits().abs_diff(got.to_bits()) <= 1;
            assert!(near || want.is_nan() && got.is_nan(), "{got} of {x:e} at {level:?}");
            assert!(exact[i] == want || want.is_nan(), "{} of {x:e} at {level:?}", exact[i]);
            assert_eq!(found[i], TABLE[(x.to_bits() & 15) as usize], "{x:e} at {level:?}");
            if x > 0.0 && x < f32::INFINITY {
                assert_eq!(scaled[i], (1.25 * f64::from(n).exp2()) as f32, "{n} at {level:?}");
                assert!((0.75..1.5).contains(&m), "{m} of {x:e} at {level:?}");
                assert_eq!(f64::from(m) * f64::from(e).exp2(), f64::from(x), "{x:e} at {level:?}");
            } else {
                // The logarithm is e, unless m is NaN.
                let y = if m.is_nan() { m } else { e };
                assert!(y == x.ln() || y.is_nan() && x.ln().is_nan(), "{y} of {x} at {level:?}");
            }
        }
    }
}

/// `f` of both halves in f64.
fn halves<V: F32s>(a: V, b: V, c: V, f: fn(V::F64s, V::F64s, V::F64s) -> V::F64s) -> V {
    let ((a0, a1), (b0, b1), (c0, c1)) = (a.widen(), b.widen(), c.widen());
    V::narrow(f(a0, b0, c0), f(a1, b1, c1))
}

/// The results of all operations of a vector on 8 numbers each.
fn all<V: F32s>(a: &[f32; 8], b: &[f32; 8], c: &[f32; 8]) -> Vec<f32> {
    let ops: [fn(V, V, V) -> V; 25] = [
        |a, b, _| a.add(b),
        |a, b, _| a.sub(b),
        |a, b, _| a.mul(b),
        |a, b, _| a.div(b),
        |a, b, c| a.fma(b, c),
        |a, b, _| a.min(b),
        |a, b, _| a.max(b),
        |a, _, _| a.sqrt(),
        |a, _, _| a.round(),
        |a, _, _| a.floor(),
        |a, _, _| a.abs(),
        |a, b, _| a.xor_sign(b),
        |a, b, c| V::select(a.lt(b), b, c),
        |a, b, c| V::select(a.eq(b), b, c),
        |a, _, _| {
            V::from_i32(V::i_add(
                a.min(V::splat(1e9)).max(V::splat(-1e9)).round().to_i32(),
                V::i_splat(3),
            ))
        },
        |a, b, _| V::from_bits(V::i_sub(a.bits(), V::i_sra::<3>(b.bits()))),
        |a, b, _| V::from_bits(V::i_xor(V::i_shl::<2>(a.bits()), b.bits())),
        |a, _, c| V::splat(a.part(1).total()).add(c.part(2)),
        |a, b, c| V::splat(V::totals([a, b, c, a].map(|x| x.part(4)))[2]),
        |a, b, _| V::splat(a.part(4).max(b.part(4)).max(V::splat(0.5)).largest()),
        |a, b, _| V::narrow(a.widen().0.sub(b.widen().0), a.widen().1.sub(b.widen().1)),
        |a, b, _| V::lookup(&TABLE, V::i_xor(a.bits(), V::i_sra::<19>(b.bits()))),
        |a, b, c| halves(a, b, c, |a, b, c| a.fma(b, c).round().min(b).div(c)),
        |a, b, c| halves(a, b, c, |a, b, c| V::F64s::select(a.lt(b), b.sqrt(), c.floor()).max(a)),
        |a, b, c| {
            halves(a, b, c, |a, b, c| {
                let (a, b, c) = (a.bits(), b.bits(), c.bits());
                let sum = V::F64s::i_sub(V::F64s::i_shl::<3>(a), V::F64s::i_shr::<5>(b));
                // Bits of other exponents would not be f32.
                let bits = V::F64s::i_and(sum, V::F64s::i_splat((1 << 52) - (1 << 29)));
                let one = V::F64s::splat(1.0).bits();
                let either = V::F64s::i_xor(c, V::F64s::i_add(c, bits));
                V::F64s::from_bits(V::F64s::i_add(
                    V::F64s::i_and(either, V::F64s::i_splat((1 << 52) - 1)),
                    one,
                ))
            })
        },
    ];
    let mut results = Vec::new();
    for op in ops {
        let mut out = [0.0f32; 8];
        for i in (0..8).step_by(V::LANES) {
            // SAFETY: all have eight numbers, of which LANES is a divisor.
            unsafe {
                let [a, b, c] = [a, b, c].map(|x| V::load(x.as_ptr().add(i)));
                op(a, b, c).store(out.as_mut_ptr().add(i));
            }
        }
        // Sums of lanes are of whole vectors, so that the second four may differ; every number
        // is among the first four of some call.
        results.extend(out.iter().take(4));
    }
    for n in 0..=4 {
        let mut out = [7.0f32; 4];
        // SAFETY: n of four.
        unsafe { V::load_part(a.as_ptr(), n).store_part(out.as_mut_ptr(), n) };
        results.extend(out);
    }
    results
}

#[test]
fn arrays_and_registers_of_the_baseline_agree() {
    let special = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -3.7,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        8_388_607.5,
        -4_194_304.5,
        1e30,
        1e-40,
        0.3,
        16_777_216.0,
    ];
    for shift in 0..special.len() {
        let at = |k: usize| std::array::from_fn(|i| special[(i * k + shift) % special.len()]);
        let (a, b, c) = (at(1), at(3), at(5));
        let (arrays, registers) = (all::<portable::V>(&a, &b, &c), all::<Baseline>(&a, &b, &c));
        for (i, (x, y)) in arrays.iter().zip(&registers).enumerate() {
            assert!(
                x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(),
                "result {i} of {a:?} {b:?} {c:?}: {x} and {y}"
            );
        }
    }
}
