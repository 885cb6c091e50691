//! Operators: sugar for the methods that panics with the error's text. The memory of an operand
//! passed by value, such as `a * b` in `a * b + c`, may be reused for the result, which no method
//! does.

use super::math::{Either, binary_in_place, scalar_left, tables};
use crate::context::enter;
use crate::element::Element;
use crate::error::Result;
use crate::tensor::Tensor;

#[track_caller]
fn expect<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $inherent:ident $build:expr;)*) => {$(
        impl std::ops::$trait<&Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: &Tensor) -> Tensor { expect(Tensor::$inherent(self, rhs)) }
        }
        impl std::ops::$trait<Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $method(self, mut rhs: Tensor) -> Tensor {
                let op = enter(stringify!($inherent));
                let (table, other) = (&tables::$inherent, Either::Tensor(self));
                let result = binary_in_place(&mut rhs, 1, other, table, $build);
                if result.is_err() {
                    op.failed_on(&[("lhs", Some(self)), ("rhs", Some(&rhs))]);
                }
                expect(result);
                rhs
            }
        }
        impl std::ops::$trait<&Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $method(mut self, rhs: &Tensor) -> Tensor {
                let op = enter(stringify!($inherent));
                let (table, other) = (&tables::$inherent, Either::Tensor(rhs));
                let result = binary_in_place(&mut self, 0, other, table, $build);
                if result.is_err() {
                    op.failed_on(&[("lhs", Some(&self)), ("rhs", Some(rhs))]);
                }
                expect(result);
                self
            }
        }
        impl std::ops::$trait<Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: Tensor) -> Tensor { std::ops::$trait::$method(self, &rhs) }
        }
        impl<T: Element> std::ops::$trait<T> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: T) -> Tensor { expect(Tensor::$inherent(self, rhs)) }
        }
        impl<T: Element> std::ops::$trait<T> for Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $method(mut self, rhs: T) -> Tensor {
                let op = enter(stringify!($inherent));
                let rhs = Either::Number(rhs.to_scalar());
                let result = binary_in_place(&mut self, 0, rhs, &tables::$inherent, $build);
                if result.is_err() {
                    op.failed_on(&[("lhs", Some(&self))]);
                }
                expect(result);
                self
            }
        }
        operator!(@left $trait $method $inherent $build; f32 f64 i32 i64);
    )*};
    (@left $trait:ident $method:ident $inherent:ident $build:expr; $($number:ty)*) => {$(
        impl std::ops::$trait<&Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: &Tensor) -> Tensor {
                let _op = enter(stringify!($inherent)).on([("rhs", Some(rhs))]);
                expect(scalar_left(&tables::$inherent, self.into(), rhs, $build))
            }
        }
        impl std::ops::$trait<Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $method(self, mut rhs: Tensor) -> Tensor {
                let op = enter(stringify!($inherent));
                let lhs = Either::Number(self.into());
                let result = binary_in_place(&mut rhs, 1, lhs, &tables::$inherent, $build);
                if result.is_err() {
                    op.failed_on(&[("rhs", Some(&rhs))]);
                }
                expect(result);
                rhs
            }
        }
    )*};
}

operator! {
    Add add add |a, b| a + b;
    Sub sub sub |a, b| a - b;
    Mul mul mul |a, b| a * b;
    Div div div |a, b| a / b;
    Rem rem rem |a, b| a.rem(b);
}

impl std::ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        expect(Tensor::neg(self))
    }
}
impl std::ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        expect(Tensor::neg(&self))
    }
}
impl std::ops::Not for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        expect(Tensor::not(self))
    }
}
