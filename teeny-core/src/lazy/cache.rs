//! The plans that are kept, found by the nodes they were made for.

use super::list::{List, Mixer};
use super::plan::ExecutionPlan;
use crate::kernel::Kernel;
use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::sync::Arc;

/// Plans that are kept, and fused kernels.
const PLANS: usize = 256;
const KERNELS: usize = 4096;

/// The plans used last, and their kernels.
#[derive(Default)]
pub(super) struct Cache {
    plans: HashMap<u64, (Arc<ExecutionPlan>, u64)>,
    /// One copy of each fused kernel, by content: engines cache what they compile for it.
    kernels: HashSet<Arc<Kernel>>,
    /// How often a plan was looked up.
    clock: u64,
    /// How many plans were made.
    made: u64,
}

/// A plan, and the result of its lookup.
pub(super) struct Found {
    pub(super) plan: Arc<ExecutionPlan>,
    pub(super) is_new: bool,
    /// Kernels that no plan had before.
    pub(super) kernels: usize,
}

impl Cache {
    /// The plan of `list` with these slots held, always by the same rules
    /// ([`crate::LazyOptions::reassociate`]).
    pub(super) fn find(&mut self, list: &List, held: Vec<bool>, reassociate: bool) -> Found {
        let (nodes, hash) = (&list.nodes, list.hash);
        self.clock += 1;
        let mut key = Mixer(hash);
        held.iter()
            .enumerate()
            .filter(|(_, held)| **held)
            .for_each(|(i, _)| key.write_u64(i as u64));
        let key = key.finish();
        if let Some((plan, used)) = self.plans.get_mut(&key)
            && plan.serves(nodes, &held)
        {
            *used = self.clock;
            return Found { plan: plan.clone(), is_new: false, kernels: 0 };
        }
        if self.kernels.len() > KERNELS {
            self.kernels.clear();
        }
        let before = self.kernels.len();
        let mut intern = |kernel: Kernel| {
            let kernel = Arc::new(kernel);
            match self.kernels.get(&kernel) {
                Some(known) => known.clone(),
                None => {
                    self.kernels.insert(kernel.clone());
                    kernel
                }
            }
        };
        let mut plan =
            ExecutionPlan::new(nodes.clone(), &list.slots, held, reassociate, &mut intern);
        self.made += 1;
        plan.number = self.made;
        let plan = Arc::new(plan);
        if self.plans.len() >= PLANS
            && let Some(oldest) = self.plans.iter().min_by_key(|(_, (_, used))| *used)
        {
            let oldest = *oldest.0;
            self.plans.remove(&oldest);
        }
        self.plans.insert(key, (plan.clone(), self.clock));
        Found { plan, is_new: true, kernels: self.kernels.len() - before }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.plans.clear();
        self.kernels.clear();
    }
}
