//! A value that is lent to one call at a time. A call that awaits must not hold a `RefCell`, and
//! JavaScript may call again meanwhile.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use teeny_core::{Error, Result};

/// A value, or the place of one that is lent.
pub struct Slot<T>(RefCell<Option<T>>);

impl<T> Slot<T> {
    /// A slot with `value`.
    pub fn new(value: T) -> Slot<T> {
        Slot(RefCell::new(Some(value)))
    }

    /// The value, until the loan is dropped.
    ///
    /// # Errors
    /// If it is lent.
    pub fn lend(&self) -> Result<Loan<'_, T>> {
        match self.0.borrow_mut().take() {
            Some(value) => Ok(Loan { slot: self, value: Some(value) }),
            None => Err(Error::value("an earlier call has not ended: a read is still pending")
                .help("await one call before the next")),
        }
    }
}

/// A value that returns to its slot.
pub struct Loan<'s, T> {
    slot: &'s Slot<T>,
    /// Absent only in `drop`.
    value: Option<T>,
}

impl<T> Deref for Loan<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("a loan has its value until it is dropped")
    }
}

impl<T> DerefMut for Loan<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("a loan has its value until it is dropped")
    }
}

impl<T> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        *self.slot.0.borrow_mut() = self.value.take();
    }
}
