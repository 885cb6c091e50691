//! The processor that a thread runs on.
//!
//! Linux often wakes a thread on the processor of the thread that wakes it, or on the one where it
//! ran last. A worker that shares its caller's processor sees no job while it runs, because the
//! caller waits for it, and it leaves before the scheduler has moved it: for milliseconds, again
//! and again, an operation has one processor. So a worker asks for another one. Knows nothing of
//! jobs.

use std::collections::BTreeSet;

/// The number of the current processor, from 1 on; 0 if the system does not tell.
#[inline]
pub(crate) fn current() -> u32 {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: reads the number of a processor.
        (unsafe { libc::sched_getcpu() } + 1) as u32
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// Moves this thread to another processor that it may run on, if it runs on `other`.
pub(crate) fn leave(other: u32) {
    if other == 0 || current() != other {
        return;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the set is as long as is said, and a set of all zeros is the empty set; the number of
    // the processor is below that of bits, or the system would have refused to write the set.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if (other - 1) as usize >= 8 * size || libc::sched_getaffinity(0, size, &mut allowed) != 0 {
            return;
        }
        let mut others = allowed;
        libc::CPU_CLR((other - 1) as usize, &mut others);
        // The thread has moved when the first call returns; then it may run where it could before.
        if libc::CPU_COUNT(&others) > 0 && libc::sched_setaffinity(0, size, &others) == 0 {
            libc::sched_setaffinity(0, size, &allowed);
        }
    }
}

/// The cores of the processors that this process may use, at most `processors`. Two threads of one
/// core share its vector units, so products are not faster with both; a single core keeps its
/// threads, which loops that wait for memory profit from.
pub(crate) fn cores(processors: usize) -> usize {
    #[cfg(target_os = "linux")]
    {
        let folder = std::path::Path::new("/sys/devices/system/cpu");
        let siblings = |cpu: usize| {
            std::fs::read_to_string(folder.join(format!("cpu{cpu}/topology/thread_siblings_list")))
        };
        match cores_of(&allowed(), |cpu| siblings(cpu).ok()) {
            Some(cores) if cores > 1 => return cores.min(processors),
            _ => {}
        }
    }
    processors
}

/// The numbers of the processors that this process may use.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    // SAFETY: the set is as long as is said, and a set of all zeros is the empty set.
    let (set, failed) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let failed = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0;
        (set, failed)
    };
    let bits = if failed { 0 } else { 8 * size_of::<libc::cpu_set_t>() };
    // SAFETY: the numbers are below that of bits.
    (0..bits).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// The number of cores that have these processors, if `siblings` says for each which ones are
/// threads of its core.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn cores_of(allowed: &[usize], siblings: impl Fn(usize) -> Option<String>) -> Option<usize> {
    let cores = allowed.iter().map(|&cpu| siblings(cpu)).collect::<Option<BTreeSet<_>>>()?;
    Some(cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_core_are_one_core() {
        // eight processors of four cores: i and i + 4 are threads of one core
        let siblings = |cpu: usize| Some(format!("{},{}", cpu % 4, cpu % 4 + 4));
        for (allowed, cores) in [
            (vec![0, 1, 2, 3, 4, 5, 6, 7], 4),
            (vec![0, 4], 1),
            (vec![0, 1, 5], 2),
            (vec![3, 6, 7], 2),
        ] {
            assert_eq!(cores_of(&allowed, siblings), Some(cores), "{allowed:?}");
        }
        assert_eq!(cores_of(&[0, 1], |_| None), None, "the system does not tell");
        assert!((1..=8).contains(&cores(8)));
        assert_eq!(cores(1), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_leaves_runs_elsewhere_and_keeps_its_processors() {
        let allowed = || {
            // SAFETY: as in `leave`.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), 0);
                set
            }
        };
        let before = allowed();
        for _ in 0..100 {
            leave(current());
        }
        leave(0);
        leave(u32::MAX);
        let after = allowed();
        // SAFETY: reads two sets.
        assert!(unsafe { libc::CPU_EQUAL(&before, &after) });
    }
}
