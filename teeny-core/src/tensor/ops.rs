//! Operators: sugar for the methods that panics with the error's text.

use super::Tensor;
use super::math::{number_left, tables};
use crate::context::enter;
use crate::element::Element;
use crate::error::Result;

#[track_caller]
fn expect(result: Result<Tensor>) -> Tensor {
    match result {
        Ok(tensor) => tensor,
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
            fn $method(self, rhs: Tensor) -> Tensor { expect(Tensor::$inherent(self, &rhs)) }
        }
        impl std::ops::$trait<&Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: &Tensor) -> Tensor { expect(Tensor::$inherent(&self, rhs)) }
        }
        impl std::ops::$trait<Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: Tensor) -> Tensor { expect(Tensor::$inherent(&self, &rhs)) }
        }
        impl<T: Element> std::ops::$trait<T> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: T) -> Tensor { expect(Tensor::$inherent(self, rhs)) }
        }
        impl<T: Element> std::ops::$trait<T> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: T) -> Tensor { expect(Tensor::$inherent(&self, rhs)) }
        }
        operator!(@left $trait $method $inherent $build; f32 f64 i32 i64);
    )*};
    (@left $trait:ident $method:ident $inherent:ident $build:expr; $($number:ty)*) => {$(
        impl std::ops::$trait<&Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: &Tensor) -> Tensor {
                let _op = enter(stringify!($inherent));
                expect(number_left(&tables::$inherent, self.into(), rhs, $build))
            }
        }
        impl std::ops::$trait<Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: Tensor) -> Tensor { std::ops::$trait::$method(self, &rhs) }
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
