//! The hooks of one node: functions that see, and may replace, a complete gradient.
//!
//! Independent of the graph. `hooks` has the handle of a registered hook, `backward` calls the
//! list.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use teeny_core::{Result, Tensor};

/// A function of a complete gradient; `Some` replaces the gradient.
pub(crate) type HookFn = dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync;

/// The hooks of one node, in the order they were registered.
#[derive(Default)]
pub(crate) struct Hooks(Mutex<Vec<Arc<HookFn>>>);

impl Hooks {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<HookFn>>> {
        // Pushing and removing leave the list whole even if a panic struck elsewhere.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn push(&self, hook: Arc<HookFn>) {
        self.list().push(hook);
    }

    pub fn remove(&self, hook: &Weak<HookFn>) {
        self.list().retain(|h| !std::ptr::addr_eq(Arc::as_ptr(h), hook.as_ptr()));
    }

    /// `g` after all hooks.
    pub fn apply(&self, g: Tensor) -> Result<Tensor> {
        // The list is copied so that a hook may itself run a backward pass through this node.
        let hooks = self.list().clone();
        hooks.iter().try_fold(g, |g, hook| Ok(hook(&g)?.unwrap_or(g)))
    }
}
