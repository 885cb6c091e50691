//! The derivatives of kernels, kept so that a training step derives nothing twice.

use crate::symbolic::Derivative;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use teeny_core::{Kernel, Result};

/// More derivatives than this are not kept: a program that builds a new kernel at every step must
/// not fill memory.
const MAX_CACHED: usize = 4096;

/// A kernel (compared by content), a bit for each operand that needs a gradient, and whether
/// results are stored.
type Key = (Arc<Kernel>, u8, bool);

/// The derivatives of kernels, of type `D`. Clones share them.
pub(crate) struct Cache<D>(Arc<RwLock<HashMap<Key, Arc<D>>>>);

/// A derivative that this thread has used recently, of the cache at an address.
struct Recent {
    cache: usize,
    kernel: Arc<Kernel>,
    needs: u8,
    stored: bool,
    derivative: Arc<Derivative>,
}

/// The number of derivatives that a thread keeps: enough for a step of a small network.
const RECENT: usize = 64;

thread_local! {
    static RECENT_DERIVATIVES: RefCell<[Option<Recent>; RECENT]> = const { RefCell::new([const { None }; RECENT]) };
}

impl Cache<Derivative> {
    /// [`Cache::get`] without its lock and without hashing the kernel, if this thread has used the
    /// same kernel recently.
    pub fn get_recent(
        &self,
        kernel: &Arc<Kernel>,
        needs: u8,
        stored: bool,
        derive: impl FnOnce() -> Result<Derivative>,
    ) -> Result<Arc<Derivative>> {
        let (cache, place) = (
            Arc::as_ptr(&self.0).addr(),
            (Arc::as_ptr(kernel).addr() >> 4 ^ usize::from(needs)) % RECENT,
        );
        let known = RECENT_DERIVATIVES.with_borrow(|recent| match &recent[place] {
            Some(r)
                if Arc::ptr_eq(&r.kernel, kernel)
                    && r.cache == cache
                    && r.needs == needs
                    && r.stored == stored =>
            {
                Some(r.derivative.clone())
            }
            Some(_) | None => None,
        });
        if let Some(derivative) = known {
            return Ok(derivative);
        }
        let derivative = self.get(kernel, needs, stored, derive)?;
        let recent =
            Recent { cache, kernel: kernel.clone(), needs, stored, derivative: derivative.clone() };
        let before = RECENT_DERIVATIVES.with_borrow_mut(|all| all[place].replace(recent));
        drop(before);
        Ok(derivative)
    }
}

impl<D> Clone for Cache<D> {
    fn clone(&self) -> Cache<D> {
        Cache(self.0.clone())
    }
}

impl<D> Default for Cache<D> {
    fn default() -> Cache<D> {
        Cache(Arc::default())
    }
}

impl<D> Cache<D> {
    /// The derivative of `kernel`, made by `derive` at the first call.
    pub fn get(
        &self,
        kernel: &Arc<Kernel>,
        needs: u8,
        stored: bool,
        derive: impl FnOnce() -> Result<D>,
    ) -> Result<Arc<D>> {
        let key = (kernel.clone(), needs, stored);
        let found =
            self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&key).cloned();
        if let Some(derivative) = found {
            return Ok(derivative);
        }
        let derivative = Arc::new(derive()?);
        let mut map = self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if map.len() >= MAX_CACHED {
            map.clear();
        }
        map.insert(key, derivative.clone());
        Ok(derivative)
    }

    /// How many derivatives are kept.
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).len()
    }
}
