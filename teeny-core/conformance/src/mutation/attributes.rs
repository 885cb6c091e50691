//! Changes of attributes by their type. A type without changes fails the campaign: a new type of
//! attribute needs some here.

use std::any::Any;
use teeny_core::quant::Part;
use teeny_core::{
    Attention, DType, Distribution, Extremum, Key, Layout, LinalgOp, QuantType, ReduceOp, Scalar,
    ScanOp, ScatterMode, Shape, SortOrder, Triangle, Window,
};

/// Changes an attribute.
type Apply = dyn Fn(&mut dyn Any) + Send + Sync;
/// The changes of an attribute whose type is in a family.
type Family = fn(&dyn Any) -> Option<Vec<Edit>>;

/// One change of an attribute of a type.
pub struct Edit {
    pub text: String,
    pub apply: Box<Apply>,
}

fn edit<T: Any>(text: impl Into<String>, f: impl Fn(&mut T) + Send + Sync + 'static) -> Edit {
    let apply = move |field: &mut dyn Any| {
        if let Some(value) = field.downcast_mut() {
            f(value);
        }
    };
    Edit { text: text.into(), apply: Box::new(apply) }
}

/// Each of `values` in place of the attribute.
fn each<T: Any + Copy + Send + Sync + std::fmt::Debug>(values: &[T]) -> Vec<Edit> {
    values.iter().map(|&new| edit(format!("is {new:?}"), move |old: &mut T| *old = new)).collect()
}

/// The changes of `field`.
pub fn edits(field: &mut dyn Any) -> Vec<Edit> {
    let families: [Family; 6] = [numbers, lists, kinds, scalars, geometry, options];
    let field: &dyn Any = field;
    families
        .iter()
        .find_map(|family| family(field))
        .expect("an attribute of a type whose changes `mutation/attributes.rs` does not have")
}

fn numbers(field: &dyn Any) -> Option<Vec<Edit>> {
    if field.is::<usize>() {
        return Some(vec![
            edit("one more", |n: &mut usize| *n = n.saturating_add(1)),
            edit("one less", |n: &mut usize| *n = n.saturating_sub(1)),
        ]);
    }
    if field.is::<i32>() {
        return Some(vec![
            edit("one more", |n: &mut i32| *n = n.saturating_add(1)),
            edit("one less", |n: &mut i32| *n = n.saturating_sub(1)),
            edit("negated", |n: &mut i32| *n = n.saturating_neg()),
            edit("ignored", |n: &mut i32| *n = 0),
        ]);
    }
    if field.is::<bool>() {
        return Some(vec![edit("inverted", |b: &mut bool| *b = !*b)]);
    }
    if field.is::<[bool; 3]>() {
        return Some(vec![
            edit("rotated", |b: &mut [bool; 3]| b.rotate_right(1)),
            edit("reversed", |b: &mut [bool; 3]| b.reverse()),
        ]);
    }
    None
}

/// The changes of one number of a list.
fn of_slot<L: Any>(
    name: &str,
    slots: impl Fn(&mut L) -> &mut [usize] + Copy + Send + Sync + 'static,
) -> Vec<Edit> {
    vec![
        edit(format!("{name}: the first is one more"), move |l: &mut L| {
            slots(l).iter_mut().take(1).for_each(|n| *n = n.saturating_add(1));
        }),
        edit(format!("{name}: the first is one less"), move |l: &mut L| {
            slots(l).iter_mut().take(1).for_each(|n| *n = n.saturating_sub(1));
        }),
        edit(format!("{name}: the last is one more"), move |l: &mut L| {
            slots(l).iter_mut().rev().take(1).for_each(|n| *n = n.saturating_add(1));
        }),
        edit(format!("{name}: the last is one less"), move |l: &mut L| {
            slots(l).iter_mut().rev().take(1).for_each(|n| *n = n.saturating_sub(1));
        }),
        edit(format!("{name}: reversed"), move |l: &mut L| slots(l).reverse()),
        edit(format!("{name}: the first is the last"), move |l: &mut L| {
            let slots = slots(l);
            if let [first, .., last] = slots {
                *first = *last;
            }
        }),
    ]
}

fn lists(field: &dyn Any) -> Option<Vec<Edit>> {
    if field.is::<Box<[usize]>>() {
        let mut all = of_slot("list", |l: &mut Box<[usize]>| l);
        all.push(edit("list: the last is missing", |l: &mut Box<[usize]>| {
            *l = l[..l.len().saturating_sub(1)].into();
        }));
        return Some(all);
    }
    if field.is::<Box<[(usize, usize)]>>() {
        type Widths = Box<[(usize, usize)]>;
        return Some(vec![
            edit("before and behind are exchanged", |l: &mut Widths| {
                l.iter_mut().for_each(|(a, b)| std::mem::swap(a, b));
            }),
            edit("the axes are reversed", |l: &mut Widths| l.reverse()),
            edit("one goes from behind to before", |l: &mut Widths| {
                for (before, behind) in l {
                    if *behind > 0 {
                        (*before, *behind) = (*before + 1, *behind - 1);
                    }
                }
            }),
        ]);
    }
    if field.is::<Box<[Shape]>>() {
        return Some(vec![edit("reversed", |l: &mut Box<[Shape]>| l.reverse())]);
    }
    if field.is::<Box<[Part]>>() {
        let mut all = vec![edit("reversed", |l: &mut Box<[Part]>| l.reverse())];
        for kind in QuantType::ALL {
            all.push(edit(format!("the first is {kind:?}"), move |l: &mut Box<[Part]>| {
                l.iter_mut().take(1).for_each(|part| part.kind = kind);
            }));
        }
        all.push(edit("a row goes from the first to the last", |l: &mut Box<[Part]>| {
            if let [first, .., last] = &mut **l {
                (first.rows, last.rows) = (first.rows.saturating_sub(1), last.rows + 1);
            }
        }));
        return Some(all);
    }
    None
}

fn kinds(field: &dyn Any) -> Option<Vec<Edit>> {
    if field.is::<ReduceOp>() {
        return Some(each(&ReduceOp::ALL));
    }
    if field.is::<ScanOp>() {
        return Some(each(&[ScanOp::Sum, ScanOp::Prod]));
    }
    if field.is::<ScatterMode>() {
        let modes = [ScatterMode::Set, ScatterMode::Add, ScatterMode::Max, ScatterMode::Min];
        return Some(each(&modes));
    }
    if field.is::<SortOrder>() {
        return Some(each(&[SortOrder::Ascending, SortOrder::Descending]));
    }
    if field.is::<Extremum>() {
        return Some(each(&[Extremum::Largest, Extremum::Smallest]));
    }
    if field.is::<DType>() {
        return Some(each(&DType::ALL));
    }
    if field.is::<LinalgOp>() {
        let triangles =
            [Triangle::Lower, Triangle::Upper, Triangle::UnitLower, Triangle::UnitUpper];
        let mut all: Vec<Edit> = triangles
            .into_iter()
            .map(|new| {
                edit(format!("the triangle is {new:?}"), move |op: &mut LinalgOp| {
                    if let LinalgOp::SolveTriangular(triangle) = op {
                        *triangle = new;
                    }
                })
            })
            .collect();
        all.push(edit("the size is the other", |op: &mut LinalgOp| match op {
            LinalgOp::Qr { complete: flag } | LinalgOp::Svd { full: flag } => *flag = !*flag,
            _ => {}
        }));
        all.push(edit("the tolerance is 0.5", |op: &mut LinalgOp| {
            if let LinalgOp::Pinv { rtol } = op {
                *rtol = 0.5;
            }
        }));
        return Some(all);
    }
    None
}

fn scalars(field: &dyn Any) -> Option<Vec<Edit>> {
    if field.is::<Scalar>() {
        let mut all: Vec<Edit> = DType::ALL
            .into_iter()
            .map(|via| edit(format!("goes through {via}"), move |v: &mut Scalar| *v = v.cast(via)))
            .collect();
        let float = |text: &str, f: fn(f64) -> f64| {
            edit(text, move |v: &mut Scalar| {
                if let Scalar::Float(x) = v {
                    *x = f(*x);
                }
            })
        };
        all.extend([
            float("is rounded to the nearest integer", f64::round),
            float("is rounded down", f64::floor),
            float("is rounded up", f64::ceil),
            edit("is a float", |v: &mut Scalar| *v = Scalar::Float(v.to_f64())),
            edit("is 0", |v: &mut Scalar| *v = Scalar::Int(0).cast(v.kind())),
            edit("is negated", |v: &mut Scalar| {
                *v = match *v {
                    Scalar::Float(x) => Scalar::Float(-x),
                    Scalar::Int(x) => Scalar::Int(x.wrapping_neg()),
                    Scalar::Bool(x) => Scalar::Bool(!x),
                    Scalar::UInt(x) => Scalar::UInt(x.wrapping_neg()),
                };
            }),
        ]);
        return Some(all);
    }
    if field.is::<Distribution>() {
        let of = |text: &str, f: fn(&mut Distribution)| edit(text, f);
        return Some(vec![
            of("the first number is one more", |d| match d {
                Distribution::Uniform { low: x, .. }
                | Distribution::Normal { mean: x, .. }
                | Distribution::Bernoulli { p: x } => *x += 0.125,
                Distribution::Integer { low, .. } => *low += 1,
            }),
            of("the last number is one more", |d| match d {
                Distribution::Uniform { high: x, .. }
                | Distribution::Normal { std: x, .. }
                | Distribution::Bernoulli { p: x } => *x += 0.125,
                Distribution::Integer { high, .. } => *high += 1,
            }),
            of("is that of other numbers", |d| {
                *d = match *d {
                    Distribution::Uniform { low, high } => {
                        Distribution::Normal { mean: low, std: high }
                    }
                    Distribution::Normal { mean, std } => {
                        Distribution::Uniform { low: mean, high: mean + std }
                    }
                    Distribution::Bernoulli { p } => Distribution::Bernoulli { p: 1.0 - p },
                    Distribution::Integer { high, .. } => Distribution::Integer { low: 0, high },
                }
            }),
        ]);
    }
    None
}

pub fn key_edits() -> Vec<Edit> {
    vec![
        edit("the draw is 0", |key: &mut Key| key.draw = 0),
        edit("the draw has 32 bits", |key: &mut Key| key.draw &= u64::from(u32::MAX)),
        edit("the seed has 32 bits", |key: &mut Key| key.seed &= u64::from(u32::MAX)),
        edit("the draw is one more", |key: &mut Key| key.draw = key.draw.wrapping_add(1)),
        edit("the seed is 0", |key: &mut Key| key.seed = 0),
        edit("seed and draw are exchanged", |key: &mut Key| {
            std::mem::swap(&mut key.seed, &mut key.draw);
        }),
    ]
}

fn geometry(field: &dyn Any) -> Option<Vec<Edit>> {
    if field.is::<Box<Window>>() {
        let mut all = of_slot("stride", |w: &mut Box<Window>| &mut w.stride);
        all.extend(of_slot("padding", |w: &mut Box<Window>| &mut w.padding));
        all.extend(of_slot("dilation", |w: &mut Box<Window>| &mut w.dilation));
        all.extend([
            edit("one group", |w: &mut Box<Window>| w.groups = 1),
            edit("twice the groups", |w: &mut Box<Window>| w.groups *= 2),
        ]);
        return Some(all);
    }
    if field.is::<Shape>() {
        let with = |text: &str, f: fn(&[usize]) -> Vec<usize>| {
            edit(text, move |shape: &mut Shape| {
                *shape = Shape::new(&f(shape)).unwrap_or(*shape);
            })
        };
        return Some(vec![
            with("reversed", |s| s.iter().rev().copied().collect()),
            with("flat", |s| vec![s.iter().product()]),
            with("the last axis is one longer", |s| {
                let mut s = s.to_vec();
                s.iter_mut().rev().take(1).for_each(|n| *n += 1);
                s
            }),
            with("the last axis is one shorter", |s| {
                let mut s = s.to_vec();
                s.iter_mut().rev().take(1).for_each(|n| *n = n.saturating_sub(1));
                s
            }),
        ]);
    }
    if field.is::<Layout>() {
        let with = |text: &str, f: fn(&Layout) -> (Vec<isize>, usize)| {
            edit(text, move |view: &mut Layout| {
                let (strides, offset) = f(view);
                *view = Layout::strided(*view.shape(), &strides, offset, usize::MAX >> 8)
                    .unwrap_or(*view);
            })
        };
        return Some(vec![
            with("the offset is ignored", |v| (v.strides().to_vec(), 0)),
            with("the offset is one more", |v| (v.strides().to_vec(), v.offset() + 1)),
            with("the strides are row-major", |v| {
                (Layout::contiguous(*v.shape()).strides().to_vec(), v.offset())
            }),
            with("the strides are positive", |v| {
                (v.strides().iter().map(|s| s.abs()).collect(), 0)
            }),
            with("the strides are reversed", |v| {
                (v.strides().iter().rev().copied().collect(), v.offset())
            }),
        ]);
    }
    None
}

fn options(field: &dyn Any) -> Option<Vec<Edit>> {
    field.is::<Attention>().then(|| {
        let of = |text: &str, f: fn(&mut Attention)| edit(text, f);
        vec![
            of("the scale is ignored", |o| o.scale = None),
            of("the scale is 1", |o| o.scale = Some(1.0)),
            of("the scale is twice as large", |o| o.scale = o.scale.map(|s| 2.0 * s)),
            of("the causal limit is ignored", |o| {
                o.causal = if o.window.is_some() { o.causal } else { None };
            }),
            of("the causal offset is 0", |o| o.causal = o.causal.map(|_| 0)),
            of("the causal offset is one more", |o| o.causal = o.causal.map(|n| n + 1)),
            of("the causal offset is one less", |o| {
                o.causal = o.causal.map(|n| n.saturating_sub(1));
            }),
            of("the window is ignored", |o| o.window = None),
            of("the window is one more", |o| o.window = o.window.map(|n| n + 1)),
            of("the window is one less", |o| o.window = o.window.map(|n| n.saturating_sub(1))),
            of("the softcap is ignored", |o| o.softcap = None),
            of("the softcap is twice as large", |o| o.softcap = o.softcap.map(|c| 2.0 * c)),
        ]
    })
}
