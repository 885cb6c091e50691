//! The mutants of a signature: every change of every attribute, parameter, operand and result.

use super::attributes::{self, Edit};
use super::program;
use super::request::{Request, stored};
use super::signature::{Noted, Signature};
use super::values::{self, ValueEdit};
use std::any::Any;
use std::fmt;
use teeny_core::op::recorded::Recorded;
use teeny_core::{DeviceRef, Kernel, Layout, OpCode, Scalar, Tensor};

type ChangeRequest = Box<dyn Fn(&mut Request, &DeviceRef) -> Option<()> + Send + Sync>;
type ChangeResults = Box<dyn Fn(&mut Vec<Tensor>, &DeviceRef) -> Option<()> + Send + Sync>;

/// The change that a mutant makes. A function returns `None` if it changes nothing.
pub enum Change {
    /// It runs another request.
    Request(ChangeRequest),
    /// It returns other results.
    Results(ChangeResults),
}

/// A fault in one kind of request.
pub struct Mutant {
    pub variant: &'static str,
    pub name: &'static str,
    /// The fault in words, after the variant and the name.
    pub text: String,
    pub change: Change,
}

impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Operands of a list beyond these have no mutants.
const MAX_LISTED: usize = 3;

/// Every mutant of requests with this signature.
pub fn all(signature: &Signature, noted: &Noted) -> Vec<Mutant> {
    let mut all = Vec::new();
    let mut add = |text: String, change: Change| {
        let &Signature { variant, name, .. } = signature;
        all.push(Mutant { variant, name, text: format!("{variant} {name}: {text}"), change });
    };
    let mut attributes = noted.attributes.clone();
    for (field, value) in attributes.fields().1 {
        if let Some(kernel) = (value as &dyn Any).downcast_ref::<std::sync::Arc<Kernel>>() {
            for edit in program::edits(kernel, signature.variant == "Elementwise") {
                let text = edit.text();
                let change = move |request: &mut Request, _: &DeviceRef| {
                    change_field(request, field, &|value| edit.apply(value))
                };
                add(format!("{field}: {text}"), Change::Request(Box::new(change)));
            }
            continue;
        }
        for Edit { text, apply } in attributes::edits(value) {
            let change =
                move |request: &mut Request, _: &DeviceRef| change_field(request, field, &*apply);
            add(format!("{field}: {text}"), Change::Request(Box::new(change)));
        }
    }
    for i in (0..noted.params.min(MAX_LISTED)).filter(|&i| is_read(&noted.attributes, i)) {
        for Edit { text, apply } in attributes::edits(&mut Scalar::Bool(false)) {
            let change = move |request: &mut Request, _: &DeviceRef| {
                let old = request.params[i];
                apply(&mut request.params[i]);
                (request.params[i] != old).then_some(())
            };
            add(format!("parameter {i}: {text}"), Change::Request(Box::new(change)));
        }
    }
    if noted.params > 1 {
        let change = |request: &mut Request, _: &DeviceRef| {
            let old = request.params.clone();
            request.params.reverse();
            (request.params != old).then_some(())
        };
        add("parameters are reversed".into(), Change::Request(Box::new(change)));
    }
    if noted.has_key {
        for Edit { text, apply } in attributes::key_edits() {
            let change = move |request: &mut Request, _: &DeviceRef| {
                let key = request.key.as_mut()?;
                let old = *key;
                apply(key);
                (*key != old).then_some(())
            };
            add(format!("key: {text}"), Change::Request(Box::new(change)));
        }
    }
    operands(signature, &mut add);
    results(signature, &mut add);
    all
}

/// Whether parameter `i` has a part in a result: a program need not read all of its parameters.
fn is_read(attributes: &Recorded, i: usize) -> bool {
    let Some(kernel) = attributes.kernel() else { return true };
    let nodes = kernel.nodes();
    let Some(place) = nodes.iter().position(|node| node.op == OpCode::Param(i as u8)) else {
        return false;
    };
    let is_place = |&source: &_| usize::from(source) == place;
    kernel.outputs().iter().any(is_place)
        || nodes.iter().any(|node| node.sources().iter().any(is_place))
}

/// Changes the attribute `field` by `edit`.
fn change_field(request: &mut Request, field: &str, edit: &dyn Fn(&mut dyn Any)) -> Option<()> {
    let old = request.attributes.clone();
    let (_, fields) = request.attributes.fields();
    let (_, value) = fields.into_iter().find(|(name, _)| *name == field)?;
    edit(value);
    (request.attributes != old).then_some(())
}

type Add<'a> = &'a mut dyn FnMut(String, Change);

fn operands(signature: &Signature, add: Add<'_>) {
    let count = signature.operands.len();
    for (i, &dtype) in signature.operands.iter().enumerate().take(MAX_LISTED) {
        for (text, edit) in LAYOUTS {
            let change = move |request: &mut Request, _: &DeviceRef| {
                let x = request.operands.get(i)?;
                let layout = edit(x)?;
                if layout == *x.layout() {
                    return None;
                }
                request.operands[i] = x.with_layout(layout).ok()?;
                Some(())
            };
            add(format!("operand {i}: {text}"), Change::Request(Box::new(change)));
        }
        for edit in values::edits(dtype) {
            let text = edit.text(dtype);
            let change = move |request: &mut Request, oracle: &DeviceRef| {
                let x =
                    request.operands.get(i).filter(|x| x.dtype() == dtype || !edit.is_of_type())?;
                let y = changed(x, edit, oracle)?;
                request.operands[i] = y;
                Some(())
            };
            add(format!("operand {i}: {text}"), Change::Request(Box::new(change)));
        }
        if i + 1 < count && signature.operands[i + 1] == dtype {
            let change = move |request: &mut Request, _: &DeviceRef| {
                (i + 1 < request.operands.len()).then_some(())?;
                request.operands[i] = request.operands[i + 1].clone();
                Some(())
            };
            add(format!("operand {i}: is operand {}", i + 1), Change::Request(Box::new(change)));
            let change = move |request: &mut Request, _: &DeviceRef| {
                (i + 1 < request.operands.len()).then_some(())?;
                request.operands.swap(i, i + 1);
                Some(())
            };
            let text = format!("operand {i}: is exchanged with operand {}", i + 1);
            add(text, Change::Request(Box::new(change)));
        }
        let change = move |request: &mut Request, _: &DeviceRef| {
            // what is left is valid for an optional operand and for a list
            (i < request.operands.len()).then(|| drop(request.operands.remove(i)))
        };
        add(format!("operand {i}: is absent"), Change::Request(Box::new(change)));
    }
}

fn results(signature: &Signature, add: Add<'_>) {
    for (i, &dtype) in signature.results.iter().enumerate().take(MAX_LISTED) {
        for edit in values::edits(dtype).into_iter().chain(values::of_results()) {
            let text = edit.text(dtype);
            let change = move |all: &mut Vec<Tensor>, oracle: &DeviceRef| {
                let y = all.get(i).filter(|y| y.dtype() == dtype || !edit.is_of_type())?;
                all[i] = changed(y, edit, oracle)?;
                Some(())
            };
            add(format!("result {i}: {text}"), Change::Results(Box::new(change)));
        }
        if signature.results.get(i + 1) == Some(&dtype) {
            let change = move |all: &mut Vec<Tensor>, _: &DeviceRef| {
                (i + 1 < all.len()).then(|| all.swap(i, i + 1))
            };
            let text = format!("result {i}: is exchanged with result {}", i + 1);
            add(text, Change::Results(Box::new(change)));
        }
    }
}

/// `x` with other elements; `None` if `edit` changes none.
fn changed(x: &Tensor, edit: ValueEdit, oracle: &DeviceRef) -> Option<Tensor> {
    let old = x.to_scalars().ok()?;
    let mut new = old.clone();
    edit.apply(&mut new, x.dtype());
    if new == old {
        return None;
    }
    let layout = Layout::contiguous(*x.shape());
    let storage = stored(&new, x.dtype(), oracle).ok()?;
    Tensor::from_parts(storage, layout, x.dtype(), oracle.clone()).ok()
}

/// How a layout may be misread.
type EditLayout = fn(&Tensor) -> Option<Layout>;
const LAYOUTS: [(&str, EditLayout); 3] = [
    ("its offset is ignored", |x| {
        Layout::strided(*x.shape(), x.strides(), 0, x.storage().len()).ok()
    }),
    ("its strides are taken for row-major", |x| {
        let plain = Layout::contiguous(*x.shape());
        let (shape, strides) = (*x.shape(), plain.strides());
        Layout::strided(shape, strides, x.layout().offset(), x.storage().len()).ok()
    }),
    ("its strides are taken for positive", |x| {
        let strides: Vec<isize> = x.strides().iter().map(|s| s.abs()).collect();
        Layout::strided(*x.shape(), &strides, 0, x.storage().len()).ok()
    }),
];
