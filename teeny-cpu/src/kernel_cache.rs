//! A thread-local cache of the programs that were compiled for earlier kernels.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::LocalKey;
use teeny_core::kernel::Kernel;

/// Kernels and their compiled programs, at the index from the kernel's hash.
pub(crate) type Cache<T, const N: usize> = [Cell<Option<Box<(Arc<Kernel>, T)>>>; N];

/// Calls `f` with the program that `make` makes of `kernel`, now or at an earlier call.
#[inline]
pub(crate) fn cached<T, R, const N: usize>(
    cache: &'static LocalKey<Cache<T, N>>,
    kernel: &Arc<Kernel>,
    make: impl FnOnce() -> T,
    f: impl FnOnce(&T) -> R,
) -> R {
    let place = kernel.content_hash() as usize % N;
    let known = cache.with(|cache| cache[place].take());
    // Equal if they are the same one, without a look at the nodes.
    let entry = known
        .filter(|entry| entry.0 == *kernel)
        .unwrap_or_else(|| Box::new((kernel.clone(), make())));
    let result = f(&entry.1);
    cache.with(|cache| cache[place].set(Some(entry)));
    result
}
