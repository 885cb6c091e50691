//! The kinds of fields that an op has, and what each does when the op is listed, recorded, or made
//! again on other operands.

use super::attention::{Attention, AttentionInputs};
use super::kinds::{Extremum, ReduceOp, ScanOp, ScatterMode, SortOrder};
use super::linalg::LinalgOp;
use super::operands::Operands;
use super::window::Window;
use crate::dtype::DType;
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::sync::Arc;

/// The operands that the fields of a new op have not taken yet. An op has at most one operand that
/// may be absent, and none beside a list: the count alone says whether it is there.
pub struct Rest<'a> {
    operands: &'a [&'a Tensor],
    /// An operand that may be absent is among them.
    optional: bool,
}

impl<'a> Rest<'a> {
    /// All `operands` of an op, of which `required` are never absent.
    pub(super) fn new(operands: &'a [&'a Tensor], required: usize) -> Rest<'a> {
        Rest { operands, optional: operands.len() > required }
    }

    fn next(&mut self) -> &'a Tensor {
        let (first, rest) = self.operands.split_first().expect("as many operands as before");
        self.operands = rest;
        first
    }
}

/// A field that holds operands.
pub trait Operand<'a> {
    /// How many it always has; a list has 0 and is the last field.
    const REQUIRED: usize;
    /// Its options, without the operands.
    type Kept: Clone + Copy + PartialEq;
    /// The field of an op on operands of another lifetime.
    type Of<'b>;
    /// Appends its operands to `all`.
    fn list(&self, all: &mut Operands<'a>);
    fn kept(&self) -> Self::Kept;
    /// Takes its operands from the front of `rest`.
    fn from_rest<'b>(kept: Self::Kept, rest: &mut Rest<'b>) -> Self::Of<'b>;
}

impl<'a> Operand<'a> for &'a Tensor {
    const REQUIRED: usize = 1;
    type Kept = ();
    type Of<'b> = &'b Tensor;
    fn list(&self, all: &mut Operands<'a>) {
        all.push(self);
    }
    fn kept(&self) {}
    fn from_rest<'b>((): (), rest: &mut Rest<'b>) -> &'b Tensor {
        rest.next()
    }
}

impl<'a> Operand<'a> for Option<&'a Tensor> {
    const REQUIRED: usize = 0;
    type Kept = ();
    type Of<'b> = Option<&'b Tensor>;
    fn list(&self, all: &mut Operands<'a>) {
        self.iter().for_each(|x| all.push(x));
    }
    fn kept(&self) {}
    fn from_rest<'b>((): (), rest: &mut Rest<'b>) -> Option<&'b Tensor> {
        rest.optional.then(|| rest.next())
    }
}

impl<'a> Operand<'a> for &'a [&'a Tensor] {
    const REQUIRED: usize = 0;
    type Kept = ();
    type Of<'b> = &'b [&'b Tensor];
    fn list(&self, all: &mut Operands<'a>) {
        all.extend(self);
    }
    fn kept(&self) {}
    fn from_rest<'b>((): (), rest: &mut Rest<'b>) -> &'b [&'b Tensor] {
        std::mem::take(&mut rest.operands)
    }
}

impl<'a> Operand<'a> for AttentionInputs<'a> {
    const REQUIRED: usize = 3;
    type Kept = Attention;
    type Of<'b> = AttentionInputs<'b>;
    fn list(&self, all: &mut Operands<'a>) {
        [self.q, self.k, self.v].into_iter().chain(self.mask).for_each(|x| all.push(x));
    }
    fn kept(&self) -> Attention {
        self.options
    }
    fn from_rest<'b>(options: Attention, rest: &mut Rest<'b>) -> AttentionInputs<'b> {
        let [q, k, v] = [rest.next(), rest.next(), rest.next()];
        AttentionInputs { q, k, v, mask: Option::from_rest((), rest), options }
    }
}

/// An attribute: borrowed in an op, owned in its recorded form.
pub trait Attribute {
    type Owned: Clone + PartialEq;
    type Lent<'b>
    where
        Self: 'b;
    /// The recorded form.
    fn owned(&self) -> Self::Owned;
    /// Borrows the field from the recorded form.
    fn lent(owned: &Self::Owned) -> Self::Lent<'_>;
    /// The same field for an op that borrows from this one.
    fn again(&self) -> Self::Lent<'_>;
}

/// Attributes that are copied.
macro_rules! by_value {
    ($($value:ty)*) => { $(
        impl Attribute for $value {
            type Owned = $value;
            type Lent<'b> = $value;
            fn owned(&self) -> $value {
                *self
            }
            fn lent(owned: &$value) -> $value {
                *owned
            }
            fn again(&self) -> $value {
                *self
            }
        }
    )* };
}
by_value! {
    usize i32 bool [bool; 3] Scalar DType Distribution
    ReduceOp ScanOp ScatterMode SortOrder Extremum LinalgOp
}

/// Attributes that are references.
macro_rules! by_reference {
    ($([$($generic:tt)*] $value:ty => $owned:ty;)*) => { $(
        impl<'a, $($generic)*> Attribute for &'a $value {
            type Owned = $owned;
            type Lent<'b> = &'b $value where Self: 'b;
            fn owned(&self) -> $owned {
                (*self).clone().into()
            }
            fn lent(owned: &$owned) -> &$value {
                owned
            }
            fn again(&self) -> &$value {
                self
            }
        }
    )* };
}
by_reference! {
    [] Shape => Shape;
    [] Layout => Layout;
    [] Arc<Kernel> => Arc<Kernel>;
    [] Window => Box<Window>;
}

impl<T: Clone + PartialEq> Attribute for &[T] {
    type Owned = Box<[T]>;
    type Lent<'b>
        = &'b [T]
    where
        Self: 'b;
    fn owned(&self) -> Box<[T]> {
        (*self).into()
    }
    fn lent(owned: &Box<[T]>) -> &[T] {
        owned
    }
    fn again(&self) -> &[T] {
        self
    }
}

/// The numbers of an op that may be others when the same work is done again.
#[derive(Clone, Copy, Default)]
pub struct RuntimeArgs<'a> {
    /// The run-time parameters of a kernel.
    pub params: &'a [Scalar],
    /// The key of a random draw.
    pub key: Option<Key>,
}

/// A field that may have another value when the same work is done again.
pub(crate) trait RunTime<'a> {
    /// The field of an op of another lifetime.
    type Of<'b>;
    /// The field's value, moved or copied to an op that replaces this one.
    fn pass_on<'b>(&'b mut self) -> Self::Of<'b>
    where
        'a: 'b;
    /// Stores it in `args`.
    fn note(&self, args: &mut RuntimeArgs<'a>);
    /// Takes it from `args`, or the destination from `dst`.
    fn given<'b>(args: RuntimeArgs<'b>, dst: &mut Option<StorageRef>) -> Self::Of<'b>;
}

impl<'a> RunTime<'a> for &'a [Scalar] {
    type Of<'b> = &'b [Scalar];
    fn pass_on<'b>(&'b mut self) -> &'b [Scalar]
    where
        'a: 'b,
    {
        self
    }
    fn note(&self, args: &mut RuntimeArgs<'a>) {
        args.params = self;
    }
    fn given<'b>(args: RuntimeArgs<'b>, _: &mut Option<StorageRef>) -> &'b [Scalar] {
        args.params
    }
}

impl<'a> RunTime<'a> for Key {
    type Of<'b> = Key;
    fn pass_on<'b>(&'b mut self) -> Key
    where
        'a: 'b,
    {
        *self
    }
    fn note(&self, args: &mut RuntimeArgs<'a>) {
        args.key = Some(*self);
    }
    fn given<'b>(args: RuntimeArgs<'b>, _: &mut Option<StorageRef>) -> Key {
        args.key.unwrap_or(Key { seed: 0, draw: 0 })
    }
}

impl<'a> RunTime<'a> for Option<StorageRef> {
    type Of<'b> = Option<StorageRef>;
    fn pass_on<'b>(&'b mut self) -> Option<StorageRef>
    where
        'a: 'b,
    {
        self.take()
    }
    fn note(&self, _: &mut RuntimeArgs<'a>) {}
    fn given<'b>(_: RuntimeArgs<'b>, dst: &mut Option<StorageRef>) -> Option<StorageRef> {
        dst.take()
    }
}
