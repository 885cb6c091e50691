//! Hooks: functions that see, and may replace, the gradient of a value during a backward pass. Here
//! is the handle of a registered hook; `hook_list` has the hooks of a node.

pub(crate) use crate::hook_list::HookFn;
use crate::node::Node;
use std::sync::{Arc, Weak};

/// A registered hook. Dropping the handle leaves the hook in place; [`Hook::remove`] takes it off.
pub struct Hook {
    node: Weak<Node>,
    hook: Weak<HookFn>,
}

impl Hook {
    pub(crate) fn new(node: &Arc<Node>, hook: &Arc<HookFn>) -> Hook {
        Hook { node: Arc::downgrade(node), hook: Arc::downgrade(hook) }
    }

    /// Removes the hook.
    pub fn remove(self) {
        if let Some(node) = self.node.upgrade() {
            node.hooks.remove(&self.hook);
        }
    }
}
